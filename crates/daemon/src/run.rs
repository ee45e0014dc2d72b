//! Starts and stops the daemon. In: a configuration and a machine. Out: sockets that are served.

use std::net::SocketAddr;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bayplan_cri::proxy::{self, Proxy};
use bayplan_node::history::HISTORY_DIR;
use bayplan_nri::front_end::FrontEnd as NriFrontEnd;
use bayplan_nri::plugin::{Settings as PluginSettings, run as run_plugin};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, control_routes};
use crate::check_front_end::kubelet_at_proxy;
use crate::colocation::share_no_more;
use crate::config::{Config, FrontEnd, LiveConfig};
use crate::enforcer::{Enforcement, EnforcerTask, run_enforcer};
use crate::exits::hear_exits;
use crate::feed::Feed;
use crate::forwarder::Forwarder;
use crate::gate::{Gate, Mounts};
use crate::health::Part;
use crate::holdings::Holdings;
use crate::hotplug::{Machine, Watch};
use crate::http_server;
use crate::inbox::{Inbox, Looker};
use crate::live_map::{Feed as MapFeed, LiveMap, Sources, run_feed};
use crate::metrics::Metrics;
use crate::metrics_port::MetricsPort;
use crate::neighbours::watch_neighbours;
use crate::observer::Shown;
use crate::pods::PodLookup;
use crate::prober::Sightings;
use crate::rebalancer::{RebalancerTask, Told, take_back};
use crate::reload::{Followed, Parts, Reloader};
use crate::resources_dir::resources_root;
use crate::socket::{Access, SocketLock, listen_unix};
use crate::start_core::{Core, end};
use crate::start_error::StartError;
use crate::start_looking::start_looking;
use crate::sync::Syncer;
use crate::systemd::{Ear, Systemd, feed_watchdog};
use crate::tasks::{Losses, until, vital, vital_on};

/// How long the start waits for the runtime before it serves kubelet without having asked it. Kubelet's connection waits in the socket meanwhile, and kubelet
/// gives it up after five seconds (`minConnectionTimeout` of its CRI client), so that its calls would fail.
const FIRST_SYNC: Duration = Duration::from_secs(3);

/// A file beside the control socket that says that no daemon will come: the package's script makes it when the package is removed, and a daemon that starts takes it away. The agent
/// takes back what it has published of the node.
pub const REMOVED: &str = "removed";

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
            runtime: core.runtime,
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
        // This daemon is there, whatever was removed before.
        let _never_removed = std::fs::remove_file(config.control_socket.with_file_name(REMOVED));
        let access = Access::Group(&config.control_group);
        let listener = self.listen(systemd.control, &config.control_socket, access).await?;
        let served = http_server::serve(listener, control_routes(api), http_server::CONTROL);
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
            pods: gate.pods.clone(),
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
