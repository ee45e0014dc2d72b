//! The whole loop on scripts: who is where, what is measured round by round, and what is said.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_topology::{derive, parse_machine};
use bayplan_types::{CpuClass, NodeSet, QosClass};
use expect_test::{Expect, expect};

use crate::render::{render_proposal, render_verdict};
use crate::{
    Decision, Knob, Mode, Outcome, Rebalancer, Resident, Round, Sample, Scene, Settings, Unrest,
    Workload,
};

mod harness;
mod properties;

use harness::{check, check_with};

const TWO_ON_FOUR_CPUS: &str = "
    machine pack:1 numa:1 l3:1 core:4 pu:1
    web guaranteed 0-3
    hog besteffort 0-3
";

#[test]
fn a_besteffort_hog_is_made_idle_and_this_is_kept() {
    check(
        TWO_ON_FOUR_CPUS,
        "
        20 rounds  web cpus=2 pressure=0.02  hog cpus=0
        until a proposal  web cpus=2 pressure=0.5  hog cpus=2
        4 rounds  web cpus=2 pressure=0.03  hog cpus=1.8
        ",
        expect![[r#""#]],
    );
}
