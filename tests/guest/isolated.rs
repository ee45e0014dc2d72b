//! CPUs that the kernel keeps out of load balancing, at boot or by a partition of another program.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node};
use bayplan_tests::process::wait_for;
use bayplan_types::{Bytes, CpuSet, QosClass};

use crate::exclusive::own;
use crate::files::read_own_cgroup;
use crate::hardware::Hardware;
use crate::{Needs, Test};

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "cpus_isolated_at_boot_are_for_containers_that_ask_for_them",
        needs: |hardware| match hardware.isolated.is_empty() {
            true => Err("no CPU isolated at boot"),
            false => Ok(()),
        },
        config: "permissions: [{namespaces: [\"*\"], allow: [isolatedPartitions]}]\n",
        run: cpus_isolated_at_boot_are_for_containers_that_ask_for_them,
    },
    Test {
        name: "cpus_in_a_partition_of_somebody_else_are_for_nobody",
        needs: |hardware| hardware.has_cpus(6),
        config: "",
        run: |node, hardware| partition(node, hardware, "bayplan-other", "cpuset.cpus"),
    },
    Test {
        name: "cpus_in_a_remote_partition_are_for_nobody",
        needs: has_remote_partitions,
        config: "",
        run: |node, hardware| partition(node, hardware, "bayplan-outer/inner", EXCLUSIVE),
    },
];

const CGROUPS: &str = "/sys/fs/cgroup";
/// Since Linux 6.7; a partition need not be a child of another one then.
const EXCLUSIVE: &str = "cpuset.cpus.exclusive";
const PARTITION: &str = "cpuset.cpus.partition";

pub(crate) fn has_remote_partitions(hardware: &Hardware) -> Needs {
    hardware.has_cpus(6)?;
    let own = read_own_cgroup().map_err(|_| "no cgroup of version 2")?;
    match own.join(EXCLUSIVE).is_file() {
        true => Ok(()),
        false => Err("a kernel without remote partitions"),
    }
}

fn cpus_isolated_at_boot_are_for_containers_that_ask_for_them(
    node: &mut Node,
    hardware: &Hardware,
) -> anyhow::Result<()> {
    let ordinary = own(node, "ordinary", 2)?;
    ensure!(ordinary.cpus.is_disjoint(&hardware.isolated), "not asked: {}", ordinary.cpus);
    let mut pod = PodSpec::new("isolated", QosClass::Guaranteed);
    pod.annotations.push(("bayplan.dev/require-isolated-cpus".to_owned(), "true".to_owned()));
    let spec = ContainerSpec::guaranteed("app", 2000, Bytes(32 << 20));
    let isolated = node.launch(&pod, &spec)?;
    ensure!(isolated.cpus.is_subset(&hardware.isolated), "asked: {}", isolated.cpus);
    ensure!(hardware.nodes_of(&isolated.cpus).len() == 1, "spread: {}", isolated.cpus);
    // Next best to a partition, where none can be had.
    let mut pod = PodSpec::new("asks", QosClass::Guaranteed);
    pod.annotations.push(("bayplan.dev/cpu-partition".to_owned(), "isolated".to_owned()));
    let asks = node.launch(&pod, &spec)?;
    let is_isolated = asks.cpus.is_subset(&hardware.isolated);
    match asks.cgroup_file(PARTITION) {
        // Where it can be had, as here, it is better.
        Ok(kind) if !is_isolated => wait_for("a partition", LIMIT, || {
            Ok((asks.cgroup_file(PARTITION)? == "isolated").then_some(()))
        })
        .with_context(|| format!("asked on {}: {kind}", asks.cpus)),
        _ => {
            ensure!(is_isolated, "asked where there are no partitions: {}", asks.cpus);
            Ok(())
        }
    }
}

/// Takes the last two CPUs, which are a core where cores have two threads, and gives them back.
fn partition(node: &mut Node, hardware: &Hardware, name: &str, file: &str) -> anyhow::Result<()> {
    let all = hardware.cpus.difference(&hardware.isolated);
    let taken: CpuSet = all.iter().skip(all.len() - 2).collect();
    let cgroup = Path::new(CGROUPS).join(name);
    let made = make_partition(&cgroup, file, &taken).and_then(|()| stays_away(node, &all, &taken));
    // Whatever came of it, the next test wants all CPUs.
    for dir in cgroup.ancestors().take_while(|dir| *dir != Path::new(CGROUPS)) {
        fs::remove_dir(dir)?;
    }
    made?;
    wait_for("the CPUs to be shared again", LIMIT, || {
        Ok(taken.is_subset(&node.status()?.cpus.shared.parse()?).then_some(()))
    })
}

fn make_partition(cgroup: &Path, file: &str, cpus: &CpuSet) -> anyhow::Result<()> {
    fs::create_dir_all(cgroup)?;
    let write = |dir: &Path, file: &str, text: &str| {
        fs::write(dir.join(file), text).with_context(|| format!("{file} of {}", dir.display()))
    };
    let above: Vec<&Path> =
        cgroup.ancestors().skip(1).take_while(|dir| *dir != Path::new(CGROUPS)).collect();
    for dir in above.into_iter().rev() {
        write(dir, file, &cpus.to_string())?;
        write(dir, "cgroup.subtree_control", "+cpuset")?;
    }
    write(cgroup, file, &cpus.to_string())?;
    write(cgroup, "cpuset.cpus.partition", "isolated")?;
    let is = fs::read_to_string(cgroup.join("cpuset.cpus.partition"))?;
    ensure!(is.trim() == "isolated", "the kernel says {}", is.trim());
    Ok(())
}

fn stays_away(node: &mut Node, all: &CpuSet, taken: &CpuSet) -> anyhow::Result<()> {
    wait_for("the partition to be seen", LIMIT, || {
        Ok(node.status()?.cpus.shared.parse::<CpuSet>()?.is_disjoint(taken).then_some(()))
    })?;
    let spec = ContainerSpec::burstable("app", 100);
    let sharer = node.launch(&PodSpec::new("sharer", QosClass::Burstable), &spec)?;
    ensure!(sharer.cpus.is_disjoint(taken), "a sharer runs on {}", sharer.cpus);
    // All that can be owned while the sharer keeps a core.
    let owner = own(node, "owner", all.len() - taken.len() - 2)?;
    ensure!(owner.cpus.is_disjoint(taken), "an owner runs on {}", owner.cpus);
    Ok(())
}
