//! Policies. They differ in how pools come to be and which containers are in which; ledger, picker and offer are the same for all.

mod division;
mod tree;

pub use division::{Division, Reserved};
pub use tree::{PoolsError, pools, surviving_pools};

/// How a machine is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Pools are the hardware tree, and a shared container runs in the narrowest pool of whole NUMA nodes that suits.
    #[default]
    TopologyAware,
    /// Exclusive containers get their CPUs by the hardware tree; all CPUs without an owner are shared by all others, as kubelet's static CPU manager
    /// and the `numa` allocator of the CPU Control Plane Manager have it.
    OneSharedPool,
}
