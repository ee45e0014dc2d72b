use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bayplan_rebalance::Knob;
use bayplan_types::{Bytes, CpuId};
use expect_test::{Expect, expect, expect_file};
use proptest::prelude::*;

use super::kind::Kind;
use super::requests::POLICIES;
use super::table::{Key, keys};
use super::*;

/// The configuration, or the mistakes.
fn check(text: &str, expected: Expect) {
    let shown = match parse_config(Path::new("config.yaml"), text) {
        Ok(config) => format!("{config:#?}"),
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
fn a_filter_that_logs_nothing_of_ours_is_a_mistake() {
    for good in [
        "info",
        "off",
        "WARN",
        "3",
        "bayplan_cri=debug,info",
        "bayplan_daemon",
        "h2=warn,info",
        "info,h2=off",
        "bayplan_daemon[step]=debug,warn",
        "bayplan=trace",
    ] {
        assert!(is_log_filter(good), "{good}");
    }
    for bad in ["loud", "", "infos", "info,loud", "h2=debug", "a=b=c", "6", "quiet=info"] {
        assert!(!is_log_filter(bad), "{bad}");
    }
}

#[test]
fn what_can_be_understood_of_a_broken_file_is_used() {
    let check = |text: &str, is_broken: bool, control: &Path| {
        let (config, problem) = ConfigFile::parse_usable(Path::new("f"), text);
        assert_eq!(
            (problem.is_some(), config.control_socket.as_path()),
            (is_broken, control),
            "{text}"
        );
    };
    check("controlSocket: /a\n", false, Path::new("/a"));
    for broken in [
        "controlSocket: /a\nsokket: /b\n",
        "log: loud\ncontrolSocket: /a\n",
        "controlSocket: /a\nlog: \"info\n",
        "# a comment\nrequests: {siblings: [pair\ncontrolSocket: /a\n",
        "controlSocket: /a\n\tlog: info\n",
        "resctrl:\n  partitions: {a: {mbAllocation: [fast]}}\ncontrolSocket: /a\n",
    ] {
        check(broken, true, Path::new("/a"));
    }
    let usual = Config::default().control_socket;
    for none in ["controlSocket: [\n", "kind: BalloonsPolicy\ncontrolSocket: /a\n", "- a\n"] {
        check(none, true, &usual);
    }
}

#[test]
fn a_lowest_frequency_above_the_highest_is_a_mistake_where_both_are_comparable() {
    let check = |bounds: &str| {
        let text = format!("cpuClasses: {{classes: {{c: {{{bounds}}}}}}}\n");
        parse_config(Path::new("f"), &text).is_ok()
    };
    for good in [
        "minFreq: 2GHz, maxFreq: 2GHz",
        "minFreq: min, maxFreq: 0%",
        "minFreq: 50%, maxFreq: max",
        "minFreq: 3GHz, maxFreq: 50%",
        "minFreq: base, maxFreq: 1GHz",
        "minFreq: maxFreq-200MHz, maxFreq: 2GHz",
        "uncoreMinFreq: 1GHz, uncoreMaxFreq: 2GHz",
    ] {
        assert!(check(good), "{good}");
    }
    for bad in [
        "minFreq: 2100MHz, maxFreq: 2GHz",
        "maxFreq: 20%, minFreq: 21%",
        "minFreq: max, maxFreq: 99%",
        "minFreq: 1%, maxFreq: min",
        "uncoreMinFreq: 2GHz, uncoreMaxFreq: 1GHz",
    ] {
        assert!(!check(bad), "{bad}");
    }
}

#[test]
fn directories_in_containers_are_absolute_and_each_is_named_once() {
    for wrong in ["[.bayplan]", "[/]", "[/a/../etc]", "[/a, /b, /a]", "[[/a]]", "/a", ""] {
        let text = format!("resourcesDirectories: {wrong}\n");
        let mistake = parse_config(Path::new("f"), &text).unwrap_err().to_string();
        assert!(mistake.contains("expected a list of absolute paths in containers"), "{mistake}");
    }
    let config = parse_config(Path::new("f"), "resourcesDirectories: [/a, /b/c]\n").unwrap();
    assert_eq!(config.resources_directories, [Path::new("/a"), Path::new("/b/c")]);
}

/// Weights and frequencies are turned on machines of tests only.
#[test]
fn what_the_daemon_cannot_turn_cannot_be_forbidden() {
    let config = parse_config(Path::new("f"), "rebalance: {forbid: [move-owner, idle]}").unwrap();
    assert_eq!(config.rebalance.forbidden, [Knob::Idle, Knob::MoveOwner].into());
    let names = KNOBS.map(Knob::name).join(", ");
    let row = table::find("rebalance.forbid").unwrap();
    assert!(row.text.ends_with(&format!("some of {names}.")), "{}", row.text);
    check(
        "rebalance:\n  forbid: [weight, idle, frequency]\n",
        expect![[r#"
            config.yaml:2:12: `rebalance.forbid` is `weight`, expected a list with some of idle, siblings, suppress, gather, burst, cache, bandwidth, move, clock, memory, move-owner, evict
            config.yaml:2:26: `rebalance.forbid` is `frequency`, expected a list with some of idle, siblings, suppress, gather, burst, cache, bandwidth, move, clock, memory, move-owner, evict"#]],
    );
}

#[test]
fn every_mistake_is_listed_with_line_and_column() {
    check(
        "socket: run/b.sock\nreservedCpus: 0-x\nreservdCpus: 1\nmetricsAddress: localhost\n\
         decisionTimeout: 2\nonFailure:\n  - open\nreservedNamespaces: [a, [b]]\nlog:\nsocket: /b\n",
        expect![[r#"
            config.yaml:1:9: `socket` is `run/b.sock`, expected an absolute path
            config.yaml:2:15: `reservedCpus` is `0-x` (`0-x` is not a number or a range such as 0-3), expected a CPU list such as "0,28" or "0-3", or an amount such as 750m or 2 CPUs
            config.yaml:3:1: unknown key `reservdCpus`; did you mean `reservedCpus`? known are frontEnd, nri, kubelet, socket, runtimeSocket, imageSocket, controlSocket, controlGroup, stateDir, historySize, metricsAddress, map, policy, reservedCpus, availableCpus, reservedNamespaces, groups, groupLoads, schedulingClasses, permissions, closedCpus, requests, decisionTimeout, onFailure, onNoCapacity, maxWaitingCalls, runtimeTimeout, resyncInterval, drainTimeout, compaction, memory, cpu, isolation, blockIo, resctrl, cpuClasses, enforcement, sweepInterval, resourcesDirectories, observeInterval, probes, counters, bestEffort, wideVectors, rebalance, hostRoot, log
            config.yaml:4:17: `metricsAddress` is `localhost`, expected IP:PORT such as 127.0.0.1:9478, or off
            config.yaml:5:18: `decisionTimeout` is `2`, expected a duration from 10ms to 1h such as 500ms, 2s or 1m
            config.yaml:7:3: `onFailure` is a list, expected one of open, closed
            config.yaml:8:25: `reservedNamespaces` is not only names, expected a list of names such as [kube-system, monitoring]
            config.yaml:9:4: `log` is empty, expected off, error, warn, info, debug or trace, or levels by crate such as bayplan_cri=debug,info
            config.yaml:10:1: duplicate key `socket`"#]],
    );
}

#[test]
fn mistakes_in_a_section_are_listed_too() {
    check(
        "compaction:\n  enabled: yes\n  maxMovesPerEvent: 0\n  maxMemoryPerEvent: 5\n  gain: 1\n  enabled: true\nlog: info\n",
        expect![[r#"
            config.yaml:3:21: `compaction.maxMovesPerEvent` is `0`, expected a number from 1 to 16
            config.yaml:4:22: `compaction.maxMemoryPerEvent` is `5`, expected an amount such as 512Mi, 16Gi or 1Ti, or unlimited
            config.yaml:5:3: unknown key `compaction.gain`; known are enabled, maxMovesPerEvent, maxCpusPerEvent, maxMemoryPerEvent, minGainPercent
            config.yaml:6:3: duplicate key `compaction.enabled`"#]],
    );
    check(
        "compaction: true\n",
        expect![[r#"
            config.yaml:1:13: `compaction` is not a mapping, expected lines of `key: value`; known are enabled, maxMovesPerEvent, maxCpusPerEvent, maxMemoryPerEvent, minGainPercent"#]],
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

const EVERY_KEY: &str = "socket: unix:///a\nruntimeSocket: /b\ncontrolSocket: /c\ncontrolGroup: 27\nstateDir: /d\nhistorySize: 3Mi\nmetricsAddress: off\n\
         policy: one-shared-pool\nreservedCpus: 0\nreservedNamespaces: [x]\ndecisionTimeout: 500ms\nruntimeTimeout: 1m\n\
         resyncInterval: 5s\nonFailure: closed\nonNoCapacity: share\nmaxWaitingCalls: 7\ndrainTimeout: 2m\nhostRoot: /h\nlog: debug\ncompaction:\n  enabled: true\n  maxMovesPerEvent: 1\n  \
         maxCpusPerEvent: 2\n  maxMemoryPerEvent: 3Gi\n  minGainPercent: 4\nmemory:\n  narrow: true\n  minPercent: 5\n  lowPercent: 6\n  highPercent: 7\n  demotion: true\n  reclaim:\n    r:\n      every: 5s\n\
         cpu:\n  liftQuota: false\n  burstPercent: 8\nisolation:\n  partition: root\n  interrupts: housekeeping\n\
         blockIo:\n  classes:\n    a:\n      - Devices: [/dev/sda]\n        Weight: 9\n";

#[test]
#[allow(clippy::too_many_lines, reason = "each key has its lines in what is expected")]
fn every_key_is_understood() {
    let config = parse_config(Path::new("config.yaml"), EVERY_KEY).unwrap();
    expect_file!["every_key.txt"].assert_eq(&format!("{config:#?}\n"));
}

#[test]
fn switches_need_no_quotes() {
    for (text, has_probes) in [
        ("probes: on", true),
        ("probes: off", false),
        ("probes: 'off'", false),
        ("probes: false", false),
    ] {
        let config = parse_config(Path::new("f"), text).unwrap();
        assert_eq!(config.has_probes, has_probes, "{text}");
    }
}

#[test]
fn a_key_in_the_wrong_section_is_sent_to_the_right_one() {
    check(
        "siblings: pair\nmemory:\n  enabled: true\ncompaction:\n  socket: /a\nrequests: [a]\n",
        expect![[r#"
            config.yaml:1:1: `siblings` stands below `requests:`, not here
            config.yaml:3:3: `enabled` stands below `compaction:`, not here
            config.yaml:5:3: `socket` stands below `nri:`, not here
            config.yaml:6:11: `requests` is not a mapping, expected lines of `key: value`; known are preferSharedCpus, qosPerContainer, preferIsolatedCpus, siblings, defaultCpuPriority, unlimitedBurstable, pinCpu, pinMemory, preserve, numaStrategy, lseIdleSiblings, amplificationPercent, colocatePods, colocateNamespaces, fullPcpusOnly, distributeCpusAcrossNuma, distributeCpusAcrossCores, preferAlignCpusByUncoreCache, alignBySocket, strictCpuReservation, topologyManagerPolicy, topologyManagerScope"#]],
    );
}

#[test]
fn the_example_configuration_is_what_an_empty_file_shows() {
    let shown = ConfigFile::default().settings().to_string();
    expect_file!["../../../deploy/config.yaml"].assert_eq(&shown);
    assert_eq!(parse_config(Path::new("f"), &shown), Ok(Config::default()));
}

#[test]
#[allow(clippy::too_many_lines, reason = "each key has its lines in what is expected")]
fn what_is_shown_says_where_it_comes_from_and_means_the_same() {
    let file = ConfigFile::parse(Path::new("f"), EVERY_KEY).unwrap();
    let shown = file.settings().to_string();
    assert_eq!(parse_config(Path::new("f"), &shown), Ok(file.config));
    let values: Vec<&str> = shown.lines().filter(|it| !it.trim().starts_with('#')).collect();
    expect![[r#"

        frontEnd: cri

        nri:
          socket: /var/run/nri/nri.sock
          index: 90

        kubelet:
          podsSocket: /var/lib/kubelet/pods-api/pods-api.sock
          podResourcesSocket: /var/lib/kubelet/pod-resources/kubelet.sock

        socket: /a  # line 1 of the file

        runtimeSocket: /b  # line 2 of the file

        imageSocket: runtimeSocket

        controlSocket: /c  # line 3 of the file

        controlGroup: "27"  # line 4 of the file

        stateDir: /d  # line 5 of the file

        historySize: 3Mi  # line 6 of the file

        metricsAddress: "off"  # line 7 of the file

        map: "on"

        policy: one-shared-pool  # line 8 of the file

        reservedCpus: "0"  # line 9 of the file

        availableCpus: ""

        reservedNamespaces: [x]  # line 10 of the file

        groups: []

        groupLoads: []

        schedulingClasses: []

        permissions: []

        closedCpus:
          podPercent: 100
          namespacePercent: 25

        requests:
          preferSharedCpus: false
          qosPerContainer: false
          preferIsolatedCpus: false
          siblings: pair
          defaultCpuPriority: none
          unlimitedBurstable: none
          pinCpu: true
          pinMemory: true
          preserve: []
          numaStrategy: most-allocated
          lseIdleSiblings: true
          amplificationPercent: 100
          colocatePods: false
          colocateNamespaces: false
          fullPcpusOnly: false
          distributeCpusAcrossNuma: false
          distributeCpusAcrossCores: false
          alignBySocket: false
          topologyManagerPolicy: best-effort
          topologyManagerScope: container

        decisionTimeout: 500ms  # line 11 of the file

        onFailure: closed  # line 14 of the file

        onNoCapacity: share  # line 15 of the file

        maxWaitingCalls: 7  # line 16 of the file

        runtimeTimeout: 1m  # line 12 of the file

        resyncInterval: 5s  # line 13 of the file

        drainTimeout: 2m  # line 17 of the file

        compaction:
          enabled: true  # line 21 of the file
          maxMovesPerEvent: 1  # line 22 of the file
          maxCpusPerEvent: 2  # line 23 of the file
          maxMemoryPerEvent: 3Gi  # line 24 of the file
          minGainPercent: 4  # line 25 of the file

        memory:
          narrow: true  # line 27 of the file
          minPercent: 5  # line 28 of the file
          lowPercent: 6  # line 29 of the file
          highPercent: 7  # line 30 of the file
          reclaim: {"r":{"bytes":"64Mi","every":"5s","maxStalledPercent":1}}  # line 33 of the file
          demotion: true  # line 31 of the file

        cpu:
          liftQuota: false  # line 36 of the file
          burstPercent: 8  # line 37 of the file

        isolation:
          partition: root  # line 39 of the file
          interrupts: housekeeping  # line 40 of the file

        blockIo:
          classes: {"a":[{"Devices":["/dev/sda"],"Weight":9}]}  # line 43 of the file

        resctrl:
          monitor: "off"
          options: {}
          partitions: {}

        cpuClasses:
          classes: {}
          turboDomain: package
          speedSelect: {}
          exclusive: none
          shared: none
          reserved: none
          idle: none
          schedule: []
          timeZone: local

        enforcement: "on"

        sweepInterval: 30s

        resourcesDirectories: []

        observeInterval: 10s

        probes: "on"

        counters: auto

        bestEffort:
          nodePercent: 0
          floorPercent: 5
          growthPercent: 10
          idle: false
          borrow: false

        wideVectors:
          guaranteed: "off"
          burstable: "off"
          bestEffort: "off"
          perDomain: 2
          measured: true

        rebalance:
          mode: observe
          namespaces: {}
          interval: 5s
          forbid: []
          changesPerMinute: 6

        hostRoot: /h  # line 18 of the file

        log: debug  # line 19 of the file"#]]
    .assert_eq(&values.join("\n"));
}

/// Whether a validator of schemas accepts a file, and whether we do.
fn judge(text: &str) -> (bool, bool) {
    let validator = jsonschema::draft202012::options().build(&schema()).unwrap();
    let file: serde_json::Value = serde_yaml::from_str(text).unwrap();
    (validator.is_valid(&file), parse_config(Path::new("f"), text).is_ok())
}

#[test]
fn the_schema_is_one_and_says_so() {
    assert!(jsonschema::draft202012::meta::is_valid(&schema()));
    assert_eq!(schema()["$schema"], "https://json-schema.org/draft/2020-12/schema");
}

#[test]
fn the_schema_accepts_what_is_understood() {
    let example = include_str!("../../../deploy/config.yaml");
    for text in [
        example,
        EVERY_KEY,
        "null\n",
        "requests:\ncompaction: {}\n",
        "requests:\n  full-pcpus-only: \"true\"\n  preferSharedCPUs: false\n  defaultCPUPriority: low\n",
        "requests:\n  prefer-align-cpus-by-uncorecache: true\n  alignBySocket: true\n",
        "metricsAddress: \"[::1]:80\"\nreservedCpus: 0-3,8,10-11\nreservedNamespaces: []\n",
        "decisionTimeout: 1m 30s\n",
        "rebalance:\n  mode: off\n  namespaces: {batch: off, web: \"off\", db: act}\n",
        "memory:\n  reclaim:\n    a:\n    b: {every: 1m 30s, bytes: 4Mi, maxStalledPercent: 0, swappiness: 200}\n",
        "blockIo:\n  classes:\n    a:\n    b:\n      - Weight: 5\n      - Devices: [/dev/sda]\n        ThrottleReadIOPS: 1.5k\n",
    ] {
        assert_eq!(judge(text), (true, true), "{text}");
    }
}

#[test]
fn the_schema_refuses_what_is_refused() {
    for text in [
        "- a\n",
        "text\n",
        "sockets: /a\n",
        "socket: a\n",
        "socket:\n",
        "socket: [/a]\n",
        "metricsAddress: localhost\n",
        "metricsAddress: true\n",
        "reservedCpus: 0-x\n",
        "reservedCpus: [0]\n",
        "reservedNamespaces: kube-system\n",
        "reservedNamespaces: [[a]]\n",
        "reservedNamespaces: [\"\"]\n",
        "decisionTimeout: 2\n",
        "decisionTimeout: soon\n",
        "onFailure: ajar\n",
        "maxWaitingCalls: 0\n",
        "maxWaitingCalls: 65537\n",
        "maxWaitingCalls: 1.5\n",
        "log:\n",
        "compaction: true\n",
        "compaction:\n  enabled: maybe\n",
        "compaction:\n  enabled: 1\n",
        "compaction:\n  gain: 1\n",
        "compaction:\n  maxMemoryPerEvent: 5\n",
        "compaction:\n  maxMemoryPerEvent: 5GB\n",
        "memory:\n  reclaim: [a]\n",
        "memory:\n  reclaim:\n    none:\n",
        "memory:\n  reclaim:\n    a: fast\n",
        "memory:\n  reclaim:\n    a: {every: soon}\n",
        "memory:\n  reclaim:\n    a: {bytes: 5}\n",
        "memory:\n  reclaim:\n    a: {swappiness: 201}\n",
        "memory:\n  reclaim:\n    a: {size: 1Mi}\n",
        "blockIo:\n  classes: [a]\n",
        "blockIo:\n  classes:\n    a: fast\n",
        "blockIo:\n  classes:\n    a:\n      - Weight: 1001\n",
        "blockIo:\n  classes:\n    a:\n      - Bps: 1\n",
        "blockIo:\n  classes:\n    a:\n      - Devices: [sda]\n",
        "isolation:\n  partition: member\n",
        "requests:\n  siblings: brothers\n",
        "requests:\n  strictCpuReservation: false\n",
        "requests:\n  fullPcpusOnly: true\n  distributeCpusAcrossCores: true\n",
        "requests:\n  alignBySocket: \"true\"\n  topologyManagerPolicy: single-numa-node\n",
    ] {
        assert_eq!(judge(text), (false, false), "{text}");
    }
}

#[test]
fn an_editor_is_told_what_a_key_is_for_and_what_it_is_by_default() {
    let schema = schema();
    let limit = &schema["properties"]["compaction"]["properties"]["maxMovesPerEvent"];
    expect![[r#"
        {
          "default": 8,
          "description": "Containers that may be moved after one event.",
          "maximum": 16,
          "minimum": 1,
          "type": "integer"
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(limit).unwrap());
    assert_eq!(schema["properties"]["requests"]["properties"]["siblings"]["default"], "pair");
}

#[test]
fn every_key_has_a_text_of_its_own_and_stands_below_a_section() {
    for (index, key) in keys().enumerate() {
        let before = || keys().take(index);
        assert!(key.text.ends_with('.') && !key.text.contains("  "), "{}", key.name);
        assert!(before().all(|other| other.name != key.name), "{}", key.name);
        let (section, _) = key.split();
        let is_section = |it: &Key| it.name == section && matches!(it.kind, Kind::Section);
        assert!(section.is_empty() || before().any(is_section), "{}", key.name);
    }
}

proptest! {
    /// Whatever is configured, its file says the same.
    #[test]
    fn what_is_shown_is_read_back(
        path in "/[ -~é\\u{1}]{0,8}",
        names in proptest::collection::vec("[ -~é]{1,6}", 0..3),
        address in any::<Option<SocketAddr>>(),
        cpus in proptest::collection::vec(0u32..300, 0..9),
        (millis, micros) in (10u64..3_599_000, 0u64..2),
        kibs in proptest::option::of(1u64..1 << 40),
        (policy, across_cores) in (0usize..4, any::<bool>()),
    ) {
        let mut config = Config {
            socket: path.clone().into(),
            reserved_namespaces: names,
            // A zone has a name in text and a number in memory; none is given here.
            metrics_address: address.map(|it| SocketAddr::new(it.ip(), it.port())),
            reserved_cpus: cpus.into_iter().map(CpuId).collect(),
            decision_timeout: Duration::from_micros(millis * 1000 + micros),
            ..Config::default()
        };
        config.compaction.limits.memory_max = kibs.map(|kibs| Bytes(kibs << 10));
        config.requests.policy = POLICIES[policy].1;
        config.requests.across_cores = across_cores;
        let shown = Settings::of(&config, &[]).to_string();
        let differences = config.differences();
        for text in [&shown, &differences] {
            prop_assert_eq!(parse_config(Path::new("f"), text), Ok(config.clone()), "{}", text);
        }
    }
}
