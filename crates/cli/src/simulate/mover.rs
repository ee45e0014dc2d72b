//! Makes the moves that [`Compactor`] wants, as the daemon does, only at once. In: the ledger, the requests of all containers. Out: the ledger after
//! the moves, and what the containers that were touched held before.

use std::collections::BTreeMap;

use bayplan_allocator::{
    Allocation, ContainerId, Ledger, Offer, Refusal, Relocation, Request, offer,
};
use bayplan_node::compactor::Compactor;
use bayplan_node::settings::CompactionConfig;

/// Containers that were touched by an event, and what they held before it.
pub(crate) type Touched = BTreeMap<ContainerId, Allocation>;

/// All containers that run, and how much may be moved.
#[derive(Debug)]
pub(crate) struct Mover {
    compactor: Compactor,
    requests: BTreeMap<ContainerId, Request>,
}

impl Mover {
    pub(crate) fn new(config: CompactionConfig) -> Mover {
        Mover { compactor: Compactor::new(config), requests: BTreeMap::new() }
    }

    /// The best offer; one in a single NUMA node where moves make room for it.
    pub(crate) fn offer(
        &mut self,
        ledger: &mut Ledger,
        request: &Request,
        touched: &mut Touched,
    ) -> Result<Offer, Refusal> {
        let first = offer(ledger, request);
        if !self.compactor.wants_room(ledger, request, &first) {
            return first;
        }
        let moves = self.compactor.plan_room(ledger, &self.requests, request);
        if moves.is_empty() {
            return first;
        }
        relocate(ledger, &moves, touched);
        offer(ledger, request)
    }

    /// It runs from now on.
    pub(crate) fn enter(&mut self, request: Request, ledger: &mut Ledger, touched: &mut Touched) {
        self.compactor.has_come(&request);
        self.requests.insert(request.id, request);
        self.join_holes(ledger, touched);
    }

    /// It is gone.
    pub(crate) fn leave(&mut self, id: ContainerId, ledger: &mut Ledger, touched: &mut Touched) {
        self.compactor.has_left();
        self.requests.remove(&id);
        self.join_holes(ledger, touched);
    }

    fn join_holes(&mut self, ledger: &mut Ledger, touched: &mut Touched) {
        let moves = self.compactor.plan_joining(ledger, &self.requests);
        relocate(ledger, &moves, touched);
    }
}

/// A plan that does not fit its ledger moves nothing.
fn relocate(ledger: &mut Ledger, moves: &[Relocation], touched: &mut Touched) {
    let sharers = moves.iter().flat_map(|made| &made.sharers).map(|made| made.container);
    let containers = moves.iter().map(|made| made.container).chain(sharers);
    let before = containers.filter_map(|id| Some((id, ledger.allocation(id)?.clone())));
    let before: Vec<(ContainerId, Allocation)> = before.collect();
    if ledger.relocate(moves).is_ok() {
        for (id, allocation) in before {
            touched.entry(id).or_insert(allocation);
        }
    }
}
