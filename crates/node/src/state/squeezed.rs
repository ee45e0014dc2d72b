//! Containers that share CPUs and have fewer of them because a neighbour came or grew. In: the writes of a step. Out: an entry in the history of each of them, and a
//! word in its decision for `explain`.

use std::collections::BTreeSet;

use bayplan_allocator::ContainerId;
use bayplan_types::Pinning;

use crate::change::Change;
use crate::event::Step;
use crate::history::Kind;
use crate::state::NodeState;

impl NodeState {
    /// To be called after the writes of the step are planned. What an earlier arrival had taken is no longer told of a container if its CPUs change
    /// again, for whatever reason.
    pub(super) fn note_squeezed(&mut self, step: &mut Step) {
        let came = step
            .history
            .iter()
            .find(|entry| matches!(entry.kind, Kind::Placed | Kind::Adopted | Kind::Resized));
        let came = came.and_then(|entry| entry.who.clone());
        let writes = step.plan.writes.iter();
        let changed: Vec<(ContainerId, Pinning, Pinning)> = writes
            .filter_map(|write| {
                let id = self.containers.id_of(&write.container)?;
                Some((id, write.old.clone()?, write.new.clone()))
            })
            .collect();
        let moved = step.history.iter().filter(|entry| entry.kind == Kind::Moved);
        let moved: BTreeSet<u64> = moved.filter_map(|entry| entry.who.as_ref()?.id).collect();
        for (id, old, new) in changed {
            let shares = self.ledger.allocation(id).is_some_and(|it| it.exclusive.is_empty());
            if !shares || old.cpus.is_empty() || new.cpus.is_empty() || old.cpus == new.cpus {
                continue;
            }
            let by = came.as_ref().filter(|it| it.id != Some(id.0));
            let Some(came) = by.filter(|_| new.cpus.len() < old.cpus.len()) else {
                if let Some(container) = self.containers.get_mut(&id) {
                    container.decision.note_squeeze(None);
                }
                continue;
            };
            let name = format!("{}/{}/{}", came.namespace, came.pod, came.container);
            let why = format!("because of {name}");
            if let Some(container) = self.containers.get_mut(&id) {
                let told = format!("{} to {} {why}", old.cpus, new.cpus);
                container.decision.note_squeeze(Some(&told));
            }
            if !moved.contains(&id.0) {
                let Some(held) = self.ledger.allocation(id) else { continue };
                let before = self.place_of(held, old);
                self.emit(Change::Squeezed { id, before, why }, step);
            }
        }
    }
}
