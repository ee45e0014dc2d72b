//! The machine as the kernel shows it, read without bayplan's own reader, which is under test, too.

use std::collections::BTreeSet;
use std::fs;

use anyhow::Context as _;
use bayplan_types::{Bytes, CpuId, CpuSet, NodeId, NodeSet};

use crate::Needs;

const SYSFS: &str = "/sys/devices/system";

/// Sets of CPUs that have something in common, in the order of their lowest CPU.
pub(crate) type Groups = Vec<CpuSet>;

pub(crate) struct Hardware {
    pub(crate) cpus: CpuSet,
    pub(crate) isolated: CpuSet,
    pub(crate) packages: Groups,
    pub(crate) l3s: Groups,
    pub(crate) cores: Groups,
    pub(crate) nodes: Vec<Node>,
}

pub(crate) struct Node {
    pub(crate) id: NodeId,
    /// Empty: memory only.
    pub(crate) cpus: CpuSet,
    pub(crate) memory: Bytes,
}

impl Hardware {
    pub(crate) fn read() -> anyhow::Result<Hardware> {
        let cpus = read_set("cpu/online")?;
        let groups = |file: &str| read_groups(&cpus, file);
        Ok(Hardware {
            isolated: read_set("cpu/isolated")?,
            packages: groups("topology/package_cpus_list")?,
            l3s: groups("cache/index3/shared_cpu_list")?,
            cores: groups("topology/thread_siblings_list")?,
            nodes: read_nodes()?,
            cpus,
        })
    }

    /// Nodes with CPUs.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| !node.cpus.is_empty())
    }

    /// The nodes that these CPUs are in.
    pub(crate) fn nodes_of(&self, cpus: &CpuSet) -> NodeSet {
        let near = self.nodes.iter().filter(|node| node.cpus.intersects(cpus));
        near.map(|node| node.id).collect()
    }

    pub(crate) fn memory_of(&self, nodes: &NodeSet) -> Bytes {
        Bytes(self.nodes.iter().filter(|it| nodes.contains(it.id)).map(|it| it.memory.0).sum())
    }

    /// For tests with an exclusive container and a shared one.
    pub(crate) fn has_cpus(&self, wanted: usize) -> Needs {
        match self.cpus.difference(&self.isolated).len() {
            has if has < wanted => Err("too few CPUs"),
            _ => Ok(()),
        }
    }

    pub(crate) fn has_nodes(&self, wanted: usize) -> Needs {
        if self.places().count() < wanted { Err("too few NUMA nodes") } else { Ok(()) }
    }
}

fn read(path: &str) -> anyhow::Result<String> {
    let path = format!("{SYSFS}/{path}");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(text.trim().to_owned())
}

fn read_set(path: &str) -> anyhow::Result<CpuSet> {
    Ok(read(path)?.parse()?)
}

fn read_groups(cpus: &CpuSet, file: &str) -> anyhow::Result<Groups> {
    let mut groups = Groups::new();
    let mut seen = CpuSet::new();
    for cpu in cpus.iter() {
        if !seen.contains(cpu) {
            let group = read_set(&format!("cpu/cpu{cpu}/{file}"))?;
            seen.union_with(&group);
            groups.push(group);
        }
    }
    Ok(groups)
}

fn read_nodes() -> anyhow::Result<Vec<Node>> {
    let ids: NodeSet = read("node/online")?.parse()?;
    let node = |id: NodeId| {
        let info = read(&format!("node/node{id}/meminfo"))?;
        let total = info.lines().find_map(|line| line.split_once("MemTotal:"));
        let total = total.context("MemTotal")?.1.trim().trim_end_matches(" kB");
        let memory = Bytes(total.parse::<u64>()? << 10);
        Ok(Node { id, cpus: read_set(&format!("node/node{id}/cpulist"))?, memory })
    };
    ids.iter().map(node).collect()
}

/// Those groups that lie in `cpus` as a whole.
pub(crate) fn whole(groups: &Groups, cpus: &CpuSet) -> BTreeSet<CpuId> {
    groups.iter().filter(|group| group.is_subset(cpus)).flat_map(CpuSet::iter).collect()
}
