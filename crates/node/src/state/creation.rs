//! How a creation came to an end, and which container of the runtime it has made.

use bayplan_allocator::ContainerId;
use bayplan_types::Pinning;
use bayplan_workload::{CreateOutcome, Ticket};
use jiff::Timestamp;

use super::NodeState;
use crate::change::Change;
use crate::container::Phase;
use crate::event::{Answer, Step};

impl NodeState {
    pub(super) fn create_ended(
        &mut self,
        ticket: Ticket,
        outcome: CreateOutcome,
        now: Timestamp,
    ) -> Step {
        let mut step = Step::new(Answer::Done);
        let Some((id, told)) = self.containers.end_creation(ticket) else {
            // Passed through without a decision: whatever came of it is found by asking the runtime.
            step.sync_soon = !matches!(outcome, CreateOutcome::Failed);
            return step;
        };
        let is_retried = self.containers.being_created().any(|other| other == id);
        let Some(container) = self.containers.get_mut(&id) else { return step };
        container.touched = self.steps;
        let has_doubt = container.has_doubt;
        match outcome {
            // Both creations of the same container have succeeded: the later one is found by asking the runtime.
            CreateOutcome::Created { id: other, .. }
                if container.runtime_id.as_ref().is_some_and(|known| *known != other) =>
            {
                step.sync_soon = true;
            }
            CreateOutcome::Created { id: runtime_id, pinned } => {
                let is_moved = self.release_namesake(id, &runtime_id, now, &mut step);
                // After a doubt the runtime may answer with the container of an earlier call, which was told something else.
                let is_told = pinned && !is_moved && !has_doubt;
                let told = if is_told { told } else { Pinning::default() };
                self.bind(id, &runtime_id, told);
                self.emit(Change::Created { id, runtime_id, at: now }, &mut step);
            }
            // Another creation of the same container has succeeded.
            _ if container.runtime_id.is_some() => {}
            CreateOutcome::Failed if !container.has_doubt => {
                self.release(id, "the runtime did not create it", now, &mut step);
            }
            CreateOutcome::Failed | CreateOutcome::Unknown => {
                container.has_doubt = true;
                container.doubted_at = Some(now);
                // While another creation of it is under way, that cannot be told.
                container.phase = if is_retried { Phase::Creating } else { Phase::Unconfirmed };
                step.sync_soon = !is_retried;
            }
        }
        step
    }

    /// A creation that was given up, and repeated with other resources, may seem to have made the container: there is only one.
    /// True where it did, and so the container may run where that one was placed.
    pub(super) fn release_namesake(
        &mut self,
        id: ContainerId,
        runtime_id: &str,
        now: Timestamp,
        step: &mut Step,
    ) -> bool {
        let other = self.containers.id_of(runtime_id).filter(|other| *other != id);
        if let Some(other) = other {
            self.release(other, "another creation made it", now, step);
            self.departed.note_there(runtime_id);
        }
        other.is_some()
    }

    pub(crate) fn bind(&mut self, id: ContainerId, runtime_id: &str, told: Pinning) {
        if self.containers.bind(id, runtime_id) {
            self.departed.note_startable(runtime_id);
            self.told.note(runtime_id, told);
        }
    }
}
