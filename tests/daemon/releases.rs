//! An upgrade from an earlier release: the daemon starts from what that one's has left, and nothing changes.

use std::fs;

use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_cri::upstream::Upstream;
use bayplan_cri::v1;
use bayplan_tests::release::{BEFORE_NODE_CRATE, differences, json, path, text};
use bayplan_types::{Bytes, QosClass};
use serde_json::Value;

use crate::node::{Node, STUCK, set, soon};

#[path = "../releases/2026-11-25/pods.rs"]
mod pods;

use pods::{MACHINE, Made, pods};

/// Its configuration, without a rule about what pods may ask for.
const RESERVED: &str = "reservedCpus: \"0,16\"\n";
/// Containers with a decision that the release's program explained.
const EXPLAINED: [&str; 3] = ["database", "mixed", "found"];

/// The runtime has what it had when the release's daemon was killed.
async fn rebuild_runtime(node: &Node, status: &Value) {
    let (mut client, mut made) = (node.past_daemon(), Made::default());
    made.launch(&mut client, &pods()).await;
    made.change(&mut client).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut raw = Upstream::new(node.path("runtime.sock"), STUCK).runtime_client();
    for held in status["containers"].as_array().unwrap() {
        assert_eq!(made.ids.remove(&text(&held["container"])), Some(text(&held["id"])));
        let sets = v1::LinuxContainerResources {
            cpuset_cpus: text(&held["cpus"]),
            cpuset_mems: text(&held["mems"]),
            ..Default::default()
        };
        let request = v1::UpdateContainerResourcesRequest {
            container_id: text(&held["id"]),
            linux: Some(sets),
            ..Default::default()
        };
        soon(raw.update_container_resources(request)).await.unwrap();
    }
    assert!(made.ids.is_empty(), "{:?}", made.ids);
}

/// The daemon of this version, started with this configuration from what the release's has left: every container is where it was, and no update was needed for that.
async fn upgraded(config: &str) -> Node {
    let mut node = Node::without_daemon(MACHINE);
    let mut then = json(BEFORE_NODE_CRATE, "status.json").unwrap();
    rebuild_runtime(&node, &then).await;
    fs::create_dir_all(node.history()).unwrap();
    fs::write(node.journal(), text(BEFORE_NODE_CRATE, "journal.gz").unwrap()).unwrap();
    let segment = path(BEFORE_NODE_CRATE, "history/00000001");
    fs::copy(segment, node.history().join("00000001")).unwrap();
    let before = node.runtime.containers();
    let updates = node.runtime.calls("UpdateContainerResources");

    node.spawn_daemon(config).await;
    soon(node.runtime.called("ListContainers", 3)).await;
    let status = serde_json::to_value(node.wait_until_in_line().await).unwrap();
    // Where the configuration's file was, and when it was read.
    then.as_object_mut().unwrap().remove("config");
    assert_eq!(differences(&then, &status), [""; 0]);
    assert_eq!(status["containers"].as_array().unwrap().len(), 14);
    for name in EXPLAINED {
        let mut then = json(BEFORE_NODE_CRATE, &format!("explain-{name}.json")).unwrap();
        // A sentence of the program's, which no file holds.
        then[0].as_object_mut().unwrap().remove("isolation");
        let explained = serde_json::to_value(node.explain(name).await).unwrap();
        assert_eq!(differences(&then, &explained), [""; 0], "{name}");
    }
    assert_eq!(node.runtime.containers(), before);
    assert_eq!(node.runtime.calls("UpdateContainerResources"), updates);
    // A journal of which something cannot be read is copied there.
    assert!(!node.state_dir().join("journal.old").exists());
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_keeps_every_container_where_it_is() {
    upgraded(&text(BEFORE_NODE_CRATE, "permissions.yaml").unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn issue_34_after_an_upgrade_without_a_rule_chosen_cpus_are_still_those_of_one_pod() {
    let mut node = upgraded(RESERVED).await;
    let warnings = node.explain("chosen").await.remove(0).decision.warnings;
    let expected = "CPUs 12-13, which were chosen for its pod, are not allowed in namespace `default` any more (`permissions` in the configuration); it keeps them until it ends";
    assert_eq!(warnings, [expected]);
    // One that comes now has no such CPUs.
    let annotation = r#"{"cpuset":"11"}"#;
    let annotation = ("scheduling.koordinator.sh/resource-status".into(), annotation.into());
    let pod =
        PodSpec { annotations: [annotation].into(), ..PodSpec::new("later", QosClass::Guaranteed) };
    let container = ContainerSpec::guaranteed("later", 500, Bytes::gib(1));
    soon(node.kubelet.launch(&pod, &container)).await.unwrap();
    let status = node.wait_until_in_line().await;
    let chosen = set("12-13");
    for held in &status.containers {
        let has_some = set(&held.cpus).intersects(&chosen);
        assert_eq!(has_some, held.container == "chosen", "{}: {}", held.full_name(), held.cpus);
    }
    assert_ne!(node.held("later").await.cpus, "11");
    assert_eq!(node.held("chosen").await.cpus, "12-13");
}
