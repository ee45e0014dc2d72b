//! Which pods of a node are in the fingerprint of its NodeResourceTopology: those that hold something exclusively, by scheduler-plugins' method
//! `with-exclusive-resources`. In: a Pod object, and the extended resources that the NodeResourceTopology lists. Out: whether it counts.
//!
//! A pod that is Pending does not count, but is on its way to what it asks for; one that has ended does until its object goes away. Of init containers only those that keep running count.
//! Extended resources count where a zone lists them. Releases of scheduler-plugins up to 0.34 count all of them, and all init containers.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::koordinator::booked;
use crate::quantity::{is_count, is_positive, milli};

/// What a pod holds as long as its object is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holding {
    /// Whole CPUs, memory or huge pages.
    is_exclusive: bool,
    /// Names of extended resources.
    extended: BTreeSet<String>,
    /// It is bound to the node and has not started.
    pub(crate) is_coming: bool,
    /// What its containers request of CPU time, in thousandths.
    pub(crate) cpu_milli: u64,
    /// What of that Koordinator's scheduler has set aside on NUMA nodes, in thousandths.
    pub(crate) booked: BTreeMap<u32, u64>,
}

impl Holding {
    /// Of a pod that is bound to the node; `None`: it says nothing of itself.
    pub(crate) fn of(pod: &Pod) -> Option<Holding> {
        let status = pod.status.as_ref();
        let phase = status.and_then(|it| it.phase.as_deref()).unwrap_or("Pending");
        let is_guaranteed = status.and_then(|it| it.qos_class.as_deref()) == Some("Guaranteed");
        let spec = pod.spec.as_ref()?;
        let stays = |it: &&Container| it.restart_policy.as_deref() == Some("Always");
        let init = spec.init_containers.iter().flatten().filter(stays);
        let mut holding = Holding {
            is_coming: phase == "Pending",
            booked: pod.metadata.annotations.as_ref().map(booked).unwrap_or_default(),
            ..Holding::default()
        };
        for (name, Quantity(amount)) in init.chain(&spec.containers).flat_map(requests) {
            let is_own = match name.as_str() {
                "cpu" => is_count(amount),
                "memory" => is_positive(amount),
                _ => name.starts_with("hugepages-") && is_positive(amount),
            };
            holding.is_exclusive |= is_guaranteed && is_own;
            if name == "cpu" {
                holding.cpu_milli = holding.cpu_milli.saturating_add(milli(amount));
            }
            if is_extended(name) && is_positive(amount) {
                holding.extended.insert(name.clone());
            }
        }
        Some(holding)
    }

    /// Whether the pod is in the fingerprint; `listed`: extended resources of the zones.
    pub(crate) fn is_counted(&self, listed: &BTreeSet<&str>) -> bool {
        let is_listed = |it: &String| listed.contains(it.as_str());
        !self.is_coming && (self.is_exclusive || self.extended.iter().any(is_listed))
    }
}

fn requests(container: &Container) -> impl Iterator<Item = (&String, &Quantity)> {
    let requests = container.resources.as_ref().and_then(|it| it.requests.as_ref());
    requests.into_iter().flatten()
}

/// As Kubernetes tells them from its own.
fn is_extended(name: &str) -> bool {
    name.split_once('/')
        .is_some_and(|(domain, _)| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pod with one container and one init container, each with a request, where zones list one extended resource.
    fn check(phase: &str, qos: &str, request: (&str, &str), init: Option<&str>, expected: bool) {
        let requests = json!({ "requests": { request.0: request.1 } });
        let own = json!({ "name": "c", "resources": if init.is_none() { requests.clone() } else { json!({}) } });
        let early = json!({ "name": "i", "restartPolicy": init.filter(|it| *it == "Always"), "resources": requests });
        let pod = json!({
            "spec": { "containers": [own], "initContainers": if init.is_some() { json!([early]) } else { json!([]) } },
            "status": { "phase": phase, "qosClass": qos },
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let listed = BTreeSet::from(["example.com/nic"]);
        let is_counted = Holding::of(&pod).is_some_and(|it| it.is_counted(&listed));
        assert_eq!(is_counted, expected, "{phase} {qos} {request:?} {init:?}");
    }

    #[test]
    fn pods_that_hold_something_count() {
        for (request, expected, as_burstable) in [
            (("cpu", "2"), true, false),
            (("cpu", "2000m"), true, false),
            (("cpu", "1500m"), false, false),
            (("cpu", "0"), false, false),
            (("cpu", "0.5"), false, false),
            (("memory", "1Gi"), true, false),
            (("memory", "0"), false, false),
            (("hugepages-2Mi", "4Mi"), true, false),
            (("ephemeral-storage", "1Gi"), false, false),
            (("example.com/card", "1"), false, false),
            (("example.com/nic", "1"), true, true),
            (("example.com/nic", "0"), false, false),
            (("kubernetes.io/nic", "1"), false, false),
        ] {
            check("Running", "Guaranteed", request, None, expected);
            check("Succeeded", "Guaranteed", request, None, expected);
            check("Running", "Guaranteed", request, Some("Always"), expected);
            check("Running", "Guaranteed", request, Some("once"), false);
            check("Pending", "Guaranteed", request, None, false);
            check("Running", "Burstable", request, None, as_burstable);
        }
    }
}
