//! Monitor groups of resctrl: the daemon over its files on a disk, with what the kernel does with directories done by the tests.

use std::fs;
use std::path::{Path, PathBuf};

use bayplan_daemon::post_control;
use bayplan_node::mode::{Mode, ModeReport};
use tokio::time::{Duration, sleep};

use crate::node::{MACHINE, Node, soon};
use crate::observing::{metrics, sum};

const CONFIG: &str = "resctrl:\n  monitor: auto\nsweepInterval: 100ms\nobserveInterval: 100ms\nrebalance:\n  mode: 'off'\nprobes: 'off'\n";

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn write_resctrl(node: &Node) {
    for (file, text) in [
        ("info/last_cmd_status", "ok\n"),
        ("info/L3/cbm_mask", "7ff\n"),
        ("info/L3/min_cbm_bits", "1\n"),
        ("info/L3/num_closids", "4\n"),
        ("info/L3/shareable_bits", "0\n"),
        ("info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n"),
        ("info/L3_MON/num_rmids", "6\n"),
        ("schemata", "L3:0=7ff\n"),
        ("tasks", "1\n"),
        ("mon_groups/theirs/tasks", "7\n"),
    ] {
        write(&node.host_root().join("sys/fs/resctrl").join(file), text);
    }
    write(&node.host_root().join("sys/fs/cgroup/cgroup.controllers"), "cpu memory\n");
}

/// The cgroup of a container with one thread, and where its monitor group is to be.
async fn write_group(node: &Node, name: &str, thread: &str) -> PathBuf {
    let held = node.held(name).await;
    let (parent, id) = (held.cgroup_parent.trim_start_matches('/'), held.id.unwrap());
    let dir = node.host_root().join("sys/fs/cgroup").join(parent).join(&id);
    for (file, text) in [
        ("cgroup.type", "domain\n"),
        ("cgroup.stat", "nr_descendants 0\n"),
        ("cpu.stat", "usage_usec 1\n"),
        ("cgroup.threads", thread),
    ] {
        write(&dir.join(file), text);
    }
    node.host_root().join(format!("sys/fs/resctrl/mon_groups/bayplan.{id}"))
}

async fn until(is_so: impl Fn() -> bool) {
    let reached = async {
        while !is_so() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    soon(reached).await;
}

/// The files that come with a group. All counters at once, and tasks only where they are not there: the daemon reads and writes meanwhile.
async fn fill(group: &Path, bytes: u64) {
    until(|| group.is_dir()).await;
    let resctrl = group.ancestors().nth(2).unwrap();
    let made = resctrl.with_file_name("made");
    let data = made.join("mon_L3_00");
    write(&data.join("llc_occupancy"), &format!("{bytes}\n"));
    write(&data.join("mbm_total_bytes"), &format!("{}\n", bytes * 3));
    write(&data.join("mbm_local_bytes"), &format!("{bytes}\n"));
    let tasks = fs::File::create_new(group.join("tasks"));
    assert!(tasks.is_ok() || group.join("tasks").exists(), "{tasks:?}");
    fs::rename(made, group.join("mon_data")).unwrap();
}

/// They go with it, too.
async fn wait_for_end(group: &Path) {
    for file in ["tasks", "mon_data"] {
        let path = group.join(file);
        let _removed = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }
    until(|| !group.exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_monitored_from_its_start_to_its_end() {
    let mut node = Node::without_daemon(MACHINE);
    write_resctrl(&node);
    node.spawn_daemon(CONFIG).await;
    let (pod, _) = node.guaranteed("owner", 2000).await;
    let group = write_group(&node, "owner", "11\n").await;
    fill(&group, 4096).await;
    until(|| fs::read_to_string(group.join("tasks")).unwrap() == "11").await;
    let name = "container=\"owner\"";
    let shown = async {
        while sum(&metrics(&node).await, "bayplan_container_cache_occupancy_bytes", &[name])
            != 4096.0
        {
            sleep(Duration::from_millis(50)).await;
        }
    };
    soon(shown).await;
    let text = metrics(&node).await;
    let traffic =
        |label: &str| sum(&text, "bayplan_container_memory_traffic_bytes_total", &[name, label]);
    assert_eq!((traffic("\"local\""), traffic("\"remote\"")), (4096.0, 8192.0));

    // Of six RMIDs the root has one, three are for control groups that may come, and another program has one.
    node.burstable("other", 100).await;
    let other = write_group(&node, "other", "12\n").await;
    soon(node.kubelet.end_pod(&pod)).await.unwrap();
    wait_for_end(&group).await;
    fill(&other, 1).await;
    until(|| fs::read_to_string(other.join("tasks")).unwrap() == "12").await;

    let (socket, path) =
        (node.control_socket(), format!("/api/v1/mode?to={}", Mode::Restored.name()));
    let asked = soon(post_control::<ModeReport>(&socket, &path, String::new()));
    let (report, ()) = tokio::join!(asked, wait_for_end(&other));
    assert!(report.is_ok(), "{report:?}");
    let theirs = node.host_root().join("sys/fs/resctrl/mon_groups/theirs/tasks");
    assert_eq!(fs::read_to_string(theirs).unwrap(), "7\n");
}
