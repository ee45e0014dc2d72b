//! One node: a synthetic machine, the embedded runtime, the daemon in a tokio runtime of its own, and a client that asks as kubelet
//! does. Everything lives in a temporary directory.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_cri::embedded::{ContainerSnapshot, EmbeddedRuntime};
use bayplan_cri::kubelet::{ContainerSpec, Kubelet, PodSpec, RunningPod};
use bayplan_cri::upstream::Upstream;
use bayplan_cri::v1;
use bayplan_cri::v1::runtime_service_client::RuntimeServiceClient;
use bayplan_daemon::config::Config;
use bayplan_daemon::{Daemon, Machine, StartError, query_control};
use bayplan_host::disk::Disks;
use bayplan_host::journal::JournalError;
use bayplan_node::status::{ContainerStatus, Explanation, Status};
use bayplan_topology::{Snapshot, Topology, derive, parse_machine};
use bayplan_types::{Bytes, CpuSet, QosClass};
use bayplan_workload::annotations::Rule;
use bayplan_workload::runtime::ContainerState;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::engine::{Engine, WORKERS};

/// Two NUMA nodes with four cores of two threads each; CPU `n` and `n + 8` are one core.
pub(crate) const MACHINE: &str = "pack:1 numa:2 core:4 pu:2 mem:16";
/// The first core.
pub(crate) const RESERVED: &str = "0,8";

/// `bayplan` as the tests build it.
pub(crate) const DAEMON: &str = env!("CARGO_BIN_EXE_bayplan-under-test");

/// Far beyond anything a test waits for; it turns a test that hangs into one that fails.
pub(crate) const STUCK: Duration = Duration::from_secs(60);
pub(crate) const POLL: Duration = Duration::from_millis(5);
/// Short, so that tests need not wait for what only a later sync repairs.
const RESYNC: Duration = Duration::from_millis(50);

/// Waits for what must happen.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(STUCK, future).await.expect("nothing happened")
}

/// The set that a text of a status or of the runtime means.
pub(crate) fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

/// The daemon.
enum Running {
    /// In a tokio runtime of its own.
    Here { daemon: Box<Daemon>, tokio: Engine },
    /// A process ([`Node::process`]), and where its metrics are.
    Process { metrics: SocketAddr },
}

struct Server {
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

pub(crate) struct Node {
    dir: TempDir,
    snapshot: Snapshot,
    topology: Topology,
    /// The machine is read from files, and watched.
    is_watched: bool,
    resync: Duration,
    /// What the next daemon's configuration has besides.
    pub(crate) adjust: fn(&mut Config),
    /// Under the state directory of the next daemon.
    pub(crate) disks: Disks,
    pub(crate) runtime: EmbeddedRuntime,
    server: Option<Server>,
    running: Option<Running>,
    /// The daemon's process, once it has been one; code that kills it has a share.
    pub(crate) process: Arc<Mutex<Option<Child>>>,
    pub(crate) kubelet: Kubelet,
    /// Runtime ids of containers, and of sandboxes with all in them, that kubelet has asked to end, by whatever call and with whatever answer.
    pub(crate) to_end: Arc<Mutex<BTreeSet<String>>>,
    /// Those of them of which it was told that they have.
    pub(crate) ended: Arc<Mutex<BTreeSet<String>>>,
}

impl Node {
    /// A node on [`MACHINE`], with everything running.
    pub(crate) async fn start() -> Node {
        let mut node = Node::without_daemon(MACHINE);
        node.start_daemon().await;
        node
    }

    /// A node with a machine that is files below a root of its own, with everything running; [`Node::plug`] changes the machine.
    pub(crate) async fn start_watching(machine: &str) -> Node {
        Node::start_watching_with(machine, |_| {}).await
    }

    /// The same with a configuration that has more.
    pub(crate) async fn start_watching_with(machine: &str, adjust: fn(&mut Config)) -> Node {
        let mut node = Node::without_daemon(machine);
        node.adjust = adjust;
        node.is_watched = true;
        node.plug(machine);
        node.start_daemon().await;
        node
    }

    /// Writes the machine's files anew, while the daemon may be reading them.
    pub(crate) fn plug(&self, machine: &str) {
        write_machine(&self.host_root(), &parse_machine(machine).unwrap());
    }

    /// Below it lie the files of a machine that is watched; otherwise it is empty, because the machine is not this host's, and neither
    /// are its processes.
    pub(crate) fn host_root(&self) -> PathBuf {
        self.path("host")
    }

    /// A machine with a runtime.
    pub(crate) fn without_daemon(machine: &str) -> Node {
        let dir = TempDir::with_prefix("bayplan-daemon-").unwrap();
        let snapshot = parse_machine(machine).unwrap();
        let mut node = Node {
            topology: derive(&snapshot).unwrap(),
            snapshot,
            is_watched: false,
            resync: RESYNC,
            adjust: |_| {},
            disks: Disks::default(),
            runtime: EmbeddedRuntime::new(),
            server: None,
            running: None,
            process: Arc::default(),
            kubelet: kubelet(dir.path().join("bayplan.sock")),
            to_end: Arc::default(),
            ended: Arc::default(),
            dir,
        };
        fs::create_dir(node.host_root()).unwrap();
        node.start_runtime();
        node
    }

    /// A daemon that is started from now on asks the runtime once and not again.
    pub(crate) fn never_resyncs(&mut self) {
        self.resync = Duration::from_secs(3600);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.path("state/journal")
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.path("state")
    }

    pub(crate) fn history(&self) -> PathBuf {
        self.path("state/history")
    }

    pub(crate) fn control_socket(&self) -> PathBuf {
        self.path("control.sock")
    }

    pub(crate) fn config(&self) -> Config {
        let mut config = Config {
            socket: self.path("bayplan.sock"),
            kubelet_pods_socket: Some(self.path("pods.sock")),
            pod_resources_socket: Some(self.path("pod-resources.sock")),
            runtime_socket: self.path("runtime.sock"),
            control_socket: self.path("control.sock"),
            state_dir: self.path("state"),
            metrics_address: Some(([127, 0, 0, 1], 0).into()),
            reserved_cpus: set(RESERVED),
            resync_interval: self.resync,
            host_root: self.host_root(),
            permissions: vec![Rule::everything()],
            ..Config::default()
        };
        (self.adjust)(&mut config);
        config
    }

    /// The hardware as the next daemon sees it.
    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The runtime listens, with what it remembers.
    pub(crate) fn start_runtime(&mut self) {
        let listener = UnixListener::bind(self.path("runtime.sock")).unwrap();
        let (stop, stopped) = oneshot::channel();
        let runtime = self.runtime.clone();
        let served = tokio::spawn(async move {
            let stopped = async {
                let _dropped = stopped.await;
            };
            runtime.serve(listener, stopped).await;
        });
        self.server = Some(Server { stop, served });
    }

    /// The runtime dies in the middle of whatever it does; its containers stay.
    pub(crate) async fn stop_runtime(&mut self) {
        let server = self.server.take().unwrap();
        server.stop.send(()).unwrap();
        soon(server.served).await.unwrap();
        fs::remove_file(self.path("runtime.sock")).unwrap();
    }

    /// What a reboot leaves of the runtime.
    pub(crate) fn forget_containers(&mut self) {
        self.runtime = EmbeddedRuntime::new();
    }

    pub(crate) async fn start_daemon(&mut self) {
        let tokio = Engine::new(self.thread_name());
        // A daemon that was killed a moment ago lets go of its sockets and its lock when its tasks are dropped.
        let deadline = Instant::now() + STUCK;
        let daemon = loop {
            let (config, machine) = (self.config(), self.machine());
            let started = tokio.handle().spawn(Daemon::start(config, machine));
            match started.await.unwrap() {
                Ok(daemon) => break daemon,
                Err(error) => assert!(is_held(&error) && Instant::now() < deadline, "{error:?}"),
            }
            tokio::time::sleep(POLL).await;
        };
        self.running = Some(Running::Here { daemon: Box::new(daemon), tokio });
        // The old connections are as dead as the old daemon.
        self.kubelet = kubelet(self.path("bayplan.sock"));
    }

    /// What the threads of this node's daemons are called.
    pub(crate) fn thread_name(&self) -> String {
        format!("daemon of {}", self.dir.path().display())
    }

    fn machine(&self) -> Machine {
        let machine = match self.is_watched {
            true => Machine::of_host(&self.host_root(), &self.state_dir()).unwrap(),
            false => Machine::fixed(self.topology.clone()),
        };
        machine.with_disks(self.disks.clone())
    }

    /// As `systemctl stop`.
    pub(crate) async fn stop_daemon(&mut self) {
        let Some(Running::Here { daemon, tokio }) = self.running.take() else {
            panic!("the daemon is not here")
        };
        soon(tokio.handle().spawn(daemon.stop())).await.unwrap();
    }

    /// Tasks of the daemon.
    pub(crate) fn tasks(&self) -> usize {
        match self.running.as_ref().unwrap() {
            Running::Here { tokio, daemon } => {
                tokio.handle().metrics().num_alive_tasks() + daemon.forwarding_tasks()
            }
            Running::Process { .. } => panic!("the daemon is not here"),
        }
    }

    /// Keeps all threads of the daemon but that which forwards from doing anything else until the sender is dropped.
    pub(crate) async fn block_daemon(&self) -> std::sync::mpsc::Sender<()> {
        let Running::Here { tokio, .. } = self.running.as_ref().unwrap() else {
            panic!("the daemon is not here")
        };
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        for _ in 0..WORKERS {
            let (blocking, blocked) = oneshot::channel();
            let released = Arc::clone(&released);
            tokio.handle().spawn(async move {
                blocking.send(()).unwrap();
                // The sender is never used: this comes back when it is dropped.
                let _dropped = released.lock().unwrap().recv();
            });
            soon(blocked).await.unwrap();
        }
        release
    }

    /// As [`Self::kill_daemon`], however long it takes until no task gets another turn.
    pub(crate) fn bury_daemon(&mut self) {
        let Some(Running::Here { tokio, daemon }) = self.running.take() else {
            panic!("the daemon is not here")
        };
        assert!(tokio.end(STUCK), "nothing happened");
        drop(daemon);
    }

    /// `kill -9`, or the like of it: no task gets another turn.
    pub(crate) fn kill_daemon(&mut self) {
        match self.running.take().expect("no daemon") {
            Running::Here { daemon, tokio } => {
                // First, because it is not told that calls of a daemon that was killed are given up. A task that waits for a disk that hangs stays.
                let _has_ended = tokio.end(Duration::from_secs(1));
                drop(daemon);
            }
            Running::Process { .. } => {}
        }
        self.end_process();
    }

    /// What is left of the last process; it may have ended already.
    fn end_process(&self) {
        if let Some(mut child) = self.process.lock().unwrap().take() {
            let _ended = child.kill();
            child.wait().unwrap();
        }
    }

    /// Starts the daemon as a process, which reads the machine from files; `more` is added to its configuration.
    pub(crate) async fn spawn_daemon(&mut self, more: &str) {
        let (arguments, metrics) = self.daemon_arguments(more);
        let mut command = Command::new(DAEMON);
        command.args(arguments).env_remove("BAYPLAN_LOG").stdin(Stdio::null());
        self.adopt_daemon(command.spawn().unwrap(), metrics);
        self.kubelet = kubelet(self.path("bayplan.sock"));
        // It is the last socket that the daemon makes.
        wait_for_socket(&self.path("bayplan.sock")).await;
    }

    /// Writes machine and configuration for a daemon that is a process. Gives its arguments, and where its metrics will be.
    pub(crate) fn daemon_arguments(&self, more: &str) -> ([OsString; 3], SocketAddr) {
        write_machine(&self.host_root(), &self.snapshot);
        let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let metrics = free.local_addr().unwrap();
        drop(free);
        let dir = self.dir.path().display();
        let resync = if more.contains("resyncInterval:") { "" } else { "resyncInterval: 1s\n" };
        let config = format!(
            "socket: {dir}/bayplan.sock\nruntimeSocket: {dir}/runtime.sock\ncontrolSocket: {dir}/control.sock\n\
             stateDir: {dir}/state\nmetricsAddress: {metrics}\nhostRoot: {dir}/host\n{resync}{more}"
        );
        let path = self.path("bayplan.yaml");
        fs::write(&path, config).unwrap();
        (["run".into(), "--config".into(), path.into()], metrics)
    }

    /// From now on this process is the daemon.
    pub(crate) fn adopt_daemon(&mut self, child: Child, metrics: SocketAddr) {
        *self.process.lock().unwrap() = Some(child);
        self.running = Some(Running::Process { metrics });
    }

    /// The daemon's process.
    pub(crate) fn daemon_pid(&self) -> u32 {
        self.process.lock().unwrap().as_ref().expect("a process").id()
    }

    /// Sends a signal to the daemon's process.
    pub(crate) fn signal_daemon(&self, signal: Signal) {
        kill(Pid::from_raw(self.daemon_pid().try_into().unwrap()), signal).unwrap();
    }

    /// Waits until the daemon's process has ended by itself.
    pub(crate) async fn daemon_ended(&self) -> ExitStatus {
        soon(async {
            loop {
                match self.exit_status() {
                    Some(status) => break status,
                    None => tokio::time::sleep(POLL).await,
                }
            }
        })
        .await
    }

    /// How the daemon's process has ended; `None`: it runs.
    pub(crate) fn exit_status(&self) -> Option<ExitStatus> {
        self.process.lock().unwrap().as_mut().expect("a process").try_wait().unwrap()
    }

    /// The machine is another one from the next start on.
    pub(crate) fn set_machine(&mut self, machine: &str) {
        self.snapshot = parse_machine(machine).unwrap();
        self.topology = derive(&self.snapshot).unwrap();
    }

    pub(crate) fn metrics_address(&self) -> SocketAddr {
        match self.running.as_ref().unwrap() {
            Running::Here { daemon, .. } => daemon.metrics_address().unwrap(),
            Running::Process { metrics } => *metrics,
        }
    }

    /// A raw client of the daemon.
    pub(crate) fn raw(&self) -> RuntimeServiceClient<Upstream> {
        Upstream::new(self.path("bayplan.sock"), STUCK).runtime_client()
    }

    /// A client that goes past the daemon.
    pub(crate) fn past_daemon(&self) -> Kubelet {
        kubelet(self.path("runtime.sock"))
    }

    pub(crate) async fn status(&self) -> Status {
        soon(query_control(&self.path("control.sock"), "/api/v1/status")).await.unwrap()
    }

    pub(crate) async fn explain(&self, name: &str) -> Vec<Explanation> {
        let path = format!("/api/v1/explain?name={name}");
        soon(query_control(Path::new(&self.path("control.sock")), &path)).await.unwrap()
    }

    /// The container's line in the status.
    pub(crate) async fn held(&self, name: &str) -> ContainerStatus {
        let status = self.status().await;
        let found = status.containers.iter().find(|held| held.container == name).cloned();
        found.unwrap_or_else(|| panic!("no `{name}` in {status:#?}"))
    }

    /// What the runtime has on record.
    pub(crate) fn on_record(&self, id: &str) -> ContainerSnapshot {
        self.runtime.container(id).unwrap()
    }

    pub(crate) fn cpus(&self, id: &str) -> CpuSet {
        set(&self.on_record(id).cpus)
    }

    /// Containers that are there and have not ended.
    pub(crate) fn live(&self) -> Vec<ContainerSnapshot> {
        let is_live = |it: &ContainerSnapshot| {
            matches!(it.state, ContainerState::Created | ContainerState::Running)
        };
        self.runtime.containers().into_iter().filter(is_live).collect()
    }

    /// Polls the status until it is so.
    pub(crate) async fn wait_until(&self, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
        let deadline = Instant::now() + STUCK;
        loop {
            let status = self.status().await;
            if is_so(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "not so: {what}\n{status:#?}\n{:#?}", self.live());
            tokio::time::sleep(POLL).await;
        }
    }

    /// Ledger and runtime agree about every live container, and none is on a CPU that another one owns.
    pub(crate) async fn wait_until_in_line(&self) -> Status {
        self.wait_until("ledger and runtime agree", |status| self.disagreement(status).is_none())
            .await
    }

    pub(crate) async fn check_in_line(&self) -> Status {
        let status = self.status().await;
        assert_eq!(self.disagreement(&status), None);
        status
    }

    /// It was to end before it was started, so the runtime goes on listing it, and the daemon knows it no more, if it has heard of that.
    pub(crate) fn may_be_forgotten(&self, container: &ContainerSnapshot) -> bool {
        let to_end = self.to_end.lock().unwrap();
        container.state == ContainerState::Created
            && [&container.id, &container.pod_id].iter().any(|id| to_end.contains(*id))
    }

    pub(crate) fn disagreement(&self, status: &Status) -> Option<String> {
        let mut live = self.live();
        let is_held = |id: &String| status.containers.iter().any(|it| it.id.as_ref() == Some(id));
        live.retain(|it| is_held(&it.id) || !self.may_be_forgotten(it));
        if live.len() != status.containers.len() {
            return Some(format!("{} live, {} held", live.len(), status.containers.len()));
        }
        for held in &status.containers {
            let Some(real) = live.iter().find(|real| Some(&real.id) == held.id.as_ref()) else {
                return Some(format!("{} is not live", held.full_name()));
            };
            if set(&real.cpus) != set(&held.cpus) {
                let name = held.full_name();
                return Some(format!("{name} runs on {}, holds {}", real.cpus, held.cpus));
            }
            let own = set(&held.exclusive);
            // Others of its pod may have them together with it.
            let is_of_pod = |id: &String| {
                let mut with_it = status.containers.iter();
                with_it.any(|it| it.id.as_ref() == Some(id) && set(&it.exclusive_of_pod) == own)
            };
            let intruder = live.iter().find(|other| {
                other.id != real.id && set(&other.cpus).intersects(&own) && !is_of_pod(&other.id)
            });
            if let Some(other) = intruder {
                return Some(format!("{} is on CPUs of {}", other.name, held.full_name()));
            }
        }
        None
    }

    /// A Guaranteed pod with one container of the same name.
    pub(crate) async fn guaranteed(&mut self, name: &str, milli: u64) -> (RunningPod, String) {
        let container = ContainerSpec::guaranteed(name, milli, Bytes::gib(1));
        let pod = PodSpec::new(name, QosClass::Guaranteed);
        soon(self.kubelet.launch(&pod, &container)).await.unwrap()
    }

    /// A Burstable pod with one container of the same name.
    pub(crate) async fn burstable(&mut self, name: &str, milli: u64) -> (RunningPod, String) {
        let container = ContainerSpec::burstable(name, milli);
        let pod = PodSpec::new(name, QosClass::Burstable);
        soon(self.kubelet.launch(&pod, &container)).await.unwrap()
    }

    /// A container as it could come from a client that is not kubelet.
    pub(crate) async fn create_raw(
        &self,
        name: &str,
        cgroup_parent: &str,
        resources: v1::LinuxContainerResources,
    ) -> Result<String, tonic::Status> {
        let mut client = self.raw();
        let config = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("uid-{name}"),
                namespace: "default".to_owned(),
                attempt: 0,
            }),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: cgroup_parent.to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let run = v1::RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
        let pod_sandbox_id = client.run_pod_sandbox(run).await?.into_inner().pod_sandbox_id;
        let create = v1::CreateContainerRequest {
            pod_sandbox_id,
            config: Some(v1::ContainerConfig {
                metadata: Some(v1::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
                linux: Some(v1::LinuxContainerConfig {
                    resources: Some(resources),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            sandbox_config: Some(config),
        };
        Ok(client.create_container(create).await?.into_inner().container_id)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.end_process();
    }
}

/// Waits until a process listens there.
pub(crate) async fn wait_for_socket(path: &Path) {
    soon(async {
        while UnixStream::connect(path).await.is_err() {
            tokio::time::sleep(POLL).await;
        }
    })
    .await;
}

/// The predecessor has not let go yet.
fn is_held(error: &StartError) -> bool {
    match error {
        StartError::Journal(error) => matches!(error, JournalError::Locked { .. }),
        StartError::Listen { source, .. } => source.kind() == std::io::ErrorKind::AddrInUse,
        StartError::Pools(_)
        | StartError::Root { .. }
        | StartError::KubeletAtProxy { .. }
        | StartError::Forwarder(_) => false,
    }
}

/// The files that a kernel shows of such a machine. An offline CPU has no topology and no caches.
fn write_machine(root: &Path, machine: &Snapshot) {
    let dir = root.join("sys/devices/system");
    let write = |file: String, text: Option<String>| {
        let path = dir.join(file);
        let Some(text) = text else { return };
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    let list = |set: &Option<CpuSet>| set.as_ref().map(ToString::to_string);
    for cpu in &machine.cpus {
        let path = format!("cpu/cpu{}", cpu.id);
        if cpu.online == Some(false) {
            for part in ["topology", "cache"] {
                let _was_offline = fs::remove_dir_all(dir.join(&path).join(part));
            }
        }
        write(format!("{path}/online"), cpu.online.map(|is_on| u8::from(is_on).to_string()));
        let number = |id: Option<u32>| id.map(|id| id.to_string());
        let topology = format!("{path}/topology");
        write(format!("{topology}/physical_package_id"), number(cpu.package_id.map(|id| id.0)));
        write(format!("{topology}/die_id"), number(cpu.die_id.map(|id| id.0)));
        write(format!("{topology}/core_id"), number(cpu.core_id.map(|id| id.0)));
        write(format!("{topology}/core_cpus_list"), list(&cpu.thread_siblings));
    }
    for node in &machine.nodes {
        let path = format!("node/node{}", node.id);
        write(format!("{path}/cpulist"), list(&node.cpus));
        let kib = node.mem_total.map(|bytes| bytes.0 / 1024);
        let meminfo = kib.map(|kib| format!("Node {} MemTotal: {kib} kB", node.id));
        write(format!("{path}/meminfo"), meminfo);
        let distances: Vec<String> = node.distances.iter().map(ToString::to_string).collect();
        write(format!("{path}/distance"), Some(distances.join(" ")));
    }
    write("node/online".to_owned(), machine.online_nodes.as_ref().map(ToString::to_string));
    write("cpu/present".to_owned(), list(&machine.present));
    write("cpu/isolated".to_owned(), list(&machine.isolated));
    write("cpu/online".to_owned(), list(&machine.online));
}

pub(crate) fn kubelet(socket: PathBuf) -> Kubelet {
    Kubelet::new(socket, "test/app:1", &[], "")
}
