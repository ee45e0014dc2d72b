//! The ways from a client to a runtime: directly, through bayplan, through the proxy in Go.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use bayplan_cri::kubelet::{ContainerSpec, Kubelet, PodSpec};
use bayplan_host::write_snapshot;
use bayplan_tests::daemon::ENVIRONMENT;
use bayplan_topology::parse_machine;
use bayplan_types::{Bytes, QosClass};
use tempfile::TempDir;

use crate::process::Process;

/// The runtime, and bayplan where no other program is named.
pub(crate) const UNDER_BENCH: &str = env!("CARGO_BIN_EXE_bayplan-under-bench");
const MACHINE: &str = "xeon-8480";

pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) socket: PathBuf,
    /// Its runtime is that of the direct way.
    pub(crate) shares_runtime: bool,
}

impl Way {
    pub(crate) fn kubelet(&self) -> Kubelet {
        Kubelet::new(self.socket.clone(), "busybox", &["sleep", "1000000"], "")
    }
}

pub(crate) struct Ways {
    pub(crate) direct: Way,
    pub(crate) bayplan: Way,
    pub(crate) go: Option<Way>,
    pub(crate) bayplan_process: Process,
    pub(crate) go_process: Option<Process>,
    /// From the start of bayplan's process to the answer to its first call.
    pub(crate) start_ms: f64,
    config: PathBuf,
    _runtimes: [Process; 2],
    _dir: TempDir,
}

impl Ways {
    /// With the proxy in Go, where there is one.
    pub(crate) async fn start(program: &Path, go_proxy: Option<&Path>) -> Ways {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let way =
            |name, socket: &str, shares_runtime| Way { name, socket: path(socket), shares_runtime };
        let config = write_config(dir.path());
        let runtimes = [
            runtime(&path("direct.sock"), None).await,
            runtime(&path("runtime.sock"), Some(&path("host"))).await,
        ];
        let bayplan = way("bayplan", "bayplan.sock", false);
        let (bayplan_process, start_ms) = launch(program, &config, &bayplan).await;
        let (mut go, mut go_process) = (None, None);
        if let Some(binary) = go_proxy {
            let way = way("Go", "go.sock", true);
            let mut command = Command::new(binary);
            command.arg(&way.socket).arg(path("direct.sock"));
            go_process = Some(Process::start(&mut command, &way.socket).await);
            go = Some(way);
        }
        Ways {
            direct: way("direct", "direct.sock", false),
            bayplan,
            go,
            bayplan_process,
            go_process,
            start_ms,
            config,
            _runtimes: runtimes,
            _dir: dir,
        }
    }

    /// Ends bayplan and starts it again; milliseconds until its first call is answered.
    pub(crate) async fn restart(&mut self, program: &Path) -> f64 {
        self.bayplan_process.end();
        let (process, took) = launch(program, &self.config, &self.bayplan).await;
        self.bayplan_process = process;
        took
    }

    /// The direct one first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Way> {
        [&self.direct, &self.bayplan].into_iter().chain(&self.go)
    }

    /// The process between client and runtime.
    pub(crate) fn process(&self, way: &Way) -> Option<&Process> {
        match way.name {
            "direct" => None,
            "bayplan" => Some(&self.bayplan_process),
            _ => self.go_process.as_ref(),
        }
    }
}

/// Starts bayplan; milliseconds until its first call is answered.
async fn launch(program: &Path, config: &Path, way: &Way) -> (Process, f64) {
    let mut command = Command::new(program);
    command.args(["run", "--config"]).arg(config).env("BAYPLAN_LOG", "error");
    command.envs(ENVIRONMENT);
    let started = Instant::now();
    let process = Process::start(&mut command, &way.socket).await;
    way.kubelet().version().await.unwrap();
    (process, started.elapsed().as_secs_f64() * 1000.0)
}

/// With cgroups below `root`.
async fn runtime(socket: &Path, root: Option<&Path>) -> Process {
    let mut command = Command::new(UNDER_BENCH);
    command.arg("runtime").arg(socket).args(root);
    Process::start(&mut command, socket).await
}

fn write_config(dir: &Path) -> PathBuf {
    let host = dir.join("host");
    write_snapshot(&parse_machine(MACHINE).unwrap()).write_to(&host).unwrap();
    let (config, dir) = (dir.join("bayplan.yaml"), dir.display());
    let text = format!(
        "socket: {dir}/bayplan.sock\nruntimeSocket: {dir}/runtime.sock\ncontrolSocket: {dir}/control.sock\n\
         stateDir: {dir}/state\nmetricsAddress: 127.0.0.1:0\nhostRoot: {dir}/host\n"
    );
    fs::write(&config, text).unwrap();
    config
}

/// Pods with one container each; every tenth has a CPU of its own.
pub(crate) async fn populate(way: &Way, numbers: Range<usize>) {
    let mut kubelet = way.kubelet();
    for number in numbers {
        let name = format!("there-{number}");
        let (qos, container) = match number % 10 {
            0 => (QosClass::Guaranteed, ContainerSpec::guaranteed("main", 1000, Bytes::gib(1))),
            _ => (QosClass::Burstable, ContainerSpec::burstable("main", 100)),
        };
        kubelet.launch(&PodSpec::new(&name, qos), &container).await.unwrap();
    }
}
