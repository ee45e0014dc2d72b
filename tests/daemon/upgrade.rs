//! The daemon is a process that is started again on a socket that outlives it, as systemd does it, while kubelet goes on asking.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bayplan_cri::embedded::Fault;
use bayplan_cri::kubelet::{ContainerSpec, Kubelet, PodSpec, RunningPod};
use bayplan_cri::v1;
use bayplan_types::{Bytes, QosClass};
use nix::sys::signal::Signal;
use tokio::net::{UnixDatagram, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Status};

use crate::node::{DAEMON, MACHINE, Node, kubelet, soon};

/// Kubelet gives up on a connection that is not taken up for so long (`minConnectionTimeout` in its CRI client), and the call fails.
const PATIENCE: Duration = Duration::from_secs(5);
/// A program that does nothing takes less than this where others leave it a CPU.
const UNHURRIED: Duration = Duration::from_millis(100);

/// Kubelet does not ask again at once after an error, either.
const GIVEN_UP: Duration = Duration::from_millis(20);

/// Between two restarts, so that pods live through none or one of them.
const PAUSE: Duration = Duration::from_millis(300);

/// Kubelet's patience, as many times as this machine is slower now than one with a CPU for every process.
fn patience() -> Duration {
    let begun = Instant::now();
    let told = Command::new(DAEMON).arg("--version").output();
    assert!(told.is_ok_and(|it| it.status.success()));
    PATIENCE.mul_f64(begun.elapsed().div_duration_f64(UNHURRIED).max(1.0))
}

/// Lets the shell put its standard input, and its standard output if it is a socket, where systemd puts what it passes.
const PASS: &str =
    "exec 3<&0 </dev/null; [ -S /dev/stdout ] && exec 4<&1 >/dev/null; LISTEN_PID=$$ exec \"$@\"";

/// What systemd does for the daemon: it holds its sockets, hears from it, and starts it.
struct Supervised {
    node: Node,
    cri: UnixListener,
    control: Option<UnixListener>,
    ear: UnixDatagram,
}

impl Supervised {
    fn new() -> Supervised {
        let node = Node::without_daemon(MACHINE);
        Supervised {
            cri: UnixListener::bind(node.path("bayplan.sock")).unwrap(),
            control: None,
            ear: UnixDatagram::bind(node.path("notify")).unwrap(),
            node,
        }
    }

    async fn started() -> Supervised {
        let mut supervised = Supervised::new();
        supervised.start().await;
        supervised
    }

    /// Starts the daemon and comes back at once.
    fn spawn(&mut self, watchdog: Option<Duration>) {
        let (arguments, metrics) = self.node.daemon_arguments("");
        let pass = |socket: &UnixListener| Stdio::from(OwnedFd::from(socket.try_clone().unwrap()));
        let (count, names) = self.control.as_ref().map_or(("1", "cri"), |_| ("2", "cri:control"));
        let mut command = Command::new("sh");
        command.args(["-c", PASS, "sh", DAEMON]).args(arguments).env_remove("BAYPLAN_LOG");
        command.env("LISTEN_FDS", count).env("LISTEN_FDNAMES", names);
        command.env("NOTIFY_SOCKET", self.node.path("notify"));
        command.stdin(pass(&self.cri)).stdout(self.control.as_ref().map_or(Stdio::null(), pass));
        if let Some(limit) = watchdog {
            command.env("WATCHDOG_USEC", limit.as_micros().to_string());
        }
        self.node.adopt_daemon(command.spawn().unwrap(), metrics);
    }

    /// Starts the daemon and waits until it says that it serves.
    async fn start(&mut self) {
        self.spawn(None);
        self.hear("READY=1").await;
    }

    /// Waits for a message with this line.
    async fn hear(&self, line: &str) {
        while !soon(self.hear_any()).await.lines().any(|heard| heard == line) {}
    }

    async fn hear_any(&self) -> String {
        let mut message = [0; 4096];
        let length = self.ear.recv(&mut message).await.unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    }

    /// `systemctl restart`.
    async fn restart(&mut self) {
        self.node.signal_daemon(Signal::SIGTERM);
        self.hear("STOPPING=1").await;
        let status = self.node.daemon_ended().await;
        assert!(status.success(), "{status}");
        self.start().await;
    }

    /// `kill -9`, and what `Restart=always` does.
    async fn kill(&mut self) {
        self.node.kill_daemon();
        self.start().await;
    }

    /// Containers that stay, with exclusive CPUs, because others make room for those that come; gives their ids and sets.
    async fn populate(&mut self) -> Vec<(String, String, String)> {
        self.node.kubelet = kubelet(self.node.path("bayplan.sock"));
        let mut ids = Vec::new();
        ids.push(self.node.guaranteed("database", 4000).await.1);
        ids.push(self.node.guaranteed("inference", 2000).await.1);
        ids.into_iter().map(|id| self.record(id)).collect()
    }

    fn record(&self, id: String) -> (String, String, String) {
        let record = self.node.on_record(&id);
        (id, record.cpus, record.mems)
    }

    /// No container was moved, and all agree.
    async fn check_stayed(&self, before: &[(String, String, String)]) {
        self.node.wait_until_in_line().await;
        for record in before {
            assert_eq!(self.record(record.0.clone()), *record);
        }
    }
}

/// Starts and ends pods without a pause. Calls that fail are told, and the pod is given up for the next one.
struct Load {
    ended: Arc<AtomicBool>,
    worker: JoinHandle<Report>,
}

#[derive(Debug, Default)]
struct Report {
    pods: u32,
    failed: Vec<Status>,
    /// Of any pod's life, from its first call to its last.
    longest: Duration,
}

impl Load {
    /// `reconnects`: each pod on a connection of its own.
    fn start(supervised: &Supervised, name: &str, reconnects: bool) -> Load {
        let ended = Arc::new(AtomicBool::new(false));
        let (is_over, name) = (Arc::clone(&ended), name.to_owned());
        let socket = supervised.node.path("bayplan.sock");
        let worker = tokio::spawn(async move {
            let (mut client, mut report) = (kubelet(socket.clone()), Report::default());
            while !is_over.load(Ordering::Relaxed) {
                if reconnects {
                    client = kubelet(socket.clone());
                }
                let life = Life::new(&client, &format!("{name}-{}", report.pods));
                let begun = Instant::now();
                let lived = soon(life.live()).await;
                if let Err(status) = lived {
                    report.failed.push(status);
                    sleep(GIVEN_UP).await;
                }
                report.longest = report.longest.max(begun.elapsed());
                report.pods += 1;
            }
            report
        });
        Load { ended, worker }
    }

    async fn end(self) -> Report {
        self.ended.store(true, Ordering::Relaxed);
        soon(self.worker).await.unwrap()
    }
}

/// What a pod does in its life.
#[derive(Clone)]
struct Life {
    client: Kubelet,
    spec: PodSpec,
    container: ContainerSpec,
}

impl Life {
    fn new(client: &Kubelet, name: &str) -> Life {
        let spec = PodSpec::new(name, QosClass::Guaranteed);
        let container = ContainerSpec::guaranteed(name, 1000, Bytes::gib(1));
        Life { client: client.clone(), spec, container }
    }

    async fn run_pod(mut self) -> Result<RunningPod, Status> {
        self.client.run_pod(&self.spec).await
    }

    async fn create(mut self, pod: RunningPod) -> Result<String, Status> {
        self.client.create(&pod, &self.container, 0).await
    }

    async fn start(mut self, id: String) -> Result<(), Status> {
        self.client.start(&id).await
    }

    async fn stop(mut self, id: String) -> Result<(), Status> {
        self.client.stop(&id).await
    }

    async fn remove(mut self, id: String) -> Result<(), Status> {
        self.client.remove(&id).await
    }

    async fn end_pod(mut self, pod: RunningPod) -> Result<(), Status> {
        self.client.end_pod(&pod).await
    }

    async fn live(self) -> Result<(), Status> {
        let life = || self.clone();
        let pod = as_kubelet(|| life().run_pod()).await?;
        let lived = life().live_in(&pod).await;
        // A pod that is given up is ended all the same, or its CPUs would be missing to those that come.
        while lived.is_err() && life().end_pod(pod.clone()).await.is_err() {
            sleep(GIVEN_UP).await;
        }
        lived
    }

    async fn live_in(self, pod: &RunningPod) -> Result<(), Status> {
        let life = || self.clone();
        let id = as_kubelet(|| life().create(pod.clone())).await?;
        as_kubelet(|| life().start(id.clone())).await?;
        as_kubelet(|| life().stop(id.clone())).await?;
        as_kubelet(|| life().remove(id.clone())).await?;
        as_kubelet(|| life().end_pod(pod.clone())).await
    }
}

/// Kubelet's gRPC library makes a call again by itself that was about to go out on a connection when the server took leave of it
/// (GOAWAY without an error, of calls that it has not looked at). This client does not.
async fn as_kubelet<T, F: Future<Output = Result<T, Status>>>(
    call: impl Fn() -> F,
) -> Result<T, Status> {
    const LEAVE: &str = "(connection error received: not a result of an error)";
    match call().await {
        Err(status) if status.message().contains(LEAVE) => call().await,
        answer => answer,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_while_pods_start_fail_no_call_and_move_no_container() {
    let mut supervised = Supervised::started().await;
    let before = supervised.populate().await;
    let loads = [("same", false), ("other", false), ("new", true)]
        .map(|(name, reconnects)| Load::start(&supervised, name, reconnects));
    let mut limit = patience();
    for _ in 0..6 {
        supervised.restart().await;
        sleep(PAUSE).await;
        limit = limit.max(patience());
    }
    for load in loads {
        let report = load.end().await;
        assert!(report.failed.is_empty(), "{report:?}");
        assert!(report.pods >= 6 && report.longest < limit, "{limit:?}, {report:?}");
    }
    supervised.check_stayed(&before).await;
    assert_eq!(supervised.node.live().len(), 2);
}

/// The daemon went away in the middle; of an answer with a head that had come, tonic says that with another code than gRPC libraries do.
fn is_lost(status: &Status) -> bool {
    status.code() == Code::Unavailable || status.message().contains("error reading a body")
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_while_pods_start_fail_a_call_once_and_move_no_container() {
    const KILLS: usize = 5;
    let mut supervised = Supervised::started().await;
    let before = supervised.populate().await;
    let loads = [("same", false), ("new", true)]
        .map(|(name, reconnects)| Load::start(&supervised, name, reconnects));
    let mut limit = patience();
    for _ in 0..KILLS {
        supervised.kill().await;
        sleep(PAUSE).await;
        limit = limit.max(patience());
    }
    for load in loads {
        let report = load.end().await;
        assert!(report.failed.len() <= KILLS, "{report:?}");
        assert!(report.failed.iter().all(is_lost), "{report:?}");
        assert!(report.pods >= 5 && report.longest < limit, "{limit:?}, {report:?}");
    }
    supervised.check_stayed(&before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_takes_eight_seconds_to_end_ends_well_and_others_start_meanwhile() {
    let mut supervised = Supervised::started().await;
    let before = supervised.populate().await;
    let (_, id) = supervised.node.guaranteed("slow", 2000).await;
    supervised.node.runtime.inject("StopContainer", Fault::Delay(Duration::from_secs(8)));
    let (mut client, socket) =
        (supervised.node.kubelet.clone(), supervised.node.path("bayplan.sock"));
    let ending = tokio::spawn(async move { client.stop(&id).await });
    soon(supervised.node.runtime.called("StopContainer", 1)).await;
    supervised.node.signal_daemon(Signal::SIGTERM);
    supervised.hear("STOPPING=1").await;
    let (stopped, mut pods) = (Instant::now(), 0);
    // Well before it ends, because from then on no connection is accepted before the successor is there.
    while stopped.elapsed() < Duration::from_secs(4) {
        let begun = Instant::now();
        let pod = PodSpec::new(&format!("meanwhile-{pods}"), QosClass::Burstable);
        let container = ContainerSpec::burstable("meanwhile", 100);
        soon(kubelet(socket.clone()).launch(&pod, &container)).await.unwrap();
        assert!(begun.elapsed() < PATIENCE);
        pods += 1;
        sleep(Duration::from_secs(1)).await;
    }
    assert!(!ending.is_finished());
    soon(ending).await.unwrap().unwrap();
    assert!(supervised.node.daemon_ended().await.success());
    supervised.node.runtime.clear_faults();
    supervised.start().await;
    supervised.check_stayed(&before).await;
    assert_eq!(supervised.node.live().len(), 2 + pods);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_says_that_it_is_ready_when_it_serves_and_not_before() {
    let mut supervised = Supervised::new();
    supervised.control = Some(UnixListener::bind(supervised.node.control_socket()).unwrap());
    // The first sync waits for the runtime.
    supervised.node.stop_runtime().await;
    supervised.spawn(None);
    let mut client = supervised.node.raw();
    let mut call = tokio::spawn(async move { client.version(v1::VersionRequest::default()).await });
    let early = timeout(Duration::from_secs(2), async {
        tokio::select! {
            message = supervised.hear_any() => message,
            answer = &mut call => format!("{answer:?}"),
        }
    });
    assert!(early.await.is_err(), "said something without the runtime");
    supervised.node.start_runtime();
    supervised.hear("READY=1").await;
    // A call that has waited in the socket is served first of all.
    soon(call).await.unwrap().unwrap();
    assert_eq!(supervised.node.status().await.containers, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_that_were_passed_stay_and_sighup_ends_nothing() {
    let mut supervised = Supervised::new();
    supervised.control = Some(UnixListener::bind(supervised.node.control_socket()).unwrap());
    supervised.start().await;
    let sockets = [supervised.node.path("bayplan.sock"), supervised.node.control_socket()];
    let inodes = || {
        sockets
            .clone()
            .map(|path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap()))
    };
    let before = inodes();
    supervised.node.signal_daemon(Signal::SIGHUP);
    supervised.node.status().await;
    supervised.node.signal_daemon(Signal::SIGTERM);
    assert!(supervised.node.daemon_ended().await.success());
    assert_eq!(inodes(), before);
    for socket in &sockets {
        UnixStream::connect(socket).await.unwrap();
    }
    supervised.start().await;
    supervised.node.status().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_is_fed_until_the_daemon_is_frozen() {
    const LIMIT: Duration = Duration::from_secs(4);
    let mut supervised = Supervised::new();
    supervised.spawn(Some(LIMIT));
    supervised.hear("READY=1").await;
    supervised.hear("WATCHDOG=1").await;
    for _ in 0..2 {
        let begun = Instant::now();
        supervised.hear("WATCHDOG=1").await;
        assert!(begun.elapsed() < LIMIT);
    }
    supervised.node.signal_daemon(Signal::SIGSTOP);
    // What was sent before.
    while timeout(LIMIT, supervised.hear_any()).await.is_ok() {}
    supervised.node.signal_daemon(Signal::SIGCONT);
    supervised.hear("WATCHDOG=1").await;
}
