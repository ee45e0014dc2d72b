use std::fs;
use std::path::Path;

use bayplan_allocator::ContainerId;
use bayplan_topology::{derive, parse_machine};
use bayplan_types::CpuClass;
use bayplan_workload::annotations::Tuning;

use super::*;
use crate::enforcer::RuntimeCalls;
use crate::inbox::inbox;
use crate::observer::tests::occupant;
use crate::rebalancer::take_back;

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
    idle: [u64; 8],
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
            idle: [0; 8],
            lowest_usec: 0,
            owner_usec: 0,
            stalled_usec: 0,
        }
    }

    /// A second in which each CPU was busy for so much of it, and the two used so many CPUs; waiting in thousandths.
    fn second(&mut self, busy: f64, lowest: f64, owner: f64, waited: u64) -> Colocation {
        self.second_on([busy; 8], lowest, owner, waited)
    }

    /// As [`Self::second`], by CPU.
    fn second_on(&mut self, busy: [f64; 8], lowest: f64, owner: f64, waited: u64) -> Colocation {
        self.seconds += 1;
        for (idle, busy) in self.idle.iter_mut().zip(busy) {
            *idle += milli(1.0 - busy).0 / 10;
        }
        self.lowest_usec += milli(lowest).0 * 1000;
        self.owner_usec += milli(owner).0 * 1000;
        self.stalled_usec += waited * 1000;
        let root = self.root.path();
        let line = |(cpu, idle)| format!("cpu{cpu} 0 0 0 {idle} 0 0 0 0 0 0\n");
        let stat: String = self.idle.iter().enumerate().map(line).collect();
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
        let found = node.second(0.02, 0.1, 0.1, 0);
        assert_eq!(found.budget, None);
        lent = found.lent.get(&ContainerId(1)).map(CpuSet::to_string).unwrap_or_default();
    }
    // Of three cores one is kept beside the one that is used.
    assert_eq!(lent, "3,7");
    assert_eq!(node.second(0.02, 0.1, 0.1, 200).lent, BTreeMap::new());
}

/// A minute in which the CPUs were so busy; the CPUs that are lent after it.
fn lent_after_a_minute(node: &mut Node, busy: [f64; 8]) -> String {
    for _ in 1..60 {
        node.second_on(busy, 0.1, 0.5, 0);
    }
    let found = node.second_on(busy, 0.1, 0.5, 0);
    found.lent.get(&ContainerId(1)).map(CpuSet::to_string).unwrap_or_default()
}

/// Cores are CPUs 0 and 4, 1 and 5 and so on; the second thread of a core may be the busy one.
#[test]
fn of_an_owner_the_idle_core_is_lent_and_not_the_last_one() {
    let busy = [0.0, 0.5, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0];
    assert_eq!(lent_after_a_minute(&mut Node::new(0, true), busy), "2,6");
    let busy = [0.0, 0.5, 0.0, 0.5, 0.0, 0.0, 0.2, 0.0];
    assert_eq!(lent_after_a_minute(&mut Node::new(0, true), busy), "");
}

#[test]
fn a_pause_and_a_restore_end_what_was_found_and_all_begins_anew() {
    let pauses: [fn(&mut Occupancy, bool); 2] =
        [|it, is_on| it.is_rebalance_paused = is_on, |it, is_on| it.is_restored = is_on];
    for pause in pauses {
        let mut node = Node::new(65, true);
        assert_eq!(lent_after_a_minute(&mut node, [0.0; 8]), "3,7");
        pause(&mut node.occupancy, true);
        assert_eq!(node.second(0.0, 0.1, 0.1, 0), Colocation::default());
        pause(&mut node.occupancy, false);
        // As at the start: what was seen before the pause does not count.
        for _ in 0..30 {
            assert_eq!(node.second(0.0, 0.1, 0.1, 0).lent, BTreeMap::new());
        }
        assert_eq!(lent_after_a_minute(&mut node, [0.0; 8]), "3,7");
    }
}

#[test]
fn an_owner_that_does_not_agree_or_is_kept_from_all_others_lends_nothing() {
    let changes: [fn(&mut Node); 5] = [
        |node| node.config.best_effort.borrows = false,
        |node| node.config.partition = CpuPartition::Root,
        |node| node.occupancy.occupants[1].tuning = Arc::default(),
        |node| node.occupancy.occupants[1].is_left_alone = true,
        |node| node.occupancy.occupants[1].is_together = true,
    ];
    for change in changes {
        let mut node = Node::new(0, true);
        change(&mut node);
        for _ in 0..60 {
            assert_eq!(node.second(0.0, 0.1, 0.1, 0), Colocation::default());
        }
    }
}

/// The task that shares goes on, and would not know that nothing of what it has asked for holds.
#[tokio::test]
async fn a_bug_in_the_rebalancer_ends_no_loans_and_a_stop_does() {
    let (inbox, mut events) = inbox(4);
    let (enforcement, _questions) = Enforcement::new(RuntimeCalls::default());
    let answering = async {
        let mut told = Vec::new();
        for _ in 0..2 {
            let Some(asked) = events.0.recv().await else { break };
            told.push(match asked.event {
                Event::Turn(_) => "turn",
                Event::Colocate(_) => "colocate",
                _ => "else",
            });
            asked.answer.send(Answer::Since(None)).unwrap();
        }
        told
    };
    let ending = async {
        take_back(&inbox, &enforcement).await;
        share_no_more(&inbox, &enforcement).await;
    };
    let (told, ()) = tokio::join!(answering, ending);
    assert_eq!(told, ["turn", "colocate"]);
}
