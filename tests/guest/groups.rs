//! Groups of containers, as the kernel holds them: a balloon that follows its members, a slot of CMK's, a NUMA node for each namespace, in which some own CPUs.

use std::fs;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node, Placed};
use bayplan_tests::process::wait_for;
use bayplan_types::{Bytes, CpuSet, QosClass};

use crate::Test;
use crate::hardware::{Hardware, whole};

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "a_group_grows_and_shrinks_with_its_members",
        needs: |hardware| hardware.has_cpus(6),
        config: "groups: [{name: web, members: {namespaces: [shop]}, instances: {max: 1}, size: {requests: {min: 1, max: 4}}}]\n",
        run: a_group_grows_and_shrinks_with_its_members,
    },
    Test {
        name: "cmk_isolate_in_a_command_gives_the_container_a_slot",
        needs: |hardware| hardware.has_cpus(6),
        config: "",
        run: cmk_isolate_in_a_command_gives_the_container_a_slot,
    },
    Test {
        name: "each_namespace_has_a_numa_node_of_its_own",
        needs: |hardware| hardware.has_nodes(2),
        config: "groups: [{name: zones, members: {namespaces: [red, blue]}, instances: {by: namespace}, size: {domain: numa}}]\n",
        run: each_namespace_has_a_numa_node_of_its_own,
    },
    Test {
        name: "guaranteed_members_own_cpus_in_the_numa_node_of_their_namespace",
        needs: |hardware| hardware.has_nodes(2),
        config: "groups: [{name: zones, members: {namespaces: [red]}, instances: {by: namespace}, size: {domain: numa}, inside: guaranteed-exclusive}]\n",
        run: guaranteed_members_own_cpus_in_the_numa_node_of_their_namespace,
    },
];

fn launch(node: &mut Node, namespace: &str, name: &str, milli: u64) -> anyhow::Result<Placed> {
    let pod =
        PodSpec { namespace: namespace.to_owned(), ..PodSpec::new(name, QosClass::Burstable) };
    node.launch(&pod, &ContainerSpec::burstable("app", milli))
}

/// Until the kernel and the runtime have it on so many CPUs.
fn until_wide(node: &Node, placed: &Placed, width: usize) -> anyhow::Result<CpuSet> {
    let now = wait_for("the group to have another size", LIMIT, || {
        Ok(node.glance(&placed.id)?.filter(|now| now.cpus.len() == width))
    });
    let now = now.with_context(|| format!("{:?}", node.seen(&placed.id)))?;
    ensure!(now.pid == placed.pid, "it was started anew");
    Ok(now.cpus)
}

fn a_group_grows_and_shrinks_with_its_members(
    node: &mut Node,
    hardware: &Hardware,
) -> anyhow::Result<()> {
    let bystander = launch(node, "default", "bystander", 100)?;
    let first = launch(node, "shop", "first", 1500)?;
    ensure!(first.cpus.len() == 2, "1.5 CPUs are requested, the group has {}", first.cpus);
    let is_apart = |node: &Node, group: &CpuSet| {
        wait_for("the bystander to leave", LIMIT, || {
            let now = node.glance(&bystander.id)?;
            Ok(now.filter(|now| now.cpus.is_disjoint(group) && !now.cpus.is_empty()))
        })
    };
    is_apart(node, &first.cpus)?;

    let second = launch(node, "shop", "second", 1500)?;
    let grown = until_wide(node, &first, 3)?;
    ensure!(second.cpus == grown, "the second runs on {}, the first on {grown}", second.cpus);
    ensure!(first.cpus.is_subset(&grown), "{} became {grown}", first.cpus);
    ensure!(hardware.nodes_of(&grown).len() == 1, "{grown} are of several NUMA nodes");
    is_apart(node, &grown)?;

    // Resized in place, to the most that the type allows.
    node.resize(&second.id, &ContainerSpec::burstable("app", 2500))?;
    let widest = until_wide(node, &first, 4)?;
    ensure!(node.look(&second.id)?.cpus == widest, "one of two was not told");
    let refused = launch(node, "shop", "third", 1000);
    ensure!(refused.is_err(), "a third has room in {widest}: {refused:?}");

    node.stop(&second.id)?;
    let left = until_wide(node, &first, 2)?;
    ensure!(left.is_subset(&widest), "{widest} became {left}");
    // After kill -9 the group is as it was.
    node.restart_after_kill()?;
    ensure!(node.look(&first.id)?.cpus == left, "a restart has moved the group");
    is_apart(node, &left).map(|_| ())
}

/// Two cores are slots; the container has one of them, alone.
fn cmk_isolate_in_a_command_gives_the_container_a_slot(
    node: &mut Node,
    hardware: &Hardware,
) -> anyhow::Result<()> {
    let usable = |core: &&CpuSet| core.is_disjoint(&hardware.isolated);
    let slots: Vec<CpuSet> = hardware.cores.iter().rev().filter(usable).take(2).cloned().collect();
    let lists: Vec<String> = slots.iter().map(|it| format!("\"{it}\"")).collect();
    node.reset(&format!(
        "groups: [{{name: exclusive, size: {{list: [{}]}}, inside: slots}}]\n",
        lists.join(", ")
    ))?;
    let command =
        "/opt/bin/cmk isolate --conf-dir=/etc/cmk --pool=exclusive /bin/busybox sleep 1000000";
    let command = command.split(' ').map(str::to_owned).collect();
    let spec = ContainerSpec { command, ..ContainerSpec::burstable("app", 1000) };
    let mut taken = CpuSet::new();
    for name in ["first", "second"] {
        let placed = node.launch(&PodSpec::new(name, QosClass::Burstable), &spec)?;
        ensure!(slots.contains(&placed.cpus), "{} is none of {slots:?}", placed.cpus);
        ensure!(placed.cpus.is_disjoint(&taken), "{} are given twice", placed.cpus);
        ensure!(whole(&hardware.cores, &placed.cpus).len() == placed.cpus.len(), "half a core");
        taken.union_with(&placed.cpus);
        // The program runs as if CMK had started it.
        let read = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", placed.pid));
        let line = wait_for("the program to begin", LIMIT, || {
            Ok(Some(read("cmdline")?).filter(|line| line.contains("sleep")))
        })?;
        ensure!(!line.contains("cmk"), "cmk is left in {line:?}");
        let environment = read("environ")?;
        let told = environment.split('\0').find_map(|it| it.strip_prefix("CMK_CPUS_ASSIGNED="));
        let told: CpuSet = told.with_context(|| environment.clone())?.parse()?;
        ensure!(told == placed.cpus, "it is told {told}, and runs on {}", placed.cpus);
    }
    let third = node.launch(&PodSpec::new("third", QosClass::Burstable), &spec);
    ensure!(third.is_err(), "there are two slots: {third:?}");
    let other = launch(node, "default", "other", 100)?;
    ensure!(other.cpus.is_disjoint(&taken), "another runs on {} of {taken}", other.cpus);
    Ok(())
}

fn each_namespace_has_a_numa_node_of_its_own(
    node: &mut Node,
    hardware: &Hardware,
) -> anyhow::Result<()> {
    let mut zones = Vec::new();
    for namespace in ["red", "blue"] {
        let first = launch(node, namespace, "first", 200)?;
        let owner = PodSpec {
            namespace: namespace.to_owned(),
            ..PodSpec::new("second", QosClass::Guaranteed)
        };
        let second =
            node.launch(&owner, &ContainerSpec::guaranteed("app", 1000, Bytes(32 << 20)))?;
        let zone = node.look(&first.id)?;
        ensure!(second.cpus == zone.cpus, "{} and {}", second.cpus, zone.cpus);
        let near = hardware.nodes_of(&zone.cpus);
        ensure!(near.len() == 1, "{} are of the nodes {near}", zone.cpus);
        ensure!(zone.mems == near, "memory of {}, CPUs of {near}", zone.mems);
        zones.push(zone);
    }
    let [red, blue] = zones.as_slice() else { anyhow::bail!("two zones") };
    ensure!(red.cpus.is_disjoint(&blue.cpus), "both have {} and {}", red.cpus, blue.cpus);
    ensure!(node.look(&red.id)? == *red, "the second zone has moved the first");
    Ok(())
}

/// The others of the namespace run on the rest of the node, and have the CPU back when its owner has gone.
fn guaranteed_members_own_cpus_in_the_numa_node_of_their_namespace(
    node: &mut Node,
    hardware: &Hardware,
) -> anyhow::Result<()> {
    let sharer = launch(node, "red", "sharer", 200)?;
    let zone = sharer.cpus.clone();
    ensure!(hardware.nodes_of(&zone).len() == 1, "{zone} are of several NUMA nodes");
    let pod =
        PodSpec { namespace: "red".to_owned(), ..PodSpec::new("owner", QosClass::Guaranteed) };
    let owner = node.launch(&pod, &ContainerSpec::guaranteed("app", 1000, Bytes(32 << 20)))?;
    ensure!(owner.cpus.len() == 1 && owner.cpus.is_subset(&zone), "{} of {zone}", owner.cpus);
    let left = until_wide(node, &sharer, zone.len() - 1)?;
    ensure!(left == zone.difference(&owner.cpus), "{left} and {} of {zone}", owner.cpus);
    let other = launch(node, "default", "other", 100)?;
    ensure!(other.cpus.is_disjoint(&zone), "another runs on {} of {zone}", other.cpus);
    node.stop(&owner.id)?;
    let whole = until_wide(node, &sharer, zone.len())?;
    ensure!(whole == zone, "{zone} became {whole}");
    Ok(())
}
