//! Memory: which nodes, by what is asked for, and where the pages really are.

use std::path::Path;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node, Placed};
use bayplan_tests::process::wait_for;
use bayplan_types::{Bytes, NodeId, NodeSet, QosClass};

use crate::Test;
use crate::exclusive::own;
use crate::hardware::Hardware;

/// Pages of a container's 1 MB.
const MOST_OF_IT: u64 = 900_000 / 4096;

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "pages_are_on_the_node_of_the_cpus",
        needs: |hardware| hardware.has_nodes(2),
        config: "",
        run: pages_are_on_the_node_of_the_cpus,
    },
    Test {
        name: "a_container_with_more_memory_than_a_node_has_gets_more_nodes",
        needs: |hardware| hardware.has_nodes(2),
        config: "",
        run: a_container_with_more_memory_than_a_node_has_gets_more_nodes,
    },
    Test {
        name: "memory_without_cpus_is_no_containers_home",
        needs: |hardware| match hardware.places().count() < hardware.nodes.len() {
            true => Ok(()),
            false => Err("CPUs in every node"),
        },
        config: "",
        run: memory_without_cpus_is_no_containers_home,
    },
    Test {
        name: "a_cold_start_leaves_its_pages_on_slow_memory_and_ends",
        needs: |_| match slow_node() {
            Ok(Some(_)) => Ok(()),
            _ => Err("slow memory"),
        },
        config: "",
        run: a_cold_start_leaves_its_pages_on_slow_memory_and_ends,
    },
];

/// An owner in each of two nodes, so that one of them is not where the kernel would go by itself.
fn pages_are_on_the_node_of_the_cpus(node: &mut Node, hardware: &Hardware) -> anyhow::Result<()> {
    let mut homes = NodeSet::new();
    for place in hardware.places().take(2) {
        let name = format!("home{}", place.id);
        let free = place.cpus.difference(&hardware.isolated).len();
        let owner = own(node, &name, (free - 1).max(1))?;
        let pages = wait_for("1 MB to be written", LIMIT, || {
            let pages = anonymous_pages(&owner)?;
            let sum: u64 = pages.iter().map(|(_, pages)| pages).sum();
            Ok((sum > 900_000 / 4096).then_some(pages))
        })?;
        let strays = pages.iter().find(|(id, pages)| !owner.mems.contains(*id) && *pages > 0);
        ensure!(strays.is_none(), "on node {} are pages of {pages:?}", owner.mems);
        homes.union_with(&owner.mems);
    }
    ensure!(homes.len() > 1, "all are on node {homes}");
    Ok(())
}

/// Per node, from `numa_maps`. Files may have been read by another process before.
fn anonymous_pages(of: &Placed) -> anyhow::Result<Vec<(NodeId, u64)>> {
    let path = format!("/proc/{}/numa_maps", of.pid);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let mut pages: Vec<(NodeId, u64)> = Vec::new();
    for line in text.lines().filter(|line| !line.contains(" file=")) {
        for word in line.split(' ').filter_map(|word| word.strip_prefix('N')) {
            let (id, count) = word.split_once('=').context("N<node>=<pages>")?;
            pages.push((NodeId(id.parse()?), count.parse()?));
        }
    }
    Ok(pages)
}

fn wanting(node: &mut Node, name: &str, memory: Bytes) -> anyhow::Result<Placed> {
    let spec = ContainerSpec::guaranteed("app", 1000, memory);
    node.launch(&PodSpec::new(name, QosClass::Guaranteed), &spec)
}

fn a_container_with_more_memory_than_a_node_has_gets_more_nodes(
    node: &mut Node,
    hardware: &Hardware,
) -> anyhow::Result<()> {
    let largest = hardware.places().map(|place| place.memory).max().context("a node")?;
    let modest = wanting(node, "modest", Bytes(64 << 20))?;
    ensure!(modest.mems.len() == 1, "64 MiB are spread over {}", modest.mems);
    let hungry = wanting(node, "hungry", Bytes(largest.0 + (64 << 20)))?;
    let home = hardware.nodes_of(&hungry.cpus);
    ensure!(home.is_subset(&hungry.mems), "on node {home}, memory of {}", hungry.mems);
    ensure!(hungry.mems.len() > 1, "{} is too little", hungry.mems);
    let has = hardware.memory_of(&hungry.mems);
    ensure!(has > largest, "the nodes {} have {has}", hungry.mems);
    let file = hungry.cgroup_file("cpuset.mems")?;
    ensure!(file == hungry.mems.to_string(), "cpuset.mems is {file}");
    Ok(())
}

fn memory_without_cpus_is_no_containers_home(
    node: &mut Node,
    hardware: &Hardware,
) -> anyhow::Result<()> {
    let far = hardware.nodes.iter().find(|node| node.cpus.is_empty()).context("such a node")?;
    let modest = wanting(node, "modest", Bytes(64 << 20))?;
    ensure!(!modest.mems.contains(far.id), "64 MiB of node {}", modest.mems);
    let near: u64 = hardware.places().map(|place| place.memory.0).sum();
    let hungry = wanting(node, "hungry", Bytes(near + (64 << 20)))?;
    ensure!(hungry.mems.contains(far.id), "more than near nodes have, of {}", hungry.mems);
    Ok(())
}

/// Slow memory that the kernel may use for itself, as bayplan reads the machine.
fn slow_node() -> anyhow::Result<Option<NodeId>> {
    let topology = bayplan_daemon::derive_machine(Path::new("/"))?;
    let mut slow = topology.nodes().iter().filter(|it| it.kind.is_slow() && !it.is_movable_only);
    Ok(slow.next().map(|node| node.id))
}

fn a_cold_start_leaves_its_pages_on_slow_memory_and_ends(
    node: &mut Node,
    hardware: &Hardware,
) -> anyhow::Result<()> {
    let slow = slow_node()?.context("slow memory")?;
    let mut pod = PodSpec::new("cold", QosClass::Guaranteed);
    pod.annotations.push(("bayplan.dev/cold-start".to_owned(), "40s".to_owned()));
    let spec = ContainerSpec::guaranteed("app", 1000, Bytes(64 << 20));
    let cold = node.launch(&pod, &spec)?;
    ensure!(cold.mems == NodeSet::from_iter([slow]), "node {slow} is slow, has {}", cold.mems);
    let written = |id: NodeId| -> anyhow::Result<u64> {
        let pages = anonymous_pages(&cold)?.into_iter();
        Ok(pages.filter(|(it, _)| *it == id).map(|(_, pages)| pages).sum())
    };
    wait_for("1 MB to be written", LIMIT, || Ok((written(slow)? > MOST_OF_IT).then_some(())))?;
    let mut due = hardware.nodes_of(&cold.cpus);
    due.insert(slow);
    wait_for("the end of the cold start", LIMIT, || {
        Ok((cold.cgroup_file("cpuset.mems")? == due.to_string()).then_some(()))
    })?;
    // While the shell was writing it had some of them twice.
    let after = written(slow)?;
    ensure!(after > MOST_OF_IT, "of 1 MB on node {slow}, {after} pages are left");
    Ok(())
}
