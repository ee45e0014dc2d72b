//! Idle memory: the daemon over files on a disk that are there for `memory.reclaim` and pressure.

use std::fs;
use std::path::{Path, PathBuf};

use bayplan_daemon::{ConfigDiff, FilePlanView, post_control, query_control};
use bayplan_node::mode::{Mode, ModeReport};
use tokio::time::{Duration, sleep};

use crate::node::{MACHINE, Node, soon};
use crate::observing::{metrics, sum};
use crate::reload::{RELOAD, rename_over};

const CONFIG: &str = "memory: {reclaim: {Burstable: {every: 1s, bytes: 4Mi}}}\nsweepInterval: 100ms\nprobes: 'off'\n";

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The group of a container that has never stalled, and that around all pods. It is there with all of its files at once, as the kernel makes it.
async fn write_group(node: &Node, name: &str) -> PathBuf {
    let held = node.held(name).await;
    let (parent, id) = (held.cgroup_parent.trim_start_matches('/'), held.id.unwrap());
    let cgroups = node.host_root().join("sys/fs/cgroup");
    let own = Path::new(parent).join(&id);
    let top = Path::new(parent.split('/').next().unwrap());
    let new = node.path("new-group");
    for dir in [top, &own].map(|dir| new.join(dir)) {
        stall(&dir, 0);
        write(&dir.join("memory.reclaim"), "");
        write(&dir.join("memory.current"), "1073741824\n");
        for protected in ["memory.min", "memory.low"] {
            write(&dir.join(protected), "0\n");
        }
    }
    write(&new.join(&own).join("cgroup.type"), "domain\n");
    let missing = own.ancestors().filter(|dir| !cgroups.join(dir).exists()).last().unwrap();
    fs::rename(new.join(missing), cgroups.join(missing)).unwrap();
    let _rest = fs::remove_dir_all(new);
    cgroups.join(own)
}

fn stall(dir: &Path, seconds: u64) {
    let text = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={}\n", seconds * 1_000_000);
    // A file of the kernel's is never seen half written.
    let new = dir.join("memory.pressure.new");
    write(&new, &text);
    fs::rename(new, dir.join("memory.pressure")).unwrap();
}

/// Turns that ended so.
async fn turns(node: &Node, outcome: &str) -> f64 {
    let label = format!("outcome=\"{outcome}\"");
    sum(&metrics(node).await, "bayplan_memory_reclaims_total", &[&label])
}

/// `before` was counted before anything was done for it: the turn that is waited for may be the only one.
async fn until_more(node: &Node, outcome: &str, before: f64) {
    soon(async {
        while turns(node, outcome).await <= before {
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// What was asked for last. A file that is being written is empty for a moment.
async fn until_asked(group: &Path, expected: &str) {
    soon(async {
        while asked(group) != expected {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

fn asked(group: &Path) -> String {
    fs::read_to_string(group.join("memory.reclaim")).unwrap()
}

/// Nothing was written for longer than there is between two turns.
async fn until_quiet(group: &Path) {
    soon(async {
        loop {
            fs::write(group.join("memory.reclaim"), "").unwrap();
            sleep(Duration::from_millis(2500)).await;
            if asked(group).is_empty() {
                return;
            }
        }
    })
    .await;
}

/// The daemon has read this configuration.
async fn reconfigure(node: &Node, text: &str) {
    // It reads the file by itself, too, and must not find half of it.
    rename_over(node, text);
    let socket = node.control_socket();
    soon(post_control::<ConfigDiff>(&socket, RELOAD, String::new())).await.unwrap();
}

async fn plan(node: &Node) -> FilePlanView {
    soon(query_control(&node.control_socket(), "/api/v1/plan")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_memory_is_reclaimed_until_a_container_lacks_it_or_everything_is_restored() {
    let mut node = Node::without_daemon(MACHINE);
    write(&node.host_root().join("sys/fs/cgroup/cgroup.controllers"), "cpu memory\n");
    node.spawn_daemon(CONFIG).await;
    node.guaranteed("owner", 1000).await;
    node.burstable("idle", 100).await;
    let owner = write_group(&node, "owner").await;
    let idle = write_group(&node, "idle").await;
    until_more(&node, "done", 0.0).await;
    until_asked(&idle, "4194304").await;
    assert_eq!(asked(&owner), "");
    let stalled = turns(&node, "stalled").await;
    stall(&idle, 1000);
    until_more(&node, "stalled", stalled).await;
    until_more(&node, "done", turns(&node, "done").await).await;
    let reclaims: Vec<String> = plan(&node).await.reclaims.into_iter().map(|it| it.unit).collect();
    assert_eq!(reclaims, ["default/idle/idle"]);
    let explained = node.explain("idle").await;
    assert!(explained[0].files.iter().any(|it| it.slot.ends_with("memory.reclaim")));

    let path = format!("/api/v1/mode?to={}", Mode::Restored.name());
    let socket = node.control_socket();
    soon(post_control::<ModeReport>(&socket, &path, String::new())).await.unwrap();
    assert_eq!(plan(&node).await.reclaims, []);
    // A turn every second.
    fs::write(idle.join("memory.reclaim"), "").unwrap();
    sleep(Duration::from_millis(2500)).await;
    assert_eq!(asked(&idle), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_reclaimed_while_nothing_may_be_written() {
    let mut node = Node::without_daemon(MACHINE);
    write(&node.host_root().join("sys/fs/cgroup/cgroup.controllers"), "cpu memory\n");
    node.spawn_daemon(CONFIG).await;
    node.burstable("idle", 100).await;
    let idle = write_group(&node, "idle").await;
    let writing = fs::read_to_string(node.path("bayplan.yaml")).unwrap();
    for (mode, shown) in [("off", 0), ("dry-run", 1)] {
        until_more(&node, "done", turns(&node, "done").await).await;
        reconfigure(&node, &format!("{writing}enforcement: '{mode}'\n")).await;
        // The enforcer hears of it a moment later.
        until_quiet(&idle).await;
        assert_eq!(plan(&node).await.reclaims.len(), shown, "{mode}");
        reconfigure(&node, &writing).await;
    }
    until_more(&node, "done", turns(&node, "done").await).await;
}
