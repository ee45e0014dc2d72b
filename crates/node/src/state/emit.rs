//! What follows from a change: the journal's record, the history's entry and the log's note.

use bayplan_allocator::ContainerId;

use super::NodeState;
use super::entries::departure;
use crate::change::{Change, GroupChange, Moved, NodeChange, What};
use crate::container::full_name;
use crate::event::{Answer, Note, Step};
use crate::groups::GroupForm;
use crate::history::{By, Entry, Kind};
use crate::record::Record;

/// What journal, history and log are told of a change.
type Views = (Option<Record>, Option<Entry>, Option<Note>);

impl NodeState {
    /// Tells journal, history and log of what has happened; and `explain`, where a container was moved.
    pub(crate) fn emit(&mut self, change: Change<'_>, step: &mut Step) {
        let (record, entry, note) = self.views(change);
        step.records.extend(record);
        step.history.extend(entry);
        step.notes.extend(note);
    }

    /// The same for a container of which the journal is told when the occasion is over: where its whole pod counts anew, a resize is undone, or the node has
    /// started.
    pub(crate) fn emit_unjournaled(&mut self, change: Change<'_>, step: &mut Step) {
        let (_, entry, note) = self.views(change);
        step.history.extend(entry);
        step.notes.extend(note);
    }

    /// A step in which only this has happened.
    pub(crate) fn only(&mut self, change: Change<'_>) -> Step {
        let mut step = Step::new(Answer::Done);
        self.emit(change, &mut step);
        step
    }

    fn views(&mut self, change: Change<'_>) -> Views {
        match change {
            Change::Placed(id) => {
                (self.placed_record(id), self.arrival(id, None), self.placed_note(id))
            }
            Change::Adopted { id, found, how } => {
                let container = self.full_name_of(id);
                let note = Note::Adopted { container, how };
                (self.placed_record(id), self.arrival(id, Some(found)), Some(note))
            }
            Change::Refused { spec, decision, resized, why } => {
                let note = Note::Refused { container: full_name(spec), why };
                (None, Some(self.refusal(spec, decision, resized)), Some(note))
            }
            Change::Created { id, runtime_id, at } => {
                (Some(Record::Created { id: id.0, runtime_id, at }), None, None)
            }
            Change::Unstarted { runtime_id } => {
                (Some(Record::Unstarted { runtime_id }), None, None)
            }
            Change::Resized { id, before, update } => {
                (self.placed_record(id), self.resizing(id, before, update), self.placed_note(id))
            }
            Change::ResizeUndone { id, lacking, why } => {
                let message = format!("{}: {why}", self.full_name_of(id));
                let note = Note::Failure { kind: "resize_failed", message };
                (self.placed_record(id), self.undoing(id, lacking), Some(note))
            }
            Change::PodResized { id, needs } => {
                (self.placed_record(id), self.pod_resizing(id, needs), None)
            }
            Change::Annotated { id, changes } => {
                (self.placed_record(id), self.annotating(id, changes), None)
            }
            Change::Moved(moved) => self.moved_views(moved),
            Change::PlacedAnew { id, by, before, why } => {
                // Of a container that was placed when all were, the log was told then.
                let note = self.placed_note(id).filter(|_| by == By::Unasked);
                (self.placed_record(id), Some(self.relocation(id, by, before, &why)), note)
            }
            Change::Amended(id) => (self.placed_record(id), None, None),
            Change::Squeezed { id, before, why } => {
                (None, Some(self.squeezing(id, before, &why)), None)
            }
            Change::WriteFailed { id, is_withheld } => {
                (None, self.failed_write(id, is_withheld), None)
            }
            Change::SetsChanged { id, why } => (None, self.changed_by_others(id, &why), None),
            Change::Rebalanced { kind, id, why, about } => {
                let (who, proposal) = (self.names_of(id), Some(about));
                (None, Some(Entry { who, why, proposal, ..Entry::new(kind) }), None)
            }
            Change::Released { id, names, before, why, at } => {
                let (container, why) = (names.full_name(), why.to_owned());
                let record = Record::Released { id: id.0, why: why.clone(), at };
                let entry = departure(names, before, why.clone());
                (Some(record), Some(entry), Some(Note::Released { container, why }))
            }
            Change::Group(change) => self.group_views(change),
            Change::Node(change) => self.node_views(change),
        }
    }

    fn moved_views(&mut self, moved: Moved) -> Views {
        let Moved { id, by, before, what, from, to, why } = moved;
        if let Some(container) = self.containers.get_mut(&id) {
            container.decision.note_move(&what.named(&from), &to, &why);
        }
        let record = self.placed_record(id);
        let entry = self.relocation(id, by, before, &why);
        let container = self.full_name_of(id);
        let note = match (what, by) {
            // Shared CPUs come and go all the time.
            (What::Pool, _) => None,
            (What::Cpus, _) => Some(Note::Moved { container, by, from, to, why }),
            (What::Mems, By::ColdStart) => Some(Note::Warmed { container, from, to }),
            (What::Mems, _) => Some(Note::Narrowed { container, from, to, why }),
        };
        (record, Some(entry), note)
    }

    fn group_views(&self, change: GroupChange) -> Views {
        let ended = |id: ContainerId| Some(Record::GroupEnded { id: id.0 });
        match change {
            GroupChange::Fitted(id) => {
                let instance = self.groups.instances.get(&id);
                let cpus = self.ledger.group_cpus(id).to_string();
                let note = instance.map(|it| Note::GroupChanged { group: it.name(), cpus });
                (self.group_record(id), None, note)
            }
            GroupChange::Amended(id) => (self.group_record(id), None, None),
            GroupChange::Ended { id, name } => {
                let note = Note::GroupChanged { group: name, cpus: String::new() };
                (ended(id), None, Some(note))
            }
            GroupChange::Lost { id, name } => {
                let message = format!("the group {name} is over: there are no CPUs for it");
                (ended(id), None, Some(Note::Failure { kind: "group", message }))
            }
            GroupChange::Retired(id) => (ended(id), None, None),
        }
    }

    fn group_record(&self, id: ContainerId) -> Option<Record> {
        let instance = self.groups.instances.get(&id)?;
        Some(Record::Group(Box::new(GroupForm::new(id, instance))))
    }

    fn node_views(&self, change: NodeChange<'_>) -> Views {
        let entry = |kind, why| Some(Entry { why, ..Entry::new(kind) });
        match change {
            NodeChange::Mode { from, to, at } => {
                let why = format!("{} -> {}", from.name(), to.name());
                let record = Record::Mode { mode: to, at };
                (Some(record), entry(Kind::Mode, why), Some(Note::ModeChanged { from, to }))
            }
            NodeChange::RebalancePaused(is_paused) => {
                let word = if is_paused { "paused" } else { "resumed" };
                let why = format!("the rebalancer was {word}");
                (Some(Record::RebalancePaused { is_paused }), entry(Kind::Mode, why), None)
            }
            NodeChange::Machine => (Some(self.machine_record()), Some(self.machine_entry()), None),
            NodeChange::MachineNamed => (Some(self.machine_record()), None, None),
            NodeChange::Configured { reserved, is_taken_back } => {
                (None, Some(self.configuring(reserved, is_taken_back)), None)
            }
            NodeChange::Looked => (None, entry(Kind::Looked, String::new()), None),
            NodeChange::RuntimeLost(why) => (None, entry(Kind::RuntimeLost, why), None),
            NodeChange::RuntimeBack => (None, entry(Kind::RuntimeBack, String::new()), None),
        }
    }
}
