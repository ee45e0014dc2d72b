//! A container that has ended gives everything back.

use bayplan_allocator::{ContainerId, Part};
use jiff::Timestamp;

use super::NodeState;
use crate::change::Change;
use crate::container::Phase;
use crate::decision::{End, Gone};
use crate::event::{Answer, Step};

impl NodeState {
    pub(super) fn ended(&mut self, runtime_id: &str, why: &str, now: Timestamp) -> Step {
        let mut step = Step::new(Answer::Done);
        match self.containers.id_of(runtime_id) {
            Some(id) => self.end(id, why, now, &mut step),
            None => {
                self.departed.note_ended(runtime_id, self.steps);
                // It may be what a creation without an answer has made.
                let is_anybodys = self.containers.values().any(|it| it.runtime_id.is_none());
                if is_anybodys && self.departed.note_unstarted(runtime_id) {
                    let runtime_id = runtime_id.to_owned();
                    self.emit(Change::Unstarted { runtime_id }, &mut step);
                }
            }
        }
        step
    }

    /// Releases what kubelet has ended, and so will not start any more.
    pub(super) fn end(&mut self, id: ContainerId, why: &str, now: Timestamp, step: &mut Step) {
        let unstarted = self.containers.get(&id).filter(|it| it.phase == Phase::Created);
        if let Some(runtime_id) = unstarted.and_then(|it| it.runtime_id.clone()) {
            self.departed.note_unstarted(&runtime_id);
            self.emit(Change::Unstarted { runtime_id }, step);
        }
        self.release(id, why, now, step);
    }

    pub(crate) fn release(&mut self, id: ContainerId, why: &str, now: Timestamp, step: &mut Step) {
        let (names, before) = (self.names_of(id), self.place_now(id));
        self.refusals_over(id, "has no container any more", step);
        let Some((names, container)) = names.zip(self.containers.remove(id)) else { return };
        let heir = self.heir_of(id);
        self.ledger.release(id);
        self.leave_group(id);
        if let Some(heir) = heir {
            self.emit(Change::Amended(heir), step);
        }
        self.unsettle(&container.spec);
        if let Some(runtime_id) = &container.runtime_id {
            self.told.remove(runtime_id);
            self.departed.note_ended(runtime_id, self.steps);
            step.forgiven.push(runtime_id.clone());
        }
        self.emit(Change::Released { id, names, before, why, at: now }, step);
        let end = Some(End { at: now, why: why.to_owned() });
        self.remember(Gone { name: container.full_name(), decision: container.decision, end });
    }

    /// The one that takes over the exclusive CPUs that this one holds for its pod.
    pub(super) fn heir_of(&self, id: ContainerId) -> Option<ContainerId> {
        let terms = self.ledger.allocation(id)?.terms;
        (terms.part == Part::Holder).then(|| self.ledger.joined_of(terms.owner).next()).flatten()
    }
}
