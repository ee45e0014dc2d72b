//! A daemon that ends in any way, and one that comes back with another configuration.

use anyhow::ensure;
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node, Placed};
use bayplan_tests::process::wait_for;
use bayplan_tests::scenario::{self, Host};
use bayplan_types::{CpuSet, QosClass};

use crate::Test;
use crate::exclusive::own;
use crate::hardware::Hardware;

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "no_container_moves_when_the_daemon_ends",
        needs: |hardware| hardware.has_cpus(6),
        config: "",
        run: no_container_moves_when_the_daemon_ends,
    },
    Test {
        name: "a_container_that_ended_while_the_daemon_was_dead_is_forgotten",
        needs: |hardware| hardware.has_cpus(4),
        config: "resyncInterval: 2s\n",
        run: a_container_that_ended_while_the_daemon_was_dead_is_forgotten,
    },
    Test {
        name: "a_new_configuration_holds_for_new_and_for_shared_containers",
        needs: |hardware| hardware.has_cpus(6),
        config: "",
        run: a_new_configuration_holds_for_new_and_for_shared_containers,
    },
    Test {
        name: "the_scenario_with_cpus_that_come_and_go",
        needs: |hardware| match hardware.isolated.is_empty() {
            true => hardware.has_cpus(4),
            false => Err("CPUs isolated at boot"),
        },
        config: "",
        run: |node, _| scenario::play(node, 2, Host::Own),
    },
];

fn sharer(node: &mut Node, name: &str) -> anyhow::Result<Placed> {
    let spec = ContainerSpec::burstable("app", 200);
    node.launch(&PodSpec::new(name, QosClass::Burstable), &spec)
}

fn no_container_moves_when_the_daemon_ends(node: &mut Node, _: &Hardware) -> anyhow::Result<()> {
    let all = [own(node, "pair", 2)?, own(node, "single", 1)?, sharer(node, "sharer")?];
    let before =
        all.iter().map(|placed| node.look(&placed.id)).collect::<anyhow::Result<Vec<Placed>>>()?;
    let check = |node: &Node, after: &str| -> anyhow::Result<()> {
        for due in &before {
            let now = node.look(&due.id)?;
            ensure!(now == *due, "after {after}: {now:?}, before {due:?}");
            let told = node.status_of(&due.id)?;
            ensure!(told.cpus == due.cpus.to_string(), "after {after} the status has {told:?}");
        }
        Ok(())
    };
    node.restart_after_kill()?;
    check(node, "SIGKILL")?;
    node.reconfigure("")?;
    check(node, "SIGTERM")?;
    let late = own(node, "late", 1)?;
    for due in before.iter().take(2) {
        ensure!(late.cpus.is_disjoint(&due.cpus), "{} are owned twice", late.cpus);
    }
    Ok(())
}

fn a_container_that_ended_while_the_daemon_was_dead_is_forgotten(
    node: &mut Node,
    _: &Hardware,
) -> anyhow::Result<()> {
    let gone = own(node, "gone", 2)?;
    node.kill()?;
    std::process::Command::new("kill").args(["-KILL", &gone.pid.to_string()]).status()?;
    node.start_again()?;
    wait_for("its CPUs to be shared", LIMIT, || {
        Ok(node.status()?.cpus.exclusive.is_empty().then_some(()))
    })
}

fn a_new_configuration_holds_for_new_and_for_shared_containers(
    node: &mut Node,
    hardware: &Hardware,
) -> anyhow::Result<()> {
    let owner = own(node, "owner", 2)?;
    let shares = sharer(node, "sharer")?;
    // A core of the node on which the sharer is, and not the owner's.
    let free = hardware.cores.iter().find(|core| {
        core.is_disjoint(&owner.cpus)
            && core.is_disjoint(&hardware.isolated)
            && core.is_subset(&shares.cpus)
    });
    let reserved: CpuSet = free.cloned().unwrap_or_default();
    ensure!(!reserved.is_empty(), "no core to reserve beside {} in {}", owner.cpus, shares.cpus);
    node.reconfigure(&format!("reservedCpus: \"{reserved}\"\n"))?;
    wait_for("the sharer to leave the reserved CPUs", LIMIT, || {
        Ok(node.glance(&shares.id)?.filter(|now| now.cpus.is_disjoint(&reserved)))
    })?;
    let now = node.look(&owner.id)?;
    ensure!(now.cpus == owner.cpus, "the owner moved from {} to {}", owner.cpus, now.cpus);
    let mut pod = PodSpec::new("system", QosClass::Burstable);
    pod.namespace = "kube-system".to_owned();
    let system = node.launch(&pod, &ContainerSpec::burstable("app", 100))?;
    ensure!(system.cpus == reserved, "a system pod runs on {}", system.cpus);
    Ok(())
}
