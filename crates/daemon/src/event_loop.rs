//! The one task that owns the state. In: events from a bounded queue. Out: records on disk, then writes at the runtime, then answers.
//!
//! Events that arrive together share one write to the journal. The history is handed to a task of its own, for which no caller waits. Plans go to a
//! second task, the writer, in the order in which they were made; an answer that must wait for its plan travels with it, so no container is told of a
//! CPU before its old owner was told to let go. Where the kernel can make all others let go, calls of the front end are answered then
//! (`early_answers.rs`).

use std::sync::Arc;
use std::time::Duration;

use bayplan_node::event::{Answer, Event, Note, Step};
use bayplan_node::history::Entry;
use bayplan_node::record::Record;
use bayplan_node::state::NodeState;
use jiff::Timestamp;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::early_answers::{Early, EarlyAnswers};
use crate::enforcer::Enforcement;
use crate::feed::Feed;
use crate::health::Health;
use crate::history_writer::HistoryWriter;
use crate::inbox::{Envelope, Events, Look, Looks};
use crate::journal_writer::JournalWriter;
use crate::known_occupancy::KnownOccupancy;
use crate::metrics::Metrics;
use crate::prober::Sightings;
use crate::runtime_writer::{AfterPlan, Batch};
use crate::unconfirmed::Unconfirmed;

/// Events that share one write to the journal.
const BATCH_MAX: usize = 64;

/// After so long at most the machine's clock is looked at again.
const CLOCK_STEP: Duration = Duration::from_secs(30);

/// What the loop works on.
pub(crate) struct EventLoop {
    pub(crate) state: NodeState,
    pub(crate) journal: JournalWriter,
    pub(crate) history_writer: HistoryWriter,
    pub(crate) feed: Feed,
    /// Unbounded: each batch comes from an event, and the source of events that matter waits for the batch.
    pub(crate) writer: mpsc::UnboundedSender<Batch>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) sync_soon: Arc<Notify>,
    /// Where calls of the front end must not wait for the runtime, answers do not travel behind their plans.
    pub(crate) unconfirmed: Unconfirmed,
    /// For calls that can.
    pub(crate) early_answers: EarlyAnswers,
    /// Kernel files may have to be written.
    pub(crate) enforcement: Enforcement,
    /// Probes watch the containers that are there.
    pub(crate) sightings: Sightings,
    /// From HTTP.
    pub(crate) looks: Looks,
    /// Asked for by all tasks that read counters and kernel files.
    pub(crate) occupancy: KnownOccupancy,
}

impl EventLoop {
    /// Runs until `stop`, and then until every event that was sent before is dealt with.
    pub(crate) async fn run(mut self, mut events: Events, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        self.metrics.show(&self.state, self.journal.bytes());
        self.health.set_journal_behind(self.journal.is_behind());
        self.metrics.show_narrowable(self.state.narrowable_count());
        self.enforcement.huge_page_users.publish(&self.state);
        let mut warming = self.state.next_warming();
        loop {
            let count = tokio::select! {
                count = events.0.recv_many(&mut batch, BATCH_MAX) => count,
                () = reached(warming) => {
                    // Any step does what is due.
                    batch.push(Envelope { event: Event::Ping, answer: oneshot::channel().0 });
                    1
                }
                Some(look) = self.looks.next() => {
                    self.show(look);
                    continue;
                }
                () = stop.cancelled(), if !events.0.is_closed() => {
                    events.0.close();
                    continue;
                }
            };
            if count == 0 {
                return;
            }
            let now = Timestamp::now();
            let needs_files = batch.iter().any(|it| it.event.needs_files());
            let is_final = batch.iter().any(|it| !it.event.is_beginning());
            let mut steps = Vec::with_capacity(batch.len());
            for Envelope { event, answer } in batch.drain(..) {
                let is_call = event.is_awaited_by_front_end();
                let mut step = self.step(event, now);
                step.answers_after_plan &= !(is_call && self.unconfirmed.is_for_events());
                steps.push((step, answer, is_call));
            }
            let records = steps.iter_mut().flat_map(|(step, ..)| std::mem::take(&mut step.records));
            let records: Vec<Record> = records.collect();
            let has_changed = !records.is_empty();
            let history = steps.iter_mut().flat_map(|(step, ..)| std::mem::take(&mut step.history));
            let mut history: Vec<Entry> = history.collect();
            if let Err(why) = self.journal.keep(records, is_final, &self.state, &self.metrics).await
            {
                history.push(Entry { at: now, ..Entry::failure(format!("journal: {why}")) });
            }
            self.feed.tell(&history, &self.state);
            self.history_writer.tell(history, &self.state, now);
            self.health.set_journal_behind(self.journal.is_behind());
            if has_changed {
                self.metrics.show(&self.state, self.journal.bytes());
                self.enforcement.huge_page_users.publish(&self.state);
            }
            self.metrics.show_elsewhere(self.state.failed_updates());
            let is_moved = steps.iter().any(|(step, ..)| !step.plan.is_empty());
            for (step, answer, is_call) in steps {
                self.carry_out(step, answer, is_call);
            }
            if has_changed || needs_files || is_moved {
                self.enforcement.soon.notify_one();
                self.looks.note_change();
            }
            // CPUs that are lent are in plans, and not in records.
            if has_changed || is_moved {
                self.sightings.note_change();
            }
            // Grows with the containers that have spread memory, so no caller waits for it.
            if has_changed {
                self.metrics.show_narrowable(self.state.narrowable_count());
                warming = self.state.next_warming();
            }
        }
    }

    fn show(&self, look: Look) {
        // The client may have gone.
        let _gone = match look {
            Look::Alive(answer) => answer.send(()).is_err(),
            Look::Status(answer) => answer.send(Box::new(self.state.status())).is_err(),
            Look::Zones(nodes, answer) => answer.send(Box::new(self.state.zones(&nodes))).is_err(),
            Look::Explain(name, answer) => answer.send(self.state.explain(&name)).is_err(),
        };
    }

    fn step(&mut self, event: Event, now: Timestamp) -> Step {
        let is_decision = matches!(event, Event::TryAdmit(..) | Event::TryResize(..));
        let started = Instant::now();
        let step = self.occupancy.step(&mut self.state, event, now);
        if is_decision {
            self.metrics.decision_took(started.elapsed());
        }
        step
    }

    fn carry_out(&self, step: Step, answer: oneshot::Sender<Answer>, is_call: bool) {
        for note in &step.notes {
            tell(note, &self.metrics);
        }
        if step.sync_soon {
            self.sync_soon.notify_one();
        }
        let (plan, forgiven, files) = (step.plan, step.forgiven, step.files);
        let new_files = files.changed.iter().filter(|file| file.is_new).cloned().collect();
        let answer = Early { answer, content: step.answer, new_files };
        let is_early = is_call && self.early_answers.can_do(&plan);
        // What answers now, and what answers when the kernel has carried the plan out or this word comes.
        let (then, now, early) = match (step.answers_after_plan, is_early) {
            (false, _) => (AfterPlan::Nothing, Some(answer), None),
            (true, false) => {
                (AfterPlan::Answer(Box::new((answer.answer, answer.content))), None, None)
            }
            (true, true) => {
                let (ended, plan_ended) = oneshot::channel();
                (AfterPlan::Word(ended), None, Some((answer, plan_ended)))
            }
        };
        let is_waited_for = !matches!(then, AfterPlan::Nothing);
        if !plan.is_empty() || is_waited_for || !forgiven.is_empty() || !files.is_empty() {
            self.unconfirmed.forget(&forgiven);
            let parent = |id: &str| self.state.cgroup_parent(id).unwrap_or_default().to_owned();
            let number = self.unconfirmed.plan(&plan.writes, parent);
            // Until the writer has made each of them.
            plan.writes.iter().for_each(|write| self.enforcement.calls.begin(&write.container));
            if self.writer.send(Batch { plan, number, then, forgiven, files }).is_err() {
                tracing::error!("the writer is gone; nothing is written any more");
            }
        }
        // The plan has its number by now.
        if let Some((early, plan_ended)) = early {
            tokio::spawn(self.early_answers.clone().answer(early, plan_ended));
        }
        if let Some(now) = now {
            self.early_answers.answer_now(now);
        }
    }
}

/// So that what goes on for hours is told some times.
fn is_power_of_ten(times: u64) -> bool {
    times.checked_ilog10().is_some_and(|power| 10_u64.pow(power) == times)
}

/// Waits for a time by the machine's clock; for ever, if there is none.
async fn reached(time: Option<Timestamp>) {
    let Some(time) = time else { return std::future::pending().await };
    loop {
        let left = Duration::try_from(time.duration_since(Timestamp::now())).unwrap_or_default();
        if left.is_zero() {
            return;
        }
        // The clock may be set meanwhile.
        tokio::time::sleep(left.min(CLOCK_STEP)).await;
    }
}

/// Logs and counts.
pub(crate) fn tell(note: &Note, metrics: &Metrics) {
    metrics.count(note);
    match note {
        Note::Placed { container, cpus, pool, class, .. } => {
            tracing::info!(container, cpus, pool, class = class.name(), "placed");
        }
        Note::Refused { container, why } => tracing::warn!(container, why, "refused"),
        Note::RefusedAgain { container, why, times } if is_power_of_ten(*times) => {
            tracing::warn!(container, times, why, "refused again and again");
        }
        Note::RefusedAgain { container, times, .. } => {
            tracing::debug!(container, times, "refused again");
        }
        Note::RefusalsOver { container, times, how } => {
            tracing::info!(container, times, "the resize that was refused {how}");
        }
        Note::Adopted { container, how } => tracing::info!(container, how, "adopted"),
        Note::Released { container, why } => tracing::info!(container, why, "released"),
        Note::Moved { container, from, to, why, .. } => {
            tracing::info!(container, from, to, why, "moved");
        }
        Note::Narrowed { container, from, to, why } => {
            tracing::info!(container, from, to, why, "has fewer memory nodes");
        }
        Note::Warmed { container, from, to } => {
            tracing::info!(container, from, to, "cold start is over, has more memory nodes");
        }
        Note::ModeChanged { from, to } => {
            tracing::warn!(from = from.name(), to = to.name(), "the mode has changed");
        }
        Note::MachineChanged { cpus, came, went, moved, displaced } => {
            tracing::warn!(cpus, came, went, moved, displaced, "the machine has changed");
        }
        Note::ConfigChanged { moved } => tracing::info!(moved, "another configuration holds"),
        Note::GroupChanged { group, cpus } => tracing::info!(group, cpus, "the group has changed"),
        Note::MachineUnchanged => tracing::debug!("the machine is as it was"),
        Note::Failure { kind, message } => tracing::warn!(kind, "{message}"),
    }
}
