//! An agent publishes everything that it can of its node; an upgrade of the release leaves it as it is, and nothing of it is left after the release was removed, whether its agents still run or not.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use kube::Client;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value as Json, json};
use tokio::time::sleep;

use super::{Helm, NOT_WITHDRAWN, WITHDRAWN};
use crate::publishing::{FEATURES, OWN, TOPOLOGY, own_parts};
use crate::servers::Servers;
use crate::stand_in::JobController;
use crate::storm::{Setup, StormNode};
use crate::world::{NODES, apply_kinds, call, until};

const SETUP: Setup = Setup {
    machine: "pack:2 numa:1 core:4 pu:2 mem:16",
    cpus: "16",
    config: "groups: [{name: exclusive, inside: slots, size: {list: [\"4,12\", \"5,13\"]}}]\n",
    publish: "node-topology,koordinator,taints,cmk,power-classes,groups,condition,node-feature",
    has_features: true,
    accepts_cri_resmgr: false,
    files: |_| {},
};
const VALUES: [&str; 3] = [
    "publish.nodeTopology=true",
    "publish.node=true",
    "publish.parts=cmk\\,power-classes\\,groups\\,condition\\,node-feature",
];
/// Agents look at their Node, and at the daemon, more often than that.
const CALM: Duration = Duration::from_secs(20);

/// What Helm makes when a release is removed.
pub(super) fn objects(helm: &Helm) -> BTreeMap<String, Json> {
    let others = helm.template(&[NOT_WITHDRAWN]);
    let mut objects = helm.template(&[WITHDRAWN]);
    objects.retain(|name, _| !others.contains_key(name));
    assert_eq!(objects.len(), 4, "{:?}", objects.keys());
    objects
}

/// Objects about nodes: of this one, and of one that is gone.
fn objects_about_nodes() -> [String; 4] {
    let of_gone = |path: &str| path.replace("/n1", "/gone");
    [TOPOLOGY.to_owned(), FEATURES.to_owned(), format!("{NODES}/n1"), of_gone(TOPOLOGY)]
}

pub(super) async fn what_agents_publish_goes_with_the_release(
    helm: &Helm,
    servers: &Servers,
    admin: &Client,
    jobs: &JobController,
) {
    apply_kinds(admin).await;
    helm.release("install", &VALUES);
    let mut node = StormNode::start(servers, admin, "n1", &SETUP).await;
    let file = servers.path("features.n1/bayplan");
    let is_published = async || {
        let node = call(admin, "GET", OWN, &Json::Null).await.1;
        let amounts = &node["status"]["capacity"];
        let labels = &node["metadata"]["labels"];
        let has_parts = labels["cmk.intel.com/cmk-node"] == "true"
            && labels["bayplan.dev/numa-nodes"] == "2"
            && node["spec"]["taints"][0]["key"] == "cmk"
            && amounts["cmk.intel.com/exclusive-cores"] == "2"
            && amounts["bayplan.dev/group-exclusive"] == "2"
            && node["status"]["conditions"].to_string().contains("bayplan.dev/Placing");
        let objects = objects_about_nodes();
        has_parts && file.exists() && are_there(admin, &objects[..3]).await == [true; 3]
    };
    until("everything is published", is_published).await;
    // Of a Node that went while nothing collected what it owned.
    let orphan = json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": { "name": "gone" }, "zones": [{ "name": "node-0", "type": "Node" }],
    });
    let path = TOPOLOGY.replace("/n1", "?fieldManager=bayplan-agent%2Fnode-topology");
    assert_eq!(call(admin, "POST", &path, &orphan).await.0, 200);
    objects_go_with_their_node(admin).await;

    helm.release("upgrade", &[&VALUES[..], &["startWithin=31s"]].concat());
    // The agent of before ends, and another one comes.
    end_agent(&mut node).await;
    node.restart_agent(servers);
    sleep(CALM).await;
    assert!(is_published().await, "an upgrade takes nothing back");

    helm.uninstall(jobs).await;
    check_nothing_left(admin).await;
    // An agent may write nothing any more while its pod ends.
    sleep(CALM).await;
    check_nothing_left(admin).await;
    assert!(file.exists());
    end_agent(&mut node).await;
    assert!(!file.exists(), "{:?}", fs::read_to_string(&file));
    drop(node);
    for path in [OWN, "/api/v1/namespaces/default/pods/daemon-n1?gracePeriodSeconds=0"] {
        assert_eq!(call(admin, "DELETE", path, &json!({})).await.0, 200);
    }
}

async fn are_there(admin: &Client, paths: &[String]) -> Vec<bool> {
    let mut found = Vec::new();
    for path in paths {
        found.push(call(admin, "GET", path, &Json::Null).await.0 == 200);
    }
    found
}

async fn check_nothing_left(admin: &Client) {
    let node = call(admin, "GET", OWN, &Json::Null).await.1;
    assert_eq!(own_parts(&node), Vec::<String>::new(), "{node:#}");
    assert_eq!(are_there(admin, &objects_about_nodes()).await, [false; 4]);
}

/// Kubernetes' garbage collector deletes what is owned by an object that is gone.
async fn objects_go_with_their_node(admin: &Client) {
    let uid = call(admin, "GET", OWN, &Json::Null).await.1["metadata"]["uid"].clone();
    for path in &objects_about_nodes()[..3] {
        let object = call(admin, "GET", path, &Json::Null).await.1;
        let owners = object["metadata"]["ownerReferences"].as_array().unwrap();
        assert!(owners.len() == 1 && owners[0]["uid"] == uid, "{object:#}");
    }
}

/// As kubelet ends a pod.
async fn end_agent(node: &mut StormNode) {
    kill(Pid::from_raw(node.agent.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    until("the agent ends", async || node.agent.try_wait().unwrap().is_some()).await;
    assert!(node.agent.wait().unwrap().success());
}
