//! Who suffers from whom, with real programs: what the rebalancer says of a server beside a hog.

use std::time::Duration;

use bayplan_tests::node::Node;
use bayplan_tests::under_load::{self, Sizes};

use crate::Test;
use crate::exclusive::own;
use crate::hardware::Hardware;

pub(crate) const TESTS: &[Test] = &[Test {
    name: "the_rebalancer_blames_the_hog_and_not_the_bystander",
    needs: |hardware| hardware.has_cpus(4),
    config: "rebalance: {interval: 2s}\n",
    run: the_rebalancer_blames_the_hog,
}];

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

/// Somebody owns all CPUs but two, so that the others cannot get out of each other's way.
fn leave_one_core(node: &mut Node, hardware: &Hardware) -> anyhow::Result<()> {
    let shared = hardware.cpus.difference(&hardware.isolated);
    own(node, "owner", shared.len() - 2).map(drop)
}
