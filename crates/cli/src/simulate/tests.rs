//! Tiny traces and what becomes of them. A trace is written in words, `+NAME CLASS MILLI[/LIMIT]` and `-NAME`, where the class is `G`
//! (limit as request), `B` (no limit unless given) or `E`.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use bayplan_allocator::Ledger;
use bayplan_allocator::policy::topology_aware::pools;
use bayplan_cri::translate::RequestRules;
use bayplan_topology::{derive, parse_machine};
use bayplan_types::CpuSet;
use expect_test::{Expect, expect};
use proptest::prelude::*;

use crate::json_file::FileErrors;
use crate::machine_file::{MachineFile, parse_machine_file};
use crate::simulate::placement::{PlacementRow, render_placement};
use crate::simulate::quality::{Quality, judge};
use crate::simulate::replay::replay;
use crate::simulate::summary::{Run, Summary, render_json};
use crate::simulate::tally::Tally;
use crate::simulate::trace::{Trace, parse_trace};

fn event(i: usize, words: &str) -> String {
    let (head, rest) = words.split_once(' ').unwrap_or((words, ""));
    let (op, id) = head.split_at(1);
    if op == "-" {
        return format!(r#"{{"i":{i},"op":"remove","id":"{id}"}}"#);
    }
    let (class, cpu) = rest.split_once(' ').unwrap_or((rest, "0"));
    let (request, limit) = cpu.split_once('/').unwrap_or((cpu, "0"));
    let (qos, limit) = match class {
        "G" => ("Guaranteed", request),
        "B" => ("Burstable", limit),
        _ => ("BestEffort", "0"),
    };
    format!(
        r#"{{"i":{i},"op":"create","id":"{id}","pod":"{id}","qos":"{qos}","cpu_request_m":{request},"cpu_limit_m":{limit}}}"#
    )
}

fn trace_file(events: &[String]) -> String {
    let events = events.join(",\n");
    format!(
        r#"{{"format":"bayplan-bench-trace/1","name":"tiny","machine":"","events":[{events}]}}"#
    )
}

fn trace(words: &[&str]) -> Trace {
    let events: Vec<String> = words.iter().enumerate().map(|(i, it)| event(i, it)).collect();
    parse_trace(Path::new("tiny.json"), trace_file(&events).as_bytes()).unwrap()
}

fn simulate(machine: &str, reserved: &str, trace: &Trace) -> (Vec<PlacementRow>, Quality) {
    let topology = derive(&parse_machine(machine).unwrap()).unwrap();
    let pools = pools(&topology, &reserved.parse().unwrap()).unwrap();
    let empty = Tally::new(&topology, &pools.allocatable());
    let rules = RequestRules::default();
    let (rows, _) = replay(trace, Ledger::new(Arc::new(pools)), &rules, &mut |_| {});
    let quality = judge(trace, &rows, empty);
    (rows, quality)
}

/// The placement file, and the figures that are not zero.
fn check(machine: &str, reserved: &str, words: &[&str], expected: Expect) {
    let trace = trace(words);
    let (rows, quality) = simulate(machine, reserved, &trace);
    let mut text = render_placement(&trace.name, &rows).unwrap();
    let run = Run {
        config: None,
        reserved: reserved.to_owned(),
        quality,
        decisions: Vec::new(),
        releases: Vec::new(),
    };
    let (machine, name) = (machine.to_owned(), trace.name.clone());
    let summary = Summary { machine, cpus: 0, trace: name, events: 0, runs: vec![run] };
    let json: serde_json::Value = serde_json::from_str(&render_json(&summary).unwrap()).unwrap();
    for (key, value) in json["runs"][0].as_object().unwrap() {
        if value.is_number() && value.as_f64() != Some(0.0) {
            writeln!(text, "{key} {value}").unwrap();
        }
    }
    expected.assert_eq(&text);
}

/// A node of two cores per package.
const SMALL: &str = "pack:2 numa:1 l3:1 core:2 pu:2";

#[test]
fn sharers_are_rewritten_when_their_cpus_change_hands() {
    check(SMALL, "0,4", &["+a B 500", "+b B 500", "+c G 2000", "+d E", "-c", "-a"], expect![[]]);
}

#[test]
fn who_was_refused_is_not_missed_when_he_goes() {
    check(SMALL, "", &["+a G 6000", "+b G 2000", "+c G 1500", "-b", "-a"], expect![[]]);
}

#[test]
fn half_a_core_and_two_packages_are_counted() {
    check(SMALL, "", &["+a G 1000", "+b G 1000", "+c G 1000", "+d G 3000", "-b"], expect![[]]);
}

#[test]
fn an_id_can_be_used_again() {
    check("core:4", "0", &["+a G 1000", "-a", "+a B 250/1000"], expect![[]]);
}

fn errors<T>(result: Result<T, FileErrors>) -> String {
    match result {
        Ok(_) => "accepted\n".to_owned(),
        Err(errors) => format!("{errors}\n"),
    }
}

fn check_trace(texts: &[&str], expected: Expect) {
    let parsed = texts.iter().map(|text| errors(parse_trace(Path::new("t"), text.as_bytes())));
    expected.assert_eq(&parsed.collect::<String>());
}

#[test]
fn what_is_no_trace_is_said_with_its_place() {
    let whole = trace_file(&[event(0, "+a G 1000")]);
    let cut = &whole[..whole.len() - 9];
    check_trace(
        &[
            "",
            "hello",
            "{}",
            r#"{"format":"bayplan-bench-machine/1"}"#,
            r#"{"format":"bayplan-bench-trace/1","name":"x"}"#,
            r#"{"format":"bayplan-bench-trace/1","name":"x","events":{}}"#,
            "{\"format\":\"bayplan-bench-trace/1\",\"name\":\"x\",\n\"events\":[{\"i\":0,\"op\":\"remove\"}]}",
            "{\"format\":\"bayplan-bench-trace/1\",\"name\":\"x\",\"events\":[\n{\"i\":0,\"op\":\"remove\",\"id\":7}]}",
            cut,
            &whole.replace("1000", "1e300"),
            &whole.replace("1000", "99999999999999999999"),
            &format!("{whole} x"),
            &whole,
        ],
        expect![[]],
    );
}

#[test]
fn events_that_make_no_sense_are_all_listed() {
    let events = [
        event(0, "+a G 1000"),
        event(1, "-b"),
        event(2, "+a G 1000"),
        event(3, "-a"),
        event(4, "-a"),
        event(7, "+c G -5"),
        event(6, "+d G 2000000000000"),
        event(7, "+e G 1000").replace(r#""cpu_limit_m":1000"#, r#""cpu_limit_m":500"#),
        event(8, "+f B 1000/500"),
        event(9, "+g E 250"),
        event(10, "+h G 1000").replace("Guaranteed", "guaranteed"),
        event(11, "+i G 1000").replace("create", "make"),
        r#"{"i":12,"op":"create","id":""}"#.to_owned(),
        r#"{"i":13,"op":"create","id":"k","qos":"Guaranteed","cpu_request_m":1,"cpu_limit_m":1,"mem_limit":4}"#
            .to_owned(),
    ];
    check_trace(&[&trace_file(&events)], expect![[]]);
}

#[test]
fn a_thousand_mistakes_are_not_all_listed() {
    let events: Vec<String> = (0..1000).map(|i| event(i, "-a")).collect();
    let text = errors(parse_trace(Path::new("t"), trace_file(&events).as_bytes()));
    assert_eq!(text.lines().count(), 21);
    assert!(text.ends_with("\nand 980 more mistakes\n"), "{text}");
}

const MACHINE: &str = r#"{"format": "bayplan-bench-machine/1", "name": "m4", "ncpus": 4, "smt": 2, "reserved_cpus": "0",
 "numa": [{"id": 0, "mem_bytes": 1024, "distance": [10, 20], "cpus": "0,2"},
          {"id": 1, "mem_bytes": 1024, "distance": [20, 10], "cpus": "1,3"}],
 "cpus": [{"cpu": 0, "core": 0, "l3": 0, "numa": 0, "die": 0, "socket": 0},
          {"cpu": 1, "core": 1, "l3": 1, "numa": 1, "die": 0, "socket": 1},
          {"cpu": 2, "core": 0, "l3": 0, "numa": 0, "die": 0, "socket": 0},
          {"cpu": 3, "core": 1, "l3": 1, "numa": 1, "die": 0, "socket": 1}]}"#;

/// What is said when `from` is replaced by `to` in a good machine.
fn check_machine(changes: &[(&str, &str)], expected: Expect) {
    let parsed = changes.iter().map(|(from, to)| {
        let text = MACHINE.replacen(from, to, 1);
        assert!(from == to || text != MACHINE, "{from}");
        format!("{from} -> {to}\n{}", errors(parse_machine_file(Path::new("m"), text.as_bytes())))
    });
    expected.assert_eq(&parsed.collect::<String>());
}

#[test]
fn a_machine_that_contradicts_itself_is_refused() {
    check_machine(
        &[
            ("", ""),
            ("bench-machine/1", "bench-machine/2"),
            (r#""ncpus": 4"#, r#""ncpus": 5"#),
            (r#""smt": 2"#, r#""smt": 1"#),
            (r#""reserved_cpus": "0""#, r#""reserved_cpus": "0,9""#),
            (r#""reserved_cpus": "0""#, r#""reserved_cpus": "zero""#),
            (r#""cpu": 3"#, r#""cpu": 1"#),
            (r#""cpu": 3"#, r#""cpu": -1"#),
            (r#""cpu": 3"#, r#""cpu": 4000000000"#),
            (r#"{"cpu": 3, "core": 1"#, r#"{"cpu": 3, "core": 0"#),
            (r#""l3": 1, "numa": 1"#, r#""l3": 0, "numa": 1"#),
            (r#""numa": 1, "die""#, r#""numa": 2, "die""#),
            (r#"{"id": 1"#, r#"{"id": 0"#),
            (r#"[20, 10]"#, r#"[20]"#),
            (r#"[20, 10]"#, r#"[9, 11]"#),
            (r#""mem_bytes": 1024"#, r#""mem_bytes": -1"#),
            (r#""cpus": "0,2""#, r#""cpus": "0""#),
        ],
        expect![[]],
    );
}

#[test]
fn a_machine_file_is_the_machine_that_it_describes() {
    let MachineFile { name, snapshot, reserved } =
        parse_machine_file(Path::new("m"), MACHINE.as_bytes()).unwrap();
    let topology = derive(&snapshot).unwrap();
    assert_eq!((name.as_str(), reserved), ("m4", "0".parse().unwrap()));
    expect![[]].assert_eq(&bayplan_topology::render_tree(&topology));
}

#[test]
fn a_file_of_nothing_but_domains_is_read_in_time() {
    let cpus: Vec<String> = (0..8192)
        .map(|n| format!(r#"{{"cpu":{n},"core":{n},"l3":{n},"numa":0,"die":{n},"socket":{n}}}"#))
        .collect();
    let text = format!(
        r#"{{"format":"bayplan-bench-machine/1","name":"x","numa":[{{"id":0,"mem_bytes":0,"distance":[10],"cpus":"0-8191"}}],"cpus":[{}]}}"#,
        cpus.join(",")
    );
    assert!(parse_machine_file(Path::new("m"), text.as_bytes()).is_ok());
}

/// Random traces: who comes asks for a class and an amount; who goes is one of those who came.
fn events() -> impl Strategy<Value = Vec<(u8, u8)>> {
    prop::collection::vec((0u8..12, 0u8..30), 0..60)
}

/// The words of a random trace.
pub(super) fn random_trace(events: &[(u8, u8)]) -> Trace {
    let mut live: Vec<String> = Vec::new();
    let mut words = Vec::new();
    for (index, (choice, amount)) in events.iter().enumerate() {
        let milli = u32::from(*amount) * 250;
        let whole = u32::from(*amount) * 1000;
        let came = match choice {
            0..=3 if !live.is_empty() => {
                words.push(format!("-{}", live.remove(usize::from(*amount) % live.len())));
                continue;
            }
            0..=6 => format!("G {whole}"),
            7..=8 => format!("G {milli}"),
            9..=10 => format!("B {milli}"),
            _ => "E".to_owned(),
        };
        words.push(format!("+c{index} {came}"));
        live.push(format!("c{index}"));
    }
    trace(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn the_same_trace_gives_the_same_file_byte_for_byte(events in events()) {
        let trace = random_trace(&events);
        let file = || {
            let (rows, _) = simulate("pack:2 l3:1 numa:2 core:4 pu:2", "0,16", &trace);
            render_placement(&trace.name, &rows).unwrap()
        };
        prop_assert_eq!(file(), file());
    }

    #[test]
    fn counting_changes_gives_what_counting_everything_gives(
        changes in prop::collection::vec((0u32..6, prop::collection::btree_set(0u32..24, 1..9)), 1..40),
    ) {
        let topology = derive(&parse_machine("pack:2 numa:2 l3:1 core:3 pu:2").unwrap()).unwrap();
        let allocatable = topology.cpus().difference(&"0,12".parse().unwrap());
        let mut tally = Tally::new(&topology, &allocatable);
        let mut owners = vec![None; 24];
        for (owner, cpus) in changes {
            let cpus: CpuSet = cpus.into_iter().map(bayplan_types::CpuId).collect();
            let owner = (owner > 0).then_some(owner as usize);
            match owner {
                Some(owner) => drop(tally.take(&cpus, owner)),
                None => tally.give_back(&cpus),
            }
            cpus.iter().for_each(|cpu| owners[cpu.0 as usize] = owner);
            let owner_of = |cpu: bayplan_types::CpuId| owners[cpu.0 as usize];
            let free: CpuSet = allocatable.iter().filter(|cpu| owner_of(*cpu).is_none()).collect();
            let whole: Vec<&CpuSet> =
                topology.cores().iter().filter(|core| core.is_subset(&free)).collect();
            let owners_of = |core: &CpuSet| {
                core.iter().filter_map(owner_of).collect::<std::collections::BTreeSet<_>>()
            };
            let half = |core: &&CpuSet| {
                let owned = core.iter().filter(|cpu| owner_of(*cpu).is_some()).count();
                owned > 0 && owned < core.len()
            };
            let hole = topology.nodes().iter().map(|it| it.cpus.intersection_len(&free)).max();
            let whole_hole = topology.nodes().iter().map(|node| {
                whole.iter().filter(|core| core.is_subset(&node.cpus)).map(|core| core.len()).sum()
            });
            prop_assert_eq!(tally.free, free.len());
            prop_assert_eq!(tally.free_whole, whole.iter().map(|core| core.len()).sum::<usize>());
            prop_assert_eq!(Some(tally.nodes.largest_hole()), hole);
            prop_assert_eq!(Some(tally.nodes.largest_whole_hole()), whole_hole.max());
            let cores = topology.cores().iter();
            prop_assert_eq!(tally.half_owned_cores, cores.clone().filter(half).count());
            prop_assert_eq!(tally.shared_cores, cores.filter(|it| owners_of(it).len() > 1).count());
        }
    }
}
