//! The sets of containers were changed past the runtime. In: what the kernel's files say. Out: the same sets once more, through the runtime.

use std::collections::BTreeMap;

use bayplan_types::Pinning;

use crate::change::Change;
use crate::container::Phase;
use crate::event::{Answer, Step};
use crate::state::NodeState;

impl NodeState {
    /// A container that has changed since `basis`, or is just being changed, is told anyway.
    pub(super) fn sets_changed(&mut self, basis: u64, found: BTreeMap<String, Pinning>) -> Step {
        let mut step = Step::new(Answer::Done);
        for (runtime_id, found) in found {
            let Some(id) = self.containers.id_of(&runtime_id) else { continue };
            let Some(container) = self.containers.get(&id) else { continue };
            // A write that has failed is no other's doing, and is repeated anyway.
            if self.told.get(&runtime_id).is_none() {
                continue;
            }
            let is_known = container.touched > basis
                || container.phase != Phase::Running
                || !container.is_settled();
            let wanted = self.pinning(id).filter(|_| !is_known && !self.is_restored());
            if let Some(why) = wanted.and_then(|wanted| self.differs(&found, &wanted)) {
                self.emit(Change::SetsChanged { id, why }, &mut step);
                self.told.note(&runtime_id, found);
            }
        }
        step
    }
}
