//! What each container holds. In: offers to commit, containers to release, allocations to adopt after a restart. Out: the CPUs of all containers.
//!
//! Invariants, listed by [`crate::check_ledger`] and asserted after every change in debug builds: exclusive sets are disjoint from
//! each other, from reserved CPUs and from every shared pool; every container has at least one CPU to run on; every
//! CPU is in exactly one class; every member of a group has its group; no node's memory and no huge page is set aside twice; releasing everything gives back the initial ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_topology::Level;
use bayplan_types::{Bytes, CpuClass, CpuId, CpuSet, MemoryKind, MilliCpu, NodeId, NodeSet};

use crate::budget::Load;
use crate::charged::{Charged, HugeCharge};
use crate::check::check_ledger;
use crate::compact::Relocation;
use crate::counted::Counted;
use crate::narrow::Narrowing;
use crate::offer::Offer;
use crate::pool::{PoolId, Pools};
use crate::request::{ContainerId, Request};
use crate::room::Move;
use crate::view::{around, one_per_core};
use crate::wishes::{Owner, Part, Preserve};

/// What one container holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The pool it was placed in; its shared part runs on the pool's shared CPUs. The CPUs of its own are in it, unless the shared part had to
    /// make room and runs elsewhere.
    pub pool: PoolId,
    /// Runs on the reserved CPUs instead of a pool's.
    pub is_reserved: bool,
    /// CPUs that no other container runs on.
    pub exclusive: CpuSet,
    /// Other threads of its cores, on which nothing runs at all.
    pub idle: CpuSet,
    /// CPU time on shared CPUs; `None` when it has exclusive CPUs only.
    pub shared: Option<MilliCpu>,
    /// Its `cpuset.mems`; empty on a machine without NUMA nodes.
    pub mems: NodeSet,
    /// Memory set aside, node by node.
    pub charges: Vec<(NodeId, Bytes)>,
    /// Huge pages set aside, node by node.
    pub huge_charges: Vec<HugeCharge>,
    /// What holds beyond that as long as it lives.
    pub terms: Terms,
}

/// What was agreed with a container for as long as it lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Its pod and namespace.
    pub owner: Owner,
    /// No other container owns CPUs in the domains of this level in which it owns some.
    pub closes: Option<Level>,
    /// It runs on one thread of each core.
    pub hides_hyperthreads: bool,
    /// Its members run on idle CPUs of these domains around it, too.
    pub shares_idle: Option<Level>,
    /// It stays where it is, also when others could use the place.
    pub is_immovable: bool,
    /// Its memory is on the nodes of its CPUs.
    pub is_memory_bound: bool,
    /// It accepts no place farther from its devices or, with CPUs of its own, wider: its shared part does not make room.
    pub is_place_bound: bool,
    /// What is set aside for it is what it will probably use; others may have it.
    pub memory_is_expected: bool,
    /// What bayplan leaves alone.
    pub preserve: Preserve,
    /// Whether its CPUs are its pod's.
    pub part: Part,
}

impl Allocation {
    /// One that holds nothing yet.
    pub fn new(pool: PoolId) -> Allocation {
        Allocation {
            pool,
            is_reserved: false,
            exclusive: CpuSet::new(),
            idle: CpuSet::new(),
            shared: None,
            mems: NodeSet::new(),
            charges: Vec::new(),
            huge_charges: Vec::new(),
            terms: Terms::default(),
        }
    }

    /// CPUs that are neither shared nor can be owned by others.
    pub fn owned(&self) -> CpuSet {
        self.exclusive.union(&self.idle)
    }

    /// All memory set aside, huge pages included, node by node.
    pub(crate) fn set_aside(&self) -> impl Iterator<Item = (NodeId, Bytes)> {
        let huge = self.huge_charges.iter().map(|huge| (huge.node, huge.bytes));
        self.charges.iter().copied().chain(huge)
    }

    /// Huge pages that were asked for and are not set aside, because the machine had too few: bytes by size of a page. A machine without
    /// NUMA nodes does not count them.
    pub fn huge_pages_lacking(&self, request: &Request) -> Vec<(Bytes, Bytes)> {
        let set_aside = |size: Bytes| -> Bytes {
            let of_size = self.huge_charges.iter().filter(|huge| huge.size == size);
            of_size.map(|huge| huge.bytes).sum()
        };
        let asked = request.huge_pages.iter().filter(|_| !self.mems.is_empty());
        let lacking = asked.map(|(size, asked)| (*size, asked.saturating_sub(set_aside(*size))));
        lacking.filter(|(_, bytes)| *bytes > Bytes::ZERO).collect()
    }

    /// The class of the container as metrics count it; a mixed one counts as exclusive, and so does one on the exclusive CPUs of its pod
    /// or group.
    pub fn class(&self) -> CpuClass {
        match (self.is_reserved, self.exclusive.is_empty() && !self.terms.part.runs_on_others()) {
            (true, _) => CpuClass::Reserved,
            (false, false) => CpuClass::Exclusive,
            (false, true) => CpuClass::Shared,
        }
    }
}

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

/// The part of the ledger that containers change. Two ledgers with equal holdings behave the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holdings {
    /// CPUs that are not exclusive, reserved or isolated.
    free: Counted,
    /// Of these, those that a new request may own.
    open: Counted,
    /// Isolated CPUs that a new request may own.
    open_isolated: CpuSet,
    /// The owner of each exclusive CPU, by CPU number.
    owners: Vec<Option<Owner>>,
    loads: Vec<Load>,
    pub(crate) charged: Charged,
    pub(crate) allocations: BTreeMap<ContainerId, Allocation>,
}

/// What the containers of one machine hold.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub(crate) pools: Arc<Pools>,
    version: u64,
    pub(crate) holdings: Holdings,
}

impl Ledger {
    /// A ledger in which no container holds anything.
    pub fn new(pools: Arc<Pools>) -> Ledger {
        let holdings = Holdings {
            free: Counted::new(&pools, &pools.allocatable()),
            open: Counted::new(&pools, &pools.allocatable()),
            open_isolated: pools.ownable_isolated(),
            owners: vec![None; pools.core_of.len()],
            loads: vec![Load::default(); pools.pools.len()],
            charged: Charged::new(&pools),
            allocations: BTreeMap::new(),
        };
        Ledger { pools, version: 0, holdings }
    }

    /// The machine's pools.
    pub fn pools(&self) -> &Pools {
        &self.pools
    }

    /// Counts changes.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What containers hold, for comparison.
    pub fn holdings(&self) -> &Holdings {
        &self.holdings
    }

    /// CPUs that run shared parts: neither exclusive nor reserved nor isolated.
    pub fn free(&self) -> &CpuSet {
        self.holdings.free.cpus()
    }

    pub(crate) fn counted(&self) -> &Counted {
        &self.holdings.free
    }

    /// Shared CPUs that a new request may own.
    pub(crate) fn open(&self) -> &Counted {
        &self.holdings.open
    }

    /// Isolated CPUs that a new request may own.
    pub(crate) fn open_isolated(&self) -> &CpuSet {
        &self.holdings.open_isolated
    }

    /// The most isolated CPUs of one NUMA node that this container may own, with those that it owns already.
    pub fn isolated_in_a_node(&self, id: ContainerId) -> usize {
        let mut isolated = self.open_isolated().clone();
        if let Some(held) = self.allocation(id) {
            isolated.union_with(&held.exclusive.intersection(&self.pools.ownable_isolated()));
        }
        let mut counts = BTreeMap::<NodeSet, usize>::new();
        for cpu in isolated.iter() {
            *counts.entry(self.pools.nodes_of(&CpuSet::from(cpu))).or_default() += 1;
        }
        // CPUs of no NUMA node are in none together.
        counts.remove(&NodeSet::new());
        counts.into_values().max().unwrap_or(0)
    }

    pub(crate) fn loads(&self) -> &[Load] {
        &self.holdings.loads
    }

    /// No more huge pages are set aside than these, by node and size of a page: others use the rest. What is set aside already stays so.
    pub fn limit_huge_pages(&mut self, left: &BTreeMap<(NodeId, Bytes), Bytes>) {
        self.holdings.charged.limit_huge(&self.pools, left);
    }

    pub(crate) fn charged(&self) -> &Charged {
        &self.holdings.charged
    }

    /// Charged memory, excluding `held`.
    pub(crate) fn charged_without(&self, held: &Allocation) -> Charged {
        let mut charged = self.charged().clone();
        charged.remove(&self.pools, held);
        charged
    }

    /// The owner of a CPU; `None` when it is not exclusive.
    pub(crate) fn owner_of(&self, cpu: CpuId) -> Option<Owner> {
        self.holdings.owners.get(cpu.0 as usize).copied().flatten()
    }

    /// All of them, by id.
    pub fn allocations(&self) -> impl Iterator<Item = (ContainerId, &Allocation)> {
        self.holdings.allocations.iter().map(|(id, allocation)| (*id, allocation))
    }

    /// What one container holds.
    pub fn allocation(&self, id: ContainerId) -> Option<&Allocation> {
        self.holdings.allocations.get(&id)
    }

    /// CPUs that shared parts placed in `pool` run on.
    pub fn shared_cpus(&self, pool: PoolId) -> CpuSet {
        self.pools.get(pool).map(|pool| pool.cpus.intersection(self.free())).unwrap_or_default()
    }

    /// The same, or the reserved CPUs where all of the machine is owned.
    fn shared_or_refuge(&self, pool: PoolId) -> CpuSet {
        let shared = self.shared_cpus(pool);
        let has_refuge = self.pools.get(pool).is_some_and(|pool| pool.has_refuge);
        if shared.is_empty() && has_refuge { self.pools.reserved().clone() } else { shared }
    }

    /// CPU time requested by shared parts in `pool` and the pools inside it.
    pub fn shared_requests(&self, pool: PoolId) -> MilliCpu {
        self.loads().get(pool.index()).map(|load| load.milli).unwrap_or_default()
    }

    /// Memory set aside on `node`.
    pub fn memory_charged(&self, node: NodeId) -> Bytes {
        self.charged().on(&self.pools, node)
    }

    /// Every CPU that a container holding `allocation` may run on now.
    pub fn cpus_of(&self, allocation: &Allocation) -> CpuSet {
        if allocation.is_reserved {
            let reserved = self.pools.reserved();
            return match allocation.terms.hides_hyperthreads {
                true => one_per_core(&self.pools, reserved),
                false => reserved.clone(),
            };
        }
        if allocation.terms.part.runs_on_others() {
            let cpus = match self.lender_of(allocation) {
                Some(lender) => self.cpus_of(lender).union(&self.idle_around(lender)),
                None => self.shared_or_refuge(PoolId::MACHINE),
            };
            return match allocation.terms.hides_hyperthreads {
                true => one_per_core(&self.pools, &cpus),
                false => cpus,
            };
        }
        let mut own = allocation.exclusive.clone();
        let mut shared = match allocation.shared {
            Some(_) => self.shared_or_refuge(allocation.pool),
            None => CpuSet::new(),
        };
        if allocation.terms.hides_hyperthreads {
            let around = around(&self.pools, Level::Core, &own);
            own = one_per_core(&self.pools, &own);
            // A shared part that would be hidden altogether stays.
            let apart = one_per_core(&self.pools, &shared.difference(&around));
            shared = if apart.is_empty() { shared } else { apart };
        }
        own.union_with(&shared);
        own
    }

    /// CPUs around a group that its members may use because no container runs there: neither owned, nor shared by a container of a pool around them.
    fn idle_around(&self, group: &Allocation) -> CpuSet {
        let Some(level) = group.terms.shares_idle else { return CpuSet::new() };
        let mut idle = match level {
            Level::Machine => self.free().clone(),
            level => around(&self.pools, level, &group.exclusive).intersection(self.free()),
        };
        let homed = self.allocations().filter(|(_, it)| it.shared.is_some() && !it.is_reserved);
        for pool in homed.filter_map(|(_, it)| self.pools.get(it.pool)) {
            idle.subtract(&pool.cpus);
        }
        idle
    }

    /// What `cpu` is used for now; `None` for a CPU that the machine does not have.
    pub fn class_of(&self, cpu: CpuId) -> Option<CpuClass> {
        if self.pools.reserved().contains(cpu) {
            Some(CpuClass::Reserved)
        } else if self.pools.isolated().contains(cpu) {
            Some(CpuClass::Isolated)
        } else if self.free().contains(cpu) {
            Some(CpuClass::Shared)
        } else {
            self.pools.cpus().contains(cpu).then_some(CpuClass::Exclusive)
        }
    }

    /// How many CPUs are in `class`.
    pub fn cpus_in_class(&self, class: CpuClass) -> usize {
        match class {
            CpuClass::Reserved => self.pools.reserved().len(),
            CpuClass::Isolated => self.pools.isolated().len(),
            CpuClass::Shared => self.free().len(),
            CpuClass::Exclusive => self.pools.allocatable().difference(self.free()).len(),
        }
    }

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

    /// Of the first of these sets of memory nodes that has some, those of the kinds that the container has already.
    pub(crate) fn may_have_of<const N: usize>(
        &self,
        held: &Allocation,
        near: [&NodeSet; N],
    ) -> NodeSet {
        let kind = |id: NodeId| self.pools.node(id).map(|(_, node)| node.kind);
        let has = |it: MemoryKind| held.mems.iter().any(|id| kind(id) == Some(it));
        let may_have = |id: &NodeId| kind(*id).is_some_and(|it| held.mems.is_empty() || has(it));
        let of = |nodes: &NodeSet| nodes.iter().filter(may_have).collect::<NodeSet>();
        near.into_iter().map(of).find(|it| !it.is_empty()).unwrap_or_default()
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
            let has_sharer =
                self.loads().get(pool.id.index()).is_some_and(|load| load.containers > 0)
                    || (shares && chain.contains(&pool.id))
                    || pool.id == PoolId::MACHINE;
            has_sharer && !pool.has_refuge && !pool.cpus.intersects(&free)
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

    /// CPUs around it that no other container may own.
    pub fn closed_by(&self, allocation: &Allocation) -> CpuSet {
        match allocation.terms.closes {
            Some(level) => around(&self.pools, level, &allocation.exclusive),
            None => CpuSet::new(),
        }
    }

    /// CPUs beside its own that it keeps from other owners, closed or idle.
    pub fn kept_by(&self, allocation: &Allocation) -> CpuSet {
        allocation.idle.union(&self.closed_by(allocation)).difference(&allocation.exclusive)
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
