//! Facts about the hardware as they were read. Nothing here is derived or corrected: a missing file is a `None`, and two files
//! that contradict each other stand side by side. [`crate::derive()`] makes sense of them.
//!
//! Sources: `Documentation/ABI/stable/sysfs-devices-system-cpu`, `Documentation/ABI/testing/sysfs-devices-system-cpu`,
//! `Documentation/admin-guide/cputopology.rst`, `Documentation/ABI/stable/sysfs-devices-node`.

mod cpu;
mod device;
mod kernel;
mod memory;

use std::fmt;

use bayplan_types::{Bytes, CpuSet, NodeSet};

pub use cpu::{AroundPackages, CacheFacts, CacheKind, CpuFacts, KindFacts, PolicyFacts};
pub use device::{DeviceFacts, PciAddress, PciAddressError};
pub use kernel::{
    BandwidthControl, CacheControl, KernelFacts, ResctrlFacts, ResctrlMonitoring, UncoreFacts,
};
pub use memory::{AccessFacts, DaxFacts, DaxOrigin, HugePages, NodeFacts, TierFacts};

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
    /// `cpu/nohz_full`: CPUs without a timer tick while they run one task (`nohz_full=`).
    pub nohz_full: Option<CpuSet>,
    /// CPUs in isolated cpuset partitions (`cpuset.cpus.isolated` of the root cgroup, since Linux 6.7; before, the partitions
    /// themselves).
    pub partitioned: Option<CpuSet>,
    /// Core kinds of a hybrid machine: `/sys/devices/cpu_core`, `cpu_atom`, `cpu_lowpower`.
    pub kinds: Vec<KindFacts>,
    /// One entry per `cpufreq/policyN` directory.
    pub policies: Vec<PolicyFacts>,
    /// One entry per `nodeN` directory, in any order; empty on a kernel without NUMA.
    pub nodes: Vec<NodeFacts>,
    /// `node/online`: nodes that the columns of `distance` stand for.
    pub online_nodes: Option<NodeSet>,
    /// `node/has_normal_memory`: nodes with memory that the kernel itself uses; others have movable memory only.
    pub normal_memory: Option<NodeSet>,
    /// Memory tiers (`/sys/devices/virtual/memory_tiering`, since Linux 6.1).
    pub tiers: Vec<TierFacts>,
    /// Memory that came as a device (`/sys/bus/dax/devices`).
    pub dax: Vec<DaxFacts>,
    /// PCI functions, without bridges and other furniture.
    pub devices: Vec<DeviceFacts>,
    /// What the kernel can do.
    pub kernel: KernelFacts,
    /// `MemTotal` of `/proc/meminfo`: all memory of the machine, against which that of the nodes is checked.
    pub mem_total: Option<Bytes>,
    /// `cpuset.cpus.effective` of our own cgroup.
    pub allowed_cpus: Option<CpuSet>,
    /// `cpuset.mems.effective` of our own cgroup.
    pub allowed_mems: Option<NodeSet>,
    /// CPUs that containers may use at most: what `cpuset.cpus.effective` (version 1: `cpuset.effective_cpus`) of the root and of the group around all pods, kubelet's
    /// `kubepods`, leave to them. CPUs of isolated partitions of containers count as left.
    pub pods_cpus: Option<CpuSet>,
    /// Memory nodes that containers may use at most: `cpuset.mems.effective` of the same groups.
    pub pods_mems: Option<NodeSet>,
    /// What the reader could not make sense of.
    pub oddities: Vec<Oddity>,
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
