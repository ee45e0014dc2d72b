//! The daemon as the proxy sees it. In: the proxy's questions and reports. Out: events to the state, and answers within a deadline.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bayplan_cri::call_observer::CallObserver;
use bayplan_enforcement::SchedulingClass;
use bayplan_host::kernel::DiskKernel;
use bayplan_host::read_volumes;
use bayplan_node::event::{Answer, Event};
use bayplan_types::{Pinning, ThreadScheduling};
use bayplan_workload::runtime::RuntimeError;
use bayplan_workload::{
    Admission, Agent, CreateOutcome, Mount, NewContainer, Pod, ResizeOutcome, Resources, Ticket,
};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::config::{EnforcementMode, LiveConfig, OnFailure};
use crate::enforcer::{Enforcement, asks_for_isolation, has_isolcpus_only};
use crate::inbox::{NoPlace, Place};
use crate::metrics::Metrics;
use crate::nri_link::Link;
use crate::pods::{Known, PATIENCE, PodLookup};
use crate::read_huge_pages::read_huge_pages;
use crate::resources_dir::mounted_dir;
use crate::scheduling_class::{class_of, lacks_realtime};
use crate::sync::Syncer;

/// Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) syncer: Syncer,
    pub(crate) config: LiveConfig,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) sync_soon: Arc<Notify>,
    pub(crate) mounts: Arc<Mounts>,
    pub(crate) enforcement: Enforcement,
    /// The connection of the NRI front end, if that is the one.
    pub(crate) link: Link,
    /// What kubelet knows of pods.
    pub(crate) pods: Option<PodLookup>,
    /// Methods in versions of CRI that are not read, of which the log has told.
    versions_told: Arc<Mutex<BTreeSet<String>>>,
    /// When a call was held back for the first time although the runtime answers.
    held_since: Arc<OnceLock<Instant>>,
}

/// Why there is no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undecided {
    /// Not before the deadline.
    Late,
    /// Too many wait already.
    Crowded,
    /// The task that decides has ended, and the daemon ends with it.
    Gone,
}

/// A start waits this long at most for kernel files. Some milliseconds are usual; the rest is for slow disks, on which the way back is kept first.
const FILES_PATIENCE: Duration = Duration::from_millis(250);

/// The longest time for which calls are held back while the runtime answers but does not list what runs; `runtimeRequestTimeout` of kubelet.
const HELD_MAX: Duration = Duration::from_mins(2);

/// Nine methods are read, and versions of CRI are few; what is named beyond is no version.
const VERSIONS_TOLD_MAX: usize = 100;

/// Where containers see the files of `resources_file.rs`, and where they are.
#[derive(Debug)]
pub(crate) struct Mounts {
    pub(crate) root: PathBuf,
    pub(crate) directories: Vec<PathBuf>,
}

impl Gate {
    pub(crate) fn new(
        syncer: Syncer,
        config: LiveConfig,
        metrics: Arc<Metrics>,
        sync_soon: Arc<Notify>,
        mounts: Arc<Mounts>,
        enforcement: Enforcement,
        link: Link,
    ) -> Gate {
        Gate {
            syncer,
            config,
            metrics,
            sync_soon,
            mounts,
            enforcement,
            link,
            pods: None,
            versions_told: Arc::default(),
            held_since: Arc::default(),
        }
    }

    /// Asks kubelet by these of containers that are to be created.
    pub(crate) fn with_pods(self, pods: PodLookup) -> Gate {
        Gate { pods: Some(pods), ..self }
    }

    /// How long a decision may take.
    fn limit(&self) -> Duration {
        self.link.limit(self.config.borrow().decision_timeout)
    }

    /// How long a start waits for kernel files: with NRI as long as it can, because none of the container's instructions has run, for certain.
    fn files_patience(&self) -> Duration {
        match self.link.unconfirmed.is_for_events() {
            true => self.limit() * 3 / 4,
            false => FILES_PATIENCE,
        }
    }

    /// Waits until the kernel files of a container that is being started are in place.
    ///
    /// # Errors
    /// They are not, after [`Self::files_patience`].
    async fn files_in_place(&self, container_id: &str) -> Result<(), String> {
        if self.config.borrow().enforcement != EnforcementMode::On {
            return Ok(());
        }
        let (asked, patience) = (Instant::now(), self.files_patience());
        let late = || Err(format!("bayplan has not written its kernel files within {patience:?}"));
        let event = Event::Starting(container_id.to_owned());
        let step = match self.ask(event, asked + patience).await {
            Ok(Answer::Since(Some(step))) => step,
            // Whether there are any is not known.
            Err(Undecided::Late) => {
                self.note_late_files(container_id);
                return late();
            }
            // It is not placed, or nothing is written any more.
            _ => return Ok(()),
        };
        let in_line = async {
            match self.link.unconfirmed.is_for_events() {
                true => self.enforcement.is_ready_to_start(container_id, step, asked).await,
                false => self.enforcement.is_in_line_with(step).await,
            }
        };
        if timeout_at(asked + patience, in_line).await.is_ok() {
            return Ok(());
        }
        self.note_late_files(container_id);
        late()
    }

    fn note_late_files(&self, container_id: &str) {
        self.metrics.failed("late_files");
        tracing::warn!(
            container = container_id,
            "its kernel files are not written before its start"
        );
    }

    /// Makes it, and all others, leave CPUs that are not theirs any more; the runtime has created it by now.
    async fn sets_in_place(&self, container_id: &str) -> Result<(), String> {
        if !self.link.unconfirmed.is_for_events() {
            return Ok(());
        }
        let question = Event::ExclusiveCpus(container_id.to_owned());
        let answer = self.syncer.inbox.ask(question).await;
        let Some(Answer::ExclusiveCpus(cpus)) = answer else { return Ok(()) };
        let place = Pinning { cpus, ..Pinning::default() };
        self.narrow("", &place).await.map(drop)
    }

    /// Sends an event although the caller may give up waiting: what happened must not be lost.
    pub(crate) fn send(&self, event: Event) -> JoinHandle<Option<Answer>> {
        let inbox = self.syncer.inbox.clone();
        tokio::spawn(async move { inbox.ask(event).await })
    }

    async fn ask(&self, event: Event, deadline: Instant) -> Result<Answer, Undecided> {
        let answered = timeout_at(deadline, self.send(event)).await;
        let answered = answered.map_err(|_elapsed| Undecided::Late)?;
        answered.ok().flatten().ok_or(Undecided::Gone)
    }

    /// Before anything is refused, and when CPUs of an init container wait to be used again, the runtime is asked what has ended: kubelet
    /// does not tell when a process exits by itself. The first refusal stands where there is no time for a second look. True: a question was put that may
    /// be decided later.
    async fn decide_twice(
        &self,
        place: Place,
        first: Event,
        last: Event,
    ) -> (Result<Admission, Undecided>, bool) {
        let (asked, limit) = (Instant::now(), self.limit());
        let first = match decide(place, first, asked + limit).await {
            Ok(Answer::Admission(refused @ (Admission::Refuse(_) | Admission::Unavailable(_)))) => {
                Some(refused)
            }
            Ok(Answer::Admission(admission)) => return (Ok(admission), false),
            Ok(_) => None,
            Err(why) => return (Err(why), true),
        };
        // A request that is not refused does not need the runtime's answer.
        let patience = if first.is_some() { limit } else { limit / 4 };
        let synced = timeout_at(asked + patience, self.syncer.sync()).await;
        let is_reached = !matches!(synced, Ok(Err(RuntimeError::Unavailable { .. })));
        if !matches!(synced, Ok(Ok(()))) {
            tracing::warn!("the runtime could not be asked what has ended");
        }
        let last = match self.reserve() {
            Ok(place) => decide(place, last, asked + limit).await,
            Err(why) => Err(why),
        };
        let is_late = matches!(last, Err(Undecided::Late));
        let decided = match last {
            Ok(Answer::Admission(held @ Admission::Unavailable(_))) => {
                Ok(self.hold(held, is_reached))
            }
            Ok(Answer::Admission(admission)) => Ok(admission),
            undecided => match first {
                Some(held @ Admission::Unavailable(_)) => Ok(self.hold(held, is_reached)),
                first => first.ok_or(undecided.err().unwrap_or(Undecided::Late)),
            },
        };
        (decided, is_late)
    }

    /// A call that came before it is known what runs. A container that passed through would run on all CPUs, those of running owners among
    /// them, so it is held back with either `onFailure`; with `open` it passes once the runtime has created containers, but not listed
    /// them, for [`HELD_MAX`]. A runtime that cannot be reached creates none, so that time does not count.
    fn hold(&self, held: Admission, is_reached: bool) -> Admission {
        self.metrics.failed("not_known");
        if !is_reached {
            return held;
        }
        let since = *self.held_since.get_or_init(Instant::now);
        let on_failure = self.config.borrow().on_failure;
        match is_held_too_long(since, Instant::now(), on_failure) {
            true => {
                tracing::error!(
                    "the runtime has not told for {HELD_MAX:?} what runs; the call passes, see onFailure"
                );
                Admission::PassThrough
            }
            false => held,
        }
    }

    /// A place for a question that waits for its decision.
    fn reserve(&self) -> Result<Place, Undecided> {
        self.syncer.inbox.reserve().map_err(|why| match why {
            NoPlace::Full => Undecided::Crowded,
            NoPlace::Closed => Undecided::Gone,
        })
    }

    /// What is done without a decision: where it is late, what the configuration says. Where too many wait, or nothing decides any more, kubelet's
    /// next try finds fewer or another daemon; a container that went through now would share CPUs for all its life.
    fn undecided(&self, why: Undecided) -> Admission {
        if why == Undecided::Crowded {
            self.metrics.failed("crowded");
            let waiting = self.syncer.inbox.capacity();
            tracing::error!("{waiting} events wait already; see maxWaitingCalls");
            return Admission::Refuse(format!(
                "bayplan: {waiting} calls wait for a decision already"
            ));
        }
        self.metrics.failed("undecided");
        if why == Undecided::Gone {
            tracing::error!("refused: the task that decides has ended, and so does the daemon");
            return Admission::Refuse("bayplan is ending, and another one decides".to_owned());
        }
        let (limit, on_failure) = (self.limit(), self.config.borrow().on_failure);
        tracing::error!("no decision within {limit:?}; see decisionTimeout and onFailure");
        match on_failure {
            OnFailure::Open => Admission::PassThrough,
            OnFailure::Closed => Admission::Refuse(format!(
                "bayplan did not decide within {limit:?}, and onFailure is closed"
            )),
        }
    }

    /// Adds what is not in the call.
    async fn look_up(&self, container: &mut NewContainer) {
        let (pod, name) = (container.pod.clone(), container.name.clone());
        let known = async {
            match &self.pods {
                Some(pods) => pods.look_up(&pod.uid, [&pod.namespace, &pod.name, &name]).await,
                None => Known::default(),
            }
        };
        let (known, ()) = tokio::join!(known, self.find_disks(container));
        known.give_to(container);
        self.find_isolation(container).await;
        self.find_huge_pages(container).await;
    }

    /// Tells the state of the pod of a container that is resized as kubelet has it now. Kubelet's watch and list tell the same, but not before the resize for certain: requests
    /// would be those of before, or what cgroup settings tell, until the next list.
    async fn see_pod(&self, container_id: &str, resources: Resources) {
        let Some(pods) = self.pods.as_ref().filter(|it| it.has_kubelet()) else { return };
        let deadline = Instant::now() + PATIENCE;
        let question = Event::ResizeAsked(container_id.to_owned(), resources);
        let answered = self.ask(question, deadline).await;
        let Ok(Answer::PodUid(Some(uid))) = answered else { return };
        // After the state has heard of the resize, so that it knows which answers are newer.
        let asked = Timestamp::now();
        if let Ok(Some(pod)) = timeout_at(deadline, pods.pod_now(&uid)).await {
            let seen = Event::PodsSeen(vec![pod], asked);
            // What is decided later is decided after this.
            drop(self.ask(seen, deadline).await);
        }
    }

    /// Looks up which disks its volumes are on. The table of mounts and sysfs are read in a millisecond or two; a container that nothing is known of is better than one
    /// that waits.
    async fn find_disks(&self, container: &mut NewContainer) {
        let volumes = std::mem::take(&mut container.volumes);
        if volumes.is_empty() {
            return;
        }
        let root = self.syncer.host_root.clone();
        let read = tokio::task::spawn_blocking(move || {
            read_volumes(&root, volumes.keys().map(String::as_str))
        });
        let patience = self.limit() / 4;
        match timeout(patience, read).await {
            Ok(Ok(found)) => container.volumes = found,
            _ => {
                self.metrics.failed("late_disks");
                let (pod, name) = (&container.pod.name, &container.name);
                tracing::warn!(pod, name, "placed without knowing which disks its volumes are on");
            }
        }
    }

    /// Looks up whether it can have the partition that it asks for. Where that is not known in time it is placed as if it could.
    async fn find_isolation(&self, container: &mut NewContainer) {
        let config = Arc::clone(&self.config.borrow());
        if !asks_for_isolation(&config, container) {
            return;
        }
        let root = self.syncer.host_root.clone();
        let read = tokio::task::spawn_blocking(move || {
            DiskKernel::open(&root).is_ok_and(|mut kernel| has_isolcpus_only(&mut kernel))
        });
        let found = timeout(self.limit() / 4, read).await;
        if found.is_err() {
            let (pod, name) = (&container.pod.name, &container.name);
            tracing::warn!(pod, name, "placed without knowing whether it can have a partition");
        }
        container.lacks_partition = matches!(found, Ok(Ok(true)));
    }

    /// What threads of a class say, without a policy that this kernel refuses: the runtime would fail to start the container. What it lacks is told of it as long as it runs.
    async fn possible_threads(&self, class: SchedulingClass) -> ThreadScheduling {
        let threads = class.threads;
        if !class.is_realtime() {
            return threads;
        }
        let root = self.syncer.host_root.clone();
        let read = tokio::task::spawn_blocking(move || {
            DiskKernel::open(&root).is_ok_and(|mut kernel| lacks_realtime(&class, &mut kernel))
        });
        // Where it is not known in time, the class is as the configuration has it.
        let lacks_policy = matches!(timeout(self.limit() / 4, read).await, Ok(Ok(true)));
        ThreadScheduling { policy: threads.policy.filter(|_| !lacks_policy), ..threads }
    }

    /// Reads which huge pages others use, before a container that asks for some is placed. It waits for the kernel only: which containers have
    /// asked is published, and what was read goes into the queue before the question. Where it is not known in time, or there is no place in
    /// the queue, what was known last counts.
    async fn find_huge_pages(&self, container: &NewContainer) {
        if container.huge_pages.is_empty() {
            return;
        }
        let patience = self.limit() / 4;
        let (root, users) = (self.syncer.host_root.clone(), self.enforcement.huge_page_users.now());
        let read = tokio::task::spawn_blocking(move || read_huge_pages(&root, &users));
        let found = timeout(patience, read).await.ok().and_then(Result::ok);
        let is_sent = match (found, self.syncer.inbox.reserve()) {
            (Some(now), Ok(place)) => {
                drop(place.ask(Event::HugePagesRead(Box::new(now))));
                true
            }
            _ => false,
        };
        if !is_sent {
            self.metrics.failed("late_huge_pages");
            let (pod, name) = (&container.pod.name, &container.name);
            tracing::warn!(pod, name, "placed without knowing which huge pages others use now");
        }
    }

    /// The runtime, or kubelet around it, writes the files of this container, or has just done so.
    fn note_call(&self, container_id: &str) {
        self.enforcement.calls.note(container_id, Instant::now());
    }

    /// Tells the loop; waits so that what follows the reply sees it, but not for ever.
    async fn tell(&self, event: Event) {
        let limit = self.limit();
        if timeout(limit, self.send(event)).await.is_err() {
            self.metrics.failed("late");
        }
    }
}

/// With `onFailure: closed` nothing is ever held too long.
fn is_held_too_long(since: Instant, now: Instant, on_failure: OnFailure) -> bool {
    on_failure == OnFailure::Open && now.saturating_duration_since(since) >= HELD_MAX
}

/// Asks and waits for the answer.
async fn decide(place: Place, question: Event, deadline: Instant) -> Result<Answer, Undecided> {
    let answered = timeout_at(deadline, place.ask(question)).await;
    answered.map_err(|_elapsed| Undecided::Late)?.ok_or(Undecided::Gone)
}

impl Agent for Gate {
    async fn pod_started(&self, pod: Pod) {
        self.tell(Event::PodStarted(pod)).await;
    }

    async fn pod_ended(&self, pod_id: &str) {
        self.tell(Event::PodEnded(pod_id.to_owned())).await;
    }

    async fn pod_resized(&self, pod_id: &str, resources: Resources) {
        self.tell(Event::PodResized(pod_id.to_owned(), resources)).await;
    }

    async fn admit(&self, ticket: Ticket, mut container: NewContainer) -> Admission {
        let place = match self.reserve() {
            Ok(place) => place,
            Err(why) => return self.undecided(why),
        };
        self.look_up(&mut container).await;
        let container = Box::new(container);
        let (first, last) =
            (Event::TryAdmit(ticket, container.clone()), Event::Admit(ticket, container));
        let (decided, _is_late) = self.decide_twice(place, first, last).await;
        let admission = decided.unwrap_or_else(|why| self.undecided(why));
        if matches!(admission, Admission::Refuse(_) | Admission::Unavailable(_)) {
            // Should it be placed late, the place will not be asked for.
            self.send(Event::CreateEnded(ticket, CreateOutcome::Failed));
        }
        admission
    }

    async fn pool_environment(&self, ticket: Ticket) -> Option<Vec<(String, String)>> {
        let deadline = Instant::now() + self.limit();
        match self.ask(Event::PoolEnvironment(ticket), deadline).await {
            Ok(Answer::PoolEnvironment(variables)) => variables,
            _ => {
                self.metrics.failed("undecided");
                tracing::error!("`cmk isolate` stays in a command: no answer in time");
                None
            }
        }
    }

    async fn thread_scheduling(&self, ticket: Ticket, pod: &Pod) -> ThreadScheduling {
        let config = Arc::clone(&self.config.borrow());
        let classes = &config.scheduling_classes;
        if classes.iter().all(|it| it.class.threads.is_empty()) {
            return ThreadScheduling::default();
        }
        // A container without its class is better than one that waits.
        let deadline = Instant::now() + self.limit() / 4;
        let named = match self.ask(Event::SchedulingClass(ticket), deadline).await {
            Ok(Answer::SchedulingClass(named)) => named,
            _ => {
                self.metrics.failed("late_class");
                let (namespace, pod) = (&pod.namespace, &pod.name);
                tracing::warn!(
                    namespace,
                    pod,
                    "a container has no scheduling class: no answer in time"
                );
                return ThreadScheduling::default();
            }
        };
        match class_of(classes, named.as_deref(), pod) {
            Some(class) => self.possible_threads(class.class.clone()).await,
            None => ThreadScheduling::default(),
        }
    }

    fn mounts(&self, pod_id: &str, name: &str, attempt: u32) -> Vec<Mount> {
        let Mounts { root, directories } = &*self.mounts;
        let seen = directories.iter().filter_map(|seen| {
            let dir = mounted_dir(root, pod_id, name, attempt)?;
            let [container_path, host_path] = [seen, &dir].map(|it| it.display().to_string());
            Some(Mount { container_path, host_path })
        });
        seen.collect()
    }

    async fn created(&self, ticket: Ticket, outcome: CreateOutcome) {
        self.tell(Event::CreateEnded(ticket, outcome)).await;
    }

    async fn starting(&self, container_id: &str) -> Result<(), String> {
        self.enforcement.calls.begin_start(container_id, Instant::now());
        let files = self.files_in_place(container_id).await;
        let on_failure = self.config.borrow().on_failure;
        if on_failure == OnFailure::Open {
            // What is late is counted and logged.
            let _late = self.sets_in_place(container_id).await;
            return Ok(());
        }
        files?;
        self.sets_in_place(container_id).await
    }

    async fn started(&self, container_id: &str) {
        self.enforcement.calls.end_start(container_id, Instant::now());
        self.link.unconfirmed.look_again(container_id);
        self.tell(Event::Started(container_id.to_owned())).await;
    }

    async fn ended(&self, container_id: &str) {
        self.tell(Event::Ended(container_id.to_owned())).await;
    }

    async fn resize(&self, container_id: &str, resources: Resources) -> Admission {
        let place = match self.reserve() {
            Ok(place) => place,
            Err(why) => return self.undecided(why),
        };
        self.see_pod(container_id, resources).await;
        self.link.unconfirmed.forward(container_id);
        let id = container_id.to_owned();
        let (first, last) =
            (Event::TryResize(id.clone(), resources), Event::Resize(id.clone(), resources));
        let (decided, is_late) = self.decide_twice(place, first, last).await;
        let decided = decided.unwrap_or_else(|why| self.undecided(why));
        // Kubelet asks every second for what is refused, and the runtime hears nothing of it.
        if !matches!(decided, Admission::Refuse(_) | Admission::Unavailable(_)) {
            self.note_call(container_id);
            return decided;
        }
        self.link.unconfirmed.forwarded(container_id);
        if is_late {
            // Should it be made late, it is undone.
            self.send(Event::Resized(id, ResizeOutcome::Failed));
        }
        decided
    }

    async fn resized(&self, container_id: &str, outcome: ResizeOutcome) {
        self.note_call(container_id);
        self.link.unconfirmed.forwarded(container_id);
        self.tell(Event::Resized(container_id.to_owned(), outcome)).await;
    }

    fn may_pass(&self, method: &str, why: &'static str) -> Result<(), String> {
        if self.config.borrow().on_failure == OnFailure::Open {
            return Ok(());
        }
        tracing::error!(method, why, "refused: it cannot be read, and onFailure is closed");
        self.metrics.failed("undecided");
        Err(format!("bayplan cannot read this call ({why}), and onFailure is closed"))
    }
}

impl CallObserver for Gate {
    fn call_ended(&self, method: &str, code: u32) {
        self.metrics.call_ended(method, code);
    }

    fn passed_through(&self, method: &str, why: &'static str) {
        tracing::warn!(method, why, "forwarded unchanged");
        self.metrics.failed("passed_through");
        self.sync_soon.notify_one();
    }

    fn other_version(&self, method: &str) {
        self.metrics.failed("other_version");
        self.sync_soon.notify_one();
        let mut told = self.versions_told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < VERSIONS_TOLD_MAX && told.insert(method.to_owned()) {
            tracing::error!(
                method,
                "forwarded unread, so nothing was decided: bayplan reads no version of CRI but runtime.v1; told once"
            );
        }
    }
}

#[cfg(test)]
mod tests;
