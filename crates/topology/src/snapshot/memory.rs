//! Facts about NUMA nodes and their memory.

use bayplan_types::{Bytes, CpuSet, NodeId, NodeSet};

/// Facts about one NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// The number in the directory's name.
    pub id: NodeId,
    /// `cpulist`.
    pub cpus: Option<CpuSet>,
    /// `MemTotal` of `meminfo`.
    pub mem_total: Option<Bytes>,
    /// `distance`: one number per online node, lowest node first; empty when there is no such file.
    pub distances: Vec<u32>,
    /// One entry per `hugepages/hugepages-NkB` directory, by size.
    pub huge_pages: Vec<HugePages>,
    /// One entry per `accessN` directory.
    pub accesses: Vec<AccessFacts>,
    /// `size` of each `memory_side_cache/indexN` (`Documentation/admin-guide/mm/numaperf.rst`).
    pub side_caches: Vec<Bytes>,
}

impl NodeFacts {
    /// A node of which nothing is known but that its directory exists.
    pub fn new(id: NodeId) -> NodeFacts {
        NodeFacts {
            id,
            cpus: None,
            mem_total: None,
            distances: Vec::new(),
            huge_pages: Vec::new(),
            accesses: Vec::new(),
            side_caches: Vec::new(),
        }
    }
}

/// Huge pages of one size in one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// Size of a page.
    pub size: Bytes,
    /// `nr_hugepages`.
    pub total: u64,
    /// `free_hugepages`.
    pub free: u64,
}

/// How well the memory of a node is reached by the nodes from which it is reached best
/// (`Documentation/admin-guide/mm/numaperf.rst`; firmware: ACPI HMAT).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessFacts {
    /// The number of the class: 0 for any initiator, 1 for CPUs alone.
    pub class: u32,
    /// `initiators/nodeN`.
    pub initiators: NodeSet,
    /// `read_bandwidth` in MB/s.
    pub read_bandwidth: Option<u32>,
    /// `write_bandwidth` in MB/s.
    pub write_bandwidth: Option<u32>,
    /// `read_latency` in ns.
    pub read_latency: Option<u32>,
    /// `write_latency` in ns.
    pub write_latency: Option<u32>,
}

/// One memory tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierFacts {
    /// The number in the directory's name; lower is faster, ordinary DRAM is 4.
    pub tier: u32,
    /// `nodelist`.
    pub nodes: NodeSet,
}

/// One piece of memory that came as a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaxFacts {
    /// The name of the directory: `dax0.0`.
    pub name: String,
    /// `target_node`: the node that the memory makes up when it is used as memory.
    pub node: Option<NodeId>,
    /// Where in the tree of devices it hangs.
    pub origin: DaxOrigin,
}

/// Where a device's memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DaxOrigin {
    /// Below an `ndbus`: persistent memory.
    Pmem,
    /// Below a CXL region.
    Cxl,
    /// Below `hmem`: memory that the firmware sets aside for a purpose, mostly HBM.
    SpecialPurpose,
}

impl DaxOrigin {
    /// Every origin.
    pub const ALL: [DaxOrigin; 3] = [DaxOrigin::Pmem, DaxOrigin::Cxl, DaxOrigin::SpecialPurpose];
}
