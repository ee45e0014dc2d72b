//! Moves containers that own CPUs so that free CPUs lie together. In: the state, what the configuration allows. Out: moves in the ledger, and
//! steps that tell of them.
//!
//! When and how much is `compactor.rs`; this is what the daemon adds:
//!
//! 1. Joining holes waits for the next sync, so no call of kubelet waits for it, not even the one that made it due; and for a sync
//!    that finds the node at rest: no container is being created, placed in doubt or updated by kubelet, and each is where it should be.
//! 2. Room for a request is made before its answer; for one that would be refused, when that would be the last word. That does not wait for others
//!    that are being created, but does not move them either.
//!
//! Moved is only a container that is known to be where the ledger has it. Never moved are: containers that ask for that (`immovable`), those that
//! have CPUs or memory left alone (`preserve`), those on reserved CPUs, those that are being created or in doubt, and those that are being updated by
//! kubelet.

use std::collections::BTreeMap;

use bayplan_allocator::{
    Allocation, ContainerId, Demand, Offer, Part, Refusal, Relocation, Request, offer,
};
use bayplan_rebalance::Knob;
use bayplan_types::Bytes;

use crate::change::{Change, Moved, What};
use crate::compactor::Compactor;
use crate::container::Container;
use crate::event::Step;
use crate::history::By;
use crate::record::Record;
use crate::settings::CompactionConfig;
use crate::state::NodeState;

impl NodeState {
    /// Containers are moved as far as this allows.
    pub fn with_compaction(mut self, config: CompactionConfig) -> NodeState {
        self.compactor = Compactor::new(config);
        self
    }

    /// What is due is done by the next sync that finds the node at rest, so one is asked for when a container has left or a creation has ended.
    pub(crate) fn note_holes(&mut self, step: &mut Step, is_creation_over: bool) {
        let has_left = step.records.iter().any(|record| matches!(record, Record::Released { .. }));
        if has_left {
            self.compactor.has_left();
        }
        let is_due = self.is_placing() && self.compactor.is_due();
        step.sync_soon |= is_due && (has_left || is_creation_over);
    }

    /// Makes the largest hole in a NUMA node larger, if that is due.
    pub(crate) fn join_holes(&mut self, step: &mut Step) {
        if self.is_placing() && self.compactor.is_due() && self.is_at_rest() {
            let mut movable = self.movable();
            // Not back to where it was sent away from.
            movable.retain(|id, _| self.turned.step(Knob::MoveOwner, *id) == 0);
            let moves = self.compactor.plan_joining(&self.ledger, &movable);
            self.relocate(&moves, By::Compaction, "so that free CPUs lie together", step);
        }
    }

    /// The best offer; one in a single NUMA node where moves make room for it. `is_final`: a refusal would be the last word.
    pub(crate) fn offer_with_room(
        &mut self,
        request: &Request,
        name: &str,
        is_final: bool,
        step: &mut Step,
    ) -> Result<Offer, Refusal> {
        let first = offer(&self.ledger, request);
        let may_wait = first.is_err() && !is_final;
        if !self.compactor.wants_room(&self.ledger, request, &first) || may_wait {
            return first;
        }
        let moves = self.compactor.plan_room(&self.ledger, &self.movable(), request);
        if moves.is_empty() {
            return first;
        }
        self.relocate(&moves, By::Room, &format!("to make room for {name}"), step);
        offer(&self.ledger, request)
    }

    pub(crate) fn relocate(&mut self, moves: &[Relocation], by: By, why: &str, step: &mut Step) {
        if let Err(error) = self.ledger.relocate(moves) {
            step.fail("not_moved", error.to_string());
            return;
        }
        for made in moves {
            self.note_relocation(made, by, why, step);
        }
    }

    /// In the order of the moves, so that the beginning of their records is a ledger, too.
    fn note_relocation(&mut self, made: &Relocation, by: By, why: &str, step: &mut Step) {
        self.note_moves(&made.sharers, made.container, step);
        self.remember_home(made.container);
        let Some(container) = self.containers.get_mut(&made.container) else { return };
        container.touched = self.steps;
        let mut cost = format!("{} CPUs change", made.cost.cpus);
        if made.cost.memory > Bytes::ZERO {
            cost.push_str(&format!(", memory {} follows", made.cost.memory));
        }
        let moved = Moved {
            id: made.container,
            by,
            before: self.place_before(made.container, &made.from),
            what: What::Cpus,
            from: made.from.exclusive.to_string(),
            to: made.to.exclusive.to_string(),
            why: format!("{why} ({cost})"),
        };
        self.emit(Change::Moved(moved), step);
    }

    /// Nothing is under way, as far as is known.
    pub(crate) fn is_at_rest(&self) -> bool {
        let is_settled = |it: &Container| it.is_settled();
        self.containers.values().all(is_settled) && self.are_all_in_place()
    }

    /// Containers that may be moved, with what they ask for.
    fn movable(&self) -> BTreeMap<ContainerId, Request> {
        let held = self.ledger.allocations();
        let movable = held.filter_map(|(id, held)| {
            let container = self.containers.get(&id).filter(|it| self.may_move(id, it, held))?;
            // Of sharers only that they may be moved is of interest.
            let request = match held.exclusive.is_empty() {
                true => Request::new(id, Demand::new(0, held.shared)),
                false => self.request(id, &container.spec).0,
            };
            Some((id, request))
        });
        movable.collect()
    }

    /// What an exclusive container asks for, if it may be moved.
    pub(crate) fn movable_one(&self, id: ContainerId) -> Option<Request> {
        let (held, container) = (self.ledger.allocation(id)?, self.containers.get(&id)?);
        let is_owner = !held.exclusive.is_empty() && held.shared.is_none();
        (is_owner && self.may_move(id, container, held))
            .then(|| self.request(id, &container.spec).0)
    }

    fn may_move(&self, id: ContainerId, container: &Container, held: &Allocation) -> bool {
        let terms = &held.terms;
        let is_free = terms.part.group().is_none()
            && !terms.is_immovable
            && !terms.preserve.cpus
            && !terms.preserve.memory;
        let is_in_place = || {
            let observed = container.runtime_id.as_ref().and_then(|it| self.told.get(it));
            observed.is_some_and(|it| Some(&it.cpus) == self.pinning(id).map(|it| it.cpus).as_ref())
        };
        // The memory of others that run on its CPUs would stay behind.
        let is_followed =
            terms.part == Part::Holder && self.ledger.joined_of(terms.owner).next().is_some();
        is_free && !is_followed && !held.is_reserved && container.is_settled() && is_in_place()
    }
}
