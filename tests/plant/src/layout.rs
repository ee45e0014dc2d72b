//! What of the machine matters to the model, by position instead of number.

use bayplan_topology::{Level, Topology};
use bayplan_types::{Bytes, CpuId, CpuSet, NodeId, NodeSet};

/// Memory bandwidth that a node sustains, in bytes per second and core: eight channels of DDR5-4800 have 307 GB/s, of which Jacob ("The Memory System: You Can't
/// Avoid It, You Can't Ignore It, You Can't Fake It", 2009) leaves 65 to 75 %, for the 56 cores of a Xeon 8480.
const BANDWIDTH_PER_CORE: f64 = 3.8e9;
/// MiB of last-level cache where the machine tells none.
const CACHE_UNKNOWN_MIB: f64 = 32.0;

/// The machine, by position.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// CPUs in ascending order; positions below are positions here.
    pub(super) cpus: Vec<CpuId>,
    /// Other threads of the same core, by CPU.
    pub(super) siblings: Vec<Vec<usize>>,
    /// Last-level cache, by CPU.
    pub(super) cache_of: Vec<usize>,
    /// MiB, by cache.
    pub(super) caches: Vec<f64>,
    /// CPUs, by cache.
    pub(super) cache_cpus: Vec<CpuSet>,
    /// Memory node, by CPU.
    pub(super) node_of: Vec<usize>,
    /// Nodes with CPUs, by position; a machine without NUMA has one without a number.
    pub(super) nodes: Vec<Option<NodeId>>,
    /// Bytes per second, by node.
    pub(super) bandwidths: Vec<f64>,
    /// How much longer memory takes than on one's own node, by node of the CPU and of the memory.
    pub(super) farness: Vec<Vec<f64>>,
}

impl Layout {
    pub(super) fn new(topology: &Topology) -> Layout {
        let cpus: Vec<CpuId> = topology.cpus().iter().collect();
        let position = |cpu: CpuId| cpus.binary_search(&cpu).ok();
        let siblings = cpus.iter().map(|cpu| {
            let core = topology.core_of(*cpu).into_iter().flat_map(CpuSet::iter);
            core.filter(|other| other != cpu).filter_map(position).collect()
        });
        let (cache_cpus, caches) = caches(topology);
        let with_cpus = topology.nodes().iter().filter(|node| !node.cpus.is_empty());
        let mut nodes: Vec<Option<NodeId>> = with_cpus.map(|node| Some(node.id)).collect();
        if nodes.is_empty() {
            nodes.push(None);
        }
        let node_at = |cpu| {
            let node = topology.node_of(cpu);
            nodes.iter().position(|other| *other == node).unwrap_or(0)
        };
        let node_of: Vec<usize> = cpus.iter().map(|cpu| node_at(*cpu)).collect();
        let cores_of = |node| {
            let first = |core: &&CpuSet| core.first().is_some_and(|cpu| node_at(cpu) == node);
            topology.cores().iter().filter(first).count()
        };
        let far = |from: &Option<NodeId>, to: &Option<NodeId>| match (from, to) {
            (Some(from), Some(to)) => farness(topology.distance(*from, *to)),
            _ => 1.0,
        };
        Layout {
            siblings: siblings.collect(),
            cache_of: cpus
                .iter()
                .map(|cpu| cache_cpus.iter().position(|set| set.contains(*cpu)).unwrap_or(0))
                .collect(),
            caches,
            cache_cpus,
            bandwidths: (0..nodes.len())
                .map(|node| BANDWIDTH_PER_CORE * cores_of(node) as f64)
                .collect(),
            farness: nodes.iter().map(|a| nodes.iter().map(|b| far(a, b)).collect()).collect(),
            node_of,
            nodes,
            cpus,
        }
    }

    /// Positions of those of `cpus` that are online.
    pub(super) fn positions(&self, cpus: &CpuSet) -> Vec<usize> {
        cpus.iter().filter_map(|cpu| self.cpus.binary_search(&cpu).ok()).collect()
    }

    /// How memory in equal parts on `mems` lies on the nodes; without any, where `cpus` are.
    pub(super) fn pages(&self, mems: &NodeSet, cpus: &[usize]) -> Vec<f64> {
        let mut pages: Vec<f64> = self
            .nodes
            .iter()
            .map(|node| f64::from(u8::from(node.is_some_and(|node| mems.contains(node)))))
            .collect();
        if pages.iter().sum::<f64>() <= 0.0 {
            cpus.iter().for_each(|cpu| pages[self.node_of[*cpu]] += 1.0);
        }
        let total: f64 = pages.iter().sum();
        pages.iter_mut().for_each(|share| *share /= total.max(1.0));
        pages
    }
}

/// The last-level caches; the whole machine where it tells none.
fn caches(topology: &Topology) -> (Vec<CpuSet>, Vec<f64>) {
    let mib = |size: Bytes| size.0 as f64 / f64::from(1 << 20);
    let objects = topology.objects().iter().filter(|object| object.level == Level::L3);
    let sets: Vec<CpuSet> = match objects.map(|object| object.cpus.clone()).collect::<Vec<_>>() {
        sets if sets.is_empty() => vec![topology.cpus().clone()],
        sets => sets,
    };
    let size_of = |set: &CpuSet| {
        let cache = topology.caches().iter().find(|cache| cache.level == 3 && cache.cpus == *set);
        cache.and_then(|cache| cache.size).map_or(CACHE_UNKNOWN_MIB, mib)
    };
    let sizes = sets.iter().map(size_of).collect();
    (sets, sizes)
}

/// Distances of the firmware overstate: two packages that are 21 apart differ by 1.5 to 1.7 in measured latency.
fn farness(distance: Option<u32>) -> f64 {
    1.0 + 0.6 * (f64::from(distance.unwrap_or(10)) - 10.0).max(0.0) / 11.0
}
