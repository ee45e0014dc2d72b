//! What kubelet knows of pods, by its local sockets, or else what the agent tells of them. In: a pod's uid or name. Out: exact requests, extended resources, live annotations,
//! and the devices of a container, if kubelet tells of them in time.
//!
//! Nothing here is needed for a container to be placed. A creation, and a resize in place, waits for kubelet for [`PATIENCE`] at most; after some questions without an answer a
//! socket is left alone for a while ([`Breaker`]), so that a kubelet that is stuck, or has no such socket, costs nothing. Kubelet has a pod before it asks the
//! runtime for its sandbox, so a pod that it does not know is a pod that is gone.

mod breaker;
mod told;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bayplan_cri::kubelet_api::{ErrorKind, KubeletError, KubeletPods, PodResources};
use bayplan_node::event::Event;
use bayplan_workload::{AssignedDevices, Inventory, NewContainer, PodFacts};
use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::config::Config;
use crate::inbox::Inbox;
use crate::metrics::Metrics;
use breaker::Breaker;
use told::ToldPods;

/// A creation, and a resize, waits this long at most for what kubelet knows.
pub(crate) const PATIENCE: Duration = Duration::from_millis(50);
/// All pods are asked for this often: kubelet's watch does not tell of annotations that change.
const LIST_EVERY: Duration = Duration::from_secs(10);
/// One list may take this long.
const LIST_PATIENCE: Duration = Duration::from_secs(5);
/// Schedulers' figures wait this long at most for devices.
const INVENTORY_PATIENCE: Duration = Duration::from_secs(1);
/// Kubelet's sockets answer a hundred questions in a second: one that comes too often is asked again after this time.
const AGAIN_AFTER: Duration = Duration::from_millis(15);

/// Kubelet's sockets. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct PodLookup {
    pods: Option<Line<KubeletPods>>,
    resources: Option<Line<PodResources>>,
    /// By the agent, for a kubelet that tells of no pods.
    pub(crate) told: Arc<ToldPods>,
    /// Devices of the node as kubelet last told of them.
    inventory: Arc<Mutex<Inventory>>,
    metrics: Arc<Metrics>,
}

/// One socket, and whether it is asked now.
#[derive(Clone, Debug)]
struct Line<T> {
    client: T,
    breaker: Arc<Mutex<Breaker>>,
}

impl<T> Line<T> {
    fn new(client: T) -> Line<T> {
        Line { client, breaker: Arc::default() }
    }

    fn may_ask(&self) -> bool {
        self.with_breaker(|it| it.may_ask(Instant::now()))
    }

    fn note(&self, is_answered: bool) {
        self.with_breaker(|it| it.note(is_answered, Instant::now()));
    }

    fn with_breaker<R>(&self, use_it: impl FnOnce(&mut Breaker) -> R) -> R {
        use_it(&mut self.breaker.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The answer, if there is one in time. A refusal is an answer, too: it costs no time.
    async fn ask<R, Q>(&self, question: impl Fn() -> Q) -> Asked<R>
    where
        Q: Future<Output = Result<R, KubeletError>>,
    {
        if !self.may_ask() {
            return Asked::LeftAlone;
        }
        let twice = async {
            match question().await {
                Err(error) if error.kind() == ErrorKind::Busy => {
                    sleep(AGAIN_AFTER).await;
                    question().await
                }
                answered => answered,
            }
        };
        let asked = timeout(PATIENCE, twice).await;
        self.note(is_heard(&asked));
        match asked {
            Ok(Ok(answer)) => Asked::Answered(answer),
            Ok(Err(error)) => {
                tracing::debug!("{error}");
                Asked::Failed
            }
            Err(_) => Asked::Late,
        }
    }
}

/// Whether a kubelet that lives has said something in time.
fn is_heard<R>(asked: &Result<Result<R, KubeletError>, Elapsed>) -> bool {
    match asked {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => error.kind() != ErrorKind::Away,
        Err(_) => false,
    }
}

/// How a question ended.
enum Asked<R> {
    Answered(R),
    /// Nothing listens, or kubelet refuses.
    Failed,
    Late,
    LeftAlone,
}

impl PodLookup {
    pub(crate) fn new(config: &Config, metrics: Arc<Metrics>) -> PodLookup {
        let pods = config.kubelet_pods_socket.clone();
        let resources = config.pod_resources_socket.clone();
        PodLookup {
            pods: pods.map(|socket| Line::new(KubeletPods::new(socket))),
            resources: resources.map(|socket| Line::new(PodResources::new(socket))),
            told: Arc::default(),
            inventory: Arc::default(),
            metrics,
        }
    }

    /// What kubelet knows of a container that is to be created, after [`PATIENCE`] at most.
    pub(crate) async fn look_up(&self, uid: &str, of: [&str; 3]) -> Known {
        let (pod, devices) = tokio::join!(self.pod(uid, [of[0], of[1]]), self.devices(of));
        Known { pod, devices }
    }

    /// Whether kubelet can be asked for pods.
    pub(crate) fn has_kubelet(&self) -> bool {
        self.pods.is_some()
    }

    /// What kubelet knows of a pod that runs, after [`PATIENCE`] at most.
    pub(crate) async fn pod_now(&self, uid: &str) -> Option<PodFacts> {
        let line = self.pods.as_ref()?;
        let asked = line.ask(|| line.client.get(uid)).await;
        self.in_time(asked, uid).flatten()
    }

    async fn pod(&self, uid: &str, of: [&str; 2]) -> Option<PodFacts> {
        if uid.is_empty() {
            return None;
        }
        self.pod_now(uid).await.or_else(|| self.told.get(uid, of))
    }

    async fn devices(&self, [namespace, pod, container]: [&str; 3]) -> Vec<AssignedDevices> {
        let Some(line) = &self.resources else { return Vec::new() };
        let asked = line.ask(|| line.client.of(namespace, pod, container)).await;
        self.in_time(asked, format!("{namespace}/{pod}")).unwrap_or_default()
    }

    /// Devices of the node; those of before while kubelet does not tell, which gives none to containers then. Empty where it has never told.
    pub(crate) async fn inventory(&self) -> Inventory {
        let last = || self.inventory.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(line) = self.resources.as_ref().filter(|it| it.may_ask()) else {
            return last().clone();
        };
        match timeout(INVENTORY_PATIENCE, line.client.inventory()).await {
            Ok(Ok(inventory)) => *last() = inventory,
            Ok(Err(error)) => tracing::debug!("{error}"),
            Err(_) => {}
        }
        last().clone()
    }

    fn in_time<R>(&self, asked: Asked<R>, pod: impl Display) -> Option<R> {
        match asked {
            Asked::Answered(answer) => Some(answer),
            Asked::Late => {
                self.metrics.failed("late_pod");
                tracing::warn!(%pod, "placed without what kubelet knows of it: no answer within {PATIENCE:?}");
                None
            }
            Asked::Failed | Asked::LeftAlone => None,
        }
    }

    /// Tells the state of pods as they are, and of those that change, for ever.
    pub(crate) async fn follow(self, inbox: Inbox) {
        let told = Arc::clone(&self.told);
        let by_agent = async {
            loop {
                let pods = told.news().await;
                inbox.ask(Event::PodsSeen(pods, Timestamp::now())).await;
            }
        };
        tokio::join!(self.follow_kubelet(&inbox), by_agent);
    }

    async fn follow_kubelet(self, inbox: &Inbox) {
        let Some(line) = self.pods else { return std::future::pending().await };
        let (mut seen, mut watched, mut is_told) = (Seen::default(), Watched::None, false);
        loop {
            let next = Instant::now() + LIST_EVERY;
            let all = line.all(&seen).await;
            self.told.set_needed(all.is_err());
            match all {
                Ok((pods, asked)) => {
                    (seen, is_told) = (Seen::of(&pods), false);
                    inbox.ask(Event::PodsSeen(pods, asked)).await;
                }
                Err(NotListed { why, is_usual }) if is_told || is_usual => tracing::debug!("{why}"),
                Err(NotListed { why, .. }) => {
                    is_told = true;
                    tracing::warn!(
                        "annotations that change are not seen until kubelet lists its pods; told once: {why}"
                    );
                }
            }
            watched.begin(&line.client);
            while let Ok(changed) = timeout_at(next, watched.next()).await {
                if seen.is_news(&changed) {
                    inbox.ask(Event::PodsSeen(vec![changed], Timestamp::now())).await;
                }
            }
        }
    }
}

impl Line<KubeletPods> {
    /// All pods, and since when they are so; where their list is too long, those that were `seen`, one by one. Only an answer counts for creations: whether the list is
    /// read says nothing of a single pod, and this is what finds out that kubelet is back.
    async fn all(&self, seen: &Seen) -> Result<(Vec<PodFacts>, Timestamp), NotListed> {
        let asked = Timestamp::now();
        let listed = timeout(LIST_PATIENCE, self.client.list()).await;
        if is_heard(&listed) {
            self.note(true);
        }
        match listed {
            Ok(Ok(pods)) => Ok((pods, asked)),
            Ok(Err(error)) if error.kind() == ErrorKind::TooLong => {
                tracing::debug!("{error}");
                Ok((self.each(seen).await, asked))
            }
            Ok(Err(error)) => {
                let is_usual = error.kind() == ErrorKind::Away;
                Err(NotListed { why: error.to_string(), is_usual })
            }
            Err(_) => Err(NotListed {
                why: format!("no answer within {LIST_PATIENCE:?}"),
                is_usual: false,
            }),
        }
    }

    async fn each(&self, seen: &Seen) -> Vec<PodFacts> {
        let mut pods = Vec::new();
        for (uid, was) in &seen.pods {
            match timeout(PATIENCE, self.client.get(uid)).await {
                Ok(Ok(pod)) => pods.extend(pod),
                _ => pods.push(was.clone()),
            }
            // Fewer questions than kubelet answers in this time, so that creations are answered.
            sleep(AGAIN_AFTER).await;
        }
        pods
    }
}

/// Why there is no list.
struct NotListed {
    why: String,
    /// Kubelet restarts, or is one that has no such socket.
    is_usual: bool,
}

/// Pods as they were told last.
#[derive(Debug, Default)]
struct Seen {
    pods: BTreeMap<String, PodFacts>,
}

impl Seen {
    fn of(pods: &[PodFacts]) -> Seen {
        Seen { pods: pods.iter().map(|pod| (pod.uid.clone(), pod.clone())).collect() }
    }

    /// Whether it is another than before; it is known from now on.
    fn is_news(&mut self, pod: &PodFacts) -> bool {
        self.pods.insert(pod.uid.clone(), pod.clone()).as_ref() != Some(pod)
    }
}

/// What kubelet knows of a container.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pod: Option<PodFacts>,
    devices: Vec<AssignedDevices>,
}

impl Known {
    /// Gives it to the container: annotations that count while it runs are those of now, not those of its sandbox.
    pub(crate) fn give_to(self, container: &mut NewContainer) {
        container.assigned = self.devices;
        let Some(pod) = self.pod.filter(|pod| container.pod.is_told_by(pod)) else { return };
        container.facts = pod.of(&container.name).map(Box::new);
        let had = &container.pod.annotations;
        container.pod.annotations = bayplan_workload::annotations::with_live(had, &pod.annotations);
    }
}

type Events = Pin<Box<dyn Stream<Item = Result<PodFacts, KubeletError>> + Send>>;

/// Kubelet's watch, while there is one.
enum Watched {
    None,
    On(Events),
}

impl Watched {
    /// Begins to watch, unless it does.
    fn begin(&mut self, client: &KubeletPods) {
        if matches!(self, Watched::None) {
            *self = Watched::On(Box::pin(client.watch()));
        }
    }

    /// The next pod that is told of; waits for ever where there is no watch (any more).
    async fn next(&mut self) -> PodFacts {
        loop {
            let Watched::On(events) = self else { return std::future::pending().await };
            match events.next().await {
                Some(Ok(pod)) => return pod,
                Some(Err(error)) => {
                    tracing::debug!("kubelet's watch has ended: {error}");
                    *self = Watched::None;
                }
                None => *self = Watched::None,
            }
        }
    }
}

#[cfg(test)]
mod tests;
