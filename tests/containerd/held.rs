//! What holds beside what was asked, with real containerd: a group around the pods that has fewer CPUs, and a runtime with an affinity of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{CgroupDriver, ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node, SLEEP};
use bayplan_tests::process::wait_for;
use bayplan_types::{Bytes, CpuSet, QosClass};
use nix::unistd::Pid;

/// The group around all pods, made before them; removed at the end.
struct Kubepods(PathBuf);

impl Kubepods {
    /// With these CPUs and every memory node, in the hierarchy that this machine has.
    fn with(cpus: &CpuSet) -> anyhow::Result<Kubepods> {
        let root = Path::new("/sys/fs/cgroup");
        let old = root.join("cpuset");
        let root = if old.exists() { old } else { root.to_owned() };
        if root.join("cgroup.subtree_control").exists() {
            fs::write(root.join("cgroup.subtree_control"), "+cpuset")?;
        }
        ensure!(
            !has_kubelet()?,
            "a kubelet runs on this machine, and its groups must not be removed"
        );
        remove_empty();
        let group = Kubepods(root.join("kubepods"));
        fs::create_dir(&group.0).context("kubepods is there already, with groups in use")?;
        let mems = fs::read_to_string("/sys/devices/system/node/online")?;
        fs::write(group.0.join("cpuset.mems"), mems.trim())?;
        fs::write(group.0.join("cpuset.cpus"), cpus.to_string())?;
        Ok(group)
    }
}

impl Drop for Kubepods {
    fn drop(&mut self) {
        remove_empty();
    }
}

/// Whether a process of this name runs.
fn has_kubelet() -> anyhow::Result<bool> {
    let names = fs::read_dir("/proc")?.flatten().map(|it| it.path().join("comm"));
    // One that has ended meanwhile has no name.
    let mut names = names.filter_map(|it| fs::read_to_string(it).ok());
    Ok(names.any(|it| it.trim() == "kubelet"))
}

/// Groups of pods without a process, as another test or kubelet leaves them.
fn remove_empty() {
    let find = "find /sys/fs/cgroup -depth -type d -path '*/kubepods*' -exec rmdir {} ';'";
    // What is left is found by the next test that makes the group.
    let _ = Command::new("sh").args(["-c", find]).output();
}

fn online() -> anyhow::Result<CpuSet> {
    Ok(fs::read_to_string("/sys/devices/system/cpu/online")?.trim().parse()?)
}

/// kubernetes#104147: version 1 refuses a set that the parent does not have, and the container failed to start.
pub(crate) fn parent_has_fewer(bayplan: &Path) -> anyhow::Result<()> {
    let last: CpuSet = online()?.iter().last().into_iter().collect();
    let kubepods = Kubepods::with(&last)?;
    let mut node = Node::start(bayplan, &SLEEP, CgroupDriver::Cgroupfs)?;
    let played = (|| {
        let spec = ContainerSpec::burstable("app", 100);
        let placed = node.launch(&PodSpec::new("held-narrow", QosClass::Burstable), &spec)?;
        ensure!(placed.cpus == last, "{last} is allowed: {placed:?}");
        let shared = node.status()?.cpus.shared;
        ensure!(shared == last.to_string(), "status says that containers share {shared}");
        let own = ContainerSpec::guaranteed("app", 1000, Bytes(64 << 20));
        let pod = node.run_pod(&PodSpec::new("held-owner", QosClass::Guaranteed))?;
        let refused = node.answer(node.ask_to_create(&pod, &own, 0))?;
        let text = refused.err().context("the only CPU became exclusive")?.message().to_owned();
        ensure!(text.contains("exclusive CPU"), "{text}");
        Ok(())
    })();
    let ended = node.end(played);
    drop(kubepods);
    ended
}

/// containerd#11345: containers inherit the affinity of their runtime, whatever their cgroup has.
pub(crate) fn runtime_has_an_affinity(bayplan: &Path) -> anyhow::Result<()> {
    let mut node = Node::start(bayplan, &SLEEP, CgroupDriver::Cgroupfs)?;
    let played = is_told(&mut node);
    node.end(played)
}

fn is_told(node: &mut Node) -> anyhow::Result<()> {
    let first = online()?.first().context("no CPU")?;
    let mut one = nix::sched::CpuSet::new();
    one.set(first.0 as usize)?;
    // Threads that are made later inherit it from these.
    for task in fs::read_dir(format!("/proc/{}/task", node.runtime_pid()))? {
        let task: i32 = task?.file_name().to_string_lossy().parse()?;
        nix::sched::sched_setaffinity(Pid::from_raw(task), &one)?;
    }
    let pod = node.run_pod(&PodSpec::new("held-bound", QosClass::Burstable))?;
    let spec = ContainerSpec::burstable("app", 100);
    let id = node.answer(node.ask_to_create(&pod, &spec, 0))??;
    node.answer(node.ask_to_start(&id))??;
    let held = wait_for("what holds to be told", LIMIT, || Ok(node.status_of(&id)?.held))?;
    ensure!(held.cpus == first.to_string(), "{held:?}");
    ensure!(held.why.starts_with("affinity inherited from containerd"), "{held:?}");
    Ok(())
}
