use std::fs;
use std::path::Path;

use bayplan_topology::{derive, parse_machine};
use bayplan_types::CpuClass;
use bayplan_workload::annotations::Tuning;

use super::*;
use crate::observer::tests::occupant;

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A node with four cores of two threads, a BestEffort pod, and a container with three cores that lends.
struct Node {
    root: tempfile::TempDir,
    config: Config,
    topology: Topology,
    occupancy: Occupancy,
    eyes: Eyes,
    start: Instant,
    seconds: u64,
    /// In hundredths of a second for each CPU, and in microseconds.
    idle: u64,
    lowest_usec: u64,
    owner_usec: u64,
    stalled_usec: u64,
}

const OWNER: &str = "sys/fs/cgroup/kubepods/pod1/own";
const CLASS: &str = "sys/fs/cgroup/kubepods/besteffort";

impl Node {
    fn new(node_percent: usize, borrows: bool) -> Node {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "sys/fs/cgroup/cgroup.controllers", "cpu\n");
        write(root.path(), &format!("{CLASS}/pod2/low/cgroup.type"), "domain\n");
        write(root.path(), &format!("{OWNER}/cgroup.type"), "domain\n");
        let mut config = Config { host_root: root.path().to_owned(), ..Config::default() };
        (config.best_effort.node_percent, config.best_effort.borrows) = (node_percent, borrows);
        let mut low = occupant("low", 0, "low");
        let spec = Arc::make_mut(&mut low.spec);
        spec.pod.qos = Some(QosClass::BestEffort);
        spec.pod.cgroup_parent = "/kubepods/besteffort/pod2".to_owned();
        let own = Occupant {
            id: ContainerId(1),
            class: CpuClass::Exclusive,
            exclusive: "1-3,5-7".parse().unwrap(),
            tuning: Arc::new(Tuning { lends: Some(true), ..Tuning::default() }),
            ..occupant("own", 0, "own")
        };
        let topology = derive(&parse_machine("numa:1 core:4 pu:2").unwrap()).unwrap();
        let occupancy = Occupancy { occupants: vec![low, own], ..Occupancy::default() };
        Node {
            root,
            config,
            topology,
            occupancy,
            eyes: Eyes::default(),
            start: Instant::now(),
            seconds: 0,
            idle: 0,
            lowest_usec: 0,
            owner_usec: 0,
            stalled_usec: 0,
        }
    }

    /// A second in which each CPU was busy for so much of it, and the two used so many CPUs; waiting in thousandths.
    fn second(&mut self, busy: f64, lowest: f64, owner: f64, waited: u64) -> Colocation {
        self.seconds += 1;
        self.idle += milli(1.0 - busy).0 / 10;
        self.lowest_usec += milli(lowest).0 * 1000;
        self.owner_usec += milli(owner).0 * 1000;
        self.stalled_usec += waited * 1000;
        let root = self.root.path();
        let stat: String =
            (0..8).map(|cpu| format!("cpu{cpu} 0 0 0 {} 0 0 0 0 0 0\n", self.idle)).collect();
        write(root, "proc/stat", &format!("cpu  0 0 0 0 0\n{stat}intr 0\n"));
        write(root, &format!("{CLASS}/cpu.stat"), &format!("usage_usec {}\n", self.lowest_usec));
        write(root, &format!("{OWNER}/cpu.stat"), &format!("usage_usec {}\n", self.owner_usec));
        let stall = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={}\n", self.stalled_usec);
        write(root, &format!("{OWNER}/cpu.pressure"), &stall);
        let now = self.start + Duration::from_secs(self.seconds);
        self.eyes.look(&self.config, &self.occupancy, &self.topology, now)
    }
}

#[test]
fn the_budget_is_what_all_else_leaves_of_the_mark() {
    let mut node = Node::new(65, false);
    // Without a look before there is nothing to compare with.
    assert_eq!(node.second(0.5, 1.0, 0.1, 0), Colocation::default());
    // Of 8 CPUs 5.2 are the mark; 4 are busy, one of them with BestEffort pods.
    let budgets = [(0.5, 1.0), (0.25, 2.0), (1.0, 0.0)].map(|(busy, lowest)| {
        let found = node.second(busy, lowest, 0.1, 0);
        assert!(found.lent.is_empty());
        found.budget.unwrap().0
    });
    assert_eq!(budgets, [2200, 3000, 400]);
    // With the last BestEffort pod it ends.
    node.occupancy.occupants.remove(0);
    assert_eq!(node.second(0.5, 0.0, 0.1, 0).budget, None);
}

#[test]
fn whole_cores_are_lent_and_come_back_with_a_delay() {
    let mut node = Node::new(0, true);
    let mut lent = String::new();
    for _ in 0..60 {
        let found = node.second(0.1, 0.1, 0.1, 0);
        assert_eq!(found.budget, None);
        lent = found.lent.get(&ContainerId(1)).map(CpuSet::to_string).unwrap_or_default();
    }
    // Of three cores one is kept beside the one that is used.
    assert_eq!(lent, "3,7");
    assert_eq!(node.second(0.1, 0.1, 0.1, 200).lent, BTreeMap::new());
}

#[test]
fn who_does_not_agree_or_is_kept_from_all_others_lends_nothing() {
    let changes: [fn(&mut Node); 4] = [
        |node| node.config.best_effort.borrows = false,
        |node| node.config.partition = CpuPartition::Root,
        |node| node.occupancy.occupants[1].tuning = Arc::default(),
        |node| node.occupancy.occupants[1].is_left_alone = true,
    ];
    for change in changes {
        let mut node = Node::new(0, true);
        change(&mut node);
        for _ in 0..60 {
            assert_eq!(node.second(0.1, 0.1, 0.1, 0), Colocation::default());
        }
    }
}
