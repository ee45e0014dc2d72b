//! Extended resources that are wishes. In: what kubelet knows of a container's requests. Out: a class of its CPUs.
//!
//! Kubernetes Power Manager offers a profile as the resource `power.intel.com/PROFILE`, of which a container requests as many as it has CPUs. Kubelet does not pass
//! such requests on; its PodsAPI tells of them.

use super::values::class_name;
use crate::facts::Facts;

/// Kubernetes Power Manager's extended resources.
const PROFILE: &str = "power.intel.com/";

/// The name of the resource that asks for a class, and the class.
pub(super) fn requested(facts: Option<&Facts>) -> Option<(&str, String)> {
    let extended = facts?.own.extended.iter();
    let asked = extended.filter(|(_, amount)| **amount > 0);
    asked.filter_map(|(name, _)| Some((name.as_str(), profile_of(name)?))).next()
}

/// The profile that a resource of this name stands for.
pub(super) fn profile_of(resource: &str) -> Option<String> {
    class_name(resource.strip_prefix(PROFILE)?).ok()
}

#[cfg(test)]
mod tests {
    use bayplan_allocator::ContainerId;
    use bayplan_types::QosClass;

    use super::*;
    use crate::annotations::{Item, Rule, read_annotations};
    use crate::container::{NewContainer, Pod};
    use crate::facts::ContainerFacts;
    use crate::request::{Hardware, derive_request};
    use crate::resources::Resources;
    use crate::rules::RequestRules;

    fn container(resource: &str, amount: u64, annotations: &[(&str, &str)]) -> NewContainer {
        let extended = [(resource.to_owned(), amount)].into();
        let own = ContainerFacts { extended, ..ContainerFacts::default() };
        let pairs = annotations.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        NewContainer {
            pod: Pod {
                qos: Some(QosClass::Guaranteed),
                annotations: pairs.collect(),
                ..Pod::default()
            },
            name: "c".to_owned(),
            resources: Resources {
                cpu_shares: 2048,
                cpu_quota: 200_000,
                cpu_period: 100_000,
                ..Resources::default()
            },
            facts: Some(Box::new(Facts { own, ..Facts::default() })),
            ..NewContainer::default()
        }
    }

    #[test]
    fn a_profile_that_is_requested_is_the_class_of_exclusive_cpus() {
        let annotated = [("bayplan.dev/cpu-class", "turbo")];
        let by_webhook = [(
            "intel.com/resources",
            r#"{"containers":{"c":{"requests":{"power.intel.com/power":"2"}}}}"#,
        )];
        let performance = "power.intel.com/performance";
        for (resource, amount, annotations, class, demand) in [
            (performance, 2, &[][..], Some("performance"), "2 exclusive"),
            (performance, 2, &annotated, Some("turbo"), "2 exclusive"),
            (performance, 2, &by_webhook, Some("performance"), "2 exclusive"),
            (performance, 0, &by_webhook, None, "2 shared"),
            (performance, 0, &[], None, "2 shared"),
            ("gpu.intel.com/i915", 2, &[], None, "2 shared"),
            ("power.intel.com/", 2, &[], None, "2 shared"),
        ] {
            let container = container(resource, amount, annotations);
            let rules = RequestRules { prefer_shared_cpus: true, ..RequestRules::default() };
            let (asked, _) = read_annotations(&container, &rules);
            let derived =
                derive_request(ContainerId(1), &container, &rules, Hardware::default(), []);
            let found = (asked.tuning.cpu_class.as_deref(), derived.0.demand.to_string());
            assert_eq!(found, (class, demand.to_owned()), "{resource} {amount} {annotations:?}");
        }
    }

    #[test]
    fn a_profile_that_the_namespace_may_not_have_gives_no_exclusive_cpus() {
        for (denied, class, demand, warnings) in [
            ("classes", None, "2 shared", 1),
            ("cpu-class=performance", None, "2 shared", 1),
            ("*", None, "2 shared", 1),
            ("cpu-class=power", Some("performance"), "2 exclusive", 0),
        ] {
            let container = container("power.intel.com/performance", 2, &[]);
            let deny = vec![Item::parse(denied).unwrap()];
            let permissions = vec![Rule { namespaces: vec!["*".into()], deny, ..Rule::default() }];
            let rules =
                RequestRules { prefer_shared_cpus: true, permissions, ..RequestRules::default() };
            let (asked, told) = read_annotations(&container, &rules);
            let derived =
                derive_request(ContainerId(1), &container, &rules, Hardware::default(), []);
            let found = (asked.tuning.cpu_class.as_deref(), derived.0.demand.to_string());
            assert_eq!(found, (class, demand.to_owned()), "{denied}");
            assert_eq!(told.len(), warnings, "{denied}: {told:?}");
        }
    }
}
