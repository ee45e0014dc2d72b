//! When room is made and holes are joined, and what that may cost: the rule that the daemon and the simulator share. In: which containers come and
//! go, the ledger, which ones may be moved. Out: moves to be made.
//!
//! 1. A request that would get CPUs of several NUMA nodes, or none, has room made for it in one, before it is placed.
//! 2. After an exclusive container has come, or any container has left, holes are due to be joined. The caller says when: the simulator at once, the
//!    daemon when no call waits for it. All that is due by then is one plan.
//!
//! Budget: the moves that follow from one event have one, so what room has cost is not there for joining. A departure brings a whole one.

use std::collections::BTreeMap;

use bayplan_allocator::{
    ContainerId, Ledger, Limits, Offer, Refusal, Relocation, Request, Wish, plan_compaction,
};
use bayplan_topology::Level;

use crate::settings::CompactionConfig;

/// What may be moved, and whether something is left to do.
#[derive(Clone, Copy, Debug)]
pub struct Compactor {
    config: CompactionConfig,
    /// What the arrival under way may still cost.
    left: Limits,
    /// What joining holes may cost, if it is due.
    due: Option<Limits>,
}

impl Compactor {
    /// Nothing is due.
    pub fn new(config: CompactionConfig) -> Compactor {
        Compactor { config, left: config.limits, due: None }
    }

    /// What the moves after one event may cost.
    pub fn limits(&self) -> Limits {
        self.config.limits
    }

    /// From now on by other rules; what is due stays due where anything is moved at all.
    pub fn reconfigure(&mut self, config: CompactionConfig) {
        let due = self.due.filter(|_| config.enabled).map(|_| config.limits);
        *self = Compactor { due, ..Compactor::new(config) };
    }

    /// A container asks for a place; `first` is what it would get. Whether room is to be made for it.
    pub fn wants_room(
        &mut self,
        ledger: &Ledger,
        request: &Request,
        first: &Result<Offer, Refusal>,
    ) -> bool {
        self.left = self.config.limits;
        let nodes = |offer: &Offer| ledger.pools().nodes_of(&offer.allocation().exclusive).len();
        let is_good = || first.as_ref().is_ok_and(|offer| nodes(offer) <= 1);
        self.config.enabled && request.demand.exclusive() > 0 && !is_good()
    }

    /// The fewest moves after which a request gets all of its CPUs in one NUMA node; none where that cannot be.
    pub fn plan_room(
        &mut self,
        ledger: &Ledger,
        movable: &BTreeMap<ContainerId, Request>,
        request: &Request,
    ) -> Vec<Relocation> {
        let wish = Wish { request: request.clone(), level: Level::NumaNode };
        let plan = plan_compaction(ledger, movable, Some(&wish), &self.left);
        let cost = plan.cost();
        self.left.moves_max = self.left.moves_max.saturating_sub(plan.moves.len());
        self.left.cpus_max = self.left.cpus_max.saturating_sub(cost.cpus);
        self.left.memory_max = self.left.memory_max.map(|left| left.saturating_sub(cost.memory));
        plan.moves
    }

    /// A container has a place since.
    pub fn has_come(&mut self, request: &Request) {
        if self.config.enabled && request.demand.exclusive() > 0 {
            self.due.get_or_insert(self.left);
        }
    }

    /// A container has given its place back.
    pub fn has_left(&mut self) {
        if self.config.enabled {
            self.due = Some(self.config.limits);
        }
    }

    /// Whether there is something to join, perhaps.
    pub fn is_due(&self) -> bool {
        self.due.is_some()
    }

    /// Moves that make the largest hole in a NUMA node larger, if that is due. It is no longer, whatever comes of them.
    pub fn plan_joining(
        &mut self,
        ledger: &Ledger,
        movable: &BTreeMap<ContainerId, Request>,
    ) -> Vec<Relocation> {
        let plan = self.due.take().map(|limits| plan_compaction(ledger, movable, None, &limits));
        plan.map(|plan| plan.moves).unwrap_or_default()
    }
}
