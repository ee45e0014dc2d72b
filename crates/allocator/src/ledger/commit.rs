//! Changes of the ledger. In: offers to commit, containers to release, allocations to adopt after a restart, moves and narrowings that were planned. Out: the ledger
//! after them, or why they cannot be made; then nothing is changed.

use bayplan_types::{Bytes, CpuSet, MilliCpu, NodeSet};

use super::{Holdings, Ledger};
use crate::allocation::{Allocation, HugeCharge};
use crate::budget::Load;
use crate::change::{Move, Narrowing, Relocation};
use crate::check::check_ledger;
use crate::id::ContainerId;
use crate::memory::found_memory;
use crate::offer::Offer;
use crate::pool::PoolId;
use crate::request::Request;
use crate::wishes::{Owner, Part};

/// The offer was made for another state of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the offer was made for ledger version {made_at}, which is now {current}; ask again")]
pub struct StaleOffer {
    /// Version that the offer was made for.
    pub made_at: u64,
    /// Version now.
    pub current: u64,
}

/// Why an allocation from a journal or a running container cannot be taken over as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdoptError {
    /// The container is already in the ledger.
    #[error("{0} is already in the ledger")]
    AlreadyHeld(ContainerId),
    /// The pool is of another machine.
    #[error("pool {} does not exist", .0.0)]
    UnknownPool(PoolId),
    /// Another container holds these CPUs, or they are reserved, isolated, offline or outside the pool.
    #[error("CPUs {0} are not free")]
    NotFree(Box<CpuSet>),
    /// Without them a shared pool would have no CPU.
    #[error("pool `{0}` would have no shared CPU left")]
    WouldStarve(String),
    /// Neither an exclusive nor a shared part.
    #[error("the allocation is empty")]
    Empty,
    /// It belongs to a group that is not in the ledger.
    #[error("the group {0} is not in the ledger")]
    NoGroup(ContainerId),
}

/// Why moves cannot be made any more: the ledger is another than they were planned for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelocateError {
    /// It does not hold what the plan says it holds.
    #[error("{0} does not hold what it held when it was to be moved")]
    Changed(ContainerId),
    /// Its new place is not to be had.
    #[error("{0} cannot be moved")]
    NotTaken(ContainerId, #[source] AdoptError),
}

impl Ledger {
    /// Takes an offer.
    ///
    /// # Errors
    /// [`StaleOffer`] when anything changed since the offer was made; nothing is changed then.
    pub fn commit(&mut self, offer: Offer) -> Result<(), StaleOffer> {
        if offer.made_at != self.version || self.allocation(offer.container).is_some() {
            return Err(StaleOffer { made_at: offer.made_at, current: self.version });
        }
        for made in &offer.moves {
            self.move_sharer(made);
        }
        self.hold(offer.container, offer.allocation);
        Ok(())
    }

    /// Lets shared containers run elsewhere, for an offer with an allocation that was adopted and not committed.
    pub fn move_sharers(&mut self, moves: &[Move]) {
        for made in moves {
            self.move_sharer(made);
        }
        self.changed();
    }

    /// Its memory stays where it is; it may have more near its new CPUs, of the kinds that it has.
    fn move_sharer(&mut self, made: &Move) {
        let Some(mut allocation) = self.holdings.allocations.remove(&made.container) else {
            return;
        };
        self.for_each_load(&allocation, Load::remove);
        allocation.pool = made.to;
        if let Some(pool) = self.pools.get(made.to) {
            // Nodes without CPUs only for what has none of the others.
            let more = self.may_have_of(&allocation, [&pool.nodes, &pool.memory]);
            allocation.mems.union_with(&more);
        }
        self.for_each_load(&allocation, Load::add);
        self.holdings.allocations.insert(made.container, allocation);
    }

    /// Lets a container have these memory nodes too; nothing is set aside on them. `None` when it holds nothing.
    pub(crate) fn add_mems(&mut self, id: ContainerId, nodes: &NodeSet) -> Option<NodeSet> {
        let held = self.holdings.allocations.get_mut(&id)?;
        held.mems.union_with(nodes);
        let mems = held.mems.clone();
        self.changed();
        Some(mems)
    }

    /// Lets a container have fewer memory nodes.
    ///
    /// # Errors
    /// [`StaleOffer`] when anything changed since the narrowing was planned; nothing is changed then.
    pub fn narrow(&mut self, planned: &Narrowing) -> Result<(), StaleOffer> {
        let is_fresh = planned.made_at == self.version;
        let held = self.allocation(planned.container).filter(|_| is_fresh).cloned();
        let Some(held) = held else {
            return Err(StaleOffer { made_at: planned.made_at, current: self.version });
        };
        self.holdings.charged.remove(&self.pools, &held);
        let narrower = planned.grant.clone().give_to(held);
        self.holdings.charged.add(&self.pools, &narrower);
        self.holdings.allocations.insert(planned.container, narrower);
        self.changed();
        Ok(())
    }

    /// The place of a container that runs already, with the memory that it asks for set aside on the nodes that it has, as far as they have it.
    pub fn with_found_memory(&self, request: &Request, held: Allocation) -> Allocation {
        found_memory(&self.pools, self.charged(), request, held)
    }

    /// Takes over what a container already has, after a restart or for a container that bayplan did not place. Memory is set aside
    /// as far as the nodes still have it: the container uses it already, and the ledger does not count it twice.
    ///
    /// # Errors
    /// [`AdoptError`]; nothing is changed then.
    pub fn adopt(&mut self, id: ContainerId, mut allocation: Allocation) -> Result<(), AdoptError> {
        if self.allocation(id).is_some() {
            return Err(AdoptError::AlreadyHeld(id));
        }
        let Some(pool) = self.pools.get(allocation.pool) else {
            return Err(AdoptError::UnknownPool(allocation.pool));
        };
        let part = allocation.terms.part;
        let may_lack = part.runs_on_others() || part == Part::Group;
        if allocation.exclusive.is_empty() && allocation.shared.is_none() && !may_lack {
            return Err(AdoptError::Empty);
        }
        let group = match part.group() {
            Some(id) => Some(self.group(id).ok_or(AdoptError::NoGroup(id))?),
            None => None,
        };
        let mut available = self.free().union(self.open_isolated());
        group.into_iter().for_each(|it| available.union_with(&it.exclusive));
        // Some CPUs of a group stay for members that share them.
        if let (Some(id), Some(group)) = (part.group(), group) {
            let left = group.exclusive.difference(&allocation.exclusive);
            let is_sharing = matches!(part, Part::Member(_)) || self.has_sharing_member(id);
            if left.is_empty() && is_sharing {
                return Err(AdoptError::WouldStarve("its group".to_owned()));
            }
        }
        available.intersect_with(&self.pools.ownable(&allocation.exclusive));
        if allocation.shared.is_none() {
            available.intersect_with(&pool.cpus);
        }
        let taken = allocation.exclusive.difference(&available);
        if !taken.is_empty() {
            return Err(AdoptError::NotFree(Box::new(taken)));
        }
        allocation.idle.intersect_with(&self.free().union(self.open_isolated()));
        allocation.mems = self.known_mems(&allocation, &pool.nodes);
        // Expected memory is not set aside, and may be more than is free.
        let is_expected = allocation.terms.memory_is_expected;
        for (node, charge) in &mut allocation.charges {
            *charge = match self.pools.node(*node) {
                Some(_) if is_expected => *charge,
                _ => (*charge).min(self.charged().free_on(&self.pools, *node)),
            };
        }
        allocation.charges.retain(|(_, charge)| *charge > Bytes::ZERO);
        for HugeCharge { node, size, bytes } in &mut allocation.huge_charges {
            *bytes = (*bytes).min(self.charged().huge_unset_on(&self.pools, *node, *size));
        }
        allocation.huge_charges.retain(|charge| charge.bytes > Bytes::ZERO);
        if allocation.is_reserved && self.pools.reserved().is_empty() {
            allocation.is_reserved = false;
        }
        if let Some(starved) = self.starved_by(&allocation) {
            return Err(AdoptError::WouldStarve(starved));
        }
        self.hold(id, allocation);
        Ok(())
    }

    /// Its memory nodes as far as the machine has them; all that are near, where it has none of them.
    fn known_mems(&self, allocation: &Allocation, near: &NodeSet) -> NodeSet {
        let machine: NodeSet = self.pools.nodes.iter().map(|node| node.id).collect();
        let mems = allocation.mems.intersection(&machine);
        let near = near.intersection(&machine);
        [mems, near, self.pools.memory_nodes()]
            .into_iter()
            .find(|nodes| !nodes.is_empty())
            .unwrap_or(machine)
    }

    /// The first pool that would have sharers, but no shared CPU.
    fn starved_by(&self, allocation: &Allocation) -> Option<String> {
        let free = self.free().difference(&allocation.owned());
        let shares = allocation.shared.is_some() && !allocation.is_reserved;
        let chain: Vec<PoolId> = self.pools.chain(allocation.pool).map(|pool| pool.id).collect();
        let starved = self.pools.iter().find(|pool| {
            let mut load = self.loads().get(pool.id.index()).copied().unwrap_or_default();
            load.containers += u32::from(shares && chain.contains(&pool.id));
            load.needs_a_cpu(pool) && !pool.cpus.intersects(&free)
        })?;
        Some(starved.name.clone())
    }

    /// Gives back what a container or a group holds; `None` when it holds nothing, or is a group that has members. Exclusive CPUs of its pod go to the next of
    /// the pod that runs on them, those of its group to the group.
    pub fn release(&mut self, id: ContainerId) -> Option<Allocation> {
        if self.group(id).is_some() && self.members_of(id).next().is_some() {
            return None;
        }
        match self.heir_of(id) {
            Some(heir) => self.bequeath(id, heir),
            None => self.lift(id),
        }
    }

    /// The same for a container that is placed anew or put back at once: no other one of its pod takes over what it held.
    pub fn lift(&mut self, id: ContainerId) -> Option<Allocation> {
        let allocation = self.lift_quietly(id)?;
        if let Part::Inside(group) = allocation.terms.part {
            self.give_to_group(group, &allocation.exclusive);
        }
        // Members without their group are not as they should be until it is back.
        match allocation.is_group() && self.members_of(id).next().is_some() {
            true => self.version += 1,
            false => self.changed(),
        }
        Some(allocation)
    }

    /// One step of a change: what is between two steps is not looked at.
    pub(crate) fn lift_quietly(&mut self, id: ContainerId) -> Option<Allocation> {
        let allocation = self.holdings.allocations.remove(&id)?;
        self.open_up(&allocation);
        self.set_owner(&allocation.exclusive, None);
        self.for_each_load(&allocation, Load::remove);
        self.holdings.charged.remove(&self.pools, &allocation);
        Some(allocation)
    }

    /// Everything as it was.
    pub(crate) fn restore(&mut self, before: Holdings) {
        self.holdings = before;
        self.changed();
    }

    /// Makes all of these moves, in order, or none.
    ///
    /// # Errors
    /// [`RelocateError`]; nothing is changed then.
    pub fn relocate(&mut self, moves: &[Relocation]) -> Result<(), RelocateError> {
        if moves.is_empty() {
            return Ok(());
        }
        let before = self.holdings.clone();
        let made = moves.iter().try_for_each(|made| self.relocate_one(made));
        if made.is_err() {
            self.restore(before);
        }
        made
    }

    /// It lets go first, so its new place may have CPUs of the old one.
    fn relocate_one(&mut self, made: &Relocation) -> Result<(), RelocateError> {
        if self.allocation(made.container) != Some(&made.from) {
            return Err(RelocateError::Changed(made.container));
        }
        self.lift(made.container);
        self.move_sharers(&made.sharers);
        let taken = self.adopt(made.container, made.to.clone());
        taken.map_err(|why| RelocateError::NotTaken(made.container, why))
    }

    pub(crate) fn hold(&mut self, id: ContainerId, allocation: Allocation) {
        if let Part::Inside(group) = allocation.terms.part {
            self.take_from_group(group, &allocation.exclusive);
        }
        self.hold_quietly(id, allocation);
        self.changed();
    }

    /// One step of a change: what is between two steps is not looked at.
    pub(crate) fn hold_quietly(&mut self, id: ContainerId, allocation: Allocation) {
        self.set_owner(&allocation.exclusive, Some(allocation.terms.owner));
        let mut closed = allocation.owned();
        self.holdings.free.remove_all(&self.pools, &closed);
        closed.union_with(&self.closed_by(&allocation));
        self.holdings.open.remove_all(&self.pools, &closed);
        self.holdings.open_isolated.subtract(&closed);
        self.for_each_load(&allocation, Load::add);
        self.holdings.charged.add(&self.pools, &allocation);
        self.holdings.allocations.insert(id, allocation);
    }

    fn set_owner(&mut self, cpus: &CpuSet, owner: Option<Owner>) {
        for cpu in cpus.iter() {
            if let Some(slot) = self.holdings.owners.get_mut(cpu.0 as usize) {
                *slot = owner;
            }
        }
    }

    /// Its CPUs are shared again, and open to new requests unless another container closes them.
    fn open_up(&mut self, allocation: &Allocation) {
        let owned = allocation.owned();
        let shared = owned.difference(self.pools.isolated());
        self.holdings.free.insert_all(&self.pools, &shared);
        let mut opened = owned.union(&self.closed_by(allocation));
        for (_, other) in self.allocations().filter(|(_, it)| it.terms.closes.is_some()) {
            opened.subtract(&self.closed_by(other));
        }
        self.holdings.open.insert_all(&self.pools, &opened.intersection(self.free()));
        opened.intersect_with(&self.pools.ownable_isolated());
        for (_, other) in self.allocations() {
            if opened.is_empty() {
                break;
            }
            opened.subtract(&other.owned());
        }
        self.holdings.open_isolated.union_with(&opened);
    }

    fn for_each_load(&mut self, allocation: &Allocation, change: fn(&mut Load, MilliCpu)) {
        let Some(milli) = allocation.shared.filter(|_| !allocation.is_reserved) else { return };
        for pool in self.pools.chain(allocation.pool) {
            if let Some(load) = self.holdings.loads.get_mut(pool.id.index()) {
                change(load, milli);
            }
        }
    }

    pub(crate) fn changed(&mut self) {
        self.version += 1;
        debug_assert_eq!(check_ledger(self), Vec::<String>::new());
    }
}
