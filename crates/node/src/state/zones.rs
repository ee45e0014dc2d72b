//! What schedulers may count on: NUMA nodes with what is left of them, and groups. In: the state, and the CPUs of each node. Out: [`NodeZones`].

use bayplan_allocator::{Zone, zones};
use bayplan_types::{CpuSet, NodeId};

use crate::mode::Mode;
use crate::state::NodeState;
use crate::status::GroupStatus;

/// The node at one moment, for schedulers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeZones {
    /// Nothing is promised in any but [`Mode::Placing`].
    pub mode: Mode,
    /// In the order in which the nodes were given.
    pub zones: Vec<Zone>,
    /// CPUs without an exclusive container.
    pub shared: CpuSet,
    /// CPUs for system pods.
    pub reserved: CpuSet,
    /// CPUs that the kernel keeps out.
    pub isolated: CpuSet,
    /// Every group, by type and number.
    pub groups: Vec<GroupStatus>,
}

impl NodeState {
    /// Each NUMA node that is given, with its CPUs (none: a node that has only memory), in that order.
    pub fn zones(&self, nodes: &[(NodeId, CpuSet)]) -> NodeZones {
        let (pools, usual) = (self.ledger.pools(), &self.rules.wishes.cpus);
        NodeZones {
            mode: self.mode,
            zones: zones(&self.ledger, nodes, usual.only_whole_cores),
            shared: self.ledger.free().clone(),
            reserved: pools.reserved().clone(),
            isolated: pools.isolated().clone(),
            groups: self.group_statuses(),
        }
    }
}
