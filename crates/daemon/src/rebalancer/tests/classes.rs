//! Which culprits can be put into narrower classes of resctrl.

use std::path::Path;
use std::sync::Arc;

use bayplan_host::fake_resctrl::FakeResctrl;
use bayplan_node::turned::{Turn, Turned};
use bayplan_rebalance::{Knob, Mode};
use bayplan_types::{CpuSet, NodeSet, QosClass};

use super::{occupancy, occupant, scene_within};
use crate::config::{RebalanceConfig, parse_config};
use crate::enforcer::ClassesKnown;
use crate::rebalancer::reach::Reach;
use crate::rebalancer::scene::{Bounds, Stays};

const CLASSES: &str = "
resctrl:
  partitions:
    all:
      l3Allocation: 100%
      mbAllocation: [100%]
      classes:
        besteffort:
        half: {l3Allocation: 50%}
        quiet: {mbAllocation: [20%]}
";

fn known(config: &str) -> Option<Arc<ClassesKnown>> {
    let mut kernel = FakeResctrl::xeon();
    let controllers = "sys/fs/cgroup/cgroup.controllers".to_owned();
    kernel.rest.files.insert(controllers, "cpu\n".to_owned());
    let config = parse_config(Path::new("f"), config).unwrap();
    ClassesKnown::read(&mut kernel, &config.resctrl).map(Arc::new)
}

/// What can be turned on a hog by these classes, where so much is turned.
#[track_caller]
fn check(config: &str, turned: &[(Knob, u32)], expected: &[Knob]) {
    let hog = occupant(2, "hog", QosClass::BestEffort, "0-1");
    let target = hog.id;
    let turn = |(knob, step): &(Knob, u32)| {
        let (knob, step, leave) = (*knob, *step, CpuSet::new());
        Turn { knob, target, step, leave, mems: NodeSet::new() }
    };
    let mut occupancy = occupancy(vec![hog]);
    occupancy.turned = Turned::from_turns((1..).zip(turned.iter().map(turn)));
    let classes = known(config);
    let of_classes = [Knob::Cache, Knob::Bandwidth].into_iter().filter(|_| classes.is_some());
    let reach = Reach { knobs: of_classes.collect(), lacking: None, classes: classes.clone() };
    let config = RebalanceConfig { mode: Mode::Act, ..RebalanceConfig::default() };
    let bounds = Bounds { config: &config, reach: &reach };
    let scene = scene_within(&occupancy, &Stays::default(), bounds, false);
    let found = scene.residents[&target].knobs.iter().copied();
    let found: Vec<Knob> = found.filter(|it| matches!(it, Knob::Cache | Knob::Bandwidth)).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_class_is_offered_until_there_is_no_narrower_one() {
    check(CLASSES, &[], &[Knob::Cache, Knob::Bandwidth]);
    check(CLASSES, &[(Knob::Cache, 1)], &[]);
    check(CLASSES, &[(Knob::Bandwidth, 3)], &[]);
    let wider = CLASSES.replace("50%}\n", "50%}\n        third: {l3Allocation: 30%}\n");
    check(&wider, &[(Knob::Cache, 1)], &[Knob::Cache]);
}

/// Its threads are in one class only.
#[test]
fn of_cache_and_bandwidth_only_one_is_offered_for_a_culprit() {
    check(CLASSES, &[(Knob::Cache, 1), (Knob::Bandwidth, 3)], &[]);
    let wider = CLASSES.replace("[20%]}\n", "[20%]}\n        least: {mbAllocation: [10%]}\n");
    check(&wider, &[(Knob::Bandwidth, 1)], &[Knob::Bandwidth]);
    check(&wider, &[(Knob::Cache, 1)], &[]);
}

#[test]
fn without_a_class_of_that_kind_it_is_not_offered() {
    check("", &[], &[]);
    check(&CLASSES.replace("        half: {l3Allocation: 50%}\n", ""), &[], &[Knob::Bandwidth]);
    check(&CLASSES.replace("{mbAllocation: [20%]}", ""), &[], &[Knob::Cache]);
}
