"""Pods that say what they need as a whole (`spec.resources`, KEP-2837, on by default since Kubernetes 1.34), with containers that say nothing themselves.

Kubelet writes the pod's own limits into each of these silent containers. Together they may have no more than the pod; the kernel's account of it is the
control group of the pod, and the CPU sets of its containers.
"""

from pathlib import Path

import witness
from pods import burstable as burstable_container
from pods import container, guaranteed as guaranteed_container
from pods import pod, resources
from world import check, wait

MIB = 1 << 20
FREE_PAGES = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
NAMES = ["a", "b", "c"]


def silent(*names):
    return [container(name) for name in names]


def rows(world, name):
    """What Bayplan says of each container of the pod."""
    found = world.containers()
    return {it.partition("/")[2]: row for it, row in found.items() if it.startswith(f"{name}/")}


def group_of(world, name):
    """The control group of the pod."""
    [group] = {witness.groups()[it["id"]].parent for it in rows(world, name).values()}
    return group


def check_limits(world, name, cpus, memory):
    """By the kernel the pod has exactly this, and no container of it more."""
    found = witness.limits(group_of(world, name))
    check(found == (cpus, memory), f"the kernel allows {name} {found}, expected {(cpus, memory)}")
    for it, row in rows(world, name).items():
        of_it = witness.limits(witness.groups()[row["id"]])
        check(of_it[0] is None or of_it[0] <= cpus, f"{name}/{it} has {of_it[0]} CPUs of {cpus}")
        check(of_it[1] is None or of_it[1] <= memory, f"{name}/{it} has {of_it[1]} bytes of {memory}")


def sets(world, name):
    """The CPU sets of the processes of a pod, by the kernel."""
    groups = witness.groups()
    return {seen.cpus for row in rows(world, name).values() for seen in witness.read_processes(groups[row["id"]])}


def check_own(world, name, count):
    """The containers run on so many CPUs, all on the same, which no other container runs on; they are counted once. Gives them."""
    found = rows(world, name)
    held = [cpu for row in found.values() for cpu in witness.parse_list(row["exclusive"])]
    check(len(held) == len(set(held)) == count, f"{name} holds {held}, expected {count} CPUs")
    own = frozenset(held)
    check(sets(world, name) == {own}, f"of {sorted(own)} the processes of {name} may be on {[sorted(it) for it in sets(world, name)]}")
    for it, row in found.items():
        check(witness.parse_list(row["exclusive_of_pod"]) == own, f"{name}/{it} has {row['exclusive_of_pod']} of its pod")
        check(row["qos"] == "Guaranteed", f"{name}/{it} is {row['qos']}")
    return own


def requests(world):
    """What is requested of shared CPUs on the whole machine, in milli-CPU."""
    return max(it["shared_requests_milli"] for it in world.bayplan.status()["pools"])


def await_requests(world, expected):
    wait(f"{expected}m of requests", lambda: requests(world) == expected or f"{requests(world)}m are requested")


def guaranteed(world):
    """Each of the three gets 1 CPU and 96 MiB from kubelet: together they own one CPU, and the one beside them goes away from it."""
    world.submit(pod("shares", burstable_container()))
    world.await_running("shares")
    world.submit(pod("whole", *silent(*NAMES), whole=resources("1", "96Mi")))
    world.await_running("whole")
    own = check_own(world, "whole", 1)
    check_limits(world, "whole", 1.0, 96 * MIB)
    check(not own & witness.parse_list(world.container("shares/main")["cpus"]), "the other one is on the pod's CPU")
    before = world.seats()
    world.bayplan.restart()
    world.settle()
    check(world.seats() == before, f"a restart moves: before {before}, after {world.seats()}")
    world.remove("whole")
    world.await_gone("whole")
    wait("the CPU to come back", lambda: world.shared() == world.cpus)


def partly_silent(world):
    """Half a CPU is said by one of them, so what is left for the others is no whole CPU: all share, and request together what the pod does."""
    half = guaranteed_container("a", cpu="500m")
    world.submit(pod("partly", half, *silent("b", "c"), whole=resources("1", "96Mi")))
    world.await_running("partly")
    found = rows(world, "partly")
    check(not any(it["exclusive"] for it in found.values()), f"exclusive: {[it['exclusive'] for it in found.values()]}")
    await_requests(world, 1000)
    check_limits(world, "partly", 1.0, 96 * MIB)
    check(witness.limits(witness.groups()[found["a"]["id"]]) == (0.5, 32 * MIB), "the limits of the one that says them are others")


def burstable(world):
    """The pod requests half a CPU and may use two: kubelet tells two of each of the three. A pod that owns a CPU finds room beside them."""
    world.submit(pod("bursts", *silent(*NAMES), whole=resources("500m", "32Mi", "2", "64Mi")))
    world.await_running("bursts")
    await_requests(world, 500)
    check_limits(world, "bursts", 2.0, 64 * MIB)
    world.submit(pod("owns", guaranteed_container()))
    world.await_running("owns")
    own = witness.parse_list(world.container("owns/main")["exclusive"])
    check(len(own) == 1 and sets(world, "bursts") == {world.cpus - own}, f"one owns {sorted(own)}, the others run on {sets(world, 'bursts')}")
    check({it["qos"] for it in rows(world, "bursts").values()} == {"Burstable"}, "the QoS class is another")


def huge_pages(world):
    """Three silent containers of a pod with half of the free pages, and another pod with the other half: counted for each container they would not do. A node without
    huge pages has nothing to show."""
    free = int(FREE_PAGES.read_text()) if FREE_PAGES.exists() else 0
    if free < 2:
        return
    half = free // 2 * 2
    whole = resources("200m", "32Mi", huge_pages=f"{half}Mi")
    before = world.counted("huge_pages")
    for name, containers in [("pages", NAMES), ("other", ["a"])]:
        world.submit(pod(name, *silent(*containers), whole=whole))
        world.await_running(name)
        found = witness.huge_pages(group_of(world, name))
        check(found in (half * MIB, None), f"the kernel allows {found} bytes in huge pages")
    check(world.counted("huge_pages") == before, "huge pages are said to be short")


def resized(world):
    """From shared CPUs to a CPU of the pod's own and back, while its containers run."""
    world.submit(pod("grows", *silent(*NAMES), whole=resources("500m", "96Mi")))
    world.await_running("grows")
    await_requests(world, 500)
    before = world.seats()
    world.resize_to("grows", {"resources": resources("1", "96Mi")})
    wait("a CPU of the pod's own", lambda: any(it["exclusive"] for it in rows(world, "grows").values()), 90)
    await_limit(world, "grows", 1.0)
    world.settle()
    check_own(world, "grows", 1)
    check_limits(world, "grows", 1.0, 96 * MIB)
    world.resize_to("grows", {"resources": resources("500m", "96Mi")})
    wait("shared CPUs", lambda: not any(it["exclusive"] for it in rows(world, "grows").values()), 90)
    await_limit(world, "grows", 0.5)
    world.settle()
    await_requests(world, 500)
    after = world.seats()
    pids = [{name: it[3][0].pid for name, it in seats.items()} for seats in (before, after)]
    check(pids[0] == pids[1], f"started again: {pids}")


def resized_within(world):
    """One container asks for more of what the pod has: the pod requests as much as before."""
    world.submit(pod("shifts", burstable_container("main", cpu="100m"), *silent("b", "c"), whole=resources("600m", "64Mi", "1", "96Mi")))
    world.await_running("shifts")
    await_requests(world, 600)
    id_ = rows(world, "shifts")["main"]["id"]
    before = witness.settings(witness.groups()[id_])
    more = {"requests": {"cpu": "300m", "memory": "16Mi"}}
    world.resize_to("shifts", {"containers": [{"name": "main", "resources": more}]})
    wait("other CPU shares", lambda: witness.settings(witness.groups()[id_]) != before, 90)
    world.settle()
    await_requests(world, 600)
    check_limits(world, "shifts", 1.0, 96 * MIB)
    check(rows(world, "shifts")["main"]["id"] == id_, "it was started again")


def await_limit(world, name, cpus):
    wait(f"{cpus} CPUs in the kernel", lambda: witness.limits(group_of(world, name))[0] == cpus or f"it allows {witness.limits(group_of(world, name))}", 90)
