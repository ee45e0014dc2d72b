//! The daemon as the proxy sees it. In: the proxy's questions and reports. Out: events to the state, and answers within a deadline.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bayplan_cri::call_observer::CallObserver;
use bayplan_cri::upstream::RuntimeError;
use bayplan_host::kernel::DiskKernel;
use bayplan_host::read_volumes;
use bayplan_node::event::{Answer, Event};
use bayplan_types::Pinning;
use bayplan_workload::{
    Admission, Agent, CreateOutcome, Mount, NewContainer, Pod, Resources, Ticket,
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
        match self.link.unconfirmed.is_on() {
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
            match self.link.unconfirmed.is_on() {
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
        if !self.link.unconfirmed.is_on() {
            return Ok(());
        }
        let answer = self.syncer.inbox.ask(Event::Occupancy).await;
        let Some(Answer::Occupancy(occupancy)) = answer else { return Ok(()) };
        let own = occupancy.occupants.iter().find(|it| it.runtime_id == container_id);
        let cpus = own.map(|it| it.exclusive.clone()).unwrap_or_default();
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
    /// does not tell when a process exits by itself. The first refusal stands where there is no time for a second look.
    async fn decide_twice(
        &self,
        place: Place,
        first: Event,
        last: Event,
    ) -> Result<Admission, Undecided> {
        let (asked, limit) = (Instant::now(), self.limit());
        let first = match decide(place, first, asked + limit).await? {
            Answer::Admission(refused @ (Admission::Refuse(_) | Admission::Unavailable(_))) => {
                Some(refused)
            }
            Answer::Admission(admission) => return Ok(admission),
            _ => None,
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
        match last {
            Ok(Answer::Admission(held @ Admission::Unavailable(_))) => {
                Ok(self.hold(held, is_reached))
            }
            Ok(Answer::Admission(admission)) => Ok(admission),
            undecided => match first {
                Some(held @ Admission::Unavailable(_)) => Ok(self.hold(held, is_reached)),
                first => first.ok_or(undecided.err().unwrap_or(Undecided::Late)),
            },
        }
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
        let asked = Timestamp::now();
        let deadline = Instant::now() + PATIENCE;
        let question = Event::ResizeAsked(container_id.to_owned(), resources);
        let answered = self.ask(question, deadline).await;
        let Ok(Answer::PodUid(Some(uid))) = answered else { return };
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
        let decided = self.decide_twice(place, first, last).await;
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
        if on_failure == OnFailure::Closed {
            files?;
        }
        let sets = self.sets_in_place(container_id).await;
        sets.or_else(|why| if on_failure == OnFailure::Open { Ok(()) } else { Err(why) })
    }

    async fn started(&self, container_id: &str) {
        self.enforcement.calls.end_start(container_id, Instant::now());
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
        let id = container_id.to_owned();
        let (first, last) = (Event::TryResize(id.clone(), resources), Event::Resize(id, resources));
        let decided = self.decide_twice(place, first, last).await;
        let decided = decided.unwrap_or_else(|why| self.undecided(why));
        // Kubelet asks every second for what is refused, and the runtime hears nothing of it.
        if !matches!(decided, Admission::Refuse(_) | Admission::Unavailable(_)) {
            self.note_call(container_id);
        }
        decided
    }

    async fn resized(&self, container_id: &str, is_answered: bool) {
        self.note_call(container_id);
        self.tell(Event::Resized(container_id.to_owned(), is_answered)).await;
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
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use bayplan_cri::kubelet_api::fake::{FakeKubelet, FakePod, Manner};
    use tokio::net::UnixListener;
    use tokio::sync::watch;

    use super::*;
    use crate::config::Config;
    use crate::enforcer::{Questions, RuntimeCalls};
    use crate::inbox::{Events, inbox};
    use crate::runtime::model::ModelRuntime;

    /// What the loop hears of a resize while kubelet is like this.
    async fn resize_while(manner: Manner, uid: Option<&str>) -> Vec<&'static str> {
        let (dir, kubelet) = (tempfile::tempdir().unwrap(), FakeKubelet::default());
        kubelet.set_pods(vec![FakePod { uid: "uid-web".into(), ..FakePod::default() }]);
        kubelet.set_manner(manner);
        let path = dir.path().join("pods.sock");
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(async move { kubelet.serve(listener, std::future::pending()).await });
        let config = Config {
            kubelet_pods_socket: Some(path),
            pod_resources_socket: None,
            decision_timeout: Duration::from_secs(60),
            ..Config::default()
        };
        let lookup = PodLookup::new(&config, Arc::default());
        let (gate, mut events) = gate(config);
        let gate = gate.with_pods(lookup);
        let heard = async {
            let mut heard = Vec::new();
            loop {
                let envelope = events.0.recv().await.unwrap();
                let (name, answer) = match envelope.event {
                    Event::ResizeAsked(..) => ("asked", Answer::PodUid(uid.map(str::to_owned))),
                    Event::PodsSeen(pods, _) => {
                        assert_eq!(pods[0].uid, "uid-web");
                        ("seen", Answer::Done)
                    }
                    Event::TryResize(..) => ("resize", Answer::Admission(Admission::PassThrough)),
                    event => panic!("{event:?}"),
                };
                heard.push(name);
                envelope.answer.send(answer).unwrap();
                if name == "resize" {
                    return heard;
                }
            }
        };
        let (admission, heard) = tokio::join!(gate.resize("id", Resources::default()), heard);
        assert_eq!(admission, Admission::PassThrough);
        heard
    }

    #[tokio::test]
    async fn a_resize_is_decided_by_what_kubelet_knows_then_if_it_tells_in_time() {
        let known = Some("uid-web");
        for (manner, uid) in [
            (Manner::Never, known),
            (Manner::Nonsense, known),
            (Manner::Well, Some("uid-gone")),
            (Manner::Well, None),
        ] {
            assert_eq!(resize_while(manner, uid).await, ["asked", "resize"], "{manner:?} {uid:?}");
        }
        // On a busy machine it may be late.
        let mut tries = 0;
        while resize_while(Manner::Well, known).await != ["asked", "seen", "resize"] {
            tries += 1;
            assert!(tries < 5, "not told");
        }
    }

    /// A gate to a loop that answers nothing.
    fn gate(config: Config) -> (Gate, Events) {
        let (gate, events, _nobody_enforces) = enforcing_gate(config);
        (gate, events)
    }

    fn enforcing_gate(config: Config) -> (Gate, Events, Questions) {
        let (inbox, events) = inbox(config.waiting_max);
        let metrics = Arc::<Metrics>::default();
        let syncer = Syncer {
            runtime: Arc::new(ModelRuntime::away()),
            inbox,
            host_root: "/".into(),
            metrics: Arc::clone(&metrics),
            health: Arc::default(),
            turn: Arc::default(),
        };
        let sync_soon = Arc::default();
        let (_, config) = watch::channel(Arc::new(config));
        let mounts = Arc::new(Mounts { root: "/".into(), directories: Vec::new() });
        let (enforcement, questions) = Enforcement::new(RuntimeCalls::default());
        let gate =
            Gate::new(syncer, config, metrics, sync_soon, mounts, enforcement, Link::default());
        (gate, events, questions)
    }

    fn impatient(on_failure: OnFailure) -> Config {
        Config { decision_timeout: Duration::from_millis(20), on_failure, ..Config::default() }
    }

    #[tokio::test]
    async fn a_creation_with_huge_pages_waits_for_no_other_task() {
        let config = Config { decision_timeout: Duration::from_secs(60), ..Config::default() };
        let (gate, mut events) = gate(config);
        let page = bayplan_types::Bytes(2 << 20);
        let huge_pages = [(page, page)].into();
        let container = NewContainer { huge_pages, ..NewContainer::default() };
        let heard = async {
            let mut heard = Vec::new();
            while heard.len() < 2 {
                // Nothing is answered.
                heard.push(events.0.recv().await.unwrap());
            }
            heard
        };
        tokio::select! {
            heard = heard => {
                let [first, second] = &heard[..] else { panic!("{} events", heard.len()) };
                assert!(matches!(first.event, Event::HugePagesRead(_)));
                assert!(matches!(second.event, Event::TryAdmit(..)));
            }
            _ = gate.admit(Ticket(1), container) => panic!("answered without the loop"),
        }
    }

    async fn admit(gate: &Gate) -> Admission {
        gate.admit(Ticket(1), NewContainer::default()).await
    }

    #[tokio::test]
    async fn what_is_not_decided_in_time_passes_unless_the_configuration_is_closed() {
        let (open, _events) = gate(impatient(OnFailure::Open));
        assert_eq!(admit(&open).await, Admission::PassThrough);
        assert_eq!(open.resize("id", Resources::default()).await, Admission::PassThrough);
        let (closed, mut events) = gate(impatient(OnFailure::Closed));
        let text = "bayplan did not decide within 20ms, and onFailure is closed";
        assert_eq!(admit(&closed).await, Admission::Refuse(text.to_owned()));
        // Should it be placed late, the place is given back.
        let mut asked = Vec::new();
        while asked.len() < 2 {
            asked.push(events.0.recv().await.unwrap().event);
        }
        let given_up = Event::CreateEnded(Ticket(1), CreateOutcome::Failed);
        assert_eq!(format!("{:?}", asked[1]), format!("{given_up:?}"));
    }

    #[test]
    fn calls_that_cannot_be_read_pass_unless_the_configuration_is_closed() {
        for (on_failure, expected) in [
            (OnFailure::Open, Ok(())),
            (
                OnFailure::Closed,
                Err("bayplan cannot read this call (long), and onFailure is closed".to_owned()),
            ),
        ] {
            let (gate, _events) = gate(impatient(on_failure));
            assert_eq!(
                gate.may_pass("/runtime.v1.RuntimeService/CreateContainer", "long"),
                expected
            );
        }
    }

    #[tokio::test]
    async fn nobody_passes_where_nobody_decides_any_more() {
        let (gate, events) = gate(impatient(OnFailure::Open));
        drop(events);
        let text = "bayplan is ending, and another one decides";
        assert_eq!(admit(&gate).await, Admission::Refuse(text.to_owned()));
        let resized = gate.resize("id", Resources::default()).await;
        assert_eq!(resized, Admission::Refuse(text.to_owned()));
    }

    #[tokio::test]
    async fn calls_beyond_those_that_may_wait_are_refused_at_once() {
        let waiting_max = 2;
        let (gate, _events) = gate(Config { waiting_max, ..impatient(OnFailure::Open) });
        for _ in 0..waiting_max {
            assert_eq!(admit(&gate).await, Admission::PassThrough);
        }
        let refused = Admission::Refuse("bayplan: 2 calls wait for a decision already".to_owned());
        assert_eq!(admit(&gate).await, refused);
        assert_eq!(gate.resize("id", Resources::default()).await, refused);
    }

    #[tokio::test]
    async fn calls_that_come_together_are_refused_as_those_that_come_one_by_one() {
        let waiting_max = 2;
        let (gate, _events) = gate(Config { waiting_max, ..impatient(OnFailure::Open) });
        // Its disks are looked up before it is asked where it goes.
        let container = NewContainer {
            volumes: [("/nowhere".to_owned(), Vec::new())].into(),
            ..NewContainer::default()
        };
        let calls = (0..5).map(|at| gate.admit(Ticket(at), container.clone()));
        let answers = futures::future::join_all(calls).await;
        let passed = answers.iter().filter(|it| **it == Admission::PassThrough).count();
        let refused = Admission::Refuse("bayplan: 2 calls wait for a decision already".to_owned());
        let refused = answers.iter().filter(|it| **it == refused).count();
        assert_eq!((passed, refused), (waiting_max, 5 - waiting_max), "{answers:?}");
    }

    #[tokio::test]
    async fn a_version_that_is_not_read_is_told_once_for_each_method_and_always_counted() {
        let (gate, _events) = gate(Config::default());
        for at in 0..1000 {
            gate.other_version("/runtime.v2.RuntimeService/CreateContainer");
            gate.other_version(&format!("/runtime.made-up-{at}.RuntimeService/CreateContainer"));
        }
        assert_eq!(gate.versions_told.lock().unwrap().len(), VERSIONS_TOLD_MAX);
        let counted = "bayplan_failures_total{kind=\"other_version\"} 2000";
        assert!(gate.metrics.render(true).contains(counted));
    }

    #[test]
    fn calls_are_held_back_for_a_bounded_time_where_the_configuration_is_open() {
        let since = Instant::now();
        for (after, on_failure, expected) in [
            (HELD_MAX - Duration::from_millis(1), OnFailure::Open, false),
            (HELD_MAX, OnFailure::Open, true),
            (HELD_MAX * 100, OnFailure::Closed, false),
        ] {
            let told = is_held_too_long(since, since + after, on_failure);
            assert_eq!(told, expected, "{after:?} {on_failure:?}");
        }
    }

    const LATE: &str = "bayplan_failures_total{kind=\"late_files\"} 1";

    /// Answers one question about a container.
    async fn answer(events: &mut Events, since: Option<u64>) {
        let envelope = events.0.recv().await.unwrap();
        assert!(matches!(envelope.event, Event::Starting(_)), "{:?}", envelope.event);
        envelope.answer.send(Answer::Since(since)).unwrap();
    }

    #[tokio::test]
    async fn a_start_waits_for_the_files_of_its_container_and_not_for_ever() {
        let (gate, mut events, questions) = enforcing_gate(Config::default());
        questions.note_done(6);
        let mut starting = pin!(gate.starting("late"));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(starting.as_mut().poll(&mut context), Poll::Pending);
        answer(&mut events, Some(7)).await;
        tokio::task::yield_now().await;
        assert_eq!(starting.as_mut().poll(&mut context), Poll::Pending);
        questions.note_done(9);
        starting.await.unwrap();
        assert!(!gate.metrics.render(true).contains(LATE));

        let (ready, ()) = tokio::join!(gate.starting("too late"), answer(&mut events, Some(10)));
        assert_eq!(ready, Ok(()), "`onFailure` is `open`");
        assert!(gate.metrics.render(true).contains(LATE));
    }

    /// Issue 35: with NRI every start waited for a look of its own, which gathered other changes first.
    #[tokio::test]
    async fn a_start_that_needs_no_files_waits_for_no_look() {
        let (mut gate, mut events, questions) = enforcing_gate(Config::default());
        gate.link = Link::nri();
        let root = tempfile::tempdir().unwrap();
        gate.syncer.host_root = root.path().into();
        // A look since the container was placed, which wants files of another one, and one before that.
        for (id, step, is_ready) in [("plain", 7, true), ("with", 7, false), ("plain", 8, false)] {
            questions.note_look(7, &["with"]);
            let mut starting = pin!(gate.starting(id));
            let mut context = Context::from_waker(Waker::noop());
            assert_eq!(starting.as_mut().poll(&mut context), Poll::Pending);
            answer(&mut events, Some(step)).await;
            let (told, look) = (events.0.recv(), questions.starts_waiting());
            tokio::select! {
                biased;
                _ = starting.as_mut() => panic!("{id} {step}: answered without its sets"),
                // Its sets are looked at next.
                envelope = told => {
                    assert!(is_ready, "{id} {step}: {:?}", envelope.map(|it| it.event));
                }
                () = look => assert!(!is_ready, "{id} {step} waits for a look"),
            }
        }
    }

    #[tokio::test]
    async fn a_start_that_is_not_decided_in_time_is_refused_where_the_configuration_is_closed() {
        let text = format!("bayplan has not written its kernel files within {FILES_PATIENCE:?}");
        for (on_failure, expected) in [(OnFailure::Open, Ok(())), (OnFailure::Closed, Err(text))] {
            // Nothing is answered.
            let (gate, _events, _questions) = enforcing_gate(impatient(on_failure));
            assert_eq!(gate.starting("undecided").await, expected, "{on_failure:?}");
            assert!(gate.metrics.render(true).contains(LATE));
        }
    }

    #[tokio::test]
    async fn a_start_does_not_wait_where_nothing_will_be_written() {
        let (gate, mut events, questions) = enforcing_gate(Config::default());
        let (ready, ()) = tokio::join!(gate.starting("unknown"), answer(&mut events, None));
        assert_eq!(ready, Ok(()));
        drop(questions);
        let (ready, ()) = tokio::join!(gate.starting("unwritten"), answer(&mut events, Some(1)));
        assert_eq!(ready, Ok(()));
        assert!(!gate.metrics.render(true).contains(LATE));
        let off = Config { enforcement: EnforcementMode::Off, ..Config::default() };
        let (gate, _events, _questions) = enforcing_gate(off);
        gate.starting("not enforced").await.unwrap();
        assert!(!gate.metrics.render(true).contains(LATE));
    }
}
