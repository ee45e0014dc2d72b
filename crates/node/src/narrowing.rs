//! Gives containers fewer memory nodes. In: the state, what the configuration allows. Out: which containers could do with fewer, for people; and at
//! most one narrowing per sync, in the ledger and told by the step.
//!
//! As with joining holes: it is due after a container has left, and waits for a sync that finds the node at rest, because the kernel moves the pages
//! while the container runs. The next is for the next sync, so that only one container is slowed down at a time.

use bayplan_allocator::{ContainerId, Narrowing, plan_narrowing};
use bayplan_types::Bytes;

use crate::event::{Note, Step};
use crate::history::{By, Place};
use crate::record::Record;
use crate::state::NodeState;

/// Whether memory nodes are taken away from running containers, and whether that is due.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Narrower {
    is_enabled: bool,
    /// A container has left since none could do with fewer nodes.
    is_due: bool,
}

/// For people: at most how much memory the kernel has to move.
pub(crate) fn render_moved(moves_memory: Option<Bytes>) -> String {
    match moves_memory {
        Some(bytes) => format!("moving at most {bytes}"),
        None => "moving any amount of memory".to_owned(),
    }
}

impl Narrower {
    /// From now on; what is due stays due where anything is taken away at all.
    pub(crate) fn reconfigure(&mut self, is_enabled: bool) {
        *self = Narrower { is_enabled, is_due: self.is_due && is_enabled };
    }

    /// Whether there is something to narrow, perhaps.
    pub(crate) fn is_due(&self) -> bool {
        self.is_due
    }
}

impl NodeState {
    /// Memory nodes are taken away from running containers that can do with fewer.
    pub fn with_narrowing(mut self, is_enabled: bool) -> NodeState {
        self.narrower.is_enabled = is_enabled;
        self
    }

    /// Which containers could do with fewer memory nodes now, the best first.
    pub(crate) fn narrowings(&self) -> Vec<Narrowing> {
        let request_of =
            |id: ContainerId| Some(self.request(id, &self.containers.get(&id)?.spec).0);
        plan_narrowing(&self.ledger, request_of)
    }

    /// How many containers could do with fewer memory nodes.
    pub fn narrowable_count(&self) -> usize {
        self.narrowings().len()
    }

    /// What is due is done by the next sync that finds the node at rest, so one is asked for when a container has left or a creation has ended.
    pub(crate) fn note_room(&mut self, step: &mut Step, is_creation_over: bool) {
        let has_left = step.records.iter().any(|record| matches!(record, Record::Released { .. }));
        self.narrower.is_due |= has_left && self.narrower.is_enabled;
        let is_due = self.is_placing() && self.narrower.is_due;
        step.sync_soon |= is_due && (has_left || is_creation_over);
    }

    /// Narrows one container, if that is due.
    pub(crate) fn narrow_one(&mut self, step: &mut Step) {
        if !self.is_placing() || !self.narrower.is_due || !self.is_at_rest() {
            return;
        }
        let plan = self.narrowings();
        self.narrower.is_due = plan.len() > 1;
        let Some(first) = plan.first() else { return };
        let held = self.ledger.allocation(first.container);
        let before = held.map(|held| self.place_before(first.container, held)).unwrap_or_default();
        if let Err(error) = self.ledger.narrow(first) {
            step.notes.push(Note::Failure { kind: "not_narrowed", message: error.to_string() });
            return;
        }
        self.note_narrowing(first, before, step);
    }

    /// Told like any other change: journal, log, metric and `explain`.
    fn note_narrowing(&mut self, made: &Narrowing, before: Place, step: &mut Step) {
        let Some(container) = self.containers.get_mut(&made.container) else { return };
        let (from, to) = (made.from.to_string(), made.to.to_string());
        let why = format!("because fewer will do, {}", render_moved(made.moves_memory));
        container.decision.note_move(&format!("memory nodes {from}"), &to, &why);
        container.touched = self.steps;
        let container = container.full_name();
        step.history.push(self.relocation(made.container, By::Narrowing, before, &why));
        step.notes.push(Note::Narrowed { container, from, to, why });
        step.records.extend(self.placed_record(made.container));
    }
}
