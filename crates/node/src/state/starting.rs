//! What happens to a container between its creation and its first instruction.
//!
//! The runtime is asked to start it, and meanwhile another container comes for which it has to let go of CPUs. So a container that was written to
//! before it ran is written to once more when it does.

use bayplan_types::Pinning;
use jiff::Timestamp;

use crate::change::Change;
use crate::container::{Container, Phase};
use crate::event::{Answer, Step};
use crate::state::NodeState;

impl NodeState {
    /// The step that changed a container last; `None` where it is not bayplan's.
    pub(super) fn unchanged_since(&self, runtime_id: &str) -> Option<u64> {
        self.containers.named(runtime_id).map(|container| container.touched)
    }

    /// Answered with the step that changed the container last. A creation that ended in doubt has made it, where that is the id that it was to have.
    pub(super) fn starting(&mut self, runtime_id: &str, now: Timestamp) -> Step {
        let mut step = Step::new(Answer::Done);
        let is_due = |it: &Container| {
            it.phase == Phase::Unconfirmed && it.spec.due_id.as_deref() == Some(runtime_id)
        };
        let due = self.containers.iter().find(|(_, it)| is_due(it)).map(|(id, _)| *id);
        if let Some(id) = due.filter(|_| self.containers.id_of(runtime_id).is_none()) {
            let created = Change::Created { id, runtime_id: runtime_id.to_owned(), at: now };
            self.emit(created, &mut step);
            // Whether the answer that told it where to run has arrived is not known, so it is told again.
            self.bind(id, runtime_id, Pinning::default());
            if let Some(container) = self.containers.get_mut(&id) {
                container.touched = self.steps;
            }
        }
        let since = self.unchanged_since(runtime_id);
        // It was made without asking.
        step.sync_soon |= since.is_none();
        step.answer = Answer::Since(since);
        step
    }

    pub(super) fn started(&mut self, runtime_id: &str) -> Step {
        let mut step = Step::new(Answer::Done);
        let steps = self.steps;
        if let Some(container) = self.containers.named_mut(runtime_id) {
            container.touched = steps;
            step.answers_after_plan = self.runs(runtime_id);
        }
        // It was not expected any more, and its CPUs may have been given away.
        step.sync_soon |= self.departed.note_startable(runtime_id);
        step
    }

    /// Whether what it was told last has to be repeated.
    pub(crate) fn runs(&mut self, runtime_id: &str) -> bool {
        let Some(container) = self.containers.named_mut(runtime_id) else { return false };
        container.phase = Phase::Running;
        let is_doubtful = std::mem::take(&mut container.is_rewritten);
        if is_doubtful {
            self.told.doubt(runtime_id);
        }
        is_doubtful
    }

    pub(super) fn note_rewritten(&mut self, runtime_id: &str) {
        if let Some(container) = self.containers.named_mut(runtime_id) {
            container.is_rewritten |= container.phase == Phase::Created;
        }
    }
}
