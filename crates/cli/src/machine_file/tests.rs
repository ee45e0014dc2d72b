//! A good machine, and what is said when something in it is replaced.

use std::path::Path;

use bayplan_drawing::render_tree;
use bayplan_topology::derive;
use expect_test::{Expect, expect};

use super::*;

fn parse(text: &str) -> Result<MachineFile, FileErrors> {
    parse_machine_file(Path::new("m"), text.as_bytes())
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
        format!(
            "{from} -> {to}\n{}",
            match parse(&text) {
                Ok(_) => "accepted\n".to_owned(),
                Err(errors) => format!("{errors}\n"),
            }
        )
    });
    expected.assert_eq(&parsed.collect::<String>());
}

#[test]
fn numbers_that_cannot_be_are_named() {
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
        ],
        expect![[r#"
             -> 
            accepted
            bench-machine/1 -> bench-machine/2
            m: `format` is `bayplan-bench-machine/2`, expected `bayplan-bench-machine/1`
            "ncpus": 4 -> "ncpus": 5
            m: ncpus: is 5, expected 4, the length of `cpus`
            "smt": 2 -> "smt": 1
            m: smt: is 1, expected 2, the CPUs of the largest core
            "reserved_cpus": "0" -> "reserved_cpus": "0,9"
            m: reserved_cpus: names CPUs 9, which are not in `cpus`
            "reserved_cpus": "0" -> "reserved_cpus": "zero"
            m: reserved_cpus: `zero` is no CPU list such as `0-3,8`: `zero` is not a number or a range such as 0-3
            "cpu": 3 -> "cpu": 1
            m: cpus[3]: duplicate CPU 1
            m: numa[1]: node 1 has CPUs `1,3`, but in the list of all CPUs it has `1`
            "cpu": 3 -> "cpu": -1
            m: cpus[3]: `cpu` is -1, expected 0 to 8191
            m: numa[1]: node 1 has CPUs `1,3`, but in the list of all CPUs it has `1`
            "cpu": 3 -> "cpu": 4000000000
            m: cpus[3]: `cpu` is 4000000000, expected 0 to 8191
            m: numa[1]: node 1 has CPUs `1,3`, but in the list of all CPUs it has `1`
        "#]],
    );
}

#[test]
fn domains_and_nodes_that_contradict_each_other_are_named() {
    check_machine(
        &[
            (r#"{"cpu": 3, "core": 1"#, r#"{"cpu": 3, "core": 0"#),
            (r#""l3": 1, "numa": 1"#, r#""l3": 0, "numa": 1"#),
            (r#""numa": 1, "die""#, r#""numa": 2, "die""#),
            (r#"{"id": 1"#, r#"{"id": 0"#),
            (r#"[20, 10]"#, r#"[20]"#),
            (r#"[20, 10]"#, r#"[9, 11]"#),
            (r#""mem_bytes": 1024"#, r#""mem_bytes": -1"#),
            (r#""cpus": "0,2""#, r#""cpus": "0""#),
        ],
        expect![[r#"
            {"cpu": 3, "core": 1 -> {"cpu": 3, "core": 0
            m: smt: is 2, expected 3, the CPUs of the largest core
            m: core 0: is in socket 0 and in socket 1, expected one of them
            m: core 0: is in die 0 of socket 0 and in die 0 of socket 1, expected one of them
            m: core 0: is in NUMA node 0 and in NUMA node 1, expected one of them
            m: core 0: is in L3 0 and in L3 1, expected one of them
            "l3": 1, "numa": 1 -> "l3": 0, "numa": 1
            m: L3 0: overlaps socket 1, and neither is inside the other
            m: L3 0: overlaps die 0 of socket 1, and neither is inside the other
            m: L3 0: overlaps NUMA node 1, and neither is inside the other
            m: core 1: is in L3 0 and in L3 1, expected one of them
            "numa": 1, "die" -> "numa": 2, "die"
            m: core 1: is in NUMA node 1 and in NUMA node 2, expected one of them
            m: numa[1]: node 1 has CPUs `1,3`, but in the list of all CPUs it has `3`
            m: cpus: some are in NUMA node 2, which is not in `numa`
            {"id": 1 -> {"id": 0
            m: numa[1]: `id` is 0, expected more than that of the one before
            m: numa[1]: node 0 has CPUs `1,3`, but in the list of all CPUs it has `0,2`
            m: cpus: some are in NUMA node 1, which is not in `numa`
            [20, 10] -> [20]
            m: numa[1]: `distance` has 1, expected 2 numbers
            [20, 10] -> [9, 11]
            m: numa[1].distance[0]: is 9, expected 10 to 255
            m: numa[1].distance[1]: is 11, expected 10, the distance to itself
            "mem_bytes": 1024 -> "mem_bytes": -1
            m: numa[0]: `mem_bytes` is -1, expected 0 or more
            "cpus": "0,2" -> "cpus": "0"
            m: numa[0]: node 0 has CPUs `0`, but in the list of all CPUs it has `0,2`
        "#]],
    );
}

#[test]
fn a_machine_file_is_the_machine_that_it_describes() {
    let MachineFile { name, snapshot, reserved } = parse(MACHINE).unwrap();
    let topology = derive(&snapshot).unwrap();
    assert_eq!((name.as_str(), reserved), ("m4", "0".parse().unwrap()));
    expect![[r#"
        Machine: 4 CPUs 0-3, 2 cores, 2 KiB
          Package 0 / Die 0 / NumaNode 0 / L3 0: 2 CPUs 0,2, 1 KiB
            core 0 of 2 threads, 2 CPUs 0,2
          Package 1 / Die 0 / NumaNode 1 / L3 1: 2 CPUs 1,3, 1 KiB
            core 1 of 2 threads, 2 CPUs 1,3
        Distances between NUMA nodes 0-1:
           0:  10  20
           1:  20  10
    "#]]
    .assert_eq(&render_tree(&topology));
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
    assert!(parse(&text).is_ok());
}
