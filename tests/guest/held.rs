//! What holds beside what was asked: groups around pods that allow less, and an affinity that is narrower than the set.

use std::fs;
use std::path::{Path, PathBuf};

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

fn containers_are_placed_within_what_kubepods_allows(
    node: &mut Node,
    _: &Hardware,
) -> anyhow::Result<()> {
    let spec = ContainerSpec::burstable("app", 200);
    let shared = node.launch(&PodSpec::new("shared", QosClass::Burstable), &spec)?;
    let limit = file_around_all_pods(shared.pid)?;
    let before = node.status()?.cpus.shared;
    let all: CpuSet = before.parse()?;
    let last: CpuSet = all.iter().last().into_iter().collect();
    let allowed = all.difference(&last);
    fs::write(&limit, allowed.to_string())?;
    let checked = check_within(node, &allowed);
    // The group outlives its pods, and has no limit of its own afterwards: an empty line, which the kernel refuses while pods are there.
    node.end_pods()?;
    wait_for("no limit", LIMIT, || Ok(fs::write(&limit, "\n").ok()))?;
    checked?;
    wait_for("all CPUs again", LIMIT, || Ok((node.status()?.cpus.shared == before).then_some(())))
}

/// `cpuset.cpus` of the outermost group around a process.
fn file_around_all_pods(pid: u32) -> anyhow::Result<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let outermost =
        own.and_then(|path| path.split('/').next()).context("no cgroup of version 2")?;
    Ok(Path::new("/sys/fs/cgroup").join(outermost).join("cpuset.cpus"))
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
    let mut cpus = nix::sched::CpuSet::new();
    cpus.set(usize::try_from(one.0)?)?;
    nix::sched::sched_setaffinity(Pid::from_raw(i32::try_from(owner.pid)?), &cpus)?;
    let held = wait_for("what holds", LIMIT, || Ok(node.status_of(&owner.id)?.held))?;
    ensure!(held.cpus == one.0.to_string(), "{held:?}");
    let asked = node.status_of(&owner.id)?.cpus;
    ensure!(asked == owner.cpus.to_string(), "asked {asked}, {owner:?}");
    Ok(())
}
