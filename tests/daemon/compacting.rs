//! Compaction as kubelet and the runtime see it, with the daemon as a process of its own: which container is moved for which, in which order the
//! runtime is told, and what a kill in the middle leaves.

use std::process::Command;

use bayplan_cri::embedded::{ContainerSnapshot, Fault};
use bayplan_cri::kubelet::{ContainerSpec, PodSpec, RunningPod};
use bayplan_types::{Bytes, CpuSet, QosClass};
use expect_test::{Expect, expect};

use crate::node::{Node, set, soon};
use crate::observing::{metrics, sum};

/// Two NUMA nodes of six cores: CPUs 0-5 and 12-17, of which four are reserved, 6-11 and 18-23.
const MACHINE: &str = "pack:1 numa:2 core:6 pu:2 mem:64";
const CONFIG: &str = "reservedCpus: 0-1,12-13\ncompaction:\n  enabled: true\n";
/// The second of them.
const SECOND: &str = "6-11,18-23";

/// Where `d` is, no request finds nine CPUs in one node; where `c` was, it has room.
const DEPARTED: [&str; 2] = ["c", "x"];

/// All have come, and the runtime takes down what is changed from now on.
async fn populated() -> (Node, Vec<(String, String)>) {
    let mut node = Node::without_daemon(MACHINE);
    node.spawn_daemon(CONFIG).await;
    node.runtime.record();
    let mut ids = Vec::new();
    for (name, milli) in [("a", 2000), ("c", 6000), ("x", 4000), ("d", 6000)] {
        let (_, id) = node.guaranteed(name, milli).await;
        ids.push((name.to_owned(), id));
    }
    node.burstable("s", 500).await;
    (node, ids)
}

async fn depart(node: &mut Node, ids: &[(String, String)]) {
    for (_, id) in ids.iter().filter(|(name, _)| DEPARTED.contains(&name.as_str())) {
        soon(node.kubelet.stop(id)).await.unwrap();
    }
}

/// The creation of a container that asks for nothing hangs, and as long as it does, holes are not joined.
async fn keep_busy(node: &mut Node) {
    let pod = PodSpec::new("busy", QosClass::BestEffort);
    let pod = soon(node.kubelet.run_pod(&pod)).await.unwrap();
    let calls = node.runtime.calls("CreateContainer");
    node.runtime.inject("CreateContainer", Fault::Hang);
    let mut kubelet = node.kubelet.clone();
    let busy = ContainerSpec::burstable("busy", 0);
    tokio::spawn(async move { kubelet.create(&pod, &busy, 0).await });
    soon(node.runtime.called("CreateContainer", calls + 1)).await;
    node.runtime.clear_faults();
}

fn newcomer() -> ContainerSpec {
    ContainerSpec::guaranteed("e", 9000, Bytes::gib(1))
}

async fn newcomers_pod(node: &mut Node) -> RunningPod {
    soon(node.kubelet.run_pod(&PodSpec::new("e", QosClass::Guaranteed))).await.unwrap()
}

/// Every change of a CPU set that the runtime was told of; containers that come and go are no changes.
fn changes(moments: &[Vec<ContainerSnapshot>]) -> Vec<(String, CpuSet, CpuSet)> {
    let mut changes = Vec::new();
    for pair in moments.windows(2) {
        for now in &pair[1] {
            let before = pair[0].iter().find(|it| it.id == now.id);
            if let Some(before) = before.filter(|it| it.cpus != now.cpus) {
                changes.push((now.name.clone(), set(&before.cpus), set(&now.cpus)));
            }
        }
    }
    changes
}

/// From `since` on: what each container let go of first, which moved altogether, which grew.
fn check_changes(node: &Node, since: usize, expected: Expect) {
    let mut text = String::new();
    for (name, from, to) in changes(&node.runtime.recorded()[since..]) {
        let pass = match (to.is_subset(&from), from.is_subset(&to)) {
            (true, _) => "shrink",
            (_, true) => "grow",
            _ => "move",
        };
        text.push_str(&format!("{pass} {name} {from} -> {to}\n"));
    }
    expected.assert_eq(&text);
}

/// At no instant did a container run on a CPU that another one owned.
fn check_every_instant(node: &Node) {
    let moments = node.runtime.recorded();
    assert!(moments.len() > 5, "the test tests nothing");
    for live in &moments {
        for owner in live.iter().filter(|it| it.name != "s" && it.name != "busy") {
            let own = set(&owner.cpus);
            let others = live.iter().filter(|it| it.id != owner.id);
            let intruder = others.clone().find(|it| set(&it.cpus).intersects(&own));
            assert!(!own.is_empty() && intruder.is_none(), "{owner:?}\n{live:#?}");
        }
    }
}

async fn moves(node: &Node) -> f64 {
    sum(&metrics(node).await, "bayplan_compaction_moves_total", &[])
}

#[tokio::test(flavor = "multi_thread")]
async fn room_is_made_for_a_newcomer_and_explained() {
    let (mut node, ids) = populated().await;
    keep_busy(&mut node).await;
    depart(&mut node, &ids).await;
    let pod = newcomers_pod(&mut node).await;
    let since = node.runtime.recorded().len() - 1;
    let id = soon(node.kubelet.create(&pod, &newcomer(), 0)).await.unwrap();
    check_changes(
        &node,
        since,
        expect![[r#"
        shrink s 6-7,11,18-19,23 -> 11,23
        move d 8-10,20-22 -> 3-5,15-17
        grow s 11,23 -> 11,22-23
    "#]],
    );
    let own = node.cpus(&id);
    assert!(own.len() == 9 && own.is_subset(&set(SECOND)), "{own}");
    assert_eq!(moves(&node).await, 1.0);
    let mut explain = Command::new(env!("CARGO_BIN_EXE_bayplan-under-test"));
    let explain = explain.args(["explain", "d", "--control"]).arg(node.control_socket());
    let text = String::from_utf8(explain.output().unwrap().stdout).unwrap();
    let why = "moved from CPUs 8-10,20-22 to 3-5,15-17 to make room for default/e/e (6 CPUs change";
    assert!(text.contains(why), "{text}");
    check_every_instant(&node);
}

#[tokio::test(flavor = "multi_thread")]
async fn holes_are_joined_when_no_container_waits() {
    let (mut node, ids) = populated().await;
    let calls = node.runtime.calls("CreateContainer");
    depart(&mut node, &ids).await;
    let is_moved = |held: &bayplan_node::status::ContainerStatus| {
        held.container == "d" && !set(&held.exclusive).intersects(&set(SECOND))
    };
    node.wait_until("d is moved", |status| status.containers.iter().any(is_moved)).await;
    node.wait_until_in_line().await;
    assert_eq!(node.runtime.calls("CreateContainer"), calls);
    let moved = moves(&node).await;
    assert!(moved >= 1.0, "{moved}");
    let pod = newcomers_pod(&mut node).await;
    let id = soon(node.kubelet.create(&pod, &newcomer(), 0)).await.unwrap();
    assert!(node.cpus(&id).is_subset(&set(SECOND)), "{}", node.cpus(&id));
    assert_eq!(moves(&node).await, moved);
    check_every_instant(&node);
}

/// The daemon is killed when the runtime has heard of so many of the writes that make room.
async fn check_kill(writes: u64) {
    let (mut node, ids) = populated().await;
    keep_busy(&mut node).await;
    depart(&mut node, &ids).await;
    let pod = newcomers_pod(&mut node).await;
    let before = node.runtime.calls("UpdateContainerResources");
    node.runtime.inject_after("UpdateContainerResources", before + writes, Fault::Hang);
    let (mut kubelet, asked) = (node.kubelet.clone(), pod.clone());
    let call = tokio::spawn(async move { kubelet.create(&asked, &newcomer(), 0).await });
    soon(node.runtime.called("UpdateContainerResources", before + writes + 1)).await;
    node.kill_daemon();
    assert!(soon(call).await.unwrap().is_err());
    node.runtime.clear_faults();
    check_every_instant(&node);

    node.spawn_daemon(CONFIG).await;
    node.wait_until_in_line().await;
    let id = soon(node.kubelet.create(&pod, &newcomer(), 0)).await.unwrap();
    assert!(node.cpus(&id).is_subset(&set(SECOND)), "{}", node.cpus(&id));
    node.wait_until_in_line().await;
    check_every_instant(&node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_any_two_moves_is_made_good() {
    for writes in 0..3 {
        check_kill(writes).await;
    }
}
