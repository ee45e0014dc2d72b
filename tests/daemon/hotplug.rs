//! CPUs go and come while everything runs.

use std::fs;

use bayplan_cri::embedded::Fault;
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_types::{Bytes, CpuSet, QosClass};

use crate::node::{MACHINE, Node, set, soon};
use crate::observing::{metrics, sum};

/// [`MACHINE`] with these CPUs switched off.
fn without(cpus: &CpuSet) -> String {
    format!("{MACHINE} offline:{cpus}")
}

fn first_of(cpus: &CpuSet) -> CpuSet {
    cpus.iter().take(1).collect()
}

/// The CPUs of all classes together.
pub(crate) fn all(status: &bayplan_node::status::Status) -> CpuSet {
    let cpus = &status.cpus;
    let classes = [&cpus.exclusive, &cpus.shared, &cpus.reserved, &cpus.isolated];
    classes.iter().fold(CpuSet::new(), |all, class| all.union(&set(class)))
}

async fn changes(node: &Node, outcome: &str) -> f64 {
    let label = format!("\"{outcome}\"");
    sum(&metrics(node).await, "bayplan_machine_changes_total", &[&label])
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_leave_a_cpu_that_goes_offline_and_only_sharers_return() {
    let mut node = Node::start_watching(MACHINE).await;
    let (_, owner) = node.guaranteed("owner", 2000).await;
    let (_, other) = node.guaranteed("other", 2000).await;
    let mut sharers = Vec::new();
    for name in ["first", "second", "third"] {
        sharers.push(node.burstable(name, 100).await.1);
    }
    let (before, kept) = (node.cpus(&owner), node.cpus(&other));
    let shared: Vec<CpuSet> = sharers.iter().map(|id| node.cpus(id)).collect();
    // One of the owner's, and one that others share.
    let gone = first_of(&before).union(&first_of(&shared[0].union(&shared[1]).difference(&before)));

    node.plug(&without(&gone));
    node.wait_until("the CPUs are known to be gone", |now| all(now).is_disjoint(&gone)).await;
    node.wait_until_in_line().await;
    let after = node.cpus(&owner);
    assert!(after.len() == 2 && after.is_disjoint(&gone), "{before} became {after}");
    assert_eq!(node.cpus(&other), kept);
    assert!(node.live().iter().all(|it| set(&it.cpus).is_disjoint(&gone)));
    assert_eq!(changes(&node, "applied").await, 1.0);
    let why = node.explain("owner").await[0].decision.outcome.clone();
    assert!(why.starts_with(&format!("lost CPUs {}; placed in ", first_of(&before))), "{why}");

    // Killed and back, every container is where it was.
    node.kill_daemon();
    node.start_daemon().await;
    node.wait_until_in_line().await;
    assert_eq!((node.cpus(&owner), node.cpus(&other)), (after.clone(), kept.clone()));
    assert_eq!(node.explain("owner").await[0].decision.outcome, why);

    node.plug(MACHINE);
    node.wait_until("the CPUs are back", |now| gone.is_subset(&all(now))).await;
    node.wait_until_in_line().await;
    assert_eq!((node.cpus(&owner), node.cpus(&other)), (after.clone(), kept));
    let free = gone.union(&before).difference(&after);
    assert!(free.is_subset(&set(&node.status().await.cpus.shared)));
    for (id, shared) in sharers.iter().zip(&shared) {
        assert!(shared.difference(&after).is_subset(&node.cpus(id)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_reserved_cpus_system_pods_run_on_the_lowest() {
    let mut node = Node::start_watching(MACHINE).await;
    let pod =
        PodSpec { namespace: "kube-system".into(), ..PodSpec::new("dns", QosClass::Burstable) };
    let dns = ContainerSpec::burstable("dns", 100);
    let (_, dns) = soon(node.kubelet.launch(&pod, &dns)).await.unwrap();
    assert_eq!(node.cpus(&dns), set("0,8"));
    for (offline, expected) in [("0", "8"), ("0,8", "1-2"), ("0-7", "8")] {
        node.plug(&without(&set(offline)));
        let is_so = |now: &bayplan_node::status::Status| now.cpus.reserved == expected;
        node.wait_until("system pods have other CPUs", is_so).await;
        node.wait_until_in_line().await;
        assert_eq!(node.cpus(&dns), set(expected), "{offline} are offline");
    }
    let text = metrics(&node).await;
    assert_eq!(sum(&text, "bayplan_failures_total", &["\"reserved_offline\""]), 3.0);
    // A daemon that is killed now comes back, although none of its reserved CPUs is all there.
    node.kill_daemon();
    node.start_daemon().await;
    node.wait_until_in_line().await;
    assert_eq!(node.cpus(&dns), set("8"));
    node.plug(MACHINE);
    node.wait_until("all is as before", |now| now.cpus.reserved == "0,8").await;
    node.wait_until_in_line().await;
    assert_eq!(node.cpus(&dns), set("0,8"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_hangs_is_corrected_when_it_is_found() {
    let mut node = Node::start_watching(MACHINE).await;
    let pod = PodSpec::new("late", QosClass::Guaranteed);
    let pod = soon(node.kubelet.run_pod(&pod)).await.unwrap();
    node.runtime.inject("CreateContainer", Fault::LoseReply);
    let mut kubelet = node.kubelet.clone();
    let container = ContainerSpec::guaranteed("late", 2000, Bytes::gib(1));
    let call = tokio::spawn(async move { kubelet.create(&pod, &container, 0).await });
    soon(node.runtime.called("CreateContainer", 1)).await;
    let held = node.wait_until("it is placed", |now| now.containers.len() == 1).await;
    assert_eq!(held.containers[0].phase, "creating");
    let gone = first_of(&set(&held.containers[0].exclusive));
    node.plug(&without(&gone));
    node.wait_until("the CPU is known to be gone", |now| all(now).is_disjoint(&gone)).await;
    call.abort();
    node.runtime.clear_faults();
    let status = node.wait_until_in_line().await;
    let own = set(&status.containers[0].exclusive);
    assert!(own.len() == 2 && own.is_disjoint(&gone), "{own}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_cannot_be_read_stays_as_it_was() {
    let mut node = Node::start_watching(MACHINE).await;
    let (_, owner) = node.guaranteed("owner", 2000).await;
    let before = node.status().await;
    fs::rename(node.host_root(), node.host_root().with_extension("away")).unwrap();
    soon(async {
        while changes(&node, "failed").await < 2.0 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(node.status().await, before);
    node.guaranteed("another", 1000).await;
    fs::rename(node.host_root().with_extension("away"), node.host_root()).unwrap();
    let gone = first_of(&node.cpus(&owner));
    node.plug(&without(&gone));
    node.wait_until("the CPU is known to be gone", |now| all(now).is_disjoint(&gone)).await;
    node.wait_until_in_line().await;
}
