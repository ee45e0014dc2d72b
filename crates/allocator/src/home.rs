//! Where the memory of a container belongs: near the CPUs that it runs on now. In: a ledger, the container, these CPUs, what it asks for. Out: the nodes that it
//! would get were it placed there now, and the way to them.
//!
//! Not as in `narrow.rs`: the nodes need not be among those that it has, the CPUs need not be all that its place gives it, and nothing is meant to last. So the
//! ledger does not change. What is set aside stays where it is, and whoever asks again later is told when others have taken the room.
//!
//! The kernel moves pages from nodes that are left (cgroup v2, since Linux 5.15), and whoever writes the file waits for that. So the way is one node at a time.
//!
//! Guarantees: nothing is changed; the same input gives the same way; each step leaves one node and no step leaves a container without any.

use std::cmp::Reverse;
use std::fmt;

use bayplan_types::{CpuSet, NodeId, NodeSet};

use crate::ledger::Ledger;
use crate::memory::Memory;
use crate::request::{ContainerId, Request};
use crate::wishes::ColdStart;

/// The nodes that a container's memory belongs on, and the way there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// Its nodes in the end.
    pub mems: NodeSet,
    /// Its nodes now.
    from: NodeSet,
    /// Those of them that it leaves, the farthest first; at least one.
    leaving: Vec<NodeId>,
}

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

impl Home {
    /// Its nodes after so many steps: with the first it may use all that are near, and with each it leaves one that is far, until none is left.
    pub fn after(&self, steps: usize) -> NodeSet {
        let left: NodeSet = self.leaving.iter().take(steps).copied().collect();
        match steps {
            0 => self.from.clone(),
            _ => self.from.union(&self.mems).difference(&left),
        }
    }
}

impl Ledger {
    /// Where the memory of a container belongs that runs on these CPUs. Its request is asked for only if it has nodes beyond theirs.
    ///
    /// # Errors
    /// [`NoHome`], also for a container that holds nothing or whose request is not known.
    pub fn home_of(
        &self,
        id: ContainerId,
        cpus: &CpuSet,
        request: impl FnOnce() -> Option<Request>,
    ) -> Result<Home, NoHome> {
        let (pools, held) = (self.pools(), self.allocation(id).ok_or(NoHome::Fixed)?);
        if held.terms.is_immovable || held.terms.preserve.memory || held.terms.preserve.cpus {
            return Err(NoHome::Fixed);
        }
        let near = pools.nodes_of(cpus);
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
        let mut leaving: Vec<NodeId> = held.mems.difference(&mems).iter().collect();
        leaving.sort_by_key(|node| (Reverse(distance(*node)), Reverse(*node)));
        // Nothing is gained by leaving one node for another that is as far.
        let farthest = |nodes: &NodeSet| nodes.iter().map(distance).max();
        let is_nearer = mems.is_subset(&held.mems) || farthest(&mems) < farthest(&held.mems);
        match leaving.is_empty() || !is_nearer {
            true if held.mems.is_subset(&pools.memory_of(&near)) => Err(NoHome::AtHome),
            true => Err(NoHome::NoRoom),
            false => Ok(Home { mems, from: held.mems.clone(), leaving }),
        }
    }
}
