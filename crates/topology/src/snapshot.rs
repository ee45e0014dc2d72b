//! Facts about the hardware as they were read. Nothing here is derived or corrected: a missing file is a `None`, and two files
//! that contradict each other stand side by side. [`crate::derive()`] makes sense of them.
//!
//! Sources: `Documentation/ABI/stable/sysfs-devices-system-cpu`, `Documentation/ABI/testing/sysfs-devices-system-cpu`,
//! `Documentation/admin-guide/cputopology.rst`, `Documentation/ABI/stable/sysfs-devices-node`.

use std::fmt;

use bayplan_types::{Bytes, CoreId, CpuId, CpuSet, DieId, NodeId, NodeSet, PackageId};

/// Everything that was read about one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// One entry per `cpuN` directory, in any order.
    pub cpus: Vec<CpuFacts>,
    /// `cpu/present`: CPUs that the machine has now.
    pub present: Option<CpuSet>,
    /// `cpu/possible`: CPUs that the kernel could ever see.
    pub possible: Option<CpuSet>,
    /// `cpu/online`: CPUs that run.
    pub online: Option<CpuSet>,
    /// `cpu/isolated`: CPUs outside the scheduler's load balancing (`isolcpus=`).
    pub isolated: Option<CpuSet>,
    /// One entry per `nodeN` directory, in any order; empty on a kernel without NUMA.
    pub nodes: Vec<NodeFacts>,
    /// `node/online`: nodes that the columns of `distance` stand for.
    pub online_nodes: Option<NodeSet>,
    /// `MemTotal` of `/proc/meminfo`: all memory of the machine, against which that of the nodes is checked.
    pub mem_total: Option<Bytes>,
    /// `cpuset.cpus.effective` of our own cgroup.
    pub allowed_cpus: Option<CpuSet>,
    /// `cpuset.mems.effective` of our own cgroup.
    pub allowed_mems: Option<NodeSet>,
    /// What the reader could not make sense of.
    pub oddities: Vec<Oddity>,
}

/// Facts about one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuFacts {
    /// The number in the directory's name.
    pub id: CpuId,
    /// `online`; CPUs that cannot be switched off have no such file.
    pub online: Option<bool>,
    /// `topology/physical_package_id`; `None` also where the kernel says -1, "not known".
    pub package_id: Option<PackageId>,
    /// `topology/die_id` (since Linux 5.2); `None` also where the kernel says -1.
    pub die_id: Option<DieId>,
    /// `topology/core_id`; `None` also where the kernel says -1.
    pub core_id: Option<CoreId>,
    /// `topology/core_cpus_list`, before Linux 5.3 `thread_siblings_list`.
    pub thread_siblings: Option<CpuSet>,
    /// One entry per `cache/indexN` directory.
    pub caches: Vec<CacheFacts>,
}

impl CpuFacts {
    /// A CPU of which nothing is known but that its directory exists.
    pub fn new(id: CpuId) -> CpuFacts {
        CpuFacts {
            id,
            online: None,
            package_id: None,
            die_id: None,
            core_id: None,
            thread_siblings: None,
            caches: Vec::new(),
        }
    }
}

/// Facts about one cache as one CPU sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheFacts {
    /// `level`.
    pub level: Option<u32>,
    /// `type`.
    pub kind: Option<CacheKind>,
    /// `shared_cpu_list`.
    pub shared_cpus: Option<CpuSet>,
    /// `size`.
    pub size: Option<Bytes>,
    /// `id` (since Linux 4.10, not on every architecture).
    pub id: Option<u32>,
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheKind {
    /// `Data`.
    Data,
    /// `Instruction`.
    Instruction,
    /// `Unified`.
    Unified,
}

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
}

/// Something that was missing, broken or contradictory, and what was assumed instead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Oddity {
    /// The kernel file, or the group of files, that is odd.
    pub path: String,
    /// What it holds.
    pub found: String,
    /// What bayplan takes for true.
    pub assumed: String,
}

impl Oddity {
    /// A note on `path`.
    pub fn new(
        path: impl Into<String>,
        found: impl Into<String>,
        assumed: impl Into<String>,
    ) -> Oddity {
        Oddity { path: path.into(), found: found.into(), assumed: assumed.into() }
    }
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; assumed: {}", self.path, self.found, self.assumed)
    }
}
