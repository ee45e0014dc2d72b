//! Where containers run, by the kernel's account. In: files of control groups and processes. Out: CPUs, CPU time, involuntary switches, local memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use bayplan_types::{CpuId, CpuSet};

use super::cell::{CGROUP_ROOT, below, hierarchies};

/// The control groups of a container, one per hierarchy.
fn groups(container: &str) -> Vec<PathBuf> {
    let roots = hierarchies().into_iter().map(|it| it.join(CGROUP_ROOT));
    let all = roots.flat_map(|it| below(&it));
    all.filter(|it| it.file_name().is_some_and(|name| name == container)).collect()
}

fn processes(container: &str) -> anyhow::Result<Vec<String>> {
    let found = groups(container).iter().find_map(|it| {
        let text = fs::read_to_string(it.join("cgroup.procs")).ok()?;
        (!text.trim().is_empty()).then_some(text)
    });
    let found = found.with_context(|| format!("container {container} has no process"))?;
    Ok(found.split_whitespace().map(str::to_owned).collect())
}

/// `Cpus_allowed_list` of a container's processes together.
pub(crate) fn cpus_of(container: &str) -> anyhow::Result<CpuSet> {
    let allowed = |process: &String| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status.lines().find_map(|it| it.strip_prefix("Cpus_allowed_list:"))?;
        line.trim().parse::<CpuSet>().ok()
    };
    let processes = processes(container)?;
    let cpus = processes.iter().filter_map(allowed).reduce(|all, it| all.union(&it));
    cpus.with_context(|| format!("the processes of container {container} have ended"))
}

/// How often threads of a container have been taken from a CPU that they wanted to keep.
pub(crate) fn involuntary_switches(container: &str) -> Option<u64> {
    let threads = processes(container).ok()?.into_iter().flat_map(|process| {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
        tasks.flatten().map(|it| it.path().join("status"))
    });
    let counts = threads.filter_map(|it| {
        let text = fs::read_to_string(it).ok()?;
        let count = text.lines().find_map(|it| it.strip_prefix("nonvoluntary_ctxt_switches:"))?;
        count.trim().parse::<u64>().ok()
    });
    Some(counts.sum())
}

/// CPUs of each NUMA node, by its number; nothing on a kernel without NUMA.
pub(crate) fn nodes() -> BTreeMap<u32, CpuSet> {
    let entries = fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let nodes = entries.filter_map(|it| {
        let path = it.path();
        let number = path.file_name()?.to_str()?.strip_prefix("node")?.parse::<u32>().ok()?;
        let own: CpuSet = fs::read_to_string(path.join("cpulist")).ok()?.trim().parse().ok()?;
        Some((number, own))
    });
    nodes.collect()
}

/// Percent of a container's memory that is on NUMA nodes of the CPUs on which it may run; `None` where every node has such CPUs.
pub(crate) fn local_memory(container: &str) -> Option<f64> {
    let cpus = cpus_of(container).ok()?;
    let nodes = nodes();
    if nodes.values().all(|own| own.intersects(&cpus)) {
        return None;
    }
    let near = nodes.iter().filter(|(_, own)| own.intersects(&cpus)).map(|(node, _)| *node);
    let maps = processes(container).ok()?.into_iter();
    let maps = maps.filter_map(|it| fs::read_to_string(format!("/proc/{it}/numa_maps")).ok());
    local_share(&memory_by_node(&maps.collect::<String>()), &near.collect())
}

/// Percent of the memory of containers that is on the NUMA nodes of the CPUs on which their threads ran last; a thread counts as much as it has run.
pub(crate) fn memory_at_hand<'a>(
    containers: impl Iterator<Item = &'a str>,
    nodes: &BTreeMap<u32, CpuSet>,
) -> Option<f64> {
    let processes = containers.filter_map(|it| processes(it).ok()).flatten();
    let shares = processes.filter_map(|process| {
        let maps = fs::read_to_string(format!("/proc/{process}/numa_maps")).ok()?;
        let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
        let stats = tasks.filter_map(|it| fs::read_to_string(it.path().join("stat")).ok());
        let threads: Vec<LastRun> = stats.filter_map(|it| parse_last_run(&it)).collect();
        near_memory(&memory_by_node(&maps), &threads, nodes)
    });
    let (near, all) = shares.fold((0.0, 0.0), |(near, all), it| (near + it.0, all + it.1));
    (all > 0.0).then(|| 100.0 * near / all)
}

/// Where a thread ran last, and how long it has run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LastRun {
    cpu: CpuId,
    /// User and system time, in clock ticks.
    ticks: f64,
}

/// From /proc/PID/task/TID/stat (proc_pid_stat(5)): `utime`, `stime` and `processor` are the fields 14, 15 and 39, the name in brackets being the second.
fn parse_last_run(text: &str) -> Option<LastRun> {
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3);
    let ticks = |number: usize| field(number)?.parse::<f64>().ok();
    Some(LastRun { cpu: CpuId(field(39)?.parse().ok()?), ticks: ticks(14)? + ticks(15)? })
}

/// KiB of a process near its threads, and all of it; `None` while none of its threads has run.
fn near_memory(
    memory: &BTreeMap<u32, f64>,
    threads: &[LastRun],
    nodes: &BTreeMap<u32, CpuSet>,
) -> Option<(f64, f64)> {
    let ran: f64 = threads.iter().map(|it| it.ticks).sum();
    let near = threads.iter().filter_map(|thread| {
        let (node, _) = nodes.iter().find(|(_, own)| own.contains(thread.cpu))?;
        Some(memory.get(node).unwrap_or(&0.0) * thread.ticks / ran)
    });
    (ran > 0.0).then(|| (near.sum(), memory.values().sum()))
}

fn local_share(memory: &BTreeMap<u32, f64>, near: &BTreeSet<u32>) -> Option<f64> {
    let all: f64 = memory.values().sum();
    let local = memory.iter().filter(|(node, _)| near.contains(node)).map(|(_, it)| it);
    (all > 0.0).then(|| 100.0 * local.sum::<f64>() / all)
}

/// KiB by NUMA node, from /proc/PID/numa_maps: lines with `N0=12` for pages on a node, and `kernelpagesize_kB=4` for their size.
fn memory_by_node(text: &str) -> BTreeMap<u32, f64> {
    let mut memory = BTreeMap::new();
    for line in text.lines() {
        let fields = line.split_whitespace().filter_map(|it| it.split_once('='));
        let fields: Vec<(&str, &str)> = fields.collect();
        let size = fields.iter().find(|(key, _)| *key == "kernelpagesize_kB");
        let size: f64 = size.and_then(|(_, it)| it.parse().ok()).unwrap_or(4.0);
        for (key, pages) in fields {
            let node = key.strip_prefix('N').and_then(|it| it.parse::<u32>().ok());
            let (Some(node), Ok(pages)) = (node, pages.parse::<f64>()) else { continue };
            *memory.entry(node).or_insert(0.0) += pages * size;
        }
    }
    memory
}

/// Of the CPUs on which a container may run: how many there are, and how many no other container may use. `None` where those of one are not known.
pub(crate) fn seclusion(
    name: &str,
    cpus: &BTreeMap<&str, Option<CpuSet>>,
) -> Option<(usize, usize)> {
    let own = cpus.get(name)?.clone()?;
    let mut others = cpus.iter().filter(|(other, _)| **other != name).map(|(_, it)| it.as_ref());
    let alone = others.try_fold(own.clone(), |left, it| Some(left.difference(it?)))?;
    Some((own.len(), alone.len()))
}

/// CPU time of a container so far.
pub(crate) fn cpu_seconds(container: &str) -> Option<f64> {
    groups(container).iter().find_map(|group| {
        if let Ok(text) = fs::read_to_string(group.join("cpuacct.usage")) {
            return Some(text.trim().parse::<f64>().ok()? / 1e9);
        }
        let text = fs::read_to_string(group.join("cpu.stat")).ok()?;
        let usage = text.lines().find_map(|it| it.strip_prefix("usage_usec "))?;
        Some(usage.trim().parse::<f64>().ok()? / 1e6)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_local_on_nodes_of_its_cpus_whatever_the_size_of_pages() {
        let text = "7f00 default anon=6 dirty=6 N0=4 N1=2 kernelpagesize_kB=4\n\
                    7f01 default huge anon=1 N1=1 kernelpagesize_kB=2048\n\
                    7f02 default file=/usr/bin/x\n";
        let share =
            |near: &[u32]| local_share(&memory_by_node(text), &near.iter().copied().collect());
        assert_eq!(share(&[0]), Some(100.0 * 16.0 / (24.0 + 2048.0)));
        assert_eq!(share(&[0, 1]), Some(100.0));
        let nothing = memory_by_node("7f02 default file=/usr/bin/x\n");
        assert_eq!(local_share(&nothing, &BTreeSet::new()), None);
    }

    #[test]
    fn the_cpu_of_a_thread_is_found_behind_any_name() {
        let stat = "4711 (mc worker) 1 2) S 1 1 1 0 -1 4194624 512 0 0 0 40 2 0 0 20 0 10 0 731 84000000 5923 18446744073709551615 1 1 0 0 0 0 0 4096 17 0 0 0 -1 9 0 0 0 0 0 0 0 0 0 0 0 0 0";
        assert_eq!(parse_last_run(stat), Some(LastRun { cpu: CpuId(9), ticks: 42.0 }));
        assert_eq!(parse_last_run("4711 (x) S 1"), None);
    }

    #[test]
    fn memory_is_at_hand_where_threads_ran_and_as_much_as_they_did() {
        let nodes = [(0, "0-7".parse().unwrap()), (1, "8-15".parse().unwrap())].into();
        let memory = [(0, 300.0), (1, 100.0)].into();
        let check = |threads: &[(u32, f64)], expected| {
            let last = |(cpu, ticks): &(u32, f64)| LastRun { cpu: CpuId(*cpu), ticks: *ticks };
            let threads: Vec<LastRun> = threads.iter().map(last).collect();
            assert_eq!(near_memory(&memory, &threads, &nodes), expected, "{threads:?}");
        };
        check(&[(0, 10.0), (7, 90.0)], Some((300.0, 400.0)));
        check(&[(8, 50.0)], Some((100.0, 400.0)));
        check(&[(1, 50.0), (9, 50.0)], Some((200.0, 400.0)));
        // One that never ran says nothing.
        check(&[(1, 50.0), (9, 0.0)], Some((300.0, 400.0)));
        check(&[(1, 0.0)], None);
    }

    #[test]
    fn cpus_are_shared_with_each_container_that_may_use_them() {
        let check = |pairs: &[(&'static str, &str)], expected| {
            let cpus = pairs.iter().map(|(name, text)| (*name, text.parse().ok())).collect();
            assert_eq!(seclusion("redis", &cpus), expected, "{pairs:?}");
        };
        check(&[("redis", "1"), ("background-1", "0"), ("background-2", "0")], Some((1, 1)));
        check(&[("redis", "0-1"), ("background-1", "0-1")], Some((2, 0)));
        check(&[("redis", "0-3"), ("a", "2-3")], Some((4, 2)));
        check(&[("redis", "its processes have ended")], None);
        check(&[("redis", "0"), ("a", "its processes have ended")], None);
    }
}
