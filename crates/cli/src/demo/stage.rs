//! The pieces of the demo: runtime, daemon, client, and the map of which containers run where.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bayplan_cri::embedded::EmbeddedRuntime;
use bayplan_cri::kubelet::Kubelet;
use bayplan_daemon::config::Config;
use bayplan_daemon::{Daemon, Machine, query_control};
use bayplan_drawing::render_map;
use bayplan_node::status::{ContainerStatus, Explanation, Status};
use bayplan_topology::{Snapshot, Topology, derive};
use bayplan_types::{CpuId, CpuSet};
use tempfile::TempDir;
use tokio::net::UnixListener;

use crate::machine::named_machine;
use crate::text::{has_colour, paint};

/// Everything that runs during the demo.
pub(crate) struct Stage {
    dir: TempDir,
    snapshot: Snapshot,
    /// What places depend on.
    config: Config,
    topology: Topology,
    runtime: EmbeddedRuntime,
    daemon: Option<Daemon>,
    /// Speaks to the daemon as kubelet does.
    pub(crate) kubelet: Kubelet,
    /// Letters of the map, in the order in which containers appeared.
    letters: Vec<String>,
}

impl Stage {
    /// Starts the runtime and the daemon in a new temporary directory.
    ///
    /// # Errors
    /// The machine cannot be read, or is not one for the configuration.
    pub(crate) async fn build(machine: &str, config: Option<Config>) -> anyhow::Result<Stage> {
        let snapshot = named_machine(machine)?.snapshot;
        let topology = derive(&snapshot)?;
        let config = config.unwrap_or_else(|| {
            let first_core = topology.cores().first().cloned().unwrap_or_default();
            let is_large = topology.cores().len() > 2;
            let reserved_cpus = if is_large { first_core } else { CpuSet::new() };
            Config { reserved_cpus, ..Config::default() }
        });
        let dir =
            TempDir::with_prefix("bayplan-demo-").context("cannot make a temporary directory")?;
        let runtime = EmbeddedRuntime::new();
        let listener = UnixListener::bind(dir.path().join("runtime.sock"))?;
        let server = runtime.clone();
        tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
        let kubelet = Kubelet::new(dir.path().join("bayplan.sock"), "demo/app:1", &[], "");
        let mut stage = Stage {
            dir,
            snapshot,
            config,
            topology,
            runtime,
            daemon: None,
            kubelet,
            letters: Vec::new(),
        };
        stage.start_daemon().await?;
        Ok(stage)
    }

    async fn start_daemon(&mut self) -> anyhow::Result<()> {
        let dir = self.dir.path();
        let config = Config {
            socket: dir.join("bayplan.sock"),
            runtime_socket: dir.join("runtime.sock"),
            control_socket: dir.join("control.sock"),
            state_dir: dir.join("state"),
            metrics_address: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            ..self.config.clone()
        };
        let machine = Machine::of_snapshot(&self.snapshot)?;
        self.daemon = Some(Daemon::start(config, machine).await?);
        Ok(())
    }

    /// Stops the daemon and starts it again; the runtime and its containers go on.
    pub(crate) async fn restart_daemon(&mut self) -> anyhow::Result<()> {
        if let Some(daemon) = self.daemon.take() {
            daemon.stop().await;
        }
        self.start_daemon().await
    }

    /// Ends everything.
    pub(crate) async fn close(mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.stop().await;
        }
    }

    pub(crate) fn control_socket(&self) -> PathBuf {
        self.dir.path().join("control.sock")
    }

    pub(crate) fn metrics_address(&self) -> Option<SocketAddr> {
        self.daemon.as_ref().and_then(Daemon::metrics_address)
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Types of groups that a pod can name.
    pub(crate) fn groups(&self) -> Vec<String> {
        let types = self.config.groups.iter().filter(|it| it.members.by_annotation);
        types.map(|it| it.name.clone()).collect()
    }

    /// The CPU sets of all live containers as the runtime has them, by id.
    pub(crate) fn pinned(&self) -> Vec<(String, String)> {
        self.runtime.containers().into_iter().map(|it| (it.id, it.cpus)).collect()
    }

    pub(crate) async fn status(&self) -> anyhow::Result<Status> {
        Ok(query_control(&self.control_socket(), "/api/v1/status").await?)
    }

    pub(crate) async fn explain(&self, container: &str) -> anyhow::Result<Vec<Explanation>> {
        let path = format!("/api/v1/explain?name={container}");
        Ok(query_control(Path::new(&self.control_socket()), &path).await?)
    }

    /// The map, and below it one line per container.
    pub(crate) fn render(&mut self, status: &Status) -> String {
        for container in &status.containers {
            if !self.letters.contains(&container.container) {
                self.letters.push(container.container.clone());
            }
        }
        let sets = Sets::new(status);
        let has_colour = has_colour();
        let cell = |cpu: CpuId| {
            let owner = sets.owned.iter().find(|(_, cpus)| cpus.contains(cpu));
            let group = sets.groups.iter().find(|(_, cpus)| cpus.contains(cpu));
            match (owner, group) {
                (Some((name, _)), _) => self.letter(name, has_colour),
                (None, Some((name, _))) => initial(name).to_string(),
                _ if sets.reserved.contains(cpu) => paint("r", "90", has_colour),
                _ if sets.isolated.contains(cpu) => paint("i", "90", has_colour),
                _ => "\u{b7}".to_owned(),
            }
        };
        let mut text = render_map(&self.topology, &cell);
        for container in &status.containers {
            text.push_str(&self.legend(container, has_colour));
        }
        for group in &status.groups {
            text.push_str(&format!(
                "  {} group {:<10} has {} with {} members\n",
                initial(&group.name),
                group.name,
                group.cpus,
                group.members
            ));
        }
        text.push_str("  \u{b7} shared  r reserved\n");
        text
    }

    fn legend(&self, container: &ContainerStatus, has_colour: bool) -> String {
        let letter = match container.exclusive.is_empty() {
            true => " ".to_owned(),
            false => self.letter(&container.container, has_colour),
        };
        format!(
            "  {letter} {:<10} {:<11} {:<26} runs on {} in {}\n",
            container.container,
            container.qos.as_deref().unwrap_or("?"),
            container.asked.split(", ").next().unwrap_or_default(),
            container.cpus,
            container.pool,
        )
    }

    fn letter(&self, name: &str, has_colour: bool) -> String {
        let position = self.letters.iter().position(|known| known == name).unwrap_or(0);
        let letter = name.chars().next().unwrap_or('?').to_ascii_uppercase();
        let colour = 31 + position % 6;
        paint(&letter.to_string(), &colour.to_string(), has_colour)
    }
}

/// Of a group, on the map.
fn initial(group: &str) -> char {
    group.chars().next().unwrap_or('?').to_ascii_lowercase()
}

/// The texts of a status as sets.
struct Sets {
    owned: Vec<(String, CpuSet)>,
    groups: Vec<(String, CpuSet)>,
    reserved: CpuSet,
    isolated: CpuSet,
}

impl Sets {
    fn new(status: &Status) -> Sets {
        let set = |text: &str| text.parse().unwrap_or_default();
        let owned = status.containers.iter();
        Sets {
            owned: owned.map(|it| (it.container.clone(), set(&it.exclusive))).collect(),
            groups: status.groups.iter().map(|it| (it.name.clone(), set(&it.cpus))).collect(),
            reserved: set(&status.cpus.reserved),
            isolated: set(&status.cpus.isolated),
        }
    }
}
