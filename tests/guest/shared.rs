//! Shared CPUs: what owners leave, and what comes back; mixed containers; reserved CPUs.

use anyhow::ensure;
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node};
use bayplan_tests::process::wait_for;
use bayplan_types::{Bytes, CpuSet, MilliCpu, QosClass};

use crate::Test;
use crate::exclusive::own;
use crate::hardware::Hardware;

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "shared_cpus_shrink_and_grow",
        needs: |hardware| hardware.has_cpus(4),
        config: "",
        run: shared_cpus_shrink_and_grow,
    },
    Test {
        name: "a_mixed_container_owns_a_cpu_and_shares_the_rest_of_its_node",
        needs: |hardware| hardware.has_cpus(6),
        config: "",
        run: a_mixed_container_owns_a_cpu_and_shares_the_rest_of_its_node,
    },
    Test {
        name: "system_pods_run_on_the_reserved_cpus",
        needs: |hardware| hardware.has_cpus(4),
        config: "reservedCpus: \"0\"\n",
        run: system_pods_run_on_the_reserved_cpus,
    },
];

/// A sharer of the whole machine feels every owner.
fn shared_cpus_shrink_and_grow(node: &mut Node, hardware: &Hardware) -> anyhow::Result<()> {
    let all = hardware.cpus.difference(&hardware.isolated);
    let limit = MilliCpu(u64::try_from(all.len())? * 1000);
    let wide = ContainerSpec { cpu_limit: Some(limit), ..ContainerSpec::burstable("app", 100) };
    let sharer = node.launch(&PodSpec::new("sharer", QosClass::Burstable), &wide)?;
    ensure!(sharer.cpus == all, "alone on {}, not on {all}", sharer.cpus);
    let mut left = all.clone();
    let mut owners = Vec::new();
    for index in 0..2 {
        let owner = own(node, &format!("owner{index}"), 1)?;
        left.subtract(&owner.cpus);
        let now = node.look(&sharer.id)?;
        ensure!(now.cpus == left, "shared {}, not {left}", now.cpus);
        ensure!(now.pid == sharer.pid, "the sharer was started anew");
        owners.push(owner);
    }
    for owner in owners {
        node.stop(&owner.id)?;
        left.union_with(&owner.cpus);
        wait_for("the shared set to grow", LIMIT, || {
            Ok(node.glance(&sharer.id)?.filter(|now| now.cpus == left))
        })?;
    }
    ensure!(left == all, "{left} came back of {all}");
    Ok(())
}

fn a_mixed_container_owns_a_cpu_and_shares_the_rest_of_its_node(
    node: &mut Node,
    hardware: &Hardware,
) -> anyhow::Result<()> {
    let spec = ContainerSpec::guaranteed("app", 1500, Bytes(32 << 20));
    let mixed = node.launch(&PodSpec::new("mixed", QosClass::Guaranteed), &spec)?;
    let owned = node.exclusive_of(&mixed.id)?;
    ensure!(owned.len() == 1 && owned.is_subset(&mixed.cpus), "owns {owned} of {}", mixed.cpus);
    let near = hardware.nodes_of(&owned);
    ensure!(mixed.mems == near, "memory of {}, CPUs of {near}", mixed.mems);
    let around = hardware.places().find(|it| near.contains(it.id)).map(|it| it.cpus.clone());
    let around = around.unwrap_or_default().difference(&hardware.isolated);
    ensure!(mixed.cpus == around, "runs on {}, its node has {around}", mixed.cpus);
    let other = own(node, "other", 1)?;
    ensure!(other.cpus.is_disjoint(&owned), "{} are owned twice", other.cpus);
    let now = node.look(&mixed.id)?;
    ensure!(now.cpus == around.difference(&other.cpus), "still on {}", now.cpus);
    Ok(())
}

fn system_pods_run_on_the_reserved_cpus(node: &mut Node, _: &Hardware) -> anyhow::Result<()> {
    let reserved: CpuSet = "0".parse()?;
    let spec = ContainerSpec::burstable("app", 100);
    let mut pod = PodSpec::new("system", QosClass::Burstable);
    pod.namespace = "kube-system".to_owned();
    let system = node.launch(&pod, &spec)?;
    ensure!(system.cpus == reserved, "a system pod runs on {}", system.cpus);
    let user = node.launch(&PodSpec::new("user", QosClass::Burstable), &spec)?;
    ensure!(user.cpus.is_disjoint(&reserved), "a user's pod runs on {}", user.cpus);
    let owner = own(node, "owner", 2)?;
    ensure!(owner.cpus.is_disjoint(&reserved), "an owner runs on {}", owner.cpus);
    Ok(())
}
