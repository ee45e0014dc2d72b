//! Cold starts of containers: their requests on slow memory, and later the memory of their CPUs, told like any other change.

use bayplan_allocator::{ColdStart, ContainerId, Request, offer};
use bayplan_workload::NewContainer;
use bayplan_workload::annotations::{Warning, WarningKind, read_annotations};
use jiff::{SignedDuration, Timestamp};

use super::NodeState;
use crate::change::{Change, Moved, What};
use crate::cold_start::Cold;
use crate::event::Step;
use crate::history::By;

impl NodeState {
    /// The request of a container that comes, on slow memory if the pod wants that and it can be had; a warning, if it only wants it.
    pub(crate) fn as_cold(
        &self,
        request: Request,
        spec: &NewContainer,
        warnings: &mut Vec<Warning>,
        now: Timestamp,
    ) -> (Request, Cold) {
        let wanted = match spec.pod.annotations.is_empty() {
            true => None,
            false => read_annotations(spec, &self.rules).0.tuning.cold_start,
        };
        let wanted = wanted.and_then(|it| SignedDuration::try_from(it).ok());
        let Some(until) = wanted.and_then(|it| now.checked_add(it).ok()) else {
            return (request, Cold::No);
        };
        let can = match request.wishes.preserve.memory {
            true => Err("its memory nodes are left alone".to_owned()),
            false if !request.wishes.claimed.is_empty() => {
                Err("its CPUs were chosen for its pod, and its memory is near them".to_owned())
            }
            false => self.ledger.can_start_cold(&request).map_err(|why| why.to_string()),
        };
        let mut cold = request.clone();
        cold.wishes.memory.cold_start = ColdStart::Cold;
        let why = match can {
            Ok(()) if offer(&self.ledger, &cold).is_ok() => return (cold, Cold::Until(until)),
            Ok(()) => "there is no place with slow memory for it".to_owned(),
            Err(why) => why,
        };
        let text = format!("annotation `cold-start` has no effect: {why}");
        warnings.push(Warning { kind: WarningKind::NoEffect, text });
        (request, Cold::No)
    }

    /// A container has been placed so.
    pub(crate) fn begin_cold(&mut self, id: ContainerId, cold: Cold) {
        let Some(container) = self.containers.get_mut(&id) else { return };
        container.cold = cold;
        if let Cold::Until(time) = cold {
            let text = format!("; starts on slow memory only, until {time:.0}");
            container.decision.outcome.push_str(&text);
        }
    }

    /// As it was before a restart.
    pub(crate) fn set_cold(&mut self, id: ContainerId, cold: Cold) {
        if let Some(container) = self.containers.get_mut(&id) {
            container.cold = cold;
        }
    }

    /// When the next cold start ends.
    pub fn next_warming(&self) -> Option<Timestamp> {
        let times = self.containers.values().filter_map(|it| match it.cold {
            Cold::Until(time) => Some(time),
            Cold::No | Cold::Over => None,
        });
        times.min()
    }

    /// None has longer to go than its pod wants.
    fn bound_cold_starts(&mut self, now: Timestamp) {
        for container in self.containers.values_mut() {
            let Cold::Until(time) = container.cold else { continue };
            let wanted = read_annotations(&container.spec, &self.rules).0.tuning.cold_start;
            let wanted = wanted.and_then(|it| SignedDuration::try_from(it).ok());
            // A container that has lost the annotation has waited long enough.
            let latest = now.checked_add(wanted.unwrap_or_default()).unwrap_or(now);
            container.cold = Cold::Until(time.min(latest));
        }
    }

    /// Ends the cold starts that have lasted long enough.
    pub(crate) fn end_cold_starts(&mut self, now: Timestamp, step: &mut Step) {
        if self.next_warming().is_none() {
            return;
        }
        self.bound_cold_starts(now);
        if self.next_warming().is_none_or(|it| it > now) {
            return;
        }
        let due = self.containers.iter().filter(|(_, it)| match it.cold {
            Cold::Until(time) => time <= now,
            Cold::No | Cold::Over => false,
        });
        let due: Vec<ContainerId> = due.map(|(id, _)| *id).collect();
        for id in due {
            self.end_cold_start(id, step);
        }
    }

    fn end_cold_start(&mut self, id: ContainerId, step: &mut Step) {
        let held = self.ledger.allocation(id);
        let before = held.map(|held| self.place_before(id, held)).unwrap_or_default();
        let from = held.map(|held| held.mems.to_string()).unwrap_or_default();
        let Some(container) = self.containers.get(&id) else { return };
        let (request, _) = self.request(id, &container.spec);
        let to = self.ledger.end_cold_start(id, &request.wishes.memory);
        let Some(container) = self.containers.get_mut(&id) else { return };
        // Also for one that has lost its place, so that this is not due for ever.
        container.cold = Cold::Over;
        let Some(to) = to else { return };
        container.touched = self.steps;
        let moved = Moved {
            id,
            by: By::ColdStart,
            before,
            what: What::Mems,
            from,
            to: to.to_string(),
            why: "because its cold start is over".to_owned(),
        };
        self.emit(Change::Moved(moved), step);
    }
}
