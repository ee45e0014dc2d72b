//! The daemon dies and comes back; containers go on.

use std::collections::BTreeMap;
use std::fs;

use bayplan_cri::embedded::Fault;
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_cri::v1;
use bayplan_node::status::Status;
use bayplan_types::{Bytes, QosClass};

use crate::node::{Node, set, soon};
use crate::observing::get;

/// What the runtime has on record about CPUs and memory nodes, by id.
type Records = BTreeMap<String, (String, String)>;

fn records(node: &Node) -> Records {
    node.live().into_iter().map(|it| (it.id, (it.cpus, it.mems))).collect()
}

async fn populate(node: &mut Node) {
    let system =
        PodSpec { namespace: "kube-system".into(), ..PodSpec::new("dns", QosClass::Burstable) };
    soon(node.kubelet.launch(&system, &ContainerSpec::burstable("dns", 100))).await.unwrap();
    node.burstable("batch", 500).await;
    node.guaranteed("database", 2000).await;
    node.guaranteed("inference", 4000).await;
    node.guaranteed("small", 250).await;
    node.wait_until_in_line().await;
}

/// Starts the daemon again and waits until it has asked the runtime at least twice.
async fn start_and_sync(node: &mut Node) {
    let syncs = node.runtime.calls("ListContainers");
    node.start_daemon().await;
    soon(node.runtime.called("ListContainers", syncs + 3)).await;
}

/// Kills the daemon, lets `damage` do what it does to the state directory, and starts it again: no container is told anything.
async fn check_kill(mut node: Node, damage: impl FnOnce(&Node)) {
    let (before, held) = (records(&node), node.status().await);
    let updates = node.runtime.calls("UpdateContainerResources");
    node.kill_daemon();
    damage(&node);
    start_and_sync(&mut node).await;
    node.wait_until_in_line().await;
    assert_eq!(records(&node), before);
    assert_eq!(node.runtime.calls("UpdateContainerResources"), updates);
    assert_eq!(node.status().await.cpus, held.cpus);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_moves_no_container() {
    let mut node = Node::start().await;
    populate(&mut node).await;
    node.guaranteed("mixed", 1500).await;
    let before = node.wait_until_in_line().await;
    node.kill_daemon();
    let (updates, pinned) = (node.runtime.calls("UpdateContainerResources"), records(&node));
    start_and_sync(&mut node).await;
    let after = node.wait_until_in_line().await;
    assert_eq!(records(&node), pinned);
    assert_eq!(node.runtime.calls("UpdateContainerResources"), updates);
    assert_eq!((after.cpus, after.pools), (before.cpus, before.pools));
    assert_eq!(after.containers, before.containers);
    // The reasons survive as well.
    assert!(!node.explain("database").await[0].decision.pools.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_stop_moves_no_container() {
    let mut node = Node::start().await;
    populate(&mut node).await;
    let before = node.status().await;
    let (updates, pinned) = (node.runtime.calls("UpdateContainerResources"), records(&node));
    node.stop_daemon().await;
    start_and_sync(&mut node).await;
    let after = node.wait_until_in_line().await;
    assert_eq!((after.cpus, after.containers), (before.cpus, before.containers));
    assert_eq!(records(&node), pinned);
    assert_eq!(node.runtime.calls("UpdateContainerResources"), updates);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_journal_owners_are_known_by_their_cpus() {
    let mut node = Node::start().await;
    populate(&mut node).await;
    check_kill(node, |node| fs::remove_dir_all(node.state_dir()).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_ends_in_the_middle_of_a_record_costs_nothing() {
    let mut node = Node::start().await;
    populate(&mut node).await;
    check_kill(node, |node| {
        let bytes = fs::read(node.journal()).unwrap();
        fs::write(node.journal(), &bytes[..bytes.len() - 20]).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_journal_is_enough() {
    let mut node = Node::start().await;
    populate(&mut node).await;
    check_kill(node, |node| {
        let bytes = fs::read(node.journal()).unwrap();
        fs::write(node.journal(), &bytes[..bytes.len() / 2]).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_of_garbage_costs_nothing() {
    let mut node = Node::start().await;
    populate(&mut node).await;
    check_kill(node, |node| fs::write(node.journal(), [0xff, 0, b'\n', 7].repeat(999)).unwrap())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_smaller_machine_owners_lose_what_is_gone_and_share() {
    let mut node = Node::start().await;
    populate(&mut node).await;
    let before = node.status().await;
    node.kill_daemon();
    node.set_machine("pack:1 numa:3 core:3 pu:1 mem:64");
    start_and_sync(&mut node).await;
    let after = node.wait_until_in_line().await;
    // CPUs 9 to 15 are gone, and with them a part of every owner's.
    assert!(set(&after.cpus.exclusive).is_subset(&set("0-8")));
    assert_eq!(after.containers.len(), before.containers.len());
    node.kill_daemon();
    node.set_machine("pack:2 numa:1 core:4 pu:2 mem:16");
    start_and_sync(&mut node).await;
    node.wait_until_in_line().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_cpus_in_another_shape_keep_their_owners() {
    let mut node = Node::start().await;
    populate(&mut node).await;
    let before = node.status().await;
    node.kill_daemon();
    node.set_machine("pack:2 numa:1 core:4 pu:2 mem:16");
    start_and_sync(&mut node).await;
    let after = node.wait_until_in_line().await;
    let own = |status: &Status| -> Vec<String> {
        status.containers.iter().map(|held| held.exclusive.clone()).collect()
    };
    assert_eq!(own(&after), own(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tiny_machine_after_a_large_one_starts() {
    let mut node = Node::without_daemon("pack:2 numa:2 core:14 pu:2");
    node.start_daemon().await;
    populate(&mut node).await;
    node.guaranteed("large", 20_000).await;
    node.kill_daemon();
    node.set_machine("pack:1 core:8 pu:2");
    start_and_sync(&mut node).await;
    let status = node.wait_until_in_line().await;
    assert_eq!(status.containers.len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_came_while_the_daemon_was_down_is_adopted_off_the_owners_cpus() {
    let mut node = Node::start().await;
    let (_, owner) = node.guaranteed("owner", 4000).await;
    node.kill_daemon();
    let mut kubelet = node.past_daemon();
    let stranger = PodSpec::new("stranger", QosClass::Burstable);
    let asked = ContainerSpec::burstable("stranger", 100);
    let (_, stranger) = soon(kubelet.launch(&stranger, &asked)).await.unwrap();
    assert_eq!(node.on_record(&stranger).cpus, "");
    node.start_daemon().await;
    node.wait_until_in_line().await;
    assert!(node.cpus(&stranger).is_disjoint(&node.cpus(&owner)));
    let held = node.held("stranger").await;
    assert_eq!((held.class.as_str(), held.qos.as_deref()), ("shared", Some("Burstable")));
    assert!(node.explain("stranger").await[0].decision.outcome.starts_with("found running"));
}

/// Containerd leaves a container as it is that is stopped before it was started: it was adopted again, with CPUs of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_was_stopped_before_it_was_started_is_not_adopted_again() {
    let mut node = Node::start().await;
    let empty = node.status().await;
    let asked = ContainerSpec::guaranteed("app", 2000, Bytes::gib(1));
    let of_stopped_pod = PodSpec::new("stopped-pod", QosClass::Guaranteed);
    let of_stopped_pod = soon(node.kubelet.run_pod(&of_stopped_pod)).await.unwrap();
    soon(node.kubelet.create(&of_stopped_pod, &asked, 0)).await.unwrap();
    let pod = PodSpec::new("pod", QosClass::Guaranteed);
    let pod = soon(node.kubelet.run_pod(&pod)).await.unwrap();
    let id = soon(node.kubelet.create(&pod, &asked, 0)).await.unwrap();
    node.wait_until("both are placed", |status| status.containers.len() == 2).await;

    soon(node.kubelet.stop(&id)).await.unwrap();
    let stop = v1::StopPodSandboxRequest { pod_sandbox_id: of_stopped_pod.id };
    soon(node.raw().stop_pod_sandbox(stop)).await.unwrap();
    assert_eq!(node.live().len(), 2, "the runtime does not list them any more");
    let syncs = node.runtime.calls("ListContainers");
    soon(node.runtime.called("ListContainers", syncs + 3)).await;
    assert_eq!(node.status().await.containers, []);
    for _ in 0..2 {
        node.kill_daemon();
        start_and_sync(&mut node).await;
        let after = node.status().await;
        assert_eq!((after.cpus, after.containers), (empty.cpus.clone(), vec![]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_left_while_the_daemon_was_down_is_released() {
    let mut node = Node::start().await;
    let empty = node.status().await;
    let (_, ended) = node.guaranteed("ended", 4000).await;
    let (_, removed) = node.guaranteed("removed", 2000).await;
    let (pod, _) = node.guaranteed("pod", 1000).await;
    node.kill_daemon();
    let mut kubelet = node.past_daemon();
    soon(kubelet.stop(&ended)).await.unwrap();
    soon(kubelet.remove(&removed)).await.unwrap();
    soon(kubelet.end_pod(&pod)).await.unwrap();
    node.start_daemon().await;
    let after = node.wait_until_in_line().await;
    assert_eq!((after.cpus, after.containers), (empty.cpus, empty.containers));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_the_middle_of_a_creation_leaks_nothing() {
    let mut node = Node::start().await;
    let pod = PodSpec::new("stuck", QosClass::Guaranteed);
    let pod = soon(node.kubelet.run_pod(&pod)).await.unwrap();
    let before = node.status().await;
    node.runtime.inject("CreateContainer", Fault::Hang);
    let mut kubelet = node.kubelet.clone();
    let container = ContainerSpec::guaranteed("stuck", 4000, Bytes::gib(1));
    let call = tokio::spawn(async move { kubelet.create(&pod, &container, 0).await });
    soon(node.runtime.called("CreateContainer", 1)).await;
    node.kill_daemon();
    assert!(soon(call).await.unwrap().is_err());
    node.runtime.clear_faults();
    node.start_daemon().await;
    let after = node.wait_until("nothing is held", |status| status.containers.is_empty()).await;
    assert_eq!((after.cpus, after.pools), (before.cpus, before.pools));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_without_the_runtime_goes_on_from_the_journal() {
    let mut node = Node::start().await;
    populate(&mut node).await;
    let (before, pinned) = (node.status().await, records(&node));
    node.kill_daemon();
    node.stop_runtime().await;
    // It waits for the runtime for a while, and then serves without.
    node.start_daemon().await;
    let alone = node.status().await;
    let sets = |status: &Status| -> Vec<(String, String, String)> {
        let held = status.containers.iter().cloned();
        held.map(|held| (held.container, held.exclusive, held.cpus)).collect()
    };
    assert_eq!((&alone.cpus, sets(&alone)), (&before.cpus, sets(&before)));
    let (head, lacking) = get(&node, "GET /readyz").await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert_eq!(lacking, "the runtime has not told yet what runs\n");
    node.start_runtime();
    assert_eq!(node.wait_until_in_line().await.cpus, before.cpus);
    assert_eq!(records(&node), pinned);
    node.guaranteed("after", 1000).await;
    node.wait_until_in_line().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_kills_in_a_row_move_no_container() {
    let mut node = Node::start().await;
    populate(&mut node).await;
    let (before, pinned) = (node.status().await, records(&node));
    for _ in 0..3 {
        node.kill_daemon();
        node.start_daemon().await;
    }
    assert_eq!(node.wait_until_in_line().await.cpus, before.cpus);
    assert_eq!(records(&node), pinned);
}

/// Kills the daemon, lets `damage` do what it does to the state directory, and starts it while the runtime does not tell what runs, though
/// it creates what it is asked to. Whatever was in the journal: no CPU has two owners, and none of the first owner's is lost.
async fn check_late(damage: impl FnOnce(&Node)) {
    let mut node = Node::start().await;
    let (_, old) = node.guaranteed("old", 4000).await;
    let (_, shared) = node.burstable("shared", 100).await;
    node.wait_until_in_line().await;
    let (own, around) = (node.cpus(&old), node.cpus(&shared));
    let pod = PodSpec::new("new", QosClass::Guaranteed);
    let pod = soon(node.kubelet.run_pod(&pod)).await.unwrap();
    node.kill_daemon();
    damage(&node);
    node.runtime.inject("ListContainers", Fault::Fail(2));
    let asked = ContainerSpec::guaranteed("new", 2000, Bytes::gib(1));
    // The second start finds a journal that the first has written.
    for _ in 0..2 {
        node.start_daemon().await;
        let refused = soon(node.kubelet.create(&pod, &asked, 0)).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused}");
        assert!(refused.message().contains("has not told yet what runs"), "{refused}");
        let grown = ContainerSpec::guaranteed("old", 6000, Bytes::gib(1));
        let refused = soon(node.kubelet.resize(&old, &grown)).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused}");
        assert_eq!((node.cpus(&old), node.cpus(&shared)), (own.clone(), around.clone()));
        node.kill_daemon();
    }
    node.start_daemon().await;
    node.runtime.clear_faults();
    // Kubelet tries again, and need not wait for the next sync.
    let new = soon(node.kubelet.create(&pod, &asked, 0)).await.unwrap();
    soon(node.kubelet.start(&new)).await.unwrap();
    node.wait_until_in_line().await;
    assert_eq!(node.cpus(&old), own);
    assert!(node.cpus(&new).is_disjoint(&own));
    assert_eq!(node.held("old").await.class, "exclusive");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_journal_nothing_is_placed_before_the_runtime_has_told_what_runs() {
    check_late(|node| fs::remove_dir_all(node.state_dir()).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_with_a_flipped_bit_places_nothing_before_the_runtime_has_told_what_runs() {
    check_late(|node| {
        let text = fs::read_to_string(node.journal()).unwrap();
        let at = text.find("\"old\"").unwrap();
        let mut bytes = text.into_bytes();
        bytes[at + 1] ^= 1;
        fs::write(node.journal(), bytes).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_file_as_journal_places_nothing_before_the_runtime_has_told_what_runs() {
    check_late(|node| fs::write(node.journal(), "{\"policyName\":\"none\"}\n").unwrap()).await;
}

/// Cut off between two records, a journal looks whole; the runtime is asked all the same, and what it creates without having told is placed
/// anew when it tells.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_runs_goes_before_what_a_cut_journal_has_granted() {
    let mut node = Node::start().await;
    let (_, old) = node.guaranteed("old", 4000).await;
    node.wait_until_in_line().await;
    let own = node.cpus(&old);
    node.kill_daemon();
    let text = fs::read_to_string(node.journal()).unwrap();
    let kept = text.lines().filter(|line| !line.contains("\"old\""));
    let kept: String = kept.map(|line| format!("{line}\n")).collect();
    fs::write(node.journal(), kept).unwrap();
    node.runtime.inject("ListContainers", Fault::Fail(2));
    node.start_daemon().await;
    let (_, new) = node.guaranteed("new", 4000).await;
    node.runtime.clear_faults();
    node.wait_until_in_line().await;
    assert_eq!(node.cpus(&old), own);
    assert!(node.cpus(&new).is_disjoint(&own));
    for name in ["old", "new"] {
        assert_eq!(node.held(name).await.class, "exclusive", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_comes_back_to_its_cpus_after_one_start_on_another_machine() {
    let mut node = Node::start().await;
    let (_, big) = node.guaranteed("big", 8000).await;
    node.wait_until_in_line().await;
    let own = node.cpus(&big);
    for (machine, class) in
        [("pack:1 numa:3 core:3 pu:1 mem:64", "shared"), (crate::node::MACHINE, "exclusive")]
    {
        node.kill_daemon();
        node.set_machine(machine);
        start_and_sync(&mut node).await;
        node.wait_until_in_line().await;
        assert_eq!(node.held("big").await.class, class);
    }
    assert_eq!(node.cpus(&big), own);
}
