//! Publishes labels, annotations, taints, extended resources and the condition of the own Node. In: the Node as it is watched, and the daemon's answers. Out: writes, only where
//! the Node is not as it is wanted; so what kubelet resets is repaired when it is seen.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::api::{Cluster, Outcome};
use crate::daemon::{Daemon, DaemonStatus, Method};
use crate::feature_publisher::Labels;
use crate::feature_set::FeatureLabels;
use crate::node_condition::{DaemonState, condition_write};
use crate::node_topology::ZoneReport;
use crate::node_wishes::{DaemonView, no_wishes, node_wishes};
use crate::node_writes::{NodeWrite, node_writes, startup_write};
use crate::object::NodeObject;
use crate::part::{Part, Parts};
use crate::removal::is_removed;
use crate::topology_publisher::{hear_change, zones};
use crate::watching::{LOOK, World};

/// Between two rounds that write: 12 a minute at most.
const PAUSE: Duration = Duration::from_secs(5);
/// After a write that was refused, and while the daemon is not ready.
const RETRY: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(1);
/// Rounds of a withdrawal: each takes away what the one before has made free.
const ROUNDS: usize = 5;

/// What changes beside the daemon.
pub(crate) struct Followed<'a> {
    pub(crate) world: watch::Receiver<World>,
    /// Labels of features and profiles.
    pub(crate) labels: watch::Receiver<Labels>,
    /// Whether all was done for the NodeResourceTopology that can be.
    pub(crate) is_settled: watch::Receiver<bool>,
    /// Says that the daemon was removed.
    pub(crate) removed: Option<&'a Path>,
}

/// Runs until the process ends.
pub(crate) async fn publish_node(
    cluster: &Cluster,
    daemon: &impl Daemon,
    mut followed: Followed<'_>,
    parts: &Parts,
) {
    loop {
        let node = followed.world.borrow_and_update().node.clone();
        let labels = followed.labels.borrow_and_update().clone();
        let is_settled = *followed.is_settled.borrow_and_update();
        let (mut change, mut pause) = (None, Duration::ZERO);
        if let Some(node) = node {
            let seen = look(daemon).await;
            let is_removed = seen.is_err() && is_removed(followed.removed);
            let state = (parts.contains(&Part::Condition) && !is_removed)
                .then(|| seen.as_ref().map_or(DaemonState::NoAnswer, Seen::state));
            if let Some(write) = condition_write(&node, state, Timestamp::now()) {
                pause = carry_out(cluster, &write).await;
            }
            match seen {
                Ok(seen) => {
                    change = Some(seen.report.change);
                    let may_start = seen.is_ready && is_settled && parts.contains(&Part::Taints);
                    let labels = labels.as_ref();
                    let round = round(cluster, &node, parts, &seen, labels, may_start).await;
                    pause = pause.max(round);
                }
                Err(_) if is_removed => pause = take_back(cluster, &node).await.max(LOOK),
                Err(_) => pause = LOOK,
            }
        }
        sleep(pause).await;
        tokio::select! {
            _ = followed.world.changed() => {}
            _ = followed.labels.changed() => {}
            _ = followed.is_settled.changed() => {}
            () = hear_change(daemon, change), if change.is_some() => {}
            () = sleep(LOOK) => {}
        }
    }
}

struct Seen {
    report: ZoneReport,
    is_placing: bool,
    is_ready: bool,
}

impl Seen {
    fn state(&self) -> DaemonState {
        match (self.is_ready, self.is_placing) {
            (false, _) => DaemonState::NotReady,
            (true, false) => DaemonState::NotPlacing,
            (true, true) => DaemonState::Placing,
        }
    }
}

async fn look(daemon: &impl Daemon) -> Result<Seen, String> {
    let ready = daemon.ask(Method::Get, "/readyz", String::new()).await?;
    let status = DaemonStatus::ask(daemon).await?;
    let report = zones(daemon, None).await?;
    Ok(Seen { report, is_placing: status.is_placing(), is_ready: ready.is_good() })
}

/// Writes what differs; where nothing does, pods may come. Out: how long nothing is to be tried.
async fn round(
    cluster: &Cluster,
    node: &NodeObject,
    parts: &Parts,
    seen: &Seen,
    features: Option<&FeatureLabels>,
    may_start: bool,
) -> Duration {
    let Seen { report, is_placing, is_ready } = seen;
    let view = DaemonView { report, is_placing: *is_placing, features };
    let mut writes = node_writes(node, &node_wishes(node, parts, &view));
    if writes.is_empty() && may_start {
        writes.extend(startup_write(node));
    }
    let mut pause = if *is_ready { Duration::ZERO } else { SOON };
    for write in writes {
        pause = pause.max(carry_out(cluster, &write).await);
    }
    pause
}

/// Takes what is the agent's off a Node that has no daemon any more. Out: how long nothing is to be tried.
async fn take_back(cluster: &Cluster, node: &NodeObject) -> Duration {
    let mut pause = Duration::ZERO;
    for write in node_writes(node, &no_wishes(node)) {
        pause = pause.max(carry_out(cluster, &write).await);
    }
    pause
}

/// Out: how long nothing is to be tried.
async fn carry_out(cluster: &Cluster, write: &NodeWrite) -> Duration {
    match cluster.write_node(write).await {
        Ok(Outcome::Done) => tracing::info!("the Node is written: {write:?}"),
        Ok(Outcome::Absent) => tracing::warn!("the Node is gone"),
        // Of labels another program owns one; of taints the list is another one by now.
        Ok(Outcome::Conflict(message)) => {
            tracing::warn!("the Node is not written, tried again: {message}");
            return PAUSE * 2;
        }
        Err(error) => {
            tracing::warn!("{error:#}");
            return RETRY;
        }
    }
    PAUSE
}

/// Takes everything of Bayplan off the Node.
///
/// # Errors
/// The API server refuses, or goes on to show some of it.
pub(crate) async fn withdraw_node(cluster: &Cluster) -> anyhow::Result<()> {
    for _ in 0..ROUNDS {
        let Some(node) = cluster.read_node().await? else { return Ok(()) };
        let mut writes = node_writes(&node, &no_wishes(&node));
        writes.extend(condition_write(&node, None, Timestamp::now()));
        if writes.is_empty() {
            return Ok(());
        }
        for write in writes {
            if let Outcome::Conflict(message) = cluster.write_node(&write).await? {
                tracing::info!("tried again: {message}");
            }
        }
    }
    anyhow::bail!("the Node {} still has labels, taints or resources of Bayplan", cluster.node())
}
