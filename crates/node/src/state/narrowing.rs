//! Narrowing in the state: which containers could do with fewer memory nodes, and at most one narrowing per sync, told like any other change.

use bayplan_allocator::{ContainerId, Narrowing, plan_narrowing};

use super::NodeState;
use crate::change::{Change, Moved, What};
use crate::event::Step;
use crate::history::{By, Place};
use crate::narrowing::render_moved;
use crate::record::Record;

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
            step.fail("not_narrowed", error.to_string());
            return;
        }
        self.note_narrowing(first, before, step);
    }

    fn note_narrowing(&mut self, made: &Narrowing, before: Place, step: &mut Step) {
        let Some(container) = self.containers.get_mut(&made.container) else { return };
        container.touched = self.steps;
        let moved = Moved {
            id: made.container,
            by: By::Narrowing,
            before,
            what: What::Mems,
            from: made.from.to_string(),
            to: made.to.to_string(),
            why: format!("because fewer will do, {}", render_moved(made.moves_memory)),
        };
        self.emit(Change::Moved(moved), step);
    }
}
