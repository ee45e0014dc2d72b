//! Bayplan as a plugin of a containerd with cgroup v2: 2 with `--containerd 2`, 1.7 with `--containerd 1.7`. The guest's own one (1.6) has no NRI.

use anyhow::ensure;
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_tests::node::{LIMIT, Node, Way};
use bayplan_tests::process::wait_for;
use bayplan_tests::scenario::{self, Host};
use bayplan_tests::thread_scheduling;
use bayplan_types::{Bytes, QosClass};

use crate::Test;
use crate::arrival;
use crate::exclusive::own;
use crate::hardware::Hardware;

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "as_a_plugin_the_scenario_with_cpus_that_come_and_go",
        needs: |hardware| match hardware.isolated.is_empty() {
            true => hardware.has_cpus(4),
            false => Err("CPUs isolated at boot"),
        },
        config: "",
        run: |node, _| as_a_plugin(node, "", |node| scenario::play(node, 2, Host::Own)),
    },
    Test {
        name: "as_a_plugin_what_is_promised_holds_at_every_first_instruction",
        needs: |hardware| hardware.has_cpus(4),
        config: "",
        run: |node, _| as_a_plugin(node, arrival::CONFIG, holds_ten_times),
    },
    Test {
        name: "as_a_plugin_a_resize_is_made_and_no_container_moves_on_the_way_there_and_back",
        needs: |hardware| hardware.has_cpus(6),
        config: "",
        run: a_resize_is_made,
    },
    Test {
        name: "as_a_plugin_threads_have_the_policy_of_their_class",
        needs: |hardware| hardware.has_cpus(2),
        config: "",
        run: |node, _| as_a_plugin(node, thread_scheduling::CONFIG, thread_scheduling::play),
    },
];

/// Containers that are asked for their first words.
const STARTS: usize = 10;

/// Plays with the other front end, and goes back to the proxy whatever comes of it.
fn as_a_plugin(
    node: &mut Node,
    config: &str,
    play: impl FnOnce(&mut Node) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let played = node.switch(Way::Plugin, config).and_then(|()| play(node));
    let returned = node.switch(Way::Proxy, "");
    played.and(returned)
}

/// The runtime waits with the start, so it is not most of them, but all.
fn holds_ten_times(node: &mut Node) -> anyhow::Result<()> {
    let early = arrival::early(node, STARTS)?;
    ensure!(early.is_empty(), "{} of {STARTS}: {early:#?}", early.len());
    Ok(())
}

fn a_resize_is_made(node: &mut Node, _: &Hardware) -> anyhow::Result<()> {
    let owner = own(node, "owner", 2)?;
    let spec = ContainerSpec::burstable("app", 200);
    let sharer = node.launch(&PodSpec::new("sharer", QosClass::Burstable), &spec)?;
    let before = (node.look(&owner.id)?, node.look(&sharer.id)?);
    as_a_plugin(node, "", |node| {
        ensure!((node.look(&owner.id)?, node.look(&sharer.id)?) == before, "moved on the way");
        let wanted = ContainerSpec::guaranteed("app", 3000, Bytes(32 << 20));
        node.resize(&owner.id, &wanted)?;
        let now = wait_for("three CPUs", LIMIT, || {
            Ok(node.glance(&owner.id)?.filter(|now| now.cpus.len() == 3))
        })?;
        ensure!(owner.cpus.is_subset(&now.cpus), "{} became {}", owner.cpus, now.cpus);
        wait_for("the sharer to leave", LIMIT, || {
            Ok(node.glance(&sharer.id)?.filter(|it| it.cpus.is_disjoint(&now.cpus)))
        })?;
        node.resize(&owner.id, &ContainerSpec::guaranteed("app", 2000, Bytes(32 << 20)))?;
        wait_for("two CPUs", LIMIT, || {
            Ok(node.glance(&owner.id)?.filter(|now| now.cpus.len() == 2).map(drop))
        })
    })
}
