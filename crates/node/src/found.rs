//! Idle siblings of containers that were found running. In: containers that a sync has adopted. Out: the other threads of their cores, kept idle as far as no
//! container owns them.
//!
//! They come after all owners have their CPUs: what runs goes before what is only to stay idle.

use std::collections::BTreeSet;
use std::sync::Arc;

use bayplan_allocator::{Allocation, ContainerId, Part, Siblings, siblings_of};

use crate::change::Change;
use crate::container::warning_notes;
use crate::event::Step;
use crate::state::NodeState;

impl NodeState {
    /// Leaves siblings idle for those that ask for it and were not `known` before.
    pub(crate) fn leave_idle_for_found(&mut self, known: &BTreeSet<ContainerId>, step: &mut Step) {
        let found = self.containers.ids().copied().filter(|id| !known.contains(id));
        for id in found.collect::<Vec<_>>() {
            self.leave_idle(id, step);
        }
    }

    fn leave_idle(&mut self, id: ContainerId, step: &mut Step) -> Option<()> {
        let spec = Arc::clone(&self.containers.get(&id)?.spec);
        let (request, _) = self.request(id, &spec);
        let held = self.ledger.allocation(id)?;
        let is_alone = matches!(held.terms.part, Part::Alone | Part::Holder);
        let idle = siblings_of(self.ledger.pools(), &held.exclusive);
        if request.wishes.cpus.siblings != Siblings::Idle || !is_alone || idle.is_empty() {
            return None;
        }
        let with_idle = Allocation { idle, ..held.clone() };
        if let Some(why) = self.over(&request, &spec, &with_idle) {
            let mut warnings = Vec::new();
            self.with_usual_siblings(&request, &why, &mut warnings);
            step.notes.extend(warning_notes(&spec, &warnings));
            return None;
        }
        let held = self.ledger.lift(id)?;
        match self.ledger.adopt(id, with_idle) {
            Ok(()) => self.emit(Change::Amended(id), step),
            // The last CPUs that others could share.
            Err(_) => self.put_back(id, held, step),
        }
        Some(())
    }
}
