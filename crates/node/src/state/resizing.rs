//! Resizes: kubelet changes the resources of a container that runs. What is refused is in `refused.rs`.

use std::sync::Arc;

use bayplan_allocator::{Allocation, ContainerId, Previous, offer};
use bayplan_types::{CpuSet, Pinning};
use bayplan_workload::silent::says_memory;
use bayplan_workload::{Admission, NewContainer, Resources, updated_resources};
use jiff::Timestamp;

use crate::container::AskedResize;
use crate::decision::{Decision, render_asked};
use crate::event::{Answer, Note, Step};
use crate::state::NodeState;

impl NodeState {
    /// Places the container anew for its new resources, keeping what it can of the old place; on refusal everything stays. Its group grows before, and shrinks
    /// after it.
    pub(super) fn resize(
        &mut self,
        runtime_id: &str,
        update: Resources,
        is_final: bool,
        now: Timestamp,
    ) -> Step {
        let known = self.by_runtime_id.get(runtime_id).copied();
        let member = known.and_then(|id| Some((id, Arc::clone(&self.containers.get(&id)?.spec))));
        let Some((id, before)) = member.filter(|(id, _)| self.groups.members.contains_key(id))
        else {
            return self.resize_one(runtime_id, update, is_final, now);
        };
        let mut spec = NewContainer::clone(&before);
        spec.resources = self.updated_resources(&before, update);
        let fitted = match self.fit_resized(id, &spec) {
            Ok(fitted) => fitted,
            Err(why) => {
                let step = Step::new(Answer::Admission(Admission::PassThrough));
                let (request, warnings) = self.request(id, &spec);
                let why = format!("refused: {why}");
                let decision = Decision::refused(render_asked(&request), why, warnings, now);
                if !is_final {
                    let why = self.without_names(&decision.outcome, &spec);
                    return Step { answer: Answer::Admission(Admission::Refuse(why)), ..step };
                }
                return self.refuse_resize(id, &spec, decision, update, step);
            }
        };
        let mut step = self.resize_one(runtime_id, update, is_final, now);
        let is_made =
            self.containers.get(&id).is_some_and(|it| it.spec.resources == spec.resources);
        match fitted {
            Some(fitted) if is_made => {
                self.keep_fitted(fitted, id, &mut step);
                self.shrink_with(id, &mut step);
            }
            Some(fitted) => self.undo_fitted(fitted),
            None => {}
        }
        step
    }

    /// The group of a member that was resized gives up what it needs no more, so the answer names the CPUs that are left.
    fn shrink_with(&mut self, id: ContainerId, step: &mut Step) {
        let group = self.groups.members.get(&id).map(|it| it.group);
        let Some(group) = group.filter(|_| !self.known.is_partial()) else { return };
        self.settle_group(group, step);
        let is_placed = matches!(step.answer, Answer::Admission(Admission::Place(_)));
        if let Some(told) = self.pinning(id).filter(|_| is_placed) {
            if let Some(container) = self.containers.get_mut(&id) {
                container.update = Some(told.clone());
            }
            step.answer = Answer::Admission(Admission::Place(told));
        }
    }

    fn updated_resources(&self, spec: &NewContainer, update: Resources) -> Resources {
        updated_resources(spec, update, &self.rules, self.ledger.pools().memory())
    }

    /// The uid of the container's pod, if this update changes its resources: what kubelet tells of the pod from now on knows of it.
    pub(super) fn resize_asked(
        &mut self,
        runtime_id: &str,
        update: Resources,
        now: Timestamp,
    ) -> Option<String> {
        let id = self.by_runtime_id.get(runtime_id)?;
        let spec = Arc::clone(&self.containers.get(id)?.spec);
        let changes = self.updated_resources(&spec, update) != spec.resources;
        let uid = Some(spec.pod.uid.clone()).filter(|uid| changes && !uid.is_empty());
        let container = self.containers.get_mut(id)?;
        container.asked = uid.is_some().then_some(AskedResize { at: now, is_told: false });
        uid
    }

    fn resize_one(
        &mut self,
        runtime_id: &str,
        update: Resources,
        is_final: bool,
        now: Timestamp,
    ) -> Step {
        let mut step = Step::new(Answer::Admission(Admission::PassThrough));
        let Some(id) = self.by_runtime_id.get(runtime_id).copied() else { return step };
        let Some(container) = self.containers.get(&id) else { return step };
        let mut spec = NewContainer::clone(&container.spec);
        spec.resources = self.updated_resources(&container.spec, update);
        spec.says_memory = says_memory(&container.spec, spec.resources, container.pod_before);
        if !container.asked.is_some_and(|it| it.is_told) {
            mark_facts(&mut spec, container.spec.resources);
        }
        if spec.resources == container.spec.resources {
            self.refusals_over(id, "is taken back", &mut step);
        } else if self.is_together(id, &spec) {
            let (is_made, resized) = self.resize_together(id, spec, update, is_final, now);
            step = resized;
            if !is_made {
                return step;
            }
            self.refusals_over(id, "is made", &mut step);
        } else {
            let Some(held) = self.ledger.lift(id) else { return step };
            let before = self.place_before(id, &held);
            let (mut request, warnings) = self.request(id, &spec);
            // In a group it takes nothing from others.
            if held.exclusive.is_empty() && request.part().group().is_none() {
                request = self.as_sharer(request);
            }
            request.previous =
                Some(Previous { pool: held.pool, exclusive: held.exclusive.clone() });
            let offered = offer(&self.ledger, &request);
            let mut decision = self.decision(&spec, &request, offered.as_ref(), warnings, now);
            let place = offered.as_ref().ok().map(|it| it.allocation());
            let over = place.and_then(|it| self.over(&request, &spec, it));
            if let Some(why) = &over {
                decision.outcome = format!("refused: it keeps CPUs from others, and {why}");
            }
            let offered = offered.ok().filter(|_| over.is_none());
            let committed = offered.and_then(|offer| {
                let moves = offer.moves().to_vec();
                self.ledger.commit(offer).ok().map(|()| moves)
            });
            let Some(moves) = committed else {
                self.put_back(id, held, &mut step);
                if !is_final {
                    let why = self.without_names(&decision.outcome, &spec);
                    step.answer = Answer::Admission(Admission::Refuse(why));
                    return step;
                }
                return self.refuse_resize(id, &spec, decision, update, step);
            };
            self.known.note_grant(id);
            self.refusals_over(id, "is made", &mut step);
            self.note_moves(&moves, id, &mut step);
            if let Some(container) = self.containers.get_mut(&id) {
                container.spec = Arc::new(spec);
                container.decision = decision;
                // For other resources.
                container.elsewhere = None;
                container.touched = self.steps;
            }
            self.remember_home(id);
            step.records.extend(self.placed_record(id));
            step.notes.extend(self.placed_note(id));
            step.history.extend(self.resizing(id, before, update));
        }
        step.answers_after_plan = true;
        let told = self.pinning(id);
        if let Some(container) = self.containers.get_mut(&id) {
            container.update = told.clone();
            container.asked = None;
        }
        step.answer = Answer::Admission(told.map_or(Admission::PassThrough, Admission::Place));
        step
    }

    /// Kubelet's own update carried the pinning of the moment in which it was asked about. If that has changed since, the update may
    /// have undone what was written meanwhile.
    pub(super) fn resized(&mut self, runtime_id: &str, is_answered: bool) -> Step {
        let mut step = Step::new(Answer::Done);
        let Some(id) = self.by_runtime_id.get(runtime_id).copied() else { return step };
        let carried = self.containers.get_mut(&id).and_then(|container| container.update.take());
        if carried != self.pinning(id) || !is_answered {
            self.observed.insert(runtime_id.to_owned(), Pinning::default());
            step.answers_after_plan = true;
        }
        step
    }

    /// A container without any place would run unaccounted for, so one that has lost its place shares.
    pub(crate) fn put_back(&mut self, id: ContainerId, held: Allocation, step: &mut Step) {
        let mems = held.mems.clone();
        let Err(error) = self.ledger.adopt(id, held) else { return };
        let message = format!("{id} cannot have the place back that it had, and shares: {error}");
        step.notes.push(Note::Failure { kind: "put_back", message });
        let Some(spec) = self.containers.get(&id).map(|it| Arc::clone(&it.spec)) else { return };
        let (request, _) = self.request(id, &spec);
        if self.adopt_shared(&request, mems, &CpuSet::new(), step) {
            step.records.extend(self.placed_record(id));
        }
    }
}

/// What kubelet told when it had `before` is older than its resources now, if these are others.
fn mark_facts(spec: &mut NewContainer, before: Resources) {
    let has_changed = spec.resources != before;
    if let Some(facts) = spec.facts.as_mut().filter(|_| has_changed) {
        facts.is_older = true;
    }
}
