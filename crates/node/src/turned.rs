//! What the rebalancer has turned, as a part of the state. In: its proposals that are to be in force. Out: what occupancy says of them, from which everything
//! that is written follows.
//!
//! Knobs that are files are turned by the enforcer; of a container that is to leave CPUs only those that it keeps are in its pinning, or those of a
//! pool that it shares instead (`sent.rs`), and of one that has its memory come home the nodes that were looked at for room. It does not follow when
//! it belongs elsewhere later.
//!
//! It is not in the journal: after a restart nothing is turned, and the originals on disk lead back. Only an exclusive container that was sent
//! elsewhere is there, by the ledger.

use std::collections::BTreeMap;

use bayplan_allocator::ContainerId;
use bayplan_rebalance::{Knob, Proposal};
use bayplan_types::{CpuSet, NodeSet};

/// Turned knobs, by the numbers of their proposals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turned(BTreeMap<u64, Turn>);

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Which.
    pub knob: Knob,
    /// On which container.
    pub target: ContainerId,
    /// How far.
    pub step: u32,
    /// CPUs that it is to leave.
    pub leave: CpuSet,
    /// Memory nodes that are its home and have room, as was found before; none where that was not looked at yet.
    pub mems: NodeSet,
}

impl Turn {
    /// It is a class of resctrl, for threads of its target.
    pub fn is_class(&self) -> bool {
        matches!(self.knob, Knob::Cache | Knob::Bandwidth)
    }

    /// It is a file of a cgroup, and nothing in a pinning.
    pub fn is_in_files(&self) -> bool {
        self.leave.is_empty() && self.knob != Knob::Memory && !self.is_class()
    }
}

impl Turned {
    /// Everything that these ask for. `homes`: the nodes on which there is room for memory that is to come home.
    pub fn of<'a>(
        proposals: impl IntoIterator<Item = &'a Proposal>,
        homes: &BTreeMap<u64, NodeSet>,
    ) -> Turned {
        let turn = |it: &Proposal| Turn {
            knob: it.knob,
            target: it.target,
            step: it.step,
            leave: it.leave.clone(),
            mems: homes.get(&it.number).cloned().unwrap_or_default(),
        };
        Turned(proposals.into_iter().map(|it| (it.number, turn(it))).collect())
    }

    /// Turns by the numbers of their proposals.
    pub fn from_turns(turns: impl IntoIterator<Item = (u64, Turn)>) -> Turned {
        Turned(turns.into_iter().collect())
    }

    /// With numbers, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Turn)> {
        self.0.iter().map(|(number, turn)| (*number, turn))
    }

    /// That of one proposal.
    pub(crate) fn get(&self, number: u64) -> Option<&Turn> {
        self.0.get(&number)
    }

    /// How far a knob is turned on a container; 0 where it is not.
    pub fn step(&self, knob: Knob, target: ContainerId) -> u32 {
        let turns = self.0.values().filter(|it| it.knob == knob && it.target == target);
        turns.map(|it| it.step).max().unwrap_or(0)
    }

    /// Whether something is turned on a container.
    pub(crate) fn is_about(&self, target: ContainerId) -> bool {
        self.0.values().any(|it| it.target == target)
    }

    /// CPUs that a container is to leave.
    pub(crate) fn left_by(&self, target: ContainerId) -> CpuSet {
        let leave = self.0.values().filter(|it| it.target == target).map(|it| &it.leave);
        leave.fold(CpuSet::new(), |all, it| all.union(it))
    }

    /// The number of the first proposal by which a container is to leave CPUs.
    pub(crate) fn first_leave(&self, target: ContainerId) -> Option<u64> {
        let mut leaves = self.0.iter().filter(|(_, it)| it.target == target);
        leaves.find(|(_, it)| !it.leave.is_empty()).map(|(number, _)| *number)
    }

    /// Memory nodes that a container's memory was to come home to.
    pub(crate) fn home_agreed(&self, target: ContainerId) -> Option<&NodeSet> {
        let mut turns = self.0.values().filter(|it| it.target == target);
        turns.find(|it| !it.mems.is_empty()).map(|it| &it.mems)
    }

    /// Without those on containers that are not there.
    pub(crate) fn only(mut self, is_there: impl Fn(ContainerId) -> bool) -> Turned {
        self.0.retain(|_, turn| is_there(turn.target));
        self
    }
}
