//! Asks the runtime and the kernel what runs. In: the runtime's lists, `/proc`. Out: a [`RuntimeView`] for the state.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bayplan_host::read_process_pinning;
use bayplan_node::event::{Answer, Event, RuntimeView, Seen, SeenDetails};
use bayplan_node::mode::{Mode, ModeReport, NotInPlace};
use bayplan_types::Pinning;
use bayplan_workload::annotations::{kept_labels, relevant};
use bayplan_workload::runtime::{
    ContainerDetails, ContainerState, ListedContainer, PodDetails, RuntimeError,
};
use bayplan_workload::{NewContainer, Pod, Resources, parse_qos};
use futures::StreamExt as _;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::LiveConfig;
use crate::health::Health;
use crate::inbox::Inbox;
use crate::metrics::Metrics;
use crate::runtime::SharedRuntime;

/// The least time between two syncs out of turn; after a failure the runtime is asked again this soon.
const RETRY: Duration = Duration::from_secs(2);

/// How often the pinnings are read back after a change of the mode.
const READ_BACKS: usize = 2;
/// Containers that the runtime is asked about at once.
const DESCRIBED_AT_ONCE_MAX: usize = 8;

/// Keeps the state in line with the runtime.
#[derive(Clone, Debug)]
pub(crate) struct Syncer {
    pub(crate) runtime: SharedRuntime,
    pub(crate) inbox: Inbox,
    pub(crate) host_root: PathBuf,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) turn: Arc<Mutex<()>>,
}

/// What came of describing one container.
enum Described {
    Details(Box<SeenDetails>),
    Gone,
    Not,
}

impl Syncer {
    /// Syncs now and then, and when `soon` is notified, until `stop`. A runtime that refuses every write is not asked in a tight loop.
    /// `has_synced`: it was done once already.
    pub(crate) async fn run(
        self,
        config: LiveConfig,
        has_synced: bool,
        soon: Arc<Notify>,
        stop: CancellationToken,
    ) {
        let every = config.borrow().resync_interval;
        let is_done = has_synced && !self.health.is_partial();
        let mut wait = if is_done { every } else { RETRY.min(every) };
        let mut earliest = Instant::now();
        let mut is_lost = false;
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
            let every = config.borrow().resync_interval;
            let synced = self.sync().await;
            if synced.is_err() != is_lost {
                is_lost = !is_lost;
                self.inbox.ask(turn_of(synced.as_ref().err())).await;
            }
            wait = match synced {
                // Creations wait for it.
                Ok(()) if self.health.is_partial() => RETRY.min(every),
                Ok(()) => every,
                Err(error) => {
                    tracing::warn!("cannot ask the runtime what runs: {error}");
                    RETRY.min(every)
                }
            };
            earliest = Instant::now() + RETRY.min(every);
        }
    }

    /// Once. Does nothing when the daemon is stopping. One at a time: an older view must not follow a newer one.
    pub(crate) async fn sync(&self) -> Result<(), RuntimeError> {
        let _turn = self.turn.lock().await;
        let asked = self.inbox.ask(Event::SyncStarted).await;
        let Some(Answer::SyncBasis { basis, known, placed }) = asked else { return Ok(()) };
        let viewed = self.view(&known, &placed).await;
        let containers = viewed.inspect_err(|_| self.metrics.failed("sync"))?;
        let synced = self.inbox.ask(Event::Synced(RuntimeView { basis, containers })).await;
        if let Some(Answer::Synced { is_partial }) = synced {
            self.health.set_synced(is_partial);
            self.metrics.synced();
        }
        Ok(())
    }

    /// Asks where every container runs, and gives those that do not run where they should. Each has been written once more when this comes back.
    async fn read_back(&self) -> Result<Vec<NotInPlace>, RuntimeError> {
        let _turn = self.turn.lock().await;
        let asked = self.inbox.ask(Event::SyncStarted).await;
        let Some(Answer::SyncBasis { basis, placed, .. }) = asked else { return Ok(Vec::new()) };
        let containers = self.view(&BTreeSet::new(), &placed).await?;
        let view = RuntimeView { basis, containers };
        match self.inbox.ask(Event::ReadBack(view)).await {
            Some(Answer::NotInPlace(found)) => Ok(found),
            _ => Ok(Vec::new()),
        }
    }

    /// Changes the mode, and looks whether every container runs where it should then. `None` when the daemon is stopping.
    pub(crate) async fn change_mode(&self, mode: Mode) -> Option<ModeReport> {
        // What the journal lacks is taken over as long as anything is: it is to be given all CPUs, too. That the runtime does not answer shows below.
        if mode == Mode::Restored
            && let Err(error) = self.sync().await
        {
            tracing::debug!(%error, "the runtime could not be asked before everything is restored");
        }
        self.inbox.ask(Event::SetMode(mode)).await?;
        let mut report = ModeReport {
            format: "bayplan-mode/1".to_owned(),
            mode,
            not_in_place: Vec::new(),
            unchecked: None,
            files_not_written: Vec::new(),
            is_unkept: self.health.is_journal_behind(),
        };
        // A container that came while nothing was placed is taken over first.
        let mut checked = self.sync().await;
        // Once to find what did not go as planned, and once to see whether writing it again has helped.
        for _ in 0..READ_BACKS {
            let Ok(()) = checked else { break };
            match self.read_back().await {
                Ok(found) => report.not_in_place = found,
                Err(error) => checked = Err(error),
            }
            if report.not_in_place.is_empty() {
                break;
            }
        }
        report.unchecked = checked.err().map(|error| error.to_string());
        Some(report)
    }

    /// What runs. Not described are containers of which all is known, nor the pods of those that the state has placed: after a restart these are nearly all.
    async fn view(
        &self,
        known: &BTreeSet<String>,
        placed: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, Seen>, RuntimeError> {
        let listed = self.runtime.list().await?;
        // A container that the runtime has lost sight of may still run, so it keeps what it has.
        let is_alive = |it: &ListedContainer| it.state != ContainerState::Exited;
        let is_clear = |it: &ListedContainer| it.state != ContainerState::Unknown;
        let unknown: Vec<ListedContainer> = listed
            .iter()
            .filter(|it| is_alive(it) && is_clear(it) && !known.contains(&it.id))
            .cloned()
            .collect();
        let new = unknown.iter().filter(|it| !placed.contains(&it.id));
        let pods = self.pods(new.map(|it| it.pod_id.clone()).collect()).await?;
        let described = futures::stream::iter(unknown)
            .map(|it| {
                let (syncer, pod) = (self.clone(), pods.get(&it.pod_id).cloned());
                async move { (it.id.clone(), syncer.container(&it, pod.as_ref()).await) }
            })
            .buffer_unordered(DESCRIBED_AT_ONCE_MAX);
        let mut described: BTreeMap<String, Result<Described, RuntimeError>> =
            described.collect().await;
        let mut containers = BTreeMap::new();
        for it in listed {
            let found = described.remove(&it.id).transpose()?;
            let seen = Seen {
                is_alive: is_alive(&it) && !matches!(found, Some(Described::Gone)),
                is_running: it.state == ContainerState::Running,
                details: match found {
                    Some(Described::Details(details)) => Some(details),
                    _ => None,
                },
                pod_id: it.pod_id,
                name: it.name,
                attempt: it.attempt,
            };
            containers.insert(it.id, seen);
        }
        Ok(containers)
    }

    /// One that cannot be described must not hide all others.
    async fn container(
        &self,
        listed: &ListedContainer,
        pod: Option<&PodDetails>,
    ) -> Result<Described, RuntimeError> {
        match self.runtime.describe(&listed.id).await {
            Ok(details) => Ok(Described::Details(Box::new(self.describe(listed, pod, &details)))),
            Err(RuntimeError::Gone { .. }) => Ok(Described::Gone),
            Err(error @ (RuntimeError::Failed { .. } | RuntimeError::TimedOut { .. })) => {
                tracing::warn!(container = listed.id, "cannot be described: {error}");
                Ok(Described::Not)
            }
            Err(error) => Err(error),
        }
    }

    /// These pods, as far as the runtime describes them.
    async fn pods(
        &self,
        ids: BTreeSet<String>,
    ) -> Result<BTreeMap<String, PodDetails>, RuntimeError> {
        let mut asked = futures::stream::iter(ids)
            .map(|id| {
                let runtime = Arc::clone(&self.runtime);
                async move { (runtime.describe_pod(&id).await, id) }
            })
            .buffer_unordered(DESCRIBED_AT_ONCE_MAX);
        let mut pods = BTreeMap::new();
        while let Some((details, id)) = asked.next().await {
            match details {
                Ok(details) => {
                    pods.insert(id, details);
                }
                Err(RuntimeError::Unavailable { call, message }) => {
                    return Err(RuntimeError::Unavailable { call, message });
                }
                Err(error) => tracing::warn!(pod = id, "cannot be described: {error}"),
            }
        }
        Ok(pods)
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
                labels: pod.map(|pod| kept_labels(&pod.labels)).unwrap_or_default(),
                // What the pod needs comes with its next container.
                resources: Resources::default(),
                huge_pages: BTreeMap::new(),
            },
            name: listed.name.clone(),
            attempt: listed.attempt,
            image: listed.image.clone(),
            resources: Resources {
                cpu_shares: details.shares.unwrap_or(0),
                cpu_quota: details.quota.unwrap_or(0),
                cpu_period: details.period.unwrap_or(0),
                memory_limit: details.memory_limit.unwrap_or(0),
                oom_score_adj: details.oom_score_adj.unwrap_or(0),
            },
            huge_pages: details.huge_pages.clone(),
            odd_page_sizes: Vec::new(),
            devices: details.devices.clone(),
            mounts: details.mounts.clone(),
            // A container that runs already is near what it uses, or not: only at its creation it is placed by that.
            volumes: BTreeMap::new(),
            lacks_partition: false,
            is_silent: false,
            says_memory: false,
            facts: None,
            assigned: Vec::new(),
            cmk: details.isolate.clone().map(Ok),
            due_id: None,
            keeps_chosen: false,
        };
        SeenDetails { container, pinning: self.pinning(details) }
    }

    /// The kernel knows best; a container without a process has only what the runtime was told. Where the kernel has taken CPUs away and the runtime was not told of it, as when a
    /// daemon was killed in between, it counts as told, so that it is told anew.
    fn pinning(&self, details: &ContainerDetails) -> Pinning {
        let told = Pinning {
            cpus: details.cpus.clone().unwrap_or_default(),
            mems: details.mems.clone().unwrap_or_default(),
        };
        match details.pid.and_then(|pid| read_pinning(&self.host_root, pid)) {
            Some(there) if there.cpus.is_subset(&told.cpus) => Pinning { cpus: told.cpus, ..there },
            Some(there) => there,
            None => told,
        }
    }
}

/// For the history: the runtime has stopped answering, or begun again.
fn turn_of(error: Option<&RuntimeError>) -> Event {
    match error {
        Some(error) => Event::RuntimeLost(error.to_string()),
        None => Event::RuntimeBack,
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

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::inbox::inbox;
    use crate::runtime::model::ModelRuntime;

    /// What the state is told of the containers of a runtime, of which it knows `known`; or why nothing.
    async fn check(runtime: ModelRuntime, known: &[&str], expected: Expect) {
        check_placed(runtime, known, &[], expected).await;
    }

    /// The same where it has placed `placed`.
    async fn check_placed(
        runtime: ModelRuntime,
        known: &[&str],
        placed: &[&str],
        expected: Expect,
    ) {
        let (inbox, _events) = inbox(1);
        let syncer = Syncer {
            runtime: Arc::new(runtime),
            inbox,
            host_root: "/nowhere".into(),
            metrics: Arc::default(),
            health: Arc::default(),
            turn: Arc::default(),
        };
        let ids = |ids: &[&str]| ids.iter().map(|it| (*it).to_owned()).collect();
        let told = match syncer.view(&ids(known), &ids(placed)).await {
            Ok(view) => {
                let line = |(id, seen): (&String, &Seen)| {
                    let Seen { is_alive, is_running, details, .. } = seen;
                    let pod = details.as_ref().map(|it| &it.container.pod.name);
                    let pod = pod.filter(|pod| !pod.is_empty());
                    let pod = pod.map(|pod| format!(" with its pod {pod}")).unwrap_or_default();
                    let details = details.is_some();
                    format!(
                        "{id}: alive {is_alive}, running {is_running}, described {details}{pod}\n"
                    )
                };
                view.iter().map(line).collect()
            }
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&told);
    }

    /// Issue 35: a daemon was killed after it had narrowed a container in the kernel; the runtime's record stayed as it was for good.
    #[test]
    fn what_the_kernel_has_taken_away_and_the_runtime_was_not_told_counts_as_told() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let (inbox, _events) = inbox(1);
        let syncer = Syncer {
            runtime: Arc::new(ModelRuntime::default()),
            inbox,
            host_root: root.path().to_owned(),
            metrics: Arc::default(),
            health: Arc::default(),
            turn: Arc::default(),
        };
        for (there, told, expected) in [
            ("0", "0-1", "0-1"),
            ("0-1", "0", "0-1"),
            ("2", "0-1", "2"),
            ("0-1", "", "0-1"),
            ("", "0-1", "0-1"),
        ] {
            let status = format!("Cpus_allowed_list:\t{there}\nMems_allowed_list:\t0\n");
            std::fs::write(root.path().join("proc/7/status"), status).unwrap();
            let pid = (!there.is_empty()).then_some(7);
            let cpus = (!told.is_empty()).then(|| told.parse().unwrap());
            let found = syncer.pinning(&ContainerDetails { pid, cpus, ..Default::default() });
            assert_eq!(found.cpus.to_string(), expected, "{there} {told}");
        }
    }

    #[tokio::test]
    async fn what_the_state_does_not_know_is_described_and_nothing_else() {
        use ContainerState::{Created, Exited, Running, Unknown};
        let all = [("a", Created), ("b", Running), ("c", Exited), ("d", Unknown)];
        check(
            ModelRuntime::with(&all),
            &[],
            expect![[r#"
                a: alive true, running false, described true with its pod pod-a
                b: alive true, running true, described true with its pod pod-b
                c: alive false, running false, described false
                d: alive true, running false, described false
            "#]],
        )
        .await;
        check(
            ModelRuntime::with(&all),
            &["a", "b"],
            expect![[r#"
                a: alive true, running false, described false
                b: alive true, running true, described false
                c: alive false, running false, described false
                d: alive true, running false, described false
            "#]],
        )
        .await;
    }

    /// After a restart the journal tells of pods, and only the runtime what it told each container.
    #[tokio::test]
    async fn pods_of_containers_that_are_placed_are_not_described() {
        use ContainerState::{Created, Exited, Running};
        check_placed(
            ModelRuntime::with(&[("a", Created), ("b", Running), ("c", Running), ("d", Exited)]),
            &["b"],
            &["a", "b", "d"],
            expect![[r#"
                a: alive true, running false, described true
                b: alive true, running true, described false
                c: alive true, running true, described true with its pod pod-c
                d: alive false, running false, described false
            "#]],
        )
        .await;
    }

    #[tokio::test]
    async fn one_that_cannot_be_described_hides_no_other() {
        let running = [("a", ContainerState::Running), ("b", ContainerState::Running)];
        let mut gone = ModelRuntime::with(&running);
        gone.details.remove("a");
        check(
            gone,
            &[],
            expect![[r#"
                a: alive false, running true, described false
                b: alive true, running true, described true with its pod pod-b
            "#]],
        )
        .await;
        let message = "no such task".to_owned();
        let failed = RuntimeError::Failed { call: "ContainerStatus", code: 2, message };
        let mut broken = ModelRuntime::with(&running);
        broken.details.insert("a".to_owned(), Err(failed));
        check(
            broken,
            &[],
            expect![[r#"
                a: alive true, running true, described false
                b: alive true, running true, described true with its pod pod-b
            "#]],
        )
        .await;
    }

    #[tokio::test]
    async fn a_runtime_that_is_away_is_no_empty_node() {
        check(ModelRuntime::away(), &[], expect!["ListContainers: cannot connect"]).await;
        let message = "cannot connect".to_owned();
        let away = RuntimeError::Unavailable { call: "ContainerStatus", message };
        let mut between = ModelRuntime::with(&[("a", ContainerState::Running)]);
        between.details.insert("a".to_owned(), Err(away));
        check(between, &[], expect!["ContainerStatus: cannot connect"]).await;
    }
}
