//! Resizes: kubelet changes the resources of a container that runs. What is refused is in `refused.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use bayplan_allocator::{Allocation, ContainerId, Ledger, Previous, Request, offer, spare_cpus};
use bayplan_types::CpuSet;
use bayplan_workload::silent::says_memory;
use bayplan_workload::{Admission, NewContainer, ResizeOutcome, Resources, updated_resources};
use jiff::Timestamp;

use crate::change::Change;
use crate::container::{AskedResize, Undo, UpdatesUnderWay};
use crate::decision::{Decision, render_asked};
use crate::event::{Answer, Step};
use crate::history::Kind;
use crate::state::NodeState;

impl NodeState {
    pub(super) fn resize(
        &mut self,
        runtime_id: &str,
        update: Resources,
        is_final: bool,
        now: Timestamp,
    ) -> Step {
        self.make_resize(runtime_id, &Resize::Update(update), is_final, now)
    }

    /// Places the container anew for its new resources, keeping what it can of the old place; on refusal everything stays. Its group grows before, and shrinks
    /// after it.
    fn make_resize(
        &mut self,
        runtime_id: &str,
        resize: &Resize,
        is_final: bool,
        now: Timestamp,
    ) -> Step {
        let known = self.containers.id_of(runtime_id);
        let member = known.and_then(|id| Some((id, Arc::clone(&self.containers.get(&id)?.spec))));
        let Some((id, before)) = member.filter(|(id, _)| self.groups.members.contains_key(id))
        else {
            return self.resize_one(runtime_id, resize, is_final, now);
        };
        let mut spec = NewContainer::clone(&before);
        spec.resources = self.wanted(&before, resize);
        // Its group may have less than its members request, because its type is another one.
        if spec.resources == before.resources {
            return self.resize_one(runtime_id, resize, is_final, now);
        }
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
                return self.refuse_resize(id, &spec, decision, resize.update(), step);
            }
        };
        let mut step = self.resize_one(runtime_id, resize, is_final, now);
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
            let update = self.containers.get_mut(&id).and_then(|it| it.update.as_mut());
            if let Some(update) = update {
                update.told = told.clone();
            }
            step.answer = Answer::Admission(Admission::Place(told));
        }
    }

    /// What the container is to have.
    fn wanted(&self, spec: &NewContainer, resize: &Resize) -> Resources {
        match resize {
            Resize::Update(update) => self.updated_resources(spec, *update),
            Resize::Back(undo) => undo.resources,
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
        let spec = Arc::clone(&self.containers.named(runtime_id)?.spec);
        let changes = self.updated_resources(&spec, update) != spec.resources;
        let uid = Some(spec.pod.uid.clone()).filter(|uid| changes && !uid.is_empty());
        let container = self.containers.named_mut(runtime_id)?;
        container.asked = uid.is_some().then_some(AskedResize { at: now, is_told: false });
        uid
    }

    fn resize_one(
        &mut self,
        runtime_id: &str,
        resize: &Resize,
        is_final: bool,
        now: Timestamp,
    ) -> Step {
        let update = resize.update();
        let mut step = Step::new(Answer::Admission(Admission::PassThrough));
        let Some(id) = self.containers.id_of(runtime_id) else { return step };
        let Some(container) = self.containers.get(&id) else { return step };
        let mut spec = NewContainer::clone(&container.spec);
        spec.resources = self.wanted(&container.spec, resize);
        spec.says_memory = says_memory(&container.spec, spec.resources, container.pod_before);
        if !container.asked.is_some_and(|it| it.is_told) {
            mark_facts(&mut spec, container.spec.resources);
        }
        let undo = self.undo_of(id);
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
            let previous = resize.previous(&held, &self.ledger, &request);
            // In a group it takes nothing from others.
            if previous.exclusive.is_empty() && request.part().group().is_none() {
                request = self.as_sharer(request);
            }
            request.previous = Some(previous);
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
            self.emit(Change::Resized { id, before, update }, &mut step);
        }
        self.begin_update(id, undo, step)
    }

    /// Kubelet's update goes on, with the place that the container has now.
    fn begin_update(&mut self, id: ContainerId, undo: Option<Undo>, mut step: Step) -> Step {
        step.answers_after_plan = true;
        let told = self.pinning(id);
        if let Some(container) = self.containers.get_mut(&id) {
            let others = container.update.take().map_or(0, |it| it.count);
            let overlap = others > 0;
            // Of two that are under way at once it is not known which of them has failed.
            container.undo = container.undo.take().or(undo).filter(|_| !overlap);
            container.update =
                told.clone().map(|told| UpdatesUnderWay { told, count: others + 1, overlap });
            container.asked = None;
        }
        step.answer = Answer::Admission(told.map_or(Admission::PassThrough, Admission::Place));
        step
    }

    /// Kubelet's own update carried the pinning of the moment in which it was asked about. If that has changed since, the update may
    /// have undone what was written meanwhile. What the runtime has not made is undone here.
    pub(super) fn resized(
        &mut self,
        runtime_id: &str,
        outcome: ResizeOutcome,
        now: Timestamp,
    ) -> Step {
        let mut step = Step::new(Answer::Done);
        let Some(id) = self.containers.id_of(runtime_id) else { return step };
        let Some(container) = self.containers.get_mut(&id) else { return step };
        let (ended, undo) = (container.update.take(), container.undo.take());
        let rest = ended.clone().map(|it| UpdatesUnderWay { count: it.count - 1, ..it });
        container.update = rest.filter(|it| it.count > 0);
        match (outcome, undo) {
            (ResizeOutcome::Done, _) => {}
            // It was refused, and nothing has changed.
            (ResizeOutcome::Failed, undo) if ended.is_none() => {
                container.undo = undo;
                return step;
            }
            (ResizeOutcome::Failed, Some(undo)) if undo.doubted_at.is_none() => {
                self.go_back(id, runtime_id, undo, now, &mut step);
            }
            (ResizeOutcome::Failed | ResizeOutcome::Unknown, undo) => {
                let undo = undo.filter(|it| it.resources != container.spec.resources);
                container.undo = undo.map(|it| Undo { doubted_at: Some(now), ..it });
                if container.undo.is_some() {
                    // What the runtime said before this says nothing of it.
                    container.touched = self.steps;
                    step.sync_soon = true;
                }
            }
        }
        let carried = ended.filter(|it| !it.overlap).map(|it| it.told);
        if carried != self.pinning(id) || outcome != ResizeOutcome::Done {
            self.told.doubt(runtime_id);
            step.answers_after_plan = true;
        }
        step
    }

    /// What it goes back to if a resize that is about to be decided comes to nothing.
    fn undo_of(&self, id: ContainerId) -> Option<Undo> {
        let (container, held) = (self.containers.get(&id)?, self.ledger.allocation(id)?);
        Some(Undo {
            resources: container.spec.resources,
            place: Previous { pool: held.pool, exclusive: held.exclusive.clone() },
            doubted_at: None,
        })
    }

    /// What the runtime is about to be asked is compared with.
    pub(super) fn sync_basis(&self) -> Answer {
        Answer::SyncBasis {
            basis: self.steps,
            known: self.well_known(),
            placed: self.containers.by_runtime_id().keys().cloned().collect(),
        }
    }

    /// Containers of which the runtime need not be asked more than whether they live.
    fn well_known(&self) -> BTreeSet<String> {
        let is_doubtful = |runtime_id: &String| {
            let container = self.containers.named(runtime_id);
            container.and_then(|it| it.undo.as_ref()).is_some_and(|it| it.doubted_at.is_some())
        };
        self.told.last().keys().filter(|id| !is_doubtful(id)).cloned().collect()
    }

    /// A resize that ended in doubt was made, or not, by what the runtime says of the container's resources now.
    pub(crate) fn confirm_resize(
        &mut self,
        id: ContainerId,
        runtime_id: &str,
        found: Resources,
        now: Timestamp,
        step: &mut Step,
    ) {
        let Some(container) = self.containers.get_mut(&id) else { return };
        // How the update that is under way ends is waited for.
        if container.update.is_some() {
            return;
        }
        let Some(doubted_at) = container.undo.as_mut().and_then(|it| it.doubted_at.as_mut()) else {
            return;
        };
        // A clock that was put back starts the wait anew.
        *doubted_at = now.min(*doubted_at);
        let is_at_work = now.duration_since(*doubted_at) < self.doubt_grace;
        let wanted = container.spec.resources;
        let Some(undo) = container.undo.take() else { return };
        if !is_as_before(found, undo.resources, wanted) {
            return;
        }
        if is_at_work {
            container.undo = Some(undo);
            step.sync_soon = true;
            return;
        }
        self.go_back(id, runtime_id, undo, now, step);
        self.told.doubt(runtime_id);
    }

    /// The runtime has not made the resize: the container is resized to what it had. Where there is no room for that any more, it shares.
    fn go_back(
        &mut self,
        id: ContainerId,
        runtime_id: &str,
        undo: Undo,
        now: Timestamp,
        step: &mut Step,
    ) {
        let resources = undo.resources;
        let has_it = |state: &NodeState| {
            state.containers.get(&id).is_none_or(|it| it.spec.resources == resources)
        };
        if has_it(self) {
            return;
        }
        let mut back = self.make_resize(runtime_id, &Resize::Back(undo), false, now);
        let refused = match std::mem::replace(&mut back.answer, Answer::Done) {
            Answer::Admission(Admission::Refuse(why)) => Some(why),
            _ => None,
        };
        if refused.is_some() {
            self.share_again(id, resources, &mut back);
        }
        let is_back = has_it(self);
        let Some(container) = self.containers.get_mut(&id) else { return };
        (container.update, container.undo) = (None, None);
        let why = match refused {
            None => NOT_MADE.to_owned(),
            Some(why) if is_back => {
                format!("{NOT_MADE}; it shares, as there is no room for what it had: {why}")
            }
            Some(why) => format!("{NOT_MADE}; it stays, as it cannot have what it had: {why}"),
        };
        let outcome = format!("{}; {why}", container.decision.outcome);
        container.decision.outcome.clone_from(&outcome);
        for entry in back.history.iter_mut().filter(|entry| entry.kind == Kind::Resized) {
            entry.why.clone_from(&outcome);
        }
        step.take_told(&mut back);
        let lacking = (!is_back).then_some(resources);
        self.emit(Change::ResizeUndone { id, lacking, why }, step);
        step.answers_after_plan = true;
    }

    /// Shares, with these resources. Where it counts together with others it keeps what it has.
    fn share_again(&mut self, id: ContainerId, resources: Resources, step: &mut Step) {
        let Some(container) = self.containers.get(&id) else { return };
        let mut spec = NewContainer::clone(&container.spec);
        spec.resources = resources;
        if self.groups.members.contains_key(&id) || self.is_together(id, &spec) {
            return;
        }
        let Some(held) = self.ledger.lift(id) else { return };
        let before = self.place_before(id, &held);
        let (request, _) = self.request(id, &spec);
        let pool = self.ledger.pools().get(held.pool);
        let around = pool.map(|it| it.cpus.clone()).unwrap_or_default();
        if !self.adopt_shared(&request, held.mems.clone(), &around, step) {
            return self.put_back(id, held, step);
        }
        if let Some(container) = self.containers.get_mut(&id) {
            container.spec = Arc::new(spec);
            container.decision.asked = render_asked(&request);
            "shared".clone_into(&mut container.decision.outcome);
            container.touched = self.steps;
        }
        self.remember_home(id);
        self.emit_unjournaled(Change::Resized { id, before, update: resources }, step);
    }

    /// A container without any place would run unaccounted for, so one that has lost its place shares.
    pub(crate) fn put_back(&mut self, id: ContainerId, held: Allocation, step: &mut Step) {
        let mems = held.mems.clone();
        let Err(error) = self.ledger.adopt(id, held) else { return };
        let message = format!("{id} cannot have the place back that it had, and shares: {error}");
        step.fail("put_back", message);
        let Some(spec) = self.containers.get(&id).map(|it| Arc::clone(&it.spec)) else { return };
        let (request, _) = self.request(id, &spec);
        if self.adopt_shared(&request, mems, &CpuSet::new(), step) {
            self.emit(Change::Amended(id), step);
        }
    }
}

/// Why a resize was undone.
const NOT_MADE: &str = "the runtime has not made the resize";

/// What a container is to have from now on.
#[derive(Clone, Debug)]
enum Resize {
    /// Kubelet changes this.
    Update(Resources),
    /// What it had before.
    Back(Undo),
}

impl Resize {
    /// In kubelet's words.
    fn update(&self) -> Resources {
        match self {
            Resize::Update(update) => *update,
            Resize::Back(undo) => undo.resources,
        }
    }

    /// What it keeps as much of as it can. Of what it had before, others may own CPUs by now, or need them to share.
    fn previous(&self, held: &Allocation, ledger: &Ledger, request: &Request) -> Previous {
        let now = Previous { pool: held.pool, exclusive: held.exclusive.clone() };
        let Resize::Back(Undo { place, .. }) = self else { return now };
        let kept = place.exclusive.intersection(&now.exclusive);
        let lost = place.exclusive.difference(&kept);
        let exclusive = kept.union(&spare_cpus(ledger, request, &lost));
        Previous { pool: place.pool, exclusive }
    }
}

/// Whether everything that was to change is as before; a runtime that tells nothing of a container's resources does not say so.
fn is_as_before(found: Resources, before: Resources, wanted: Resources) -> bool {
    let is = |of: fn(Resources) -> i64| of(wanted) == of(before) || of(found) == of(before);
    let has_changed =
        Resources { oom_score_adj: 0, ..wanted } != Resources { oom_score_adj: 0, ..before };
    found.cpu_shares > 0
        && has_changed
        && is(|it| it.cpu_shares)
        && is(|it| it.cpu_quota)
        && is(|it| it.cpu_period)
        && is(|it| it.memory_limit)
}

/// What kubelet told when it had `before` is older than its resources now, if these are others.
fn mark_facts(spec: &mut NewContainer, before: Resources) {
    let has_changed = spec.resources != before;
    if let Some(facts) = spec.facts.as_mut().filter(|_| has_changed) {
        facts.is_older = true;
    }
}
