"""What Bayplan knows of pods beside what CRI tells: exact requests, extended resources, owner and priority, and annotations that change while a pod runs.

Kubelet tells it on the socket of its PodsAPI (KEP-4188, on by default since Kubernetes 1.37). An older kubelet has none; requests are then what cgroup settings tell.
What a class of CPUs does is seen in the file of the CPU in which the kernel has the time that it may take to wake up.
"""

import itertools
import json
import time
from pathlib import Path

import processes
import witness
from pod_level import await_requests
from pods import burstable, container, guaranteed, pod
from relay import Relay
from world import MERGE, PODS, check, wait

MIB = 1 << 20
KUBELET = "kubelet's PodsAPI"
ANNOTATION = "noderesource.dev/resources"
CLASS = "bayplan.dev/cpu-class"
DEVICE, PROFILE = "example.com/dongle", "power.intel.com/performance"
# CPU time in thousandths and MiB of memory. All three have one OOM score, and the third has the CPU shares of one that requests nothing: CRI tells of no memory, and of no
# CPU time of the third.
REQUESTS = {"a": (150, 2), "b": (250, 3), "c": (2, 1)}
# Pods are listed every ten seconds, for five at most, and a change of annotations counts five seconds after another.
TOLD = 45
RELAYED = "/run/bayplan/relayed-pods.sock"
STUCK = [f"stuck-{number}" for number in range(5)]
# Seconds by which an answer comes later: longer than a creation waits, and shorter than a list may take.
SLOW = 0.2
ATTEMPTS = 3
# What the other containers of a pod request, where that is known.
REST = "of its pod to come"
# A question to a socket without an answer takes 50 ms. After three of them it is left alone for 30 s.
SILENT, PAUSE = 3, 30


def small(name, extended=None):
    """A Burstable container that requests as much as the one of this name, and so many extended resources."""
    cpu, memory = REQUESTS[name]
    made = container(name, f"{cpu}m", f"{memory}Mi", limit=extended or {})
    made["resources"]["requests"].update(extended or {})
    return made


def known(world, name):
    """What is known of a container beside what CRI tells; nothing where that is all."""
    pod_name, _, container_name = name.partition("/")
    [explained] = world.bayplan.explain(f"default/{pod_name}{world.suffix}/{container_name}")
    return explained.get("known") or {}


def facts(world, name):
    return known(world, name).get("facts") or {}


def is_exact(world, name):
    """Whether the requests of the container are known exactly, and from kubelet; else a text that says what is known."""
    found, (cpu, memory) = known(world, name), REQUESTS[name.partition("/")[2]]
    is_so = found.get("requests_from") == KUBELET and found["facts"]["requests"] == {"cpu_milli": cpu, "memory_bytes": memory * MIB}
    return is_so or f"known is {found}"


def asked_otherwise(world, name, has_memory=True):
    """With which other figures a place was asked for when the container was created, in words; without memory they are those of CRI. Empty: with these."""
    cpu, memory = REQUESTS[name.partition("/")[2]]
    # What kubelet makes of no request is what it makes of two thousandths.
    is_told = has_memory or cpu > 2
    expected = (f"{cpu}m shared" if is_told else "0 shared") + (f", memory {memory} MiB" if has_memory else "")
    parts = world.container(name)["asked"].split(", ")
    asked = ", ".join(it for it in parts if not it.endswith(REST))
    return "" if asked == expected else f"for {name} was asked {asked!r}, expected {expected!r}"


def check_estimated(world, name):
    check(not known(world, name), f"of {name} is known {known(world, name)}")
    told = asked_otherwise(world, name, has_memory=False)
    check(not told, told)


def start_exact(world, name, make, excused=0):
    """Starts the pod that `make` makes of a name, and gives its name: when each container was created its requests were known exactly. Another one is started where kubelet took
    longer than Bayplan waits, as on a busy machine, and for so many seconds where it has come back and is not asked yet."""
    begun = time.monotonic()
    for number in itertools.count():
        late, attempt = world.counted("late_pod"), f"{name}-{number}"
        made = make(attempt)
        world.submit(made)
        world.await_running(attempt)
        names = [f"{attempt}/{it['name']}" for it in made["spec"]["containers"]]
        told = "; ".join(it for one in names for it in [is_exact(world, one), asked_otherwise(world, one)] if it and it is not True)
        if not told:
            return attempt
        was_late = number < ATTEMPTS and world.counted("late_pod") > late
        check(was_late or time.monotonic() - begun < excused, told)
        world.remove(attempt, grace=1)
        world.await_gone(attempt)


def offer(world, amounts):
    """The node has so many of these resources, as by an operator's hand."""
    node = f"{processes.API}/api/v1/nodes/{processes.NODE}"
    processes.fetch(f"{node}/status", "PATCH", {"status": {"capacity": amounts}}, MERGE)
    wait("kubelet's offer", lambda: amounts.items() <= processes.fetch(node)["status"]["allocatable"].items())


def annotate(name, annotations):
    """`None` takes an annotation away."""
    processes.fetch(f"{PODS}/{name}", "PATCH", {"metadata": {"annotations": annotations}}, MERGE)


def await_latency(cpu, expected, limit=TOLD):
    wait(f"{expected} us to wake up", lambda: witness.wake_up_latency(cpu) == expected or f"CPU {cpu} has {witness.wake_up_latency(cpu)}", limit)


def own_cpu(world, name):
    [cpu] = witness.parse_list(world.container(name)["exclusive"])
    return cpu


def exact(world):
    """A Burstable pod of a job: each container's requests, those of extended resources, owner and priority; also after Bayplan's restart."""
    offer(world, {DEVICE: "4"})
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000}
    processes.fetch(f"{processes.API}/apis/scheduling.k8s.io/v1/priorityclasses", "POST", urgent)

    def make(name):
        made = pod(name, small("a"), small("b", {DEVICE: "2"}), small("c"))
        made["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": "nightly-uid", "controller": True}]
        made["spec"]["priorityClassName"] = "urgent"
        return made

    name = start_exact(world, "exact", make)
    await_requests(world, sum(cpu for cpu, _ in REQUESTS.values()))
    check(world.container(f"{name}/a")["qos"] == "Burstable", "the QoS class is another")
    world.bayplan.restart()
    world.settle()
    for it, extended in [("a", {}), ("b", {DEVICE: 2}), ("c", {})]:
        told, found = is_exact(world, f"{name}/{it}"), facts(world, f"{name}/{it}")
        check(told is True, f"after a restart {it}: {told}")
        check(found.get("extended", {}) == extended, f"{it} has {found.get('extended')}")
        about = (found.get("owner"), found.get("priority_class"), found.get("priority"))
        check(about == ("Job/nightly", "urgent", 1000), f"of {it} is told {about}")


def profile(world):
    """Power Manager's resource, without any annotation: the CPU that the container owns has that class, and its own settings back afterwards."""
    offer(world, {PROFILE: "1"})
    amounts = {"cpu": "1", "memory": "32Mi", PROFILE: "1"}
    before = {cpu: witness.wake_up_latency(cpu) for cpu in world.cpus}
    world.submit(pod("fast", guaranteed(resources={"requests": amounts, "limits": amounts})))
    world.await_running("fast")
    own = own_cpu(world, "fast/main")
    await_latency(own, processes.CPU_CLASSES["performance"])
    check(facts(world, "fast/main").get("extended") == {PROFILE: 1}, f"known is {facts(world, 'fast/main')}")
    others = {cpu: witness.wake_up_latency(cpu) for cpu in world.cpus - {own}}
    check(others.items() <= before.items(), f"other CPUs have {others}")
    world.remove("fast")
    world.await_gone("fast")
    await_latency(own, before[own])


def live(world):
    """Another class for a container that runs, again after kubelet's restart, and none: the kernel's file follows, and nothing else is changed."""
    before = {cpu: witness.wake_up_latency(cpu) for cpu in world.cpus}
    world.submit(pod("lives", guaranteed(), annotations={CLASS: "prompt"}), pod("shares", burstable()))
    world.await_running("lives", "shares")
    own, seats = own_cpu(world, "lives/main"), world.seats()
    await_latency(own, processes.CPU_CLASSES["prompt"])
    annotate("lives", {CLASS: "performance"})
    await_latency(own, processes.CPU_CLASSES["performance"])
    changes = known(world, "lives/main").get("changes")
    check(changes == f"{CLASS} is performance, was prompt", f"what has changed is {changes!r}")
    world.kubelet.restart()
    annotate("lives", {CLASS: "prompt"})
    await_latency(own, processes.CPU_CLASSES["prompt"])
    annotate("lives", {CLASS: None})
    await_latency(own, before[own])
    world.settle()
    check(world.seats() == seats, f"before {seats}, after {world.seats()}")
    again = {name: it for name, it in world.restarts().items() if it}
    check(not again, f"started again: {again}")


def trouble(world):
    """The socket is stuck, answers late, and goes away with kubelet: pods start all the same, creations wait for it a few times at most, and what was missed is known soon after."""
    relay = Relay(RELAYED, processes.PODS_SOCKET)
    world.bayplan.ask_pods_at(RELAYED)
    start_exact(world, "before", lambda name: pod(name, small("a")))
    relay.stick()
    check_stuck(world)
    relay.flow()
    for it in STUCK:
        wait(f"what kubelet knows of {it}", lambda: is_exact(world, f"{it}/a"), TOLD)
    # The watch may have told it: creations ask again after the next list.
    start_exact(world, "after", lambda name: pod(name, small("b")), excused=TOLD)
    relay.delay = SLOW
    late = world.counted("late_pod")
    world.submit(pod("slow", small("c")))
    world.await_running("slow")
    check(world.counted("late_pod") > late, "an answer after the time that a creation waits was not late")
    told = asked_otherwise(world, "slow/c", has_memory=False)
    check(not told, told)
    wait("what kubelet knows of the pod", lambda: is_exact(world, "slow/c"), TOLD)
    relay.delay = 0
    world.kubelet.restart()
    start_exact(world, "again", lambda name: pod(name, small("b")))


def check_stuck(world):
    """Bayplan is started anew and pods come one after the other: of none more is known than what CRI tells."""
    world.bayplan.restart()
    begun = time.monotonic()
    for it in STUCK:
        world.submit(pod(it, small("a")))
        world.await_running(it)
        check_estimated(world, f"{it}/a")
    # In between one question is enough for the next pause.
    most = SILENT + (time.monotonic() - begun) // PAUSE
    late = world.counted("late_pod")
    check(0 < late <= most, f"{late:.0f} creations waited, expected {most:.0f} at most")


def estimated(world):
    """Kubelet has no PodsAPI: what counts is what cgroup settings tell, or an annotation with the requests, and an annotation that changes does not."""
    check(not Path(processes.PODS_SOCKET).exists(), "kubelet has a PodsAPI")
    copied = {name: {"requests": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}} for name, (cpu, memory) in REQUESTS.items()}
    containers = [small(it) for it in REQUESTS]
    world.submit(pod("guessed", *containers), pod("copied", *containers, annotations={ANNOTATION: json.dumps({"containers": copied})}))
    world.await_running("guessed", "copied")
    for it in REQUESTS:
        check_estimated(world, f"guessed/{it}")
        source = known(world, f"copied/{it}").get("requests_from")
        check(source == f"annotation {ANNOTATION}", f"requests of {it} are from {source}")
        told = asked_otherwise(world, f"copied/{it}")
        check(not told, told)
    if world.has_api:
        check_unseen(world)


def check_unseen(world):
    world.submit(pod("lives", guaranteed(), annotations={CLASS: "prompt"}))
    world.await_running("lives")
    own = own_cpu(world, "lives/main")
    await_latency(own, processes.CPU_CLASSES["prompt"])
    annotate("lives", {CLASS: "performance"})
    # Longer than it takes to list pods.
    time.sleep(15)
    await_latency(own, processes.CPU_CLASSES["prompt"], 1)
