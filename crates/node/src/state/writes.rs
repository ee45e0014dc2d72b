//! What came of writes: where a container is after one that failed is not known, so that the next plan repeats it. One that was withheld has changed nothing.

use jiff::Timestamp;

use super::NodeState;
use crate::change::Change;
use crate::container::{Container, Phase};
use crate::event::{Answer, FailedWrite, Step};

impl NodeState {
    /// These have what they were told after an update of theirs had failed.
    pub(super) fn writes_landed(&mut self, landed: &[String]) -> Step {
        for container in landed {
            self.told.note_landed(container);
        }
        Step::new(Answer::Done)
    }

    /// An answer that told the runtime where these are to run may not have arrived: it is told again.
    pub(super) fn told_in_doubt(&mut self, told: &[String]) -> Step {
        for container in told.iter().filter(|it| self.containers.id_of(it).is_some()) {
            self.told.doubt(container);
        }
        Step::new(Answer::Done)
    }

    /// Creations in doubt that were asked about by the runtime's id are over: the next view of the runtime counts, and not one that was begun before.
    pub(super) fn reconnected(&mut self) -> Step {
        let is_doubtful =
            |it: &&mut Container| it.phase == Phase::Unconfirmed && it.spec.due_id.is_some();
        for container in self.containers.values_mut().filter(is_doubtful) {
            container.doubted_at = None;
            container.touched = self.steps;
        }
        Step { sync_soon: true, ..Step::new(Answer::Done) }
    }

    pub(super) fn writes_failed(&mut self, failed: &[FailedWrite], now: Timestamp) -> Step {
        let mut step = Step::new(Answer::Done);
        for write in failed {
            self.told.note_failed(write);
            match self.containers.id_of(&write.container) {
                Some(id) if write.is_gone => {
                    self.release(id, "the runtime no longer knows it", now, &mut step);
                }
                Some(id) => {
                    self.told.keep_had(&write.container);
                    let is_withheld = write.withheld.is_some();
                    self.emit(Change::WriteFailed { id, is_withheld }, &mut step);
                    if let Some(container) = self.containers.get_mut(&id) {
                        container.touched = self.steps;
                    }
                    step.sync_soon = true;
                }
                None => {}
            }
        }
        step
    }
}
