//! `bayplan simulate` on a small machine and a small trace.

use std::path::Path;

use expect_test::{Expect, expect};

use crate::bayplan;

const MACHINE: &str = "simulate/machine.json";
const TRACE: &str = "simulate/trace.json";

/// Exit code, and both outputs without the durations, which differ from run to run, and so does the width of the columns that they
/// stand in.
fn check(args: &[&str], expected: Expect) {
    let output = bayplan(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let is_timed = |line: &str| line.trim_start().starts_with("CPU time ");
    let both = format!("{}{}", text(&output.stdout), text(&output.stderr));
    let in_columns = |line: &str| {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        format!("{}\n", cells.collect::<Vec<_>>().join("  "))
    };
    let lines = both.lines().filter(|line| !is_timed(line)).map(in_columns);
    expected.assert_eq(&format!(
        "exit {}\n{}",
        output.status.code().unwrap(),
        lines.collect::<String>()
    ));
}

#[test]
fn a_trace_is_replayed_and_summed_up() {
    check(
        &["simulate", "--machine", MACHINE, "--trace", TRACE],
        expect![[r#"
            exit 0
            small on two-nodes: 9 events, 16 CPUs

            reserved CPUs  0,8
            creates  7
            . placed  6
            . refused  1
            . refused, although enough CPUs had no holder  0
            exclusive containers (Guaranteed, whole CPUs)  3
            . with another number of CPUs than requested  0
            . with CPUs that had a holder  0
            . in one L3, where one had room  100.0 % of 3
            . in one NUMA node, where one had room  100.0 % of 3
            . in one package, where one had room  100.0 % of 3
            . NUMA nodes over the fewest possible  1.000
            . with half a core, where whole ones would have done  0.0 % of 2
            cores of two holders, mean  0.00
            cores half owned, mean  1.12
            largest hole in a NUMA node, over the ideal  78.5 %
            . in whole cores  69.4 %
            other containers rewritten per event  0.57
            containers moved to other exclusive CPUs  0
        "#]],
    );
}

#[test]
fn two_configurations_stand_side_by_side() {
    let args = ["simulate", "--machine", MACHINE, "--trace", TRACE];
    let configs = ["--compare", "../deploy/config.yaml", "simulate/half.yaml"];
    check(
        &[&args[..], &configs[..]].concat(),
        expect![[r#"
            exit 0
            small on two-nodes: 9 events, 16 CPUs

            ../deploy/config.yaml  simulate/half.yaml
            reserved CPUs  0,8  0-3,8-11
            creates  7  7
            . placed  6  5
            . refused  1  2
            . refused, although enough CPUs had no holder  0  1
            exclusive containers (Guaranteed, whole CPUs)  3  2
            . with another number of CPUs than requested  0  0
            . with CPUs that had a holder  0  0
            . in one L3, where one had room  100.0 % of 3  100.0 % of 2
            . in one NUMA node, where one had room  100.0 % of 3  100.0 % of 2
            . in one package, where one had room  100.0 % of 3  100.0 % of 2
            . NUMA nodes over the fewest possible  1.000  1.000
            . with half a core, where whole ones would have done  0.0 % of 2  0.0 % of 2
            cores of two holders, mean  0.00  0.00
            cores half owned, mean  1.12  0.57
            largest hole in a NUMA node, over the ideal  78.5 %  100.0 %
            . in whole cores  69.4 %  100.0 %
            other containers rewritten per event  0.57  1.50
            containers moved to other exclusive CPUs  0  0
        "#]],
    );
}

#[test]
fn the_summary_for_programs_and_the_placement_repeat_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let run = |file: &str| {
        let args =
            ["simulate", "--machine", MACHINE, "--trace", TRACE, "-o", "json", "--placement"];
        let output = bayplan(&[&args[..], &[file]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (String::from_utf8(output.stdout).unwrap(), std::fs::read_to_string(file).unwrap())
    };
    let (summary, placement) = run(&path("a.json"));
    assert_eq!((summary.clone(), placement.clone()), run(&path("b.json")));
    assert!(summary.starts_with("{\n  \"format\": \"bayplan-simulation/1\",\n"), "{summary}");
    expect![[r#"
        {"format":"bayplan-bench-placement/1","system":"bayplan","trace":"small","events":[
        {"i":0,"op":"create","id":"logs","ok":true,"kind":"shared","excl":"","cpus":"4-7,12-15","mems":"1","updates":0},
        {"i":1,"op":"create","id":"database","ok":true,"kind":"exclusive","excl":"2-3,10-11","cpus":"2-3,10-11","mems":"0","updates":0},
        {"i":2,"op":"create","id":"batch","ok":true,"kind":"shared","excl":"","cpus":"4-7,12-15","mems":"1","updates":0},
        {"i":3,"op":"create","id":"api","ok":true,"kind":"mixed","excl":"1","cpus":"1,9","mems":"0","updates":0},
        {"i":4,"op":"create","id":"cache","ok":true,"kind":"exclusive","excl":"4-5,12","cpus":"4-5,12","mems":"1","updates":2},
        {"i":5,"op":"create","id":"huge","ok":false,"err":"needs 14 exclusive CPUs; 3 are free"},
        {"i":6,"op":"remove","id":"database","ok":true,"updates":1},
        {"i":7,"op":"remove","id":"huge","ok":false,"err":"its create was refused"},
        {"i":8,"op":"create","id":"inference","ok":true,"kind":"exclusive","excl":"2,10","cpus":"2,10","mems":"0","updates":1}
        ]}
    "#]].assert_eq(&placement);
}

#[test]
fn pictures_show_the_machine_before_and_after() {
    let dir = tempfile::tempdir().unwrap();
    let pictures = dir.path().join("new/pictures");
    let args = ["simulate", "--machine", MACHINE, "--trace", TRACE, "--svg"];
    let output = bayplan(&[&args[..], &[pictures.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let picture = |name: &str| std::fs::read_to_string(pictures.join(name)).unwrap();
    assert!(picture("before.svg").starts_with("<svg") && !picture("before.svg").contains("cache"));
    assert!(picture("after.svg").contains("inference"), "{}", picture("after.svg"));
    assert!(!picture("after.svg").contains("database"));
}

#[test]
fn every_command_takes_a_machine_in_json() {
    check(
        &["topology", "--machine", MACHINE],
        expect![[r#"
            exit 0
            Machine: 16 CPUs 0-15, 8 cores, 32 GiB
            Package 0 / Die 0 / NumaNode 0: 8 CPUs 0-3,8-11, 16 GiB
            L3 0: 4 CPUs 0-1,8-9
            cores 0-1 of 2 threads, 4 CPUs 0-1,8-9
            L3 1: 4 CPUs 2-3,10-11
            cores 2-3 of 2 threads, 4 CPUs 2-3,10-11
            Package 1 / Die 0 / NumaNode 1: 8 CPUs 4-7,12-15, 16 GiB
            L3 2: 4 CPUs 4-5,12-13
            cores 4-5 of 2 threads, 4 CPUs 4-5,12-13
            L3 3: 4 CPUs 6-7,14-15
            cores 6-7 of 2 threads, 4 CPUs 6-7,14-15
            Distances between NUMA nodes 0-1:
            0:  10  21
            1:  21  10
        "#]],
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("snapshot.txt");
    let file = file.to_str().unwrap();
    assert!(bayplan(&["snapshot", "--machine", MACHINE, "-o", file]).status.success());
    let direct = bayplan(&["topology", "-o", "json", "--machine", MACHINE]).stdout;
    assert_eq!(bayplan(&["topology", "-o", "json", "--machine", file]).stdout, direct);
    assert!(bayplan(&["demo", "--machine", MACHINE]).status.success());
}

#[test]
fn output_is_the_form_as_everywhere_and_still_takes_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("placed.json");
    let old = file.to_str().unwrap();
    let run = |args: &[&str]| {
        let output =
            bayplan(&[&["simulate", "--machine", MACHINE, "--trace", TRACE], args].concat());
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        (output.stdout, String::from_utf8_lossy(&output.stderr).replace(old, "FILE"))
    };
    let (json, silent) = run(&["-o", "json"]);
    assert!(json.starts_with(b"{") && silent.is_empty(), "{silent}");
    assert_eq!(run(&["--output", "json"]).0, json);
    assert_eq!(run(&["--summary", "json"]).0, json);
    let (again, hint) = run(&["-o", "json", "--output", old]);
    assert_eq!(again, json);
    assert_eq!(hint, "bayplan: warning: --output FILE is written --placement FILE now\n");
    assert!(file.exists());
}

#[test]
fn what_cannot_be_replayed_is_explained() {
    let run = |args: &[&str]| bayplan(&[&["simulate"], args].concat());
    let dir = tempfile::tempdir().unwrap();
    let cut = dir.path().join("cut.json");
    let whole = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(TRACE)).unwrap();
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let cut = cut.to_str().unwrap();
    let mut text = String::new();
    for args in [
        &["--machine", MACHINE, "--trace", cut][..],
        &["--machine", MACHINE, "--trace", "nowhere.json"],
        &["--machine", MACHINE, "--trace", MACHINE],
        &["--machine", TRACE, "--trace", TRACE],
        &["--machine", "core:4", "--trace", TRACE, "--output", "a", "--compare", "b", "c"],
        &["--machine", "core:2", "--trace", TRACE, "--config", "simulate/half.yaml"],
        &["--machine", "core:4", "--trace", TRACE, "--svg", TRACE],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        text.push_str(&String::from_utf8_lossy(&output.stderr).replace(cut, "cut.json"));
    }
    expect![[r#"
        bayplan: cut.json:5:103: the file ends too early (EOF while parsing a string); is it complete?
        bayplan: cannot read nowhere.json: No such file or directory (os error 2)
        bayplan: simulate/machine.json: `format` is `bayplan-bench-machine/1`, expected `bayplan-bench-trace/1`
        bayplan: simulate/trace.json: `format` is `bayplan-bench-trace/1`, expected `bayplan-bench-machine/1`
        bayplan: warning: --output a is written --placement a now
        bayplan: --compare writes no placement; leave --output a out
        bayplan: warning: simulate/trace.json was made for the machine `two-nodes`, and is replayed on `core:2`
        bayplan: simulate/half.yaml does not suit the machine core:2: reserved CPUs 2-3,8-11 are not online; this machine has 0-1
        bayplan: warning: simulate/trace.json was made for the machine `two-nodes`, and is replayed on `core:4`
        bayplan: --svg simulate/trace.json: there is a file of that name, expected a directory
    "#]].assert_eq(&text);
}
