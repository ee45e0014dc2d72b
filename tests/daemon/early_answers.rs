//! Kubelet's calls go on when the kernel has taken CPUs away, whatever the runtime does with updates. The runtime makes files of cgroups.

use bayplan_cri::embedded::Fault;
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_daemon::config::{Config, EnforcementMode};
use bayplan_types::{Bytes, CpuSet, QosClass};

use crate::node::{MACHINE, Node, set, soon};

const UPDATE: &str = "UpdateContainerResources";

async fn node(adjust: fn(&mut Config)) -> Node {
    let mut node = Node::without_daemon(MACHINE);
    node.make_cgroups().await;
    node.never_resyncs();
    node.adjust = adjust;
    node.start_daemon().await;
    node
}

/// By the kernel.
fn cpus(node: &Node, id: &str) -> CpuSet {
    node.kernel_cpus(id).expect("it has a cgroup")
}

/// With six of the fourteen CPUs that are not reserved: two of them take CPUs from every shared container, or move it.
async fn create_exclusive(node: &mut Node, name: &str) -> String {
    let pod = soon(node.kubelet.run_pod(&PodSpec::new(name, QosClass::Guaranteed))).await.unwrap();
    let spec = ContainerSpec::guaranteed(name, 6000, Bytes::gib(1));
    soon(node.kubelet.create(&pod, &spec, 0)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_does_not_wait_for_a_runtime_that_hangs_in_updates() {
    let mut node = node(|_| {}).await;
    let mut shared = Vec::new();
    for name in ["a", "b", "c"] {
        shared.push(node.burstable(name, 100).await.1);
    }
    node.runtime.inject(UPDATE, Fault::Hang);
    create_exclusive(&mut node, "first").await;
    create_exclusive(&mut node, "second").await;
    assert!(node.runtime.calls(UPDATE) > 0);
    for name in ["first", "second"] {
        let own = set(&node.held(name).await.exclusive);
        assert_eq!(own.len(), 6, "{name}");
        for id in &shared {
            assert!(!cpus(&node, id).intersects(&own), "{id} is on {}", cpus(&node, id));
        }
    }
    // The runtime is told once it answers; what hung is told again when it has been asked what runs.
    node.runtime.clear_faults();
    node.stop_daemon().await;
    node.start_daemon().await;
    node.wait_until_in_line().await;
    for id in &shared {
        assert_eq!(cpus(&node, id), node.cpus(id));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_without_processes_is_told_before_the_call_goes_on() {
    let mut node = node(|_| {}).await;
    let pod = PodSpec::new("waits", QosClass::Burstable);
    let pod = soon(node.kubelet.run_pod(&pod)).await.unwrap();
    let spec = ContainerSpec::burstable("waits", 100);
    let id = soon(node.kubelet.create(&pod, &spec, 0)).await.unwrap();
    for name in ["first", "second"] {
        create_exclusive(&mut node, name).await;
        let own = set(&node.held(name).await.exclusive);
        assert!(!node.cpus(&id).intersects(&own), "{name}");
    }
    soon(node.kubelet.start(&id)).await.unwrap();
    assert_eq!(cpus(&node, &id), node.cpus(&id));
    node.check_in_line().await;
}

/// The runtime's word is older than the kernel's when the daemon is killed.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_runtime_was_not_told_before_a_kill_it_is_told_after_the_restart() {
    let mut node = node(|_| {}).await;
    let (_, shared) = node.burstable("shared", 100).await;
    let before = node.cpus(&shared);
    node.runtime.inject(UPDATE, Fault::Hang);
    create_exclusive(&mut node, "first").await;
    create_exclusive(&mut node, "second").await;
    let own =
        set(&node.held("first").await.exclusive).union(&set(&node.held("second").await.exclusive));
    assert!(node.cpus(&shared) == before && before.intersects(&own));
    node.kill_daemon();
    node.runtime.clear_faults();
    node.start_daemon().await;
    node.wait_until_in_line().await;
    assert!(!node.cpus(&shared).intersects(&own));
    assert_eq!(cpus(&node, &shared), node.cpus(&shared));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_enforcement_no_file_is_written_and_the_runtime_is_waited_for() {
    let mut node = node(|config| config.enforcement = EnforcementMode::Off).await;
    let (_, shared) = node.burstable("shared", 100).await;
    let before = node.runtime.calls(UPDATE);
    create_exclusive(&mut node, "first").await;
    create_exclusive(&mut node, "second").await;
    let own =
        set(&node.held("first").await.exclusive).union(&set(&node.held("second").await.exclusive));
    assert!(node.runtime.calls(UPDATE) > before && !node.cpus(&shared).intersects(&own));
}
