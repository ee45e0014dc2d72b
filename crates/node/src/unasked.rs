//! Containers that the runtime has made without asking, because the front end had no connection then, and that ask for exclusive CPUs. In: such containers, which a sync has found and
//! adopted as shared ones. Out: the place that each would have been given, where no other container changes its pool for it.
//!
//! With the proxy no container comes so: kubelet's calls wait for the daemon. With NRI the runtime goes on without its plugins. A container that finds no place goes on sharing, and is
//! looked at again after each sync. Containers that ran before this node's first sync, without a journal, stay where they run: they were there before Bayplan.

use std::cmp::Reverse;
use std::sync::Arc;

use bayplan_allocator::{ContainerId, Offer, Part, Request, offer};
use bayplan_types::CpuSet;
use bayplan_workload::NewContainer;
use bayplan_workload::annotations::Warning;
use jiff::Timestamp;

use crate::change::Change;
use crate::decision::{Decision, unread_requirement};
use crate::event::Step;
use crate::history::By;
use crate::state::NodeState;

impl NodeState {
    /// Whether containers that the runtime made without asking are placed.
    pub fn with_unasked_placed(mut self, is_placing: bool) -> NodeState {
        self.places_unasked = is_placing;
        self
    }

    pub(crate) fn set_unasked(&mut self, id: ContainerId, is_unasked: bool) {
        if let Some(container) = self.containers.get_mut(&id) {
            container.is_unasked = is_unasked;
        }
    }

    /// Notes whether a container that was just adopted waits for exclusive CPUs.
    pub(crate) fn note_unasked(&mut self, id: ContainerId, request: &Request) {
        let is_new = self.places_unasked && !self.known.is_partial();
        let has_choice = !request.is_reserved
            && !request.wishes.preserve.cpus
            && !request.wishes.has_no_choice()
            && request.part() == Part::Alone;
        let is_shared = self.ledger.allocation(id).is_some_and(|it| it.exclusive.is_empty());
        let is_unasked = is_new && has_choice && is_shared && request.demand.exclusive() > 0;
        self.set_unasked(id, is_unasked);
    }

    /// Gives those that wait the places that they can have; large requests first, then older containers.
    pub(crate) fn place_unasked(&mut self, now: Timestamp, step: &mut Step) {
        if !self.is_placing() || self.known.is_partial() {
            return;
        }
        let waiting = self.containers.iter().filter(|(_, it)| it.is_unasked && it.is_settled());
        let mut waiting: Vec<(Reverse<usize>, ContainerId)> = waiting
            .map(|(id, it)| (Reverse(self.request(*id, &it.spec).0.demand.exclusive()), *id))
            .collect();
        waiting.sort();
        for (_, id) in waiting {
            self.place_one_unasked(id, now, step);
        }
    }

    fn place_one_unasked(&mut self, id: ContainerId, now: Timestamp, step: &mut Step) {
        let Some(spec) = self.containers.get(&id).map(|it| Arc::clone(&it.spec)) else { return };
        let Some(held) = self.ledger.lift(id) else { return };
        let before = self.place_before(id, &held);
        let demand = self.request(id, &spec).0.demand;
        let is_waiting = held.exclusive.is_empty() && demand.exclusive() > 0;
        let decision = match is_waiting {
            true => self.take_unasked(id, &spec, now, step),
            false => None,
        };
        let Some(decision) = decision else {
            self.put_back(id, held, step);
            // A resize has changed what it asks for, or has given it CPUs.
            self.set_unasked(id, is_waiting);
            return;
        };
        self.known.note_grant(id);
        self.remember_home(id);
        let why = format!("found running although it was not asked about; {}", decision.outcome);
        if let Some(container) = self.containers.get_mut(&id) {
            container.decision = decision;
            container.decision.outcome.clone_from(&why);
            container.is_unasked = false;
            container.touched = self.steps;
        }
        self.emit(Change::PlacedAnew { id, by: By::Unasked, before, why }, step);
    }

    /// Gives it its place, which is in a group where it belongs to one; `None`: it has none, and nothing has changed.
    fn take_unasked(
        &mut self,
        id: ContainerId,
        spec: &NewContainer,
        now: Timestamp,
        step: &mut Step,
    ) -> Option<Decision> {
        // A group without room was told of when the container was found.
        let fitted = self.fit_newcomer(id, spec, &CpuSet::new()).ok()?;
        let (request, mut warnings) = self.request(id, spec);
        let offered = match fitted.as_ref().is_some_and(|it| it.has_moves()) {
            true => None,
            false => self.offer_unasked(request, spec, &mut warnings, now),
        };
        let decision = offered
            .as_ref()
            .map(|(request, offer)| self.decision(spec, request, Ok(offer), warnings, now));
        let is_committed = offered.is_some_and(|(_, offer)| self.ledger.commit(offer).is_ok());
        let decision = decision.filter(|_| is_committed);
        if let Some(fitted) = fitted {
            match decision.is_some() {
                true => self.keep_fitted(fitted, id, step),
                false => self.undo_fitted(fitted),
            }
        }
        decision
    }

    /// What its creation would have been offered, by the same rules, where no other container changes its pool.
    fn offer_unasked(
        &self,
        mut request: Request,
        spec: &NewContainer,
        warnings: &mut Vec<Warning>,
        now: Timestamp,
    ) -> Option<(Request, Offer)> {
        let barred =
            unread_requirement(warnings).or_else(|| self.claim_refused(spec, &request, now));
        if barred.is_some() {
            return None;
        }
        loop {
            let offered = offer(&self.ledger, &request).ok()?;
            if !offered.moves().is_empty() {
                return None;
            }
            match self.over(&request, spec, offered.allocation()) {
                Some(why) => request = self.with_usual_siblings(&request, &why, warnings)?,
                None => return Some((request, offered)),
            }
        }
    }
}
