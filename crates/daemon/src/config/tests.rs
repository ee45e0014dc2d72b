use bayplan_allocator::Wishes;
use expect_test::{Expect, expect};

use super::*;

/// The configuration, or the mistakes. Wishes that say nothing are not shown.
fn check(text: &str, expected: Expect) {
    let no_wishes = format!("{:#?}", Wishes::default()).replace('\n', "\n        ");
    let shown = match parse_config(Path::new("config.yaml"), text) {
        Ok(config) => format!("{config:#?}").replace(&no_wishes, "none"),
        Err(errors) => errors.to_string(),
    };
    expected.assert_eq(&shown);
}

#[test]
fn nothing_is_the_defaults() {
    for text in ["", "\n", "# nothing\n", "---\n"] {
        assert_eq!(parse_config(Path::new("f"), text), Ok(Config::default()), "{text:?}");
    }
}

#[test]
fn a_terminal_obeys_nothing_in_a_mistake() {
    let mistake = parse_config(Path::new("f"), "\"re\\e[2J\": 1\n").unwrap_err().to_string();
    assert!(mistake.contains("`re\\u{1b}[2J`"), "{mistake}");
}

#[test]
fn every_mistake_is_listed_with_line_and_column() {
    check(
        "socket: run/b.sock\nreservedCpus: 0-x\nreservdCpus: 1\nmetricsAddress: localhost\n\
         decisionTimeout: 2\nonFailure:\n  - open\nreservedNamespaces: [a, [b]]\nlog:\nsocket: /b\n",
        expect![[r#"
            config.yaml:1:9: `socket` is `run/b.sock`, expected an absolute path
            config.yaml:2:15: `reservedCpus` is `0-x` (`0-x` is not a number or a range such as 0-3), expected a CPU list such as "0,28" or "0-3"
            config.yaml:3:1: unknown key `reservdCpus`; did you mean `reservedCpus`? known are socket, runtimeSocket, controlSocket, stateDir, metricsAddress, reservedCpus, reservedNamespaces, requests, decisionTimeout, runtimeTimeout, resyncInterval, onFailure, onNoCapacity, maxWaitingCalls, drainTimeout, compaction, memory, hostRoot, log
            config.yaml:4:17: `metricsAddress` is `localhost`, expected IP:PORT such as 127.0.0.1:9478, or off
            config.yaml:5:18: `decisionTimeout` is `2`, expected a duration from 10ms to 1h such as 500ms, 2s or 1m
            config.yaml:7:3: `onFailure` is a list, expected open (forward undecided calls unchanged) or closed (refuse them)
            config.yaml:8:25: `reservedNamespaces` is not only names, expected a list of namespaces such as [kube-system, monitoring]
            config.yaml:9:4: `log` is empty, expected a filter such as info or bayplan_cri=debug,info
            config.yaml:10:1: `socket` stands twice"#]],
    );
}

#[test]
fn mistakes_in_a_section_are_listed_too() {
    check(
        "compaction:\n  enabled: yes\n  maxMovesPerEvent: 0\n  maxMemoryPerEvent: 5\n  gain: 1\n  enabled: true\nlog: info\n",
        expect![[r#"
            config.yaml:3:21: `compaction.maxMovesPerEvent` is `0`, expected a number from 1 to 16
            config.yaml:4:22: `compaction.maxMemoryPerEvent` is `5`, expected an amount such as 512Mi, 16Gi or 1Ti, or unlimited
            config.yaml:5:3: unknown key `gain`; known are enabled, maxMovesPerEvent, maxCpusPerEvent, maxMemoryPerEvent, minGainPercent
            config.yaml:6:3: `enabled` stands twice"#]],
    );
    check(
        "compaction: true\n",
        expect![
            "config.yaml:1:13: `compaction` is not a mapping, expected lines such as `enabled: true`"
        ],
    );
}

#[test]
fn what_is_not_a_mapping_is_refused() {
    check(
        "- a\n",
        expect![[r#"config.yaml:1:1: expected `key: value` lines such as `reservedCpus: "0,28"`"#]],
    );
    check(
        "socket: [\n",
        expect!["config.yaml:1:9: not YAML: unclosed bracket '[' at line 1, column 9"],
    );
    check(
        "just text\n",
        expect![[r#"config.yaml:1:1: expected `key: value` lines such as `reservedCpus: "0,28"`"#]],
    );
}

const EVERY_KEY: &str = "socket: unix:///a\nruntimeSocket: /b\ncontrolSocket: /c\nstateDir: /d\nmetricsAddress: off\n\
         reservedCpus: 0\nreservedNamespaces: [x]\ndecisionTimeout: 500ms\nruntimeTimeout: 1m\n\
         resyncInterval: 5s\nonFailure: closed\nonNoCapacity: share\nmaxWaitingCalls: 7\ndrainTimeout: 2m\nhostRoot: /h\nlog: debug\ncompaction:\n  enabled: true\n  maxMovesPerEvent: 1\n  \
         maxCpusPerEvent: 2\n  maxMemoryPerEvent: 3Gi\n  minGainPercent: 4\nmemory:\n  narrow: true\n";

#[test]
fn every_key_is_understood() {
    check(
        EVERY_KEY,
        expect![[r#"
            Config {
                socket: "/a",
                runtime_socket: "/b",
                control_socket: "/c",
                state_dir: "/d",
                metrics_address: None,
                reserved_cpus: CpuSet(0),
                rules: RequestRules {
                    reserved_namespaces: [
                        "x",
                    ],
                    prefer_shared_cpus: false,
                    prefer_isolated_cpus: false,
                    colocate_pods: false,
                    colocate_namespaces: false,
                    wishes: none,
                },
                decision_timeout: 500ms,
                runtime_timeout: 60s,
                resync_interval: 5s,
                on_failure: Closed,
                on_no_capacity: Share,
                waiting_max: 7,
                drain_timeout: 120s,
                compaction: CompactionConfig {
                    enabled: true,
                    limits: Limits {
                        moves_max: 1,
                        cpus_max: 2,
                        memory_max: Some(
                            Bytes(
                                3221225472,
                            ),
                        ),
                        gain_min_percent: 4,
                        states_max: 2000,
                    },
                },
                narrows_memory: true,
                host_root: "/h",
                log: "debug",
            }"#]],
    );
}

#[test]
fn the_example_configuration_is_the_defaults() {
    let text = include_str!("../../../../deploy/config.yaml");
    assert_eq!(parse_config(Path::new("f"), text), Ok(Config::default()));
}
