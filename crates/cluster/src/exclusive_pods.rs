//! Which pods of a node are in the fingerprint of its NodeResourceTopology: those that hold something exclusively, by scheduler-plugins' method
//! `with-exclusive-resources`. In: a Pod object. Out: whether it counts.
//!
//! A pod that is Pending does not count; one that has ended does until its object goes away. Of init containers only those that keep running count.
//! Extended resources count where the NodeResourceTopology lists them, which ours does not.

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity::{is_count, is_positive};

/// Whether the pod is in the fingerprint.
pub(crate) fn is_counted(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let phase = status.and_then(|it| it.phase.as_deref()).unwrap_or("Pending");
    let is_guaranteed = status.and_then(|it| it.qos_class.as_deref()) == Some("Guaranteed");
    let Some(spec) = pod.spec.as_ref().filter(|_| phase != "Pending" && is_guaranteed) else {
        return false;
    };
    let stays = |it: &&Container| it.restart_policy.as_deref() == Some("Always");
    let init = spec.init_containers.iter().flatten().filter(stays);
    init.chain(&spec.containers).any(holds_something)
}

/// Whole CPUs, memory or huge pages.
fn holds_something(container: &Container) -> bool {
    let requests = container.resources.as_ref().and_then(|it| it.requests.as_ref());
    requests.into_iter().flatten().any(|(name, Quantity(amount))| match name.as_str() {
        "cpu" => is_count(amount),
        "memory" => is_positive(amount),
        _ => name.starts_with("hugepages-") && is_positive(amount),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pod with one container and one init container, each with a request.
    fn check(phase: &str, qos: &str, request: (&str, &str), init: Option<&str>, expected: bool) {
        let requests = json!({ "requests": { request.0: request.1 } });
        let own = json!({ "name": "c", "resources": if init.is_none() { requests.clone() } else { json!({}) } });
        let early = json!({ "name": "i", "restartPolicy": init.filter(|it| *it == "Always"), "resources": requests });
        let pod = json!({
            "spec": { "containers": [own], "initContainers": if init.is_some() { json!([early]) } else { json!([]) } },
            "status": { "phase": phase, "qosClass": qos },
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert_eq!(is_counted(&pod), expected, "{phase} {qos} {request:?} {init:?}");
    }

    #[test]
    fn pods_that_hold_something_count() {
        for (request, expected) in [
            (("cpu", "2"), true),
            (("cpu", "2000m"), true),
            (("cpu", "1500m"), false),
            (("cpu", "0"), false),
            (("cpu", "0.5"), false),
            (("memory", "1Gi"), true),
            (("memory", "0"), false),
            (("hugepages-2Mi", "4Mi"), true),
            (("ephemeral-storage", "1Gi"), false),
            (("example.com/card", "1"), false),
        ] {
            check("Running", "Guaranteed", request, None, expected);
            check("Succeeded", "Guaranteed", request, None, expected);
            check("Running", "Guaranteed", request, Some("Always"), expected);
            check("Running", "Guaranteed", request, Some("once"), false);
            check("Pending", "Guaranteed", request, None, false);
            check("Running", "Burstable", request, None, false);
        }
    }
}
