//! Changes of the ledger that planners propose. They are values: nothing is changed until the ledger takes them.

use bayplan_types::{Bytes, MilliCpu, NodeSet};

use crate::allocation::Allocation;
use crate::grant::Grant;
use crate::id::ContainerId;
use crate::pool::PoolId;

/// A shared container that runs in another pool from now on, so that another one can have exclusive CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The container that is moved.
    pub container: ContainerId,
    /// Where it is now.
    pub from: PoolId,
    /// Where it goes.
    pub to: PoolId,
    /// The CPU time that it requests.
    pub milli: MilliCpu,
}

/// What a move costs the container that is moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// CPUs that it did not have before.
    pub cpus: usize,
    /// Memory set aside on NUMA nodes that it leaves.
    pub memory: Bytes,
}

/// A container with CPUs of its own that gets others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// The container.
    pub container: ContainerId,
    /// What it holds until then.
    pub from: Allocation,
    /// What it holds from then on.
    pub to: Allocation,
    /// Sharers that run elsewhere from then on, because of it.
    pub sharers: Vec<Move>,
    /// What it costs.
    pub cost: Cost,
}

/// Fewer memory nodes for one container; changes nothing until [`Ledger::narrow`](crate::Ledger::narrow) takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Narrowing {
    pub(crate) made_at: u64,
    /// The container.
    pub container: ContainerId,
    /// Its nodes until then.
    pub from: NodeSet,
    /// Its nodes from then on; some of those that it has.
    pub to: NodeSet,
    /// With what is set aside on them.
    pub(crate) grant: Grant,
    /// The most memory that may have to follow; `None` when nothing limits it.
    pub moves_memory: Option<Bytes>,
}

impl Narrowing {
    /// Nodes that it would no longer have.
    pub(crate) fn gain(&self) -> usize {
        self.from.len() - self.to.len()
    }
}
