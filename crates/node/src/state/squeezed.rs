//! Containers that share CPUs and have fewer of them because a neighbour came or grew. In: the writes of a step. Out: an entry in the history of each of them, and a
//! word in its decision for `explain`.

use bayplan_allocator::ContainerId;
use bayplan_types::Pinning;

use crate::event::Step;
use crate::history::Kind;
use crate::state::NodeState;

impl NodeState {
    /// To be called after the writes of the step are planned.
    pub(super) fn note_squeezed(&mut self, step: &mut Step) {
        let came = step
            .history
            .iter()
            .find(|entry| matches!(entry.kind, Kind::Placed | Kind::Adopted | Kind::Resized));
        let came = came.and_then(|entry| entry.who.clone());
        let Some(came) = came else { return };
        let writes = step.plan.writes.iter();
        let changed: Vec<(ContainerId, Pinning, Pinning)> = writes
            .filter_map(|write| {
                let id = *self.by_runtime_id.get(&write.container)?;
                Some((id, write.old.clone()?, write.new.clone()))
            })
            .collect();
        for (id, old, new) in changed {
            let is_itself = came.id == Some(id.0);
            let shares = self.ledger.allocation(id).is_some_and(|it| it.exclusive.is_empty());
            if is_itself || !shares || old.cpus.is_empty() || new.cpus.is_empty() {
                continue;
            }
            let has_moved = step.history.iter().any(|entry| {
                entry.kind == Kind::Moved
                    && entry.who.as_ref().is_some_and(|it| it.id == Some(id.0))
            });
            let is_narrower = new.cpus.len() < old.cpus.len();
            let name = format!("{}/{}/{}", came.namespace, came.pod, came.container);
            let why = format!("because of {name}");
            if let Some(container) = self.containers.get_mut(&id) {
                let told = is_narrower.then(|| format!("{} to {} {why}", old.cpus, new.cpus));
                container.decision.note_squeeze(told.as_deref());
            }
            if is_narrower && !has_moved {
                let Some(held) = self.ledger.allocation(id) else { continue };
                let before = self.place_of(held, old);
                step.history.push(self.squeezing(id, before, &why));
            }
        }
    }
}
