//! Moves containers within what the configuration allows per event. In: the ledger, everybody's requests. Out: the ledger after the
//! moves, and what those held before who were touched.

use std::collections::BTreeMap;

use bayplan_allocator::{
    Allocation, Compaction, ContainerId, Ledger, Limits, Request, Wish, plan_compaction,
};
use bayplan_daemon::config::CompactionConfig;
use bayplan_topology::Level;

/// Who was touched by an event, and what he held before it.
pub(crate) type Touched = BTreeMap<ContainerId, Allocation>;

/// Everybody who runs, and how much may be moved.
#[derive(Debug)]
pub(crate) struct Compactor {
    config: CompactionConfig,
    requests: BTreeMap<ContainerId, Request>,
    /// What this event may still cost.
    left: Limits,
}

impl Compactor {
    pub(crate) fn new(config: CompactionConfig) -> Compactor {
        Compactor { config, requests: BTreeMap::new(), left: config.limits }
    }

    /// A new event has the whole budget.
    pub(crate) fn begin(&mut self) {
        self.left = self.config.limits;
    }

    /// It runs from now on.
    pub(crate) fn enter(&mut self, request: Request) {
        self.requests.insert(request.id, request);
    }

    /// It is gone.
    pub(crate) fn leave(&mut self, id: ContainerId) {
        self.requests.remove(&id);
    }

    /// Makes room in one NUMA node for somebody who was offered CPUs in several, or none; true if there is room now.
    pub(crate) fn make_room(
        &mut self,
        ledger: &mut Ledger,
        request: &Request,
        touched: &mut Touched,
    ) -> bool {
        let wish = Wish { request: request.clone(), level: Level::NumaNode };
        request.demand.exclusive() > 0 && self.compact(ledger, Some(&wish), touched)
    }

    /// Joins holes.
    pub(crate) fn join_holes(&mut self, ledger: &mut Ledger, touched: &mut Touched) {
        self.compact(ledger, None, touched);
    }

    fn compact(&mut self, ledger: &mut Ledger, wish: Option<&Wish>, touched: &mut Touched) -> bool {
        if !self.config.enabled {
            return false;
        }
        let plan = plan_compaction(ledger, &self.requests, wish, &self.left);
        let sharers = plan.moves.iter().flat_map(|made| &made.sharers).map(|made| made.container);
        let containers: Vec<ContainerId> =
            plan.moves.iter().map(|made| made.container).chain(sharers).collect();
        let before =
            containers.iter().filter_map(|id| Some((*id, ledger.allocation(*id)?.clone())));
        let before: Touched = before.collect();
        if plan.moves.is_empty() || ledger.relocate(&plan.moves).is_err() {
            return false;
        }
        self.spend(&plan);
        for (id, allocation) in before {
            touched.entry(id).or_insert(allocation);
        }
        true
    }

    fn spend(&mut self, plan: &Compaction) {
        let cost = plan.cost();
        self.left.moves_max = self.left.moves_max.saturating_sub(plan.moves.len());
        self.left.cpus_max = self.left.cpus_max.saturating_sub(cost.cpus);
        self.left.memory_max = self.left.memory_max.map(|left| left.saturating_sub(cost.memory));
    }
}
