//! Tiny traces and what becomes of them. A trace is written in words, `+NAME CLASS MILLI[/LIMIT]` and `-NAME`, where the class is `G`
//! (limit as request), `B` (no limit unless given) or `E`. `@GROUP` at the end is the group that the pod names.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use bayplan_allocator::Ledger;
use bayplan_allocator::policy::{Policy, pools};
use bayplan_node::settings::CompactionConfig;
use bayplan_topology::{derive, parse_machine};
use bayplan_types::CpuSet;
use bayplan_workload::RequestRules;
use expect_test::{Expect, expect};
use proptest::prelude::*;

use crate::json_file::FileErrors;
use crate::simulate::placement::{PlacementRow, render_placement};
use crate::simulate::quality::{Quality, judge};
use crate::simulate::replay::replay;
use crate::simulate::summary::{Run, Summary, render_json};
use crate::simulate::tally::Tally;
use crate::simulate::times::Times;
use crate::simulate::trace::{Trace, parse_trace};

fn event(i: usize, words: &str) -> String {
    let (head, rest) = words.split_once(' ').unwrap_or((words, ""));
    let (op, id) = head.split_at(1);
    if op == "-" {
        return format!(r#"{{"i":{i},"op":"remove","id":"{id}"}}"#);
    }
    let (rest, group) = rest.split_once(" @").unwrap_or((rest, ""));
    let named = match group {
        "" => String::new(),
        name => format!(r#","annotations":{{"bayplan.dev/group":"{name}"}}"#),
    };
    let (class, cpu) = rest.split_once(' ').unwrap_or((rest, "0"));
    let (request, limit) = cpu.split_once('/').unwrap_or((cpu, "0"));
    let (qos, limit) = match class {
        "G" => ("Guaranteed", request),
        "B" => ("Burstable", limit),
        _ => ("BestEffort", "0"),
    };
    format!(
        r#"{{"i":{i},"op":"create","id":"{id}","pod":"{id}","qos":"{qos}","cpu_request_m":{request},"cpu_limit_m":{limit}{named}}}"#
    )
}

fn trace_file(events: &[String]) -> String {
    let events = events.join(",\n");
    format!(
        r#"{{"format":"bayplan-bench-trace/1","name":"tiny","machine":"","events":[{events}]}}"#
    )
}

pub(crate) fn trace(words: &[&str]) -> Trace {
    let events: Vec<String> = words.iter().enumerate().map(|(i, it)| event(i, it)).collect();
    parse_trace(Path::new("tiny.json"), trace_file(&events).as_bytes()).unwrap()
}

fn simulate(machine: &str, reserved: &str, trace: &Trace) -> (Vec<PlacementRow>, Quality) {
    simulate_with(CompactionConfig::default(), machine, reserved, trace)
}

fn simulate_with(
    compaction: CompactionConfig,
    machine: &str,
    reserved: &str,
    trace: &Trace,
) -> (Vec<PlacementRow>, Quality) {
    let topology = derive(&parse_machine(machine).unwrap()).unwrap();
    let pools = pools(&topology, Policy::default(), &reserved.parse().unwrap()).unwrap();
    let empty = Tally::new(&topology, &pools.allocatable());
    let rules = RequestRules::default();
    let (rows, _) = replay(trace, Ledger::new(Arc::new(pools)), &rules, compaction, &mut |_| {});
    let quality = judge(trace, &rows, empty);
    (rows, quality)
}

/// The placement file, and the figures that are not zero.
fn check(machine: &str, reserved: &str, words: &[&str], expected: Expect) {
    let trace = trace(words);
    let (rows, quality) = simulate(machine, reserved, &trace);
    let mut text = render_placement(&trace.name, &rows).unwrap();
    let run = Run { config: None, reserved: reserved.to_owned(), quality, times: Times::default() };
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
    let words = ["+a B 500", "+b G 1500", "+c G 2000", "+d E", "+e G 1000", "-c", "-a"];
    check(
        "pack:2 numa:1 l3:1 core:3 pu:2",
        "0,6",
        &words,
        expect![[r#"
            {"format":"bayplan-bench-placement/1","system":"bayplan","trace":"tiny","events":[
            {"i":0,"op":"create","id":"a","ok":true,"kind":"shared","excl":"","cpus":"3-5,9-11","mems":"1","updates":0},
            {"i":1,"op":"create","id":"b","ok":true,"kind":"mixed","excl":"1","cpus":"1-2,7-8","mems":"0","updates":0},
            {"i":2,"op":"create","id":"c","ok":true,"kind":"exclusive","excl":"2,8","cpus":"2,8","mems":"0","updates":1},
            {"i":3,"op":"create","id":"d","ok":true,"kind":"shared","excl":"","cpus":"3-5,9-11","mems":"1","updates":0},
            {"i":4,"op":"create","id":"e","ok":true,"kind":"exclusive","excl":"7","cpus":"7","mems":"0","updates":1},
            {"i":5,"op":"remove","id":"c","ok":true,"updates":0},
            {"i":6,"op":"remove","id":"a","ok":true,"updates":0}
            ]}
            creates 5
            end_free 8
            end_largest_in_one_numa 6
            end_largest_in_one_numa_whole_cores 6
            exclusive_placed 2
            frag_numa_percent 100.0
            frag_whole_core_percent 100.0
            half_owned_cores_mean 0.43
            l3_feasible 2
            l3_fit_percent 100.0
            numa_feasible 2
            numa_fit_percent 100.0
            numa_span_ratio 1.0
            package_feasible 2
            package_fit_percent 100.0
            placed 5
            shared_cores_max 1
            shared_cores_mean 0.43
            sharers_in_one_numa_percent 100.0
            updates_per_event 0.29
        "#]],
    );
}

#[test]
fn a_refused_container_is_not_missed_when_it_goes() {
    check(
        SMALL,
        "",
        &["+a G 6000", "+b G 2000", "+c G 1500", "-b", "-a"],
        expect![[r#"
            {"format":"bayplan-bench-placement/1","system":"bayplan","trace":"tiny","events":[
            {"i":0,"op":"create","id":"a","ok":true,"kind":"exclusive","excl":"0-2,4-6","cpus":"0-2,4-6","mems":"0-1","updates":0},
            {"i":1,"op":"create","id":"b","ok":false,"err":"needs 2 exclusive CPUs; 1 is free"},
            {"i":2,"op":"create","id":"c","ok":true,"kind":"mixed","excl":"3","cpus":"3,7","mems":"1","updates":0},
            {"i":3,"op":"remove","id":"b","ok":false,"err":"its create was refused"},
            {"i":4,"op":"remove","id":"a","ok":true,"updates":1}
            ]}
            creates 3
            end_free 7
            end_largest_in_one_numa 4
            end_largest_in_one_numa_whole_cores 4
            exclusive_placed 1
            frag_numa_percent 100.0
            frag_whole_core_percent 100.0
            half_owned_cores_mean 0.75
            numa_span_ratio 1.0
            placed 2
            refused 1
            refused_although_free 1
            updates_per_event 0.33
        "#]],
    );
}

#[test]
fn half_a_core_and_two_packages_are_counted() {
    check(
        SMALL,
        "",
        &["+a G 1000", "+b G 1000", "+c G 1000", "+d G 3000", "-b"],
        expect![[r#"
        {"format":"bayplan-bench-placement/1","system":"bayplan","trace":"tiny","events":[
        {"i":0,"op":"create","id":"a","ok":true,"kind":"exclusive","excl":"1","cpus":"1","mems":"0","updates":0},
        {"i":1,"op":"create","id":"b","ok":true,"kind":"exclusive","excl":"5","cpus":"5","mems":"0","updates":0},
        {"i":2,"op":"create","id":"c","ok":true,"kind":"exclusive","excl":"0","cpus":"0","mems":"0","updates":0},
        {"i":3,"op":"create","id":"d","ok":true,"kind":"exclusive","excl":"2-3,6","cpus":"2-3,6","mems":"1","updates":0},
        {"i":4,"op":"remove","id":"b","ok":true,"updates":0}
        ]}
        creates 4
        end_free 3
        end_largest_in_one_numa 2
        exclusive_placed 4
        frag_numa_percent 79.2
        frag_whole_core_percent 50.0
        half_owned_cores_mean 1.4
        l3_feasible 4
        l3_fit_percent 100.0
        numa_feasible 4
        numa_fit_percent 100.0
        numa_span_ratio 1.0
        package_feasible 4
        package_fit_percent 100.0
        placed 4
        shared_cores_max 1
        shared_cores_mean 0.6
    "#]],
    );
}

#[test]
fn a_container_moved_into_a_hole_is_told() {
    let words = ["+a G 2000", "+b G 6000", "+c G 2000", "-a", "+d G 8000"];
    let compaction = CompactionConfig { enabled: true, ..CompactionConfig::default() };
    let trace = trace(&words);
    let (rows, quality) = simulate_with(compaction, "numa:3 l3:1 core:4 pu:2", "", &trace);
    expect![[r#"
        {"format":"bayplan-bench-placement/1","system":"bayplan","trace":"tiny","events":[
        {"i":0,"op":"create","id":"a","ok":true,"kind":"exclusive","excl":"1,13","cpus":"1,13","mems":"0","updates":0},
        {"i":1,"op":"create","id":"b","ok":true,"kind":"exclusive","excl":"0,2-3,12,14-15","cpus":"0,2-3,12,14-15","mems":"0","updates":0},
        {"i":2,"op":"create","id":"c","ok":true,"kind":"exclusive","excl":"4,16","cpus":"4,16","mems":"1","updates":0},
        {"i":3,"op":"remove","id":"a","ok":true,"updates":0},
        {"i":4,"op":"create","id":"d","ok":true,"kind":"exclusive","excl":"8-11,20-23","cpus":"8-11,20-23","mems":"2","updates":1,"moved":{"c":"1,13"}}
        ]}
    "#]].assert_eq(&render_placement(&trace.name, &rows).unwrap());
    assert_eq!((quality.moved, quality.overlaps), (1, 0));
}

#[test]
fn a_container_moved_to_freed_cpus_owns_them() {
    let words = ["+a G 2000", "+b G 6000", "+c G 2000", "-a"];
    let compaction = CompactionConfig { enabled: true, ..CompactionConfig::default() };
    let (_, it) = simulate_with(compaction, "numa:2 l3:1 core:4 pu:2", "", &trace(&words));
    assert_eq!((it.moved, it.free_at_end, it.hole_at_end), (1, 8, 8));
}

#[test]
fn an_id_can_be_used_again() {
    check(
        "core:4",
        "0",
        &["+a G 1000", "-a", "+a B 250/1000"],
        expect![[r#"
        {"format":"bayplan-bench-placement/1","system":"bayplan","trace":"tiny","events":[
        {"i":0,"op":"create","id":"a","ok":true,"kind":"exclusive","excl":"1","cpus":"1","mems":"","updates":0},
        {"i":1,"op":"remove","id":"a","ok":true,"updates":0},
        {"i":2,"op":"create","id":"a","ok":true,"kind":"shared","excl":"","cpus":"1-3","mems":"","updates":0}
        ]}
        creates 2
        end_free 3
        end_largest_in_one_numa 3
        end_largest_in_one_numa_whole_cores 3
        exclusive_placed 1
        frag_numa_percent 100.0
        frag_whole_core_percent 100.0
        numa_feasible 1
        numa_fit_percent 100.0
        numa_span_ratio 1.0
        package_feasible 1
        package_fit_percent 100.0
        placed 2
        sharers_in_one_numa_percent 100.0
    "#]],
    );
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
        expect![[r#"
            t:1:0: the file ends too early (EOF while parsing a value); is it complete?
            t:1:1: not JSON: expected value
            t: there is no `format`, expected `bayplan-bench-trace/1`
            t: `format` is `bayplan-bench-machine/1`, expected `bayplan-bench-trace/1`
            t:1:45: not of format `bayplan-bench-trace/1`: missing field `events`
            t:1:54: not of format `bayplan-bench-trace/1`: invalid type: map, expected a sequence
            t:2:31: not of format `bayplan-bench-trace/1`: missing field `id`
            t:2:27: not of format `bayplan-bench-trace/1`: invalid type: integer `7`, expected a string
            t:1:163: the file ends too early (EOF while parsing a string); is it complete?
            t:1:151: not of format `bayplan-bench-trace/1`: invalid type: floating point `1e+300`, expected i64
            t:1:166: not of format `bayplan-bench-trace/1`: invalid type: floating point `1e+20`, expected i64
            t:1:174: not JSON: trailing characters
            accepted
        "#]],
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
    check_trace(
        &[&trace_file(&events)],
        expect![[r#"
        t: event 1 (b): no container of this id was created before, expected a known `id`
        t: event 2 (a): event 0 created the same id, expected a remove before the next create
        t: event 4 (a): it was removed already by event 3
        t: event 5 (c): `i` is 7, expected 5: events are counted from 0
        t: event 5 (c): `cpu_request_m` is -5, expected 0 to 1000000000 thousandths of a CPU
        t: event 5 (c): `cpu_limit_m` is -5, expected 0 to 1000000000 thousandths of a CPU
        t: event 6 (d): `cpu_request_m` is 2000000000000, expected 0 to 1000000000 thousandths of a CPU
        t: event 6 (d): `cpu_limit_m` is 2000000000000, expected 0 to 1000000000 thousandths of a CPU
        t: event 7 (e): `cpu_limit_m` is 500, expected 1000: what is Guaranteed may use what it requests
        t: event 8 (f): `cpu_limit_m` is 500, expected at least the request, 1000, or 0 for none
        t: event 9 (g): requests or limits are not 0, expected 0: BestEffort has none
        t: event 10 (h): `qos` is `guaranteed`, expected Guaranteed, Burstable or BestEffort
        t: event 11 (i): `op` is `make`, expected create or remove
        t: event 12 (): `id` is empty, expected a name
        t: event 12 (): there is no `cpu_request_m`, expected thousandths of a CPU
        t: event 12 (): `qos` is missing, expected Guaranteed, Burstable or BestEffort
        t: event 13 (k): `mem_limit` is 4, expected 0: what is Guaranteed may use what it requests
    "#]],
    );
}

#[test]
fn a_thousand_mistakes_are_not_all_listed() {
    let events: Vec<String> = (0..1000).map(|i| event(i, "-a")).collect();
    let text = errors(parse_trace(Path::new("t"), trace_file(&events).as_bytes()));
    assert_eq!(text.lines().count(), 21);
    assert!(text.ends_with("\nand 980 more mistakes\n"), "{text}");
}

/// Random traces: a container that comes asks for a class and an amount; one that goes is one of those that came.
pub(crate) fn events() -> impl Strategy<Value = Vec<(u8, u8)>> {
    prop::collection::vec((0u8..12, 0u8..30), 0..60)
}

/// A random trace.
pub(crate) fn random_trace(events: &[(u8, u8)]) -> Trace {
    random_trace_with(events, |_| "")
}

/// The same with more words for some containers, by their name.
pub(crate) fn random_trace_with(events: &[(u8, u8)], more: fn(&str) -> &'static str) -> Trace {
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
        words.push(format!("+c{index} {came}{}", more(&came)));
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
