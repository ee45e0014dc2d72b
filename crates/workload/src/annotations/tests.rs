use std::collections::BTreeMap;

use bayplan_allocator::{ContainerId, Wishes};
use bayplan_types::QosClass;
use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::kept::{CUT, KEPT_MAX};
use super::values::{Said, VALUE_MAX};
use super::*;
use crate::container::{NewContainer, Pod};
use crate::rules::RequestRules;

fn container(pairs: &[(&str, &str)]) -> NewContainer {
    let (labels, annotations): (Vec<_>, Vec<_>) =
        pairs.iter().partition(|(name, _)| name.starts_with("label "));
    let map = |pairs: Vec<&(&str, &str)>| {
        let pairs = pairs.into_iter().map(|(name, value)| {
            (name.trim_start_matches("label ").to_owned(), (*value).to_owned())
        });
        pairs.collect::<BTreeMap<String, String>>()
    };
    NewContainer {
        pod: Pod {
            id: "sandbox".to_owned(),
            qos: Some(QosClass::Guaranteed),
            annotations: relevant(&map(annotations)),
            labels: map(labels),
            ..Pod::default()
        },
        name: "c".to_owned(),
        ..NewContainer::default()
    }
}

/// Rules that allow every wish.
fn everything() -> RequestRules {
    RequestRules { permissions: vec![Rule::everything()], ..RequestRules::default() }
}

/// What is not as without annotations, one line each, and what was warned of.
fn check(pairs: &[(&str, &str)], expected: Expect) {
    let (asked, warnings) = read_annotations(&container(pairs), &everything());
    let lines = |asked: &Asked| {
        let text = format!("{asked:#?}").replace(",\n", "\n");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let usual = lines(&Asked::default());
    let mut shown = String::new();
    let mut left = usual.iter();
    for line in lines(&asked) {
        // A bracket that closes is the usual one only right behind what is usual.
        let reach = if line.trim() == ")" { 1 } else { usize::MAX };
        if left.clone().take(reach).any(|it| *it == line) {
            left.find(|it| **it == line);
        } else {
            shown.push_str(&format!("{}\n", line.trim()));
        }
    }
    for warning in &warnings {
        shown.push_str(&format!("! {}\n", warning.text));
    }
    expected.assert_eq(&shown);
}

#[test]
fn every_word_of_the_table_is_understood_and_no_other() {
    for key in KEYS {
        let words = match key.values {
            Values::Words(words) => words,
            Values::Text(_) => &[],
        };
        for word in words.iter().copied().chain(["nonsense", "", "\0"]) {
            let said = Said { value: word, container: "c" };
            let is_understood = (key.set)(&mut Asked::default(), &said).is_ok();
            // What classes and groups there are is known to the configuration only.
            let is_name = key.name.ends_with("class") || key.fills.contains(&Field::Group);
            let is_name = is_name && word == "nonsense";
            let expected = is_name || words.contains(&word);
            assert_eq!(is_understood, expected, "{} = {word:?}", key.name);
        }
    }
}

#[test]
fn every_older_name_is_found_and_no_other_prefix() {
    for key in KEYS {
        let older = key.older_names();
        for name in older.iter().chain([&key.annotation()]) {
            let parsed = names::parse_name(name).filter(table::is_known);
            assert_eq!(parsed.map(|it| it.key), Some(key.name), "{name}");
        }
        let crm = format!("{}.{}", key.name, names::CRM);
        let is_known = names::parse_name(&crm).is_some_and(|it| table::is_known(&it));
        assert_eq!(is_known, key.older.contains(&names::CRM), "{crm}");
    }
}

#[test]
fn what_others_understand_and_bayplan_does_nothing_about_is_warned_of() {
    check(
        &[
            (
                "scheduling.koordinator.sh/resource-spec",
                r#"{"preferredCPUBindPolicy":"ConstrainedBurst"}"#,
            ),
            ("katalyst.kubewharf.io/cpu_enhancement", r#"{"numa_number":"2"}"#),
        ],
        expect![[r#"
            ! annotation `katalyst.kubewharf.io/cpu_enhancement`: numa_number 2 has no effect
            ! annotation `scheduling.koordinator.sh/resource-spec`: preferredCPUBindPolicy ConstrainedBurst has no effect
        "#]],
    );
}

#[test]
fn what_is_asked_for_beside_a_place_has_the_names_of_runtimes_too() {
    check(
        &[
            ("cpu-load-balancing.crio.io", "disable"),
            ("cpu-quota.crio.io/c", "disable"),
            ("cpu-quota.crio.io", "enable"),
            ("irq-load-balancing.crio.io/d", "disable"),
            ("irq-load-balancing.crio.io", "housekeeping"),
            ("blockio.resources.beta.kubernetes.io/pod", "slow"),
            ("blockio.resources.beta.kubernetes.io/container.c", "fast"),
            ("rdt.resources.beta.kubernetes.io/pod", "gold"),
        ],
        expect![[r#"
            partition: Some(
            Isolated
            )
            is_quota_lifted: Some(
            true
            )
            interrupts: Some(
            Housekeeping
            )
            block_io_class: Some(
            "fast"
            )
            resctrl_class: Some(
            "gold"
            )
        "#]],
    );
    check(
        &[
            ("cpu-load-balancing.crio.io", "disable"),
            ("bayplan.dev/cpu-partition", "root"),
            ("blockioclass.cri-resource-manager.intel.com/container.c", " fast "),
            ("rdt.resources.beta.kubernetes.io/container.c", "gold"),
            ("rdtclass.resource-policy.nri.io/pod", "silver"),
            ("bayplan.dev/cpu-burst", "50%"),
            ("memory-reclaim-class.bayplan.dev/container.c", "slowly"),
        ],
        expect![[r#"
            partition: Some(
            Root
            )
            burst_percent: Some(
            50
            )
            block_io_class: Some(
            "fast"
            )
            reclaim_class: Some(
            "slowly"
            )
            resctrl_class: Some(
            "silver"
            )
        "#]],
    );
}

#[test]
fn of_what_is_asked_for_beside_a_place_every_mistake_is_told() {
    check(
        &[
            ("cpu-quota.crio.io", "off"),
            ("bayplan.dev/cpu-burst", "101"),
            ("blockio.resources.beta.kubernetes.io/pod", ""),
            ("bayplan.dev/irq-load-balancing", "never"),
        ],
        expect![[r#"
            ! annotation `cpu-quota.crio.io` is `off`, expected enable or disable; ignored
            ! annotation `blockio.resources.beta.kubernetes.io/pod` is ``, expected the name of a class; ignored
            ! annotation `bayplan.dev/irq-load-balancing` is `never`, expected enable, disable or housekeeping; ignored
            ! annotation `bayplan.dev/cpu-burst` is `101`, expected 0 to 100; ignored
        "#]],
    );
}

#[test]
fn a_cold_start_lasts_an_hour_at_most() {
    check(
        &[
            ("cold-start.cri-resource-manager.intel.com/container.c", "duration: 60s"),
            ("bayplan.dev/cold-start", "0"),
        ],
        expect![[r#"
            cold_start: Some(
            60s
            )
        "#]],
    );
    check(
        &[("cold-start.bayplan.dev/container.c", "1m 30s")],
        expect![[r#"
            cold_start: Some(
            90s
            )
        "#]],
    );
    check(&[("bayplan.dev/cold-start", "0s")], expect![[r#""#]]);
    for nonsense in ["61m", "-5s", "", "60", "duration:", "duration: a: b", "99999999999999999999h"]
    {
        let (asked, warnings) =
            read_annotations(&container(&[("bayplan.dev/cold-start", nonsense)]), &everything());
        assert_eq!((asked.tuning.cold_start, warnings.len()), (None, 1), "{nonsense}");
    }
}

#[test]
fn frequency_and_sleep_have_the_names_of_other_systems_too() {
    check(
        &[
            ("cpu-c-states.crio.io/c", "max_latency:10"),
            ("cpu-c-states.crio.io", "enable"),
            ("cpu-freq-governor.crio.io", "schedutil"),
            ("cpu-class.resource-policy.nri.io/container.c", "turbo"),
        ],
        expect![[r#"
            cpu_class: Some(
            "turbo"
            )
            cpu_governor: Some(
            "schedutil"
            )
            wake_up: Some(
            AtMostUs(
            10
            )
            )
        "#]],
    );
    check(
        &[
            ("cpu-c-states.crio.io", "max_latency:-1"),
            ("cpu-freq-governor.crio.io", "On Demand"),
            ("bayplan.dev/cpu-class", " "),
        ],
        expect![[r#"
            ! annotation `cpu-c-states.crio.io` is `max_latency:-1`, expected enable, disable or max_latency:MICROSECONDS; ignored
            ! annotation `cpu-freq-governor.crio.io` is `On Demand`, expected the name of a governor; ignored
            ! annotation `bayplan.dev/cpu-class` is ``, expected the name of a class of cpuClasses, or performance, balance-performance, balance-power, power or default; ignored
        "#]],
    );
}

#[test]
fn a_profile_of_power_manager_is_a_class_unless_another_is_named() {
    let requests = r#"{"containers":{"c":{"requests":{"cpu":"2","power.intel.com/power":"2"}}}}"#;
    check(
        &[("intel.com/resources", requests)],
        expect![[r#"
        requests: Some(
        (
        "intel.com/resources"
        ExactRequests {
        cpu: Some(
        MilliCpu(
        2000
        )
        )
        memory: None
        }
        )
        )
        cpu_class: Some(
        "power"
        )
    "#]],
    );
    check(
        &[("intel.com/resources", requests), ("bayplan.dev/cpu-class", "performance")],
        expect![[r#"
            requests: Some(
            (
            "intel.com/resources"
            ExactRequests {
            cpu: Some(
            MilliCpu(
            2000
            )
            )
            memory: None
            }
            )
            )
            cpu_class: Some(
            "performance"
            )
        "#]],
    );
}

#[test]
fn wishes_come_from_keys() {
    check(
        &[
            ("bayplan.dev/siblings", "idle"),
            ("bayplan.dev/packing", "Spread"),
            ("bayplan.dev/apart", "numa required"),
            ("bayplan.dev/within", "package"),
            ("memory-type.cri-resource-manager.intel.com", "hbm,dram"),
            ("unlimited-burstable.resource-policy.nri.io/pod", "l3cache"),
            ("cpu.preserve.resource-policy.nri.io/container.c", "true"),
            ("hide-hyperthreads.resource-policy.nri.io/container.d", "true"),
        ],
        expect![[r#"
            siblings: Idle
            packing: Spread
            apart: Some(
            (
            NumaNode
            Required
            )
            )
            within: Some(
            One(
            Package
            )
            )
            kinds: [
            Dram
            Hbm
            ]
            burst_level: Some(
            L3
            )
            cpus: true
        "#]],
    );
}

#[test]
fn of_preferred_and_required_the_more_specific_counts() {
    let prefer = "prefer-isolated-cpus.resource-policy.nri.io";
    let require = "require-isolated-cpus.resource-policy.nri.io";
    for (pairs, expected) in [
        (vec![(prefer.to_owned(), "true"), (require.to_owned(), "true")], "Some(Required)"),
        (vec![(prefer.to_owned(), "true"), (require.to_owned(), "false")], "Some(Preferred)"),
        (
            vec![(format!("{prefer}/container.c"), "true"), (require.to_owned(), "true")],
            "Some(Preferred)",
        ),
        (vec![(format!("{prefer}/container.c"), "false"), (require.to_owned(), "true")], "None"),
        (
            vec![(prefer.to_owned(), "true"), (format!("{require}/container.c"), "false")],
            "Some(Preferred)",
        ),
        (vec![(require.to_owned(), "true"), (format!("{require}/container.c"), "false")], "None"),
        (vec![(require.to_owned(), "true"), (format!("{require}/container.c"), "no")], "None"),
    ] {
        let pairs: Vec<(&str, &str)> =
            pairs.iter().map(|(name, value)| (&**name, *value)).collect();
        let (asked, _) = read_annotations(&container(&pairs), &everything());
        assert_eq!(format!("{:?}", asked.wishes.cpus.isolated), expected, "{pairs:?}");
    }
}

#[test]
fn the_configuration_is_the_default_and_none_undoes_it() {
    let mut rules =
        RequestRules { prefer_shared_cpus: true, colocate_pods: true, ..Default::default() };
    rules.wishes.place.burst_level = Some(bayplan_topology::Level::Die);
    let read = |pairs: &[(&str, &str)]| read_annotations(&container(pairs), &rules).0;
    let plain = read(&[]);
    assert_eq!(plain.prefer_shared_cpus, Some(true));
    assert_eq!(plain.wishes, rules.wishes);
    assert_eq!(plain.affinity.len(), 1);
    let said = read(&[
        ("bayplan.dev/unlimited-burstable", "none"),
        ("bayplan.dev/prefer-shared-cpus", "false"),
        ("bayplan.dev/anti-affinity", "c: [d, e]"),
    ]);
    assert_eq!(said.prefer_shared_cpus, Some(false));
    assert_eq!(said.wishes, Wishes::default());
    assert_eq!(said.affinity.len(), 2);
}

#[test]
fn koordinator_and_katalyst_are_read_and_our_keys_count_more() {
    check(
        &[
            ("label koordinator.sh/qosClass", "LSE"),
            (
                "scheduling.koordinator.sh/resource-spec",
                r#"{"preferredCPUBindPolicy":"SpreadByPCPUs","requiredCPUBindPolicy":"FullPCPUs","preferredCPUExclusivePolicy":"PCPULevel"}"#,
            ),
            (
                "scheduling.koordinator.sh/numa-topology-spec",
                r#"{"numaTopologyPolicy":"SingleNUMANode"}"#,
            ),
            (
                "katalyst.kubewharf.io/cpu_enhancement",
                r#"{"distribute_evenly_across_numa":"true"}"#,
            ),
            ("bayplan.dev/apart", "none"),
        ],
        expect![[r#"
            prefer_shared_cpus: Some(
            false
            )
            owns_requested: true
            siblings: Idle
            only_whole_cores: true
            within: Some(
            One(
            NumaNode
            )
            )
            is_even: true
        "#]],
    );
    check(
        &[("label koordinator.sh/qosClass", "SYSTEM")],
        expect![[r#"
        prefer_reserved_cpus: Some(
        true
        )
    "#]],
    );
}

#[test]
fn what_cannot_be_understood_does_not_take_the_rest_with_it() {
    check(
        &[
            ("label koordinator.sh/qosClass", "LSX"),
            (
                "scheduling.koordinator.sh/resource-spec",
                r#"{"requiredCPUBindPolicy":["x"],"colour":{"deep":1},"preferredCPUExclusivePolicy":"NUMANodeLevel"}"#,
            ),
            ("scheduling.koordinator.sh/numa-topology-spec", "numaTopologyPolicy: SingleNUMANode"),
            ("katalyst.kubewharf.io/cpu_enhancement", r#"{"full_pcpus_pairing":"perhaps"}"#),
            ("bayplan.dev/siblings", "brothers"),
            ("bayplan.dev/prefer-shared-cpu", "true"),
            ("rdtclass.cri-resource-manager.intel.com/pod", "gold"),
            ("packing.bayplan.dev/containers.c", "spread"),
            ("bayplan.dev/apart", "none, but not by much, and only if nothing else helps"),
            ("bayplan.dev/affinity", "c: [d"),
        ],
        expect![[r#"
            apart: Some(
            (
            NumaNode
            Preferred
            )
            )
            resctrl_class: Some(
            "gold"
            )
            ! annotation `katalyst.kubewharf.io/cpu_enhancement`: full_pcpus_pairing is `perhaps`, expected true or false; ignored
            ! annotation `scheduling.koordinator.sh/numa-topology-spec` is `numaTopologyPolicy: SingleNUMANode` (line 1, column 3), expected a JSON object; ignored
            ! annotation `scheduling.koordinator.sh/resource-spec`: colour is `{"deep":1}`, expected one of requiredCPUBindPolicy, preferredCPUBindPolicy and preferredCPUExclusivePolicy; ignored
            ! annotation `scheduling.koordinator.sh/resource-spec`: requiredCPUBindPolicy is `["x"]`, expected Default, FullPCPUs or SpreadByPCPUs; ignored
            ! label `koordinator.sh/qosClass` is `LSX`, expected LSE, LSR, LS, BE or SYSTEM; ignored
            ! annotation `bayplan.dev/prefer-shared-cpu` is unknown (`bayplan annotations` lists all); ignored
            ! annotation `packing.bayplan.dev/containers.c` is unknown (`bayplan annotations` lists all); ignored
            ! annotation `bayplan.dev/siblings` is `brothers`, expected pair, shared or idle; ignored
            ! annotation `bayplan.dev/apart` is `none, but not by much, and only if nothi...`, expected core, l3, numa or none, with or without `required`; ignored
            ! annotation `bayplan.dev/affinity` is `c: [d` (not YAML in line 1), expected YAML: container names with containers or expressions; ignored
        "#]],
    );
}

const RESOURCE_STATUS: &str = "scheduling.koordinator.sh/resource-status";

/// The CPUs that count, and what is warned of.
#[test]
fn cpus_that_koordinators_scheduler_has_chosen_count_for_pods_that_pay_for_them() {
    use QosClass::{BestEffort, Burstable, Guaranteed};
    let list = r#"{"cpuset":"2-3","numaNodeResources":[{"node":0}]}"#;
    for (qos, class, value, expected, warning) in [
        (Some(Guaranteed), "", list, "2-3", None),
        (Some(Guaranteed), "LS", list, "2-3", None),
        (Some(Burstable), "LSR", list, "2-3", None),
        (Some(BestEffort), "LSE", list, "2-3", None),
        (Some(Burstable), "LS", list, "", Some(WarningKind::NoEffect)),
        (Some(BestEffort), "", list, "", Some(WarningKind::NoEffect)),
        (None, "", list, "", Some(WarningKind::NoEffect)),
        (Some(Guaranteed), "", "2-3", "", Some(WarningKind::RequirementNotUnderstood)),
        (
            Some(Guaranteed),
            "",
            r#"{"cpuset":"2-"}"#,
            "",
            Some(WarningKind::RequirementNotUnderstood),
        ),
        (
            Some(Guaranteed),
            "",
            r#"{"cpuset":["2"]}"#,
            "",
            Some(WarningKind::RequirementNotUnderstood),
        ),
        (Some(Burstable), "LSR", r#"{"cpuset":"2-"}"#, "", Some(WarningKind::NotUnderstood)),
        (Some(Burstable), "", r#"{"cpuset":7}"#, "", Some(WarningKind::NotUnderstood)),
        (Some(Guaranteed), "", r#"{"cpuset":""}"#, "", None),
        (Some(Guaranteed), "", r#"{"cpuset":null}"#, "", None),
        (Some(Guaranteed), "", r#"{"numaNodeResources":[{"node":0}]}"#, "", None),
    ] {
        let mut container = container(&[(RESOURCE_STATUS, value)]);
        container.pod.qos = qos;
        container.pod.labels = [("koordinator.sh/qosClass".to_owned(), class.to_owned())].into();
        let (asked, warnings) = read_annotations(&container, &everything());
        let row = (qos, class, value);
        assert_eq!(asked.wishes.claimed.to_string(), expected, "{row:?}");
        let has_nodes_only = value.contains("numaNodeResources") && !value.contains("cpuset");
        assert_eq!(!asked.numa_nodes.is_empty(), has_nodes_only, "{row:?}");
        assert_eq!(warnings.first().map(|it| it.kind), warning, "{row:?} {warnings:?}");
        assert!(may_claim(&container.pod));
    }
}

#[test]
fn a_requirement_that_cannot_be_read_is_told_first_and_from_the_rest() {
    let read = |pairs: &[(&str, &str)]| {
        let (asked, warnings) = read_annotations(&container(pairs), &everything());
        assert_eq!(asked, Asked::default());
        let is_required = |it: &Warning| it.kind == WarningKind::RequirementNotUnderstood;
        (warnings.first().is_some_and(is_required), warnings)
    };
    for key in KEYS {
        let (is_required, _) = read(&[(&key.annotation(), "\0 required")]);
        assert_eq!(is_required, key.meaning.contains("no place"), "{}", key.name);
    }
    for (pairs, expected) in [
        (vec![("bayplan.dev/apart", "nume required")], true),
        (vec![("bayplan.dev/apart", "nume")], false),
        (vec![("require-isolated-cpus.resource-policy.nri.io/container.c", "yes")], true),
        (vec![("require-isolated-cpus.resource-policy.nri.io/container.d", "yes")], false),
        (vec![("bayplan.dev/siblings", "x"), ("bayplan.dev/within", "plug")], true),
    ] {
        assert_eq!(read(&pairs).0, expected, "{pairs:?}");
    }
    let unknown: Vec<String> = (0..30).map(|number| format!("bayplan.dev/k{number}")).collect();
    let unknown = unknown.iter().map(|name| (name.as_str(), ""));
    let (is_required, warnings) =
        read(&unknown.chain([("bayplan.dev/memory-bound", "yes")]).collect::<Vec<_>>());
    assert!(is_required && warnings.len() == 22);
    assert_eq!(
        warnings[0].text,
        "annotation `bayplan.dev/memory-bound` is `yes`, expected true or false"
    );
}

#[test]
fn absurd_values_are_ignored_and_cut() {
    let long = "x".repeat(1 << 20);
    let nested = "[".repeat(10_000);
    let json = format!("{}1{}", r#"{"a":"#.repeat(5_000), "}".repeat(5_000));
    let flow = format!("{{c: {}x{}}}", "[".repeat(2000), "]".repeat(2000));
    let block = (0..2000).fold("c:\n".to_owned(), |text, _| text + "- ") + "x\n";
    let aliases = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n";
    for (name, value) in [
        ("bayplan.dev/siblings", long.as_str()),
        ("bayplan.dev/siblings", "\0"),
        ("bayplan.dev/siblings", "\u{202e}elbi"),
        ("bayplan.dev/memory-type", &nested),
        ("bayplan.dev/affinity", &long),
        ("bayplan.dev/affinity", &nested),
        ("bayplan.dev/affinity", &flow),
        ("bayplan.dev/affinity", &block),
        ("bayplan.dev/affinity", aliases),
        ("bayplan.dev/affinity", "c: [d]\nc: [e]\n"),
        ("bayplan.dev/affinity", "\0"),
        ("bayplan.dev/affinity", "- c\n"),
        ("bayplan.dev/affinity", ""),
        ("bayplan.dev/deny.topologyhints", &flow),
        ("scheduling.koordinator.sh/resource-spec", &nested),
        ("scheduling.koordinator.sh/resource-spec", &json),
        ("scheduling.koordinator.sh/resource-spec", "[]"),
        ("scheduling.koordinator.sh/resource-spec", ""),
        (RESOURCE_STATUS, &nested),
        (RESOURCE_STATUS, &long),
        (RESOURCE_STATUS, r#"{"cpuset":"0-4294967295"}"#),
        (RESOURCE_STATUS, &format!(r#"{{"cpuset":"{}"}}"#, "x".repeat(10_000))),
        ("katalyst.kubewharf.io/cpu_enhancement", r#"{"full_pcpus_pairing":1e999}"#),
        ("katalyst.kubewharf.io/cpu_enhancement", r#"{"full_pcpus_pairing":18446744073709551616}"#),
        (&format!("{}.bayplan.dev", "k".repeat(300)), "true"),
    ] {
        let container = container(&[(name, value)]);
        let kept: usize = container.pod.annotations.values().map(String::len).sum();
        assert!(kept <= VALUE_MAX + 4, "{kept}");
        let (asked, warnings) = read_annotations(&container, &everything());
        let start: String = value.chars().take(40).collect();
        assert_eq!(asked, Asked::default(), "{start:?}");
        assert_eq!(warnings.len(), 1, "{start:?} {warnings:?}");
        assert!(warnings[0].text.len() < 600, "{}", warnings[0].text);
        assert!(!warnings[0].text.contains(char::is_control), "{:?}", warnings[0].text);
    }
}

/// The table tells people which keys require something, and the list is what is done about it.
#[test]
fn keys_that_say_or_no_place_are_those_that_refuse_what_cannot_be_read() {
    for key in KEYS {
        let says = key.meaning.contains("or no place");
        assert_eq!(key.requires("none, required"), says, "{}", key.name);
        assert_eq!(key.requires("none"), says && key.name != "apart", "{}", key.name);
    }
}

#[test]
fn a_hundred_unknown_annotations_are_twenty_warnings_and_a_count() {
    let names: Vec<String> = (0..100).map(|number| format!("bayplan.dev/k{number}")).collect();
    let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    let (_, warnings) = read_annotations(&container(&pairs), &everything());
    assert_eq!(warnings.len(), 21);
    assert_eq!(warnings[20].text, "80 more warnings");
}

proptest! {
    /// Pieces of what is understood, in any order: nothing that is not understood may leave a trace.
    #[test]
    fn no_text_stops_a_pod(
        key in 0..KEYS.len() + 4,
        pieces in prop::collection::vec(
            prop_oneof![
                "\\PC{0,8}",
                prop::sample::select(vec![
                    "c", ": ", "\n", "- ", "  ", "[", "]", "{", "}", "\"", ",", "match", "scope", "key", "name", "operator",
                    "AlwaysTrue", "Equals", "values", "weight", "-9999999999", "1e400", "true", "core", "required", "dram",
                    "requiredCPUBindPolicy", "FullPCPUs", "paths", "type", "glob", "*", "&a", "*a", "!!", "|", "\0", "\u{feff}",
                ])
                .prop_map(str::to_owned),
            ],
            0..24,
        ),
    ) {
        let foreign = [
            "scheduling.koordinator.sh/resource-spec",
            "scheduling.koordinator.sh/numa-topology-spec",
            RESOURCE_STATUS,
            "katalyst.kubewharf.io/cpu_enhancement",
        ];
        let name = KEYS.get(key).map_or_else(|| foreign[key - KEYS.len()].to_owned(), Key::annotation);
        let container = container(&[(&name, &pieces.concat())]);
        let (asked, warnings) = read_annotations(&container, &everything());
        let is_misread = warnings.iter().any(|it| it.kind != WarningKind::NoEffect);
        prop_assert!(!is_misread || asked == Asked::default() || key >= KEYS.len());
        prop_assert!(warnings.iter().all(|it| !it.text.contains(char::is_control)));
        let others = [(ContainerId(7), &container)];
        for (_, weight) in affinities(&asked.affinity, &container, others) {
            prop_assert!((-1000..=1000).contains(&weight));
        }
    }
}

/// What others own and the reserved CPUs are safe from any pod under the rules that hold without configuration.
#[test]
fn without_rules_no_word_of_a_pod_reaches_the_cpus_of_others() {
    let json = |text: &'static str| text;
    for (name, value) in [
        ("bayplan.dev/cpu.preserve", "true"),
        ("cpu.preserve.resource-policy.nri.io/container.c", "true"),
        ("bayplan.dev/prefer-reserved-cpus", "true"),
        ("prefer-reserved-cpus.cri-resource-manager.intel.com/pod", "true"),
        ("label koordinator.sh/qosClass", "SYSTEM"),
        ("katalyst.kubewharf.io/qos_level", "system_cores"),
        ("scheduling.koordinator.sh/resource-status", json(r#"{"cpuset":"0-1"}"#)),
        ("bayplan.dev/cpu-partition", "root"),
        ("cpu-load-balancing.crio.io", "disable"),
        ("bayplan.dev/irq-load-balancing", "disable"),
        ("irq-load-balancing.crio.io/c", "housekeeping"),
    ] {
        for qos in QosClass::ALL {
            let mut container = container(&[(name, value)]);
            container.pod.qos = Some(qos);
            container.pod.namespace = "shop".to_owned();
            let plain = RequestRules::default();
            let (asked, warnings) = read_annotations(&container, &plain);
            assert_eq!(asked, Asked::default(), "{name}={value}");
            let text = &warnings.last().unwrap().text;
            let is_unpaid = text.contains("neither Guaranteed nor");
            let name = name.trim_start_matches("label ");
            assert!(text.contains(name), "{text}");
            assert!(is_unpaid || text.contains("not allowed in namespace `shop`"), "{text}");
            let allowing = RequestRules { permissions: vec![Rule::everything()], ..plain };
            let allowed = read_annotations(&container, &allowing).0;
            assert_eq!(allowed == Asked::default(), is_unpaid, "{name}={value}");
        }
    }
}

proptest! {
    #[test]
    fn without_rules_random_words_of_a_pod_never_harm(
        words in proptest::collection::vec((0..KEYS.len() + FOREIGN.len(), 0..9_usize, 0..3_usize), 0..6),
        qos in 0..3_usize,
    ) {
        const VALUES: [&str; 9] = [
            "true", "disable", "isolated", "housekeeping", "root", "SYSTEM", "system_cores",
            r#"{"cpuset":"0-3"}"#, "LSE",
        ];
        let mut container = NewContainer { name: "c".to_owned(), ..NewContainer::default() };
        container.pod.qos = Some(QosClass::ALL[qos]);
        for (key, value, scope) in words {
            let name = match KEYS.get(key) {
                Some(key) if scope == 0 => key.annotation(),
                Some(key) => format!("{}.bayplan.dev/{}", key.name, ["pod", "container.c"][scope - 1]),
                None => format!("{}{}", FOREIGN[key - KEYS.len()].name, ["", "/c", "/pod"][scope]),
            };
            container.pod.labels.insert(name.clone(), VALUES[value].to_owned());
            container.pod.annotations.insert(name, VALUES[value].to_owned());
        }
        let (asked, _) = read_annotations(&container, &RequestRules::default());
        prop_assert!(asked.wishes.claimed.is_empty() && !asked.wishes.preserve.cpus);
        prop_assert!(asked.prefer_reserved_cpus != Some(true));
        let Tuning { partition, interrupts, .. } = asked.tuning;
        prop_assert!(partition.is_none_or(|it| it == CpuPartition::None));
        prop_assert!(interrupts.is_none_or(|it| it == InterruptRule::Allowed));
    }

    #[test]
    fn what_is_kept_of_a_pod_is_bounded(sizes in proptest::collection::vec(0..40_000_usize, 0..40)) {
        let name = |index: usize| format!("bayplan.dev/key-{index}");
        let all: BTreeMap<String, String> = sizes.iter().enumerate()
            .map(|(index, size)| (name(index), "x".repeat(*size)))
            .collect();
        let kept = relevant(&all);
        let bytes = |it: &BTreeMap<String, String>| it.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        prop_assert!(bytes(&kept) <= KEPT_MAX + 32, "{}", bytes(&kept));
        let left_out = all.keys().filter(|it| !kept.contains_key(*it)).count();
        let told = kept.get(CUT).map_or(0, |it| it.parse().unwrap());
        prop_assert_eq!(left_out, told);
        prop_assert_eq!(relevant(&kept).contains_key(CUT), false);
    }
}

#[test]
fn sockets_are_packages_and_what_katalyst_says_of_memory_counts() {
    check(
        &[("bayplan.dev/within", "socket")],
        expect![[r#"
        within: Some(
        One(
        Package
        )
        )
    "#]],
    );
    check(
        &[("unlimited-burstable.resource-policy.nri.io", "socket")],
        expect![[r#"
        burst_level: Some(
        Package
        )
    "#]],
    );
    check(
        &[
            ("katalyst.kubewharf.io/qos_level", "dedicated_cores"),
            (
                "katalyst.kubewharf.io/memory_enhancement",
                r#"{"numa_binding":"true","numa_exclusive":"true","oom_priority":"1","more":1}"#,
            ),
        ],
        expect![[r#"
            prefer_shared_cpus: Some(
            false
            )
            apart: Some(
            (
            NumaNode
            Preferred
            )
            )
            within: Some(
            Fewest(
            NumaNode
            )
            )
            is_bound: true
            ! annotation `katalyst.kubewharf.io/memory_enhancement`: more is `1`, expected a field of Katalyst's memory_enhancement; ignored
            ! annotation `katalyst.kubewharf.io/memory_enhancement`: oom_priority 1 has no effect
        "#]],
    );
    check(
        &[("katalyst.kubewharf.io/qos_level", "gold")],
        expect![[r#"
        ! annotation `katalyst.kubewharf.io/qos_level` is `gold`, expected dedicated_cores, shared_cores, reclaimed_cores or system_cores; ignored
    "#]],
    );
    check(
        &[(
            "scheduling.koordinator.sh/resource-status",
            r#"{"numaNodeResources":[{"node":0,"resources":{"cpu":"2"}}]}"#,
        )],
        expect![[r#"
            numa_nodes: NodeSet(0)
        "#]],
    );
    check(
        &[("intel.com/resources", r#"{"c":{"requests":{"cpu":"2"}}}"#)],
        expect![[r#"
        ! annotation `intel.com/resources` is `{"c":{"requests":{"cpu":"2"}}}` (neither `containers` nor `initContainers`), expected requests by container as JSON; ignored
    "#]],
    );
}
