//! A node with a map that is looked at: a synthetic machine, a runtime without processes, the daemon in this process, and a client that asks as
//! kubelet does. Everything lives in a temporary directory.

use std::net::SocketAddr;
use std::path::PathBuf;

use bayplan_cri::embedded::EmbeddedRuntime;
use bayplan_cri::kubelet::{ContainerSpec, Kubelet, PodSpec, RunningPod};
use bayplan_daemon::config::Config;
use bayplan_daemon::{Daemon, Machine};
use bayplan_topology::parse_machine;
use bayplan_types::{Bytes, QosClass};
use tempfile::TempDir;
use tokio::net::UnixListener;

/// A node with its daemon.
pub(crate) struct Node {
    dir: TempDir,
    daemon: Daemon,
    kubelet: Kubelet,
}

impl Node {
    /// On a machine of this line, with the first CPU reserved; `adjust` changes the rest of the configuration.
    pub(crate) async fn start(machine: &str, adjust: impl FnOnce(&mut Config)) -> Node {
        let dir = TempDir::with_prefix("bayplan-map-").unwrap();
        let listener = UnixListener::bind(dir.path().join("runtime.sock")).unwrap();
        let runtime = EmbeddedRuntime::new();
        tokio::spawn(async move { runtime.serve(listener, std::future::pending()).await });
        // No process of this host is one of the node's.
        let root = dir.path().join("host");
        std::fs::create_dir(&root).unwrap();
        let mut config = Config {
            socket: dir.path().join("bayplan.sock"),
            runtime_socket: dir.path().join("runtime.sock"),
            control_socket: dir.path().join("control.sock"),
            state_dir: dir.path().join("state"),
            host_root: root,
            metrics_address: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            reserved_cpus: "0".parse().unwrap(),
            ..Config::default()
        };
        adjust(&mut config);
        let machine = Machine::of_snapshot(&parse_machine(machine).unwrap()).unwrap();
        let daemon = Daemon::start(config, machine).await.unwrap();
        let kubelet = Kubelet::new(dir.path().join("bayplan.sock"), "demo/app:1", &[], "");
        Node { dir, daemon, kubelet }
    }

    /// Where root asks.
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.dir.path().join("control.sock")
    }

    /// Where the daemon looks for kernel files.
    pub(crate) fn host_root(&self) -> PathBuf {
        self.dir.path().join("host")
    }

    /// Stops the daemon, and removes what it has written.
    pub(crate) async fn stop(self) {
        self.daemon.stop().await;
        drop(self.dir);
    }

    /// Where metrics and the map are.
    pub(crate) fn address(&self) -> SocketAddr {
        self.daemon.metrics_address().unwrap()
    }

    /// A pod of one Guaranteed container with so many CPUs.
    pub(crate) async fn launch(&mut self, name: &str, cpus: u64) -> RunningPod {
        self.launch_with(name, cpus, &[]).await
    }

    /// The same with annotations.
    pub(crate) async fn launch_with(
        &mut self,
        name: &str,
        cpus: u64,
        annotations: &[(&str, &str)],
    ) -> RunningPod {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let annotations = annotations.iter().map(owned).collect();
        let pod = PodSpec { annotations, ..PodSpec::new(name, QosClass::Guaranteed) };
        let container = ContainerSpec::guaranteed("app", cpus * 1000, Bytes(64 << 20));
        self.kubelet.launch(&pod, &container).await.unwrap().0
    }

    /// A pod of one Burstable container.
    pub(crate) async fn launch_shared(&mut self, name: &str, milli: u64) -> RunningPod {
        let pod = PodSpec::new(name, QosClass::Burstable);
        self.kubelet.launch(&pod, &ContainerSpec::burstable("app", milli)).await.unwrap().0
    }

    /// Ends a pod.
    pub(crate) async fn end(&mut self, pod: &RunningPod) {
        self.kubelet.end_pod(pod).await.unwrap();
    }
}
