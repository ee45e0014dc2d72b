//! `bayplan config`: what holds, what is wrong, and the schema.

use std::path::PathBuf;

use expect_test::expect;
use tempfile::TempDir;

use super::{bayplan, check};

/// A file in a directory that goes with it.
fn file(text: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

/// Exit code and standard output, with the file's name replaced.
fn with_file(text: &str, args: &[&str]) -> String {
    let (_dir, path) = file(text);
    let path = path.to_str().unwrap();
    let args: Vec<&str> = args.iter().map(|arg| if *arg == "FILE" { path } else { arg }).collect();
    let output = bayplan(&args);
    let shown = String::from_utf8_lossy(&output.stdout).replace(path, "FILE");
    format!("exit {}\n{shown}", output.status.code().unwrap())
}

#[test]
fn what_is_shown_is_a_file_that_shows_the_same() {
    let first = with_file("memory:\n  narrow: true\n", &["config", "show", "--config", "FILE"]);
    let text = first.strip_prefix("exit 0\n").unwrap();
    assert!(text.contains("\n  narrow: true  # line 2 of the file\n"), "{text}");
    let values = |text: &str| {
        let lines = text.lines().filter(|it| !it.trim_start().starts_with('#'));
        lines.map(|it| it.split("  # ").next().unwrap_or(it).to_owned()).collect::<Vec<String>>()
    };
    let second = with_file(text, &["config", "show", "--config", "FILE"]);
    assert_eq!(values(&second), values(&first));
}

#[test]
fn programs_are_told_where_a_value_comes_from() {
    let shown = with_file("log: debug\n", &["config", "show", "-o", "json", "--config", "FILE"]);
    let shown: serde_json::Value =
        serde_json::from_str(shown.strip_prefix("exit 0\n").unwrap()).unwrap();
    assert_eq!(shown["format"], "bayplan-config/1");
    let settings = shown["settings"].as_array().unwrap();
    let of = |key: &str| settings.iter().find(|it| it["key"] == key).unwrap();
    assert_eq!((&of("log")["source"], of("log")["line"].as_u64()), (&"file".into(), Some(1)));
    assert_eq!(of("compaction.enabled")["source"], "default");
    assert_eq!(of("compaction.enabled")["value"], false);
}

#[test]
fn a_check_lists_every_mistake_and_a_good_file_has_none() {
    expect![[r#"
        exit 64
        FILE:1:1: unknown key `sokket`; did you mean `socket`? known are frontEnd, nri, kubelet, socket, runtimeSocket, imageSocket, controlSocket, controlGroup, stateDir, historySize, metricsAddress, map, policy, reservedCpus, availableCpus, reservedNamespaces, groups, groupLoads, schedulingClasses, permissions, closedCpus, requests, decisionTimeout, onFailure, onNoCapacity, maxWaitingCalls, runtimeTimeout, resyncInterval, drainTimeout, compaction, memory, cpu, isolation, blockIo, resctrl, cpuClasses, enforcement, sweepInterval, resourcesDirectories, observeInterval, probes, counters, bestEffort, wideVectors, rebalance, hostRoot, log
        FILE:2:6: `log` is `a=b=c`, expected off, error, warn, info, debug or trace, or levels by crate such as bayplan_cri=debug,info
        FILE:3:1: `siblings` stands below `requests:`, not here
        FILE:5:13: `requests.siblings` is `brothers`, expected one of pair, shared, idle
        4 mistakes
    "#]].assert_eq(&with_file(
        "sokket: /a\nlog: \"a=b=c\"\nsiblings: pair\nrequests:\n  siblings: brothers\n",
        &["config", "check", "FILE"],
    ));
    let good = with_file("reservedCpus: 0\n", &["config", "check", "FILE"]);
    assert!(good.starts_with("exit 0\n") && good.ends_with("FILE: no mistakes\n"), "{good}");
    let lacking = with_file("reservedCpus: 8000\n", &["config", "check", "FILE"]);
    assert!(lacking.starts_with("exit 64\nFILE:1:15: `reservedCpus`: "), "{lacking}");
    check(
        &["config", "check", "/nonexistent.yaml"],
        expect![[r#"
        exit 1
        bayplan: cannot read /nonexistent.yaml: No such file or directory (os error 2)
    "#]],
    );
}

#[test]
fn programs_get_mistakes_with_their_places() {
    let checked = with_file("log:\n", &["config", "check", "-o", "json", "FILE"]);
    let checked: serde_json::Value =
        serde_json::from_str(checked.strip_prefix("exit 64\n").unwrap()).unwrap();
    assert_eq!(checked["mistakes"][0]["line"], 1);
    assert_eq!(checked["file"], "FILE");
}

#[test]
fn the_schema_is_printed() {
    let output = bayplan(&["config", "schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["properties"]["decisionTimeout"]["default"], "5s");
}
