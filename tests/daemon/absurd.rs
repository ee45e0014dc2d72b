//! Requests that should not be made.

use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_cri::v1;
use bayplan_types::{Bytes, QosClass};

use crate::node::{Node, set, soon};

const GUARANTEED: &str = "/kubepods/pod1";
const BURSTABLE: &str = "/kubepods/burstable/pod1";
const BEST_EFFORT: &str = "/kubepods/besteffort/pod1";

fn resources(shares: i64, quota: i64, period: i64, memory: i64) -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        cpu_shares: shares,
        cpu_quota: quota,
        cpu_period: period,
        memory_limit_in_bytes: memory,
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_does_not_tell_a_qos_class_shares_and_explain_says_so() {
    let node = Node::start().await;
    let two = || resources(2048, 200_000, 100_000, 1 << 30);
    for (name, parent) in [
        ("nothing", ""),
        ("foreign", "/system.slice/docker-1.scope"),
        ("odd", "/kubepods/weird/pod1"),
        ("garbage", "\u{1}//..//%s\u{10ffff}"),
    ] {
        let id = soon(node.create_raw(name, parent, two())).await.unwrap();
        let held = node.held(name).await;
        assert_eq!((held.class.as_str(), held.exclusive.as_str()), ("shared", ""), "{name}");
        assert_eq!(held.qos, None);
        assert_eq!(node.cpus(&id), set(&held.cpus));
        let explained = node.explain(name).await;
        let warnings = &explained[0].decision.warnings;
        assert!(warnings.len() == 1 && warnings[0].contains("does not tell a QoS class"), "{name}");
    }
    node.check_in_line().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_call_without_anything_in_it_is_the_runtimes_to_refuse() {
    let node = Node::start().await;
    let before = node.status().await;
    let empty = v1::CreateContainerRequest::default();
    let refused = soon(node.raw().create_container(empty)).await.unwrap_err();
    assert!(refused.message().contains("sandbox"), "{refused}");
    assert_eq!(node.status().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_zero_is_placed() {
    let node = Node::start().await;
    for (name, parent) in [("g", GUARANTEED), ("b", BURSTABLE), ("e", BEST_EFFORT)] {
        let id = soon(node.create_raw(name, parent, resources(0, 0, 0, 0))).await.unwrap();
        assert_eq!(node.held(name).await.class, "shared");
        assert!(!node.cpus(&id).is_empty());
    }
    node.check_in_line().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn absurd_numbers_never_stop_the_daemon() {
    let node = Node::start().await;
    let before = node.status().await;
    let extremes = [i64::MIN, -1, 0, 1, i64::MAX];
    let mut calls = 0;
    for parent in [GUARANTEED, BURSTABLE, BEST_EFFORT, ""] {
        for shares in extremes {
            for other in extremes {
                let absurd = resources(shares, other, other.saturating_add(1), other);
                let name = format!("c{calls}");
                calls += 1;
                match soon(node.create_raw(&name, parent, absurd.clone())).await {
                    Ok(id) => {
                        let update = v1::UpdateContainerResourcesRequest {
                            container_id: id.clone(),
                            linux: Some(resources(other, shares, shares, shares)),
                            ..Default::default()
                        };
                        let resized = soon(node.raw().update_container_resources(update)).await;
                        if let Err(status) = resized {
                            assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
                        }
                        node.check_in_line().await;
                        soon(node.kubelet.clone().remove(&id)).await.unwrap();
                    }
                    Err(status) => {
                        assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
                    }
                }
            }
        }
    }
    let after = node.status().await;
    assert_eq!((after.cpus, after.containers), (before.cpus, before.containers));
    assert_eq!(after.pools, before.pools);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_refused_with_the_shortage_and_changes_nothing() {
    let mut node = Node::start().await;
    node.guaranteed("owner", 4000).await;
    let pod = PodSpec::new("big", QosClass::Guaranteed);
    let pod = soon(node.kubelet.run_pod(&pod)).await.unwrap();
    let before = node.status().await;
    // 16 CPUs, 2 of them reserved, 4 owned; a container that requests nothing can flee to the reserved ones.
    for (cpus, gib, shortage) in [
        (12, 1, "needs 12 exclusive CPUs; 10 are free"),
        (1_000_000, 1, "exclusive CPUs; 14 could be given if all were free"),
        (1, 99, "99 GiB"),
    ] {
        let container = ContainerSpec::guaranteed("big", cpus * 1000, Bytes::gib(gib));
        let refused = soon(node.kubelet.create(&pod, &container, 0)).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        let text = refused.message();
        assert!(text.contains("default/big/big") && text.contains(shortage), "{text}");
        assert_eq!(node.status().await, before);
        let explained = node.explain("big").await;
        assert_eq!(explained[0].now, None);
        assert!(explained[0].decision.outcome.starts_with("refused: "));
        assert!(!explained[0].decision.pools.is_empty());
    }
    // The runtime was asked for the first one only.
    assert_eq!(node.runtime.calls("CreateContainer"), 1);
}
