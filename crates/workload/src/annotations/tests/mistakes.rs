//! What cannot be understood, is not allowed, or is too much: what is ignored of it, and what is warned of.

use super::*;

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
