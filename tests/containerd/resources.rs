//! A container finds its CPUs in the file that is mounted into it, as a process in it sees it.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{CgroupDriver, ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node, Placed, SLEEP};
use bayplan_tests::process::wait_for;
use bayplan_types::{Bytes, QosClass};

/// What a process in the container reads.
fn read(placed: &Placed) -> anyhow::Result<String> {
    let path = format!("/proc/{}/root/.bayplan/resources.sh", placed.pid);
    fs::read_to_string(&path).with_context(|| path)
}

fn play(node: &mut Node) -> anyhow::Result<()> {
    node.reset("resourcesDirectories: [/.bayplan]\n")?;
    let sharer = node.launch(
        &PodSpec::new("told-sharer", QosClass::Burstable),
        &ContainerSpec::burstable("app", 100),
    )?;
    let all = sharer.cpus.to_string();
    ensure!(read(&sharer)?.contains(&format!("SHARED_CPUS=\"{all}\"\n")), "{}", read(&sharer)?);
    let owner = node.launch(
        &PodSpec::new("told-owner", QosClass::Guaranteed),
        &ContainerSpec::guaranteed("app", 1000, Bytes(64 << 20)),
    )?;
    let own = owner.cpus.to_string();
    ensure!(read(&owner)?.contains(&format!("EXCLUSIVE_CPUS=\"{own}\"\n")), "{}", read(&owner)?);
    // It runs already, and sees the new file in the old mount.
    wait_for("the sharer to be told", LIMIT, || {
        let left = node.look(&sharer.id)?.cpus.to_string();
        Ok(read(&sharer)?.contains(&format!("SHARED_CPUS=\"{left}\"\n")).then_some(()))
    })?;
    let path = format!("/proc/{}/root/.bayplan/resources.sh", owner.pid);
    let refused = fs::write(&path, "").err().and_then(|error| error.raw_os_error());
    ensure!(refused == Some(nix::libc::EROFS), "a container can write to its file");
    node.restart_after_kill()?;
    ensure!(read(&owner)?.contains(&format!("EXCLUSIVE_CPUS=\"{own}\"\n")), "after a kill");
    Ok(())
}

pub(crate) fn run(bayplan: &Path) -> anyhow::Result<()> {
    let mut node = Node::start(bayplan, &SLEEP, CgroupDriver::Cgroupfs)?;
    let played = play(&mut node);
    node.end(played)
}
