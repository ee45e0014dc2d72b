//! Starts and stops the daemon. In: a configuration and a machine. Out: sockets that are served.

use std::net::SocketAddr;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bayplan_allocator::policy::{PoolsError, surviving_pools};
use bayplan_allocator::{Ledger, Pools};
use bayplan_cri::proxy::{self, Proxy};
use bayplan_cri::upstream::Upstream;
use bayplan_host::disk::Disks;
use bayplan_host::journal::{Journal, JournalError};
use bayplan_host::kernel::{DiskKernel, Kernel as _};
use bayplan_node::event::fingerprint;
use bayplan_node::history::{Entry, HISTORY_DIR};
use bayplan_node::known::Known;
use bayplan_node::reconfigure::check_reserved;
use bayplan_node::record::replay;
use bayplan_node::state::{NodeState, Origin};
use bayplan_nri::front_end::FrontEnd as NriFrontEnd;
use bayplan_nri::plugin::{Settings as PluginSettings, run as run_plugin};
use bayplan_topology::Topology;
use jiff::Timestamp;
use tokio::net::UnixListener;
use tokio::sync::mpsc::unbounded_channel as channel;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Reach, routes};
use crate::check::isolated_reserved;
use crate::check_front_end::kubelet_at_proxy;
use crate::colocation::{ColocationTask, run_colocation, share_no_more};
use crate::config::{Config, FrontEnd, LiveConfig};
use crate::enforcer::{
    BOOT_ID, Enforcement, Enforcer, EnforcerTask, Originals, Questions, RestoredFiles,
    RuntimeCalls, run_enforcer, tell_lost,
};
use crate::event_loop::{EventLoop, tell};
use crate::exits::hear_exits;
use crate::feed::Feed;
use crate::forwarder::Forwarder;
use crate::gate::{Gate, Mounts};
use crate::health::{Health, Part};
use crate::historian::start_history;
use crate::holdings::Holdings;
use crate::hotplug::{Ground, Machine, Watch};
use crate::http_server;
use crate::inbox::{Inbox, Looker, inbox, looker};
use crate::keeper::Keeper;
use crate::live_map::{Feed as MapFeed, LiveMap, Sources, run_feed};
use crate::metrics::Metrics;
use crate::metrics_port::MetricsPort;
use crate::neighbours::watch_neighbours;
use crate::nri_gate::Link;
use crate::observer::{self, Shown, observe};
use crate::pods::PodLookup;
use crate::prober::{ProberTask, Sightings, run_prober};
use crate::rebalancer::{RebalancerTask, Told, run_rebalancer, take_back};
use crate::reclaimer::run_reclaimer;
use crate::reload::{Followed, Parts, Reloader};
use crate::resources_dir::{ResourcesDir, has_files, resources_root};
use crate::socket::{Access, SocketLock, listen_unix};
use crate::sync::Syncer;
use crate::systemd::{Ear, Systemd, feed_watchdog};
use crate::tasks::{Losses, until, vital, vital_on};
use crate::writer::{Writer, report_failures, run_writer};

/// How long the start waits for the runtime before it serves kubelet without having asked it. Kubelet's connection waits in the socket meanwhile, and kubelet
/// gives it up after five seconds (`minConnectionTimeout` of its CRI client), so that its calls would fail.
const FIRST_SYNC: Duration = Duration::from_secs(3);
/// How long a stop waits for writes that are under way; what is not written is written at the next start.
const DRAIN: Duration = Duration::from_secs(5);

/// Why the daemon does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The reserved CPUs do not fit the machine.
    #[error("reservedCpus: {0}")]
    Pools(PoolsError),
    /// The state directory cannot be used.
    #[error(transparent)]
    Journal(JournalError),
    /// The directory under which `/sys` and `/proc` are cannot be opened.
    #[error("cannot open hostRoot {what}")]
    Root {
        /// The directory.
        what: String,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// Kubelet calls the proxy, and the front end is another one.
    #[error(
        "kubelet calls {endpoint}, where nothing answers with frontEnd: nri; set kubelet's containerRuntimeEndpoint to the runtime's socket first, or frontEnd to cri"
    )]
    KubeletAtProxy {
        /// As kubelet has it.
        endpoint: String,
    },
    /// There is no thread for connections.
    #[error("cannot start the thread that forwards calls")]
    Forwarder(#[source] std::io::Error),
    /// A socket cannot be made.
    #[error("cannot listen on {what}")]
    Listen {
        /// Path or address.
        what: String,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    /// Ends the proxy, once calls have come to their end; then what brings news, and then everything.
    close: CancellationToken,
    stop: CancellationToken,
    kill: CancellationToken,
    /// Cancelled when a task ended that the daemon cannot do without.
    broken: CancellationToken,
    losses: Losses,
    proxy: JoinHandle<()>,
    tasks: Vec<JoinHandle<()>>,
    /// Ends after them: they call the runtime through it.
    forwarder: Forwarder,
    /// Those that it has made.
    sockets: Vec<(PathBuf, SocketLock)>,
    metrics_address: Option<SocketAddr>,
    ear: Ear,
    config: LiveConfig,
    inbox: Inbox,
    enforcement: Enforcement,
    sightings: Sightings,
    told: Told,
    feed: Feed,
    reloader: Reloader,
}

/// What decides and what writes, and the ways to both.
pub(crate) struct Core {
    pub(crate) inbox: Inbox,
    looker: Looker,
    feed: Feed,
    pub(crate) forwarder: Forwarder,
    upstream: Upstream,
    metrics: Arc<Metrics>,
    losses: Losses,
    sync_soon: Arc<Notify>,
    enforcement: Enforcement,
    link: Link,
    pub(crate) enforcer: Enforcer,
    questions: Questions,
    /// What looks at containers, and is to be started.
    looking: RebalancerTask,
    pub(crate) stop: CancellationToken,
    pub(crate) kill: CancellationToken,
    broken: CancellationToken,
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
        let (state, keeper, found) = restore(config, machine, &metrics).await?;
        let (calls, sync_soon) = (RuntimeCalls::default(), Arc::new(Notify::new()));
        let enforcer = new_enforcer(config, machine.disks())?.with_calls(calls.clone());
        let (historian, history) = start_history(config, &state, found, &metrics, machine.disks());
        let forwarder = Forwarder::start().map_err(StartError::Forwarder)?;
        let upstream = forwarder.upstream(&config.runtime_socket, config.runtime_timeout);
        let ((inbox, events), (looker, looks)) = (inbox(config.waiting_max), looker());
        let ((writer, batches), (failed, failures)) = (channel(), channel());
        let [stop, kill, broken] = [(); 3].map(|()| CancellationToken::new());
        let (enforcement, questions) = Enforcement::new(calls.clone());
        let feed = Feed::starting();
        let link = Link::of(config.front_end);
        let event_loop = EventLoop {
            state,
            journal: keeper,
            historian,
            feed: feed.clone(),
            writer,
            metrics: Arc::clone(&metrics),
            health: Arc::clone(&health),
            sync_soon: Arc::clone(&sync_soon),
            unconfirmed: link.unconfirmed.clone(),
            enforcement: enforcement.clone(),
            sightings: sightings.clone(),
            looks,
        };
        let resources = ResourcesDir::new(resources_root(&config.socket));
        let writer_task = Writer {
            upstream: upstream.clone(),
            failures: failed,
            config: current.clone(),
            metrics: Arc::clone(&metrics),
            calls,
            unconfirmed: link.unconfirmed.clone(),
            resources,
        };
        let writing = run_writer(batches, writer_task);
        let losses = Losses { health: Arc::clone(&health), metrics: Arc::clone(&metrics) };
        let observing = observe(inbox.clone(), current.clone(), shown.clone());
        let tasks = vec![
            vital(&broken, event_loop.run(events, kill.clone())),
            vital(&broken, writing),
            vital(&broken, until(kill.clone(), report_failures(failures, inbox.clone()))),
            losses.spare_then(Part::Observer, until(stop.clone(), observing), shown.clone().lose()),
            losses.spare(Part::Historian, history),
        ];
        let looking = RebalancerTask {
            inbox: inbox.clone(),
            config: current.clone(),
            ground: Ground::new(machine, config),
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
            upstream,
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
            upstream: self.upstream.clone(),
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

fn warn_of_oddities(machine: &Machine) {
    for oddity in machine.topology().oddities() {
        tracing::warn!("odd hardware description: {oddity}");
    }
}

impl Daemon {
    /// Reads the journal, asks the runtime what runs, and serves. The runtime may be away: then what the journal says counts until it
    /// is back.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(config: Config, machine: Machine) -> Result<Daemon, StartError> {
        Daemon::start_under(Systemd::default(), config.into(), machine).await
    }

    /// As [`Self::start`], on the sockets that were passed, and systemd is told how it goes.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start_under(
        systemd: Systemd,
        followed: Followed,
        machine: Machine,
    ) -> Result<Daemon, StartError> {
        warn_of_oddities(&machine);
        let (live, current) = watch::channel(Arc::new(followed.config.clone()));
        let config = Arc::clone(&current.borrow());
        refuse_two_front_ends(&config)?;
        let core = Core::start(&config, &machine, &current).await?;
        let syncer = core.syncer(&config);
        let Core { inbox, metrics, losses, sync_soon, enforcement, link, stop, broken, .. } = core;
        let has_synced = first_sync(&syncer).await;
        let soon = Arc::clone(&sync_soon);
        let synced = syncer.clone().run(current.clone(), has_synced, soon, stop.clone());
        let mut tasks = vec![
            vital(&broken, synced),
            vital(&broken, until(stop.clone(), hear_exits(syncer.clone()))),
        ];
        // After the first sync: what belongs to no container is given back.
        let enforcing = EnforcerTask {
            enforcer: core.enforcer,
            is_dry_run: followed.is_dry_run,
            questions: core.questions,
            inbox: inbox.clone(),
            config: current.clone(),
            metrics: Arc::clone(&metrics),
            feed: core.feed.clone(),
            health: Arc::clone(&losses.health),
        };
        tasks.push(losses.spare(Part::Enforcer, run_enforcer(enforcing, stop.clone())));
        let looking = RebalancerTask { is_dry_run: followed.is_dry_run, ..core.looking };
        let (ground, sightings) = (Arc::clone(&looking.ground), looking.sightings.clone());
        let shown = looking.shown.clone();
        let told = looking.told.clone();
        let close = CancellationToken::new();
        tasks.extend(start_looking(&machine, looking, &losses, (&stop, &close)));
        let parts = Parts {
            live,
            ground,
            inbox: inbox.clone(),
            looker: core.looker.clone(),
            upstream: core.upstream,
            metrics: Arc::clone(&metrics),
            sync_soon: Arc::clone(&sync_soon),
            ear: systemd.ear,
        };
        let watch = parts.watch(&machine);
        let reloader = Reloader::new(followed, parts);
        tasks.push(vital(&broken, until(stop.clone(), follow(watch, reloader.clone()))));
        let mut daemon = Daemon {
            proxy: tokio::spawn(async {}),
            metrics_address: None,
            forwarder: core.forwarder,
            sockets: Vec::new(),
            ear: systemd.ear,
            config: current.clone(),
            inbox: inbox.clone(),
            enforcement: enforcement.clone(),
            sightings,
            told,
            feed: core.feed,
            reloader,
            close,
            stop,
            kill: core.kill,
            broken,
            losses,
            tasks: core.tasks.into_iter().chain(tasks).collect(),
        };
        let mounts = mounts_of(&config);
        let pods = daemon.follow_pods(&config, &metrics, inbox);
        let gate = Gate::new(syncer, current, metrics, sync_soon, mounts, enforcement, link);
        daemon.serve_or_stop(gate.with_pods(pods), (core.looker, shown), systemd).await
    }

    /// Starts the task that follows what kubelet knows of pods.
    fn follow_pods(&mut self, config: &Config, metrics: &Arc<Metrics>, inbox: Inbox) -> PodLookup {
        let pods = PodLookup::new(config, Arc::clone(metrics));
        let following = until(self.stop.clone(), pods.clone().follow(inbox));
        self.tasks.push(self.losses.spare(Part::Pods, following));
        pods
    }

    async fn serve_or_stop(
        mut self,
        gate: Gate,
        looks: (Looker, Shown),
        systemd: Systemd,
    ) -> Result<Daemon, StartError> {
        match self.serve(gate, looks, systemd).await {
            Ok(()) => Ok(self),
            Err(error) => {
                self.stop().await;
                Err(error)
            }
        }
    }

    /// Tasks of connections, and of calls that are forwarded.
    pub fn forwarding_tasks(&self) -> usize {
        self.forwarder.handle().metrics().num_alive_tasks()
    }

    /// What gives it another configuration.
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Comes back when the daemon can no longer decide, which is a bug; the process should end and be started again.
    pub async fn broken(&self) {
        self.broken.cancelled().await;
    }

    async fn serve(
        &mut self,
        gate: Gate,
        looks: (Looker, Shown),
        systemd: Systemd,
    ) -> Result<(), StartError> {
        let config = Arc::clone(&gate.config.borrow());
        let inbox = gate.syncer.inbox.clone();
        let neighbours =
            watch_neighbours(config.host_root.clone(), inbox.clone(), Arc::clone(&gate.metrics));
        let neighbours = until(self.stop.clone(), neighbours);
        self.tasks.push(self.losses.spare(Part::Neighbours, neighbours));
        let api = self.api(&gate, looks);
        if let Some(address) = config.metrics_address {
            let bound = MetricsPort::bind(address, &self.losses).await;
            self.metrics_address = bound.address();
            let served = until(self.kill.clone(), bound.serve(api.clone()));
            self.tasks.push(self.losses.spare(Part::Server, served));
        }
        let access = Access::Group(&config.control_group);
        let listener = self.listen(systemd.control, &config.control_socket, access).await?;
        let served = http_server::serve(listener, routes(Reach::Socket, api), http_server::CONTROL);
        let served = until(self.kill.clone(), served);
        self.tasks.push(self.losses.spare(Part::Server, served));
        match config.front_end {
            FrontEnd::Cri => self.serve_kubelet(&config, gate, systemd.cri).await?,
            FrontEnd::Nri => self.serve_runtime(&config, gate, systemd.cri.is_some()),
        }
        self.ear.ready();
        if let Some(limit) = systemd.watchdog {
            let feeding = feed_watchdog(inbox, self.forwarder.handle().clone(), limit, self.ear);
            self.tasks.push(tokio::spawn(until(self.kill.clone(), feeding)));
        }
        Ok(())
    }

    /// The CRI proxy.
    async fn serve_kubelet(
        &mut self,
        config: &Config,
        gate: Gate,
        passed: Option<StdUnixListener>,
    ) -> Result<(), StartError> {
        let listener = self.listen(passed, &config.socket, Access::Owner).await?;
        let listener = self.forwarder.take_over(listener).map_err(StartError::Forwarder)?;
        let close = self.close.clone();
        let images = config.image_socket.clone();
        let images = images.map(|it| self.forwarder.upstream(&it, config.runtime_timeout));
        let live = self.config.clone();
        let drain = move || live.borrow().drain_timeout;
        // Calls that clients leave half open must not hold up those of the daemon: a runtime may bound the calls of a connection.
        let upstream = self.forwarder.upstream(&config.runtime_socket, config.runtime_timeout);
        let proxy = Proxy::new(upstream, images, gate);
        let served = proxy::serve(listener, proxy, close.cancelled_owned(), drain);
        self.proxy = vital_on(self.forwarder.handle(), &self.broken, served);
        tracing::info!(
            socket = %config.socket.display(),
            runtime = %config.runtime_socket.display(),
            "serving"
        );
        Ok(())
    }

    /// What handlers of HTTP need; starts what tells open pages of changes.
    fn api(&mut self, gate: &Gate, (looker, shown): (Looker, Shown)) -> Api {
        let config = gate.config.borrow();
        let shows = MapFeed::default();
        let map = || LiveMap::new(shows.clone(), config.state_dir.join(HISTORY_DIR));
        let api = Api {
            syncer: gate.syncer.clone(),
            metrics: Arc::clone(&gate.metrics),
            reloader: self.reloader.clone(),
            enforcement: self.enforcement.clone(),
            sightings: self.sightings.clone(),
            told: self.told.clone(),
            holdings: Holdings::new(config.host_root.clone()),
            shown: shown.clone(),
            looker,
            feed: self.feed.clone(),
            link: gate.link.clone(),
            map: config.has_map.then(map),
            shared: Arc::default(),
        };
        if config.has_map {
            let changes = api.looker.changes();
            let feeding = run_feed(shows, Sources { api: api.clone(), shown, changes });
            self.tasks.push(self.losses.spare(Part::Server, until(self.stop.clone(), feeding)));
        }
        api
    }

    /// The NRI plugin. Kubelet's socket is not served: both at once would decide twice about each container.
    fn serve_runtime(&mut self, config: &Config, gate: Gate, is_socket_held: bool) {
        if is_socket_held {
            tracing::info!(
                "systemd holds {}, where nothing answers with frontEnd: nri",
                config.socket.display()
            );
        }
        let settings = PluginSettings {
            socket: config.nri_socket.clone(),
            name: "bayplan".to_owned(),
            index: format!("{:02}", config.nri_index),
        };
        tracing::info!(
            socket = %config.nri_socket.display(),
            runtime = %config.runtime_socket.display(),
            "registering as an NRI plugin"
        );
        let close = self.close.clone();
        let plugin = run_plugin(settings, NriFrontEnd::new(gate), close);
        self.proxy = vital(&self.broken, plugin);
    }

    /// The socket that was passed, or a new one at this path.
    async fn listen(
        &mut self,
        passed: Option<StdUnixListener>,
        path: &Path,
        access: Access<'_>,
    ) -> Result<UnixListener, StartError> {
        let listen = |source| StartError::Listen { what: path.display().to_string(), source };
        let Some(passed) = passed else {
            let (listener, lock) = listen_unix(path, access).await.map_err(listen)?;
            self.sockets.push((path.to_owned(), lock));
            return Ok(listener);
        };
        let address = passed.local_addr().map_err(listen)?;
        if address.as_pathname() != Some(path) {
            let path = path.display();
            tracing::warn!("systemd listens on {address:?}, not on {path} as configured");
        }
        passed.set_nonblocking(true).map_err(listen)?;
        UnixListener::from_std(passed).map_err(listen)
    }

    /// Where metrics are served, with the port that the kernel chose if the configuration says port 0. `None`: nowhere, or another process had the
    /// port at the start.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Serves on until calls that take long have ended, then stops accepting, lets the others come to their end, and returns when
    /// everything is on disk. Containers keep running as they are.
    pub async fn stop(self) {
        self.ear.stopping(self.config.borrow().drain_timeout);
        self.close.cancel();
        // Nothing watches loans from here on, and the other calls may take long.
        let unshared = share_no_more(&self.inbox, &self.enforcement);
        let (served, ()) = tokio::join!(self.proxy, unshared);
        if let Err(error) = served {
            tracing::error!(%error, "the proxy ended badly");
        }
        // A look that was under way at the close may have shared once more.
        share_no_more(&self.inbox, &self.enforcement).await;
        take_back(&self.inbox, &self.enforcement).await;
        self.stop.cancel();
        // Before the journal is free: a successor makes sockets of its own at these paths.
        for (socket, _lock) in self.sockets {
            let _gone = std::fs::remove_file(socket);
        }
        self.kill.cancel();
        end(self.tasks).await;
        tracing::info!("stopped");
    }
}

/// The rebalancer, the probes, what shares CPUs with BestEffort containers, and what reclaims idle memory.
fn start_looking(
    machine: &Machine,
    looking: RebalancerTask,
    losses: &Losses,
    (stop, close): (&CancellationToken, &CancellationToken),
) -> impl Iterator<Item = JoinHandle<()>> + use<> {
    let probing = ProberTask {
        inbox: looking.inbox.clone(),
        config: looking.config.clone(),
        ground: Arc::clone(&looking.ground),
        sightings: looking.sightings.clone(),
    };
    // What it has turned would not be judged any more.
    let (inbox, enforcement) = (looking.inbox.clone(), looking.enforcement.clone());
    let root = looking.config.borrow().host_root.clone();
    let metrics = Arc::clone(&looking.metrics);
    let reclaiming = run_reclaimer(root, enforcement.clone(), Arc::clone(&metrics), stop.clone());
    let reclaiming = losses.spare(Part::Reclaimer, reclaiming);
    let tidy = async move {
        take_back(&inbox, &enforcement).await;
        metrics.rebalancing.looked(0, 0);
    };
    let colocating = ColocationTask {
        inbox: looking.inbox.clone(),
        config: looking.config.clone(),
        ground: Arc::clone(&looking.ground),
        metrics: Arc::clone(&looking.metrics),
        is_dry_run: looking.is_dry_run,
    };
    let (sharing, shared) = (looking.inbox.clone(), looking.enforcement.clone());
    let shown = Arc::clone(&looking.metrics);
    // Nothing would follow the load any more.
    let unshare = async move {
        share_no_more(&sharing, &shared).await;
        shown.rebalancing.show_best_effort(None, 0);
    };
    // Before everything is taken back, or it would share again after that.
    let work = async move {
        let _stopping = run_colocation(colocating).await;
    };
    let colocating = until(close.clone(), work);
    let colocating = losses.spare_then(Part::Colocation, colocating, unshare);
    let rebalancing = run_rebalancer(looking, stop.clone());
    let rebalancing = losses.spare_then(Part::Rebalancer, rebalancing, tidy);
    // A machine that is not this one has no kernel to count in.
    let probing = || {
        // Numbers that stand still would be taken for a quiet node.
        let sightings = probing.sightings.clone();
        let tidy = async move { sightings.clear(Vec::new()) };
        losses.spare_then(Part::Prober, run_prober(probing, stop.clone()), tidy)
    };
    let probing = machine.is_real().then(probing);
    [rebalancing, reclaiming, colocating].into_iter().chain(probing)
}

/// Follows the machine, if it is watched, and the configuration's file, for ever.
async fn follow(machine: Option<Watch>, reloader: Reloader) {
    let machine = async {
        match machine {
            Some(watch) => watch.run().await,
            None => std::future::pending().await,
        }
    };
    tokio::join!(machine, reloader.watch());
}

/// Where containers find their CPUs and memory nodes.
fn mounts_of(config: &Config) -> Arc<Mounts> {
    let root = resources_root(&config.socket);
    Arc::new(Mounts { root, directories: config.resources_directories.clone() })
}

fn pools_at_start(topology: &Topology, config: &Config) -> Result<Pools, StartError> {
    let reserved = &config.reserved_cpus;
    check_reserved(topology, reserved).map_err(StartError::Pools)?;
    let pools = surviving_pools(topology, config.policy, reserved);
    let missing = reserved.difference(pools.reserved());
    if !missing.is_empty() {
        tracing::warn!(
            "reservedCpus: {missing} are offline; {} are reserved until they are back",
            pools.reserved()
        );
    }
    if let Some(message) = isolated_reserved(topology, reserved) {
        tracing::warn!("{message}");
    }
    Ok(pools)
}

/// A node on which nothing runs yet, as this configuration wants it on this machine.
///
/// # Errors
/// [`StartError::Pools`].
pub fn new_state(config: &Config, topology: &Topology) -> Result<NodeState, StartError> {
    let pools = pools_at_start(topology, config)?;
    let ledger = Ledger::new(Arc::new(pools));
    let state = NodeState::new(ledger, config.rules(), fingerprint(topology))
        .with_devices(topology.devices().into())
        .with_doubt_grace(config.doubt_grace())
        .with_compaction(config.compaction)
        .with_narrowing(config.narrows_memory)
        .with_on_no_capacity(config.on_no_capacity)
        .with_unasked_placed(config.front_end == FrontEnd::Nri)
        .with_groups(Arc::clone(&config.groups));
    Ok(state)
}

/// The state as the journal has it, and what the history is told of how it came to be.
async fn restore(
    config: &Config,
    machine: &Machine,
    metrics: &Metrics,
) -> Result<(NodeState, Keeper, Vec<Entry>), StartError> {
    let topology = machine.topology();
    let origin = Origin { config: config.differences().into(), machine: machine.files() };
    let are_told =
        !config.resources_directories.is_empty() || has_files(&resources_root(&config.socket));
    let mut state = new_state(config, topology)?.with_origin(origin).with_tellings(are_told);
    let opened = Journal::open_on(Arc::clone(&machine.disks().journal), &config.state_dir);
    let (journal, recovered) = opened.map_err(StartError::Journal)?;
    for dropped in &recovered.dropped {
        tracing::warn!(line = dropped.line, why = dropped.why, "a journal record was dropped");
    }
    let live = replay(&recovered.records);
    let is_torn = !recovered.dropped.is_empty();
    let known = Known::after_reading(is_torn, &live, &fingerprint(topology));
    if known.is_partial() {
        tracing::warn!(
            "no whole journal of this machine is in {}: containers are created once the runtime has told what runs",
            config.state_dir.display()
        );
    }
    state = state.with_known(known);
    if is_torn || live.unreadable > 0 {
        match journal.set_aside() {
            Ok(old) => tracing::warn!("the journal as it was is in {}", old.display()),
            Err(error) => tracing::warn!(%error, "the journal as it was could not be kept"),
        }
    }
    let is_other = |other: &String| *other != fingerprint(topology);
    if live.fingerprint.as_ref().is_some_and(is_other) {
        tracing::warn!("the journal is about another machine; what fits this one is used");
    }
    if live.unreadable > 0 {
        tracing::warn!(records = live.unreadable, "unreadable journal records were dropped");
    }
    tracing::info!(containers = live.containers.len(), "read the journal");
    let now = Timestamp::now();
    let step = state.restore(live, now);
    for note in &step.notes {
        tell(note, metrics);
    }
    let mut keeper = Keeper::new(journal);
    let mut found = step.history;
    if let Err(why) = keeper.keep(Vec::new(), true, &state, metrics).await {
        found.push(Entry { at: now, ..Entry::failure(format!("journal: {why}")) });
    }
    Ok((state, keeper, found))
}

/// Gives back what a daemon that no longer runs has changed in kernel files, as far as they are still there. CPU sets stay as they are: only the
/// runtime can change them for good. Where no daemon has ever run with this state directory, nothing is touched: the kernel may be one in which another has.
///
/// # Errors
/// A daemon runs, or what was changed cannot be read.
pub fn restore_files(config: &Config) -> Result<RestoredFiles, StartError> {
    if !Originals::are_below(&config.state_dir) {
        return Ok(RestoredFiles { given_back: 0, failures: Vec::new() });
    }
    Ok(new_enforcer(config, &Disks::default())?.give_back())
}

/// With what earlier daemons have changed and not given back.
fn new_enforcer(config: &Config, disks: &Disks) -> Result<Enforcer, StartError> {
    let what = || config.host_root.display().to_string();
    let root = |source| StartError::Root { what: what(), source };
    let mut kernel = DiskKernel::open(&config.host_root).map_err(root)?;
    let boot = kernel.read(BOOT_ID).ok();
    let boot = boot.map(|id| id.trim().to_owned());
    let (originals, told) = Originals::open(Arc::clone(&disks.originals), &config.state_dir, boot)
        .map_err(StartError::Journal)?;
    tell_lost(&told);
    Ok(Enforcer::new(Box::new(kernel), originals))
}

/// So that kubelet's first call finds a state that knows what runs; a runtime that is away does not hold the start up for long.
async fn first_sync(syncer: &Syncer) -> bool {
    let tried = tokio::time::timeout(FIRST_SYNC, async {
        while let Err(error) = syncer.sync().await {
            tracing::info!("waiting for the runtime: {error}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let has_synced = tried.await.is_ok();
    if !has_synced {
        tracing::warn!(
            "the runtime does not answer; it is asked again with each creation and every few seconds"
        );
    }
    has_synced
}

/// With NRI, kubelet must call the runtime itself.
fn refuse_two_front_ends(config: &Config) -> Result<(), StartError> {
    let called = kubelet_at_proxy(config).filter(|_| config.front_end == FrontEnd::Nri);
    called.map_or(Ok(()), |endpoint| Err(StartError::KubeletAtProxy { endpoint }))
}
