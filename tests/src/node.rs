//! A node: containerd, the daemon as a process in front of it, and a client that speaks as kubelet does.
//! In: what a pod's author writes. Out: where the kernel and the runtime have its containers.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use bayplan_cri::kubelet::{CgroupDriver, ContainerSpec, Kubelet, PodSpec, RunningPod};
use bayplan_cri::upstream::{ContainerDetails, ContainerState, ListedContainer, Upstream};
use bayplan_cri::v1;
use bayplan_daemon::{RebalanceView, query_control};
use bayplan_host::read_process_pinning;
use bayplan_node::status::{ContainerStatus, Status as NodeStatus};
use bayplan_types::{CpuSet, NodeSet};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tonic::Status;

use crate::containerd::{Containerd, Programs};
use crate::daemon::Daemon;
use crate::image::IMAGE;
use crate::process::wait_for;

/// Generous: everything here also runs in a virtual machine without hardware virtualisation.
pub const LIMIT: Duration = Duration::from_secs(60);

/// What a container runs that is to do nothing.
pub const SLEEP: [&str; 3] = ["/bin/busybox", "sleep", "1000000"];

/// How the daemon hears of containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Kubelet's calls pass through it.
    Proxy,
    /// The runtime asks it; kubelet calls the runtime.
    Plugin,
}

/// A node under test.
#[derive(Debug)]
pub struct Node {
    way: Way,
    command: Vec<String>,
    driver: CgroupDriver,
    dir: TempDir,
    containerd: Containerd,
    daemon: Daemon,
    tokio: Runtime,
    kubelet: Kubelet,
    runtime: Upstream,
    pods: Vec<RunningPod>,
    had_kubepods: bool,
    /// Where the daemon is to register instead of the runtime's own socket.
    nri: Option<PathBuf>,
}

/// A container, and where the kernel and the runtime have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The runtime's id.
    pub id: String,
    /// Its first process.
    pub pid: u32,
    /// `Cpus_allowed_list` of that.
    pub cpus: CpuSet,
    /// `Mems_allowed_list` of that.
    pub mems: NodeSet,
}

/// A call of kubelet's that is under way.
#[derive(Debug)]
pub struct Asked<T>(JoinHandle<Result<T, Status>>);

impl<T> Asked<T> {
    /// There is an answer.
    pub fn is_answered(&self) -> bool {
        self.0.is_finished()
    }
}

impl Node {
    /// Starts containerd and the daemon. `bayplan` is the daemon's binary, `command` what containers run, `driver` makes their cgroups:
    /// where that is systemd, it also runs the daemon, by the units of the package.
    ///
    /// # Errors
    /// One of them does not come up.
    pub fn start(bayplan: &Path, command: &[&str], driver: CgroupDriver) -> anyhow::Result<Node> {
        Node::start_with(bayplan, command, driver, Way::Proxy, Programs::installed()?)
    }

    /// As [`Self::start`], with this containerd and this front end.
    ///
    /// # Errors
    /// One of them does not come up.
    pub fn start_with(
        bayplan: &Path,
        command: &[&str],
        driver: CgroupDriver,
        way: Way,
        programs: Programs,
    ) -> anyhow::Result<Node> {
        let prefix = "bayplan-node-";
        let (dir, daemon) = match driver {
            CgroupDriver::Cgroupfs => {
                let dir = TempDir::with_prefix(prefix)?;
                let daemon = Daemon::child(bayplan, dir.path());
                (dir, daemon)
            }
            CgroupDriver::Systemd => {
                // The unit has a /tmp of its own, in which there is no runtime.
                let dir = TempDir::with_prefix_in(prefix, "/run")?;
                let daemon = Daemon::unit(bayplan, dir.path())?;
                (dir, daemon)
            }
        };
        let had_kubepods = has_kubepods()?;
        let containerd = Containerd::start(dir.path(), driver, programs)?;
        let tokio = Runtime::new()?;
        let _entered = tokio.enter();
        let kubelet = kubelet(way, &daemon, &containerd, dir.path(), command, driver);
        let runtime = Upstream::new(containerd.socket().to_owned(), LIMIT);
        drop(_entered);
        let pods = Vec::new();
        let mut node = Node {
            way,
            command: command.iter().map(|it| (*it).to_owned()).collect(),
            driver,
            dir,
            containerd,
            daemon,
            tokio,
            kubelet,
            runtime,
            pods,
            had_kubepods,
            nri: None,
        };
        node.write_config("")?;
        node.start_again()?;
        Ok(node)
    }

    /// As new: no containers, and a daemon without memory. `config` is more for its configuration.
    ///
    /// # Errors
    /// Something cannot be removed, or the daemon does not end or does not come up.
    pub fn reset(&mut self, config: &str) -> anyhow::Result<()> {
        self.remove_pods()?;
        self.daemon.terminate()?;
        self.daemon.forget()?;
        self.write_config(config)?;
        self.start_again()
    }

    /// Stops the daemon in order and starts it with another configuration; its containers run on.
    ///
    /// # Errors
    /// It does not end or does not come up.
    pub fn reconfigure(&mut self, config: &str) -> anyhow::Result<()> {
        self.daemon.terminate()?;
        self.write_config(config)?;
        self.start_again()
    }

    /// With the next configuration that is written the daemon registers at this socket.
    pub fn take_nri_from(&mut self, socket: PathBuf) {
        self.nri = Some(socket);
    }

    /// Writes another configuration while the daemon runs on.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_config(&self, config: &str) -> anyhow::Result<()> {
        let front_end = match self.way {
            Way::Proxy => String::new(),
            Way::Plugin => {
                let socket = self.nri.clone().unwrap_or_else(|| self.containerd.nri_socket());
                format!("frontEnd: nri\nnri: {{socket: {}}}\n", socket.display())
            }
        };
        self.daemon.configure(self.containerd.socket(), &format!("{front_end}{config}"))
    }

    /// Stops the daemon in order and starts it with the other front end, and with more in its configuration; kubelet calls where that one wants it to.
    ///
    /// # Errors
    /// It does not end or does not come up.
    pub fn switch(&mut self, way: Way, config: &str) -> anyhow::Result<()> {
        self.daemon.terminate()?;
        self.way = way;
        self.write_config(config)?;
        let command: Vec<&str> = self.command.iter().map(String::as_str).collect();
        let entered = self.tokio.enter();
        let (daemon, containerd) = (&self.daemon, &self.containerd);
        let dir = self.dir.path();
        self.kubelet = kubelet(way, daemon, containerd, dir, &command, self.driver);
        drop(entered);
        self.start_again()
    }

    /// SIGKILL, and a new daemon.
    ///
    /// # Errors
    /// It does not come up.
    pub fn restart_after_kill(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        self.start_again()
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// There was nothing to kill.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.daemon.kill()
    }

    /// Until that process is gone.
    ///
    /// # Errors
    /// It does not die.
    pub fn await_death(&mut self, pid: u32) -> anyhow::Result<()> {
        self.daemon.await_death(pid)
    }

    /// A daemon after the last one has ended, without waiting until it serves.
    ///
    /// # Errors
    /// It does not start.
    pub fn launch_daemon(&mut self) -> anyhow::Result<()> {
        self.daemon.start()
    }

    /// A daemon after the last one has ended.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        self.daemon.start()?;
        self.wait_until_serving()
    }

    fn wait_until_serving(&mut self) -> anyhow::Result<()> {
        if self.way == Way::Plugin {
            return self.wait_until_registered();
        }
        let socket = self.daemon.socket.clone();
        // A call that fails costs far more than the attempt to connect.
        wait_for("the daemon's socket", LIMIT, || Ok(UnixStream::connect(&socket).ok()))
            .with_context(|| self.daemon.last_words())?;
        let proxied = Upstream::new(socket, LIMIT);
        wait_for("the daemon", LIMIT, || Ok(self.tokio.block_on(proxied.version()).ok()))
            .with_context(|| self.daemon.last_words())?;
        Ok(())
    }

    /// Until the runtime has registered the daemon as a plugin.
    ///
    /// # Errors
    /// It does not.
    pub fn wait_until_registered(&self) -> anyhow::Result<()> {
        wait_for("the registration", LIMIT, || {
            let status = self.status().ok().and_then(|it| it.front_end);
            Ok(status.filter(|it| it.is_registered))
        })
        .with_context(|| self.last_words())?;
        Ok(())
    }

    /// Runs the sandbox.
    ///
    /// # Errors
    /// What bayplan or the runtime answered.
    pub fn run_pod(&mut self, pod: &PodSpec) -> anyhow::Result<RunningPod> {
        let running = self.tokio.block_on(self.kubelet.run_pod(pod));
        let running =
            running.map_err(|status| anyhow!("run {}: {}", pod.name, status.message()))?;
        self.pods.push(running.clone());
        Ok(running)
    }

    /// Runs the sandbox and creates its container; gives the runtime's id.
    ///
    /// # Errors
    /// What bayplan or the runtime answered.
    pub fn create(&mut self, pod: &PodSpec, container: &ContainerSpec) -> anyhow::Result<String> {
        let running = self.run_pod(pod)?;
        let created = self.kubelet.create(&running, container, 0);
        let created = self.tokio.block_on(created);
        created.map_err(|status| anyhow!("{}: {}", container.name, status.message()))
    }

    /// Asks for a container in a sandbox; its id is the answer.
    pub fn ask_to_create(
        &self,
        pod: &RunningPod,
        container: &ContainerSpec,
        attempt: u32,
    ) -> Asked<String> {
        let (mut kubelet, pod, container) = (self.kubelet.clone(), pod.clone(), container.clone());
        Asked(self.tokio.spawn(async move { kubelet.create(&pod, &container, attempt).await }))
    }

    /// Asks for the start of a container that was created.
    pub fn ask_to_start(&self, id: &str) -> Asked<()> {
        let (mut kubelet, id) = (self.kubelet.clone(), id.to_owned());
        Asked(self.tokio.spawn(async move { kubelet.start(&id).await }))
    }

    /// Asks for other resources of a container.
    pub fn ask_to_resize(&self, id: &str, container: &ContainerSpec) -> Asked<()> {
        let (mut kubelet, id, container) = (self.kubelet.clone(), id.to_owned(), container.clone());
        Asked(self.tokio.spawn(async move { kubelet.resize(&id, &container).await }))
    }

    /// What was answered; waits for it.
    ///
    /// # Errors
    /// The call panicked.
    pub fn answer<T>(&self, asked: Asked<T>) -> anyhow::Result<Result<T, Status>> {
        Ok(self.tokio.block_on(asked.0)?)
    }

    /// SIGKILL to containerd; containers run on.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill_runtime(&mut self) -> anyhow::Result<()> {
        self.containerd.kill()
    }

    /// SIGTERM to containerd; containers run on.
    ///
    /// # Errors
    /// It does not end.
    pub fn end_runtime(&mut self) -> anyhow::Result<()> {
        self.containerd.terminate()
    }

    /// Where containerd takes plugins.
    pub fn nri_socket(&self) -> PathBuf {
        self.containerd.nri_socket()
    }

    /// Pid of containerd.
    pub fn runtime_pid(&self) -> u32 {
        self.containerd.pid()
    }

    /// Another containerd after a kill, with the memory of the one before.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start_runtime_again(&mut self) -> anyhow::Result<()> {
        self.containerd.start_again()?;
        // It answers before it knows its containers again, and refuses every call about them until then.
        wait_for("its containers", LIMIT, || {
            Ok(self.tokio.block_on(self.runtime.list_pods()).ok())
        })
        .with_context(|| self.containerd.last_words())?;
        Ok(())
    }

    /// Whether containerd hangs from now on, or goes on.
    ///
    /// # Errors
    /// It does not run.
    pub fn hang_runtime(&self, hangs: bool) -> anyhow::Result<()> {
        self.containerd.hang(hangs)
    }

    /// Starts a container that was created.
    ///
    /// # Errors
    /// It does not start, or kernel and runtime go on disagreeing about it.
    pub fn begin(&mut self, id: &str) -> anyhow::Result<Placed> {
        let started = self.tokio.block_on(self.kubelet.start(id));
        started.map_err(|status| anyhow!("start: {}", status.message()))?;
        self.look(id)
    }

    /// A pod with one container, started.
    ///
    /// # Errors
    /// As of [`Node::create`] and [`Node::begin`].
    pub fn launch(&mut self, pod: &PodSpec, container: &ContainerSpec) -> anyhow::Result<Placed> {
        let id = self.create(pod, container)?;
        self.begin(&id)
    }

    /// As kubelet resizes a container in place.
    ///
    /// # Errors
    /// What bayplan or the runtime answered.
    pub fn resize(&mut self, id: &str, container: &ContainerSpec) -> anyhow::Result<()> {
        let resized = self.tokio.block_on(self.kubelet.resize(id, container));
        resized.map_err(|status| anyhow!("{}: {}", container.name, status.message()))
    }

    /// Stops a container.
    ///
    /// # Errors
    /// What the runtime answered.
    pub fn stop(&mut self, id: &str) -> anyhow::Result<()> {
        let stopped = self.tokio.block_on(self.kubelet.stop(id));
        stopped.map_err(|status| anyhow!("stop: {}", status.message()))
    }

    /// The kernel's and the runtime's view of a running container, which must agree.
    ///
    /// # Errors
    /// They go on disagreeing.
    pub fn look(&self, id: &str) -> anyhow::Result<Placed> {
        let placed = wait_for("kernel and runtime to agree", LIMIT, || self.glance(id));
        let placed = placed.with_context(|| format!("{:?}", self.details(id)))?;
        let told = self.details(id)?.mems;
        ensure!(
            told.as_ref() == Some(&placed.mems),
            "mems: runtime says {told:?}, kernel {:?}",
            placed.mems
        );
        Ok(placed)
    }

    /// `None` while kernel and runtime do not agree about the CPUs.
    ///
    /// # Errors
    /// The container does not run, or its CPUs are not known.
    pub fn glance(&self, id: &str) -> anyhow::Result<Option<Placed>> {
        let told = self.details(id)?.cpus.context("the runtime was told a CPU set")?;
        Ok(self.seen(id)?.filter(|placed| placed.cpus == told))
    }

    /// Where the kernel lets a container run, whatever the runtime says; `None`: its process has just ended.
    ///
    /// # Errors
    /// The container does not run.
    pub fn seen(&self, id: &str) -> anyhow::Result<Option<Placed>> {
        let pid = self.details(id)?.pid.context("a running container has a process")?;
        let pinning = read_process_pinning(Path::new("/"), pid)?;
        Ok(pinning.map(|(cpus, mems)| Placed { id: id.to_owned(), pid, cpus, mems }))
    }

    /// What the runtime says of a container.
    ///
    /// # Errors
    /// It does not answer, or does not know it.
    pub fn details(&self, id: &str) -> anyhow::Result<ContainerDetails> {
        Ok(self.tokio.block_on(self.runtime.container_details(id))?)
    }

    /// What the daemon says.
    ///
    /// # Errors
    /// It does not answer.
    pub fn status(&self) -> anyhow::Result<NodeStatus> {
        Ok(self.tokio.block_on(query_control(&self.daemon.control, "/api/v1/status"))?)
    }

    /// What the rebalancer says.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn rebalance(&self) -> anyhow::Result<RebalanceView> {
        Ok(self.tokio.block_on(query_control(&self.daemon.control, "/api/v1/rebalance"))?)
    }

    /// What the probes have counted, as of `bayplan audit -o json`.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn audit(&self) -> anyhow::Result<serde_json::Value> {
        Ok(self.tokio.block_on(query_control(&self.daemon.control, "/api/v1/audit"))?)
    }

    /// The daemon's metrics, as Prometheus reads them.
    ///
    /// # Errors
    /// It does not answer.
    pub fn metrics(&self) -> anyhow::Result<String> {
        self.get("/metrics")
    }

    /// What the daemon answers at its control socket, with the head.
    ///
    /// # Errors
    /// It does not answer.
    pub fn get(&self, path: &str) -> anyhow::Result<String> {
        let mut socket = UnixStream::connect(&self.daemon.control)?;
        write!(socket, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        socket.read_to_string(&mut text)?;
        Ok(text)
    }

    /// How often the daemon has counted a failure of this kind since it was started.
    ///
    /// # Errors
    /// It does not answer.
    pub fn failures(&self, kind: &str) -> anyhow::Result<u64> {
        let metrics = self.metrics()?;
        let head = format!("bayplan_failures_total{{kind=\"{kind}\"}} ");
        let told = metrics.lines().find_map(|line| line.strip_prefix(&head));
        told.map_or(Ok(0), |count| count.parse().context(head))
    }

    /// The daemon's process.
    ///
    /// # Errors
    /// It does not run.
    pub fn daemon_pid(&self) -> anyhow::Result<u32> {
        self.daemon.pid()
    }

    /// Where kubelet connects.
    pub fn socket(&self) -> &Path {
        &self.daemon.socket
    }

    /// Where the daemon keeps what it remembers.
    pub fn state_dir(&self) -> &Path {
        &self.daemon.state
    }

    /// Where the node has its files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where programs ask the daemon.
    pub fn control(&self) -> &Path {
        &self.daemon.control
    }

    /// The daemon's log.
    pub fn log(&self) -> &Path {
        &self.daemon.log
    }

    /// What the daemon says of one container.
    ///
    /// # Errors
    /// It does not answer or does not know it.
    pub fn status_of(&self, id: &str) -> anyhow::Result<ContainerStatus> {
        let containers = self.status()?.containers;
        let found = containers.into_iter().find(|it| it.id.as_deref() == Some(id));
        found.with_context(|| format!("the status has no container {id}"))
    }

    /// The CPUs that the daemon gave to this container alone.
    ///
    /// # Errors
    /// There are none.
    pub fn exclusive_of(&self, id: &str) -> anyhow::Result<CpuSet> {
        let cpus: CpuSet = self.status_of(id)?.exclusive.parse()?;
        ensure!(!cpus.is_empty(), "no exclusive CPU was promised");
        Ok(cpus)
    }

    /// The shared CPUs of this container's pool, as the daemon says.
    ///
    /// # Errors
    /// It does not know the container or its pool.
    pub fn shared_around(&self, id: &str) -> anyhow::Result<CpuSet> {
        let pool = self.status_of(id)?.pool;
        let pools = self.status()?.pools;
        let pool = pools.into_iter().find(|it| it.name == pool).context("and its pool")?;
        Ok(pool.shared_cpus.parse()?)
    }

    /// Ends one pod in order.
    ///
    /// # Errors
    /// What the runtime answered.
    pub fn end_pod(&mut self, pod: &RunningPod) -> anyhow::Result<()> {
        self.pods.retain(|it| it.id != pod.id);
        let ended = self.tokio.block_on(self.kubelet.end_pod(pod));
        ended.map_err(|status| anyhow!("end pod: {}", status.message()))
    }

    /// Forgets a pod that could not be ended in order, as when the runtime died meanwhile; kubelet would try again.
    ///
    /// # Errors
    /// What the runtime answered at last.
    pub fn end_pod_at_last(&mut self, pod: &RunningPod) -> anyhow::Result<()> {
        let mut last = None;
        let ended = wait_for("the pod to end", LIMIT, || match self.end_pod(pod) {
            Ok(()) => Ok(Some(())),
            Err(why) => {
                last = Some(why);
                Ok(None)
            }
        });
        ended.map_err(|late| match last {
            Some(why) => why.context(late.to_string()),
            None => late,
        })
    }

    /// Containers that the runtime lists as created or running.
    ///
    /// # Errors
    /// It does not answer.
    pub fn alive(&self) -> anyhow::Result<Vec<ListedContainer>> {
        let listed = self.tokio.block_on(self.runtime.list_containers())?;
        Ok(listed.into_iter().filter(|it| it.state != ContainerState::Exited).collect())
    }

    /// Ends all pods in order.
    ///
    /// # Errors
    /// What the runtime answered.
    pub fn end_pods(&mut self) -> anyhow::Result<()> {
        self.pods.clone().iter().try_for_each(|pod| self.end_pod(pod))
    }

    /// The ends of the logs.
    pub fn last_words(&self) -> String {
        format!("{}\n{}", self.daemon.last_words(), self.containerd.last_words())
    }

    /// Copies the logs into a directory, under names that begin with `name`.
    ///
    /// # Errors
    /// They cannot be copied.
    pub fn keep_logs(&self, dir: &Path, name: &str) -> anyhow::Result<()> {
        for log in ["bayplan.log", "containerd.log"] {
            std::fs::copy(self.dir.path().join(log), dir.join(format!("{name}-{log}")))?;
        }
        Ok(())
    }

    /// Leaves nothing of ours on the machine, whatever came of `told`.
    ///
    /// # Errors
    /// That of `told`, with logs, or else that something is left.
    pub fn end(mut self, told: anyhow::Result<()>) -> anyhow::Result<()> {
        let told = told.with_context(|| self.last_words());
        let cleaned = self.clean();
        told?;
        cleaned
    }

    fn clean(&mut self) -> anyhow::Result<()> {
        let ended = self.remove_pods();
        let stopped = self.daemon.terminate();
        self.remove_cgroups()?;
        ended?;
        let code = stopped?;
        ensure!(code == 0, "SIGTERM: exit code {code}");
        Ok(())
    }

    /// Past the daemon, in case that is what failed.
    fn remove_pods(&mut self) -> anyhow::Result<()> {
        self.pods.clear();
        let mut client = self.runtime.runtime_client();
        self.tokio.block_on(async {
            for pod in self.runtime.list_pods().await? {
                let stop = v1::StopPodSandboxRequest { pod_sandbox_id: pod.id.clone() };
                client.stop_pod_sandbox(stop).await?;
                let remove = v1::RemovePodSandboxRequest { pod_sandbox_id: pod.id };
                client.remove_pod_sandbox(remove).await?;
            }
            anyhow::Ok(())
        })
    }

    /// Those of our pods in any namespace, and those above them if nothing had made them before us.
    fn remove_cgroups(&self) -> anyhow::Result<()> {
        let mut find = "find /sys/fs/cgroup -depth -type d -path '*pod*-scenario-*' \
                        -exec rmdir {} ';'"
            .to_owned();
        if !self.had_kubepods {
            find.push_str(
                "; find /sys/fs/cgroup -depth -type d -path '*/kubepods*' -exec rmdir {} ';'",
            );
        }
        Command::new("sh").args(["-c", &find]).output()?;
        Ok(())
    }
}

impl Placed {
    /// A file of its cgroup (version 2), without the line end.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn cgroup_file(&self, name: &str) -> anyhow::Result<String> {
        let path = self.cgroup_path(name)?;
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        Ok(text.trim().to_owned())
    }

    /// Writes one.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_cgroup_file(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.cgroup_path(name)?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {text} to {path}"))
    }

    /// Its cgroup (version 2).
    ///
    /// # Errors
    /// It has ended, or is in none.
    pub fn cgroup_dir(&self) -> anyhow::Result<PathBuf> {
        Ok(self.cgroup_path("")?.into())
    }

    fn cgroup_path(&self, name: &str) -> anyhow::Result<String> {
        let own = std::fs::read_to_string(format!("/proc/{}/cgroup", self.pid))?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::"));
        Ok(format!("/sys/fs/cgroup{}/{name}", own.context("no cgroup of version 2")?))
    }
}

/// A client that calls as kubelet does, where it has to with this front end.
fn kubelet(
    way: Way,
    daemon: &Daemon,
    containerd: &Containerd,
    dir: &Path,
    command: &[&str],
    driver: CgroupDriver,
) -> Kubelet {
    let socket = match way {
        Way::Proxy => daemon.socket.clone(),
        Way::Plugin => containerd.socket().to_owned(),
    };
    let logs = dir.join("logs").display().to_string();
    Kubelet::new(socket, IMAGE, command, &logs).with_driver(driver)
}

/// The CPUs on which the kernel lets a process run; `None`: there is no such process.
///
/// # Errors
/// The kernel's file cannot be read.
pub fn allowed_by_kernel(pid: u32) -> anyhow::Result<Option<CpuSet>> {
    Ok(read_process_pinning(Path::new("/"), pid)?.map(|(cpus, _)| cpus))
}

/// A kubelet of this machine has cgroups of its own, which must stay.
fn has_kubepods() -> anyhow::Result<bool> {
    let find = ["/sys/fs/cgroup", "-type", "d", "-name", "kubepods"];
    Ok(!Command::new("find").args(find).output()?.stdout.is_empty())
}
