//! A container that is to be created: it is placed before it exists, or refused.

use std::sync::Arc;

use bayplan_allocator::{Allocation, ContainerId, Move, Pools, Request};
use bayplan_types::CpuSet;
use bayplan_workload::annotations::WarningKind;
use bayplan_workload::mates::has_ended_mates;
use bayplan_workload::{Admission, NewContainer, Ticket};
use jiff::Timestamp;

use super::NodeState;
use crate::change::{Change, Moved, What};
use crate::cold_start::Cold;
use crate::container::{Container, Phase, full_name, warning_notes};
use crate::decision::{
    Decision, render_asked, render_lacking, render_unused_kinds, unread_requirement,
};
use crate::event::{Answer, Note, Step};
use crate::history::By;

/// What of the memory that was asked for is not given.
fn memory_notes(pools: &Pools, name: &str, request: &Request, held: &Allocation) -> Vec<Note> {
    let lacking = render_lacking(request, held).map(|text| ("huge_pages", text));
    let unused = render_unused_kinds(pools, request, held);
    let unused = unused.map(|text| (WarningKind::NoEffect.name(), text));
    let texts = lacking.into_iter().chain(unused);
    texts.map(|(kind, text)| Note::Failure { kind, message: format!("{name}: {text}") }).collect()
}

impl NodeState {
    /// The same container, if its creation is under way or in doubt.
    pub(super) fn in_creation(&self, spec: &NewContainer) -> Option<ContainerId> {
        let mut containers = self.containers.iter();
        let found = containers.find(|(_, container)| {
            container.runtime_id.is_none()
                && container.is(&spec.pod.id, &spec.name, spec.attempt)
                && container.spec.resources == spec.resources
        });
        found.map(|(id, _)| *id)
    }

    pub(super) fn admit(
        &mut self,
        ticket: Ticket,
        mut spec: NewContainer,
        is_final: bool,
        now: Timestamp,
    ) -> Step {
        if let Some(id) = self.in_creation(&spec) {
            return self.admit_again(ticket, id, spec.due_id);
        }
        if !is_final && self.has_ended_mates(&spec) {
            return Step::new(Answer::AskFirst);
        }
        let mut step = Step::new(Answer::Done);
        self.release_earlier(&spec, now, &mut step);
        let id = self.containers.take_id();
        let way = self.make_way(id, &mut spec, now, &mut step);
        let fitted = match self.fit_newcomer(id, &spec, &CpuSet::new()) {
            Ok(fitted) => fitted,
            Err(why) => {
                self.undo(way, &mut step);
                return self.refuse_ungrouped(step, id, &spec, why, is_final, now);
            }
        };
        let admitted = self.admit_new(ticket, id, spec, is_final, now);
        match (self.containers.contains(&id), fitted) {
            (true, fitted) => {
                // Others of its pod may have made room for it after that once more.
                NodeState::keep(way, &mut step);
                step.append(admitted);
                fitted.into_iter().for_each(|it| self.keep_fitted(it, id, &mut step));
            }
            (false, fitted) => {
                step.append(admitted);
                fitted.into_iter().for_each(|it| self.undo_fitted(it));
                self.undo(way, &mut step);
            }
        }
        step
    }

    /// No group can take it.
    pub(super) fn refuse_ungrouped(
        &mut self,
        step: Step,
        id: ContainerId,
        spec: &NewContainer,
        why: String,
        is_final: bool,
        now: Timestamp,
    ) -> Step {
        let (request, warnings) = self.request(id, spec);
        let decision =
            Decision::refused(render_asked(&request), format!("refused: {why}"), warnings, now);
        self.refuse_unasked(step, spec, decision, is_final)
    }

    /// Places one that has not been here before.
    pub(super) fn admit_new(
        &mut self,
        ticket: Ticket,
        id: ContainerId,
        spec: NewContainer,
        is_final: bool,
        now: Timestamp,
    ) -> Step {
        let mut step = Step::new(Answer::Done);
        let (request, mut warnings) = self.request(id, &spec);
        let (request, cold) = self.as_cold(request, &spec, &mut warnings, now);
        let asked = render_asked(&request);
        let barred =
            unread_requirement(&warnings).or_else(|| self.claim_refused(&spec, &request, now));
        let allowed = barred.map_or_else(|| self.as_mode_allows(request), Err);
        let bounded = allowed.and_then(|(request, is_drained)| {
            let bounded = self.offer_bounded(request, &spec, is_final, &mut warnings, &mut step);
            bounded.map(|(request, offered)| (request, offered, is_drained))
        });
        let notes = warning_notes(&spec, &warnings);
        let (request, offered, is_drained) = match bounded {
            Ok(bounded) => bounded,
            Err(why) => {
                step.notes.extend(notes.into_iter().filter(|_| is_final));
                let decision = Decision::refused(asked, why, warnings, now);
                return self.refuse_unasked(step, &spec, decision, is_final);
            }
        };
        let mut decision = self.decision(&spec, &request, offered.as_ref(), warnings, now);
        if is_drained && offered.is_ok() {
            decision.note_drained();
        }
        if offered.is_err() && !is_final {
            let why = self.without_names(&decision.outcome, &spec);
            step.answer = Answer::Admission(Admission::Refuse(why));
            return step;
        }
        step.notes.extend(notes);
        let name = full_name(&spec);
        let (request, offer, decision) = match offered {
            Ok(offer) => (request, offer, decision),
            Err(_) => match self.share_instead(&name, &request, &decision, &mut step) {
                Some(shared) => shared,
                None => {
                    return self.refuse(step, &spec, decision, None);
                }
            },
        };
        step.notes.extend(memory_notes(self.ledger.pools(), &name, &request, offer.allocation()));
        let moves = offer.moves().to_vec();
        self.known.note_grant(id);
        if let Err(stale) = self.ledger.commit(offer) {
            step.fail("stale_offer", stale.to_string());
            step.answer = Answer::Admission(Admission::PassThrough);
            return step;
        }
        self.compactor.has_come(&request);
        self.insert(id, spec, None, Phase::Creating, decision);
        self.begin_cold(id, cold);
        self.emit(Change::Placed(id), &mut step);
        self.note_moves(&moves, id, &mut step);
        self.tell(ticket, id, &mut step);
        step
    }

    /// CPUs of a container that has ended, as of an init container, wait to be used by this one of its pod.
    pub(super) fn has_ended_mates(&self, spec: &NewContainer) -> bool {
        let of_pod = self.containers.iter().filter(|(_, container)| {
            container.spec.pod.is(&spec.pod) && container.spec.name != spec.name
        });
        let owns = |id: &ContainerId| {
            self.ledger.allocation(*id).is_some_and(|it| !it.exclusive.is_empty())
        };
        of_pod.clone().any(|(id, _)| owns(id))
            && has_ended_mates(spec, of_pod.map(|(_, container)| &*container.spec))
    }

    /// Sharers that made room for `owner`.
    pub(crate) fn note_moves(&mut self, moves: &[Move], owner: ContainerId, step: &mut Step) {
        let of_group =
            || self.groups.instances.get(&owner).map(|it| format!("the group {}", it.name()));
        let owner = self.containers.get(&owner).map(Container::full_name).or_else(of_group);
        let owner = owner.unwrap_or_default();
        for made in moves {
            let id = made.container;
            let Some(held) = self.ledger.allocation(id) else { continue };
            let pools = self.ledger.pools();
            let name = |pool| pools.get(pool).map_or("?", |pool| pool.name.as_str()).to_owned();
            let moved = Moved {
                id,
                by: By::Room,
                // Only its pool was another before.
                before: self.place_before(id, &Allocation { pool: made.from, ..held.clone() }),
                what: What::Pool,
                from: name(made.from),
                to: name(made.to),
                why: format!("to make room for {owner}"),
            };
            self.remember_home(id);
            self.emit(Change::Moved(moved), step);
        }
    }

    /// Kubelet makes a new attempt only after the one before has ended, of which there need not have been an event.
    pub(crate) fn release_earlier(&mut self, spec: &NewContainer, now: Timestamp, step: &mut Step) {
        let earlier = self.containers.iter().filter(|(_, container)| {
            container.spec.pod.id == spec.pod.id
                && container.spec.name == spec.name
                && container.spec.attempt < spec.attempt
        });
        let earlier: Vec<ContainerId> = earlier.map(|(id, _)| *id).collect();
        for id in earlier {
            self.release(id, "a new attempt replaces it", now, step);
        }
    }

    /// Kubelet asks again for a container with a first creation that has not ended, or ended in doubt.
    pub(super) fn admit_again(
        &mut self,
        ticket: Ticket,
        id: ContainerId,
        due_id: Option<String>,
    ) -> Step {
        if let Some(container) = self.containers.get_mut(&id) {
            if container.spec.due_id != due_id {
                Arc::make_mut(&mut container.spec).due_id = due_id;
            }
            container.has_doubt = true;
            container.phase = Phase::Creating;
            container.touched = self.steps;
        }
        let mut step = Step::new(Answer::Done);
        self.tell(ticket, id, &mut step);
        step
    }

    /// Answers a creation once the others have let go, which for a retry may still be under way.
    pub(super) fn tell(&mut self, ticket: Ticket, id: ContainerId, step: &mut Step) {
        let told = self.pinning(id);
        self.containers.begin_creation(ticket, id, told.clone().unwrap_or_default());
        step.answer = Answer::Admission(told.map_or(Admission::PassThrough, Admission::Place));
        step.answers_after_plan = true;
    }

    pub(crate) fn insert(
        &mut self,
        id: ContainerId,
        mut spec: NewContainer,
        runtime_id: Option<String>,
        phase: Phase,
        decision: Decision,
    ) {
        let claim = self.claim_of(id, &spec);
        spec.keeps_chosen = !claim.cpus.is_empty();
        let container = Container {
            pod: spec.pod.owner().pod,
            spec: Arc::new(spec),
            runtime_id,
            phase,
            decision,
            home: String::new(),
            has_doubt: false,
            doubted_at: None,
            asked: None,
            update: None,
            undo: None,
            refused: None,
            // What it was told before us is not known.
            is_rewritten: phase == Phase::Created,
            touched: self.steps,
            cold: Cold::No,
            claim,
            elsewhere: None,
            was_silent: false,
            annotated: None,
            pod_before: None,
            is_unasked: false,
        };
        self.containers.insert(id, container);
        self.remember_home(id);
    }

    /// Its home is the pool that it is in now.
    pub(crate) fn remember_home(&mut self, id: ContainerId) {
        let Some(allocation) = self.ledger.allocation(id) else { return };
        let home = self.ledger.pools().lasting_name(allocation.pool).unwrap_or_default();
        if let Some(container) = self.containers.get_mut(&id) {
            container.home = home.to_owned();
        }
    }
}
