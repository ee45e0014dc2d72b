//! The mode of the node in the state: what may be placed, what passes through, and where containers run in each mode.

use bayplan_allocator::{ContainerId, Request};
use bayplan_types::{CpuSet, Pinning};
use bayplan_workload::{Admission, NewContainer, Resources};
use jiff::Timestamp;

use super::NodeState;
use crate::change::{Change, NodeChange};
use crate::event::{Answer, RuntimeView, Step};
use crate::mode::{Mode, ModePlan, NotInPlace, PinningChange};
use crate::turned::Turned;

impl NodeState {
    /// The mode now.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// No container becomes an owner of CPUs.
    pub(crate) fn is_draining(&self) -> bool {
        self.mode == Mode::Draining
    }

    /// Nothing is placed.
    pub(crate) fn is_restored(&self) -> bool {
        self.mode == Mode::Restored
    }

    /// Otherwise no container is moved for the sake of a better place.
    pub(crate) fn is_placing(&self) -> bool {
        self.mode == Mode::Placing
    }

    /// The writes of the change travel before the answer.
    pub(crate) fn set_mode(&mut self, mode: Mode, now: Timestamp) -> Step {
        let mut step = Step::new(Answer::Done);
        step.answers_after_plan = true;
        if mode == self.mode {
            return step;
        }
        let change = NodeChange::Mode { from: self.mode, to: mode, at: now };
        self.emit(Change::Node(change), &mut step);
        (self.mode, self.mode_since) = (mode, Some(now));
        if self.is_restored() {
            self.put_in_force(Turned::default(), &mut step);
        }
        step
    }

    /// What [`Self::set_mode`] would do.
    pub(crate) fn plan_mode(&self, to: Mode) -> ModePlan {
        let mut after = self.clone();
        after.mode = to;
        let changes = self.containers.by_runtime_id().values().filter_map(|id| {
            let (old, new) = (self.pinning(*id)?, after.pinning(*id)?);
            (old != new).then(|| PinningChange {
                container: self.full_name_of(*id),
                cpus_from: old.cpus.to_string(),
                cpus_to: new.cpus.to_string(),
                mems_from: old.mems.to_string(),
                mems_to: new.mems.to_string(),
            })
        });
        let mut changes: Vec<PinningChange> = changes.collect();
        changes.sort_by(|a, b| a.container.cmp(&b.container));
        let held = self.ledger.allocations();
        ModePlan {
            format: "bayplan-mode-plan/1".to_owned(),
            from: self.mode,
            to,
            owners: held.filter(|(_, held)| !held.exclusive.is_empty()).count(),
            changes,
        }
    }

    /// Where every container runs that is not placed: as kubelet without a CPU manager leaves it, as far as that can be said through CRI, where an
    /// empty set means "as it is". CPUs that were chosen for pods are as free then as those of owners.
    pub(crate) fn everywhere(&self) -> Pinning {
        Pinning { cpus: self.machine.unplaced_cpus(), mems: self.machine.memory_nodes() }
    }

    /// What a new container may ask for. `Err`: its pod requires something of the CPUs that it does not get.
    pub(crate) fn as_mode_allows(&self, request: Request) -> Result<(Request, bool), String> {
        if !self.is_draining() || request.demand.exclusive() == 0 {
            return Ok((request, false));
        }
        if request.wishes.cpus.has_requirement() {
            let why = "bayplan is draining, and the exclusive CPUs that it requires cannot be had; `bayplan resume` ends that";
            return Err(format!("refused: {why}"));
        }
        let demand = request.demand.all_shared();
        Ok((Request { demand, ..request }, true))
    }

    /// What a container without exclusive CPUs may ask for: while draining, it goes on sharing, whatever it requires.
    pub(crate) fn as_sharer(&self, request: Request) -> Request {
        match self.is_draining() {
            true => Request { demand: request.demand.all_shared(), ..request },
            false => request,
        }
    }

    /// While restored, a creation passes through, and the container is not bayplan's.
    pub(crate) fn pass(&mut self, spec: &NewContainer, now: Timestamp) -> Step {
        let mut step = Step::new(Answer::Admission(Admission::PassThrough));
        self.release_earlier(spec, now, &mut step);
        step
    }

    /// While restored, a resize passes through. The place that is kept no longer suits the container, so it is given up, and it is adopted
    /// where it runs when bayplan places again.
    pub(crate) fn pass_resize(&mut self, id: &str, update: Resources, now: Timestamp) -> Step {
        let mut step = Step::new(Answer::Admission(Admission::PassThrough));
        let Some(id) = self.containers.id_of(id) else { return step };
        let Some(container) = self.containers.get(&id) else { return step };
        let now_asked = container.spec.resources;
        if now_asked.updated_by(update) != now_asked {
            self.release(id, "it was resized while nothing was placed", now, &mut step);
        }
        step
    }

    /// Compares where every container runs with where it should. Those that are elsewhere are written again, and named.
    pub(crate) fn read_back(&mut self, view: &RuntimeView) -> Step {
        let mut found = Vec::new();
        for (runtime_id, id) in self.containers.by_runtime_id() {
            let (Some(seen), Some(wanted)) = (view.containers.get(runtime_id), self.pinning(*id))
            else {
                continue;
            };
            let touched = self.containers.get(id).map_or(0, |container| container.touched);
            if !seen.is_alive {
                continue;
            }
            let why = match &seen.details {
                None => "the runtime does not describe it".to_owned(),
                Some(details) => {
                    let Some(why) = self.differs(&details.pinning, &wanted) else { continue };
                    // Else it is as new as the view, or a write has failed since.
                    if touched <= view.basis {
                        self.told.note(runtime_id, details.pinning.clone());
                    }
                    why
                }
            };
            found.push(NotInPlace { container: self.full_name_of(*id), why });
        }
        found.sort_by(|a, b| a.container.cmp(&b.container));
        let mut step = Step::new(Answer::NotInPlace(found));
        step.answers_after_plan = true;
        step
    }

    /// For people; `None` where it runs as it should. What is left alone is right in any case.
    pub(crate) fn differs(&self, seen: &Pinning, wanted: &Pinning) -> Option<String> {
        // A container that was never told runs everywhere.
        let is_free = self.mode == Mode::Restored && seen.cpus.is_empty();
        let has_cpus = is_free || wanted.cpus.is_empty() || seen.cpus == wanted.cpus;
        let has_mems =
            wanted.mems.is_empty() || seen.mems == wanted.mems || is_free && seen.mems.is_empty();
        let all = |cpus: &CpuSet| match cpus.is_empty() {
            true => "all".to_owned(),
            false => cpus.to_string(),
        };
        let mut texts = Vec::new();
        if !has_cpus {
            texts.push(format!("runs on CPUs {}, not {}", all(&seen.cpus), wanted.cpus));
        }
        if !has_mems {
            texts.push(format!("has memory nodes {}, not {}", seen.mems, wanted.mems));
        }
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    pub(crate) fn full_name_of(&self, id: ContainerId) -> String {
        self.containers.get(&id).map(|container| container.full_name()).unwrap_or_default()
    }
}
