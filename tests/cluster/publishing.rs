//! What the agent publishes of its node: NodeResourceTopology, taints, labels and extended resources, beside what others have written there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tokio::time::sleep;

use crate::world::{NODES, World, until};

pub(crate) const OWN: &str = "/api/v1/nodes/n1";
const OWN_STATUS: &str = "/api/v1/nodes/n1/status";
pub(crate) const TOPOLOGY: &str = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/n1";
/// As Koordinator's scheduler reads it.
const TOPOLOGY_READ: &str = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies/n1";
pub(crate) const FEATURES: &str =
    "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/bayplan-system/nodefeatures/n1";
/// Longer than between two looks at a daemon that does not answer.
const AWAY: Duration = Duration::from_secs(20);
/// For so long containers come and go as fast as they can.
const CHURN: Duration = Duration::from_secs(20);
/// The agent's, between two writes of an object that changes.
const PAUSE: Duration = Duration::from_secs(5);
/// Of no pods.
const EMPTY: &str = "pfp0v001ef46db3751d8e999";

/// In the order in which each needs the one before.
pub(crate) async fn the_node_is_published_and_withdrawn(world: &mut World) {
    zones_are_what_the_daemon_has(world).await;
    writes_are_bounded(world).await;
    annotations_of_koordinator_say_what_is_given(world).await;
    what_is_published_goes_with_a_daemon_that_was_removed(world).await;
    objects_of_other_publishers_stay(world).await;
    taints_follow_the_daemon(world).await;
    resources_are_repaired(world).await;
    features_are_labels_and_a_file(world).await;
    foreign_parts_are_refused(world).await;
    nothing_is_left_after_a_withdrawal(world).await;
}

fn attribute(object: &Json, name: &str) -> String {
    let attributes = object["attributes"].as_array().cloned().unwrap_or_default();
    let found = attributes.iter().find(|it| it["name"] == name);
    found.and_then(|it| it["value"].as_str()).unwrap_or_default().to_owned()
}

/// Available CPU time by zone.
fn available(object: &Json) -> BTreeMap<String, String> {
    let zones = object["zones"].as_array().cloned().unwrap_or_default();
    let of = |zone: &Json| {
        let resources = zone["resources"].as_array().cloned().unwrap_or_default();
        let cpu = resources.iter().find(|it| it["name"] == "cpu").cloned().unwrap_or_default();
        [&zone["name"], &cpu["available"]].map(|it| it.as_str().unwrap_or_default().to_owned())
    };
    zones.iter().map(of).map(|[name, cpus]| (name, cpus)).collect()
}

/// The same as the daemon has it now.
async fn available_now(world: &World) -> BTreeMap<String, String> {
    let zones = world.zones().await;
    let of = |zone: &Json| {
        let milli = zone["cpu_milli"]["available"].as_u64().unwrap();
        let whole = milli.is_multiple_of(1000);
        let cpus = if whole { (milli / 1000).to_string() } else { format!("{milli}m") };
        (format!("node-{}", zone["node"]), cpus)
    };
    zones["zones"].as_array().unwrap().iter().map(of).collect()
}

/// The status of the agent's condition.
fn placing(node: &Json) -> &str {
    let conditions = node["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|it| it["type"] == "bayplan.dev/Placing");
    found.and_then(|it| it["status"].as_str()).unwrap_or_default()
}

async fn zones_are_what_the_daemon_has(world: &mut World) {
    let expected = available_now(world).await;
    let before = world
        .until("an object for no pods", TOPOLOGY, |it| {
            attribute(it, "nodeTopologyPodsFingerprint") == EMPTY && available(it) == expected
        })
        .await;
    assert_eq!(before["metadata"]["ownerReferences"][0]["kind"], "Node", "{before:#}");
    assert_eq!(attribute(&before, "topologyManagerPolicy"), "best-effort");
    world.node.guaranteed("counted", 2000).await;
    world.make_pod("counted", "2").await;
    let expected = available_now(world).await;
    assert_ne!(expected, available(&before));
    world
        .until("an object for one pod", TOPOLOGY, |it| {
            attribute(it, "nodeTopologyPodsFingerprint") != EMPTY && available(it) == expected
        })
        .await;
}

/// Each container changes what is available.
async fn writes_are_bounded(world: &mut World) {
    let generation = async |world: &World| {
        world.read(TOPOLOGY).await["metadata"]["generation"].as_u64().unwrap()
    };
    let (begun, before) = (Instant::now(), generation(world).await);
    let mut kubelet = world.node.kubelet.clone();
    let mut changes = 0;
    while begun.elapsed() < CHURN {
        let (pod, _) = world.node.guaranteed(&format!("churn{changes}"), 1000).await;
        kubelet.end_pod(&pod).await.unwrap();
        changes += 2;
    }
    let written = generation(world).await - before;
    let most = begun.elapsed().as_secs() / PAUSE.as_secs() + 1;
    assert!(0 < written && written <= most && most < changes, "{changes} {written} {most}");
    let expected = available_now(world).await;
    world.until("figures of the end", TOPOLOGY, |it| available(it) == expected).await;
}

/// A value of an annotation.
fn annotation(object: &Json, name: &str) -> Json {
    let value = object["metadata"]["annotations"][name].as_str().unwrap_or_default();
    serde_json::from_str(value).unwrap_or_default()
}

async fn annotations_of_koordinator_say_what_is_given(world: &World) {
    let [own, _] = world.places().await.remove("default/counted/counted").unwrap();
    let is_given = |object: &Json| {
        let pods = annotation(object, "node.koordinator.sh/pod-cpu-allocs");
        let pods = pods.as_array().cloned().unwrap_or_default();
        pods.iter().any(|it| {
            it["name"] == "counted"
                && it["namespace"] == "default"
                && it["cpuset"] == own
                && it["managedByKubelet"] == true
                && it["uid"].as_str().is_some_and(|uid| !uid.is_empty())
        })
    };
    let object = world.until("CPUs that were given", TOPOLOGY_READ, is_given).await;
    let cpus = annotation(&object, "node.koordinator.sh/cpu-topology");
    let cpus = cpus["detail"].as_array().unwrap();
    let (first, last) = (&cpus[0], &cpus[cpus.len() - 1]);
    assert_eq!(*first, json!({ "id": 0, "core": 0, "socket": 0, "node": 0 }), "{object:#}");
    assert_eq!(last["id"], cpus.len() - 1, "{object:#}");
    let zones = object["zones"].as_array().unwrap();
    let all = zones.iter().map(|it| {
        let cpu = it["resources"].as_array().unwrap().iter().find(|it| it["name"] == "cpu");
        cpu.unwrap()["allocatable"].as_str().unwrap().parse::<usize>().unwrap()
    });
    assert_eq!(all.sum::<usize>(), cpus.len(), "{object:#}");
    let policy = annotation(&object, "kubelet.koordinator.sh/cpu-manager-policy");
    assert_eq!(policy["reservedCPUs"], world.zones().await["withheld_cpus"], "{object:#}");
    for pool in ["cpu-shared-pools", "be-cpu-shared-pools"] {
        let pools = annotation(&object, &format!("node.koordinator.sh/{pool}"));
        assert_eq!(pools.as_array().unwrap().len(), zones.len(), "{object:#}");
    }
    assert!(annotation(&object, "node.koordinator.sh/cpu-basic-info").is_object(), "{object:#}");
}

/// A daemon that is only away takes nothing along.
async fn what_is_published_goes_with_a_daemon_that_was_removed(world: &mut World) {
    let file = world.servers.path("features.d/bayplan");
    let is_there = async |world: &World| {
        let parts = own_parts(&world.read(OWN).await);
        let mut objects = Vec::new();
        for path in [TOPOLOGY, FEATURES] {
            objects.push(world.as_admin("GET", path, &Json::Null).await.0 == 200);
        }
        (parts, objects, file.exists())
    };
    let labels = ["feature.node.kubernetes.io/memory-numa", "profile.node.kubernetes.io/wide"];
    let is_whole = async |world: &World| {
        let (parts, objects, has_file) = is_there(world).await;
        let has = |it: &str| parts.iter().any(|part| part == it);
        let has_parts = labels.into_iter().chain(["power.intel.com/performance"]).all(has);
        has_parts && has("bayplan.dev/Placing") && objects == [true, true] && has_file
    };
    until("everything is published", async || is_whole(world).await).await;
    world.node.kill_daemon();
    world.until("the agent sees it", OWN, |it| placing(it) == "Unknown").await;
    sleep(AWAY).await;
    assert!(is_whole(world).await, "{:?}", is_there(world).await);
    let removed = world.node.path("removed");
    std::fs::write(&removed, "").unwrap();
    let nothing = (Vec::new(), vec![false, false], false);
    until("nothing is left", async || is_there(world).await == nothing).await;
    world.node.spawn_daemon("").await;
    assert!(!removed.exists());
    world.node.wait_until_in_line().await;
    until("everything is published again", async || is_whole(world).await).await;
}

async fn objects_of_other_publishers_stay(world: &mut World) {
    let foreign = json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": { "name": "n1" },
        "zones": [{ "name": "node-0", "type": "Node" }],
    });
    assert_eq!(world.as_admin("PATCH", TOPOLOGY, &foreign).await.0, 200);
    world.node.guaranteed("later", 1000).await;
    world.agent_says("is another program's and left to it").await;
    let object = world.read(TOPOLOGY).await;
    assert_eq!(object["zones"], json!([{ "name": "node-0", "type": "Node" }]), "{object:#}");
}

/// Keys of the Node's taints.
fn taints(node: &Json) -> Vec<String> {
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.iter().map(|it| it["key"].as_str().unwrap_or_default().to_owned()).collect()
}

async fn taints_follow_the_daemon(world: &mut World) {
    let taint = |key: &str| json!({ "key": key, "value": "x", "effect": "NoSchedule" });
    let foreign =
        json!({ "spec": { "taints": [taint("bayplan.dev/not-ready"), taint("foreign")] } });
    world.merge_into(OWN, foreign).await;
    world.until("the startup taint goes", OWN, |it| taints(it) == ["foreign"]).await;
    world.change_mode("draining").await;
    world
        .until("a draining node is tainted", OWN, |it| {
            taints(it) == ["foreign", "bayplan.dev/draining"]
        })
        .await;
    let is = |status: &'static str| move |node: &Json| placing(node) == status;
    world.until("a condition of a draining node", OWN, is("False")).await;
    world.change_mode("placing").await;
    world.until("the taint goes", OWN, |it| taints(it) == ["foreign"]).await;
    world.until("a condition of a node that places", OWN, is("True")).await;
    world.merge_into(OWN, json!({ "spec": { "taints": null } })).await;
    world.change_mode("draining").await;
    world.until("the first taint", OWN, |it| taints(it) == ["bayplan.dev/draining"]).await;
    world.change_mode("placing").await;
    world.until("no taint", OWN, |it| taints(it).is_empty()).await;
    world.merge_into(OWN, json!({ "spec": { "taints": [taint("foreign")] } })).await;
}

async fn resources_are_repaired(world: &mut World) {
    world
        .merge_into(
            OWN_STATUS,
            json!({ "status": { "capacity": { "example.com/x": "3", "cpu": "16" } } }),
        )
        .await;
    world.merge_into(OWN, json!({ "metadata": { "labels": { "example.com/label": "x" } } })).await;
    let groups =
        json!([{ "name": "exclusive", "inside": "slots", "size": { "list": ["4,12", "5,13"] } }]);
    world
        .configure(
            "default",
            json!({ "config": { "reservedCpus": "3,11", "groups": groups }, "maxMoves": 9 }),
        )
        .await;
    let is_whole = |it: &Json| {
        let capacity = &it["status"]["capacity"];
        it["metadata"]["labels"]["cmk.intel.com/cmk-node"] == "true"
            && taints(it) == ["foreign", "cmk"]
            && capacity["cmk.intel.com/exclusive-cores"] == "2"
            && capacity["bayplan.dev/group-exclusive"] == "2"
            && capacity["power.intel.com/performance"] == "14"
            && capacity["example.com/x"] == "3"
            && it["metadata"]["labels"]["example.com/label"] == "x"
    };
    world.until("CMK's label, taint and resources", OWN, is_whole).await;
    // As kubelet does when it registers.
    let zeroed = json!({ "status": { "capacity": { "cmk.intel.com/exclusive-cores": "0", "bayplan.dev/group-exclusive": "0" } } });
    world.as_kubelet(OWN_STATUS, zeroed).await;
    world.until("resources are repaired", OWN, is_whole).await;
    resources_of_others_stay(world).await;
    let back = json!({ "status": { "capacity": { "cmk.intel.com/exclusive-cores": "0" } } });
    world.as_kubelet(OWN_STATUS, back).await;
    world.until("resources of kubelet are repaired", OWN, is_whole).await;
}

async fn resources_of_others_stay(world: &World) {
    let amount = json!({ "status": { "capacity": { "cmk.intel.com/exclusive-cores": "7" } } });
    world.merge_into(OWN_STATUS, amount).await;
    world.agent_says("conflict with \"other\"").await;
    let node = world.read(OWN).await;
    assert_eq!(node["status"]["capacity"]["cmk.intel.com/exclusive-cores"], "7", "{node:#}");
}

async fn features_are_labels_and_a_file(world: &mut World) {
    let labels = |it: &Json, name: &str| it["metadata"]["labels"][name].clone();
    world
        .until("labels of features", OWN, |it| {
            labels(it, "bayplan.dev/numa-nodes") == "2"
                && labels(it, "feature.node.kubernetes.io/memory-numa") == "true"
                && labels(it, "profile.node.kubernetes.io/wide") == "true"
                && labels(it, "example.com/label") == "x"
        })
        .await;
    let object = world
        .until("a NodeFeature", FEATURES, |it| {
            it["spec"]["labels"]["bayplan.dev/numa-nodes"] == "2"
        })
        .await;
    let elements = &object["spec"]["features"]["attributes"]["local.feature"]["elements"];
    assert_eq!(elements["bayplan.dev/numa-nodes"], "2", "{object:#}");
    assert_eq!(object["metadata"]["labels"]["nfd.node.kubernetes.io/node-name"], "n1");
    let file = std::fs::read_to_string(world.servers.path("features.d/bayplan")).unwrap();
    assert!(
        file.contains("\nbayplan.dev/numa-nodes=2\n") && file.contains("# +expiry-time=2"),
        "{file}"
    );
}

/// Rights to write Nodes are bound by the admission policy.
async fn foreign_parts_are_refused(world: &World) {
    let labels = |key: &str| json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "labels": { key: "x" } } });
    let named = |name: &str, mut object: Json| {
        object["metadata"]["name"] = json!(name);
        object
    };
    let capacity = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" }, "status": { "capacity": { "example.com/x": "9" } } });
    let node = |part: &str, value: Json| json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" }, part: value });
    let taint = node("spec", json!({ "taints": [{ "key": "k", "effect": "NoSchedule" }] }));
    let evicting = node(
        "spec",
        json!({ "taints": [{ "key": "foreign", "value": "x", "effect": "NoSchedule" }, { "key": "bayplan.dev/x", "effect": "NoExecute" }] }),
    );
    let finalizer = node("metadata", json!({ "name": "n1", "finalizers": ["bayplan.dev/x"] }));
    let allocatable = node("status", json!({ "allocatable": { "cpu": "1" } }));
    let image = node("status", json!({ "images": [{ "names": ["x"] }] }));
    let info = node("status", json!({ "daemonEndpoints": { "kubeletEndpoint": { "Port": 9 } } }));
    let ready = node("status", json!({ "conditions": [{ "type": "Ready", "status": "False" }] }));
    let cordon = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" }, "spec": { "unschedulable": true } });
    let other = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n2" } });
    assert_eq!(world.as_admin("PATCH", "/api/v1/nodes/n2", &other).await.0, 200);
    for (path, object, expected) in [
        (OWN, named("n1", labels("bayplan.dev/x")), ""),
        (OWN, named("n1", labels("kubernetes.io/os")), "may write labels"),
        (OWN, named("n1", labels("example.com/other")), "may write labels"),
        ("/api/v1/nodes/n2", named("n2", labels("bayplan.dev/x")), "of its own node only"),
        (OWN, taint, "may write taints"),
        (OWN, evicting, "may write taints"),
        (OWN, finalizer, "neither finalizers nor owners"),
        (OWN, cordon, "may write taints only"),
        (OWN_STATUS, allocatable, "may write extended resources"),
        (OWN_STATUS, image, "may write capacity and conditions"),
        (OWN_STATUS, info, "may write capacity and conditions"),
        (OWN_STATUS, ready, "may write capacity and conditions"),
        (OWN_STATUS, capacity, "may write extended resources"),
    ] {
        let (status, told) = world.as_agent("PATCH", path, object).await;
        let is_right = if expected.is_empty() {
            status == 200
        } else {
            status == 422 && told.contains(expected)
        };
        assert!(is_right, "{path} {expected}: {status} {told}");
    }
    let told_of = |node: &str| {
        json!({
            "apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature",
            "metadata": { "name": "n1", "labels": { "nfd.node.kubernetes.io/node-name": node } },
            "spec": { "features": { "attributes": {}, "flags": {}, "instances": {} } },
        })
    };
    for (node, expected) in [("n1", 200), ("n2", 422)] {
        let (status, told) = world.as_agent("PATCH", FEATURES, told_of(node)).await;
        assert_eq!(status, expected, "{node}: {told}");
    }
    let (status, told) = world.as_unbound("PATCH", OWN, named("n1", labels("bayplan.dev/x"))).await;
    assert!(status == 422 && told.contains("is bound to no node"), "{status} {told}");
}

/// What of a Node is the agent's: labels, annotations, resources, taints, the condition.
pub(crate) fn own_parts(node: &Json) -> Vec<String> {
    let mut parts = Vec::new();
    for pointer in ["/metadata/labels", "/metadata/annotations", "/status/capacity"] {
        let found = node.pointer(pointer).and_then(Json::as_object);
        parts.extend(found.into_iter().flat_map(|it| it.keys()).cloned());
    }
    let conditions = node["status"]["conditions"].as_array();
    let kinds = conditions.into_iter().flatten().filter_map(|it| it["type"].as_str());
    parts.extend(kinds.map(str::to_owned));
    parts.extend(taints(node));
    let words = ["intel.com", "bayplan", "feature", "profile"];
    parts.retain(|part| part == "cmk" || words.iter().any(|it| part.contains(it)));
    parts
}

async fn nothing_is_left_after_a_withdrawal(world: &mut World) {
    world.kill_agent();
    world.withdraw();
    let node = world.read(OWN).await;
    assert_eq!(taints(&node), ["foreign"], "{node:#}");
    // This one was written by the test.
    assert_eq!(own_parts(&node), ["bayplan.dev/x"], "{node:#}");
    assert_eq!(node["status"]["capacity"]["example.com/x"], "3");
    for path in [FEATURES, &format!("{NODES}/n1")] {
        assert_eq!(world.as_admin("GET", path, &Json::Null).await.0, 404, "{path}");
    }
    // It is another publisher's by now.
    assert!(world.read(TOPOLOGY).await["zones"].is_array());
    foreign_features_are_left_alone(world).await;
}

/// NFD's worker calls its object as the agent would.
async fn foreign_features_are_left_alone(world: &mut World) {
    let object = json!({
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature",
        "metadata": { "name": "n1", "labels": { "nfd.node.kubernetes.io/node-name": "n1" } },
        "spec": { "features": { "attributes": {}, "flags": {}, "instances": {} } },
    });
    let (status, told) = world.as_admin("PATCH", FEATURES, &object).await;
    assert_eq!(status, 200, "{told}");
    world.restart_agent().await;
    world.agent_says("the NodeFeature is another program's and left to it").await;
    let found = world.read(FEATURES).await;
    assert!(found["spec"]["labels"].is_null(), "{found:#}");
    assert_eq!(found["metadata"]["labels"].as_object().unwrap().len(), 1, "{found:#}");
    world.remove(FEATURES).await;
}
