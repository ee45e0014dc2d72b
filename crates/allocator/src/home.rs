//! Where the memory of a container belongs: near the CPUs that it runs on now. In: a ledger, the container, these CPUs, what it asks for. Out: the nodes that it
//! would get were it placed there now.
//!
//! Not as in `narrow.rs`: the nodes need not be among those that it has, the CPUs need not be all that its place gives it, and nothing is meant to
//! last. So the ledger does not change. What is set aside stays where it is, and a caller that asks again later is told when others have taken the
//! room.
//!
//! Guarantees: nothing is changed; the same input gives the same nodes; there is one at least, and one that it has now is left.

use std::fmt;

use bayplan_types::{CpuSet, NodeId, NodeSet};

use crate::id::ContainerId;
use crate::ledger::Ledger;
use crate::memory::Memory;
use crate::request::Request;
use crate::wishes::ColdStart;

/// Why a container's memory stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHome {
    /// It is near its CPUs, or as near as what it asks for can be.
    AtHome,
    /// Its nodes are not to be changed: by its owner's wish, or because it starts on slow memory.
    Fixed,
    /// What it asks for is not free near its CPUs, nor nearer than now.
    NoRoom,
}

impl fmt::Display for NoHome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoHome::AtHome => "its memory nodes are those of its CPUs, or as near as they can be",
            NoHome::Fixed => "its memory nodes are not to be changed",
            NoHome::NoRoom => "too little memory is free nearer to its CPUs",
        })
    }
}

impl Ledger {
    /// Where the memory of a container belongs that runs on these CPUs. Its request is asked for only if it has nodes beyond theirs.
    ///
    /// # Errors
    /// [`NoHome`], also for a container that holds nothing or without a known request.
    pub fn home_of(
        &self,
        id: ContainerId,
        cpus: &CpuSet,
        request: impl FnOnce() -> Option<Request>,
    ) -> Result<NodeSet, NoHome> {
        let (pools, held) = (self.pools(), self.allocation(id).ok_or(NoHome::Fixed)?);
        if held.terms.is_immovable || held.terms.preserve.memory || held.terms.preserve.cpus {
            return Err(NoHome::Fixed);
        }
        let near = pools.near_memory(cpus);
        if near.is_empty() || held.mems.is_subset(&near) {
            return Err(NoHome::AtHome);
        }
        let request = request().ok_or(NoHome::Fixed)?;
        if request.wishes.memory.cold_start == ColdStart::Cold {
            return Err(NoHome::Fixed);
        }
        let charged = self.charged_without(held);
        let bound = request.wishes.memory.is_bound.then(|| pools.memory_of(&near));
        let grant = Memory::new(pools, &charged, &request).grant(&near, bound.as_ref());
        let mems = grant.ok_or(NoHome::NoRoom)?.mems;
        let distance =
            |node: NodeId| near.iter().map(|it| pools.distance(it, node)).min().unwrap_or(u32::MAX);
        // Nothing is gained by leaving one node for another that is as far.
        let farthest = |nodes: &NodeSet| nodes.iter().map(distance).max();
        let is_nearer = mems.is_subset(&held.mems) || farthest(&mems) < farthest(&held.mems);
        match held.mems.is_subset(&mems) || !is_nearer {
            true if held.mems.is_subset(&pools.memory_of(&near)) => Err(NoHome::AtHome),
            true => Err(NoHome::NoRoom),
            false => Ok(mems),
        }
    }
}
