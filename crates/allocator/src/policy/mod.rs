//! Policies. They differ in how pools come to be and who is in which; ledger, picker and offer are the same for all.

mod tree;

pub use tree::{PoolsError, pools, surviving_pools};

/// How a machine is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Pools are the hardware tree, and who shares CPUs does so in the narrowest pool of whole NUMA nodes that suits.
    #[default]
    TopologyAware,
    /// Owners get their CPUs by the hardware tree; all that nobody owns is shared by everybody else, as kubelet's static CPU manager and the
    /// `numa` allocator of the CPU Control Plane Manager have it.
    OneSharedPool,
}
