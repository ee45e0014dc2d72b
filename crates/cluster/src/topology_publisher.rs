//! Publishes the node's NodeResourceTopology. In: the Node, its pods, the daemon's zones. Out: the object, written on change, at most every [`PAUSE`], and again
//! from time to time although nothing has changed.
//!
//! A scheduler that takes new figures forgets what it has sent and what has not started, so these figures would be too high while a pod is on its way. As soon as one is bound to the
//! node, the object gets a fingerprint of no pods at all, with which it is not taken, and the right one when what is bound has started. The first of these writes does not wait for the
//! daemon: every moment before it is one in which a scheduler can take figures that do not know the pod. What takes longer than [`TRANSIT`] is subtracted from every zone.
//!
//! Figures are asked for after the pods of the fingerprint were seen, so the object never claims to know a pod that its figures do not have. While the daemon does not
//! answer nothing is written. Another program that writes zones of the object keeps it: the API server tells of the conflict, and nothing is overwritten.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value as Json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::api::{Cluster, Outcome};
use crate::daemon::{Daemon, ask_json};
use crate::exclusive_pods::Holding;
use crate::koordinator::{Features, annotations, count_all_cpus, count_booked_once};
use crate::node_pods::{ByPod, watch_pods};
use crate::node_topology::{FINGERPRINT, Owner, ZoneReport, fingerprint, node_topology};
use crate::object::NodeObject;
use crate::removal::is_removed;
use crate::said::Said;
use crate::watching::{LOOK, REPAIR, World, spread};

/// Koordinator's annotations, where they are chosen.
type Annotations = BTreeMap<&'static str, String>;

/// Between two writes: 12 a minute at most, and as many that only say that a pod is on its way.
const PAUSE: Duration = Duration::from_secs(5);
/// A pod is on its way for so long; one that takes longer, for an image or a volume, does not keep figures back.
const TRANSIT: Duration = Duration::from_secs(10);
/// How often it is looked whether that time is over.
const TRANSIT_LOOK: Duration = Duration::from_secs(1);
/// Of no pod that is.
const NO_POD: (&str, &str) = ("", "on its way");
/// After a write that failed, and while the API server does not know the kind.
const RETRY: Duration = Duration::from_secs(30);
/// Where the object is another program's.
const RETRY_FOREIGN: Duration = Duration::from_secs(300);
/// How long a question for changes waits at the daemon, in seconds.
const WAIT: u64 = 15;

type Pods = ByPod<Holding>;

/// Runs until the process ends. `is_for_koordinator`: with annotations of Koordinator. `settled` becomes true when the object is written, or is another program's, or of a kind that the API server does not know.
/// `removed` says that the daemon was removed, with which the object goes.
pub(crate) async fn publish_node_topology(
    cluster: &Cluster,
    daemon: &impl Daemon,
    (world, settled): (watch::Receiver<World>, &watch::Sender<bool>),
    is_for_koordinator: bool,
    removed: Option<&Path>,
) {
    let (told, pods) = watch::channel(None);
    let publisher = Publisher {
        cluster,
        daemon,
        world,
        pods,
        settled,
        is_for_koordinator,
        removed,
        is_taken_back: false,
        features: None,
        written: None,
        coming: BTreeMap::new(),
        said: Said::default(),
    };
    tokio::join!(watch_pods(cluster, &told, Holding::of), publisher.run());
}

struct Publisher<'a, D> {
    cluster: &'a Cluster,
    daemon: &'a D,
    world: watch::Receiver<World>,
    pods: watch::Receiver<Pods>,
    /// Set when the object is written, or cannot be because of others.
    settled: &'a watch::Sender<bool>,
    is_for_koordinator: bool,
    /// Says that the daemon was removed.
    removed: Option<&'a Path>,
    /// The object went with the daemon.
    is_taken_back: bool,
    /// What the daemon says of the processor, and when it was asked.
    features: Option<(Features, Instant)>,
    written: Option<(Json, Instant)>,
    /// Pods that are bound and have not started, and since when.
    coming: BTreeMap<(String, String), Instant>,
    said: Said,
}

impl<D: Daemon> Publisher<'_, D> {
    async fn run(mut self) {
        let name = self.cluster.node().to_owned();
        let every = REPAIR.mul_f64(0.8) + spread(&name, REPAIR.mul_f64(0.4));
        let mut change = None;
        loop {
            let pause = self.round(every, &mut change).await;
            let mut pods = self.pods.clone();
            tokio::select! {
                () = sleep(pause) => {}
                () = await_coming(&mut pods, &self.coming), if pause == PAUSE && !self.is_in_transit() => {}
            }
            let left =
                self.written.as_ref().map_or(every, |(_, at)| every.saturating_sub(at.elapsed()));
            let left = if self.is_in_transit() { left.min(TRANSIT_LOOK) } else { left };
            let removed = self.removed.filter(|_| !self.is_taken_back);
            tokio::select! {
                () = await_news(self.daemon, &mut self.world, &mut self.pods, change, left) => {}
                () = await_removal(removed) => {}
            }
        }
    }

    /// Whether a pod is on its way.
    fn is_in_transit(&self) -> bool {
        self.coming.values().any(|since| since.elapsed() < TRANSIT)
    }

    /// Writes what is new. Out: how long nothing is to be tried.
    async fn round(&mut self, every: Duration, change: &mut Option<u64>) -> Duration {
        let node = self.world.borrow_and_update().node.clone();
        let pods = self.pods.borrow_and_update().clone();
        let (Some(node), Some(pods)) = (node, pods) else { return Duration::ZERO };
        self.note_coming(&pods);
        if self.is_in_transit()
            && let Some((written, _)) = &self.written
            && let Some(object) = kept_back(written)
        {
            return self.write(object).await;
        }
        let (mut report, annotations) = match self.ask(&node, &pods).await {
            Ok(told) => told,
            Err(error) => {
                self.say("daemon", &format!("no NodeResourceTopology is written: {error}"));
                if is_removed(self.removed) && !self.is_taken_back {
                    self.take_back().await;
                }
                return LOOK;
            }
        };
        self.said.is_over("daemon");
        self.is_taken_back = false;
        *change = Some(report.change);
        for holding in pods.values().filter(|it| it.is_coming) {
            report.set_aside(holding.cpu_milli.next_multiple_of(1000));
        }
        let extended = report.extended();
        let counted = pods.iter().filter(|(_, it)| it.is_counted(&extended));
        let counted = counted.map(|((space, name), _)| (space.as_str(), name.as_str()));
        let fingerprint = match self.is_in_transit() {
            true => of_no_pod(),
            false => fingerprint(counted),
        };
        let object = node_topology(&node, &report, &fingerprint, &annotations);
        let is_known = |(written, at): &(Json, Instant)| *written == object && at.elapsed() < every;
        if self.written.as_ref().is_some_and(is_known) || self.is_overtaken() {
            return Duration::ZERO;
        }
        let pause = self.write(object).await;
        if pause != PAUSE {
            // What was not written is tried again after the pause, without another change.
            *change = None;
        }
        pause
    }

    /// Whether another pod was bound meanwhile, which the next round sees at once.
    fn is_overtaken(&self) -> bool {
        let pods = self.pods.borrow();
        pods.iter().flatten().any(|(key, it)| it.is_coming && !self.coming.contains_key(key))
    }

    /// Remembers since when pods are on their way.
    fn note_coming(&mut self, pods: &BTreeMap<(String, String), Holding>) {
        let is_coming = |key: &(String, String)| pods.get(key).is_some_and(|it| it.is_coming);
        self.coming.retain(|key, _| is_coming(key));
        for (key, _) in pods.iter().filter(|(_, it)| it.is_coming) {
            self.coming.entry(key.clone()).or_insert_with(Instant::now);
        }
    }

    /// Out: how long nothing is to be tried; [`PAUSE`] where it is written.
    async fn write(&mut self, object: Json) -> Duration {
        let done = self.cluster.apply_node_topology(&object).await;
        if done.is_ok() {
            self.settled.send_if_modified(|it| !std::mem::replace(it, true));
        }
        match done {
            Ok(Outcome::Done) => {
                self.say("object", "the NodeResourceTopology is published");
                self.written = Some((object, Instant::now()));
                PAUSE
            }
            Ok(Outcome::Absent) => {
                let text = "the API server knows no NodeResourceTopology; install its definition";
                self.say("object", text);
                RETRY
            }
            Ok(Outcome::Conflict(message)) => {
                self.say("object", &format!(
                    "the NodeResourceTopology is another program's and left to it; delete it where that program is gone: {message}"
                ));
                RETRY_FOREIGN
            }
            Err(error) => {
                self.say("object", &format!("{error:#}"));
                RETRY
            }
        }
    }

    /// Deletes the object of a node that has no daemon any more.
    async fn take_back(&mut self) {
        match self.cluster.withdraw_node_topology().await {
            Ok(()) => (self.written, self.is_taken_back) = (None, true),
            Err(error) => self.say("object", &format!("{error:#}")),
        }
    }

    /// The daemon's figures, and the annotations.
    async fn ask(
        &mut self,
        node: &NodeObject,
        pods: &BTreeMap<(String, String), Holding>,
    ) -> Result<(ZoneReport, Annotations), String> {
        let mut report = zones(self.daemon, None).await?;
        if !self.is_for_koordinator {
            return Ok((report, Annotations::new()));
        }
        let features = match self.features.take().filter(|(_, at)| at.elapsed() < REPAIR) {
            Some(known) => known,
            None => {
                let asked = ask_json(self.daemon, "/api/v1/features", "features").await?;
                (asked, Instant::now())
            }
        };
        let (features, _) = self.features.insert(features);
        let booked = |it: &Owner| Some(&pods.get(&(it.namespace.clone(), it.name.clone()))?.booked);
        let told = annotations(&report, features, &node.annotations).and_then(|told| {
            count_all_cpus(&mut report)?;
            count_booked_once(&mut report, booked)?;
            Ok(told)
        });
        Ok((report, told.map_err(|error| format!("the daemon's CPUs cannot be read: {error}"))?))
    }

    fn say(&mut self, subject: &'static str, text: &str) {
        if self.said.is_news(subject, text) {
            tracing::info!("{text}");
        }
    }
}

fn of_no_pod() -> String {
    fingerprint([NO_POD])
}

/// The same object as it is not taken; `None`: it is not taken as it is.
fn kept_back(written: &Json) -> Option<Json> {
    let (mut object, fingerprint) = (written.clone(), of_no_pod());
    let attributes = object.get_mut("attributes")?.as_array_mut()?;
    let found = attributes.iter_mut().find(|it| it["name"] == FINGERPRINT)?;
    if found["value"] == fingerprint {
        return None;
    }
    found["value"] = fingerprint.into();
    Some(object)
}

/// Comes back when another pod than these is bound to the node and has not started.
async fn await_coming(
    pods: &mut watch::Receiver<Pods>,
    known: &BTreeMap<(String, String), Instant>,
) {
    let is_new =
        |(key, it): (&(String, String), &Holding)| it.is_coming && !known.contains_key(key);
    let is_coming = |pods: &Pods| pods.iter().flatten().any(is_new);
    // Without the watch nothing comes.
    if pods.wait_for(is_coming).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Comes back while the daemon is removed, now and then.
async fn await_removal(removed: Option<&Path>) {
    loop {
        sleep(LOOK).await;
        if is_removed(removed) {
            return;
        }
    }
}

/// Comes back after a change of what is written, or after this time. The daemon is not asked before Node and pods are known: nothing can be written until then.
async fn await_news(
    daemon: &impl Daemon,
    world: &mut watch::Receiver<World>,
    pods: &mut watch::Receiver<Pods>,
    change: Option<u64>,
    left: Duration,
) {
    let is_known = world.borrow().node.is_some() && pods.borrow().is_some();
    tokio::select! {
        _ = world.changed() => {}
        _ = pods.changed() => {}
        () = hear_change(daemon, change), if is_known => {}
        () = sleep(left) => {}
    }
}

/// What the daemon says of its zones; with `after`, once there is another change, or after a while.
pub(crate) async fn zones(daemon: &impl Daemon, after: Option<u64>) -> Result<ZoneReport, String> {
    let path = match after {
        Some(change) => format!("/api/v1/zones?after={change}&wait={WAIT}"),
        None => "/api/v1/zones".to_owned(),
    };
    ask_json(daemon, &path, "zones").await
}

/// Comes back when the daemon has another change than this one.
pub(crate) async fn hear_change(daemon: &impl Daemon, seen: Option<u64>) {
    loop {
        match zones(daemon, seen).await {
            Ok(report) if Some(report.change) != seen => return,
            Ok(_) => {}
            Err(_) => sleep(LOOK).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;
    use crate::daemon::Answer;
    use crate::daemon::Method;
    use crate::object::NodeObject;

    /// Answers each question at once.
    struct Prompt;

    impl Daemon for Prompt {
        async fn ask(&self, _: Method, _: &str, _: String) -> Result<Answer, String> {
            Ok(Answer { status: 200, body: br#"{"change": 3}"#.to_vec() })
        }
    }

    /// Whether the next round begins at once.
    async fn check(has_node: bool, has_pods: bool, expected: bool) {
        let node = has_node.then(NodeObject::default);
        let (_world, mut world) = watch::channel(World { node, ..World::default() });
        let (_pods, mut pods) = watch::channel(has_pods.then(BTreeMap::new));
        let news = await_news(&Prompt, &mut world, &mut pods, None, LOOK);
        assert_eq!(news.now_or_never().is_some(), expected, "{has_node} {has_pods}");
    }

    #[test]
    fn an_object_is_kept_back_once_and_with_its_zones() {
        let of = |value: &str| {
            let attributes = json!([{ "name": "topologyManagerPolicy", "value": "restricted" }, { "name": FINGERPRINT, "value": value }]);
            json!({ "attributes": attributes, "zones": [{ "name": "node-0" }] })
        };
        let kept = kept_back(&of("pfp0v001ef46db3751d8e999"));
        assert_eq!(kept, Some(of(&of_no_pod())));
        assert_eq!(kept_back(&kept.unwrap()), None);
        assert_eq!(kept_back(&json!({})), None);
    }

    #[tokio::test]
    async fn the_daemon_is_not_asked_on_and_on_while_node_or_pods_are_unknown() {
        check(false, false, false).await;
        check(true, false, false).await;
        check(false, true, false).await;
        check(true, true, true).await;
    }
}
