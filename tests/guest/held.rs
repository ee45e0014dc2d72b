//! What holds beside what was asked: groups around pods that allow less, and an affinity that is narrower than the set.

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node};
use bayplan_tests::process::wait_for;
use bayplan_types::{CpuSet, QosClass};
use nix::unistd::Pid;

use crate::Test;
use crate::exclusive::own;
use crate::hardware::Hardware;

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "containers_are_placed_within_what_kubepods_allows",
        needs: |hardware| match hardware.isolated.is_empty() {
            true => hardware.has_cpus(4),
            false => Err("CPUs isolated at boot"),
        },
        config: "",
        run: containers_are_placed_within_what_kubepods_allows,
    },
    Test {
        name: "an_affinity_that_is_narrower_than_the_set_is_shown",
        needs: |hardware| hardware.has_cpus(4),
        config: "",
        run: an_affinity_that_is_narrower_than_the_set_is_shown,
    },
];

/// The file of the group around all pods, from the cgroup of a container of a Burstable pod.
const AROUND_ALL_PODS: &str = "../../../cpuset.cpus";

fn containers_are_placed_within_what_kubepods_allows(
    node: &mut Node,
    hardware: &Hardware,
) -> anyhow::Result<()> {
    let spec = ContainerSpec::burstable("app", 200);
    let shared = node.launch(&PodSpec::new("shared", QosClass::Burstable), &spec)?;
    let before = node.status()?.cpus.shared;
    let all: CpuSet = before.parse()?;
    let last: CpuSet = all.iter().last().into_iter().collect();
    let allowed = all.difference(&last);
    shared.write_cgroup_file(AROUND_ALL_PODS, &allowed.to_string())?;
    let checked = check_within(node, &allowed);
    // The group outlives its pods.
    shared.write_cgroup_file(AROUND_ALL_PODS, &hardware.cpus.to_string())?;
    checked?;
    node.end_pods()?;
    wait_for("all CPUs again", LIMIT, || Ok((node.status()?.cpus.shared == before).then_some(())))
}

fn check_within(node: &mut Node, allowed: &CpuSet) -> anyhow::Result<()> {
    wait_for("less to share", LIMIT, || {
        let shared: CpuSet = node.status()?.cpus.shared.parse()?;
        Ok(shared.is_subset(allowed).then_some(()))
    })?;
    let owner = own(node, "owner", 1)?;
    ensure!(owner.cpus.is_subset(allowed), "{owner:?} beside {allowed}");
    let effective = owner.cgroup_file("cpuset.cpus.effective")?;
    ensure!(effective == owner.cpus.to_string(), "effective is {effective}: {owner:?}");
    Ok(())
}

fn an_affinity_that_is_narrower_than_the_set_is_shown(
    node: &mut Node,
    _: &Hardware,
) -> anyhow::Result<()> {
    let owner = own(node, "owner", 2)?;
    let one = owner.cpus.iter().next().context("no CPU")?;
    for pid in owner.cgroup_file("cgroup.procs")?.lines() {
        let mut cpus = nix::sched::CpuSet::new();
        cpus.set(usize::try_from(one.0)?)?;
        nix::sched::sched_setaffinity(Pid::from_raw(pid.parse()?), &cpus)?;
    }
    let held = wait_for("what holds", LIMIT, || Ok(node.status_of(&owner.id)?.held))?;
    ensure!(held.cpus == one.0.to_string(), "{held:?}");
    let asked = node.status_of(&owner.id)?.cpus;
    ensure!(asked == owner.cpus.to_string(), "asked {asked}, {owner:?}");
    Ok(())
}
