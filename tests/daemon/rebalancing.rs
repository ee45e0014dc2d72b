//! The rebalancer: counters in files that the test writes, as a kernel would.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_daemon::config::Config;
use bayplan_daemon::{RebalanceView, post_control, query_control};
use bayplan_types::{CpuSet, QosClass};

use crate::node::{Node, soon};
use crate::observing::{metrics, sum};

/// One core, which the two keep busy: who has room elsewhere has nobody to blame.
const MACHINE: &str = "pack:1 numa:1 core:1 pu:2 mem:8";

/// Short, so that tests do not wait long; the rebalancer counts in looks.
const INTERVAL: Duration = Duration::from_millis(100);

fn fast(config: &mut Config) {
    config.rebalance.interval = INTERVAL;
    config.reserved_cpus = CpuSet::new();
}

/// A server that waits for a hog, in the counters of their groups, from now on until it is dropped.
struct Trouble {
    is_over: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
}

impl Trouble {
    fn start(server: PathBuf, hog: PathBuf) -> Trouble {
        let is_over = Arc::<AtomicBool>::default();
        let (seen, begun) = (Arc::clone(&is_over), Instant::now());
        let writer = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                let micros = begun.elapsed().as_micros();
                for (group, percent, stalled) in [(&server, 60, 80), (&hog, 140, 0)] {
                    write(group, "cpu.stat", &format!("usage_usec {}\n", micros * percent / 100));
                    let total = micros * stalled / 100;
                    let text = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
                    write(group, "cpu.pressure", &text);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Trouble { is_over, writer: Some(writer) }
    }
}

impl Drop for Trouble {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(writer) = self.writer.take() {
            writer.join().unwrap();
        }
    }
}

/// In place, as the kernel's files are: who has them open reads the new text.
fn write(group: &std::path::Path, file: &str, text: &str) {
    use std::io::Write as _;
    let open =
        fs::OpenOptions::new().create(true).truncate(false).write(true).open(group.join(file));
    open.unwrap().write_all(text.as_bytes()).unwrap();
}

async fn view(node: &Node) -> RebalanceView {
    soon(query_control(&node.control_socket(), "/api/v1/rebalance")).await.unwrap()
}

async fn pause(node: &Node, paused: bool) -> RebalanceView {
    let path = format!("/api/v1/rebalance?paused={paused}");
    soon(post_control(&node.control_socket(), &path, String::new())).await.unwrap()
}

/// A node with a server and a hog whose groups exist.
async fn troubled() -> (Node, Trouble) {
    let mut node = Node::without_daemon(MACHINE);
    node.adjust = fast;
    node.start_daemon().await;
    let (_, server) = node.burstable("server", 100).await;
    let pod = PodSpec::new("hog", QosClass::BestEffort);
    let (_, hog) =
        soon(node.kubelet.launch(&pod, &ContainerSpec::burstable("hog", 0))).await.unwrap();
    let cgroups = node.host_root().join("sys/fs/cgroup");
    let mut groups = Vec::new();
    for (name, id) in [("server", server), ("hog", hog)] {
        let parent = node.held(name).await.cgroup_parent;
        let group = cgroups.join(parent.trim_start_matches('/')).join(id);
        fs::create_dir_all(&group).unwrap();
        write(&group, "cpu.stat", "usage_usec 0\n");
        write(&group, "cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
        write(&group, "cgroup.type", "domain\n");
        groups.push(group);
    }
    write(&cgroups, "cgroup.controllers", "cpu memory\n");
    let [server, hog] = <[PathBuf; 2]>::try_from(groups).unwrap();
    (node, Trouble::start(server, hog))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_suffers_is_told_with_who_it_suffers_from_and_nothing_is_changed() {
    let (mut node, _trouble) = troubled().await;
    let found = soon(async {
        loop {
            let view = view(&node).await;
            if let Some(found) = view.proposals.first() {
                return found.clone();
            }
            tokio::time::sleep(INTERVAL).await;
        }
    })
    .await;
    assert_eq!(
        (found.victim.as_str(), found.target.as_str()),
        ("default/server/server", "default/hog/hog")
    );
    assert!(found.evidence.contains("cpu-pressure"), "{found:?}");
    assert!(sum(&metrics(&node).await, "bayplan_rebalance_proposals_total", &["observe"]) >= 1.0);
    node.check_in_line().await;
    node.stop_daemon().await;
    let history = fs::read_dir(node.history()).unwrap();
    let text: String = history.map(|it| fs::read_to_string(it.unwrap().path()).unwrap()).collect();
    assert!(text.contains(r#""kind":"proposed""#) && text.contains("would turn"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_holds_until_it_is_ended_also_through_a_restart() {
    let mut node = Node::start().await;
    assert!(!view(&node).await.is_paused);
    assert!(pause(&node, true).await.is_paused);
    node.stop_daemon().await;
    node.start_daemon().await;
    assert!(view(&node).await.is_paused);
    assert!(!pause(&node, false).await.is_paused);
    node.stop_daemon().await;
    node.start_daemon().await;
    assert!(!view(&node).await.is_paused);
}
