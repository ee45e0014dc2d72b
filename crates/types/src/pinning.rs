//! Where a container runs.

use crate::cpu_set::CpuSet;
use crate::node_set::NodeSet;

/// `cpuset.cpus` and `cpuset.mems` of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pinning {
    /// CPUs. The kernel reads an empty set as "as the parent cgroup", so an empty one may be seen; of one that is desired it says that the
    /// CPUs are left as they are, and is never written.
    pub cpus: CpuSet,
    /// NUMA nodes; empty: leave them as they are.
    pub mems: NodeSet,
}
