//! Objects of CRI Resource Manager and nri-plugins configure the node where no BayplanConfig does, and stay as they are.

use serde_json::{Value as Json, json};

use crate::world::World;

const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const POLICIES: &str = "/apis/config.nri/v1alpha1/namespaces/kube-system";

fn map(name: &str, policy: &str) -> Json {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": format!("cri-resmgr-config.{name}"), "namespace": "kube-system" },
        "data": { "policy": policy },
    })
}

/// A policy of nri-plugins.
fn policy(kind: &str, name: &str, spec: &Json) -> Json {
    json!({
        "apiVersion": "config.nri/v1alpha1", "kind": kind,
        "metadata": { "name": name, "namespace": "kube-system" }, "spec": spec,
    })
}

fn reserves(cpus: &str) -> Json {
    json!({ "reservedResources": { "cpu": format!("cpuset:{cpus}") } })
}

/// Begins and ends with the BayplanConfig `default`.
pub(crate) async fn objects_of_other_systems_count(world: &mut World) {
    let (balloons, topology) =
        (format!("{POLICIES}/balloonspolicies"), format!("{POLICIES}/topologyawarepolicies"));
    world
        .put(&map("default", "Active: topology-aware\nReservedResources: {CPU: 'cpuset:1,9'}\n"))
        .await;
    world.holds("default", "0,8").await;
    world.delete_config("default").await;
    world.holds_object("ConfigMap/kube-system/cri-resmgr-config.default", "1,9").await;

    world.put(&policy("BalloonsPolicy", "default", &reserves("2,10"))).await;
    let status = json!({ "status": { "nodes": { "n1": { "status": "Success" } } } });
    world.merge_into(&format!("{balloons}/default/status"), status.clone()).await;
    world.holds_object("BalloonsPolicy/kube-system/default", "2,10").await;
    world.put(&policy("TopologyAwarePolicy", "node.n1", &reserves("3,11"))).await;
    world.holds_object("TopologyAwarePolicy/kube-system/node.n1", "3,11").await;
    // A group without its object has no default one.
    world.label(json!({ "config.nri/group": "a" })).await;
    world.remove(&format!("{topology}/node.n1")).await;
    let missing = world.applied_saying("GroupMissing", "BalloonsPolicy/kube-system/group.a").await;
    assert!(missing["message"].to_string().contains("config.nri/group"), "{missing}");
    world.put(&policy("BalloonsPolicy", "group.a", &reserves("4,12"))).await;
    world.holds_object("BalloonsPolicy/kube-system/group.a", "4,12").await;
    world.label(json!({ "config.nri/group": null })).await;
    world.holds_object("BalloonsPolicy/kube-system/default", "2,10").await;

    mistakes_change_nothing(world, &topology).await;
    assert_eq!(world.read(&format!("{balloons}/default")).await["status"], status["status"]);
    for path in ["default", "group.a"].map(|name| format!("{balloons}/{name}")) {
        world.remove(&path).await;
    }
    world.holds_object("ConfigMap/kube-system/cri-resmgr-config.default", "1,9").await;
    world.remove(&format!("{MAPS}/cri-resmgr-config.default")).await;
    world.holds_object("", "").await;
    world.configure("default", json!({ "config": { "reservedCpus": "0,8" }, "maxMoves": 9 })).await;
    world.holds("default", "0,8").await;
}

async fn mistakes_change_nothing(world: &mut World, topology: &str) {
    world.put(&policy("TopologyAwarePolicy", "default", &reserves("5,13"))).await;
    world.applied_saying("Invalid", "would each configure this node").await;
    world.remove(&format!("{topology}/default")).await;
    world.put(&policy("BalloonsPolicy", "node.n1", &reserves("99"))).await;
    world.applied_saying("Invalid", "reserved CPUs 99 are not online").await;
    assert_eq!(world.node.status().await.cpus.reserved, "2,10");
    // What has no counterpart is told where it holds.
    let spec = json!({
        "reservedResources": { "cpu": "cpuset:6,14" }, "instrumentation": { "httpEndpoint": ":8891" },
    });
    world.put(&policy("BalloonsPolicy", "node.n1", &spec)).await;
    world.holds_object("BalloonsPolicy/kube-system/node.n1", "6,14").await;
    world.applied_saying("Applied", "spec.instrumentation.httpEndpoint").await;
    world.remove(&format!("{POLICIES}/balloonspolicies/node.n1")).await;
    world.holds_object("BalloonsPolicy/kube-system/default", "2,10").await;
}
