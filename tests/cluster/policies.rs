//! The admission policies of `deploy/cluster`, with a real API server. In: pods. Out: what the policies write into them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::{Value as Json, json};
use tokio::time::sleep;

use crate::world::{World, call, path_of};

const POLICIES: [&str; 2] = [
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/cluster/requests-policy.yaml")),
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/cluster/colocation-policy.yaml")),
];
pub(crate) const ANNOTATION: &str = "noderesource.dev/resources";
const LABEL: &str = "koordinator.sh/qosClass";
/// Far beyond what a new policy takes until it holds.
const STUCK: Duration = Duration::from_secs(60);

/// A pod as it would be stored.
pub(crate) async fn admitted(world: &World, namespace: &str, pod: &Json) -> Json {
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    let (status, stored) = world.as_admin("POST", &path, pod).await;
    assert_eq!(status, 200, "{stored}");
    stored
}

pub(crate) fn pod(labels: Json, init: &[Json], containers: &[Json]) -> Json {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "labels": labels },
        "spec": { "initContainers": init, "containers": containers },
    })
}

pub(crate) fn container(name: &str, requests: Json) -> Json {
    json!({ "name": name, "image": "x", "resources": { "requests": requests, "limits": {
        "power.intel.com/performance": requests.get("power.intel.com/performance").cloned().unwrap_or_else(|| json!("0")),
    } } })
}

/// What the annotation says, without its order.
pub(crate) fn said(metadata: &Json) -> Option<BTreeMap<String, Json>> {
    let text = metadata["annotations"].get(ANNOTATION)?.as_str().unwrap();
    Some(serde_json::from_str(text).unwrap())
}

/// Applies them under the version that this server has.
pub(crate) async fn apply_policies(admin: &Client) {
    let listed = call(admin, "GET", "/apis/admissionregistration.k8s.io/v1", &Json::Null).await;
    let is_stable = listed.1.to_string().contains("mutatingadmissionpolicies");
    for text in POLICIES {
        for mut object in serde_yaml::from_multiple::<Json>(text).unwrap() {
            if !is_stable {
                object["apiVersion"] = json!("admissionregistration.k8s.io/v1beta1");
            }
            let (status, told) = call(admin, "PATCH", &path_of(&object), &object).await;
            assert_eq!(status, 200, "{told}");
        }
    }
}

async fn apply(world: &World) {
    apply_policies(world.admin()).await;
    let namespace = |name: &str, labels: Json| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } });
    world.put(&namespace("batch", json!({ "bayplan.dev/qos-class": "BE" }))).await;
    world.put(&namespace("odd", json!({ "bayplan.dev/qos-class": "XX" }))).await;
    let any = pod(json!({}), &[], &[container("a", json!({ "cpu": "1" }))]);
    let begun = Instant::now();
    loop {
        let metadata = admitted(world, "batch", &any).await["metadata"].clone();
        if said(&metadata).is_some() && metadata["labels"].get(LABEL).is_some() {
            return;
        }
        assert!(begun.elapsed() < STUCK, "the policies do not hold: {metadata}");
        sleep(Duration::from_millis(200)).await;
    }
}

pub(crate) async fn policies_write_into_pods(world: &World) {
    apply(world).await;
    let power = json!({ "cpu": "1500m", "power.intel.com/performance": "2" });
    let bare = json!({ "name": "b", "image": "x" });
    for (namespace, labels, init, containers, label, expected) in [
        (
            "batch",
            json!({}),
            vec![json!({ "name": "i", "image": "x" })],
            vec![container("a", power.clone()), bare.clone()],
            json!("BE"),
            Some(json!({
                "initContainers": { "i": {} },
                "containers": {
                    "a": { "requests": power, "limits": { "power.intel.com/performance": "2" } },
                    "b": {},
                },
            })),
        ),
        ("batch", json!({ LABEL: "LS" }), vec![], vec![bare.clone()], json!("LS"), None),
        ("odd", json!({}), vec![], vec![bare.clone()], Json::Null, None),
        (
            "default",
            json!({}),
            vec![container("i", json!({ "memory": "1Gi" }))],
            vec![bare],
            Json::Null,
            Some(json!({
                "initContainers": { "i": {
                    "requests": { "memory": "1Gi", "power.intel.com/performance": "0" },
                    "limits": { "power.intel.com/performance": "0" },
                } },
                "containers": { "b": {} },
            })),
        ),
    ] {
        let pod = pod(labels, &init, &containers);
        let metadata = admitted(world, namespace, &pod).await["metadata"].clone();
        assert_eq!(metadata["labels"].get(LABEL).cloned().unwrap_or_default(), label, "{metadata}");
        let said = said(&metadata).map(|said| json!(said));
        assert_eq!(said, expected, "{metadata}");
    }
    // What another webhook has written stays.
    let mut annotated = pod(json!({}), &[], &[container("a", power)]);
    annotated["metadata"]["annotations"] = json!({ ANNOTATION: "{\"containers\":{}}" });
    let metadata = admitted(world, "batch", &annotated).await["metadata"].clone();
    assert_eq!(said(&metadata).map(|said| json!(said)), Some(json!({ "containers": {} })));
}
