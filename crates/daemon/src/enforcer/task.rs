//! The task that enforces. In: a wake-up after the state has changed, a write by another program, the time, a question. Out: kernel files as they are
//! wanted, log lines and metrics.
//!
//! On kubelet's way only a start waits for it, and not for long: where the cgroup is there by then, what a container is promised holds before its first instruction. Where it comes
//! later, that it comes wakes the task (`families/arrivals.rs`). Files are read and written on a thread for blocking work, one look at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bayplan_enforcement::{Author, Notice, Reclaim};
use bayplan_node::event::{Answer, Event};
use bayplan_node::occupancy::Occupancy;
use bayplan_node::status::HeldFile;
use jiff::Timestamp;
use tokio::sync::{Mutex, Notify, OwnedMutexGuard, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, EnforcementMode, LiveConfig};
use crate::enforcer::calls::RuntimeCalls;
use crate::enforcer::drift::{Drift, Drifts};
use crate::enforcer::held::Held;
use crate::enforcer::view::render_groups;
use crate::enforcer::watcher::Watcher;
use crate::enforcer::{Enforcer, FilePlanView, Outcome, TurnedFiles};
use crate::feed::Feed;
use crate::health::Health;
use crate::inbox::Inbox;
use crate::metrics::Metrics;
use crate::read_huge_pages::HugePageUsers;
use crate::tasks::blocking;

/// Changes that follow a look sooner are dealt with together: a pod comes with several containers.
const SETTLE: Duration = Duration::from_millis(20);
/// The least time between two looks at containers that are being started, so that a runtime's writes in a row are seen together.
const BREATH: Duration = Duration::from_millis(2);
/// The least time between two looks that others' writes have caused.
const CALM: Duration = Duration::from_secs(1);

/// What is known of kernel files after a bug.
pub(crate) const LOST: &str =
    "a bug has ended what writes kernel files; what is in them stays until a restart";
/// What is said of files that are not written because the daemon stops.
const STOPPING: &str = "the daemon is stopping";

/// A question to the enforcer, and the caller that waits for its answer.
#[derive(Debug)]
enum Ask {
    /// What would be written?
    Preview(oneshot::Sender<FilePlanView>),
    /// Write it, and what of it failed?
    Enforce(oneshot::Sender<Vec<String>>),
}

/// The way to the enforcer.
#[derive(Clone, Debug)]
pub(crate) struct Enforcement {
    asks: mpsc::Sender<Ask>,
    /// Notified when the state has changed.
    pub(crate) soon: Arc<Notify>,
    /// Notified when a start waits for a look.
    starts: Arc<Notify>,
    /// Containers that the runtime is told of.
    pub(crate) calls: RuntimeCalls,
    /// Containers that have asked for huge pages, for creations.
    pub(crate) huge_page_users: HugePageUsers,
    done: watch::Receiver<Done>,
    is_lost: Arc<AtomicBool>,
    /// Held while memory is reclaimed from a container.
    reclaiming: Arc<Mutex<()>>,
    /// By the files that reclaim, why the last turn failed.
    reclaim_failures: Arc<watch::Sender<BTreeMap<String, String>>>,
}

/// What the last look has brought about.
#[derive(Clone, Debug, Default)]
struct Done {
    /// The step of the state that kernel files were brought in line with.
    step: u64,
    /// When that look began; `None` before the first.
    begun: Option<Instant>,
    turned: TurnedFiles,
    held: Held,
    drifts: Drifts,
    /// How often groups of resctrl were made or removed.
    regrouped: u64,
    /// Containers from which idle memory is reclaimed.
    reclaims: Arc<[Reclaim]>,
    /// Containers of which files are wanted, by the runtime's ids; `None` before the first look.
    with_files: Option<Arc<BTreeSet<String>>>,
}

impl Done {
    /// Files of this container are wanted, or may be.
    fn wants_files(&self, container: &str) -> bool {
        self.with_files.as_ref().is_none_or(|it| it.contains(container))
    }
}

/// What the task waits for.
#[derive(Debug)]
pub(crate) struct Questions {
    asks: mpsc::Receiver<Ask>,
    soon: Arc<Notify>,
    starts: Arc<Notify>,
    done: watch::Sender<Done>,
    is_lost: Arc<AtomicBool>,
}

impl Drop for Questions {
    /// A caller that hears that nothing is written any more, because `done` is gone, knows by then whether a bug is why.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
impl Questions {
    /// As if a look had begun now that wants files of these containers only.
    pub(crate) fn note_look(&self, step: u64, with_files: &[&str]) {
        let with_files = with_files.iter().map(|it| (*it).to_owned()).collect();
        let (begun, with_files) = (Some(Instant::now()), Some(Arc::new(with_files)));
        self.done.send_replace(Done { step, begun, with_files, ..Done::default() });
    }

    /// Comes back when a start waits for a look.
    pub(crate) async fn starts_waiting(&self) {
        self.starts.notified().await;
    }

    /// As if files had been written.
    pub(crate) fn note_done(&self, step: u64) {
        self.done.send_replace(Done { step, ..Done::default() });
    }

    /// As if what a proposal asks for had been written, too.
    pub(crate) fn note_turned(&self, step: u64, number: u64) {
        self.note_written(step, [(number, Ok(()))].into());
    }

    /// As if this had come of what proposals ask for.
    pub(crate) fn note_written(&self, step: u64, turned: TurnedFiles) {
        self.done.send_replace(Done { step, turned, ..Done::default() });
    }

    /// As if the last look had found that memory of these is to be reclaimed.
    pub(crate) fn note_reclaims(&self, reclaims: &[Reclaim]) {
        self.done.send_replace(Done { reclaims: reclaims.into(), ..Done::default() });
    }

    /// As if a bug had ended the task.
    pub(crate) fn end_by_a_bug(self) {
        let task = std::panic::AssertUnwindSafe(move || {
            let _questions = self;
            panic!("a bug");
        });
        std::panic::catch_unwind(task).unwrap_err();
    }
}

impl Enforcement {
    pub(crate) fn new(calls: RuntimeCalls) -> (Enforcement, Questions) {
        let (asks, questions) = mpsc::channel(16);
        let (soon, starts) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        let (done, finished) = watch::channel(Done::default());
        let is_lost = Arc::<AtomicBool>::default();
        let questions = Questions {
            asks: questions,
            soon: Arc::clone(&soon),
            starts: Arc::clone(&starts),
            done,
            is_lost: Arc::clone(&is_lost),
        };
        let enforcement = Enforcement {
            asks,
            soon,
            starts,
            calls,
            huge_page_users: HugePageUsers::default(),
            done: finished,
            is_lost,
            reclaiming: Arc::default(),
            reclaim_failures: Arc::default(),
        };
        (enforcement, questions)
    }

    /// Comes back when kernel files were brought in line with the state after that step, as far as the kernel lets that be, and when they will not be
    /// any more.
    pub(crate) async fn is_in_line_with(&self, step: u64) {
        let mut done = self.done.clone();
        let _stopping = done.wait_for(|done| done.step >= step).await;
    }

    /// As [`Self::is_in_line_with`], for a container that is about to start. Where files of its own are wanted, by a look that has begun since then: what the runtime has made just
    /// before, as the container's cgroup, is seen by it. Wakes the task, which does not gather other changes first.
    pub(crate) async fn is_ready_to_start(&self, container: &str, step: u64, since: Instant) {
        let mut done = self.done.clone();
        let is_ready = |done: &Done| {
            let is_new = done.begun.is_some_and(|begun| begun >= since);
            done.step >= step && (is_new || !done.wants_files(container))
        };
        if is_ready(&done.borrow()) {
            return;
        }
        self.starts.notify_one();
        let _stopping = done.wait_for(is_ready).await;
    }

    /// What became of a proposal of the rebalancer in the first look at the state after that step; `None` when it has no files.
    pub(crate) async fn turned(&self, number: u64, step: u64) -> Option<Result<(), String>> {
        let mut done = self.done.clone();
        match done.wait_for(|done| done.step >= step).await {
            Ok(done) => done.turned.get(&number).cloned(),
            Err(_) => Some(Err(if self.is_lost() { LOST } else { STOPPING }.to_owned())),
        }
    }

    /// A bug has ended what writes kernel files: they stay as they are.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// The step of the state that kernel files were brought in line with last.
    pub(crate) fn last_step(&self) -> u64 {
        self.done.borrow().step
    }

    /// Containers with files that another program has changed since then, or changes again and again.
    pub(crate) fn drift(&self, since: std::time::Instant) -> Drift {
        self.done.borrow().drifts.since(since)
    }

    /// How often groups of resctrl were made or removed: what was read of them before is old.
    pub(crate) fn regrouped(&self) -> u64 {
        self.done.borrow().regrouped
    }

    /// Containers from which idle memory is reclaimed, as of the last look; none while nothing may be written.
    pub(crate) fn reclaims(&self) -> Arc<[Reclaim]> {
        if self.is_lost() {
            return Arc::default();
        }
        Arc::clone(&self.done.borrow().reclaims)
    }

    /// Comes back when that may have changed since this clone was asked last, and never any more when there are no more looks.
    pub(crate) async fn looked(&mut self) {
        if self.done.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// As long as this is held, memory is being reclaimed from a container.
    pub(crate) async fn begin_reclaim(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.reclaiming).lock_owned().await
    }

    /// Comes back when nothing is being reclaimed, and what begins then asks [`Self::reclaims`] anew.
    pub(crate) async fn no_reclaim(&self) {
        drop(self.reclaiming.lock().await);
    }

    /// By the files that reclaim, why the last turns failed.
    pub(crate) fn note_reclaim_failures(&self, failures: BTreeMap<String, String>) {
        self.reclaim_failures.send_replace(failures);
    }

    /// How far the CPUs of a container are kept from others, and what is in kernel files for its sake, as of the last look.
    pub(crate) fn about(&self, container: &str) -> (Option<String>, Vec<HeldFile>) {
        self.done.borrow().held.about(container, &self.reclaim_failures.borrow())
    }

    /// What would be written; `None` when the daemon is stopping.
    pub(crate) async fn preview(&self) -> Option<FilePlanView> {
        let (answer, answered) = oneshot::channel();
        self.asks.send(Ask::Preview(answer)).await.ok()?;
        answered.await.ok()
    }

    /// Writes what is to be written, and names what failed; `None` when the daemon is stopping.
    pub(crate) async fn enforce(&self) -> Option<Vec<String>> {
        let (answer, answered) = oneshot::channel();
        self.asks.send(Ask::Enforce(answer)).await.ok()?;
        answered.await.ok()
    }
}

/// What the task works with.
pub(crate) struct EnforcerTask {
    pub(crate) enforcer: Enforcer,
    /// Whatever the configuration says.
    pub(crate) is_dry_run: bool,
    pub(crate) questions: Questions,
    pub(crate) inbox: Inbox,
    pub(crate) config: LiveConfig,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) feed: Feed,
    pub(crate) health: Arc<Health>,
}

/// Why it looks.
enum Wake {
    Changed,
    /// The group of a container that is being started has come, or was written.
    Arrival,
    /// Another program has written.
    Heard,
    /// It is time.
    Due,
    Ask(Ask),
}

/// When it has looked.
#[derive(Clone, Copy)]
struct Looked {
    at: Instant,
    /// At CPU sets, too.
    at_sets: Instant,
    /// The least time until the state's changes are looked at again.
    settle: Duration,
    /// The least time until a container that is being started is looked at again.
    breath: Duration,
    /// There may be one that came unheard.
    may_have_arrived: bool,
    /// Something was written meanwhile that may have been a CPU set.
    is_due: bool,
}

impl Looked {
    fn not_yet(now: Instant) -> Looked {
        Looked {
            at: now,
            at_sets: now,
            settle: SETTLE,
            breath: BREATH,
            may_have_arrived: false,
            is_due: false,
        }
    }

    /// A look that began then is over.
    fn note_end(&mut self, begun: Instant) {
        self.at = Instant::now();
        let took = self.at - begun;
        // Looks take a fifth of the time at most, however much there is to look at.
        self.settle = SETTLE.max(took * 4);
        // Half of it while a container is being started: its first instruction is near.
        self.breath = BREATH.max(took);
    }

    /// When CPU sets are to be looked at, at the latest.
    fn sets_due(&self, config: &Config) -> Instant {
        self.at_sets + if self.is_due { CALM } else { config.sweep_interval }
    }
}

/// Enforces until `stop`.
pub(crate) async fn run_enforcer(mut task: EnforcerTask, stop: CancellationToken) {
    let started = Instant::now();
    let mut watcher = Watcher::new(task.config.borrow().host_root.clone());
    let (mut told, mut drifts) = (Told::default(), Drifts::default());
    let mut looked = Looked::not_yet(started);
    task.questions.soon.notify_one();
    loop {
        task.health.set_originals_unread(task.enforcer.has_unread_originals());
        let wake = tokio::select! {
            () = stop.cancelled() => return,
            wake = task.wake(&mut watcher, started, looked) => wake,
        };
        let Some(Answer::Occupancy(occupancy)) = task.inbox.ask(Event::Occupancy).await else {
            return;
        };
        let is_preview = matches!(wake, Wake::Ask(Ask::Preview(_)));
        // A change of the configuration that comes with a preview is still to be enforced.
        let config = match is_preview {
            true => Arc::clone(&task.config.borrow()),
            false => Arc::clone(&task.config.borrow_and_update()),
        };
        let is_dry = is_preview || task.is_dry(&config);
        let mut enforcer = task.enforcer;
        if matches!(wake, Wake::Ask(Ask::Enforce(_))) {
            enforcer.insist();
        }
        let (now, begun, step) = (started.elapsed(), Instant::now(), occupancy.step);
        // What the state has just changed is on its way to the runtime.
        let is_due = matches!(wake, Wake::Heard | Wake::Due) || looked.sets_due(&config) <= begun;
        let with_sets = !is_preview && is_due;
        enforcer.set_calm(!watcher.may_have_missed() && matches!(wake, Wake::Due));
        let may_write = !is_dry && config.enforcement == EnforcementMode::On;
        let worked = blocking(move || {
            let mut outcome = match is_dry {
                true => enforcer.preview(&config, &occupancy, now),
                false => enforcer.enforce(&config, &occupancy, now),
            };
            if with_sets {
                enforcer.look_at_sets(&occupancy, may_write, now, &mut outcome);
            }
            (enforcer, outcome, occupancy)
        });
        let Some((enforcer, mut outcome, occupancy)) = worked.await else { return };
        task.enforcer = enforcer;
        // A question is no look: what is due stays due, however often it is asked.
        if !is_preview {
            looked.note_end(begun);
            if with_sets {
                (looked.at_sets, looked.is_due) = (looked.at, outcome.is_unsure);
            }
            // Before any caller hears that this look is over: a start that has waited for it is to be listened for.
            let heard = watcher.watch(&task.enforcer.directories(), task.enforcer.awaited());
            looked.is_due |= heard.is_write || task.enforcer.has_unseen_sets();
            looked.may_have_arrived = heard.is_arrival;
            let held = std::mem::take(&mut outcome.held);
            drifts.note(&outcome.notices, outcome.contested > 0, looked.at.into_std());
            let (turned, drifts) = (outcome.turned.clone(), drifts.clone());
            let regrouped = task.questions.done.borrow().regrouped + outcome.regroupings();
            let reclaims = if is_dry { Vec::new() } else { std::mem::take(&mut outcome.reclaims) };
            let (begun, reclaims, with_files) =
                (Some(begun), reclaims.into(), Some(task.enforcer.with_files()));
            let done = Done { step, begun, turned, held, drifts, regrouped, reclaims, with_files };
            task.questions.done.send_replace(done);
        }
        task.tell(&mut told, &outcome, is_dry, &occupancy);
        if !outcome.elsewhere.is_empty() {
            let found = std::mem::take(&mut outcome.elsewhere);
            task.inbox.ask(Event::SetsChanged(step, found)).await;
        }
        if let Wake::Ask(ask) = wake {
            ask.answer(outcome, is_dry);
        }
    }
}

impl Ask {
    /// The caller may have given up.
    fn answer(self, outcome: Outcome, is_dry: bool) {
        match self {
            Ask::Preview(answer) => {
                let _gave_up = answer.send(outcome.into());
            }
            Ask::Enforce(answer) => {
                let failures = outcome.report.failures().map(|(write, why)| {
                    format!("{} to {} ({}): {why}", write.slot, write.new, write.unit)
                });
                let failures = failures.chain(outcome.groups.failures.iter().cloned());
                let withheld = outcome.plan.writes.iter().filter(|_| is_dry).map(|write| {
                    format!(
                        "{} to {} ({}): nothing is written, enforcement is dry-run",
                        write.slot, write.new, write.unit
                    )
                });
                let failures = failures.chain(withheld).chain(outcome.unkept.clone());
                let _gave_up = answer.send(failures.collect());
            }
        }
    }
}

impl EnforcerTask {
    /// Tells log, metrics and feed what a look has found and done.
    fn tell(&self, told: &mut Told, outcome: &Outcome, is_dry: bool, occupancy: &Occupancy) {
        told.tell(outcome, is_dry, &self.metrics);
        if !is_dry {
            self.feed.tell_drift(&outcome.notices, occupancy, Timestamp::now());
        }
    }

    fn is_dry(&self, config: &Config) -> bool {
        self.is_dry_run || config.enforcement == EnforcementMode::DryRun
    }

    async fn wake(&mut self, watcher: &mut Watcher, started: Instant, looked: Looked) -> Wake {
        let config = Arc::clone(&self.config.borrow());
        let retry = self.enforcer.next_try().filter(|_| !self.is_dry(&config));
        let retry = retry.map(|at| started + at);
        let has_work = self.enforcer.has_work();
        let calm = looked.at + CALM;
        let sweep = looked.sets_due(&config).max(calm);
        let due = retry.map_or(sweep, |retry| retry.max(calm).min(sweep));
        // What happens meanwhile is kept by the notification and by the kernel.
        let changed = async {
            tokio::time::sleep_until(looked.at + looked.settle).await;
            self.questions.soon.notified().await;
        };
        let heard = async {
            tokio::time::sleep_until(looked.at + looked.breath).await;
            match looked.may_have_arrived {
                true => Wake::Arrival,
                false if watcher.changed(calm).await => Wake::Arrival,
                false => Wake::Heard,
            }
        };
        tokio::select! {
            ask = self.questions.asks.recv() => match ask {
                Some(ask) => Wake::Ask(ask),
                None => std::future::pending().await,
            },
            () = changed => Wake::Changed,
            () = self.questions.starts.notified() => Wake::Changed,
            _ = self.config.changed() => Wake::Changed,
            wake = heard => wake,
            // On a node on which nothing is wanted, nothing is done.
            () = tokio::time::sleep_until(due), if has_work => Wake::Due,
        }
    }
}

/// What was told already.
#[derive(Default)]
struct Told {
    problems: Vec<String>,
    unkept: Option<String>,
    dry: String,
}

impl Told {
    /// Each thing once, until it changes.
    fn tell(&mut self, outcome: &Outcome, is_dry: bool, metrics: &Metrics) {
        for problem in &outcome.problems {
            if !self.problems.contains(problem) {
                tracing::warn!("{problem}");
            }
        }
        self.problems.clone_from(&outcome.problems);
        if outcome.unkept.is_some() && outcome.unkept != self.unkept {
            let why = outcome.unkept.as_deref().unwrap_or_default();
            tracing::error!(
                "{why}; values that could not be given back after a crash are not changed"
            );
        }
        if outcome.unkept.is_none() && self.unkept.is_some() {
            tracing::info!("what kernel files said before is known and kept again");
        }
        self.unkept.clone_from(&outcome.unkept);
        for failure in &outcome.failures {
            tracing::warn!("cannot write {failure}; it is tried again");
        }
        metrics.noticed(&outcome.notices);
        outcome.notices.iter().for_each(tell_notice);
        if is_dry {
            let text = render_groups(&outcome.groups)
                + &bayplan_enforcement::render_file_plan(&outcome.plan);
            if text != self.dry && !text.is_empty() {
                tracing::info!("would write:\n{text}");
            }
            self.dry = text;
        } else {
            for change in &outcome.groups.changes {
                let verb = if change.is_made { "made" } else { "removed" };
                tracing::debug!("/{} {verb} ({})", change.path, change.reason);
            }
            for (write, end) in &outcome.report.outcomes {
                if end.is_ok() {
                    tracing::debug!(
                        "{} {:?} -> {:?} ({}: {})",
                        write.slot,
                        write.old,
                        write.new,
                        write.unit,
                        write.reason
                    );
                }
            }
            metrics.enforced(outcome);
        }
    }
}

fn tell_notice(notice: &Notice) {
    match notice {
        Notice::Drifted { write, by: Author::Runtime | Author::Systemd } => tracing::debug!(
            "{} was written along as {:?}; it is {:?} again ({})",
            write.slot,
            write.old,
            write.new,
            write.unit
        ),
        Notice::Drifted { write, by: Author::Others } => tracing::warn!(
            "{} was changed to {:?} by another program; it is {:?} again ({})",
            write.slot,
            write.old,
            write.new,
            write.unit
        ),
        Notice::Contested { write } => tracing::error!(
            "{} is changed to {:?} by another program again and again; it is left alone for a while, \
             although {} needs {:?}",
            write.slot,
            write.old,
            write.unit,
            write.new
        ),
    }
}
