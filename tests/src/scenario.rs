//! What must hold with a real runtime and a real kernel, in one story: exclusive CPUs are disjoint, the shared rest shrinks and
//! grows, killing the daemon between create and start moves nobody and leaks nothing, and nobody stays on a CPU that goes offline.
//!
//! Everything is checked against three witnesses: the kernel (`Cpus_allowed_list` and `Mems_allowed_list` of the container's process),
//! the runtime's own record, and bayplan's status.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use bayplan_cri::kubelet::{ContainerSpec, Kubelet, PodSpec, RunningPod};
use bayplan_cri::upstream::{ContainerDetails, Upstream};
use bayplan_cri::v1;
use bayplan_daemon::query_control;
use bayplan_daemon::status::Status;
use bayplan_host::read_process_pinning;
use bayplan_types::{Bytes, CpuSet, MilliCpu, QosClass};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::containerd::Containerd;
use crate::image::IMAGE;
use crate::process::{Process, wait_for};

/// Generous: the scenario also runs in a virtual machine without hardware virtualisation.
const LIMIT: Duration = Duration::from_secs(60);

/// Whose CPUs the scenario runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Others need them.
    Shared,
    /// A virtual machine made for the scenario, which may switch CPUs off.
    Own,
}

/// Plays the scenario with `owners` Guaranteed containers of one CPU each and one Burstable. `bayplan` is the daemon's binary.
///
/// # Errors
/// The first thing that was not as it should be.
pub fn run(bayplan: &Path, owners: usize, host: Host) -> anyhow::Result<()> {
    let mut node = Node::start(bayplan)?;
    let played = play(&mut node, owners, host);
    let told = played
        .with_context(|| format!("{}\n{}", node.daemon.last_words(), node.containerd.last_words()));
    // Nothing of ours may stay on the machine, whatever came of the scenario.
    let cleaned = node.clean();
    told?;
    cleaned
}

struct Node {
    dir: TempDir,
    bayplan: PathBuf,
    containerd: Containerd,
    daemon: Process,
    tokio: Runtime,
    kubelet: Kubelet,
    runtime: Upstream,
    pods: Vec<RunningPod>,
    had_kubepods: bool,
}

/// A container, and where the kernel and the runtime have it.
struct Placed {
    id: String,
    pid: u32,
    cpus: CpuSet,
}

impl Node {
    fn start(bayplan: &Path) -> anyhow::Result<Node> {
        let dir = TempDir::with_prefix("bayplan-scenario-")?;
        let had_kubepods = has_kubepods()?;
        let containerd = Containerd::start(dir.path())?;
        let tokio = Runtime::new()?;
        let _entered = tokio.enter();
        let socket = dir.path().join("bayplan.sock");
        let logs = dir.path().join("logs").display().to_string();
        let kubelet = Kubelet::new(socket, IMAGE, &["/bin/busybox", "sleep", "1000000"], &logs);
        let runtime = Upstream::new(containerd.socket().to_owned(), LIMIT);
        let config = format!(
            "socket: {0}/bayplan.sock\nruntimeSocket: {1}\ncontrolSocket: {0}/control.sock\nstateDir: {0}/bayplan\n\
             metricsAddress: 127.0.0.1:0\ndecisionTimeout: 30s\nruntimeTimeout: 30s\nlog: debug,h2=info,hyper_util=info\n",
            dir.path().display(),
            containerd.socket().display(),
        );
        std::fs::write(dir.path().join("bayplan.yaml"), config)?;
        let daemon = start_daemon(bayplan, dir.path())?;
        drop(_entered);
        let bayplan = bayplan.to_owned();
        let pods = Vec::new();
        let mut node =
            Node { dir, bayplan, containerd, daemon, tokio, kubelet, runtime, pods, had_kubepods };
        node.wait_until_serving()?;
        Ok(node)
    }

    fn wait_until_serving(&mut self) -> anyhow::Result<()> {
        let proxied = Upstream::new(self.dir.path().join("bayplan.sock"), LIMIT);
        wait_for("the daemon", LIMIT, || Ok(self.tokio.block_on(proxied.version()).ok()))
            .with_context(|| self.daemon.last_words())?;
        Ok(())
    }

    fn restart_after_kill(&mut self) -> anyhow::Result<()> {
        self.daemon.kill()?;
        self.daemon = start_daemon(&self.bayplan, self.dir.path())?;
        self.wait_until_serving()
    }

    fn create(&mut self, pod: &PodSpec, container: &ContainerSpec) -> anyhow::Result<String> {
        let status = |status: tonic::Status| anyhow!("{}: {}", container.name, status.message());
        let running = self.tokio.block_on(self.kubelet.run_pod(pod)).map_err(status)?;
        self.pods.push(running.clone());
        let created = self.kubelet.create(&running, container, 0);
        self.tokio.block_on(created).map_err(status)
    }

    fn begin(&mut self, id: &str) -> anyhow::Result<Placed> {
        let started = self.tokio.block_on(self.kubelet.start(id));
        started.map_err(|status| anyhow!("start: {}", status.message()))?;
        self.look(id)
    }

    fn launch(&mut self, pod: &PodSpec, container: &ContainerSpec) -> anyhow::Result<Placed> {
        let id = self.create(pod, container)?;
        self.begin(&id)
    }

    /// The kernel's and the runtime's view of a running container, which must agree.
    fn look(&self, id: &str) -> anyhow::Result<Placed> {
        let placed = wait_for("kernel and runtime to agree", LIMIT, || self.glance(id));
        let placed = placed.with_context(|| format!("{:?}", self.details(id)))?;
        let told = self.details(id)?.mems;
        let mems = read_process_pinning(Path::new("/"), placed.pid)?.map(|(_, mems)| mems);
        ensure!(told == mems, "mems: runtime says {told:?}, kernel {mems:?}");
        Ok(placed)
    }

    /// `None` while kernel and runtime do not agree.
    fn glance(&self, id: &str) -> anyhow::Result<Option<Placed>> {
        let details = self.details(id)?;
        let pid = details.pid.context("a running container has a process")?;
        let told = details.cpus.context("the runtime was told a CPU set")?;
        let cpus = allowed_by_kernel(pid)?.filter(|cpus| *cpus == told);
        Ok(cpus.map(|cpus| Placed { id: id.to_owned(), pid, cpus }))
    }

    fn details(&self, id: &str) -> anyhow::Result<ContainerDetails> {
        Ok(self.tokio.block_on(self.runtime.container_details(id))?)
    }

    fn status(&self) -> anyhow::Result<Status> {
        let socket = self.dir.path().join("control.sock");
        Ok(self.tokio.block_on(query_control(&socket, "/v1/status"))?)
    }

    fn end_pods(&mut self) -> anyhow::Result<()> {
        for pod in std::mem::take(&mut self.pods) {
            let ended = self.tokio.block_on(self.kubelet.end_pod(&pod));
            ended.map_err(|status| anyhow!("end pod: {}", status.message()))?;
        }
        Ok(())
    }

    /// Ends what still runs, past the daemon in case that is what failed, and takes our cgroups away.
    fn clean(&mut self) -> anyhow::Result<()> {
        let mut client = self.runtime.runtime_client();
        let ended = self.tokio.block_on(async {
            for pod in self.runtime.list_pods().await? {
                let stop = v1::StopPodSandboxRequest { pod_sandbox_id: pod.id.clone() };
                client.stop_pod_sandbox(stop).await?;
                let remove = v1::RemovePodSandboxRequest { pod_sandbox_id: pod.id };
                client.remove_pod_sandbox(remove).await?;
            }
            anyhow::Ok(())
        });
        let stopped = self.daemon.terminate();
        self.remove_cgroups()?;
        ended?;
        let code = stopped?;
        ensure!(code == 0, "SIGTERM: exit code {code}");
        Ok(())
    }

    /// Those of our pods, and those above them if nobody had made them before us.
    fn remove_cgroups(&self) -> anyhow::Result<()> {
        let mut find = "find /sys/fs/cgroup -depth -type d -path '*poddefault-scenario-*' \
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

/// A kubelet of this machine has cgroups of its own, which must stay.
fn has_kubepods() -> anyhow::Result<bool> {
    let find = ["/sys/fs/cgroup", "-type", "d", "-name", "kubepods"];
    Ok(!Command::new("find").args(find).output()?.stdout.is_empty())
}

fn start_daemon(bayplan: &Path, dir: &Path) -> anyhow::Result<Process> {
    let mut command = Command::new(bayplan);
    command.args(["run", "--config"]).arg(dir.join("bayplan.yaml"));
    Process::start(&mut command, &dir.join("bayplan.log"))
}

fn play(node: &mut Node, owners: usize, host: Host) -> anyhow::Result<()> {
    let pod = |name: String, qos| PodSpec::new(&format!("scenario-{name}"), qos);
    let one_cpu = ContainerSpec::guaranteed("app", 1000, Bytes(64 << 20));
    let all = bayplan_daemon::derive_machine(Path::new("/"))?.cpus().clone();

    println!("{owners} Guaranteed containers with one CPU each, and a Burstable");
    let mut owned: Vec<Placed> = Vec::new();
    for index in 0..owners {
        let placed = node.launch(&pod(format!("owner{index}"), QosClass::Guaranteed), &one_cpu)?;
        ensure!(placed.cpus.len() == 1, "owner {index} runs on {}", placed.cpus);
        ensure!(owned.iter().all(|other| other.cpus.is_disjoint(&placed.cpus)), "sets overlap");
        owned.push(placed);
    }
    // Its limit is all that is left, so that it shares the whole machine and feels every change.
    let left = u64::try_from(all.len() - owners)? * 1000;
    let noisy =
        ContainerSpec { cpu_limit: Some(MilliCpu(left)), ..ContainerSpec::burstable("app", 250) };
    let noisy = node.launch(&pod("noisy".into(), QosClass::Burstable), &noisy)?;
    let mut exclusive = CpuSet::new();
    owned.iter().for_each(|placed| exclusive.union_with(&placed.cpus));
    ensure!(noisy.cpus.is_disjoint(&exclusive), "{} is shared and exclusive", noisy.cpus);
    let shared = shared_around(&node.status()?, &noisy.id)?;
    ensure!(noisy.cpus == shared, "shared on {}, status says {shared}", noisy.cpus);
    ensure!(noisy.cpus == all.difference(&exclusive), "shared {}, not all the rest", noisy.cpus);
    println!("  exclusive {exclusive} of {all}, shared {}", noisy.cpus);

    println!("one stops, and the shared set grows");
    let leaver = owned.remove(0);
    let stopped = node.tokio.block_on(node.kubelet.stop(&leaver.id));
    stopped.map_err(|status| anyhow!("stop: {}", status.message()))?;
    let grown = wait_for("the shared set to grow", LIMIT, || {
        let now = allowed_by_kernel(noisy.pid)?;
        Ok(now.filter(|now| noisy.cpus.is_subset(now) && *now != noisy.cpus))
    })?;
    ensure!(leaver.cpus.is_subset(&grown), "{} came back as {grown}", leaver.cpus);
    println!("  shared {} -> {grown}", noisy.cpus);

    println!("the daemon is killed between create and start, and started again");
    let late = node.create(&pod("late".into(), QosClass::Guaranteed), &one_cpu)?;
    let told = exclusive_of(&node.status()?, &late)?;
    let before = allowed(&owned, &noisy)?;
    node.restart_after_kill()?;
    ensure!(before == allowed(&owned, &noisy)?, "somebody moved: before {before:?}");
    let late = node.begin(&late)?;
    ensure!(late.cpus == told, "late runs on {}, was promised {told}", late.cpus);
    ensure!(before == allowed(&owned, &noisy)?, "somebody moved: before {before:?}");
    println!("  nobody moved; the late one runs on {} as promised", late.cpus);
    owned.push(late);

    if host == Host::Own {
        play_hotplug(node, &owned, &noisy.id)?;
    }

    println!("everything ends, and nothing is left");
    node.end_pods()?;
    let status = node.status()?;
    ensure!(status.containers.is_empty() && status.cpus.exclusive.is_empty(), "left: {status:?}");
    ensure!(status.cpus.shared == all.to_string(), "shared are {}", status.cpus.shared);
    Ok(())
}

fn play_hotplug(node: &Node, owned: &[Placed], noisy: &str) -> anyhow::Result<()> {
    println!("the CPU of one goes offline and returns");
    // x86 cannot switch off CPU 0.
    let zero: CpuSet = "0".parse()?;
    let (index, victim) = owned
        .iter()
        .enumerate()
        .find(|(_, placed)| placed.cpus != zero)
        .context("somebody owns a CPU that can be switched off")?;
    switch(&victim.cpus, false)?;
    let is_gone = |placed: &Placed| placed.cpus.is_disjoint(&victim.cpus);
    let moved =
        wait_for("the owner to move", LIMIT, || Ok(Some(node.look(&victim.id)?).filter(is_gone)))?;
    ensure!(moved.cpus.len() == 1, "the owner moved to {}", moved.cpus);
    let shared = wait_for("the sharer to let go", LIMIT, || {
        let now = node.glance(noisy)?;
        Ok(now.filter(|now| is_gone(now) && now.cpus.is_disjoint(&moved.cpus)))
    })?;
    println!("  {} went, the owner runs on {}, shared {}", victim.cpus, moved.cpus, shared.cpus);

    switch(&victim.cpus, true)?;
    let grown = wait_for("the shared set to grow", LIMIT, || {
        Ok(node.glance(noisy)?.filter(|now| victim.cpus.is_subset(&now.cpus)))
    })?;
    for (other, placed) in owned.iter().enumerate() {
        let due = if other == index { &moved.cpus } else { &placed.cpus };
        let now = node.look(&placed.id)?.cpus;
        ensure!(now == *due, "an owner on {due} moved to {now}");
        ensure!(now.is_disjoint(&grown.cpus), "{now} is shared and exclusive");
    }
    println!("  {} is back, shared {}", victim.cpus, grown.cpus);
    Ok(())
}

fn switch(cpus: &CpuSet, is_on: bool) -> anyhow::Result<()> {
    for cpu in cpus.iter() {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
        std::fs::write(&path, if is_on { "1" } else { "0" })
            .with_context(|| format!("cannot switch {path}"))?;
    }
    Ok(())
}

/// What the kernel allows everybody now.
fn allowed(owned: &[Placed], noisy: &Placed) -> anyhow::Result<Vec<Option<CpuSet>>> {
    let pids = owned.iter().map(|placed| placed.pid).chain([noisy.pid]);
    pids.map(allowed_by_kernel).collect()
}

/// `None`: there is no such process.
fn allowed_by_kernel(pid: u32) -> anyhow::Result<Option<CpuSet>> {
    Ok(read_process_pinning(Path::new("/"), pid)?.map(|(cpus, _)| cpus))
}

fn shared_around(status: &Status, id: &str) -> anyhow::Result<CpuSet> {
    let container = status.containers.iter().find(|it| it.id.as_deref() == Some(id));
    let pool = &container.context("the status has the container")?.pool;
    let pool = status.pools.iter().find(|it| it.name == *pool).context("and its pool")?;
    Ok(pool.shared_cpus.parse()?)
}

fn exclusive_of(status: &Status, id: &str) -> anyhow::Result<CpuSet> {
    let container = status.containers.iter().find(|it| it.id.as_deref() == Some(id));
    let cpus: CpuSet = container.context("the status has the container")?.exclusive.parse()?;
    ensure!(!cpus.is_empty(), "no exclusive CPU was promised");
    Ok(cpus)
}
