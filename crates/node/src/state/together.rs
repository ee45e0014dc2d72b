//! Pods with containers that count together what the pod asked for (`bayplan_workload::silent`): what one of them counts changes when another comes,
//! ends or is resized, and when the pod is. In: the occasion. Out: the others of the pod with what they count now.
//!
//! Nothing happens here to a pod if all of its containers speak for themselves.

use std::collections::BTreeSet;
use std::sync::Arc;

use bayplan_allocator::{Allocation, ContainerId, Part, Previous, Request, offer};
use bayplan_types::{Bytes, MilliCpu};
use bayplan_workload::silent::{Member, share, silent};
use bayplan_workload::{Admission, NewContainer, Resources};
use jiff::Timestamp;

use crate::change::Change;
use crate::container::Container;
use crate::decision::Decision;
use crate::event::{Answer, Step};
use crate::history::By;
use crate::record::Record;
use crate::state::NodeState;

/// What is undone when the occasion falls through: containers as they were, with what they held.
#[derive(Debug)]
pub(super) struct Regrouped {
    before: Vec<(ContainerId, Container, Option<Allocation>)>,
    /// What members of groups requested before.
    requested: Vec<(ContainerId, MilliCpu)>,
    /// Told of once the occasion has come.
    told: Step,
}

impl Default for Regrouped {
    fn default() -> Regrouped {
        Regrouped { before: Vec::new(), requested: Vec::new(), told: Step::new(Answer::Done) }
    }
}

impl NodeState {
    /// The containers of a pod; `newcomer` is one that is not placed yet, or what one is to be.
    fn members<'a>(&'a self, pod: u64, newcomer: Option<Member<'a>>) -> Vec<Member<'a>> {
        let is_other = |id: ContainerId| newcomer.is_none_or(|(newcomer, _)| newcomer != id);
        let of_pod = self.containers.iter().filter(|(id, it)| it.pod == pod && is_other(**id));
        of_pod.map(|(id, it)| (*id, &*it.spec)).chain(newcomer).collect()
    }

    /// Whether a resize may concern others of the pod, or what the pod has together.
    pub(super) fn is_together(&self, id: ContainerId, resized: &NewContainer) -> bool {
        let members = self.members(resized.pod.owner().pod, Some((id, resized)));
        let knows = members.iter().any(|(_, it)| it.is_silent);
        knows || (members.len() > 1 && !self.silent_after_resize(id, &members).is_empty())
    }

    /// A resize alone makes no container silent: one that now asks for as much as its pod did before says so itself, and the pod's
    /// figure follows. One that was silent may have seemed not to be while kubelet resized the pod before its containers.
    fn silent_after_resize(
        &self,
        id: ContainerId,
        members: &[Member<'_>],
    ) -> BTreeSet<ContainerId> {
        let mut found = silent(members);
        if self.containers.get(&id).is_some_and(|it| !it.spec.is_silent && !it.was_silent) {
            found.remove(&id);
        }
        found
    }

    /// Finds out whether a new container is silent, and lets the others of its pod count what is theirs beside it, so that it finds the CPUs that the
    /// pod has for it.
    pub(super) fn make_way(
        &mut self,
        id: ContainerId,
        spec: &mut NewContainer,
        now: Timestamp,
        step: &mut Step,
    ) -> Regrouped {
        let pod = spec.pod.owner().pod;
        let members = self.members(pod, Some((id, spec)));
        let found = silent(&members);
        let is_known = members.iter().any(|(_, it)| it.is_silent);
        if found.is_empty() && !is_known && !is_shared_out(&members) {
            return Regrouped::default();
        }
        spec.is_silent = found.contains(&id);
        let mut done = Regrouped::default();
        let spec = &*spec;
        let regrouped = self.regroup(pod, &found, Some((id, spec)), &mut done, now);
        if regrouped.is_err() {
            self.undo(std::mem::take(&mut done), step);
        }
        done
    }

    /// The others are as they were before it was tried. Sharers that made room for them stay where they went.
    pub(super) fn undo(&mut self, undone: Regrouped, step: &mut Step) {
        let Regrouped { before, requested, mut told } = undone;
        for (id, milli) in requested {
            self.groups.request(id, milli);
        }
        let is_of_pod = |number: u64| before.iter().any(|(id, ..)| id.0 == number);
        told.records.retain(|record| match record {
            Record::Placed(placed) => !is_of_pod(placed.id),
            _ => true,
        });
        told.history.retain(|entry| {
            let id = entry.who.as_ref().and_then(|it| it.id);
            !id.is_some_and(is_of_pod)
        });
        step.take_told(&mut told);
        for (id, ..) in &before {
            self.ledger.lift(*id);
        }
        for (id, container, held) in before {
            self.containers.insert(id, container);
            if let Some(held) = held {
                self.put_back(id, held, step);
            }
        }
    }

    /// Tells of the others what has become of them.
    pub(super) fn keep(Regrouped { mut told, .. }: Regrouped, step: &mut Step) {
        step.take_told(&mut told);
    }

    /// Every container of the pod counts what it should, given which are silent. Those that give way come first, and those on the pod's CPUs
    /// after the one that holds them.
    ///
    /// # Errors
    /// Why one of them cannot; those before it stay as they are then.
    fn regroup(
        &mut self,
        pod: u64,
        silent: &BTreeSet<ContainerId>,
        newcomer: Option<Member<'_>>,
        done: &mut Regrouped,
        now: Timestamp,
    ) -> Result<(), Decision> {
        let ids: Vec<ContainerId> = self.members(pod, None).iter().map(|(id, _)| *id).collect();
        let ids: Vec<ContainerId> =
            ids.into_iter().filter(|id| newcomer.is_none_or(|(it, _)| it != *id)).collect();
        for id in &ids {
            let Some(container) = self.containers.get_mut(id) else { continue };
            if container.spec.is_silent != silent.contains(id) {
                let held = self.ledger.allocation(*id).cloned();
                done.before.push((*id, container.clone(), held));
                container.was_silent = true;
                Arc::make_mut(&mut container.spec).is_silent = silent.contains(id);
            }
        }
        let mut wanted: Vec<(ContainerId, Request)> = ids
            .into_iter()
            .filter_map(|id| {
                let spec = Arc::clone(&self.containers.get(&id)?.spec);
                let request = self.request_beside(id, &spec, newcomer).0;
                let held = self.ledger.allocation(id);
                // While the node is drained, none gets exclusive CPUs because others of its pod have ended.
                let shares =
                    |it: &Allocation| it.exclusive.is_empty() && it.terms.part == Part::Alone;
                let request =
                    if held.is_some_and(shares) { self.as_sharer(request) } else { request };
                Some((id, request))
            })
            .collect();
        for (id, request) in &wanted {
            let milli = request.demand.all_shared().shared().unwrap_or_default();
            done.requested.extend(self.groups.request(*id, milli).map(|before| (*id, before)));
        }
        wanted.retain(|(id, request)| {
            request.part() == Part::Joined || self.counts_otherwise(*id, request)
        });
        wanted.sort_by_key(|(id, request)| {
            let held = self.ledger.allocation(*id).map(cpu_time).unwrap_or_default();
            let asked = MilliCpu::from_cpus(request.demand.exclusive())
                + request.demand.shared().unwrap_or_default();
            (request.wishes.pod.part == Part::Joined, asked > held, *id)
        });
        for (id, request) in wanted {
            let is_right = request.part() == Part::Joined
                && !self.counts_otherwise(id, &request)
                && self.is_beside_holder(id);
            if !is_right {
                self.count_anew(id, request, done, now)?;
            }
        }
        for (id, ..) in &done.before {
            self.emit(Change::Amended(*id), &mut done.told);
        }
        Ok(())
    }

    /// Whether a container holds something else than it counts now. One that only shares for want of room, or of permission, goes on.
    fn counts_otherwise(&self, id: ContainerId, request: &Request) -> bool {
        let Some(held) = self.ledger.allocation(id) else { return false };
        let (demand, part) = (request.demand, request.part());
        // One that is not in its group yet has its place there when it is placed anew.
        if part.group() != held.terms.part.group() {
            return false;
        }
        // It shares as much as it asks for; where that has changed, it is placed for what it asks for now.
        let asked = MilliCpu::from_cpus(demand.exclusive()) + demand.shared().unwrap_or_default();
        let gave_up = held.exclusive.is_empty()
            && held.terms.part == Part::Alone
            && demand.exclusive() > 0
            && held.shared == Some(asked);
        if gave_up || held.is_reserved || request.wishes.has_no_choice() {
            return false;
        }
        let is_joined = held.terms.part == Part::Joined;
        let cpus = match part {
            Part::Joined => is_joined,
            Part::Member(_) => held.terms.part == part,
            Part::Inside(_) => {
                held.terms.part == part && held.exclusive.len() == demand.exclusive()
            }
            _ => {
                !is_joined
                    && held.exclusive.len() == demand.exclusive()
                    && held.shared == demand.shared()
                    && held.terms.part == part
            }
        };
        let charged: Bytes = held.charges.iter().map(|(_, bytes)| *bytes).sum();
        let memory = request.memory_is_expected
            || held.terms.memory_is_expected
            || held.mems.is_empty()
            || charged == request.memory;
        let huge: Bytes = held.huge_charges.iter().map(|charge| charge.bytes).sum();
        let asked: Bytes = request.huge_pages.values().copied().sum();
        !(cpus && memory && huge <= asked)
    }

    /// Whether one that joined its pod's CPUs has the place and the memory nodes of the container that holds them now.
    fn is_beside_holder(&self, id: ContainerId) -> bool {
        let Some(held) = self.ledger.allocation(id) else { return true };
        let Some((_, holder)) = self.ledger.holder_of(held.terms.owner) else { return true };
        let has_own = !held.charges.is_empty() || !held.huge_charges.is_empty();
        held.pool == holder.pool && (has_own || held.mems == holder.mems)
    }

    /// Places one anew, keeping what it can of its place.
    fn count_anew(
        &mut self,
        id: ContainerId,
        mut request: Request,
        done: &mut Regrouped,
        now: Timestamp,
    ) -> Result<(), Decision> {
        let Some(held) = self.ledger.lift(id) else { return Ok(()) };
        let Some(container) = self.containers.get(&id) else { return Ok(()) };
        let (before, spec) = (container.clone(), Arc::clone(&container.spec));
        let place = self.place_before(id, &held);
        request.previous = Some(Previous { pool: held.pool, exclusive: held.exclusive.clone() });
        let offered = offer(&self.ledger, &request);
        let mut decision = self.decision(&spec, &request, offered.as_ref(), Vec::new(), now);
        decision.warnings.clone_from(&before.decision.warnings);
        let committed = offered.ok().and_then(|offer| {
            let moves = offer.moves().to_vec();
            self.ledger.commit(offer).ok().map(|()| moves)
        });
        let Some(moves) = committed else {
            self.put_back(id, held, &mut done.told);
            return Err(decision);
        };
        self.known.note_grant(id);
        self.note_moves(&moves, id, &mut done.told);
        if let Some(container) = self.containers.get_mut(&id) {
            container.decision = decision;
            // For what it counted before.
            container.elsewhere = None;
            container.touched = self.steps;
        }
        self.remember_home(id);
        let why =
            "so that the containers of its pod have together what the pod asked for".to_owned();
        let placed = Change::PlacedAnew { id, by: By::Room, before: place, why };
        self.emit_unjournaled(placed, &mut done.told);
        if !done.before.iter().any(|(other, ..)| *other == id) {
            done.before.push((id, before, Some(held)));
        }
        Ok(())
    }

    /// A resize in a pod with containers that count together: all of them count what is theirs then (true), or all stays.
    pub(super) fn resize_together(
        &mut self,
        id: ContainerId,
        spec: NewContainer,
        update: Resources,
        is_final: bool,
        now: Timestamp,
    ) -> (bool, Step) {
        let mut step = Step::new(Answer::Admission(Admission::PassThrough));
        let pod = spec.pod.owner().pod;
        let Some(held) = self.ledger.allocation(id).cloned() else { return (false, step) };
        let Some(container) = self.containers.get_mut(&id) else { return (false, step) };
        let old = container.clone();
        container.spec = Arc::new(spec.clone());
        let before = self.place_before(id, &held);
        let mut done = Regrouped { before: vec![(id, old, Some(held))], ..Regrouped::default() };
        let found = self.silent_after_resize(id, &self.members(pod, None));
        if let Err(decision) = self.regroup(pod, &found, None, &mut done, now) {
            self.undo(done, &mut step);
            if !is_final {
                let why = self.without_names(&decision.outcome, &spec);
                step.answer = Answer::Admission(Admission::Refuse(why));
                return (false, step);
            }
            return (false, self.refuse_resize(id, &spec, decision, update, step));
        }
        if let Some(container) = self.containers.get_mut(&id) {
            container.touched = self.steps;
        }
        NodeState::keep(done, &mut step);
        self.emit_unjournaled(Change::Resized { id, before, update }, &mut step);
        (true, step)
    }

    /// Remembers that what the others of this container's pod count may be something else now.
    pub(super) fn unsettle(&mut self, spec: &NewContainer) {
        let pod = spec.pod.owner().pod;
        let members = self.members(pod, None);
        let knows = spec.is_silent || members.iter().any(|(_, it)| it.is_silent);
        // With the one that has gone, also memory or huge pages alone.
        let before = || {
            let gone = (ContainerId(0), spec);
            is_shared_out(&members.iter().copied().chain([gone]).collect::<Vec<Member<'_>>>())
        };
        if knows || !silent(&members).is_empty() || before() {
            self.unsettled.insert(pod);
        }
    }

    /// At the end of a step: pods that have lost a container, or that have another figure. What cannot be had is left; the next occasion tries again.
    pub(super) fn settle_pods(&mut self, now: Timestamp, step: &mut Step) {
        // Nothing is granted before it is known what runs.
        if self.known.is_partial() {
            return;
        }
        for pod in std::mem::take(&mut self.unsettled) {
            let found = silent(&self.members(pod, None));
            let mut done = Regrouped::default();
            let regrouped = self.regroup(pod, &found, None, &mut done, now);
            if let Err(decision) = regrouped {
                step.fail("pod_share", decision.outcome);
                self.undo(done, step);
            } else {
                NodeState::keep(done, step);
            }
        }
    }
}

/// Whether the containers of a pod count together what the pod asked for, in CPUs, memory or huge pages.
fn is_shared_out(members: &[Member<'_>]) -> bool {
    members.iter().any(|(id, _)| share(*id, members).is_some())
}

fn cpu_time(held: &Allocation) -> MilliCpu {
    MilliCpu::from_cpus(held.exclusive.len()) + held.shared.unwrap_or_default()
}
