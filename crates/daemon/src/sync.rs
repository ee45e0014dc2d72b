//! Asks the runtime and the kernel what runs. In: the runtime's lists, `/proc`. Out: a [`RuntimeView`] for the state.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bayplan_cri::translate::{NewContainer, Pod, Resources, parse_qos, relevant};
use bayplan_cri::upstream::{
    ContainerDetails, ContainerState, ListedContainer, PodDetails, RuntimeError, Upstream,
};
use bayplan_host::read_process_pinning;
use bayplan_types::Pinning;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::event::{Answer, Event, RuntimeView, Seen, SeenDetails};
use crate::inbox::Inbox;
use crate::metrics::Metrics;

/// The least time between two syncs out of turn; after a failure the runtime is asked again this soon.
const RETRY: Duration = Duration::from_secs(2);

/// Keeps the state in line with the runtime.
#[derive(Clone, Debug)]
pub(crate) struct Syncer {
    pub(crate) upstream: Upstream,
    pub(crate) inbox: Inbox,
    pub(crate) host_root: PathBuf,
    pub(crate) metrics: Arc<Metrics>,
}

impl Syncer {
    /// Syncs now and then, and when `soon` is notified, until `stop`. A runtime that refuses every write is not asked in a tight loop.
    /// `has_synced`: it was done once already.
    pub(crate) async fn run(
        self,
        every: Duration,
        has_synced: bool,
        soon: Arc<Notify>,
        stop: CancellationToken,
    ) {
        let mut wait = if has_synced { every } else { RETRY.min(every) };
        let mut earliest = Instant::now();
        loop {
            let asked = async {
                soon.notified().await;
                tokio::time::sleep_until(earliest).await;
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
                () = asked => {}
            }
            wait = match self.sync().await {
                Ok(()) => every,
                Err(error) => {
                    self.metrics.failed("sync");
                    tracing::warn!("cannot ask the runtime what runs: {error}");
                    RETRY.min(every)
                }
            };
            earliest = Instant::now() + RETRY.min(every);
        }
    }

    /// Once. Does nothing when the daemon is stopping.
    pub(crate) async fn sync(&self) -> Result<(), RuntimeError> {
        let asked = self.inbox.ask(Event::SyncStarted).await;
        let Some(Answer::SyncBasis { basis, known }) = asked else { return Ok(()) };
        let containers = self.view(&known).await?;
        self.inbox.ask(Event::Synced(RuntimeView { basis, containers })).await;
        Ok(())
    }

    async fn view(&self, known: &BTreeSet<String>) -> Result<BTreeMap<String, Seen>, RuntimeError> {
        let mut pods: BTreeMap<String, Option<PodDetails>> = BTreeMap::new();
        let mut containers = BTreeMap::new();
        for listed in self.upstream.list_containers().await? {
            // A container that the runtime has lost sight of may still run, so it keeps what it has.
            let is_alive = listed.state != ContainerState::Exited;
            let is_unclear = listed.state == ContainerState::Unknown;
            let mut seen = Seen {
                pod_id: listed.pod_id.clone(),
                name: listed.name.clone(),
                attempt: listed.attempt,
                is_alive,
                is_running: listed.state == ContainerState::Running,
                details: None,
            };
            if is_alive && !is_unclear && !known.contains(&listed.id) {
                match self.upstream.container_details(&listed.id).await {
                    Ok(details) => {
                        let pod = self.pod(&mut pods, &listed.pod_id).await?;
                        seen.details = Some(Box::new(self.describe(&listed, pod, &details)));
                    }
                    Err(RuntimeError::Gone { .. }) => seen.is_alive = false,
                    // One that cannot be described must not hide all others.
                    Err(RuntimeError::Failed { message, .. }) => {
                        tracing::warn!(container = listed.id, message, "cannot be described");
                    }
                    Err(error) => return Err(error),
                }
            }
            containers.insert(listed.id, seen);
        }
        Ok(containers)
    }

    async fn pod<'a>(
        &self,
        pods: &'a mut BTreeMap<String, Option<PodDetails>>,
        id: &str,
    ) -> Result<Option<&'a PodDetails>, RuntimeError> {
        if !pods.contains_key(id) {
            let details = match self.upstream.pod_details(id).await {
                Ok(details) => Some(details),
                Err(RuntimeError::Gone { .. } | RuntimeError::Failed { .. }) => None,
                Err(error) => return Err(error),
            };
            pods.insert(id.to_owned(), details);
        }
        Ok(pods.get(id).and_then(Option::as_ref))
    }

    fn describe(
        &self,
        listed: &ListedContainer,
        pod: Option<&PodDetails>,
        details: &ContainerDetails,
    ) -> SeenDetails {
        // The container's own path lies below its pod's, so it tells the class as well.
        let path = details.cgroups_path.clone();
        let parent = pod.and_then(|pod| pod.cgroup_parent.clone()).or(path.clone());
        let qos = path.as_deref().and_then(parse_qos).or(parent.as_deref().and_then(parse_qos));
        let pod = pod.map(|pod| &pod.pod);
        let container = NewContainer {
            pod: Pod {
                id: listed.pod_id.clone(),
                uid: pod.map(|pod| pod.uid.clone()).unwrap_or_default(),
                namespace: pod.map(|pod| pod.namespace.clone()).unwrap_or_default(),
                name: pod.map(|pod| pod.name.clone()).unwrap_or_default(),
                qos,
                cgroup_parent: parent.unwrap_or_default(),
                annotations: pod.map(|pod| relevant(&pod.annotations)).unwrap_or_default(),
            },
            name: listed.name.clone(),
            attempt: listed.attempt,
            resources: Resources {
                cpu_shares: details.shares.unwrap_or(0),
                cpu_quota: details.quota.unwrap_or(0),
                cpu_period: details.period.unwrap_or(0),
                memory_limit: details.memory_limit.unwrap_or(0),
            },
        };
        SeenDetails { container, pinning: self.pinning(details) }
    }

    /// The kernel knows best; a container without a process has only what the runtime was told.
    fn pinning(&self, details: &ContainerDetails) -> Pinning {
        let told = Pinning {
            cpus: details.cpus.clone().unwrap_or_default(),
            mems: details.mems.clone().unwrap_or_default(),
        };
        details.pid.and_then(|pid| read_pinning(&self.host_root, pid)).unwrap_or(told)
    }
}

/// One small file of procfs; it is read in place because it never blocks.
fn read_pinning(root: &Path, pid: u32) -> Option<Pinning> {
    match read_process_pinning(root, pid) {
        Ok(found) => found.map(|(cpus, mems)| Pinning { cpus, mems }),
        Err(error) => {
            tracing::warn!("{:#}", anyhow::Error::new(error));
            None
        }
    }
}
