//! An operator drains and restores a node, and lets it be placed again.

use std::fs;
use std::process::{Command, Output};

use bayplan_cri::embedded::Fault;
use bayplan_daemon::{post_control, query_control};
use bayplan_node::history::Kind;
use bayplan_node::mode::{Mode, ModePlan, ModeReport};
use bayplan_types::CpuSet;
use serde_json::Value;

use crate::history::told;
use crate::node::{DAEMON, Node, set, soon};
use crate::observing::{get, metrics, sum};

const ALL: &str = "0-15";

pub(crate) async fn change(node: &Node, to: Mode) -> ModeReport {
    let path = format!("/api/v1/mode?to={}", to.name());
    soon(post_control(&node.control_socket(), &path, String::new())).await.unwrap()
}

fn in_place(mode: Mode) -> ModeReport {
    let format = "bayplan-mode/1".to_owned();
    ModeReport {
        format,
        mode,
        not_in_place: Vec::new(),
        unchecked: None,
        files_not_written: Vec::new(),
        is_unkept: false,
    }
}

fn cpus(node: &Node, ids: &[&String]) -> Vec<CpuSet> {
    ids.iter().map(|id| node.cpus(id)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_gives_no_exclusive_cpus_until_it_is_resumed() {
    let mut node = Node::start().await;
    let (_, owner) = node.guaranteed("owner", 2000).await;
    let own = node.cpus(&owner);
    assert_eq!(change(&node, Mode::Draining).await, in_place(Mode::Draining));
    node.guaranteed("late", 2000).await;
    assert_eq!(node.held("late").await.exclusive, "");
    node.kill_daemon();
    node.start_daemon().await;
    node.guaranteed("later", 2000).await;
    assert_eq!(node.held("later").await.exclusive, "");
    let status = node.wait_until_in_line().await;
    assert_eq!((status.mode, set(&status.cpus.exclusive)), (Mode::Draining, own.clone()));
    let text = metrics(&node).await;
    let shown = |mode| sum(&text, "bayplan_mode", &[&format!("mode=\"{mode}\"")]);
    assert_eq!(["placing", "draining", "restored"].map(shown), [0.0, 1.0, 0.0]);

    change(&node, Mode::Placing).await;
    let (_, next) = node.guaranteed("next", 2000).await;
    assert_eq!(set(&node.held("next").await.exclusive), node.cpus(&next));
    node.wait_until_in_line().await;
    assert_eq!(node.cpus(&owner), own);
    node.stop_daemon().await;
    let modes = told(&node.history()).into_iter().filter(|entry| entry.kind == Kind::Mode);
    let modes: Vec<String> = modes.map(|entry| entry.why).collect();
    assert_eq!(modes, ["placing -> draining", "draining -> placing"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_node_stays_so_through_a_kill_and_gives_all_containers_their_places_back() {
    let mut node = Node::start().await;
    let (_, owner) = node.guaranteed("owner", 2000).await;
    let (_, other) = node.guaranteed("other", 4000).await;
    let (_, shared) = node.burstable("shared", 100).await;
    let before = cpus(&node, &[&owner, &other]);
    assert_eq!(change(&node, Mode::Restored).await, in_place(Mode::Restored));
    assert_eq!(cpus(&node, &[&owner, &other, &shared]), [ALL; 3].map(set));
    assert_eq!(node.on_record(&owner).mems, "0-1");
    node.kill_daemon();
    node.start_daemon().await;
    // It came while nothing is placed: the call was forwarded as it was.
    let (_, stranger) = node.guaranteed("stranger", 2000).await;
    assert_eq!(node.on_record(&stranger).cpus, "");
    assert_eq!(cpus(&node, &[&owner, &other, &shared]), [ALL; 3].map(set));
    assert_eq!(node.status().await.mode, Mode::Restored);

    assert_eq!(change(&node, Mode::Placing).await, in_place(Mode::Placing));
    let status = node.check_in_line().await;
    assert_eq!(cpus(&node, &[&owner, &other]), before);
    assert_eq!((status.containers.len(), node.held("stranger").await.exclusive.as_str()), (4, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_the_middle_of_a_restore_leaves_no_container_on_a_few_cpus() {
    let mut node = Node::start().await;
    let (_, owner) = node.guaranteed("owner", 2000).await;
    node.runtime.inject("UpdateContainerResources", Fault::Hang);
    let socket = node.control_socket();
    let path = "/api/v1/mode?to=restored";
    let restore =
        tokio::spawn(async move { post_control::<ModeReport>(&socket, path, String::new()).await });
    soon(node.runtime.called("UpdateContainerResources", 1)).await;
    node.kill_daemon();
    restore.await.unwrap().unwrap_err();
    node.runtime.clear_faults();
    node.start_daemon().await;
    let is_everywhere = |node: &Node| node.cpus(&owner) == set(ALL);
    node.wait_until("it runs everywhere", |_| is_everywhere(&node)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_could_not_be_restored_is_named_and_tried_again() {
    let mut node = Node::start().await;
    let (_, owner) = node.guaranteed("owner", 2000).await;
    let own = node.cpus(&owner);
    node.runtime.inject("UpdateContainerResources", Fault::Fail(2));
    let report = change(&node, Mode::Restored).await;
    let [left] = &report.not_in_place[..] else { panic!("{report:?}") };
    assert_eq!(left.container, "default/owner/owner");
    assert_eq!(left.why, format!("runs on CPUs {own}, not {ALL}; has memory nodes 0, not 0-1"));
    node.runtime.clear_faults();
    node.wait_until("it runs everywhere", |_| node.cpus(&owner) == set(ALL)).await;

    node.stop_runtime().await;
    let report = change(&node, Mode::Draining).await;
    assert!(report.unchecked.is_some_and(|why| why.contains("runtime.sock")));
}

fn bayplan(node: &Node, args: &[&str]) -> Output {
    let mut command = Command::new(DAEMON);
    command.args(args).arg("--control").arg(node.control_socket());
    command.env("BAYPLAN_CONFIG", node.path("client.yaml")).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_show_what_they_will_do_and_ask_before_they_do_it() {
    let mut node = Node::start().await;
    fs::write(node.path("client.yaml"), "").unwrap();
    let (_, owner) = node.guaranteed("owner", 2000).await;
    let own = node.cpus(&owner);
    let shown = bayplan(&node, &["restore", "--dry-run"]);
    assert!(shown.status.success());
    assert!(text(&shown.stdout).contains(&format!("{own} -> {ALL}")), "{}", text(&shown.stdout));
    let asked = bayplan(&node, &["restore"]);
    assert!(!asked.status.success() && text(&asked.stderr).contains("--yes"));
    assert_eq!(node.status().await.mode, Mode::Placing);
    let plan: ModePlan =
        soon(query_control(&node.control_socket(), "/api/v1/mode?to=restored")).await.unwrap();
    assert_eq!((plan.owners, plan.changes.len()), (1, 1));

    let done = bayplan(&node, &["restore", "--yes"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(node.cpus(&owner), set(ALL));
    let status = text(&bayplan(&node, &["status"]).stdout);
    assert!(status.starts_with("RESTORED: "), "{status}");
    let done = bayplan(&node, &["resume", "--yes", "-o", "json"]);
    let report: ModeReport = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(report, in_place(Mode::Placing));
    assert_eq!(node.cpus(&owner), own);
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_what_the_cgroups_say() {
    let mut node = Node::start().await;
    let (_, owner) = node.guaranteed("owner", 2000).await;
    node.burstable("unseen", 100).await;
    let parent = node.held("owner").await.cgroup_parent;
    let cgroups = node.host_root().join("sys/fs/cgroup");
    let own = cgroups.join(parent.trim_start_matches('/')).join(format!("cri-{owner}.scope"));
    fs::create_dir_all(&own).unwrap();
    fs::write(cgroups.join("cgroup.controllers"), "cpuset cpu\n").unwrap();
    fs::write(own.join("cpu.stat"), "usage_usec 7\nnr_periods 0\nnr_throttled 0\n").unwrap();
    let monitor = format!("sys/fs/resctrl/mon_groups/bayplan.{owner}/mon_data/mon_L3_00");
    let monitor = node.host_root().join(monitor);
    fs::create_dir_all(&monitor).unwrap();
    fs::write(monitor.join("llc_occupancy"), "4096\n").unwrap();
    fs::write(monitor.join("mbm_total_bytes"), "100\n").unwrap();
    let config = format!("hostRoot: {}\n", node.host_root().display());
    fs::write(node.path("client.yaml"), config).unwrap();
    let args = ["top", "--once", "--delay", "0.1", "-o", "json"];
    let shown = bayplan(&node, &args);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let reading: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let row = |at: usize| &reading["containers"][at];
    assert_eq!(
        (&row(0)["container"], &row(0)["class"]),
        (&"default/owner/owner".into(), &"exclusive".into())
    );
    // Nothing was used in between, and there is no cgroup of the other.
    assert_eq!((&row(0)["cpu_usage"], &row(0)["throttled"]), (&Value::from(0.0), &Value::Null));
    let caches = |at: usize| (row(at)["cache_bytes"].clone(), row(at)["memory_traffic"].clone());
    assert_eq!(caches(0), (Value::from(4096.0), Value::from(0.0)));
    assert_eq!(caches(1), (Value::Null, Value::Null));
    assert_eq!(
        (&row(1)["container"], &row(1)["cpu_usage"]),
        (&"default/unseen/unseen".into(), &Value::Null)
    );
    let shown = text(&bayplan(&node, &["top", "--once", "--delay", "0.1", "-n", "1"]).stdout);
    assert!(shown.contains("owner  exclusive  0.00") && !shown.contains("unseen"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_loopback_is_only_what_tells_no_secrets_and_changes_nothing() {
    let mut node = Node::start().await;
    node.guaranteed("owner", 2000).await;
    for (request, code) in [
        ("GET /healthz", 200),
        ("GET /readyz", 200),
        ("GET /metrics", 200),
        ("GET /api/v1", 200),
        ("GET /api/v1/status", 200),
        ("POST /api/v1/status", 405),
        ("GET /api/v1/explain?name=owner", 404),
        ("GET /api/v1/mode?to=restored", 404),
        ("POST /api/v1/mode?to=restored", 404),
        ("GET /v1/status", 404),
        ("GET /", 404),
    ] {
        let (head, body) = get(&node, request).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {code} ")), "{request}: {head}\n{body}");
    }
    let routes: Vec<Value> = soon(query_control(&node.control_socket(), "/api/v1")).await.unwrap();
    assert!(
        routes.iter().any(|route| route["path"] == "/api/v1/mode" && route["where"] == "socket")
    );
    for wrong in ["/api/v1/mode", "/api/v1/mode?to=elsewhere"] {
        let asked =
            soon(post_control::<ModeReport>(&node.control_socket(), wrong, String::new())).await;
        assert!(asked.is_err_and(|error| error.to_string().contains("400")));
    }
    assert_eq!(node.status().await.mode, Mode::Placing);
}
