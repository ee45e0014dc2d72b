//! Machines that change under running containers, as text: what happens, one step per line, and what is written, noted and held after it.

mod config;
mod nodes;
mod set_apart;

use std::collections::BTreeMap;

use bayplan_allocator::policy::{Policy, pools};
use bayplan_allocator::{Ledger, check_ledger};
use bayplan_enforcement::render_plan;
use bayplan_topology::{Topology, derive, parse_machine};
use bayplan_types::QosClass;
use bayplan_workload::annotations::Rule;
use bayplan_workload::{
    Admission, CreateOutcome, NewContainer, Pod, RequestRules, Resources, Ticket,
};
use expect_test::{Expect, expect};

use super::*;
use crate::event::{Event, fingerprint};
use crate::record::replay;

/// Plays steps on a machine and shows the writes, notes and places after each that is not a creation:
///
/// - `NAME CPUS`: a Guaranteed container, `NAME ~CPUS` a Burstable one, `NAME !CPUS` a system pod, each with 1 GiB or
///   what follows; `begin NAME CPUS` only asks, and `end NAME` is the runtime's answer;
/// - `stop NAME`;
/// - `off LIST`: these CPUs are offline, and no others; `isolate LIST` the same for isolated ones; `machine LINE`: it is another;
/// - `reserve LIST`: other CPUs are configured as reserved, `system NAMES` other namespaces for them, and `one-pool` and `tree` another policy;
/// - `restart`: killed, and back with the journal; `same` if all have the places that they had; `start LIST`: killed, and back on a machine on
///   which these CPUs are offline.
#[track_caller]
fn check(line: &str, reserved: &str, steps: &[&str], expected: Expect) {
    let mut node = Node::new(line, reserved);
    let mut text = String::new();
    for step in steps {
        text.push_str(&node.play(step));
        assert_eq!(check_ledger(&node.state.ledger), Vec::<String>::new(), "{step}");
    }
    expected.assert_eq(&text);
}

struct Node {
    line: String,
    reserved: CpuSet,
    namespaces: Vec<String>,
    policy: Policy,
    offline: String,
    isolated: String,
    state: NodeState,
    journal: Vec<String>,
    tickets: BTreeMap<String, Ticket>,
}

impl Node {
    fn new(line: &str, reserved: &str) -> Node {
        let reserved = reserved.parse().unwrap();
        let topology = derive(&parse_machine(line).unwrap()).unwrap();
        let pools = pools(&topology, Policy::default(), &reserved).unwrap();
        let namespaces = vec!["kube-system".to_owned()];
        let state = fresh(pools, fingerprint(&topology), &namespaces);
        Node {
            line: line.to_owned(),
            reserved,
            namespaces,
            policy: Policy::default(),
            offline: String::new(),
            isolated: String::new(),
            state,
            journal: Vec::new(),
            tickets: BTreeMap::new(),
        }
    }

    fn topology(&self) -> Topology {
        let mut line = self.line.clone();
        for (option, cpus) in [("offline", &self.offline), ("isolated", &self.isolated)] {
            if !cpus.is_empty() {
                line.push_str(&format!(" {option}:{cpus}"));
            }
        }
        derive(&parse_machine(&line).unwrap()).unwrap()
    }

    fn play(&mut self, step: &str) -> String {
        let words: Vec<&str> = step.split_whitespace().collect();
        let rest = || words[1..].join(" ");
        match words[0] {
            "begin" => self.begin(words[1], &words[2..]),
            "end" => {
                let step = self.end(words[1]);
                format!(
                    "> {}: waits {}\n{}",
                    words.join(" "),
                    step.answers_after_plan,
                    self.show(&step)
                )
            }
            "stop" => {
                self.step(Event::Ended(words[1].to_owned()));
                String::new()
            }
            "off" | "isolate" | "machine" => {
                match words[0] {
                    "off" => self.offline = rest(),
                    "isolate" => self.isolated = rest(),
                    _ => self.line = rest(),
                }
                let machine = ChangedMachine::new(&self.topology(), self.policy, &self.reserved);
                let done = self.step(Event::MachineChanged(Box::new(machine)));
                format!("> {step}\n{}", self.show(&done))
            }
            "reserve" | "system" | "one-pool" | "tree" => {
                match words[0] {
                    "reserve" => self.reserved = rest().parse().unwrap(),
                    "one-pool" => self.policy = Policy::OneSharedPool,
                    "tree" => self.policy = Policy::TopologyAware,
                    _ => self.namespaces = words[1..].iter().map(|&it| it.to_owned()).collect(),
                }
                format!("> {step}\n{}", self.configure())
            }
            "restart" | "start" => {
                if words[0] == "start" {
                    self.write_journal();
                    self.offline = rest();
                }
                let ChangedMachine { pools, fingerprint, .. } =
                    ChangedMachine::new(&self.topology(), self.policy, &self.reserved);
                let before = self.state.ledger.holdings().clone();
                let live = replay(&self.journal);
                if words[0] == "restart" {
                    assert_eq!(live.fingerprint.as_ref(), Some(&fingerprint));
                }
                let again = fresh(pools, fingerprint, &self.namespaces);
                let told = std::mem::replace(&mut self.state, again).told;
                let step = self.state.restore(live, Timestamp::UNIX_EPOCH);
                // As the first sync finds it.
                self.state.told = told;
                let is_same = *self.state.ledger.holdings() == before;
                if words[0] == "restart" {
                    return format!("> restart: same {is_same}\n{}", notes(&step));
                }
                format!("> {}\n{}", words.join(" "), self.show(&step))
            }
            name => {
                self.begin(name, &words[1..]);
                self.end(name);
                String::new()
            }
        }
    }

    /// As the daemon does at its start.
    fn write_journal(&mut self) {
        let records = self.state.snapshot_records();
        let lines = records.iter().map(|record| serde_json::to_string(record).unwrap());
        self.journal = lines.collect();
    }

    fn step(&mut self, event: Event) -> Step {
        let step = self.state.step(event, Timestamp::UNIX_EPOCH);
        let lines = step.records.iter().map(|record| serde_json::to_string(record).unwrap());
        self.journal.extend(lines);
        step
    }

    fn begin(&mut self, name: &str, asked: &[&str]) -> String {
        let cpus = asked[0];
        let gib: i64 = asked.get(1).map_or(1, |gib| gib.parse().unwrap());
        let (qos, namespace, cpus) = match cpus.split_at(1) {
            ("~", cpus) => (QosClass::Burstable, "default", cpus),
            ("!", cpus) => (QosClass::Burstable, "kube-system", cpus),
            _ => (QosClass::Guaranteed, "default", cpus),
        };
        let milli = (cpus.parse::<f64>().unwrap() * 1000.0).round();
        let container = NewContainer {
            pod: Pod {
                id: format!("sandbox-{name}"),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                qos: Some(qos),
                ..Pod::default()
            },
            name: "app".to_owned(),
            attempt: 0,
            resources: Resources {
                cpu_shares: format!("{:.0}", milli * 1.024).parse().unwrap(),
                cpu_quota: format!("{:.0}", milli * 100.0).parse().unwrap(),
                cpu_period: 100_000,
                memory_limit: gib << 30,
                oom_score_adj: 0,
            },
            ..NewContainer::default()
        };
        let ticket = Ticket(self.tickets.len() as u64);
        self.tickets.insert(name.to_owned(), ticket);
        let step = self.step(Event::Admit(ticket, Box::new(container)));
        let Answer::Admission(Admission::Place(told)) = step.answer else { panic!("{step:?}") };
        format!("> begin {name}: told {}\n", told.cpus)
    }

    fn end(&mut self, name: &str) -> Step {
        let outcome = CreateOutcome::Created { id: name.to_owned(), pinned: true };
        self.step(Event::CreateEnded(self.tickets[name], outcome))
    }

    fn show(&mut self, step: &Step) -> String {
        let mut text = format!("{}{}", render_plan(&step.plan), notes(step));
        let Answer::Status(status) = self.step(Event::Status).answer else { unreachable!() };
        for held in &status.containers {
            text.push_str(&format!(
                "{} {} on {} mems {} in {}",
                held.pod, held.class, held.cpus, held.mems, held.pool
            ));
            let Answer::Explanations(told) = self.step(Event::Explain(held.full_name())).answer
            else {
                unreachable!()
            };
            text.push_str(&format!(": {}\n", told[0].decision.outcome));
        }
        text
    }
}

fn fresh(pools: Pools, fingerprint: String, namespaces: &[String]) -> NodeState {
    let rules = RequestRules {
        reserved_namespaces: namespaces.to_vec(),
        permissions: vec![Rule::everything()],
        ..RequestRules::default()
    };
    NodeState::new(Ledger::new(pools.into()), rules, fingerprint)
}

fn notes(step: &Step) -> String {
    let lines = step.notes.iter().map(|note| match note {
        Note::Placed { container, cpus, pool, .. } => format!("placed {container} in {pool}: {cpus}\n"),
        Note::Released { container, why } => format!("released {container}: {why}\n"),
        Note::MachineChanged { cpus, came, went, moved, displaced } => {
            format!("machine {cpus}: came [{came}] went [{went}], moved {moved}, displaced {displaced}\n")
        }
        Note::ConfigChanged { moved } => format!("configured: moved {moved}\n"),
        Note::Failure { kind, message } => format!("{kind}: {message}\n"),
        other => format!("{other:?}\n"),
    });
    lines.collect()
}

const TWO_NODES: &str = "pack:1 numa:2 core:4 pu:1 mem:8";

#[test]
fn an_owner_that_loses_a_cpu_moves_and_no_other_container_does() {
    check(
        TWO_NODES,
        "",
        &["a 2", "b 2", "s ~0.5", "off 1", "restart"],
        expect![[r#"
            > off 1
            shrink a cpus 1-2 -> 2
            shrink s cpus 4-7 -> 5-7
            grow   a cpus 2 -> 2,4 mems 0 -> 0-1
            placed default/a/app in machine: 2,4
            machine 0,2-7: came [] went [1], moved 1, displaced 0
            a exclusive on 2,4 mems 0-1 in machine: lost CPUs 1; placed in machine
            b exclusive on 0,3 mems 0 in numa 0: placed in numa 0
            s shared on 5-7 mems 1 in numa 1: placed in numa 1
            > restart: same true
        "#]],
    );
}

#[test]
fn an_owner_without_room_shares_and_stays_there_when_the_cpu_returns() {
    check(
        "pack:1 numa:1 core:4 pu:1 mem:8",
        "",
        &["a 2", "b 1", "s ~0.5", "off 1", "restart", "off", "restart"],
        expect![[r#"
            > off 1
            shrink a cpus 1-2 -> 2
            grow   a cpus 2 -> 0,2
            grow   s cpus 0 -> 0,2
            displaced: default/a/app: lost CPUs 1; refused: needs 2 exclusive CPUs; 1 is free; it shares from now on
            machine 0,2-3: came [] went [1], moved 0, displaced 1
            a shared on 0,2 mems 0 in machine: lost CPUs 1; refused: needs 2 exclusive CPUs; 1 is free; it shares from now on
            b exclusive on 3 mems 0 in machine: placed in machine
            s shared on 0,2 mems 0 in machine: placed in machine
            > restart: same true
            > off
            grow   a cpus 0,2 -> 0-2
            grow   s cpus 0,2 -> 0-2
            machine 0-3: came [1] went [], moved 0, displaced 0
            a shared on 0-2 mems 0 in machine: lost CPUs 1; refused: needs 2 exclusive CPUs; 1 is free; it shares from now on
            b exclusive on 3 mems 0 in machine: placed in machine
            s shared on 0-2 mems 0 in machine: placed in machine
            > restart: same true
        "#]],
    );
}

#[test]
fn one_start_on_a_machine_of_another_shape_does_not_demote_an_owner_for_good() {
    check(
        "pack:1 numa:1 core:4 pu:1 mem:8",
        "",
        &["a 2", "b 1", "s ~0.5", "start 1", "start 1,2", "start", "start"],
        expect![[r#"
            > start 1
            not_restored: default/a/app: lost CPUs 1; refused: needs 2 exclusive CPUs; 1 is free; it shares from now on
            a shared on 0,2 mems 0 in machine: lost CPUs 1; refused: needs 2 exclusive CPUs; 1 is free; it shares from now on
            b exclusive on 3 mems 0 in machine: placed in machine
            s shared on 0,2 mems 0 in machine: placed in machine
            > start 1,2
            a shared on 0 mems 0 in machine: lost CPUs 1; refused: needs 2 exclusive CPUs; 1 is free; it shares from now on
            b exclusive on 3 mems 0 in machine: placed in machine
            s shared on 0 mems 0 in machine: placed in machine
            > start
            a exclusive on 1-2 mems 0 in machine: lost CPUs 1; refused: needs 2 exclusive CPUs; 1 is free; it shares from now on; its earlier place counts again: the machine has its earlier shape
            b exclusive on 3 mems 0 in machine: placed in machine
            s shared on 0 mems 0 in machine: placed in machine
            > start
            a exclusive on 1-2 mems 0 in machine: lost CPUs 1; refused: needs 2 exclusive CPUs; 1 is free; it shares from now on; its earlier place counts again: the machine has its earlier shape
            b exclusive on 3 mems 0 in machine: placed in machine
            s shared on 0 mems 0 in machine: placed in machine
        "#]],
    );
    // With CPUs of its own elsewhere it stays there.
    check(
        "pack:1 numa:1 core:6 pu:1 mem:8",
        "",
        &["a 2", "start 1,2", "start"],
        expect![[r#"
        > start 1,2
        placed default/a/app in machine: 3-4
        a exclusive on 3-4 mems 0 in machine: lost CPUs 1-2; placed in machine
        > start
        a exclusive on 3-4 mems 0 in machine: lost CPUs 1-2; placed in machine
    "#]],
    );
}

#[test]
fn a_container_that_lost_nothing_never_makes_room() {
    check(
        TWO_NODES,
        "",
        &["small 1", "large 3", "s ~0.5", "t ~0.5", "off 2,7", "off 2,4-7"],
        expect![[r#"
            > off 2,7
            shrink large cpus 0,2-3 -> 0,3
            shrink s cpus 4-7 -> 5-6
            shrink t cpus 4-7 -> 5-6
            grow   large cpus 0,3 -> 0,3-4 mems 0 -> 0-1
            placed default/large/app in machine: 0,3-4
            machine 0-1,3-6: came [] went [2,7], moved 1, displaced 0
            large exclusive on 0,3-4 mems 0-1 in machine: lost CPUs 2; placed in machine
            s shared on 5-6 mems 1 in numa 1: placed in numa 1
            small exclusive on 1 mems 0 in numa 0: placed in numa 0
            t shared on 5-6 mems 1 in numa 1: placed in numa 1
            > off 2,4-7
            shrink large cpus 0,3-4 -> 0,3
            move   s cpus 5-6 -> 0,3 mems 1 -> 0
            move   t cpus 5-6 -> 0,3 mems 1 -> 0
            displaced: default/large/app: lost CPUs 4; refused: needs 3 exclusive CPUs; 2 could be given if all were free; it shares from now on
            placed default/s/app in machine: 0,3
            placed default/t/app in machine: 0,3
            machine 0-1,3: came [] went [4-6], moved 2, displaced 1
            large shared on 0,3 mems 0-1 in machine: lost CPUs 4; refused: needs 3 exclusive CPUs; 2 could be given if all were free; it shares from now on
            s shared on 0,3 mems 0 in machine: lost all CPUs of numa 1; placed in machine
            small exclusive on 1 mems 0 in machine: placed in numa 0
            t shared on 0,3 mems 0 in machine: lost all CPUs of numa 1; placed in machine
        "#]],
    );
}

#[test]
fn larger_owners_are_placed_before_smaller_and_older_ones() {
    check(
        "pack:1 numa:1 core:8 pu:1 mem:8",
        "",
        &["old 1", "small 1", "large 2", "off 1,2,3", "restart"],
        expect![[r#"
            > off 1,2,3
            shrink large cpus 3-4 -> 4
            move   old cpus 1 -> 6
            move   small cpus 2 -> 7
            grow   large cpus 4 -> 4-5
            placed default/large/app in machine: 4-5
            placed default/old/app in machine: 6
            placed default/small/app in machine: 7
            machine 0,4-7: came [] went [1-3], moved 3, displaced 0
            large exclusive on 4-5 mems 0 in machine: lost CPUs 3; placed in machine
            old exclusive on 6 mems 0 in machine: lost CPUs 1; placed in machine
            small exclusive on 7 mems 0 in machine: lost CPUs 2; placed in machine
            > restart: same true
        "#]],
    );
}

#[test]
fn a_machine_whose_owners_have_everything_that_is_left_keeps_one_cpu_to_share() {
    check(
        "pack:1 numa:1 core:4 pu:1 mem:8",
        "",
        &["a 1", "b 2", "s ~0.5", "off 0", "restart"],
        expect![[r#"
            > off 0
            move   s cpus 0 -> 1
            displaced: default/a/app: pool `machine` would have no shared CPU left; refused: needs 1 exclusive CPU; 0 are free; it shares from now on
            machine 1-3: came [] went [0], moved 0, displaced 1
            a shared on 1 mems 0 in machine: pool `machine` would have no shared CPU left; refused: needs 1 exclusive CPU; 0 are free; it shares from now on
            b exclusive on 2-3 mems 0 in machine: placed in machine
            s shared on 1 mems 0 in machine: placed in machine
            > restart: same true
        "#]],
    );
}

#[test]
fn a_mixed_container_keeps_its_own_cpu_and_shares_elsewhere() {
    check(
        TWO_NODES,
        "",
        &["mixed 1.5", "own 2", "off 0", "off 0-1", "off", "restart"],
        expect![[r#"
            > off 0
            shrink mixed cpus 0-1 -> 1
            grow   mixed cpus 1 -> 1,4-7 mems 0 -> 0-1
            placed default/mixed/app in machine: 1,4-7
            machine 1-7: came [] went [0], moved 1, displaced 0
            mixed exclusive on 1,4-7 mems 0-1 in machine: pool `numa 0` would have no shared CPU left; placed in machine
            own exclusive on 2-3 mems 0 in numa 0: placed in numa 0
            > off 0-1
            shrink mixed cpus 1,4-7 -> 4-7
            placed default/mixed/app in machine: 4-7
            machine 2-7: came [] went [1], moved 1, displaced 0
            mixed exclusive on 4-7 mems 0-1 in machine: lost CPUs 1; placed in machine
            own exclusive on 2-3 mems 0 in numa 0: placed in numa 0
            > off
            grow   mixed cpus 4-7 -> 0-1,4-7
            machine 0-7: came [0-1] went [], moved 0, displaced 0
            mixed exclusive on 0-1,4-7 mems 0-1 in machine: lost CPUs 1; placed in machine
            own exclusive on 2-3 mems 0 in numa 0: placed in numa 0
            > restart: same true
        "#]],
    );
}

#[test]
fn a_creation_under_way_is_corrected_before_its_reply() {
    check(
        TWO_NODES,
        "",
        &["begin own 2", "begin s ~0.5", "off 1", "end own", "end s", "restart"],
        expect![[r#"
            > begin own: told 1-2
            > begin s: told 4-7
            > off 1
            placed default/own/app in numa 0: 2-3
            machine 0,2-7: came [] went [1], moved 1, displaced 0
            own exclusive on 2-3 mems 0 in numa 0: lost CPUs 1; placed in numa 0
            s shared on 4-7 mems 1 in numa 1: placed in numa 1
            > end own: waits true
            shrink own cpus 1-2 -> 2
            grow   own cpus 2 -> 2-3
            own exclusive on 2-3 mems 0 in numa 0: lost CPUs 1; placed in numa 0
            s shared on 4-7 mems 1 in numa 1: placed in numa 1
            > end s: waits false
            own exclusive on 2-3 mems 0 in numa 0: lost CPUs 1; placed in numa 0
            s shared on 4-7 mems 1 in numa 1: placed in numa 1
            > restart: same true
        "#]],
    );
}

#[test]
fn what_comes_and_goes_without_a_difference_moves_and_writes_nothing() {
    check(
        TWO_NODES,
        "",
        &["a 2", "s ~0.5", "off", "isolate"],
        expect![[r#"
            > off
            MachineUnchanged
            a exclusive on 1-2 mems 0 in numa 0: placed in numa 0
            s shared on 4-7 mems 1 in numa 1: placed in numa 1
            > isolate
            MachineUnchanged
            a exclusive on 1-2 mems 0 in numa 0: placed in numa 0
            s shared on 4-7 mems 1 in numa 1: placed in numa 1
        "#]],
    );
}

#[test]
fn an_owner_whose_place_has_a_later_owner_in_a_broken_journal_shares_until_the_runtime_was_asked() {
    let mut node = Node::new(TWO_NODES, "");
    node.play("a 2");
    node.play("stop a");
    node.play("b 2");
    node.journal.retain(|line| !line.contains("released"));
    let mut again = Node::new(TWO_NODES, "").state;
    let step = again.restore(replay(&node.journal), Timestamp::UNIX_EPOCH);
    expect![[r#"
        not_restored: default/a/app: CPUs 1-2 went to a later container; not placed anew; it shares from now on
    "#]].assert_eq(&notes(&step));
}
