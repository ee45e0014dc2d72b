//! The agent of a node. In: the node's Node object, all BayplanConfigs, accepted objects of other systems, and the daemon's answers. Out: a daemon under the configuration that is for this
//! node, with the Node's amplification of CPUs, the node's BayplanNode, and events on its pods.
//!
//! It keeps nothing but what it wrote last. Whatever ends it, at whatever write, the next start finds the same from API server and daemon. Without
//! API server nothing changes on the node; without daemon the node's conditions say so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;
use serde_json::Value as Json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::amplification::amplification;
use crate::api::{Cluster, node_object};
use crate::brakes::{Decision, decide};
use crate::chosen::{Chosen, choose_source};
use crate::conditions::{Applied, Condition};
use crate::daemon::{Answer, Daemon, DaemonEvents, DaemonStatus, Diff, Method};
use crate::event::EventSink;
use crate::feature_publisher::{FeatureOptions, FeatureTargets, publish_features};
use crate::foreign::{Accepted, Convert, ForeignName, ForeignObject, convert_foreign};
use crate::foreign_watch::watch_foreign;
use crate::mistake::locate;
use crate::node_publisher::{Followed, publish_node};
use crate::object::{ConfigObject, NodeObject};
use crate::part::Part;
use crate::pod_feed::feed_pods;
use crate::report::NodeReport;
use crate::said::Said;
use crate::topology_publisher::publish_node_topology;
use crate::wanted::{Key, Wanted};
use crate::watching::{LOOK, REPAIR, World, follow, spread};

/// Between attempts to write, doubled each time up to the last.
const RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// That a node waits for its part of a roll-out is told within this time, later on one node than on the next: all agents see a change in the same moment.
const WAITING_TOLD_WITHIN: Duration = Duration::from_secs(30);
/// How long a question for events waits at the daemon, in seconds.
const EVENTS_WAIT: u64 = 30;

/// What an agent is told.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The name of the node.
    pub node: String,
    /// The first call is made within this time, later on one node than on the next: a DaemonSet starts all agents at once. Within the same time, and 30 s at least, watches are opened again
    /// after the API server was away.
    pub start_within: Duration,
    /// What is published beside the BayplanNode.
    pub parts: BTreeSet<Part>,
    /// What becomes of the node's features.
    pub features: FeatureOptions,
    /// A file that is there while the daemon is removed from the node. What was published is taken back then, unless a daemon answers.
    pub removed: Option<PathBuf>,
    /// The daemon is told of the node's pods.
    pub feeds_pods: bool,
    /// Objects of other systems that configure the node where no BayplanConfig does.
    pub accepted: Vec<Accepted>,
    /// Makes configurations of them.
    pub convert: Convert,
}

/// Runs until the process ends.
///
/// # Errors
/// Nothing says where the API server is.
pub async fn run(options: AgentOptions, daemon: impl Daemon) -> anyhow::Result<()> {
    let cluster = Cluster::connect(&options.node).await?;
    run_in(cluster, options, daemon).await;
    Ok(())
}

/// The same by a client that is there already, so that one process can be the agents of many nodes. Runs until it is dropped.
pub async fn run_by(client: kube::Client, options: AgentOptions, daemon: impl Daemon) {
    let cluster = Cluster::by(client, &options.node);
    run_in(cluster, options, daemon).await;
}

async fn run_in(cluster: Cluster, options: AgentOptions, daemon: impl Daemon) {
    let cluster = cluster.returning_within(options.start_within);
    let delay = spread(&options.node, options.start_within);
    tracing::info!(node = options.node, ?delay, "the agent begins");
    sleep(delay).await;
    let (world, known) = watch::channel(World::default());
    let (of_topology, of_node) = (known.clone(), known.clone());
    let (found, labels) = watch::channel(None);
    let is_for_koordinator = options.parts.contains(&Part::Koordinator);
    let has_topology = is_for_koordinator || options.parts.contains(&Part::NodeTopology);
    // Whether all was done for the NodeResourceTopology that can be.
    let (settled, is_settled) = watch::channel(!has_topology);
    let topology = async {
        match has_topology {
            true => {
                let known = (of_topology, &settled);
                let marker = options.removed.as_deref();
                publish_node_topology(&cluster, &daemon, known, is_for_koordinator, marker).await;
            }
            false => withdraw_unchosen(|| cluster.withdraw_node_topology()).await,
        }
    };
    let features = FeatureTargets {
        labels: found,
        object: options.parts.contains(&Part::NodeFeature).then_some(&cluster),
        world: known.clone(),
        removed: options.removed.as_deref(),
    };
    let node_feature = async {
        if features.object.is_none() {
            withdraw_unchosen(|| cluster.withdraw_node_feature()).await;
        }
        publish_features(&daemon, &options.features, features).await;
    };
    let removed = options.removed.as_deref();
    let followed = Followed { world: of_node, labels, is_settled, removed };
    let mut agent = Agent::new(&options, &cluster, &daemon, known);
    tokio::join!(
        watch_node(&cluster, &world),
        watch_configs(&cluster, &world),
        watch_foreign(&cluster, &options.accepted, &world),
        agent.run(),
        carry_events(&options.node, &cluster, &daemon),
        topology,
        node_feature,
        async {
            if options.feeds_pods {
                feed_pods(&cluster, &daemon).await;
            }
        },
        publish_node(&cluster, &daemon, followed, &options.parts),
    );
}

/// Takes back an object of an earlier agent that published it, so that no scheduler goes on to believe it.
async fn withdraw_unchosen(withdraw: impl AsyncFn() -> anyhow::Result<()>) {
    let [mut pause, last] = RETRY;
    while let Err(error) = withdraw().await {
        tracing::warn!(?pause, "{error:#}");
        sleep(pause).await;
        pause = (pause * 2).min(last);
    }
}

async fn watch_node(cluster: &Cluster, world: &watch::Sender<World>) {
    follow("the own Node", cluster.watch_node(), |event| match event {
        Event::Apply(node) | Event::InitApply(node) => {
            let node = node_object(&node);
            world.send_if_modified(|world| {
                let is_news = !world.node.as_ref().is_some_and(|it| it.is_as(&node));
                world.node = Some(node);
                is_news
            });
        }
        Event::Delete(_) | Event::Init | Event::InitDone => {}
    })
    .await;
}

async fn watch_configs(cluster: &Cluster, world: &watch::Sender<World>) {
    let mut listed = BTreeMap::new();
    follow("BayplanConfigs", cluster.watch_configs(), |event| {
        let read = |object: &kube::api::DynamicObject| {
            let json = serde_json::to_value(object).unwrap_or(Json::Null);
            (object.name_any(), ConfigObject::read(&json))
        };
        let edit = |change: &mut dyn FnMut(&mut BTreeMap<String, ConfigObject>)| {
            world.send_if_modified(|world| {
                let mut configs = world.configs.clone().unwrap_or_default();
                change(&mut configs);
                let is_news = world.configs.as_ref() != Some(&configs);
                world.configs = Some(configs);
                is_news
            });
        };
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => listed.extend([read(&object)]),
            Event::InitDone => edit(&mut |configs| *configs = std::mem::take(&mut listed)),
            Event::Apply(object) => edit(&mut |configs| configs.extend([read(&object)])),
            Event::Delete(object) => edit(&mut |configs| drop(configs.remove(&object.name_any()))),
        }
    })
    .await;
}

/// What was written last.
struct Written {
    status: Json,
    at: Instant,
}

/// An object of another system, and what it was converted to.
struct ConvertedObject {
    name: ForeignName,
    object: ForeignObject,
    group: Option<String>,
    /// As the daemon told it.
    machine: String,
    made: ConfigObject,
}

struct Agent<'a, D> {
    node: &'a str,
    accepted: &'a [Accepted],
    convert: Convert,
    cluster: &'a Cluster,
    daemon: &'a D,
    world: watch::Receiver<World>,
    /// Since when this is wanted.
    seen: Option<(Key, Instant)>,
    /// The last object of another system that was converted.
    converted: Option<ConvertedObject>,
    /// The object that the daemon was last found to have as it is.
    held: Option<ConfigObject>,
    said: Said,
    conditions: Option<Vec<Condition>>,
    written: Option<Written>,
    /// Writes are not tried before.
    retry: Option<(Instant, Duration)>,
}

impl<'a, D: Daemon> Agent<'a, D> {
    fn new(
        options: &'a AgentOptions,
        cluster: &'a Cluster,
        daemon: &'a D,
        world: watch::Receiver<World>,
    ) -> Agent<'a, D> {
        Agent {
            node: &options.node,
            accepted: &options.accepted,
            convert: options.convert,
            cluster,
            daemon,
            world,
            seen: None,
            converted: None,
            held: None,
            said: Said::default(),
            conditions: None,
            written: None,
            retry: None,
        }
    }

    async fn run(&mut self) {
        loop {
            let world = self.world.borrow_and_update().clone();
            let wait = self.round(&world).await;
            // Ends by a change of the world, or by time.
            let _changed = timeout(wait, self.world.changed()).await;
        }
    }

    /// Brings daemon and BayplanNode to what the cluster says. Out: the time until the next round.
    async fn round(&mut self, world: &World) -> Duration {
        let status = DaemonStatus::ask(self.daemon).await;
        let objects: Vec<ConfigObject> =
            world.configs.iter().flat_map(|it| it.values().cloned()).collect();
        let (Some(node), true) = (&world.node, world.configs.is_some()) else { return LOOK };
        let (object, otherwise) = match choose_source(node, &objects, self.accepted, &world.foreign)
        {
            Chosen::Unknown => return LOOK,
            Chosen::Object(object) => (Some(object.clone()), None),
            Chosen::Foreign(name, found) if status.is_ok() => {
                match self.converted(node, name, found).await {
                    Ok(object) => (Some(object), None),
                    Err(error) => (None, Some(Applied::DaemonAway(error))),
                }
            }
            Chosen::Foreign(..) | Chosen::File => (None, None),
            Chosen::Missing { object, label } => (None, Some(Applied::Missing { object, label })),
            Chosen::Several(names) => (None, Some(several(&names))),
        };
        let chosen = object.as_ref();
        let amplification = self.amplification(node);
        let applied = match (&status, otherwise) {
            (Err(error), _) => Applied::DaemonAway(error.clone()),
            (Ok(_), Some(applied)) => applied,
            (Ok(status), None) => {
                // What cannot be understood changes nothing.
                let has = status.amplification().map(|it| it.percent);
                let amplification = amplification.clone().unwrap_or(has);
                self.configure(Wanted { object: chosen, amplification }, status).await
            }
        };
        let wait = match applied {
            Applied::Waiting(seconds) => Duration::from_secs(seconds.max(1)).min(LOOK),
            _ => LOOK,
        };
        if let Some(early) = self.too_early_to_tell(&applied) {
            return wait.min(early);
        }
        // What was applied is shown as it is now.
        let status = if status.is_ok() { DaemonStatus::ask(self.daemon).await } else { status };
        let lacking = match &status {
            Ok(_) => self.lacking().await,
            Err(_) => None,
        };
        let daemon = status.as_ref().ok();
        let report = NodeReport {
            node,
            chosen,
            applied: &applied,
            amplification: &amplification,
            daemon,
            lacking: lacking.as_deref(),
        };
        self.write(&report).await;
        wait
    }

    /// What the Node says of amplified CPUs; a mistake is logged once.
    fn amplification(&mut self, node: &NodeObject) -> Result<Option<usize>, String> {
        const SUBJECT: &str = "amplification";
        let found = amplification(&node.annotations);
        match &found {
            Ok(_) => self.said.is_over(SUBJECT),
            Err(problem) if self.said.is_news(SUBJECT, problem) => tracing::warn!("{problem}"),
            Err(_) => {}
        }
        found
    }

    /// The time until it is told that the node waits; `None`: it is told, or something else is.
    fn too_early_to_tell(&self, applied: &Applied) -> Option<Duration> {
        let (Applied::Waiting(_), Some((_, since))) = (applied, &self.seen) else { return None };
        let left = spread(self.node, WAITING_TOLD_WITHIN).saturating_sub(since.elapsed());
        (!left.is_zero()).then_some(left)
    }

    /// What the daemon lacks to be ready.
    async fn lacking(&self) -> Option<String> {
        match self.daemon.ask(Method::Get, "/readyz", String::new()).await {
            Ok(answer) => (!answer.is_good()).then(|| answer.text()),
            Err(error) => Some(error),
        }
    }

    /// The object of another system as a configuration; the same as before if it is the same, for the same group and machine. Amounts of CPUs mean others on another machine.
    ///
    /// # Errors
    /// The daemon does not tell of the machine, without which amounts of CPUs mean nothing.
    async fn converted(
        &mut self,
        node: &NodeObject,
        name: &ForeignName,
        found: &ForeignObject,
    ) -> Result<ConfigObject, String> {
        let group = name.group(node);
        let known = self
            .converted
            .as_ref()
            .filter(|it| (&it.name, &it.object, it.group.as_deref()) == (name, found, group));
        let machine = match (self.machine().await, known) {
            (Ok(machine), Some(known)) if known.machine != machine => machine,
            (_, Some(known)) => return Ok(known.made.clone()),
            (machine, None) => machine?,
        };
        let made = convert_foreign(name, found, node, &machine, self.convert);
        self.converted = Some(ConvertedObject {
            name: name.clone(),
            object: found.clone(),
            group: group.map(str::to_owned),
            machine,
            made: made.clone(),
        });
        Ok(made)
    }

    /// The machine that the daemon places on, which changes only when its CPUs or memory nodes do.
    async fn machine(&self) -> Result<String, String> {
        let machine = self.daemon.ask(Method::Get, "/api/v1/machine", String::new()).await?;
        if machine.is_good() { Ok(machine.text()) } else { Err(machine.text()) }
    }

    async fn configure(&mut self, wanted: Wanted<'_>, status: &DaemonStatus) -> Applied {
        let Wanted { object, amplification } = wanted;
        if let Some(problem) = object.and_then(|it| it.problem.clone()) {
            return Applied::Invalid(problem);
        }
        let has_object = object.is_none_or(|it| self.held.as_ref() == Some(it))
            && status.holds() == wanted.holds();
        // As the daemon says: an older one takes it and does nothing with it, and is replaced by a newer one while this agent runs.
        if has_object && status.amplification().map(|it| it.percent) == amplification {
            return wanted.applied();
        }
        let waited = self.waited(wanted.key(), status);
        match self.bring(wanted, waited).await {
            Ok(applied) => applied,
            Err(error) => Applied::DaemonAway(error),
        }
    }

    /// Since when this is wanted; `None` where the node has no configuration of the cluster yet.
    fn waited(&mut self, key: Key, status: &DaemonStatus) -> Option<Duration> {
        let since = match &self.seen {
            Some((seen, since)) if *seen == key => *since,
            _ => {
                let now = Instant::now();
                self.seen = Some((key, now));
                now
            }
        };
        status.holds().map(|_| since.elapsed())
    }

    /// Asks what it would change, and applies it if it may.
    async fn bring(
        &mut self,
        wanted: Wanted<'_>,
        waited: Option<Duration>,
    ) -> Result<Applied, String> {
        let object = wanted.object;
        let asked = self.tell("/api/v1/config/cluster/diff", Method::Get, wanted).await?;
        let diff: Diff = match judged(object, &asked) {
            Some(refused) => return refused,
            None => serde_json::from_slice(&asked.body).map_err(|error| error.to_string())?,
        };
        match decide(object, &diff, self.node, waited) {
            Decision::Refuse(refusal) => return Ok(Applied::TooManyMoves(refusal.to_string())),
            Decision::Wait(left) => return Ok(Applied::Waiting(left.as_secs() + 1)),
            Decision::Apply => {}
        }
        let done = self.tell("/api/v1/config/cluster", Method::Delete, wanted).await?;
        if let Some(refused) = judged(object, &done) {
            return refused;
        }
        self.held = object.cloned();
        let (name, percent) = (object.map(ConfigObject::full_name), wanted.amplification);
        tracing::info!(
            object = name,
            amplification = percent,
            "the daemon has another configuration"
        );
        Ok(wanted.applied())
    }

    /// Tells the daemon what it is to have, or by another method that this is nothing.
    async fn tell(
        &self,
        path: &str,
        of_nothing: Method,
        wanted: Wanted<'_>,
    ) -> Result<Answer, String> {
        match wanted.is_nothing() {
            true => self.daemon.ask(of_nothing, path, String::new()).await,
            false => self.daemon.ask(Method::Post, &wanted.path(path), wanted.text()).await,
        }
    }

    /// Writes what is new, and from time to time all. What fails is tried again later.
    async fn write(&mut self, report: &NodeReport<'_>) {
        let now = Instant::now();
        if self.retry.is_some_and(|(until, _)| now < until) {
            return;
        }
        match self.try_write(report).await {
            Ok(()) => self.retry = None,
            Err(error) => {
                let [first, last] = RETRY;
                let pause = self.retry.map_or(first, |(_, pause)| (pause * 2).min(last));
                self.retry = Some((now + pause, pause));
                self.written = None;
                tracing::warn!(?pause, "{error:#}");
            }
        }
    }

    async fn try_write(&mut self, report: &NodeReport<'_>) -> anyhow::Result<()> {
        let before = match &self.conditions {
            Some(conditions) => conditions.clone(),
            None => self.cluster.conditions().await?,
        };
        let (mut status, conditions) = report.status(&before, Timestamp::now());
        let last_sync = status.as_object_mut().and_then(|it| it.remove("lastSync"));
        let every = REPAIR.mul_f64(0.8) + spread(self.node, REPAIR.mul_f64(0.4));
        let is_known = |it: &Written| it.status == status && it.at.elapsed() < every;
        if self.written.as_ref().is_some_and(is_known) {
            return Ok(());
        }
        let mut object = report.object();
        if self.written.as_ref().is_none_or(|it| it.at.elapsed() >= every) {
            self.cluster.apply_node(&object).await?;
        }
        let mut told = status.clone();
        if let Some(last_sync) = last_sync {
            told["lastSync"] = last_sync;
        }
        object["status"] = told;
        // Of the metadata, the status' manager owns nothing.
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("ownerReferences");
        }
        self.cluster.apply_status(&object).await?;
        self.conditions = Some(conditions);
        let at = self.written.as_ref().map(|it| it.at).filter(|at| at.elapsed() < every);
        self.written = Some(Written { status, at: at.unwrap_or_else(Instant::now) });
        Ok(())
    }
}

/// Neither of the objects is taken.
fn several(names: &str) -> Applied {
    Applied::Invalid(format!(
        "{names} would each configure this node; what held goes on to hold: delete all but one"
    ))
}

/// What a refusal of the daemon means; `None` where it refused nothing.
fn judged(object: Option<&ConfigObject>, answer: &Answer) -> Option<Result<Applied, String>> {
    let (name, text) = object.map(|it| (it.full_name(), it.text.as_str())).unwrap_or_default();
    match answer.status {
        200..300 => None,
        422 => Some(Ok(Applied::Invalid(locate(&name, text, &answer.text())))),
        404 => Some(Err(
            "the daemon is older than the agent and knows no configuration of the cluster"
                .to_owned(),
        )),
        400 => Some(Err(format!(
            "the daemon does not understand the request, and may be older than the agent: {}",
            answer.text()
        ))),
        _ => Some(Err(answer.text())),
    }
}

/// Carries the daemon's events to the API server. What cannot be made is left out.
async fn carry_events(node: &str, cluster: &Cluster, daemon: &impl Daemon) {
    let mut sink = EventSink::new(node, Timestamp::now());
    let (mut run, mut next) = (String::new(), 0);
    loop {
        let path = format!("/api/v1/events?run={}&from={next}&wait={EVENTS_WAIT}", escaped(&run));
        let asked = daemon.ask(Method::Get, &path, String::new()).await;
        let Some(told) =
            asked.ok().and_then(|it| serde_json::from_slice::<DaemonEvents>(&it.body).ok())
        else {
            sleep(LOOK).await;
            continue;
        };
        let first = told.next - u64::try_from(told.events.len()).unwrap_or_default();
        for (number, event) in (first..).zip(&told.events) {
            let Some(made) = sink.take(event, &told.run, number, Timestamp::now()) else {
                continue;
            };
            if let Err(error) = cluster.create_event(made).await {
                tracing::debug!("{error:#}");
            }
        }
        if told.missed > 0 {
            tracing::debug!(missed = told.missed, "events were not kept for so long");
        }
        (run, next) = (told.run, told.next);
    }
}

/// A time as part of a query.
fn escaped(run: &str) -> String {
    run.replace('+', "%2B").replace(':', "%3A")
}

#[cfg(test)]
mod tests;
