//! What must hold with a real runtime and a real kernel, in one story: exclusive CPUs are disjoint, the shared rest shrinks and
//! grows, killing the daemon between create and start moves no container and leaks nothing, and no container stays on a CPU that goes offline.
//!
//! Everything is checked against three witnesses: the kernel (`Cpus_allowed_list` and `Mems_allowed_list` of the container's process),
//! the runtime's own record, and bayplan's status.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use bayplan_cri::kubelet::{CgroupDriver, ContainerSpec, PodSpec};
use bayplan_types::{Bytes, CpuSet, MilliCpu, QosClass};

use crate::node::{LIMIT, Node, Placed, SLEEP, allowed_by_kernel};
use crate::process::wait_for;

/// Which machine's CPUs the scenario runs on.
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
    let mut node = Node::start(bayplan, &SLEEP, CgroupDriver::Cgroupfs)?;
    let played = play(&mut node, owners, host);
    node.end(played)
}

/// The same on a node that runs; its containers are gone afterwards.
///
/// # Errors
/// The first thing that was not as it should be.
pub fn play(node: &mut Node, owners: usize, host: Host) -> anyhow::Result<()> {
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
    let shared = node.shared_around(&noisy.id)?;
    ensure!(noisy.cpus == shared, "shared on {}, status says {shared}", noisy.cpus);
    if noisy.cpus != all.difference(&exclusive) {
        let why = node.get("/api/v1/explain?name=default/scenario-noisy/app")?;
        let status = node.get("/api/v1/status")?;
        bail!("shared {}, not all the rest of {all}: {why}\n{status}", noisy.cpus);
    }
    println!("  exclusive {exclusive} of {all}, shared {}", noisy.cpus);

    println!("one stops, and the shared set grows");
    let leaver = owned.remove(0);
    node.stop(&leaver.id)?;
    let grown = wait_for("the shared set to grow", LIMIT, || {
        let now = allowed_by_kernel(noisy.pid)?;
        Ok(now.filter(|now| noisy.cpus.is_subset(now) && *now != noisy.cpus))
    })?;
    ensure!(leaver.cpus.is_subset(&grown), "{} came back as {grown}", leaver.cpus);
    println!("  shared {} -> {grown}", noisy.cpus);

    println!("the daemon is killed between create and start, and started again");
    let late = node.create(&pod("late".into(), QosClass::Guaranteed), &one_cpu)?;
    let told = node.exclusive_of(&late)?;
    let before = allowed(&owned, &noisy)?;
    node.restart_after_kill()?;
    ensure!(before == allowed(&owned, &noisy)?, "a container moved: before {before:?}");
    let late = node.begin(&late)?;
    ensure!(late.cpus == told, "late runs on {}, was promised {told}", late.cpus);
    ensure!(before == allowed(&owned, &noisy)?, "a container moved: before {before:?}");
    println!("  no container moved; the late one runs on {} as promised", late.cpus);
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
        .context("a container owns a CPU that can be switched off")?;
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

/// What the kernel allows each container now.
fn allowed(owned: &[Placed], noisy: &Placed) -> anyhow::Result<Vec<Option<CpuSet>>> {
    let pids = owned.iter().map(|placed| placed.pid).chain([noisy.pid]);
    pids.map(allowed_by_kernel).collect()
}
