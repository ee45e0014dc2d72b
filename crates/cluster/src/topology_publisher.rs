//! Publishes the node's NodeResourceTopology. In: the Node, its pods, the daemon's zones. Out: the object, written on change, at most every [`PAUSE`], and again
//! from time to time although nothing has changed.
//!
//! Figures are asked for after the pods of the fingerprint were seen, so the object never claims to know a pod that its figures do not have. While the daemon does not
//! answer nothing is written. Another program that writes zones of the object keeps it: the API server tells of the conflict, and nothing is overwritten.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;
use serde_json::Value as Json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::api::{Cluster, Outcome};
use crate::daemon::{Daemon, Method};
use crate::exclusive_pods::is_counted;
use crate::node_topology::{ZoneReport, fingerprint, node_topology};
use crate::watching::{LOOK, REPAIR, World, follow, spread};

/// Between two writes: 12 a minute at most.
const PAUSE: Duration = Duration::from_secs(5);
/// After a write that failed, and while the API server does not know the kind.
const RETRY: Duration = Duration::from_secs(30);
/// Where the object is another program's.
const RETRY_FOREIGN: Duration = Duration::from_secs(300);
/// How long a question for changes waits at the daemon, in seconds.
const WAIT: u64 = 15;

/// Namespace and name of the pods of the fingerprint; `None`: not known yet.
type Pods = Option<BTreeSet<(String, String)>>;

/// Runs until the process ends.
pub(crate) async fn publish_node_topology(
    cluster: &Cluster,
    daemon: &impl Daemon,
    world: watch::Receiver<World>,
) {
    let (told, pods) = watch::channel(None);
    let publisher = Publisher { cluster, daemon, world, pods, written: None, said: String::new() };
    tokio::join!(watch_pods(cluster, &told), publisher.run());
}

async fn watch_pods(cluster: &Cluster, told: &watch::Sender<Pods>) {
    let mut listed = BTreeSet::new();
    follow("the node's pods", cluster.watch_pods(), |event| {
        let key = |pod: &Pod| (pod.namespace().unwrap_or_default(), pod.name_any());
        let edit = |pod: &Pod, is_there: bool| {
            told.send_if_modified(|pods| {
                let pods = pods.get_or_insert_default();
                if is_there { pods.insert(key(pod)) } else { pods.remove(&key(pod)) }
            });
        };
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(pod) => {
                if is_counted(&pod) {
                    listed.insert(key(&pod));
                }
            }
            Event::InitDone => {
                let found = Some(std::mem::take(&mut listed));
                told.send_if_modified(|pods| {
                    let is_news = *pods != found;
                    *pods = found;
                    is_news
                });
            }
            Event::Apply(pod) => edit(&pod, is_counted(&pod)),
            Event::Delete(pod) => edit(&pod, false),
        }
    })
    .await;
}

struct Publisher<'a, D> {
    cluster: &'a Cluster,
    daemon: &'a D,
    world: watch::Receiver<World>,
    pods: watch::Receiver<Pods>,
    written: Option<(Json, Instant)>,
    /// The last message, so that what goes on is said once.
    said: String,
}

impl<D: Daemon> Publisher<'_, D> {
    async fn run(mut self) {
        let name = self.cluster.node().to_owned();
        let every = REPAIR.mul_f64(0.8) + spread(&name, REPAIR.mul_f64(0.4));
        let mut change = None;
        loop {
            let pause = self.round(every, &mut change).await;
            sleep(pause).await;
            let left =
                self.written.as_ref().map_or(every, |(_, at)| every.saturating_sub(at.elapsed()));
            tokio::select! {
                _ = self.world.changed() => {}
                _ = self.pods.changed() => {}
                () = hear_change(self.daemon, change) => {}
                () = sleep(left) => {}
            }
        }
    }

    /// Writes what is new. Out: how long nothing is to be tried.
    async fn round(&mut self, every: Duration, change: &mut Option<u64>) -> Duration {
        let node = self.world.borrow_and_update().node.clone();
        let pods = self.pods.borrow_and_update().clone();
        let (Some(node), Some(pods)) = (node, pods) else { return Duration::ZERO };
        let report = match zones(self.daemon, None).await {
            Ok(report) => report,
            Err(error) => {
                self.say(format!("no NodeResourceTopology is written: {error}"));
                return LOOK;
            }
        };
        *change = Some(report.change);
        let fingerprint =
            fingerprint(pods.iter().map(|(space, name)| (space.as_str(), name.as_str())));
        let object = node_topology(&node, &report, &fingerprint);
        let is_known = |(written, at): &(Json, Instant)| *written == object && at.elapsed() < every;
        if self.written.as_ref().is_some_and(is_known) {
            return Duration::ZERO;
        }
        match self.cluster.apply_node_topology(&object).await {
            Ok(Outcome::Done) => {
                self.say("the NodeResourceTopology is published".to_owned());
                self.written = Some((object, Instant::now()));
                PAUSE
            }
            Ok(Outcome::Absent) => {
                self.say(
                    "the API server knows no NodeResourceTopology; install its definition"
                        .to_owned(),
                );
                RETRY
            }
            Ok(Outcome::Conflict(message)) => {
                self.say(format!(
                    "the NodeResourceTopology is another program's and left to it; delete it where that program is gone: {message}"
                ));
                RETRY_FOREIGN
            }
            Err(error) => {
                self.say(format!("{error:#}"));
                RETRY
            }
        }
    }

    fn say(&mut self, text: String) {
        if self.said != text {
            tracing::info!("{text}");
            self.said = text;
        }
    }
}

/// What the daemon says of its zones; with `after`, once there is another change, or after a while.
pub(crate) async fn zones(daemon: &impl Daemon, after: Option<u64>) -> Result<ZoneReport, String> {
    let path = match after {
        Some(change) => format!("/api/v1/zones?after={change}&wait={WAIT}"),
        None => "/api/v1/zones".to_owned(),
    };
    let answer = daemon.ask(Method::Get, &path, String::new()).await?;
    match answer.is_good() {
        true => serde_json::from_slice(&answer.body)
            .map_err(|error| format!("the daemon's zones cannot be read: {error}")),
        false => Err(answer.text()),
    }
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
