mod mistakes;
mod other_systems;

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

const RESOURCE_STATUS: &str = "scheduling.koordinator.sh/resource-status";
