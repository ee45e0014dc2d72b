//! Another program changes the CPU set of a container past the runtime, on whatever cgroups this machine has.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{CgroupDriver, ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node, Placed, SLEEP};
use bayplan_tests::process::wait_for;
use bayplan_types::{Bytes, QosClass};

/// The file that says where it may run, of either version.
fn file_of(placed: &Placed) -> anyhow::Result<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{}/cgroup", placed.pid))?;
    let path = |mark: &str| text.lines().find_map(|line| Some(line.split_once(mark)?.1));
    let dir = match path(":cpuset:/") {
        Some(path) => Path::new("/sys/fs/cgroup/cpuset").join(path),
        None => Path::new("/sys/fs/cgroup").join(path("0::/").context("no cgroup")?),
    };
    Ok(dir.join("cpuset.cpus"))
}

fn play(node: &mut Node) -> anyhow::Result<()> {
    let owner = node.launch(
        &PodSpec::new("changed-owner", QosClass::Guaranteed),
        &ContainerSpec::guaranteed("app", 1000, Bytes(64 << 20)),
    )?;
    let (own, file) = (owner.cpus.to_string(), file_of(&owner)?);
    let all = fs::read_to_string(file.with_file_name("../cpuset.cpus"))?;
    // With version 2 the pod is where its parent is.
    let all = if all.trim().is_empty() { "0-1" } else { all.trim() };
    ensure!(all != own, "the owner has all CPUs");
    fs::write(&file, all)?;
    let is_right = || Ok((fs::read_to_string(&file)?.trim() == own).then_some(()));
    wait_for("the set to be repaired", LIMIT, is_right)?;
    let now = node.look(&owner.id)?;
    ensure!(now == owner, "the owner was {owner:?} and is {now:?}");
    Ok(())
}

pub(crate) fn run(bayplan: &Path) -> anyhow::Result<()> {
    let mut node = Node::start(bayplan, &SLEEP, CgroupDriver::Cgroupfs)?;
    let played = play(&mut node);
    node.end(played)
}
