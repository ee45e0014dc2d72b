//! The daemon or the runtime is away for a while.

use anyhow::ensure;
use bayplan_cri::kubelet::PodSpec;
use bayplan_tests::node::{LIMIT, Node};
use bayplan_tests::process::wait_for;
use bayplan_types::QosClass;

use crate::life::{in_kernel, launch_owner, launch_sharer, one_cpu};

/// The runtime goes on without a plugin. What it has made has CPUs of its own once the plugin is back, as it asked for.
pub(crate) fn daemon_is_away(node: &mut Node) -> anyhow::Result<()> {
    let sharer = launch_sharer(node)?;
    let all = in_kernel(&sharer)?;
    node.kill()?;
    let pod = node.run_pod(&PodSpec::new("scenario-late", QosClass::Guaranteed))?;
    let asked = node.ask_to_create(&pod, &one_cpu(), 0);
    let id = node.answer(asked)??;
    node.answer(node.ask_to_start(&id))??;
    node.start_again()?;
    let own = wait_for("the late one to have its CPU", LIMIT, || Ok(node.exclusive_of(&id).ok()))?;
    wait_for("the late one to run there alone", LIMIT, || {
        let there = node.seen(&id)?.map(|it| it.cpus);
        Ok((there == Some(own.clone()) && in_kernel(&sharer)? == all.difference(&own))
            .then_some(()))
    })?;
    Ok(())
}

pub(crate) fn runtime_is_killed(node: &mut Node) -> anyhow::Result<()> {
    let sharer = launch_sharer(node)?;
    let owner = launch_owner(node, "owner")?;
    let left = in_kernel(&sharer)?;
    node.kill_runtime()?;
    wait_for("the connection to end", LIMIT, || {
        let front_end = node.status()?.front_end;
        Ok(front_end.filter(|it| !it.is_registered))
    })?;
    node.start_runtime_again()?;
    node.wait_until_registered()?;
    ensure!(in_kernel(&owner)? == owner.cpus, "the owner moved");
    ensure!(in_kernel(&sharer)? == left, "the sharer moved");
    node.stop(&owner.id)?;
    let next = launch_owner(node, "next")?;
    ensure!(in_kernel(&sharer)?.is_disjoint(&next.cpus), "shared and owned");
    Ok(())
}
