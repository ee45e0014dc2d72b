//! What each container holds, and what follows from it: which CPUs each may run on, which are free. Changes are in `ledger/commit.rs`.
//!
//! Invariants, listed by [`crate::check_ledger`] and asserted after every change in debug builds: exclusive sets are disjoint from
//! each other, from reserved CPUs and from every shared pool; every container has at least one CPU to run on; every
//! CPU is in exactly one class; every member of a group has its group; no node's memory and no huge page is set aside twice; releasing everything gives back the initial ledger.

mod commit;

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_topology::Level;
use bayplan_types::{Bytes, CpuClass, CpuId, CpuSet, MemoryKind, MilliCpu, NodeId, NodeSet};

use crate::allocation::Allocation;
use crate::budget::Load;
use crate::charged::Charged;
use crate::counted::Counted;
use crate::domain::{around, one_per_core};
use crate::id::ContainerId;
use crate::pool::{PoolId, Pools};
use crate::wishes::Owner;

pub use commit::{AdoptError, RelocateError, StaleOffer};

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
}
