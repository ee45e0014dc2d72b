//! In-place resize: what grows, grows next to what it has, and what shrinks keeps CPUs that it had; kernel files and processes follow.

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node, Placed};
use bayplan_tests::process::wait_for;
use bayplan_types::{Bytes, CpuSet, QosClass};

use crate::Test;
use crate::exclusive::own;
use crate::files::{becomes, group};
use crate::hardware::Hardware;

const MEMORY: Bytes = Bytes(32 << 20);

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "a_resize_grows_in_its_node_and_shrinks_to_what_it_had",
        needs: |hardware| hardware.has_cpus(8),
        config: "",
        run: a_resize_grows_in_its_node_and_shrinks_to_what_it_had,
    },
    Test {
        name: "a_resize_that_has_no_room_changes_nothing",
        needs: |hardware| hardware.has_cpus(4),
        config: "",
        run: a_resize_that_has_no_room_changes_nothing,
    },
    Test {
        name: "a_shared_container_is_resized_where_it_is",
        needs: |_| Ok(()),
        config: "",
        run: a_shared_container_is_resized_where_it_is,
    },
];

fn wanting(cpus: usize) -> anyhow::Result<ContainerSpec> {
    Ok(ContainerSpec::guaranteed("app", u64::try_from(cpus)? * 1000, MEMORY))
}

/// Resizes, and waits until the kernel has as many CPUs for it.
fn resized(node: &mut Node, placed: &Placed, cpus: usize) -> anyhow::Result<Placed> {
    node.resize(&placed.id, &wanting(cpus)?)?;
    let is_there = || Ok(node.glance(&placed.id)?.filter(|now| now.cpus.len() == cpus));
    let now = wait_for("the new number of CPUs", LIMIT, is_there)?;
    // All of its CPUs are its own, so the quota that comes with the resize is lifted again.
    becomes(&[(group(&now)?.join("cpu.max"), "max 100000")])?;
    let promised = node.exclusive_of(&placed.id)?;
    ensure!(promised == now.cpus, "runs on {}, the status says {promised}", now.cpus);
    Ok(now)
}

/// Two CPUs, then half of a node's, then two again, with a neighbour that loses nothing.
fn a_resize_grows_in_its_node_and_shrinks_to_what_it_had(
    node: &mut Node,
    hardware: &Hardware,
) -> anyhow::Result<()> {
    let before = own(node, "grows", 2)?;
    let neighbour = own(node, "neighbour", 1)?;
    let free = |place: &CpuSet| place.difference(&hardware.isolated).len();
    let home = hardware.places().find(|place| before.cpus.is_subset(&place.cpus));
    let home = home.context("a node with these CPUs")?;
    // One CPU of the node stays for shared containers, and one may be the neighbour's.
    let most = (free(&home.cpus) - 2).min(4);
    ensure!(most >= 2, "node {} has {} CPUs", home.id, free(&home.cpus));
    let large = resized(node, &before, most)?;
    ensure!(before.cpus.is_subset(&large.cpus), "{} grew to {}", before.cpus, large.cpus);
    ensure!(large.mems == before.mems, "memory of {} became {}", before.mems, large.mems);
    ensure!(large.cpus.is_disjoint(&neighbour.cpus), "{} and {}", large.cpus, neighbour.cpus);
    ensure!(node.look(&neighbour.id)? == neighbour, "the neighbour was moved");
    let small = resized(node, &large, 2)?;
    ensure!(small.cpus.is_subset(&large.cpus), "{} shrank to {}", large.cpus, small.cpus);
    ensure!(small.pid == before.pid, "it was started anew");
    Ok(())
}

fn a_resize_that_has_no_room_changes_nothing(
    node: &mut Node,
    hardware: &Hardware,
) -> anyhow::Result<()> {
    let before = own(node, "wants", 2)?;
    let refused = node.resize(&before.id, &wanting(hardware.cpus.len() + 1)?);
    ensure!(refused.is_err(), "more CPUs were given than there are");
    ensure!(node.look(&before.id)? == before, "it was moved");
    becomes(&[(group(&before)?.join("cpu.max"), "max 100000")])?;
    resized(node, &before, 1).map(|_| ())
}

fn a_shared_container_is_resized_where_it_is(node: &mut Node, _: &Hardware) -> anyhow::Result<()> {
    let pod = PodSpec::new("shares", QosClass::Burstable);
    let before = node.launch(&pod, &ContainerSpec::burstable("app", 100))?;
    let light: u64 = before.cgroup_file("cpu.weight")?.parse()?;
    node.resize(&before.id, &ContainerSpec::burstable("app", 800))?;
    let now = node.look(&before.id)?;
    ensure!(now == before, "{now:?}, before {before:?}");
    let heavy: u64 = now.cgroup_file("cpu.weight")?.parse()?;
    ensure!(heavy > light, "cpu.weight was {light} and is {heavy}");
    Ok(())
}
