//! CPU sets that are changed past the runtime, and files that are looked at while questions are asked.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bayplan_daemon::{FilePlanView, query_control};
use tokio::time::sleep;

use crate::node::{MACHINE, Node, soon};
use crate::observing::{metrics, sum};

/// The cgroup of a container, as the runtime would have made it.
async fn write_group(node: &Node, name: &str) -> PathBuf {
    let held = node.held(name).await;
    let parent = held.cgroup_parent.trim_start_matches('/');
    let dir = node.host_root().join("sys/fs/cgroup").join(parent).join(held.id.unwrap());
    fs::create_dir_all(&dir).unwrap();
    for (file, text) in
        [("cgroup.type", "domain"), ("cpuset.cpus", &held.cpus), ("cpuset.mems", &held.mems)]
    {
        fs::write(dir.join(file), text).unwrap();
    }
    dir
}

/// The embedded runtime writes no files, so telling it is in vain.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_set_goes_through_the_runtime_and_then_into_the_file() {
    let mut node = Node::start().await;
    let (_, owner) = node.guaranteed("owner", 2000).await;
    let (own, file) =
        (node.cpus(&owner).to_string(), write_group(&node, "owner").await.join("cpuset.cpus"));
    // A container that comes has the groups of all looked for.
    node.burstable("other", 100).await;
    let told = |text: &str| sum(text, "bayplan_container_updates_total", &["\"ok\""]);
    let before = told(&metrics(&node).await);
    let drifts =
        |text: &str| sum(text, "bayplan_file_drifts_total", &["\"cpuset.cpus\"", "\"others\""]);
    soon(async {
        // It counts once the set was seen as it should be, which nothing tells.
        while drifts(&metrics(&node).await) == 0.0 {
            fs::write(&file, &own).unwrap();
            sleep(Duration::from_millis(1500)).await;
            fs::write(&file, "0-15").unwrap();
            sleep(Duration::from_millis(1500)).await;
        }
        while fs::read_to_string(&file).unwrap() != own {
            sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert!(told(&metrics(&node).await) > before);
    assert_eq!(node.cpus(&owner).to_string(), own);
}

/// Each question was taken for a look, so a client that asked more than once a second kept everything else from being seen.
#[tokio::test(flavor = "multi_thread")]
async fn asking_for_the_plan_all_the_time_does_not_keep_files_from_being_written() {
    let mut node = Node::without_daemon(MACHINE);
    node.adjust = |config| config.sweep_interval = Duration::from_millis(100);
    node.start_daemon().await;
    node.guaranteed("owner", 2000).await;
    let own = write_group(&node, "owner").await;
    let cgroups = node.host_root().join("sys/fs/cgroup");
    fs::write(cgroups.join("cgroup.controllers"), "cpu cpuset\n").unwrap();
    for group in own.ancestors().take_while(|it| *it != cgroups) {
        fs::write(group.join("cpu.max"), "200000 100000\n").unwrap();
    }
    soon(async {
        while !fs::read_to_string(own.join("cpu.max")).unwrap().starts_with("max") {
            let socket = node.control_socket();
            let _shown: FilePlanView = query_control(&socket, "/api/v1/plan").await.unwrap();
        }
    })
    .await;
}
