//! Exclusive CPUs: whole cores, in one NUMA node, in one L3, used by no other container.

use anyhow::ensure;
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_tests::node::{Node, Placed};
use bayplan_types::{Bytes, CpuSet, QosClass};

use crate::Test;
use crate::hardware::{Hardware, whole};

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "exclusive_cpus_are_whole_cores_of_one_numa_node",
        needs: |hardware| hardware.has_cpus(6),
        config: "",
        run: exclusive_cpus_are_whole_cores_of_one_numa_node,
    },
    Test {
        name: "no_container_is_placed_where_there_are_too_few_cpus",
        needs: |_| Ok(()),
        config: "",
        run: no_container_is_placed_where_there_are_too_few_cpus,
    },
];

/// A Guaranteed container with whole CPUs.
pub(crate) fn own(node: &mut Node, name: &str, cpus: usize) -> anyhow::Result<Placed> {
    let milli = u64::try_from(cpus)? * 1000;
    let container = ContainerSpec::guaranteed("app", milli, Bytes(32 << 20));
    node.launch(&PodSpec::new(name, QosClass::Guaranteed), &container)
}

/// Containers of two CPUs until one node's worth is left; on every machine here a core is one or two CPUs.
fn exclusive_cpus_are_whole_cores_of_one_numa_node(
    node: &mut Node,
    hardware: &Hardware,
) -> anyhow::Result<()> {
    let mut taken = CpuSet::new();
    let free = hardware.cpus.difference(&hardware.isolated).len();
    for index in 0..(free / 2 - 1).min(4) {
        let placed = own(node, &format!("own{index}"), 2)?;
        let (cpus, mems) = (&placed.cpus, &placed.mems);
        ensure!(cpus.len() == 2, "own{index} wanted two CPUs and runs on {cpus}");
        ensure!(cpus.is_disjoint(&taken), "{cpus} overlap with {taken}");
        ensure!(cpus.is_disjoint(&hardware.isolated), "{cpus} are isolated");
        ensure!(whole(&hardware.cores, cpus).len() == 2, "{cpus} are not whole cores");
        let near = hardware.nodes_of(cpus);
        ensure!(near.len() == 1, "{cpus} are of the nodes {near}");
        ensure!(*mems == near, "{cpus} are of node {near}, its memory of {mems}");
        ensure!(hardware.l3s.iter().any(|l3| cpus.is_subset(l3)), "{cpus} are not of one L3");
        let promised = node.exclusive_of(&placed.id)?;
        ensure!(promised == *cpus, "runs on {cpus}, the status says {promised}");
        taken.union_with(cpus);
    }
    Ok(())
}

fn no_container_is_placed_where_there_are_too_few_cpus(
    node: &mut Node,
    hardware: &Hardware,
) -> anyhow::Result<()> {
    // One CPU is always left to share.
    let Err(refused) = own(node, "too-large", hardware.cpus.len()) else {
        anyhow::bail!("{} CPUs were given away", hardware.cpus.len());
    };
    let text = refused.to_string();
    ensure!(text.contains("CPUs"), "refused for another reason: {text}");
    let status = node.status()?;
    ensure!(status.containers.is_empty(), "left: {:?}", status.containers);
    Ok(())
}
