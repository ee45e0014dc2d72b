//! The disk under the state directory refuses what it is asked.

use std::fs;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bayplan_host::disk::{Disk, Operation};
use bayplan_host::history::{parse_history, segments};
use bayplan_tests::disk::Mounted;
use nix::libc::{EIO, ENOSPC, EROFS};

use crate::node::{Node, soon};
use crate::observing::{get, metrics, sum};

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_has_become_read_only_stops_neither_the_start_nor_placing() {
    let mut node = Node::start().await;
    node.kill_daemon();
    let disk = Mounted::in_memory(&node.state_dir()).unwrap();
    node.start_daemon().await;
    node.guaranteed("database", 2000).await;
    let before = node.wait_until_in_line().await;
    // A daemon that still writes keeps its disk writable.
    node.bury_daemon();
    disk.remount("ro").unwrap();
    node.start_daemon().await;
    let after = node.wait_until_in_line().await;
    assert_eq!(after.containers, before.containers);
    node.guaranteed("inference", 4000).await;
    let path = node.journal();
    let journal = || fs::read_to_string(&path).unwrap();
    assert!(!journal().contains("inference"));
    let (head, lacking) = get(&node, "GET /readyz").await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert_eq!(lacking, "the journal cannot be written; see the log\n");
    disk.remount("rw").unwrap();
    node.burstable("batch", 500).await;
    for name in ["database", "inference", "batch"] {
        assert!(journal().contains(name), "{name} is missing in {}", journal());
    }
    let (head, _) = get(&node, "GET /readyz").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

/// What a disk does while it is ill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Illness {
    /// It refuses everything with this number.
    Broken(i32),
    /// It gives, and takes nothing more.
    Full,
    /// It gives, and nothing can be changed.
    ReadOnly,
    /// Nothing ends before it is well again.
    Hangs,
}

/// A disk that falls ill and gets well again.
#[derive(Debug, Default)]
pub(crate) struct Patient {
    illness: Mutex<Option<Illness>>,
    is_changed: Condvar,
}

impl Patient {
    pub(crate) fn becomes(&self, illness: Option<Illness>) {
        *self.illness.lock().unwrap() = illness;
        self.is_changed.notify_all();
    }
}

impl Disk for Patient {
    fn before(&self, operation: Operation, bytes: usize) -> io::Result<usize> {
        let mut illness = self.illness.lock().unwrap();
        while *illness == Some(Illness::Hangs) {
            let (guard, waited) =
                self.is_changed.wait_timeout(illness, Duration::from_secs(60)).unwrap();
            assert!(!waited.timed_out(), "it was not mended");
            illness = guard;
        }
        let is_read = matches!(operation, Operation::Read | Operation::Lock);
        match *illness {
            Some(Illness::Broken(errno)) => Err(io::Error::from_raw_os_error(errno)),
            Some(Illness::Full) if operation == Operation::Write => {
                Err(io::Error::from_raw_os_error(ENOSPC))
            }
            Some(Illness::ReadOnly) if !is_read => Err(io::Error::from_raw_os_error(EROFS)),
            _ => Ok(bytes),
        }
    }
}

fn history(node: &Node) -> Vec<String> {
    let segments = segments(&node.history()).unwrap().into_iter();
    segments.flat_map(|path| parse_history(&fs::read(path).unwrap()).records).collect()
}

/// Waits until a container is named in it.
async fn history_with(node: &Node, name: &str) -> Vec<String> {
    soon(async {
        loop {
            let history = history(node);
            if history.iter().any(|line| line.contains(name)) {
                return history;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

/// That history is lost.
async fn is_told(node: &Node) -> bool {
    sum(&metrics(node).await, "bayplan_failures_total", &["kind=\"history\""]) > 0.0
}

/// Containers come, are resized and go as ever while the disk under the history is ill; afterwards the history says what it lacks.
async fn check_history(illness: Illness) {
    let disk = Arc::<Patient>::default();
    let mut node = Node::without_daemon(crate::node::MACHINE);
    node.disks.history = Arc::<Patient>::clone(&disk);
    node.start_daemon().await;
    let (old, _) = node.guaranteed("database", 2000).await;
    let before = history_with(&node, "\"database\"").await;
    disk.becomes(Some(illness));
    let (_, id) = node.guaranteed("inference", 4000).await;
    node.burstable("batch", 500).await;
    soon(node.kubelet.end_pod(&old)).await.unwrap();
    let status = node.wait_until_in_line().await;
    assert_eq!((status.containers.len(), node.cpus(&id).len()), (2, 4), "{illness:?}");
    let (head, _) = get(&node, "GET /readyz").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{illness:?}: {head}");
    let is_lost = illness != Illness::Hangs;
    if is_lost {
        soon(async { while !is_told(&node).await {} }).await;
        // What had come before may have been written a little later.
        let lost = history(&node).iter().any(|line| line.contains("\"inference\""));
        assert!(!lost && history(&node).starts_with(&before), "{illness:?}");
    }
    disk.becomes(None);
    node.burstable("later", 500).await;
    let after = history_with(&node, "\"later\"").await;
    assert!(after.starts_with(&before), "{illness:?}: {after:#?}");
    let gap = after.iter().any(|line| line.contains("entries before this one could not be"));
    assert_eq!((gap, is_told(&node).await), (is_lost, is_lost), "{illness:?}: {after:#?}");
    // Be it that it was told at once, or that the next segment begins with the containers that are there.
    history_with(&node, "\"inference\"").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_under_the_history_that_is_ill_harms_no_container() {
    for illness in [Illness::Broken(EIO), Illness::Full, Illness::ReadOnly, Illness::Hangs] {
        check_history(illness).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_journal_that_only_a_newer_daemon_can_read_is_kept_aside() {
    let mut node = Node::start().await;
    node.guaranteed("database", 2000).await;
    let before = node.wait_until_in_line().await;
    node.kill_daemon();
    let newer = fs::read_to_string(node.journal()).unwrap().replacen("journal 1", "journal 9", 1);
    fs::write(node.journal(), &newer).unwrap();
    node.start_daemon().await;
    assert_eq!(node.wait_until_in_line().await.containers, before.containers);
    let old = fs::read_to_string(node.state_dir().join("journal.old")).unwrap();
    assert_eq!(old, newer);
}
