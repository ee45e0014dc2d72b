//! The one way in which the state changes: an event is taken, and what follows from it is settled.

use std::sync::Arc;

use jiff::Timestamp;

use super::NodeState;
use crate::change::{Change, NodeChange};
use crate::event::{Answer, Event, Step};

impl NodeState {
    /// The one way in which the state changes.
    pub fn step(&mut self, event: Event, now: Timestamp) -> Step {
        self.steps += 1;
        let version = self.ledger.version();
        // What is observed may have changed although the ledger has not.
        let has_observed = matches!(
            &event,
            Event::Synced(_)
                | Event::Resized(..)
                | Event::Started(_)
                | Event::ReadBack(_)
                | Event::Turn(_)
                | Event::SetsChanged(..)
                | Event::ToldInDoubt(_)
        ) || matches!(&event, Event::Colocate(it) if it.lent != self.colocation.lent);
        let is_creation_over = matches!(event, Event::CreateEnded(..));
        let affected = self.affected_by(&event).filter(|_| self.told.is_current());
        self.told.note_current(affected.is_some());
        let mut step = match self.not_yet(&event) {
            Some(answer) => Step::new(answer),
            None => self.take(event, now),
        };
        self.settle_pods(now, &mut step);
        // Containers that come or go have records.
        if affected.is_none() || !step.records.is_empty() {
            self.settle_claims(now, &mut step);
        }
        self.settle_groups(&mut step);
        self.end_cold_starts(now, &mut step);
        // A failed write is repeated with the next change or after the next sync: at once it would fail again.
        if self.ledger.version() != version || !step.records.is_empty() || has_observed {
            self.plan(affected.as_ref(), &mut step);
            self.note_squeezed(&mut step);
            self.note_files(&mut step);
        }
        self.note_holes(&mut step, is_creation_over);
        self.note_room(&mut step, is_creation_over);
        step.answers_after_plan |= self.corrects_new(&step);
        NodeState::finish_entries(&mut step, now);
        step
    }

    /// The answer to a call that cannot be decided before the runtime has told what runs.
    pub(super) fn not_yet(&self, event: &Event) -> Option<Answer> {
        let is_final = match event {
            Event::TryAdmit(..) | Event::TryResize(..) => false,
            Event::Admit(..) | Event::Resize(..) => true,
            _ => return None,
        };
        // Nothing is placed then.
        if self.is_restored() {
            return None;
        }
        self.known.answer(is_final)
    }

    pub(super) fn take(&mut self, event: Event, now: Timestamp) -> Step {
        match event {
            Event::PodStarted(pod) => self.pod_started(&pod, now),
            Event::PodEnded(pod_id) => self.pod_ended(&pod_id, now),
            Event::TryAdmit(_, container) | Event::Admit(_, container) if self.is_restored() => {
                self.pass(&container, now)
            }
            Event::PodResized(pod_id, needs) => self.pod_resized(&pod_id, needs),
            Event::PodsSeen(pods, asked) => self.pods_seen(&pods, asked, now),
            Event::TryAdmit(ticket, container) => self.admit(ticket, *container, false, now),
            Event::Admit(ticket, container) => self.admit(ticket, *container, true, now),
            Event::PoolEnvironment(ticket) => {
                let id = self.containers.created_by(ticket);
                Step::new(Answer::PoolEnvironment(id.and_then(|id| self.pool_environment(id))))
            }
            Event::SchedulingClass(ticket) => {
                let id = self.containers.created_by(ticket);
                let name = id.and_then(|id| self.scheduling_class_named(id));
                Step::new(Answer::SchedulingClass(name))
            }
            Event::CreateEnded(ticket, outcome) => self.create_ended(ticket, outcome, now),
            Event::Starting(id) => self.starting(&id, now),
            Event::Started(id) => self.started(&id),
            Event::Ended(id) => self.ended(&id, "stopped or removed", now),
            Event::Exited(id, how) => self.ended(&id, &how, now),
            Event::ResizeAsked(id, update) => {
                Step::new(Answer::PodUid(self.resize_asked(&id, update, now)))
            }
            Event::TryResize(id, resources) | Event::Resize(id, resources)
                if self.is_restored() =>
            {
                self.pass_resize(&id, resources, now)
            }
            Event::TryResize(id, resources) => self.resize(&id, resources, false, now),
            Event::Resize(id, resources) => self.resize(&id, resources, true, now),
            Event::Resized(id, outcome) => self.resized(&id, outcome, now),
            Event::WritesFailed(failed) => self.writes_failed(&failed, now),
            Event::HugePagesRead(now) => self.huge_pages_read(&now),
            Event::WritesLanded(landed) => self.writes_landed(&landed),
            Event::ToldInDoubt(told) => self.told_in_doubt(&told),
            Event::Reconnected => self.reconnected(),
            Event::MachineChanged(machine) => self.machine_changed(*machine, now),
            Event::ConfigChanged(config) => self.config_changed(*config, now),
            Event::ConfigTakenBack(config, why) => self.config_taken_back(*config, why, now),
            Event::PreviewConfig(config) => self.preview_config(*config, now),
            Event::PreviewStatus(config) => self.preview_status(*config, now),
            Event::SyncStarted => Step::new(self.sync_basis()),
            Event::Synced(view) => self.synced(&view, now),
            Event::SetMode(mode) => self.set_mode(mode, now),
            Event::PlanMode(mode) => Step::new(Answer::ModePlan(Box::new(self.plan_mode(mode)))),
            Event::ReadBack(view) => self.read_back(&view),
            Event::SetsChanged(basis, found) => self.sets_changed(basis, found),
            Event::RuntimeLost(why) => self.only(Change::Node(NodeChange::RuntimeLost(why))),
            Event::RuntimeBack => self.only(Change::Node(NodeChange::RuntimeBack)),
            Event::PauseRebalance(is_paused) => self.pause_rebalance(is_paused),
            Event::Turn(turned) => self.turn(turned),
            Event::Colocate(colocation) => self.colocate(colocation),
            Event::Used(used) => self.containers_used(&used, now),
            Event::VectorsSeen(read) => self.vectors_seen(&read, now),
            Event::Told(kind, id, why, about) => {
                self.only(Change::Rebalanced { kind, id, why, about })
            }
            Event::Ping => Step::new(Answer::Done),
            Event::Status => Step::new(Answer::Status(Box::new(self.status()))),
            Event::Occupancy => Step::new(Answer::Occupancy(Arc::new(self.occupancy()))),
            Event::ExclusiveCpus(id) => Step::new(Answer::ExclusiveCpus(self.exclusive_cpus(&id))),
            Event::Explain(name) => Step::new(Answer::Explanations(self.explain(&name))),
        }
    }
}
