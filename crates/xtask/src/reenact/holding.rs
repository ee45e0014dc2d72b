//! Where containers run, by the kernel's account. In: files of control groups and processes. Out: CPUs, CPU time, involuntary switches, local memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use bayplan_types::CpuSet;

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

/// Percent of a container's memory that is on NUMA nodes of the CPUs on which it may run; `None` where every node has such CPUs.
pub(crate) fn local_memory(container: &str) -> Option<f64> {
    let cpus = cpus_of(container).ok()?;
    let entries = fs::read_dir("/sys/devices/system/node").ok()?.flatten().map(|it| it.path());
    let nodes = entries.filter_map(|path| {
        let number = path.file_name()?.to_str()?.strip_prefix("node")?.parse::<u32>().ok()?;
        let own: CpuSet = fs::read_to_string(path.join("cpulist")).ok()?.trim().parse().ok()?;
        Some((number, own.intersects(&cpus)))
    });
    let nodes: Vec<(u32, bool)> = nodes.collect();
    if nodes.iter().all(|(_, is_near)| *is_near) {
        return None;
    }
    let near: BTreeSet<u32> = nodes.iter().filter(|(_, it)| *it).map(|(node, _)| *node).collect();
    let maps = processes(container).ok()?.into_iter();
    let maps = maps.filter_map(|it| fs::read_to_string(format!("/proc/{it}/numa_maps")).ok());
    local_share(&maps.collect::<String>(), &near)
}

/// From /proc/PID/numa_maps: lines with `N0=12` for pages on a node, and `kernelpagesize_kB=4` for their size.
fn local_share(text: &str, near: &BTreeSet<u32>) -> Option<f64> {
    let (mut local, mut all) = (0.0, 0.0);
    for line in text.lines() {
        let fields = line.split_whitespace().filter_map(|it| it.split_once('='));
        let fields: Vec<(&str, &str)> = fields.collect();
        let size = fields.iter().find(|(key, _)| *key == "kernelpagesize_kB");
        let size: f64 = size.and_then(|(_, it)| it.parse().ok()).unwrap_or(4.0);
        for (key, pages) in fields {
            let node = key.strip_prefix('N').and_then(|it| it.parse::<u32>().ok());
            let (Some(node), Ok(pages)) = (node, pages.parse::<f64>()) else { continue };
            all += pages * size;
            local += if near.contains(&node) { pages * size } else { 0.0 };
        }
    }
    (all > 0.0).then(|| 100.0 * local / all)
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
        let share = |near: &[u32]| local_share(text, &near.iter().copied().collect());
        assert_eq!(share(&[0]), Some(100.0 * 16.0 / (24.0 + 2048.0)));
        assert_eq!(share(&[0, 1]), Some(100.0));
        assert_eq!(local_share("7f02 default file=/usr/bin/x\n", &BTreeSet::new()), None);
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
