//! What a pod asks for in vain. In: its wishes, and the request that was made of them. Out: a [`Warning`] for each wish that does nothing for
//! this container, with the reason. Pure.

use std::collections::BTreeSet;

use bayplan_allocator::{Part, Request};
use bayplan_types::{MilliCpu, QosClass};

use super::asked::Asked;
use super::field::{Field, Reach};
use super::permissions::{Wish, wishes};
use super::read::read_annotations;
use super::source::Sources;
use super::values::shown;
use super::warnings::{SHOWN_MAX, Warning, WarningKind};
use crate::container::NewContainer;
use crate::rules::RequestRules;

/// Every wish without effect. `request` is what was made of `asked`.
pub(crate) fn without_effect(
    container: &NewContainer,
    asked: &Asked,
    request: &Request,
    rules: &RequestRules,
) -> Vec<Warning> {
    let usual = rules.usual();
    if *asked == usual || !request.wishes.claimed.is_empty() {
        return Vec::new();
    }
    let sources = Sources::new(container);
    let warning = |wish: Wish| {
        let (kind, why) = unknown_class(&wish, rules)
            .map(|why| (WarningKind::UnknownClass, why))
            .or_else(|| {
            let why = why_in_vain(wish.field, container, asked, request)?;
            Some((WarningKind::NoEffect, format!("{NO_EFFECT}{why}")))
        })?;
        Some(Warning { kind, text: format!("{}{why}", sources.of_field(wish.field)?) })
    };
    let warnings = wishes(asked, &usual).into_iter().filter_map(warning);
    // One label may fill several fields in vain, for one reason.
    let mut told = BTreeSet::new();
    warnings.filter(|it| told.insert(it.text.clone())).collect()
}

/// Between the source of a wish and why it does nothing.
const NO_EFFECT: &str = " has no effect: ";

/// Adds what a member of the group of this name asks for and its group's type has said for all of its members: where CPUs of its own are. Another reason that
/// is told of the same wish is replaced.
pub fn tell_effects_in(
    group: &str,
    container: &NewContainer,
    rules: &RequestRules,
    warnings: &mut Vec<Warning>,
) {
    let (asked, _) = read_annotations(container, rules);
    let sources = Sources::new(container);
    for wish in wishes(&asked, &rules.usual()) {
        let source = sources.of_field(wish.field).filter(|_| wish.field.is_place_of_cpus());
        let Some(source) = source else { continue };
        let begin = format!("{source}{NO_EFFECT}");
        warnings.retain(|it| !it.text.starts_with(&begin));
        let text = format!("{begin}it runs on the CPUs of the group {group}");
        warnings.push(Warning { kind: WarningKind::NoEffect, text });
    }
}

fn unknown_class(wish: &Wish, rules: &RequestRules) -> Option<String> {
    let (key, known) = rules.classes.of(wish.field)?;
    let name = wish.value.as_ref().filter(|name| !known.contains(*name))?;
    let known: Vec<&str> = known.iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let name = shown(name, SHOWN_MAX);
    Some(format!(" names class `{name}`, which {key} lacks (it has {known}); ignored"))
}

/// Why a wish about this field does nothing; `None`: it counts.
fn why_in_vain(
    field: Field,
    container: &NewContainer,
    asked: &Asked,
    request: &Request,
) -> Option<String> {
    let owns = || why_owns_nothing(container, asked, request);
    let shares_too = || {
        let shared = request.demand.shared().filter(|it| *it > MilliCpu::ZERO)?;
        Some(format!("it shares CPUs for {shared} beside its own"))
    };
    match field.reach() {
        Reach::Owners => owns(),
        Reach::PureOwners => owns().or_else(shares_too),
        Reach::Guaranteed if asked.prefer_shared_cpus == Some(false) => owns(),
        Reach::Limited if request.ceiling.is_none() => Some("it has no CPU limit".to_owned()),
        Reach::Unlimited if request.ceiling.is_some() => Some("it has a CPU limit".to_owned()),
        Reach::Guaranteed | Reach::Limited | Reach::Unlimited | Reach::All => None,
    }
}

/// Why it has no CPUs of its own; `None` where it has some.
fn why_owns_nothing(container: &NewContainer, asked: &Asked, request: &Request) -> Option<String> {
    if request.wishes.preserve.cpus {
        return Some("its CPUs are left alone".to_owned());
    }
    if request.is_reserved {
        return Some("it runs on the reserved CPUs".to_owned());
    }
    // One that joined others runs on the exclusive CPUs of its pod.
    if request.demand.exclusive() > 0 || request.wishes.pod.part == Part::Joined {
        return None;
    }
    let requested = request.demand.shared().unwrap_or_default();
    let qos = container.pod.qos.filter(|it| *it != QosClass::Guaranteed);
    Some(match (qos, asked.prefer_shared_cpus) {
        (Some(qos), _) => format!("its pod is {qos}, so it shares CPUs"),
        (None, _) if container.pod.qos.is_none() => {
            "the QoS class of its pod is unknown, so it shares CPUs".to_owned()
        }
        (None, Some(true)) => "it prefers shared CPUs".to_owned(),
        (None, _) => format!("it requests {requested} CPUs, so it shares them"),
    })
}

#[cfg(test)]
mod tests {
    use bayplan_allocator::ContainerId;
    use bayplan_types::QosClass::{self, Burstable, Guaranteed};

    use super::*;
    use crate::annotations::classes::ClassNames;
    use crate::annotations::permissions::Rule;
    use crate::container::Pod;
    use crate::request::{Hardware, derive_request};
    use crate::resources::Resources;

    /// What is told of a container with this QoS class and these thousandths of a CPU, after the name of the annotation or label.
    fn check(qos: QosClass, milli: i64, name: &str, value: &str, expected: &str) {
        let mut pod = Pod { qos: Some(qos), ..Pod::default() };
        let map = if name.ends_with("qosClass") { &mut pod.labels } else { &mut pod.annotations };
        map.insert(name.to_owned(), value.to_owned());
        let resources = Resources {
            cpu_shares: milli * 1024 / 1000,
            cpu_quota: if qos == Guaranteed { milli * 100 } else { -1 },
            cpu_period: 100_000,
            ..Resources::default()
        };
        let container = NewContainer { pod, resources, name: "c".into(), ..Default::default() };
        let rules = RequestRules {
            permissions: vec![Rule::everything()],
            classes: ClassNames {
                resctrl: ["".to_owned(), "gold".to_owned()].into(),
                ..ClassNames::default()
            },
            ..RequestRules::default()
        };
        let hardware = Hardware::default();
        let (_, warnings) = derive_request(ContainerId(0), &container, &rules, hardware, []);
        let told: Vec<&str> = warnings.iter().map(|it| it.text.as_str()).collect();
        let told = told.join("; ");
        let told = told.split_once("` ").map_or(told.as_str(), |(_, rest)| rest);
        assert_eq!(told, expected, "{qos} {milli} {name}={value}");
    }

    #[test]
    fn what_is_asked_in_vain_is_told_with_the_reason() {
        const BURSTABLE: &str = "has no effect: its pod is Burstable, so it shares CPUs";
        const SMALL: &str = "has no effect: it requests 500m CPUs, so it shares them";
        for (key, value) in [
            ("require-isolated-cpus", "true"),
            ("apart", "core required"),
            ("within", "numa"),
            ("siblings", "idle"),
            ("packing", "spread"),
            ("whole-cores-only", "true"),
            ("require-cpu-priority", "high"),
            ("prefer-core-kind", "efficient"),
            ("even-across-numa", "true"),
            ("irq-load-balancing", "disable"),
            ("cpu-partition", "root"),
            ("cpu-quota", "disable"),
            ("lend", "besteffort"),
            ("prefer-shared-cpus", "false"),
        ] {
            let name = format!("bayplan.dev/{key}");
            check(Burstable, 2000, &name, value, BURSTABLE);
            check(Guaranteed, 500, &name, value, SMALL);
            check(Guaranteed, 2000, &name, value, "");
        }
        for key in ["memory-bound", "hide-hyperthreads", "immovable", "memory.preserve"] {
            check(Burstable, 2000, &format!("bayplan.dev/{key}"), "true", "");
        }
        let numa = "scheduling.koordinator.sh/numa-topology-spec";
        check(Burstable, 2000, numa, r#"{"numaTopologyPolicy":"SingleNUMANode"}"#, BURSTABLE);
        for class in ["LSE", "LSR"] {
            check(Burstable, 2000, "koordinator.sh/qosClass", class, BURSTABLE);
        }
        check(Burstable, 2000, "katalyst.kubewharf.io/qos_level", "dedicated_cores", BURSTABLE);
        check(
            Guaranteed,
            2000,
            "bayplan.dev/unlimited-burstable",
            "numa",
            "has no effect: it has a CPU limit",
        );
        check(Burstable, 2000, "bayplan.dev/cpu-burst", "10", "has no effect: it has no CPU limit");
        check(Burstable, 2000, "bayplan.dev/rdtclass", "gold", "");
        check(
            Burstable,
            2000,
            "rdt.resources.beta.kubernetes.io/pod",
            "silver",
            "names class `silver`, which resctrl.partitions lacks (it has gold); ignored",
        );
        check(
            Guaranteed,
            2000,
            "bayplan.dev/cpu-class",
            "fast",
            "names class `fast`, which cpuClasses.classes lacks (it has none); ignored",
        );
    }
}
