//! The disk under the state directory refuses what it is asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::node::Node;
use crate::observing::get;

/// A disk of its own, unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: PathBuf) -> Disk {
        fs::create_dir_all(&at).unwrap();
        mount(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"], &at);
        Disk(at)
    }

    fn remount(&self, how: &str) {
        mount(&["-o", &format!("remount,{how}")], &self.0);
    }
}

fn mount(arguments: &[&str], at: &Path) {
    let status = Command::new("mount").args(arguments).arg(at).status().unwrap();
    assert!(status.success(), "mount {arguments:?} failed; it needs root, and nobody who writes");
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, because the daemon may have it open.
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_has_become_read_only_stops_neither_the_start_nor_placing() {
    let mut node = Node::start().await;
    node.kill_daemon();
    let disk = Disk::mount(node.state_dir());
    node.start_daemon().await;
    node.guaranteed("database", 2000).await;
    let before = node.wait_until_in_line().await;
    // A daemon that still writes keeps its disk writable.
    node.bury_daemon().await;
    disk.remount("ro");
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
    disk.remount("rw");
    node.burstable("batch", 500).await;
    for name in ["database", "inference", "batch"] {
        assert!(journal().contains(name), "{name} is missing in {}", journal());
    }
    let (head, _) = get(&node, "GET /readyz").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
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
