//! Groups of containers with a common CPU set, through the proxy: what the runtime has of each member while the group grows, shrinks and survives a restart.

use std::path::Path;

use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_daemon::config::parse_config;
use bayplan_types::{CpuSet, QosClass};

use crate::node::{Node, set, soon};

const MACHINE: &str = "pack:2 numa:2 core:4 pu:2 mem:16";
const GROUPS: &str = "groups:
- {name: web, members: {namespaces: [shop]}, instances: {max: 1}, size: {requests: {min: 1, max: 6}}}
";

async fn start() -> Node {
    let mut node = Node::without_daemon(MACHINE);
    node.adjust = |config| {
        config.groups = parse_config(Path::new("f"), GROUPS).unwrap().groups;
    };
    node.start_daemon().await;
    node
}

async fn launch(node: &mut Node, namespace: &str, name: &str, milli: u64) -> String {
    let pod =
        PodSpec { namespace: namespace.to_owned(), ..PodSpec::new(name, QosClass::Burstable) };
    let container = ContainerSpec::burstable(name, milli);
    soon(node.kubelet.launch(&pod, &container)).await.unwrap().1
}

/// The CPUs of the group, on which both are and on which the third is not.
async fn check_group(node: &Node, members: &[&str], other: &str, count: usize) -> CpuSet {
    let status = node.wait_until_in_line().await;
    let group: CpuSet = status.groups.first().map(|it| set(&it.cpus)).unwrap_or_default();
    assert_eq!(group.len(), count, "{status:#?}");
    for id in members {
        assert_eq!(node.cpus(id), group);
    }
    assert!(node.cpus(other).is_disjoint(&group));
    group
}

#[tokio::test(flavor = "multi_thread")]
async fn members_follow_their_group_and_others_stay_off_it() {
    let mut node = start().await;
    let other = launch(&mut node, "bank", "other", 500).await;
    let first = launch(&mut node, "shop", "first", 1000).await;
    let small = check_group(&node, &[&first], &other, 1).await;
    let second = launch(&mut node, "shop", "second", 3000).await;
    let large = check_group(&node, &[&first, &second], &other, 4).await;
    assert!(small.is_subset(&large), "{small} {large}");

    // The journal has it all.
    node.kill_daemon();
    node.start_daemon().await;
    assert_eq!(check_group(&node, &[&first, &second], &other, 4).await, large);

    soon(node.kubelet.stop(&second)).await.unwrap();
    check_group(&node, &[&first], &other, 1).await;
    soon(node.kubelet.stop(&first)).await.unwrap();
    let status = node.wait_until_in_line().await;
    assert!(status.groups.is_empty() && status.cpus.exclusive.is_empty(), "{status:#?}");
}
