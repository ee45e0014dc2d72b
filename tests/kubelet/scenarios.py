"""The tests, each a function of a world; the table at the end names them and says where they make sense."""

import json
import re
import time
from dataclasses import dataclass
from typing import Callable

import node
import pod_level
import pods_api
import processes
import witness
from kubernetes import NO_PODS_API, POD_LEVEL, POD_LEVEL_RESIZE, PODS_API, RESIZE
from pods import STUBBORN, best_effort, burstable, guaranteed, pod
from world import check, is_running, wait, waiting_message

# Each takes twice as long as the one before: kubelet backs off.
RESTARTS = 3


def every_class(world):
    """Guaranteed with a whole CPU and with a fraction, mixed, Burstable, BestEffort."""
    world.submit(
        pod("whole", guaranteed()),
        pod("fraction", guaranteed(cpu="250m")),
        pod("burstable", burstable()),
        pod("besteffort", best_effort()),
    )
    world.await_running("whole", "fraction", "burstable", "besteffort")
    found = world.containers()
    qos = {name: it["qos"] for name, it in found.items()}
    expected = {"whole/main": "Guaranteed", "fraction/main": "Guaranteed", "burstable/main": "Burstable", "besteffort/main": "BestEffort"}
    check(qos == expected, f"QoS classes are {qos}")
    own = witness.parse_list(found["whole/main"]["exclusive"])
    check(len(own) == 1, f"the whole CPU is {sorted(own)}")
    for name in ["fraction/main", "burstable/main", "besteffort/main"]:
        check(found[name]["exclusive"] == "" and not own & witness.parse_list(found[name]["cpus"]), f"{name} runs on {found[name]['cpus']}")


def own_cpu_and_back(world):
    """A running container lets go, and gets it back."""
    world.submit(pod("shares", burstable()))
    world.await_running("shares")
    before = world.container("shares/main")["cpus"]
    world.submit(pod("owns", guaranteed()))
    world.await_running("owns")
    own = witness.parse_list(world.container("owns/main")["exclusive"])
    left = witness.parse_list(world.container("shares/main")["cpus"])
    check(len(own) == 1 and left == world.cpus - own, f"one owns {sorted(own)}, the other runs on {sorted(left)}")
    world.remove("owns")
    world.await_gone("owns")
    wait("the CPU to come back", lambda: world.container("shares/main")["cpus"] == before)
    world.settle()


def at_once(world):
    """A container that has to let go of a CPU while it is being started does so, too."""
    for number in range(3):
        sharers = [pod(f"sharer-{number}-{it}", burstable(), grace=1) for it in range(4)]
        world.submit(*sharers[:2], pod(f"owner-{number}", guaranteed(), grace=1), *sharers[2:])
        names = [it["metadata"]["name"] for it in sharers] + [f"owner-{number}"]
        world.await_running(*names)
        for name in names:
            world.remove(name, grace=1)
        world.await_gone(*names)


def no_room(world):
    """The refusal can be read at the pod, and the pod starts when there is room."""
    world.submit(pod("first", guaranteed()))
    world.await_running("first")
    world.submit(pod("second", guaranteed()))
    message = wait("the refusal", lambda: re.search(r"CreateContainerError: .*needs 1 exclusive CPU.*", waiting_message(world.pod("second"))) and
                   [waiting_message(world.pod("second"))])[0]
    if world.has_api:
        told = wait("an event", lambda: [it for it in world.events("second") if "needs 1 exclusive CPU" in it])
        check(told[0].startswith("Failed: "), f"the event is {told[0]}")
    world.remove("first")
    world.await_running("second")
    check(world.container("second/main")["exclusive"] != "", "the second has no CPU of its own")


def crash_loop(world):
    """A container that owns its CPU and crashes gets it again each time."""
    world.submit(pod("crashes", guaranteed(script="sleep 3; exit 1")), pod("shares", burstable()))
    seen = {}

    def look():
        rows = [it for it in world.bayplan.status()["containers"] if it["container"] == "main" and it["pod"].startswith("crashes")]
        check(len(rows) <= 1, f"the ledger holds {[it['id'] for it in rows]}")
        for it in rows:
            if it["phase"] == "running":
                seen[it["id"]] = it["exclusive"]
        return world.restarts().get(f"crashes{world.suffix}/main", 0) >= RESTARTS or f"seen {len(seen)} times"

    wait(f"{RESTARTS} restarts", look, 120)
    check(len(seen) >= RESTARTS and all(seen.values()), f"of {RESTARTS} restarts it was seen with {list(seen.values())}")
    check(world.restarts()[f"shares{world.suffix}/main"] == 0, "the other one was started again, too")
    world.settle()


def init_and_sidecar(world):
    """The CPU of an init container is used again by the one after it, while a sidecar runs beside both."""
    first = [
        guaranteed("prepare", script="grep Cpus_allowed_list /proc/self/status; sleep 2"),
        guaranteed("sidecar", cpu="250m", restartPolicy="Always"),
    ]
    world.submit(pod("app", guaranteed(), first=first))
    wait("the init container", lambda: "app/prepare" in world.containers())
    world.await_running("app")
    found = world.containers()
    check(set(found) == {"app/main", "app/sidecar"}, f"the ledger holds {sorted(found)}")
    own = witness.parse_list(found["app/main"]["exclusive"])
    beside = witness.parse_list(found["app/sidecar"]["cpus"])
    check(len(own) == 1 and not own & beside, f"the pod owns {sorted(own)}, its sidecar runs on {sorted(beside)}")


def populate(world):
    """One of each kind that a restart could move."""
    world.submit(pod("owns", guaranteed()), pod("shares", burstable()), pod("idle", best_effort()))
    world.await_running("owns", "shares", "idle")
    return world.seats()


def check_unmoved(world, before, others=0):
    """Containers that were there before are where they were, and were not started again; others no more often than `others`."""
    world.settle()
    after = {name: it for name, it in world.seats().items() if name in before}
    check(after == before, f"before {before}, after {after}")
    again = {name: it for name, it in world.restarts().items() if it > (0 if name in before else others)}
    check(not again, f"started again: {again}")


def kubelet_restarts(world):
    before = populate(world)
    world.kubelet.restart()
    wait("kubelet to know its pods again", lambda: all(is_running(world.pod(it)) is True for it in ["owns", "shares", "idle"]))
    # Twice as long as it takes to look at all pods again.
    time.sleep(5)
    check_unmoved(world, before)
    world.submit(pod("new", burstable()))
    world.await_running("new")


def there_and_back(world):
    """A node with pods is switched over to Bayplan, and back: no container is started again, and one that comes meanwhile owns a CPU."""
    point_kubelet(world, node.RUNTIME)
    world.submit(pod("old", burstable()), pod("whole", guaranteed(cpu="500m")))
    wait("pods without Bayplan", lambda: all(is_running(world.pod(it)) is True for it in ["old", "whole"]))
    point_kubelet(world, node.BAYPLAN)
    wait("their adoption", lambda: {"old/main", "whole/main"} <= set(world.containers()))
    world.submit(pod("new", guaranteed()))
    world.await_running("new")
    own = witness.parse_list(world.container("new/main")["exclusive"])
    for name in ["old/main", "whole/main"]:
        check(len(own) == 1 and not own & witness.parse_list(world.container(name)["cpus"]), f"{name} did not let go of {sorted(own)}")
    before = world.seats()
    point_kubelet(world, node.RUNTIME)
    wait("kubelet to know its pods again", lambda: all(is_running(world.pod(it)) is True for it in ["old", "whole", "new"]))
    time.sleep(5)
    check_unmoved(world, before)


def point_kubelet(world, socket_path):
    world.kubelet.point_at(socket_path)
    world.kubelet.restart()


def restored(world):
    """`bayplan restore` and `resume` under pods that run: all of them, newcomers too, are everywhere as without Bayplan, and then where they were."""
    before = populate(world)
    failed = world.failed_calls()
    world.bayplan.ask("restore", "--yes")
    check_free(world)
    world.submit(pod("new", guaranteed(cpu="800m")), pod("passes", burstable(), grace=1))
    world.await_known("new", "passes")
    check_free(world)
    world.bayplan.restart()
    check(world.bayplan.status()["mode"] == "restored", "a restart ends the mode")
    check_free(world)
    gone = world.ids()["passes/main"]
    world.remove("passes", grace=1)
    world.await_ended("passes", gone)
    world.bayplan.ask("resume", "--yes")
    check_unmoved(world, before)
    check(new_failures(world, failed) == {}, f"calls of kubelet failed: {new_failures(world, failed)}")
    check_shares(world, "new/main")


def check_free(world):
    """Nothing keeps a container from any CPU or memory node, and none was started again for it."""
    check(len(witness.groups()) > len(world.pods()), "no container has a control group")
    found = witness.confined()
    check(not found, "; ".join(found))
    again = {name: it for name, it in world.restarts().items() if it}
    check(not again, f"started again: {again}")


def check_shares(world, *names):
    """They were adopted, own nothing and keep off what others own; `settle` has looked at the kernel."""
    world.settle()
    for name in names:
        found = world.container(name)
        check(found["exclusive"] == "" and witness.parse_list(found["cpus"]) == world.shared(), f"{name} owns {found['exclusive']!r} and runs on {found['cpus']}")


def leaves(world):
    """The way back of deploy/NODE.md, a time without Bayplan, and the way there."""
    world.submit(pod("owns", guaranteed()), pod("idle", best_effort()), pod("passes", best_effort(), grace=1))
    world.await_running("owns", "idle", "passes")
    before = world.seats()
    world.bayplan.ask("restore", "--yes")
    point_kubelet(world, node.RUNTIME)
    world.await_known("owns", "idle", "passes")
    world.bayplan.close()
    world.submit(pod("bare-owns", guaranteed()), pod("bare-idle", best_effort()))
    world.await_known("bare-owns", "bare-idle")
    check_free(world)
    check_never_met(world, {"owns": "bare-owns", "idle": "bare-idle"})
    gone = world.ids()["passes/main"]
    world.remove("passes", grace=1)
    world.await_ended("passes", gone)
    del before["passes/main"]
    world.bayplan.open()
    check(world.bayplan.status()["mode"] == "restored", "the mode was not kept")
    check_free(world)
    world.bayplan.ask("resume", "--yes")
    point_kubelet(world, node.BAYPLAN)
    world.await_known("owns", "idle", "bare-owns", "bare-idle")
    check_unmoved(world, before)
    check_shares(world, "bare-owns/main", "bare-idle/main")


def check_never_met(world, pairs):
    """Of each pair the first, which Bayplan has placed and restored, is to the kernel as the second, which it has never seen."""
    groups, ids = witness.groups(), world.ids()
    for restored, bare in pairs.items():
        ours, theirs = (witness.settings(groups[ids[f"{it}/main"]]) for it in (restored, bare))
        check(len(ours) > 6, f"of {restored} only {', '.join(ours)} could be read")
        check(ours == theirs, f"{restored} has {ours}, {bare} {theirs}")


def drained(world):
    """Containers with exclusive CPUs keep them, new ones share, and one that requires exclusive CPUs is told; until `resume`."""
    world.submit(pod("owns", guaranteed()), pod("idle", best_effort()))
    world.await_running("owns", "idle")
    before = world.seats()
    world.bayplan.ask("drain", "--yes")
    check_unmoved(world, before)
    world.submit(pod("comes", guaranteed()))
    world.await_running("comes")
    check_shares(world, "comes/main")
    world.bayplan.kill()
    check(world.bayplan.status()["mode"] == "draining", "a kill ends the mode")
    check_unmoved(world, before)
    world.remove("owns")
    world.await_gone("owns")
    world.submit(pod("requires", guaranteed(), annotations={"bayplan.dev/within": "numa"}))
    wait("the refusal", lambda: "bayplan is draining" in waiting_message(world.pod("requires")))
    world.bayplan.ask("resume", "--yes")
    world.await_running("requires")
    check(world.container("requires/main")["exclusive"] != "", "it has no CPU of its own")
    check_shares(world, "comes/main")


def rebalancer_pauses(world):
    """The switch moves no container and holds back no placing, and a kill does not turn it."""
    before = populate(world)
    failed = world.failed_calls()
    world.bayplan.ask("rebalance", "pause")
    world.submit(pod("new", burstable()))
    world.await_running("new")
    check(new_failures(world, failed) == {}, f"calls of kubelet failed: {new_failures(world, failed)}")
    world.bayplan.kill()
    check(world.bayplan.is_rebalancer_paused(), "a kill ends the pause")
    check_unmoved(world, before)
    world.bayplan.ask("rebalance", "resume")
    check(not world.bayplan.is_rebalancer_paused(), "it is paused still")
    check_unmoved(world, before)


def bayplan_restarts(world):
    """As for an upgrade; in the middle pods come and go, and no call of kubelet fails."""
    interrupt(world, world.bayplan.restart, may_fail=False)


def bayplan_is_killed(world):
    """Calls that are under way fail, and kubelet repeats them; what runs is not started again for it. When the answer to a start is lost, kubelet makes that
    container a second time, as when a runtime dies."""
    interrupt(world, world.bayplan.kill, may_fail=True)


def interrupt(world, how, may_fail):
    before = populate(world)
    failed = world.failed_calls()
    for number in range(4):
        world.submit(pod(f"comes-{number}", burstable()))
        if number:
            world.remove(f"comes-{number - 1}", grace=1)
        # At another moment of a pod's start each time.
        time.sleep(0.4 + 0.4 * number)
        how()
    world.await_running("comes-3")
    world.await_gone("comes-0", "comes-1", "comes-2")
    check_unmoved(world, before, others=1 if may_fail else 0)
    new = new_failures(world, failed)
    check(may_fail or not new, f"calls of kubelet failed: {new}")


def new_failures(world, before):
    """Calls that have failed for kubelet since it was asked before, but for those that ask for what it has just removed, as it does with any runtime."""
    new = {name: number - before.get(name, 0) for name, number in world.failed_calls().items()}
    return {name: number for name, number in new.items() if number > 0 and name not in ("container_status", "podsandbox_status")}


def stubborn(world):
    """A container that does not end when told to owns its CPU until it is killed."""
    world.submit(pod("stays", guaranteed(script=STUBBORN), grace=6), pod("shares", burstable()))
    world.await_running("stays", "shares")
    before = world.container("stays/main")
    group = witness.groups()[before["id"]]
    world.remove("stays")
    looked = 0
    while witness.read_processes(group):
        now = world.container("stays/main")
        troubles = witness.disagreements(world.bayplan.status())
        if witness.read_processes(group):
            looked += 1
            check(now["exclusive"] == before["exclusive"], "its CPU was given away")
            check(not troubles, "; ".join(troubles))
        time.sleep(0.3)
    check(looked > 5, f"it was seen to end {looked} times")
    world.await_gone("stays")
    wait("its CPU to come back", lambda: world.shared() == world.cpus)


def completes(world):
    """As a job's pod does: it ends by itself, stays to be looked at, and owns nothing any more."""
    world.submit(pod("job", guaranteed(script="sleep 4"), restart="OnFailure"))
    wait("its start", lambda: bool(world.containers().get("job/main", {}).get("exclusive")))
    wait("its end", lambda: world.pod("job")["status"].get("phase") == "Succeeded")
    wait("its CPU to come back", lambda: world.shared() == world.cpus and not world.containers(), 10)
    check(world.pod("job") is not None, "the pod is gone")


def repeats(world):
    """As a daemon set's pods do: one after the other, each with the CPU of the one before."""
    for number in range(4):
        name = f"agent-{number}"
        world.submit(pod(name, guaranteed(), grace=1))
        world.await_running(name)
        check(world.container(f"{name}/main")["exclusive"] != "", f"{name} has no CPU of its own")
        world.remove(name, grace=1)
        # The next one comes while this one ends, and has to wait for its CPU.
    world.await_gone("agent-3")


def resized(world):
    """From a share to a CPU of its own and back, while it runs."""
    world.submit(pod("grows", guaranteed(cpu="500m")), pod("shares", burstable()))
    world.await_running("grows", "shares")
    before = world.seats()["grows/main"]
    check(world.container("grows/main")["exclusive"] == "", "it owns a CPU before it is resized")
    world.resize("grows", "1")
    wait("a CPU of its own", lambda: world.container("grows/main")["exclusive"] != "", 90)
    wait("kubelet's word", lambda: allocated(world, "grows") == "1" or f"it has {allocated(world, 'grows')}", 90)
    world.settle()
    check(quota(before[0]) == 1.0, f"the kernel allows {quota(before[0])} CPUs")
    world.resize("grows", "500m")
    wait("shared CPUs", lambda: world.container("grows/main")["exclusive"] == "", 90)
    wait("kubelet's word", lambda: allocated(world, "grows") == "500m", 90)
    world.settle()
    after = world.seats()["grows/main"]
    check([it.pid for it in after[3]][0] == [it.pid for it in before[3]][0] and after[:3] == before[:3], f"before {before}, after {after}")
    check(quota(before[0]) == 0.5, f"the kernel allows {quota(before[0])} CPUs")


def allocated(world, name):
    statuses = world.pod(name)["status"].get("containerStatuses") or [{}]
    return statuses[0].get("resources", {}).get("limits", {}).get("cpu")


def quota(container_id):
    """CPUs that a container may use at a time."""
    return witness.limits(witness.groups()[container_id])[0]


def resize_refused(world):
    """A container that cannot have another CPU keeps what it has, and the pod says why."""
    world.submit(pod("wants", guaranteed()), pod("idle", best_effort()))
    world.await_running("wants", "idle")
    before = world.seats()
    # All that kubelet may give away, and one more than Bayplan: a shared container may come.
    world.resize("wants", str(len(world.cpus)))


    def told():
        conditions = world.pod("wants")["status"].get("conditions") or []
        found = [it for it in conditions if it["type"] == "PodResizeInProgress" and it.get("reason") == "Error"]
        return found or "; ".join(f"{it['type']} {it.get('reason', '')} {it.get('message', '')}" for it in conditions)

    # Kubelet has no event for it.
    message = wait("the condition", told, 90)[0]["message"]
    check("needs 2 exclusive CPUs" in message, f"the condition says {message}")
    # As often as kubelet tries again meanwhile.
    time.sleep(5)
    check_unmoved(world, before)


def mirrored(world):
    """A file's pod is shown by kube-apiserver and is one container for Bayplan."""
    path = processes.MANIFESTS / "static.json"
    path.write_text(json.dumps(pod("static", guaranteed())))
    name = f"static-{processes.NODE}"
    world.await_running(name)
    shown = world.pod(name)
    check("kubernetes.io/config.mirror" in shown["metadata"]["annotations"], "kube-apiserver has no mirror of it")
    check(list(world.containers()) == [f"{name}/main"], f"the ledger holds {list(world.containers())}")
    # Removing the mirror removes nothing: kubelet makes it anew.
    before = world.seats()
    world.remove(name, grace=0)
    wait("the mirror to come back", lambda: is_running(world.pod(name)) is True)
    check_unmoved(world, before)
    path.unlink()
    world.await_gone(name)


@dataclass(frozen=True)
class Scenario:
    name: str
    run: Callable
    needs: str = ""  # what a release has to have; what is resized, annotated while it runs, or shown by kube-apiserver (api), needs that as well


SCENARIOS = [
    Scenario("pods of every QoS class run where Bayplan says", every_class),
    Scenario("a Guaranteed pod gets a CPU of its own, and gives it back", own_cpu_and_back),
    Scenario("pods that start at the same time keep off each other's CPUs", at_once),
    Scenario("a pod that does not fit is told what is lacking, and starts when there is room", no_room),
    Scenario("a container that crashes gets its CPU again each time", crash_loop),
    Scenario("init containers and sidecars", init_and_sidecar),
    Scenario("a pod that ends slowly keeps its CPU until then", stubborn),
    Scenario("a pod that completes gives its CPU back", completes),
    Scenario("one pod replaces the other, again and again", repeats),
    Scenario("kubelet's restart changes nothing", kubelet_restarts),
    Scenario("kubelet is switched over to Bayplan and back", there_and_back),
    Scenario("all run everywhere after `restore`, and where they were after `resume`", restored),
    Scenario("a node leaves Bayplan as NODE.md says, and comes again", leaves),
    Scenario("no new container owns CPUs while Bayplan drains", drained),
    Scenario("the rebalancer is paused, and nothing else", rebalancer_pauses),
    Scenario("Bayplan's restart changes nothing and fails no call", bayplan_restarts),
    Scenario("kill -9 of Bayplan changes nothing and fails no pod", bayplan_is_killed),
    Scenario("silent containers of a Guaranteed pod have its CPU together", pod_level.guaranteed, POD_LEVEL),
    Scenario("containers that say their own CPUs stay within the pod's figure", pod_level.partly_silent, POD_LEVEL),
    Scenario("silent containers of a Burstable pod count its request once", pod_level.burstable, POD_LEVEL),
    Scenario("huge pages of silent containers are counted once", pod_level.huge_pages, POD_LEVEL),
    Scenario("a pod's own figure is resized in place, and back", pod_level.resized, POD_LEVEL_RESIZE),
    Scenario("a container is resized within the pod's figure", pod_level.resized_within, POD_LEVEL_RESIZE),
    Scenario("requests, extended resources, owner and priority are known exactly", pods_api.exact, PODS_API),
    Scenario("a CPU has the class of the profile that its container requests", pods_api.profile, PODS_API),
    Scenario("a class that is changed by annotation holds without a restart", pods_api.live, PODS_API),
    Scenario("kubelet's PodsAPI is stuck, slow and away", pods_api.trouble, PODS_API),
    Scenario("requests without kubelet's PodsAPI are those of CRI or of an annotation", pods_api.estimated, NO_PODS_API),
    Scenario("a pod is resized in place, and back", resized, RESIZE),
    Scenario("a resize that is refused is told", resize_refused, RESIZE),
    Scenario("a static pod has one mirror and one container", mirrored, "api"),
]


# Tests that have kubelet speak to Bayplan, and to the runtime again.
MOVES_KUBELET = [there_and_back, leaves]


def is_possible(scenario, has_api, release):
    needs_api = scenario.needs in ("api", RESIZE, POD_LEVEL_RESIZE, PODS_API)
    return (has_api or not needs_api) and (scenario.needs in ("", "api") or scenario.needs in release.has)
