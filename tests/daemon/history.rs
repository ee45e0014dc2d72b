//! What the history is told of a node's life, and that it never delays anything.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bayplan_cri::embedded::Fault;
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_host::history::{Piece, Reader, parse_history};
use bayplan_node::history::{Entry, Kind, parse_entries};
use bayplan_types::{Bytes, QosClass};
use expect_test::{Expect, expect};

use crate::hotplug::all;
use crate::node::{DAEMON, MACHINE, Node, set, soon};
use crate::observing::{metrics, sum};

/// Every entry that is on disk.
pub(crate) fn told(dir: &Path) -> Vec<Entry> {
    let mut told = Vec::new();
    // There is none yet where the daemon has just begun.
    for Piece { recovered, .. } in Reader::new(dir).read(true).unwrap_or_default() {
        let (entries, strange) = parse_entries(&recovered.records);
        assert_eq!((strange, recovered.dropped.len()), (0, 0));
        told.extend(entries);
    }
    told
}

/// Entries as people see them, without times, ids and fingerprints.
fn check_told(node: &Node, expected: Expect) {
    let place = |place: Option<&bayplan_node::history::Place>| {
        let shown =
            |it: &bayplan_node::history::Place| format!("{}:{}/{}", it.pool, it.own, it.cpus);
        place.map_or_else(|| "-".to_owned(), shown)
    };
    let mut text = String::new();
    for entry in told(&node.history()) {
        let of = entry.who.as_ref().map_or("-", |it| it.container.as_str());
        let (before, after) = (place(entry.before.as_ref()), place(entry.after.as_ref()));
        let kind = entry.kind.name();
        let line = format!("{kind} {of} {before} {after} {}", entry.why);
        text.push_str(&format!("{}\n", line.trim_end()));
    }
    expected.assert_eq(&text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_is_told_from_the_first_start_to_the_last_stop() {
    let mut node = Node::start_watching(MACHINE).await;
    let (_, database) = node.guaranteed("database", 2000).await;
    let (batch, _) = node.burstable("batch", 500).await;
    let pod = PodSpec::new("big", QosClass::Guaranteed);
    let big = ContainerSpec::guaranteed("big", 99_000, Bytes::gib(1));
    soon(node.kubelet.launch(&pod, &big)).await.unwrap_err();
    let four = ContainerSpec::guaranteed("database", 4000, Bytes::gib(1));
    soon(node.kubelet.resize(&database, &four)).await.unwrap();
    let much = ContainerSpec::guaranteed("database", 40_000, Bytes::gib(1));
    soon(node.kubelet.resize(&database, &much)).await.unwrap_err();
    node.plug(&format!("{MACHINE} offline:1"));
    node.wait_until("the CPU is known to be gone", |now| all(now).is_disjoint(&set("1"))).await;
    node.wait_until_in_line().await;
    node.stop_daemon().await;
    soon(node.past_daemon().end_pod(&batch)).await.unwrap();
    let stranger = PodSpec::new("stranger", QosClass::Burstable);
    let asked = ContainerSpec::burstable("stranger", 100);
    soon(node.past_daemon().launch(&stranger, &asked)).await.unwrap();
    node.start_daemon().await;
    node.wait_until_in_line().await;
    soon(node.kubelet.stop(&database)).await.unwrap();
    node.stop_daemon().await;
    check_told(
        &node,
        expect![[r#"
            machine - - -
            started - - -
            placed database - numa 0:1,9/1,9 placed in numa 0
            placed batch - numa 1:/4-7,12-15 placed in numa 1
            refused big - - refused: needs 99 exclusive CPUs; 14 could be given if all were free
            resized database numa 0:1,9/1,9 numa 0:1-2,9-10/1-2,9-10 placed in numa 0
            refused database numa 0:1-2,9-10/1-2,9-10 - refused: needs 40 exclusive CPUs; 14 could be given if all were free
            machine - - -
            moved database numa 0:1-2,9-10/1-2,9-10 numa 0:2-3,9-10/2-3,9-10 lost CPUs 1; placed in numa 0
            started - - -
            ended batch numa 1:/4-7,12-15 - it ended
            adopted stranger :/ machine:/4-7,11-15 found running, shares
            ended database numa 0:2-3,9-10/2-3,9-10 - stopped or removed
        "#]],
    );

    let replayed = Command::new(DAEMON).arg("replay").arg(node.state_dir()).output().unwrap();
    let text = String::from_utf8(replayed.stdout).unwrap();
    let error = String::from_utf8(replayed.stderr).unwrap();
    assert!(text.contains("all 6 decisions are as they were"), "{text}{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_container_is_described_once_with_all_that_kubelet_said() {
    let mut node = Node::start().await;
    for name in ["first", "second", "third"] {
        node.guaranteed(name, 2000).await;
        node.stop_daemon().await;
        node.start_daemon().await;
    }
    node.guaranteed("last", 1000).await;
    node.stop_daemon().await;
    let told = told(&node.history());
    let described: Vec<&Entry> = told.iter().filter(|entry| entry.spec.is_some()).collect();
    assert!(described.iter().all(|entry| entry.kind == Kind::Placed), "{described:#?}");
    assert_eq!(described.len(), 4);
    assert_eq!(told.iter().filter(|entry| entry.machine.is_some()).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_knows_containers_that_ended_before_a_restart() {
    let mut node = Node::start().await;
    let (_, gone) = node.guaranteed("gone", 2000).await;
    soon(node.kubelet.stop(&gone)).await.unwrap();
    node.stop_daemon().await;
    node.start_daemon().await;
    assert_eq!(node.explain("gone").await, []);
    let ([_, config, path], _) = node.daemon_arguments("");
    let explained = Command::new(DAEMON).args([config, path]).args(["explain", "gone"]).output();
    let text = String::from_utf8(explained.unwrap().stdout).unwrap();
    for said in ["default/gone/gone: placed in numa 0", "  now      gone", "stopped or removed"] {
        assert!(text.contains(said), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_cannot_be_written_or_read_is_in_no_containers_way() {
    for damage in [&b"\xff\xff\n\n"[..], b"bayplan-history 9\nx\n", b"bayplan-history 1\n0000"] {
        let mut node = Node::without_daemon(MACHINE);
        fs::create_dir_all(node.history()).unwrap();
        fs::write(node.history().join("00000001"), damage).unwrap();
        node.start_daemon().await;
        node.guaranteed("database", 2000).await;
        node.check_in_line().await;
        node.stop_daemon().await;
        assert_eq!(fs::read(node.history().join("00000001")).unwrap(), damage);
        let second = fs::read(node.history().join("00000002")).unwrap();
        assert!(
            parse_entries(&parse_history(&second).records)
                .0
                .iter()
                .any(|it| it.kind == Kind::Placed)
        );
    }
    let mut node = Node::without_daemon(MACHINE);
    fs::create_dir_all(node.state_dir()).unwrap();
    fs::write(node.history(), "a file is in the way").unwrap();
    node.start_daemon().await;
    node.guaranteed("database", 2000).await;
    let text = metrics(&node).await;
    assert!(sum(&text, "bayplan_failures_total", &["kind=\"history\""]) > 0.0, "{text}");
    assert_eq!(sum(&text, "bayplan_failures_total", &["kind=\"journal\""]), 0.0);
    fs::remove_file(node.history()).unwrap();
    node.burstable("batch", 100).await;
    node.stop_daemon().await;
    let told = told(&node.history());
    assert!(told[0].why.contains("could not be written"), "{:?}", told[0]);
    let of = |kind: Kind| told.iter().filter(|entry| entry.kind == kind).count();
    assert_eq!((of(Kind::Placed), of(Kind::Continued), of(Kind::Held)), (1, 1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_goes_and_comes_and_writes_that_fail_are_told() {
    let mut node = Node::start().await;
    node.burstable("batch", 100).await;
    node.runtime.inject("UpdateContainerResources", Fault::Fail(2));
    node.guaranteed("owner", 7000).await;
    wait_until_told(&node, Kind::Failure).await;
    node.runtime.clear_faults();
    node.wait_until_in_line().await;
    node.stop_runtime().await;
    wait_until_told(&node, Kind::RuntimeLost).await;
    node.start_runtime();
    wait_until_told(&node, Kind::RuntimeBack).await;
    let failed = told(&node.history()).into_iter().find(|it| it.kind == Kind::Failure).unwrap();
    assert_eq!(failed.who.unwrap().container, "batch");
}

async fn wait_until_told(node: &Node, kind: Kind) {
    let is_told = || told(&node.history()).iter().any(|entry| entry.kind == kind);
    soon(async {
        while !is_told() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
