//! A node with a resctrl that refuses what the kernel's refuses, and containers with cgroups and processes that the test makes.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use bayplan_cri::kubelet::{CgroupDriver, ContainerSpec, PodSpec};
use bayplan_daemon::{FilePlanView, post_control, query_control};
use bayplan_host::fake_resctrl::FakeResctrl;
use bayplan_node::mode::{Mode, ModeReport};
use bayplan_types::QosClass;
use tokio::time::sleep;

use super::mount::ResctrlMount;
use super::process::Process;
use crate::node::{DAEMON, MACHINE, Node, kubelet, soon, wait_for_socket};
use crate::observing::{metrics, sum};

/// More for the configuration of every daemon here.
pub(super) const BASE: &str =
    "reservedCpus: 0,8\nsweepInterval: 100ms\nrebalance: {mode: 'off'}\nprobes: 'off'\n";

/// A node with such a resctrl. What is mounted goes first: until then the daemon may wait for it.
pub(super) struct Machine {
    pub(super) mount: ResctrlMount,
    pub(super) node: Node,
}

/// One that was created; the test is its runtime as far as cgroups and processes go.
pub(super) struct Container {
    pub(super) id: String,
    pub(super) group: PathBuf,
    pub(super) processes: Vec<Process>,
    pub(super) threads: Vec<u32>,
}

impl Container {
    /// As the kernel would list them.
    pub(super) fn list_threads(&self) {
        let lines: String = self.threads.iter().map(|id| format!("{id}\n")).collect();
        let new = self.group.join("cgroup.new");
        fs::write(&new, lines).unwrap();
        fs::rename(new, self.group.join("cgroup.threads")).unwrap();
    }
}

impl Machine {
    pub(super) fn new(model: FakeResctrl) -> Machine {
        let node = Node::without_daemon(MACHINE);
        let cgroups = node.host_root().join("sys/fs/cgroup");
        fs::create_dir_all(&cgroups).unwrap();
        fs::write(cgroups.join("cgroup.controllers"), "cpu memory\n").unwrap();
        Machine { mount: ResctrlMount::new(&node.host_root(), model), node }
    }

    pub(super) async fn start(model: FakeResctrl, config: &str) -> Machine {
        let mut machine = Machine::new(model);
        machine.start_daemon(config).await;
        machine
    }

    /// The daemon as a process that says what it does in a file.
    pub(super) async fn start_daemon(&mut self, config: &str) {
        self.configure_daemon(&format!("{BASE}{config}")).await;
    }

    pub(super) async fn configure_daemon(&mut self, config: &str) {
        let (arguments, metrics) = self.node.daemon_arguments(config);
        let log = File::options().create(true).append(true).open(self.node.path("log")).unwrap();
        let mut command = Command::new(DAEMON);
        command.args(arguments).env_remove("BAYPLAN_LOG").stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.node.adopt_daemon(command.spawn().unwrap(), metrics);
        let socket = self.node.path("bayplan.sock");
        self.node.kubelet = kubelet(socket.clone());
        wait_for_socket(&socket).await;
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.node.path("log")).unwrap()
    }

    /// As `bayplan plan`.
    pub(super) async fn plan(&self) -> FilePlanView {
        soon(query_control(&self.node.control_socket(), "/api/v1/plan")).await.unwrap()
    }

    /// Waits until nothing of resctrl is to be written any more.
    pub(super) async fn settled(&self) -> FilePlanView {
        let reached = async {
            loop {
                let plan = self.plan().await;
                if plan.groups.is_empty() && plan.writes.is_empty() && plan.moves.is_empty() {
                    return plan;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), reached)
            .await
            .unwrap_or_else(|_| panic!("it does not settle\n{}", self.log()))
    }

    /// Waits until the log has this.
    pub(super) async fn told(&self, text: &str) {
        let reached = async {
            while !self.log().contains(text) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let told = tokio::time::timeout(Duration::from_secs(60), reached).await;
        assert!(told.is_ok(), "not told: {text}\n{}", self.log());
    }

    /// A value of the metrics.
    pub(super) async fn count(&self, name: &str, label: &str) -> f64 {
        sum(&metrics(&self.node).await, name, &[label])
    }

    /// Something is not written or cannot be had, by the metrics.
    pub(super) async fn is_in_trouble(&self) -> bool {
        let text = metrics(&self.node).await;
        let states = ["state=\"failing\"", "state=\"lacking\""];
        states.iter().any(|state| sum(&text, "bayplan_files", &[state]) > 0.0)
    }

    /// All groups with what is in their schemata, as files say.
    pub(super) fn groups(&self) -> String {
        let dirs = fs::read_dir(self.mount.path("")).unwrap();
        let names = dirs.map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| self.is_group(name)).collect();
        names.push(String::new());
        names.sort_unstable();
        let groups = names.iter().map(|name| {
            let text = fs::read_to_string(self.mount.path(name).join("schemata")).unwrap();
            let lines: Vec<String> = text.lines().map(|line| line.replace(' ', "")).collect();
            format!("/{name} {}\n", lines.join(" "))
        });
        groups.collect()
    }

    pub(super) fn is_group(&self, name: &str) -> bool {
        self.mount.path(name).join("schemata").exists()
    }

    /// The group of each thread.
    pub(super) fn groups_of(&self, threads: &[u32]) -> Vec<Option<String>> {
        let model = self.mount.model();
        threads.iter().map(|id| model.group_of(*id)).collect()
    }

    /// A container of this class with so many processes of one thread each, which is not started yet.
    pub(super) async fn create(&mut self, name: &str, class: &str, processes: usize) -> Container {
        let (id, cgroup) = self.create_without_group(name, class).await;
        self.make_group(id, &cgroup, processes)
    }

    /// As [`Self::create`], before the runtime has made the group; that of the pod is there. Gives where it will be.
    pub(super) async fn create_without_group(
        &mut self,
        name: &str,
        class: &str,
    ) -> (String, String) {
        let mut pod = PodSpec::new(name, QosClass::Burstable);
        pod.annotations.push(("bayplan.dev/rdtclass".to_owned(), class.to_owned()));
        let parent = pod.cgroup_parent(CgroupDriver::Cgroupfs);
        fs::create_dir_all(self.node.host_root().join(format!("sys/fs/cgroup{parent}"))).unwrap();
        let pod = soon(self.node.kubelet.run_pod(&pod)).await.unwrap();
        let spec = ContainerSpec::burstable(name, 100);
        let id = soon(self.node.kubelet.create(&pod, &spec, 0)).await.unwrap();
        let cgroup = format!("sys/fs/cgroup{parent}/{id}");
        (id, cgroup)
    }

    pub(super) fn make_group(&self, id: String, cgroup: &str, processes: usize) -> Container {
        let group = self.node.host_root().join(cgroup);
        fs::create_dir_all(&group).unwrap();
        let processes: Vec<Process> = (0..processes).map(|_| Process::start()).collect();
        let threads: Vec<u32> = processes.iter().map(Process::id).collect();
        for id in &threads {
            self.mount.model().add_thread(*id, cgroup);
        }
        let container = Container { id, group, processes, threads };
        container.list_threads();
        for (file, text) in [
            ("cgroup.stat", "nr_descendants 0\n"),
            ("cpu.stat", "usage_usec 1\n"),
            ("cgroup.type", "domain\n"),
        ] {
            fs::write(container.group.join(file), text).unwrap();
        }
        container
    }

    /// From now on the daemon looks for its cgroup. Other runtimes make that while they create a container, the embedded one none at all; then a start waits for no look
    /// but that after the creation, so something else has to change.
    pub(super) async fn resize(&mut self, container: &Container) {
        let spec = ContainerSpec::burstable("larger", 200);
        soon(self.node.kubelet.resize(&container.id, &spec)).await.unwrap();
    }

    pub(super) async fn launch(&mut self, name: &str, class: &str) -> Container {
        let container = self.create(name, class, 1).await;
        self.resize(&container).await;
        soon(self.node.kubelet.start(&container.id)).await.unwrap();
        container
    }

    /// As `bayplan restore`.
    pub(super) async fn restore(&self) {
        let path = format!("/api/v1/mode?to={}", Mode::Restored.name());
        let socket = self.node.control_socket();
        let report: ModeReport = soon(post_control(&socket, &path, String::new())).await.unwrap();
        assert_eq!(report.files_not_written, [""; 0]);
    }
}
