//! Containers that come, change and go.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node, Placed, Way, allowed_by_kernel};
use bayplan_tests::process::wait_for;
use bayplan_tests::thread_scheduling;
use bayplan_types::{Bytes, CpuSet, MilliCpu, QosClass};

pub(crate) fn one_cpu() -> ContainerSpec {
    ContainerSpec::guaranteed("app", 1000, Bytes(64 << 20))
}

pub(crate) fn launch_owner(node: &mut Node, name: &str) -> anyhow::Result<Placed> {
    node.launch(&PodSpec::new(&format!("scenario-{name}"), QosClass::Guaranteed), &one_cpu())
}

pub(crate) fn launch_sharer(node: &mut Node) -> anyhow::Result<Placed> {
    let pod = PodSpec::new("scenario-sharer", QosClass::Burstable);
    node.launch(&pod, &ContainerSpec::burstable("app", 100))
}

pub(crate) fn in_kernel(placed: &Placed) -> anyhow::Result<CpuSet> {
    allowed_by_kernel(placed.pid)?.context("it runs")
}

/// With the runtime's updates the sharer would leave some time after the answer.
pub(crate) fn leaves_before_the_answer(node: &mut Node) -> anyhow::Result<()> {
    let sharer = launch_sharer(node)?;
    for round in 0..10 {
        let pod = PodSpec::new(&format!("scenario-owner{round}"), QosClass::Guaranteed);
        let pod = node.run_pod(&pod)?;
        let asked = node.ask_to_create(&pod, &one_cpu(), 0);
        let id = node.answer(asked)??;
        // No waiting here: this is what the creation's answer promises.
        let (shared, own) = (in_kernel(&sharer)?, node.exclusive_of(&id)?);
        ensure!(shared.is_disjoint(&own), "round {round}: {own} is owned, shared are {shared}");
        let owner = node.begin(&id)?;
        ensure!(owner.cpus == own, "round {round}: on {}, not on {own}", owner.cpus);
        node.end_pod(&pod)?;
        wait_for("the sharer to have all again", LIMIT, || {
            Ok((node.glance(&sharer.id)?.as_ref() == Some(&sharer)).then_some(()))
        })?;
    }
    let metrics = node.metrics()?;
    let late = metrics.lines().find(|it| it.starts_with("bayplan_nri_events_late_total"));
    ensure!(late.is_none(), "an event was late: {late:?}");
    ensure!(metrics.contains("bayplan_nri_registrations_total 1\n"), "it was registered once");
    Ok(())
}

pub(crate) fn has_its_scheduling_class(node: &mut Node) -> anyhow::Result<()> {
    node.reconfigure(thread_scheduling::CONFIG)?;
    node.wait_until_registered()?;
    thread_scheduling::play(node)
}

pub(crate) fn is_resized_and_restored(node: &mut Node) -> anyhow::Result<()> {
    let sharer = launch_sharer(node)?;
    let owner = launch_owner(node, "owner")?;
    let (own, all) = (owner.cpus.clone(), sharer.cpus.clone());
    let is_on = |node: &Node, placed: &Placed, due: &CpuSet| {
        let now = node.glance(&placed.id)?;
        anyhow::Ok(now.filter(|now| now.cpus == *due))
    };
    let left = all.difference(&own);
    wait_for("the sharer to leave", LIMIT, || is_on(node, &sharer, &left))?;

    println!("the owner asks for more memory and stays, and for less than a CPU and shares");
    node.resize(&owner.id, &ContainerSpec::guaranteed("app", 1000, Bytes(96 << 20)))?;
    ensure!(node.look(&owner.id)?.cpus == own, "it moved");
    let details = node.details(&owner.id)?;
    ensure!(details.memory_limit == Some(96 << 20), "memory is {:?}", details.memory_limit);

    println!("kubelet's own CPU set does not count");
    let more =
        ContainerSpec { cpu_limit: Some(MilliCpu(200)), ..ContainerSpec::burstable("app", 200) };
    node.resize(&sharer.id, &more)?;
    wait_for("the sharer to stay", LIMIT, || is_on(node, &sharer, &left))?;

    println!("everything is given back, and taken again");
    let ask = |verb: &str| {
        let mut command = Command::new(super::BAYPLAN);
        command.args([verb, "--yes", "--control"]).arg(node.control());
        let done = command.output()?;
        ensure!(done.status.success(), "{verb}: {}", String::from_utf8_lossy(&done.stderr));
        Ok(())
    };
    ask("restore")?;
    for placed in [&owner, &sharer] {
        wait_for("all CPUs", LIMIT, || is_on(node, placed, &all))?;
    }
    ask("resume")?;
    for (placed, due) in [(&owner, &own), (&sharer, &left)] {
        wait_for("its CPUs", LIMIT, || is_on(node, placed, due))?;
    }
    Ok(())
}

/// As `deploy/NODE.md` tells it.
pub(crate) fn switches(node: &mut Node) -> anyhow::Result<()> {
    let sharer = launch_sharer(node)?;
    let owner = launch_owner(node, "owner")?;
    let left = sharer.cpus.difference(&owner.cpus);
    let check = |node: &Node, when: &str| {
        let (now, shared) = (node.look(&owner.id)?, in_kernel(&sharer)?);
        ensure!(now == owner, "{when}: the owner was {owner:?} and is {now:?}");
        ensure!(shared == left, "{when}: shared are {shared}, not {left}");
        ensure!(node.exclusive_of(&owner.id)? == owner.cpus, "{when}: {:?}", node.status()?);
        Ok(())
    };
    let says = |node: &Node, front_end: &str| {
        for verb in ["explain", "why"] {
            let mut command = Command::new(super::BAYPLAN);
            let done = command.args([verb, &owner.id, "--control"]).arg(node.control()).output()?;
            let text = String::from_utf8_lossy(&done.stdout);
            ensure!(text.contains(front_end), "{verb}: {text}");
        }
        Ok(())
    };
    check(node, "as a plugin")?;
    says(node, "  frontend nri\n")?;
    node.switch(Way::Proxy, "")?;
    ensure!(node.status()?.front_end.is_none(), "it is the proxy");
    check(node, "as a proxy")?;
    says(node, "  frontend cri\n")?;
    let file = Path::new("/proc").join(owner.pid.to_string());
    node.switch(Way::Plugin, "")?;
    check(node, "as a plugin again")?;
    ensure!(file.exists(), "the owner's process has ended");
    // A container that comes now is decided by the plugin, and one that goes is heard of.
    node.stop(&owner.id)?;
    wait_for("the sharer to have all", LIMIT, || {
        Ok((in_kernel(&sharer)? == sharer.cpus).then_some(()))
    })?;
    let next = launch_owner(node, "next")?;
    ensure!(in_kernel(&sharer)?.is_disjoint(&next.cpus), "shared and owned");
    Ok(())
}
