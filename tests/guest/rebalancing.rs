//! Who suffers from whom, with real programs: what the rebalancer says and does about a server beside a hog.

use std::time::Duration;

use bayplan_tests::node::Node;
use bayplan_tests::under_load::{self, Sizes};
use bayplan_types::CpuSet;

use crate::Test;
use crate::exclusive::own;
use crate::files::Busy;
use crate::hardware::Hardware;

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "the_rebalancer_blames_the_hog_and_not_the_bystander",
        needs: |hardware| hardware.has_cpus(4),
        config: "rebalance: {interval: 2s}\n",
        run: the_rebalancer_blames_the_hog,
    },
    Test {
        name: "what_the_rebalancer_keeps_helps_and_a_pause_takes_it_back",
        needs: |hardware| hardware.has_cpus(4),
        config: "rebalance: {interval: 2s, forbid: [idle]}\n",
        run: what_the_rebalancer_keeps_helps,
    },
    Test {
        name: "what_the_rebalancer_turns_in_vain_it_takes_back",
        needs: |hardware| hardware.has_cpus(4),
        config: "rebalance: {mode: act, interval: 2s, forbid: [suppress, evict]}\n",
        run: what_is_turned_in_vain,
    },
];

/// Among BestEffort pods only `idle` changes anything, and the server is in none.
const ACT: &str = "rebalance: {mode: act, interval: 2s, forbid: [idle]}\n";

/// Few requests and short calm, because everything is slow here.
const SIZES: Sizes = Sizes {
    hogs: 2,
    requests: 1000,
    calm_looks: 10,
    looks: 30,
    interval: Duration::from_secs(2),
    rounds: 5,
};

fn the_rebalancer_blames_the_hog(node: &mut Node, hardware: &Hardware) -> anyhow::Result<()> {
    leave_one_core(node, hardware)?;
    under_load::the_hog_is_blamed(node, SIZES)
}

fn what_the_rebalancer_keeps_helps(node: &mut Node, hardware: &Hardware) -> anyhow::Result<()> {
    leave_one_core(node, hardware)?;
    under_load::what_is_kept_helps(node, SIZES, ACT)
}

fn what_is_turned_in_vain(node: &mut Node, hardware: &Hardware) -> anyhow::Result<()> {
    let left = leave_one_core(node, hardware)?;
    under_load::what_does_not_help_is_taken_back(node, SIZES, || Busy::start(&left))
}

/// Somebody owns all CPUs but two, so that the others cannot get out of each other's way.
fn leave_one_core(node: &mut Node, hardware: &Hardware) -> anyhow::Result<CpuSet> {
    let shared = hardware.cpus.difference(&hardware.isolated);
    let owner = own(node, "owner", shared.len() - 2)?;
    Ok(shared.difference(&owner.cpus))
}
