"""What the kernel says about containers, against what Bayplan says.

The kernel's side is read without Bayplan: a container's control group is found by its id, its processes are in it, and each says in
/proc on which CPUs and memory nodes it may be.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from processes import CGROUP_ROOT, is_cgroup_v2

TREE = Path("/sys/fs/cgroup" if is_cgroup_v2() else "/sys/fs/cgroup/cpuset") / CGROUP_ROOT
# What kubelet and Bayplan say of a container, by the controller of cgroup v1 that has it.
SETTINGS_V1 = {
    "cpuset": ["cpuset.effective_cpus", "cpuset.effective_mems"],
    "cpu": ["cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"],
    "memory": ["memory.limit_in_bytes", "memory.soft_limit_in_bytes"],
}
SETTINGS_V2 = ["cpuset.cpus.effective", "cpuset.mems.effective", "cpuset.cpus.partition", "cpu.max", "cpu.max.burst", "cpu.weight", "cpu.idle",
               "memory.min", "memory.low", "memory.high", "memory.max", "io.max", "io.weight"]


@dataclass(frozen=True)
class Seen:
    """Where one process of a container may be."""

    pid: int
    cpus: frozenset
    mems: frozenset


def parse_list(text):
    """`0-2,5` as numbers."""
    found = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def groups():
    """Every container's control group by its id, sandboxes included."""
    return {Path(dir).name: Path(dir) for dir, _, _ in os.walk(TREE) if re.fullmatch(r"[0-9a-f]{64}", Path(dir).name)}


def read_processes(group):
    """The processes of a group; those that end meanwhile are left out."""
    seen = []
    try:
        pids = [int(it) for it in (group / "cgroup.procs").read_text().split()]
    except OSError:
        return []
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        allowed = dict(re.findall(r"(?m)^(Cpus|Mems)_allowed_list:\s*(.*)$", text))
        seen.append(Seen(pid, parse_list(allowed["Cpus"]), parse_list(allowed["Mems"])))
    return seen


def settings(group):
    """What the kernel has been told of a container and of its pod, by file."""
    if is_cgroup_v2():
        files = [it / name for it in (group, group.parent) for name in SETTINGS_V2]
    else:
        same = [(Path("/sys/fs/cgroup", controller) / group.relative_to("/sys/fs/cgroup/cpuset"), names) for controller, names in SETTINGS_V1.items()]
        files = [it / name for dir, names in same for it in (dir, dir.parent) for name in names]
    return {f"{'container' if group.name in it.parts else 'pod'}'s {it.name}": it.read_text().strip() for it in files if it.exists()}


def limits(group):
    """CPUs that a group may use at a time, and bytes of memory; `None`: no limit."""
    if is_cgroup_v2():
        cpus = (group / "cpu.max").read_text().split()
        memory = (group / "memory.max").read_text().strip()
    else:
        name = group.relative_to("/sys/fs/cgroup/cpuset")
        cpus = [Path("/sys/fs/cgroup/cpu", name, it).read_text().strip() for it in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
        memory = Path("/sys/fs/cgroup/memory", name, "memory.limit_in_bytes").read_text().strip()
    # Without a limit cgroup v1 says the largest number of whole pages.
    is_unlimited = memory == "max" or int(memory) > 1 << 62
    return (None if cpus[0] in ("max", "-1") else int(cpus[0]) / int(cpus[1]), None if is_unlimited else int(memory))


def huge_pages(group):
    """Bytes in huge pages of 2 MiB that a group may have; `None` where the kernel does not bound them."""
    if is_cgroup_v2():
        file = group / "hugetlb.2MB.max"
    else:
        file = Path("/sys/fs/cgroup/hugetlb", group.relative_to("/sys/fs/cgroup/cpuset"), "hugetlb.2MB.limit_in_bytes")
    return int(file.read_text()) if file.exists() else None


def wake_up_latency(cpu):
    """Microseconds that a CPU may take to wake up, as the kernel says them; `0`: as many as it likes."""
    return Path(f"/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us").read_text().strip()


def confined():
    """Every process of a container or sandbox that may not be everywhere where kubelet's root may."""
    suffix = ".effective" if is_cgroup_v2() else ""
    cpus, mems = (parse_list((TREE / f"{name}{suffix}").read_text()) for name in ("cpuset.cpus", "cpuset.mems"))
    seen = [(id_, it) for id_, group in groups().items() for it in read_processes(group)]
    return [f"{id_[:12]} may be on CPUs {sorted(it.cpus)} and memory nodes {sorted(it.mems)}" for id_, it in seen if (it.cpus, it.mems) != (cpus, mems)]


def by_name(status):
    """Containers of `bayplan status -o json` by `pod/container`."""
    return {f"{it['pod']}/{it['container']}": it for it in status["containers"]}


def disagreements(status):
    """Everything in which kernel and Bayplan differ, and containers on CPUs that another one owns."""
    found = []
    known = groups()
    owned = {}
    for it in status["containers"]:
        name = f"{it['pod']}/{it['container']}"
        processes = read_processes(known[it["id"]]) if it["id"] in known else []
        # One that was made and never started has none.
        if bool(processes) != (it["phase"] == "running"):
            found.append(f"{name} is {it['phase']} and has {len(processes)} processes")
        for seen in processes:
            for what, said, is_so in [("CPUs", it["cpus"], seen.cpus), ("memory nodes", it["mems"], seen.mems)]:
                if parse_list(said) != is_so:
                    found.append(f"{name}: Bayplan says {what} {said}, the kernel {sorted(is_so)}")
        # Exclusive CPUs of a pod are those of several containers.
        for cpu in parse_list(it["exclusive"]) | parse_list(it.get("exclusive_of_pod", "")):
            owned.setdefault(cpu, set()).add(it["id"])
    ids = {it["id"] for it in status["containers"]}
    for id_, group in known.items():
        for seen in read_processes(group):
            if not is_sandbox(seen.pid) and id_ not in ids:
                found.append(f"{id_[:12]} runs and Bayplan does not know it")
            if not is_sandbox(seen.pid) and any(id_ not in owned.get(cpu, [id_]) for cpu in seen.cpus):
                found.append(f"{id_[:12]} may run on CPUs {sorted(seen.cpus)}, of which another container owns some")
    return found


def is_sandbox(pid):
    """Bayplan does not place the process that holds a pod's namespaces, which sleeps as long as the pod lives."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "pause"
    except OSError:
        return True
