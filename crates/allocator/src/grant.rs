//! Memory for one container: nodes, and what is set aside on them.

use bayplan_types::{Bytes, NodeId, NodeSet};

use crate::allocation::{Allocation, HugeCharge};

/// Nodes a container may use, and what it holds on each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) mems: NodeSet,
    pub(crate) charges: Vec<(NodeId, Bytes)>,
    pub(crate) huge_charges: Vec<HugeCharge>,
}

impl Grant {
    /// The allocation with this memory.
    pub(crate) fn give_to(self, held: Allocation) -> Allocation {
        let Grant { mems, charges, huge_charges } = self;
        Allocation { mems, charges, huge_charges, ..held }
    }
}
