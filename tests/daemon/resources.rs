//! Containers read which CPUs and memory nodes they have in a file that is mounted into them.

use std::fs;
use std::path::PathBuf;

use bayplan_daemon::config::Config;

use crate::node::{MACHINE, Node, soon};

fn told(config: &mut Config) {
    config.resources_directories = vec!["/.bayplan".into(), "/.cri-resmgr".into()];
}

async fn start() -> Node {
    let mut node = Node::without_daemon(MACHINE);
    node.adjust = told;
    node.start_daemon().await;
    node
}

fn root(node: &Node) -> PathBuf {
    node.path("resources")
}

/// Its file, through the mount.
fn read(node: &Node, id: &str) -> String {
    let mounts = node.on_record(id).mounts;
    let [(seen, host), (older, same)] = mounts.as_slice() else { panic!("{mounts:?}") };
    assert_eq!((seen.as_str(), older.as_str(), host), ("/.bayplan", "/.cri-resmgr", same));
    fs::read_to_string(PathBuf::from(host).join("resources.sh")).unwrap()
}

/// Its CPUs as the file says.
fn cpus(node: &Node, id: &str) -> [String; 2] {
    let text = read(node, id);
    ["EXCLUSIVE_CPUS", "SHARED_CPUS"].map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches('=').trim_matches('"').to_owned()
    })
}

async fn wait_for_cpus(node: &Node, id: &str, expected: [&str; 2]) {
    soon(async {
        while cpus(node, id) != expected {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn wait_for_dirs(node: &Node, count: usize) {
    soon(async {
        while fs::read_dir(root(node)).unwrap().count() != count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_container_is_told_unless_the_configuration_says_so() {
    let mut node = Node::start().await;
    let (_, id) = node.guaranteed("owner", 2000).await;
    assert_eq!(node.on_record(&id).mounts, []);
    assert!(!root(&node).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_reads_its_cpus_and_memory_nodes_and_every_change_of_them() {
    let mut node = start().await;
    let (_, sharer) = node.burstable("sharer", 500).await;
    // It leaves one node for the others.
    node.guaranteed("large", 6000).await;
    let before = node.cpus(&sharer).to_string();
    wait_for_cpus(&node, &sharer, ["", &before]).await;
    let (owner, mixed) = node.guaranteed("mixed", 1500).await;
    let held = node.held("mixed").await;
    let text = read(&node, &mixed);
    assert!(text.contains(&format!("EXCLUSIVE_CPUS=\"{}\"\n", held.exclusive)), "{text}");
    assert!(text.contains(&format!("ALL_MEMS=\"{0}\"\nDRAM_MEMS=\"{0}\"\n", held.mems)), "{text}");
    assert!(text.contains("ISOLATED_CPUS=\"\"\n"), "{text}");
    let shared = node.cpus(&sharer).to_string();
    assert_ne!(shared, before, "the test tests nothing");
    wait_for_cpus(&node, &sharer, ["", &shared]).await;
    soon(node.kubelet.end_pod(&owner)).await.unwrap();
    wait_for_cpus(&node, &sharer, ["", &before]).await;
    wait_for_dirs(&node, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_files_are_true_and_those_of_no_container_are_gone() {
    let mut node = start().await;
    let (_, owner) = node.guaranteed("owner", 2000).await;
    let (gone, _) = node.burstable("gone", 100).await;
    let text = read(&node, &owner);
    node.kill_daemon();
    soon(node.past_daemon().end_pod(&gone)).await.unwrap();
    let dir = node.on_record(&owner).mounts.remove(0).1;
    fs::write(PathBuf::from(dir).join("resources.sh"), "EXCLUSIVE_CPUS=\"99\"\n").unwrap();
    // A container that has a file has a true one, whatever the configuration says now.
    node.adjust = |_| {};
    node.start_daemon().await;
    soon(async {
        while read(&node, &owner) != text {
            tokio::task::yield_now().await;
        }
    })
    .await;
    wait_for_dirs(&node, 1).await;
    let (_, later) = node.guaranteed("later", 1000).await;
    assert_eq!(node.on_record(&later).mounts, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_journal_a_daemon_keeps_the_files_true() {
    let mut node = start().await;
    let (_, owner) = node.guaranteed("owner", 2000).await;
    let (_, sharer) = node.burstable("sharer", 500).await;
    let before = [read(&node, &owner), read(&node, &sharer)];
    node.kill_daemon();
    fs::remove_dir_all(node.state_dir()).unwrap();
    node.start_daemon().await;
    node.wait_until_in_line().await;
    assert_eq!([read(&node, &owner), read(&node, &sharer)], before);
    node.guaranteed("second", 4000).await;
    let shared = node.cpus(&sharer).to_string();
    wait_for_cpus(&node, &sharer, ["", &shared]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_file_can_be_made_containers_start_without() {
    let mut node = Node::without_daemon(MACHINE);
    node.adjust = told;
    fs::write(root(&node), "in the way").unwrap();
    node.start_daemon().await;
    let (_, id) = node.guaranteed("owner", 2000).await;
    assert_eq!(node.on_record(&id).mounts, []);
    node.check_in_line().await;
}
