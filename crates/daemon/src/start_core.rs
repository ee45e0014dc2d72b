//! What decides and what writes: started before anything is served, and by commands that work while no daemon runs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::unbounded_channel as channel;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, LiveConfig};
use crate::early_answers::EarlyAnswers;
use crate::enforcer::{Enforcement, Enforcer, Questions, RuntimeCalls};
use crate::event_loop::EventLoop;
use crate::feed::Feed;
use crate::forwarder::Forwarder;
use crate::health::{Health, Part};
use crate::history_writer::start_history;
use crate::hotplug::{Ground, Machine};
use crate::inbox::{Inbox, Looker, inbox, looker};
use crate::known_occupancy::KnownOccupancy;
use crate::metrics::Metrics;
use crate::nri_link::Link;
use crate::observer::{self, observe};
use crate::prober::Sightings;
use crate::rebalancer::{RebalancerTask, Told};
use crate::resources_dir::{ResourcesDir, resources_root};
use crate::runtime::SharedRuntime;
use crate::runtime_writer::{RuntimeWriter, report_failures, run_runtime_writer};
use crate::start_error::StartError;
use crate::start_state::{new_enforcer, restore};
use crate::sync::Syncer;
use crate::tasks::{Losses, until, vital};

/// How long a stop waits for writes that are under way; what is not written is written at the next start.
const DRAIN: Duration = Duration::from_secs(5);

/// What decides and what writes, and the ways to both.
pub(crate) struct Core {
    pub(crate) inbox: Inbox,
    pub(crate) looker: Looker,
    pub(crate) feed: Feed,
    pub(crate) forwarder: Forwarder,
    pub(crate) runtime: SharedRuntime,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) losses: Losses,
    pub(crate) sync_soon: Arc<Notify>,
    pub(crate) enforcement: Enforcement,
    pub(crate) link: Link,
    pub(crate) enforcer: Enforcer,
    pub(crate) questions: Questions,
    /// What looks at containers, and is to be started.
    pub(crate) looking: RebalancerTask,
    pub(crate) stop: CancellationToken,
    pub(crate) kill: CancellationToken,
    pub(crate) broken: CancellationToken,
    pub(crate) tasks: Vec<JoinHandle<()>>,
}

impl Core {
    /// Reads the journal, and decides from then on. No other part does anything yet.
    #[allow(clippy::too_many_lines, reason = "wiring: each part once, in the order of the start")]
    pub(crate) async fn start(
        config: &Config,
        machine: &Machine,
        current: &LiveConfig,
    ) -> Result<Core, StartError> {
        let (shown, sightings) = (observer::shown(), Sightings::default());
        let health = Arc::<Health>::default();
        let metrics = Metrics::new(sightings.clone()).with_readings(shown.clone());
        let metrics = Arc::new(metrics.with_health(&health));
        let (state, journal, found) = restore(config, machine, &metrics).await?;
        let ground = Ground::new(machine, config, state.ledger().pools().reserved());
        let (calls, sync_soon) = (RuntimeCalls::default(), Arc::new(Notify::new()));
        let enforcer = new_enforcer(config, machine.disks())?.with_calls(calls.clone());
        let (history_writer, history) =
            start_history(config, &state, found, &metrics, machine.disks());
        let forwarder = Forwarder::start().map_err(StartError::Forwarder)?;
        let upstream = forwarder.upstream(&config.runtime_socket, config.runtime_timeout);
        let runtime: SharedRuntime = Arc::new(upstream);
        let ((inbox, events), (looker, looks)) = (inbox(config.waiting_max), looker());
        let ((writer, batches), (failed, failures)) = (channel(), channel());
        let [stop, kill, broken] = [(); 3].map(|()| CancellationToken::new());
        let (enforcement, questions) = Enforcement::new(calls.clone());
        let feed = Feed::starting();
        let link = Link::of(config.front_end);
        let resources = ResourcesDir::new(resources_root(&config.socket));
        let resources = Arc::new(Mutex::new(resources));
        let event_loop = EventLoop {
            state,
            journal,
            history_writer,
            feed: feed.clone(),
            writer,
            metrics: Arc::clone(&metrics),
            health: Arc::clone(&health),
            sync_soon: Arc::clone(&sync_soon),
            unconfirmed: link.unconfirmed.clone(),
            early_answers: EarlyAnswers {
                runtime: Arc::clone(&runtime),
                unconfirmed: link.unconfirmed.clone(),
                config: current.clone(),
                host_root: config.host_root.clone(),
                inbox: inbox.clone(),
                resources: Arc::clone(&resources),
            },
            enforcement: enforcement.clone(),
            sightings: sightings.clone(),
            looks,
            occupancy: KnownOccupancy::default(),
        };
        let writer_task = RuntimeWriter {
            runtime: Arc::clone(&runtime),
            failures: failed,
            config: current.clone(),
            metrics: Arc::clone(&metrics),
            calls,
            unconfirmed: link.unconfirmed.clone(),
            resources,
            host_root: config.host_root.clone(),
        };
        let writing = run_runtime_writer(batches, writer_task);
        let losses = Losses { health: Arc::clone(&health), metrics: Arc::clone(&metrics) };
        let observing = observe(inbox.clone(), current.clone(), shown.clone());
        let tasks = vec![
            vital(&broken, event_loop.run(events, kill.clone())),
            vital(&broken, writing),
            vital(&broken, until(kill.clone(), report_failures(failures, inbox.clone()))),
            losses.spare_then(Part::Observer, until(stop.clone(), observing), shown.clone().lose()),
            losses.spare(Part::HistoryWriter, history),
        ];
        let looking = RebalancerTask {
            inbox: inbox.clone(),
            config: current.clone(),
            ground,
            shown,
            sightings,
            metrics: Arc::clone(&metrics),
            enforcement: enforcement.clone(),
            disk: Arc::clone(&machine.disks().baselines),
            is_dry_run: false,
            told: Told::default(),
        };
        Ok(Core {
            inbox,
            looker,
            feed,
            forwarder,
            runtime,
            metrics,
            losses,
            sync_soon,
            enforcement,
            link,
            enforcer,
            questions,
            looking,
            stop,
            kill,
            broken,
            tasks,
        })
    }
}

impl Core {
    /// What asks the runtime.
    pub(crate) fn syncer(&self, config: &Config) -> Syncer {
        Syncer {
            runtime: Arc::clone(&self.runtime),
            inbox: self.inbox.clone(),
            host_root: config.host_root.clone(),
            metrics: Arc::clone(&self.metrics),
            health: Arc::clone(&self.losses.health),
            turn: Arc::default(),
        }
    }
}

/// Waits until everything is on disk, but not for ever.
pub(crate) async fn end(tasks: Vec<JoinHandle<()>>) {
    let deadline = Instant::now() + DRAIN;
    for task in tasks {
        let abort = task.abort_handle();
        match timeout_at(deadline, task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "a task ended badly"),
            Err(_) => {
                tracing::warn!("the runtime does not answer; stopping without it");
                abort.abort();
            }
        }
    }
}
