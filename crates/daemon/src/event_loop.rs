//! The one task that owns the state. In: events from a bounded queue. Out: records on disk, then writes at the runtime, then answers.
//!
//! Events that arrive together share one write to the journal. Plans go to a second task, the writer, in the order in which they
//! were made; an answer that must wait for its plan travels with it, so nobody is told of a CPU that its old owner still holds.

use std::sync::Arc;
use std::time::Duration;

use bayplan_cri::agent::{Admission, Agent, CreateOutcome, Ticket};
use bayplan_cri::translate::{NewContainer, Pod, Resources};
use bayplan_cri::upstream::{RuntimeError, Upstream};
use bayplan_enforcement::{Plan, Step as Pass, Write};
use bayplan_host::journal::Journal;
use futures::StreamExt as _;
use jiff::Timestamp;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, OnFailure};
use crate::event::{Answer, Event, FailedWrite, Note, Step};
use crate::metrics::Metrics;
use crate::record::Record;
use crate::state::NodeState;
use crate::sync::Syncer;

/// Events that may wait; kubelet has far fewer calls in flight.
const QUEUE_MAX: usize = 1024;
/// Events that share one write to the journal.
const BATCH_MAX: usize = 64;
/// Updates that one pass of a plan has in flight at the runtime.
const WRITES_IN_FLIGHT_MAX: usize = 16;
/// The journal is compacted when it is this large, and four times as large as after the last time.
const COMPACT_BYTES_MIN: u64 = 1 << 20;

struct Envelope {
    event: Event,
    answer: oneshot::Sender<Answer>,
}

/// The way to the state.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    sender: mpsc::Sender<Envelope>,
}

impl Inbox {
    /// Sends an event and waits for its answer; `None` when the daemon is stopping.
    pub(crate) async fn ask(&self, event: Event) -> Option<Answer> {
        let (answer, answered) = oneshot::channel();
        self.sender.send(Envelope { event, answer }).await.ok()?;
        answered.await.ok()
    }
}

/// The receiving end of an [`Inbox`].
pub(crate) struct Events(mpsc::Receiver<Envelope>);

/// A queue of events.
pub(crate) fn inbox() -> (Inbox, Events) {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    (Inbox { sender }, Events(receiver))
}

/// A plan on its way to the runtime, and who waits for it.
pub(crate) struct Batch {
    plan: Plan,
    answer: Option<(oneshot::Sender<Answer>, Answer)>,
}

/// What the loop works on.
pub(crate) struct EventLoop {
    pub(crate) state: NodeState,
    pub(crate) journal: Keeper,
    /// Unbounded: each batch comes from an event, and whoever makes events that matter waits for the batch.
    pub(crate) writer: mpsc::UnboundedSender<Batch>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) sync_soon: Arc<Notify>,
}

impl EventLoop {
    /// Runs until `stop`, and then until every event that was sent before is dealt with.
    pub(crate) async fn run(mut self, mut events: Events, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        self.metrics.show(&self.state, self.journal.bytes());
        loop {
            let count = tokio::select! {
                count = events.0.recv_many(&mut batch, BATCH_MAX) => count,
                () = stop.cancelled(), if !events.0.is_closed() => {
                    events.0.close();
                    continue;
                }
            };
            if count == 0 {
                return;
            }
            let now = Timestamp::now();
            let mut steps = Vec::with_capacity(batch.len());
            for Envelope { event, answer } in batch.drain(..) {
                steps.push((self.step(event, now), answer));
            }
            let records = steps.iter_mut().flat_map(|(step, _)| std::mem::take(&mut step.records));
            let records: Vec<Record> = records.collect();
            let has_changed = !records.is_empty();
            self.journal.keep(records, &self.state, &self.metrics).await;
            if has_changed {
                self.metrics.show(&self.state, self.journal.bytes());
            }
            for (step, answer) in steps {
                self.carry_out(step, answer);
            }
        }
    }

    fn step(&mut self, event: Event, now: Timestamp) -> Step {
        let is_decision = matches!(event, Event::TryAdmit(..) | Event::Resize(..));
        let started = Instant::now();
        let step = self.state.step(event, now);
        if is_decision {
            self.metrics.decision_took(started.elapsed());
        }
        step
    }

    /// Also used for what a restored state leaves to do.
    pub(crate) fn carry_out(&self, step: Step, answer: oneshot::Sender<Answer>) {
        for note in &step.notes {
            log(note);
            self.metrics.count(note);
        }
        if step.sync_soon {
            self.sync_soon.notify_one();
        }
        let (now, later) = match step.answers_after_plan {
            true => (None, Some((answer, step.answer))),
            false => (Some((answer, step.answer)), None),
        };
        if !step.plan.is_empty() || later.is_some() {
            let batch = Batch { plan: step.plan, answer: later };
            if self.writer.send(batch).is_err() {
                tracing::error!("the writer is gone; nothing is written any more");
            }
        }
        if let Some((answer, content)) = now {
            // Whoever asked may have given up.
            let _gave_up = answer.send(content);
        }
    }
}

fn log(note: &Note) {
    match note {
        Note::Placed { container, cpus, pool, class, .. } => {
            tracing::info!(container, cpus, pool, class = class.name(), "placed");
        }
        Note::Refused { container, why } => tracing::warn!(container, why, "refused"),
        Note::Adopted { container, how } => tracing::info!(container, how, "adopted"),
        Note::Released { container, why } => tracing::info!(container, why, "released"),
        Note::Failure { kind, message } => tracing::warn!(kind, "{message}"),
    }
}

/// The journal with what to do when it fails: go on without it, and write all of it again at the next chance.
pub(crate) struct Keeper {
    journal: Option<Journal>,
    bytes: u64,
    bytes_compacted: u64,
    is_behind: bool,
}

impl Keeper {
    pub(crate) fn new(journal: Journal) -> Keeper {
        let bytes = journal.bytes();
        // Everything is written anew at the first change, without what is no longer live.
        Keeper { journal: Some(journal), bytes, bytes_compacted: 0, is_behind: true }
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) async fn keep(
        &mut self,
        records: Vec<Record>,
        state: &NodeState,
        metrics: &Metrics,
    ) {
        if records.is_empty() && !self.is_behind {
            return;
        }
        let Some(mut journal) = self.journal.take() else { return };
        let is_large = self.bytes > COMPACT_BYTES_MIN.max(self.bytes_compacted.saturating_mul(4));
        let is_rewrite = self.is_behind || is_large;
        let records = if is_rewrite { state.snapshot_records() } else { records };
        // Does not fail: records are maps with text keys.
        let lines = records.iter().filter_map(|record| serde_json::to_string(record).ok());
        let lines: Vec<String> = lines.collect();
        let written = tokio::task::spawn_blocking(move || {
            let result = match is_rewrite {
                true => journal.rewrite(&lines),
                false => journal.append(&lines),
            };
            (journal, result)
        });
        match written.await {
            Ok((journal, result)) => {
                self.bytes = journal.bytes();
                if is_rewrite && result.is_ok() {
                    self.bytes_compacted = self.bytes;
                }
                self.is_behind = result.is_err();
                self.journal = Some(journal);
                if let Err(error) = result {
                    metrics.failed("journal");
                    let error = anyhow::Error::new(error);
                    tracing::error!(
                        "{error:#}; going on, a restart now would have to ask the runtime"
                    );
                }
            }
            Err(error) => {
                metrics.failed("journal");
                tracing::error!(%error, "the journal is lost; going on without it");
            }
        }
    }
}

/// Carries plans out, one after the other, until the loop is gone.
pub(crate) async fn run_writer(
    mut batches: mpsc::UnboundedReceiver<Batch>,
    upstream: Upstream,
    failures: mpsc::UnboundedSender<FailedWrite>,
    limit: Duration,
    metrics: Arc<Metrics>,
) {
    while let Some(Batch { plan, answer }) = batches.recv().await {
        let mut has_failed = false;
        for pass in [Pass::Shrink, Pass::Grow] {
            let writes: Vec<Write> = plan.pass(pass).cloned().collect();
            if has_failed {
                // Somebody still holds what others would take.
                let why = "another container did not let go";
                writes.into_iter().for_each(|write| report(&failures, write, false, why));
                break;
            }
            let updates = writes.into_iter().map(|write| apply(upstream.clone(), write, limit));
            let mut updates = futures::stream::iter(updates).buffer_unordered(WRITES_IN_FLIGHT_MAX);
            while let Some((write, result)) = updates.next().await {
                metrics.update_ended(result.as_ref().err());
                if let Err(error) = result {
                    let is_gone = matches!(error, RuntimeError::Gone { .. });
                    has_failed |= !is_gone;
                    report(&failures, write, is_gone, &error.to_string());
                }
            }
        }
        if let Some((answer, content)) = answer {
            let _gave_up = answer.send(content);
        }
    }
}

/// Fails when the loop is gone, and then nobody wants to know.
fn report(failures: &mpsc::UnboundedSender<FailedWrite>, write: Write, is_gone: bool, why: &str) {
    tracing::warn!(container = write.container, why, "not updated");
    let (container, why) = (write.container, why.to_owned());
    let _gone = failures.send(FailedWrite { container, is_gone, why });
}

/// `limit` is less than a decision may take, so that one container that hangs does not hold up all decisions.
async fn apply(
    upstream: Upstream,
    write: Write,
    limit: Duration,
) -> (Write, Result<(), RuntimeError>) {
    tracing::debug!(
        container = write.container,
        step = %write.step,
        cpus = %write.new.cpus,
        mems = %write.new.mems,
        "update"
    );
    let updated = timeout(limit, upstream.update_container(&write.container, &write.new)).await;
    let result = updated.unwrap_or_else(|_| {
        let socket = upstream.socket().to_owned();
        Err(RuntimeError::TimedOut { call: "UpdateContainerResources", socket, limit })
    });
    (write, result)
}

/// Passes failures of the writer on as events, so that the writer never waits for the loop.
pub(crate) async fn report_failures(
    mut failures: mpsc::UnboundedReceiver<FailedWrite>,
    inbox: Inbox,
) {
    let mut failed = Vec::new();
    while failures.recv_many(&mut failed, BATCH_MAX).await > 0 {
        let event = Event::WritesFailed(std::mem::take(&mut failed));
        if inbox.ask(event).await.is_none() {
            return;
        }
    }
}

/// The daemon as the proxy sees it.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) syncer: Syncer,
    pub(crate) config: Arc<Config>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) sync_soon: Arc<Notify>,
}

impl Gate {
    /// Sends an event although whoever asked may give up waiting: what happened must not be lost.
    fn send(&self, event: Event) -> JoinHandle<Option<Answer>> {
        let inbox = self.syncer.inbox.clone();
        tokio::spawn(async move { inbox.ask(event).await })
    }

    /// `None`: not within the deadline.
    async fn decide(&self, event: Event) -> Option<Admission> {
        match timeout(self.config.decision_timeout, self.send(event)).await {
            Ok(Ok(Some(Answer::Admission(admission)))) => Some(admission),
            _ => None,
        }
    }

    /// What the configuration says about decisions that were not made in time.
    fn undecided(&self) -> Admission {
        self.metrics.failed("undecided");
        let limit = self.config.decision_timeout;
        tracing::error!("no decision within {limit:?}; see decisionTimeout and onFailure");
        match self.config.on_failure {
            OnFailure::Open => Admission::PassThrough,
            OnFailure::Closed => Admission::Refuse(format!(
                "bayplan did not decide within {limit:?}, and onFailure is closed"
            )),
        }
    }

    /// Before a container is refused, the runtime is asked what has ended: kubelet does not tell when a process exits by itself.
    async fn place(&self, ticket: Ticket, container: NewContainer) -> Option<Admission> {
        let container = Box::new(container);
        let first = self.decide(Event::TryAdmit(ticket, container.clone())).await?;
        if !matches!(first, Admission::Refuse(_)) {
            return Some(first);
        }
        let synced = timeout(self.config.decision_timeout, self.syncer.sync()).await;
        if !matches!(synced, Ok(Ok(()))) {
            tracing::warn!("the runtime could not be asked what has ended");
        }
        self.decide(Event::Admit(ticket, container)).await
    }

    /// Tells the loop; waits so that what follows the reply sees it, but not for ever.
    async fn tell(&self, event: Event) {
        if timeout(self.config.decision_timeout, self.send(event)).await.is_err() {
            self.metrics.failed("late");
        }
    }
}

impl Agent for Gate {
    async fn pod_started(&self, pod: Pod) {
        self.tell(Event::PodStarted(pod)).await;
    }

    async fn pod_ended(&self, pod_id: &str) {
        self.tell(Event::PodEnded(pod_id.to_owned())).await;
    }

    async fn admit(&self, ticket: Ticket, container: NewContainer) -> Admission {
        if let Some(admission) = self.place(ticket, container).await {
            return admission;
        }
        let admission = self.undecided();
        if matches!(admission, Admission::Refuse(_)) {
            // Should it be placed late, nobody will come for the place.
            self.send(Event::CreateEnded(ticket, CreateOutcome::Failed));
        }
        admission
    }

    async fn created(&self, ticket: Ticket, outcome: CreateOutcome) {
        self.tell(Event::CreateEnded(ticket, outcome)).await;
    }

    async fn started(&self, container_id: &str) {
        self.tell(Event::Started(container_id.to_owned())).await;
    }

    async fn ended(&self, container_id: &str) {
        self.tell(Event::Ended(container_id.to_owned())).await;
    }

    async fn resize(&self, container_id: &str, resources: Resources) -> Admission {
        let decided = self.decide(Event::Resize(container_id.to_owned(), resources)).await;
        decided.unwrap_or_else(|| self.undecided())
    }

    async fn resized(&self, container_id: &str) {
        self.tell(Event::Resized(container_id.to_owned())).await;
    }

    fn call_ended(&self, method: &str, code: u32) {
        self.metrics.call_ended(method, code);
    }

    fn passed_through(&self, method: &str, why: &'static str) {
        tracing::warn!(method, why, "forwarded unchanged");
        self.metrics.failed("passed_through");
        self.sync_soon.notify_one();
    }
}
