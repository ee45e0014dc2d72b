//! Pods that say what they need as a whole, with containers that say nothing (Kubernetes 1.34, KEP-2837): kubelet gives each of these the pod's own limits.

use std::collections::BTreeSet;

use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_types::{Bytes, CpuSet, MilliCpu, QosClass};

use crate::node::{Node, set, soon};

/// 16 CPUs, of which two are reserved, and 64 GiB.
const MACHINE: &str = "pack:1 numa:1 l3:1 core:8 pu:2 mem:64";

async fn start() -> Node {
    let mut node = Node::without_daemon(MACHINE);
    node.start_daemon().await;
    node
}

fn whole(name: &str, request: u64, limit: u64) -> ContainerSpec {
    let cpu_request = MilliCpu(request);
    ContainerSpec { cpu_request, ..ContainerSpec::guaranteed(name, limit, Bytes::gib(4)) }
}

/// Starts a pod with so many silent containers; their ids.
async fn launch(
    node: &mut Node,
    pod: &PodSpec,
    of_pod: &ContainerSpec,
    count: usize,
) -> Vec<String> {
    let running = soon(node.kubelet.run_pod(pod)).await.unwrap();
    let mut ids = Vec::new();
    for index in 0..count {
        // A container without a request requests its limit.
        let limit = of_pod.cpu_limit.unwrap();
        let name = format!("c{index}");
        let silent = ContainerSpec { name, cpu_request: limit, ..of_pod.clone() };
        let id = soon(node.kubelet.create(&running, &silent, 0)).await.unwrap();
        soon(node.kubelet.start(&id)).await.unwrap();
        ids.push(id);
    }
    ids
}

fn sets(node: &Node, ids: &[String]) -> BTreeSet<String> {
    ids.iter().map(|id| node.cpus(id).to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_containers_of_a_guaranteed_pod_run_on_the_pods_cpus() {
    let mut node = start().await;
    let of_pod = whole("pod", 4000, 4000);
    let pod = PodSpec { whole: Some(of_pod.clone()), ..PodSpec::new("plr", QosClass::Guaranteed) };
    let ids = launch(&mut node, &pod, &of_pod, 3).await;
    let of_all = sets(&node, &ids);
    assert_eq!(of_all.len(), 1, "all on the same: {of_all:?}");
    let cpus: CpuSet = of_all.first().unwrap().parse().unwrap();
    assert_eq!(cpus.len(), 4);
    assert_eq!(set(&node.status().await.cpus.exclusive), cpus);
    // Of the 10 that are left another owner gets 9.
    let (_, owner) = node.guaranteed("owner", 9000).await;
    assert!(node.cpus(&owner).is_disjoint(&cpus));

    // The journal has it all.
    node.kill_daemon();
    node.start_daemon().await;
    node.wait_until_in_line().await;
    assert_eq!(sets(&node, &ids), of_all);
    // The CPUs are free with the last of them.
    for (id, is_last) in ids.iter().zip([false, false, true]) {
        soon(node.kubelet.stop(id)).await.unwrap();
        let status = node.wait_until_in_line().await;
        assert_eq!(set(&status.cpus.exclusive).is_disjoint(&cpus), is_last, "{status:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_containers_of_a_burstable_pod_count_its_request_once() {
    let mut node = start().await;
    let of_pod = whole("pod", 2000, 8000);
    let pod = PodSpec { whole: Some(of_pod.clone()), ..PodSpec::new("bu", QosClass::Burstable) };
    let ids = launch(&mut node, &pod, &of_pod, 3).await;
    let (_, big) = node.guaranteed("big", 12_000).await;
    assert_eq!(node.cpus(&big).len(), 12);
    for cpus in sets(&node, &ids) {
        let cpus: CpuSet = cpus.parse().unwrap();
        assert!(cpus.len() == 2 && cpus.is_disjoint(&node.cpus(&big)), "{cpus}");
    }
}
