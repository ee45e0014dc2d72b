//! Brings the state in line with what the runtime says is there, at the start and whenever something may have been missed.
//! In: a view of the runtime. Out: steps.
//!
//! Rules: a container that is known and gone is released; one that is known stays where the ledger has it; one that is unknown is
//! adopted where it runs, exclusive only if it provably has exactly the CPUs that it would be given; one that is still being created, or that changed
//! after the view was taken, is left alone, and so is one that has ended without ever having been started.

use std::collections::BTreeSet;
use std::sync::Arc;

use bayplan_allocator::{Allocation, ContainerId, Part, PoolId, Request, Terms};
use bayplan_types::{CpuSet, MilliCpu, NodeSet, Pinning};
use bayplan_workload::annotations::may_claim;
use jiff::Timestamp;

use crate::change::{Change, NodeChange};
use crate::claims::shown_cpus;
use crate::container::{Phase, warning_notes};
use crate::decision::{Decision, LEFT_ALONE, render_asked, texts};
use crate::event::{Answer, RuntimeView, Seen, Step};
use crate::state::NodeState;

impl NodeState {
    /// Puts a container into the narrowest shared pool around `cpus`; the machine, where that has no shared CPU, or where its CPUs
    /// are left alone and so may change.
    pub(crate) fn adopt_shared(
        &mut self,
        request: &Request,
        mems: NodeSet,
        cpus: &CpuSet,
        step: &mut Step,
    ) -> bool {
        let (id, demand, has_choice) =
            (request.id, request.demand, !request.wishes.has_no_choice());
        let wanted = MilliCpu::from_cpus(demand.exclusive()) + demand.shared().unwrap_or_default();
        let around = self.ledger.pools().iter().filter(|pool| {
            has_choice && !cpus.is_empty() && cpus.is_subset(&pool.cpus) && pool.is_shared
        });
        let pool = around.min_by_key(|pool| pool.cpus.len()).map(|pool| pool.id);
        // It owns nothing, so it holds nothing for its pod.
        let part = match request.part() {
            Part::Joined => Part::Joined,
            _ => Part::Alone,
        };
        let allocation = |pool| Allocation {
            is_reserved: request.is_reserved,
            shared: Some(wanted),
            mems: mems.clone(),
            terms: Terms { part, ..request.terms() },
            ..Allocation::new(pool)
        };
        let pools = pool.into_iter().chain([PoolId::MACHINE]);
        for pool in pools {
            let allocation = self.ledger.with_found_memory(request, allocation(pool));
            match self.ledger.adopt(id, allocation) {
                Ok(()) => return true,
                Err(error) => {
                    let message = format!("{id} cannot share in pool {}: {error}", pool.0);
                    step.fail("not_adopted", message);
                }
            }
        }
        false
    }

    pub(crate) fn synced(&mut self, view: &RuntimeView, now: Timestamp) -> Step {
        let mut step = Step::new(Answer::Done);
        self.confirm_doubtful(view, now, &mut step);
        self.release_missing(view, now, &mut step);
        let not_alone = self.not_alone();
        let known: BTreeSet<ContainerId> = self.containers.ids().copied().collect();
        // Where no container is to be is known before any is adopted where it runs.
        for is_claiming in [true, false] {
            self.take_over(view, is_claiming, now, &mut step);
            self.settle_claims(now, &mut step);
        }
        self.leave_idle_for_found(&known, &mut step);
        self.place_unasked(now, &mut step);
        self.note_not_alone(&not_alone, &mut step);
        self.departed.forget_unstarted(view);
        self.note_known(view, now, &mut step);
        self.departed.forget_ended(view.basis);
        self.note_kept_files(view, &mut step);
        let is_due = self.compactor.is_due() || self.narrower.is_due();
        if self.is_placing() && is_due && self.is_at_rest() {
            self.emit(Change::Node(NodeChange::Looked), &mut step);
        }
        self.join_holes(&mut step);
        self.narrow_one(&mut step);
        step.answer = Answer::Synced { is_partial: self.known.is_partial() };
        step
    }

    /// Containers that live, as far as their pods claim CPUs, or as far as they do not.
    fn take_over(
        &mut self,
        view: &RuntimeView,
        is_claiming: bool,
        now: Timestamp,
        step: &mut Step,
    ) {
        let claims =
            |seen: &Seen| seen.details.as_ref().is_some_and(|it| may_claim(&it.container.pod));
        let alive = view.containers.iter().filter(|(_, seen)| seen.is_alive);
        for (runtime_id, seen) in alive.filter(|(_, seen)| claims(seen) == is_claiming) {
            match self.containers.id_of(runtime_id) {
                Some(id) => {
                    self.observe(id, runtime_id, seen, view.basis, step);
                    self.observe_resources(id, runtime_id, seen, view.basis, now, step);
                }
                None if self.departed.has(runtime_id, seen, view.basis) => {}
                None if self.is_superseded(seen, view) || self.is_restored() => {}
                None => self.adopt_seen(runtime_id, seen, now, step),
            }
        }
    }

    /// From the first view that describes what runs, everything is known.
    fn note_known(&mut self, view: &RuntimeView, now: Timestamp, step: &mut Step) {
        let has_undescribed = view.containers.iter().any(|(runtime_id, seen)| {
            seen.is_alive
                && seen.details.is_none()
                && self.containers.id_of(runtime_id).is_none()
                && !self.departed.has(runtime_id, seen, view.basis)
                && !self.is_superseded(seen, view)
        });
        let was_partial = self.known.is_partial();
        self.known = self.known.after_view(has_undescribed, now);
        if was_partial && !self.known.is_partial() {
            self.emit(Change::Node(NodeChange::MachineNamed), step);
        }
    }

    /// Containers with a creation that ended in doubt are there, or they are not.
    fn confirm_doubtful(&mut self, view: &RuntimeView, now: Timestamp, step: &mut Step) {
        let doubtful = self.containers.iter().filter(|(_, container)| {
            container.phase == Phase::Unconfirmed && container.touched <= view.basis
        });
        let doubtful: Vec<ContainerId> = doubtful.map(|(id, _)| *id).collect();
        for id in doubtful {
            // A clock that was put back starts the wait anew.
            if let Some(container) = self.containers.get_mut(&id) {
                container.doubted_at = container.doubted_at.map(|at| at.min(now));
            }
            let Some(container) = self.containers.get(&id) else { continue };
            let due = container.spec.due_id.as_deref();
            let doubted_for = container.doubted_at.map(|at| now.duration_since(at));
            let is_at_work = doubted_for.is_some_and(|it| it < self.doubt_grace);
            // Where it was known by which id it would come, its attempt may have been a guess.
            let found = view.containers.iter().find(|(runtime_id, seen)| {
                let is_it = match due {
                    Some(due) => runtime_id.as_str() == due,
                    None => container.is(&seen.pod_id, &seen.name, seen.attempt),
                };
                is_it && seen.is_alive && self.containers.id_of(runtime_id).is_none()
            });
            match found {
                Some((runtime_id, seen)) if self.departed.has(runtime_id, seen, view.basis) => {
                    self.release(id, "stopped or removed", now, step);
                }
                Some((runtime_id, _)) => {
                    let runtime_id = runtime_id.clone();
                    let created = Change::Created { id, runtime_id: runtime_id.clone(), at: now };
                    self.emit(created, step);
                    // What it was created with is not known for sure: an empty pinning is written over.
                    self.bind(id, &runtime_id, Pinning::default());
                }
                None if is_at_work => step.sync_soon = true,
                None => self.release(id, "the runtime did not create it", now, step),
            }
        }
    }

    fn release_missing(&mut self, view: &RuntimeView, now: Timestamp, step: &mut Step) {
        let is_alive =
            |runtime_id: &String| view.containers.get(runtime_id).is_some_and(|seen| seen.is_alive);
        let missing = self.containers.by_runtime_id().iter().filter(|(runtime_id, id)| {
            let touched = self.containers.get(id).map_or(0, |container| container.touched);
            touched <= view.basis && !is_alive(runtime_id)
        });
        let missing: Vec<ContainerId> = missing.map(|(_, id)| *id).collect();
        for id in missing {
            self.release(id, "it ended", now, step);
        }
    }

    /// Where the kernel is asked, its word counts, and not what failed before.
    fn observe(
        &mut self,
        id: ContainerId,
        runtime_id: &str,
        seen: &Seen,
        basis: u64,
        step: &mut Step,
    ) {
        if seen.is_running {
            self.runs(runtime_id);
        }
        let Some(container) = self.containers.get(&id) else { return };
        // A write may have come, and failed, after it was looked at.
        if container.touched > basis {
            return;
        }
        let is_unknown = self.told.get(runtime_id).is_none_or(|seen| seen.cpus.is_empty());
        if let Some(details) = seen.details.as_ref().filter(|_| is_unknown) {
            let wanted = self.pinning(id);
            self.told.note_found(runtime_id, &details.pinning, wanted.as_ref());
            step.forgiven.push(runtime_id.to_owned());
        }
    }

    fn observe_resources(
        &mut self,
        id: ContainerId,
        runtime_id: &str,
        seen: &Seen,
        basis: u64,
        now: Timestamp,
        step: &mut Step,
    ) {
        let is_older = self.containers.get(&id).is_none_or(|it| it.touched > basis);
        if let Some(details) = seen.details.as_ref().filter(|_| !is_older) {
            self.confirm_resize(id, runtime_id, details.container.resources, now, step);
        }
    }

    /// A container that was never started, and of which there is a later attempt, will never be started.
    fn is_superseded(&self, seen: &Seen, view: &RuntimeView) -> bool {
        let is_later = |pod_id: &str, name: &str, attempt: u32| {
            pod_id == seen.pod_id && name == seen.name && attempt > seen.attempt
        };
        let mut held = self.containers.values().map(|container| &container.spec);
        let mut viewed = view.containers.values();
        !seen.is_running
            && (held.any(|spec| is_later(&spec.pod.id, &spec.name, spec.attempt))
                || viewed.any(|other| is_later(&other.pod_id, &other.name, other.attempt)))
    }

    fn adopt_seen(&mut self, runtime_id: &str, seen: &Seen, now: Timestamp, step: &mut Step) {
        let is_being_made = self.containers.values().any(|container| {
            let is_due = container.spec.due_id.as_deref() == Some(runtime_id);
            let is_it = is_due || container.is(&seen.pod_id, &seen.name, seen.attempt);
            container.runtime_id.is_none() && is_it
        });
        if is_being_made {
            return;
        }
        let Some(details) = &seen.details else {
            let message =
                format!("container {runtime_id} runs, but the runtime does not describe it");
            step.fail("not_adopted", message);
            return;
        };
        let id = self.containers.take_id();
        self.take_into_group(id, &details.container, &details.pinning.cpus, step);
        let (request, warnings) = self.request(id, &details.container);
        let adopted = match self.adopt_into_group(&request) {
            Some(how) => Some(how),
            None => self.adopt_details(&request, &details.pinning, now, step),
        };
        let Some(how) = adopted else {
            self.leave_group(id);
            return;
        };
        step.notes.extend(warning_notes(&details.container, &warnings));
        let decision = Decision {
            at: now,
            asked: render_asked(&request),
            outcome: format!("found running, {how}"),
            pools: Vec::new(),
            warnings: texts(warnings),
        };
        let phase = if seen.is_running { Phase::Running } else { Phase::Created };
        let mut spec = details.container.clone();
        let held = self.ledger.allocation(id);
        spec.is_silent = held.is_some_and(|held| held.terms.part == Part::Joined);
        self.insert(id, spec, Some(runtime_id.to_owned()), phase, decision);
        self.note_unasked(id, &request);
        self.told.note(runtime_id, details.pinning.clone());
        self.emit(Change::Adopted { id, found: &details.pinning, how }, step);
    }

    /// Two of a pod that were found running on the very CPUs that each of them would be given alone have them together.
    fn join_found(&mut self, request: &Request, cpus: &CpuSet, step: &mut Step) -> bool {
        let has_them = |(_, held): &(ContainerId, &Allocation)| {
            held.terms.owner == request.owner
                && held.shared.is_none()
                && matches!(held.terms.part, Part::Alone | Part::Holder)
                && held.exclusive == *cpus
        };
        let Some((holder, held)) = self.ledger.allocations().find(has_them) else { return false };
        let terms = Terms { part: Part::Joined, ..request.terms() };
        let joined = Allocation { mems: held.mems.clone(), terms, ..Allocation::new(held.pool) };
        if self.ledger.adopt(request.id, joined).is_err() {
            return false;
        }
        self.ledger.set_holder(holder, true);
        if let Some(container) = self.containers.get_mut(&holder) {
            Arc::make_mut(&mut container.spec).is_silent = true;
        }
        self.emit(Change::Amended(holder), step);
        true
    }

    /// Adopts an owner that runs; what was granted its CPUs before the runtime was asked is placed anew, or shares. False: its CPUs have
    /// an owner by the journal, or cannot be owned.
    fn adopt_before_provisional(
        &mut self,
        id: ContainerId,
        allocation: &Allocation,
        now: Timestamp,
        step: &mut Step,
    ) -> bool {
        if self.ledger.adopt(id, allocation.clone()).is_ok() {
            return true;
        }
        let cpus = &allocation.exclusive;
        let holds = |id: &ContainerId| {
            self.ledger
                .allocation(*id)
                .is_some_and(|held| held.exclusive.union(&held.idle).intersects(cpus))
        };
        let holders: Vec<ContainerId> = self.containers.ids().copied().filter(holds).collect();
        if holders.is_empty() || !holders.iter().all(|id| self.known.is_provisional(*id)) {
            return false;
        }
        let places: Vec<_> =
            holders.iter().filter_map(|id| Some((*id, self.place(*id)?))).collect();
        let held: Vec<_> =
            holders.iter().filter_map(|id| Some((*id, self.ledger.lift(*id)?))).collect();
        if self.ledger.adopt(id, allocation.clone()).is_err() {
            for (holder, held) in held {
                self.put_back(holder, held, step);
            }
            return false;
        }
        let why = format!("CPUs {cpus} are owned by a container that the journal did not have");
        self.seat_anew(&places, &why, now, step);
        true
    }

    fn adopt_details(
        &mut self,
        request: &Request,
        pinning: &Pinning,
        now: Timestamp,
        step: &mut Step,
    ) -> Option<String> {
        let Pinning { cpus, mems } = pinning;
        let wanted = request.demand.exclusive();
        let is_reserved = request.is_reserved && !self.ledger.pools().reserved().is_empty();
        let may_own = !is_reserved && !request.wishes.preserve.cpus && !self.is_draining();
        if wanted > 0 && may_own && request.demand.shared().is_none() && cpus.len() == wanted {
            let around = self.ledger.pools().iter().filter(|pool| cpus.is_subset(&pool.cpus));
            let pool = around.min_by_key(|pool| pool.cpus.len()).map(|pool| pool.id);
            let allocation = Allocation {
                exclusive: cpus.clone(),
                mems: mems.clone(),
                terms: request.terms(),
                ..Allocation::new(pool.unwrap_or(PoolId::MACHINE))
            };
            let allocation = self.ledger.with_found_memory(request, allocation);
            if self.adopt_before_provisional(request.id, &allocation, now, step) {
                return Some(format!("keeps CPUs {cpus} for itself"));
            }
        }
        if may_own && wanted == cpus.len() && self.join_found(request, cpus, step) {
            return Some(format!("shares CPUs {cpus} with its pod"));
        }
        let claimed = &request.wishes.claimed;
        let mems = match mems.is_empty() && !claimed.is_empty() {
            true => self.machine.near_memory(claimed),
            false => mems.clone(),
        };
        let is_adopted = self.adopt_shared(request, mems, cpus, step);
        is_adopted.then(|| match request.wishes.preserve.cpus {
            true => format!("CPUs {LEFT_ALONE}"),
            false if !claimed.is_empty() => {
                format!("runs on CPUs {}, which were chosen for its pod", shown_cpus(claimed))
            }
            false => "shares".to_owned(),
        })
    }
}
