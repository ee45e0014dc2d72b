//! Exclusive CPUs that containers of a pod have together ([`Part`]). In: a ledger, and a request of one that is to join. Out: an offer on
//! the CPUs of its pod, and a holder for as long as one of them is there.

use crate::allocation::Allocation;
use crate::id::ContainerId;
use crate::ledger::Ledger;
use crate::memory::Memory;
use crate::offer::{Offer, Refusal};
use crate::request::Request;
use crate::wishes::{Owner, Part};

impl Ledger {
    /// The container that holds the exclusive CPUs of a pod, with what it holds.
    pub fn holder_of(&self, owner: Owner) -> Option<(ContainerId, &Allocation)> {
        self.allocations().find(|(_, it)| is_holder(it) && it.terms.owner == owner)
    }

    /// Those that run on the exclusive CPUs of a pod without holding them, the oldest first.
    pub fn joined_of(&self, owner: Owner) -> impl Iterator<Item = ContainerId> {
        let of_pod = self.allocations().filter(move |(_, it)| it.terms.owner == owner);
        of_pod.filter(|(_, it)| it.terms.part == Part::Joined).map(|(id, _)| id)
    }

    /// Whether the CPUs of a container are its pod's (true), or its own; nothing moves.
    pub fn set_holder(&mut self, id: ContainerId, is_holder: bool) {
        let Some(held) = self.holdings.allocations.get_mut(&id) else { return };
        held.terms.part = if is_holder { Part::Holder } else { Part::Alone };
        self.changed();
    }

    pub(crate) fn heir_of(&self, id: ContainerId) -> Option<ContainerId> {
        let held = self.allocation(id)?;
        is_holder(held).then(|| self.joined_of(held.terms.owner).next()).flatten()
    }

    /// The CPUs stay those of the pod; the memory of the one that goes is given back.
    pub(crate) fn bequeath(&mut self, id: ContainerId, heir: ContainerId) -> Option<Allocation> {
        let left = self.holdings.allocations.remove(&id)?;
        self.holdings.charged.remove(&self.pools, &left);
        if let Some(held) = self.holdings.allocations.get_mut(&heir) {
            held.pool = left.pool;
            held.exclusive = left.exclusive.clone();
            held.idle = left.idle.clone();
            // What the pool is charged for it stays charged.
            held.shared = left.shared;
            held.is_reserved = left.is_reserved;
            held.terms.part = Part::Holder;
            held.terms.closes = left.terms.closes;
            held.terms.hides_hyperthreads = left.terms.hides_hyperthreads;
            held.terms.is_place_bound = left.terms.is_place_bound;
        }
        self.changed();
        Some(left)
    }
}

/// One that found no room for its pod's CPUs, and shares, holds nothing for the others.
fn is_holder(held: &Allocation) -> bool {
    held.terms.part == Part::Holder && !held.exclusive.is_empty()
}

/// A place on the exclusive CPUs of its pod; `None` where the pod has none.
pub(crate) fn offer_beside(ledger: &Ledger, request: &Request) -> Option<Result<Offer, Refusal>> {
    if request.wishes.pod.part != Part::Joined {
        return None;
    }
    let (_, holder) = ledger.holder_of(request.owner)?;
    let mut terms = request.terms();
    terms.part = Part::Joined;
    let held = Allocation { mems: holder.mems.clone(), terms, ..Allocation::new(holder.pool) };
    let has_memory = request.memory.0 > 0 || !request.huge_pages.is_empty();
    if !has_memory {
        return Some(Ok(Offer::new(ledger.version(), request.id, held)));
    }
    let memory = Memory::new(ledger.pools(), ledger.charged(), request);
    Some(match memory.grant_near(holder) {
        Ok(grant) => Ok(Offer::new(ledger.version(), request.id, grant.give_to(held))),
        Err(rejection) => Err(Refusal::of(holder.pool, rejection)),
    })
}
