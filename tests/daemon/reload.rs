//! The configuration file changes while everything runs: by the editor's rename, by SIGHUP, and through the command line.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output};

use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_daemon::ConfigDiff;
use bayplan_node::Shift;
use bayplan_node::status::{ConfigStatus, Status};
use bayplan_types::QosClass;
use nix::sys::signal::Signal;

use crate::node::{DAEMON, MACHINE, Node, soon};
use crate::observing::{metrics, sum};

/// A node with a daemon that is a process, and what its configuration begins with.
pub(crate) async fn start(more: &str) -> (Node, String) {
    let mut node = Node::without_daemon(MACHINE);
    node.spawn_daemon(more).await;
    let text = fs::read_to_string(node.path("bayplan.yaml")).unwrap();
    (node, text.strip_suffix(more).unwrap().to_owned())
}

/// Has the daemon read its file.
pub(crate) const RELOAD: &str = "/api/v1/config/reload";

/// As editors do it: a new file over the old one.
pub(crate) fn rename_over(node: &Node, text: &str) {
    let new = node.path("new.yaml");
    fs::write(&new, text).unwrap();
    fs::rename(new, node.path("bayplan.yaml")).unwrap();
}

/// `bayplan config ARGUMENTS` of the daemon's file.
pub(crate) async fn config(node: &Node, arguments: &[&str]) -> Output {
    let file = node.path("bayplan.yaml");
    let mut command = Command::new(DAEMON);
    command.arg("--config").arg(file).arg("config").args(arguments).env_remove("BAYPLAN_LOG");
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// What another file would change.
pub(crate) async fn diff(node: &Node, text: &str) -> ConfigDiff {
    let file = node.path("candidate.yaml");
    fs::write(&file, text).unwrap();
    let output = config(node, &["diff", file.to_str().unwrap(), "-o", "json"]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Own CPUs, all CPUs and memory nodes by name.
pub(crate) fn places(status: &Status) -> BTreeMap<String, [String; 3]> {
    let place = |it: &bayplan_node::status::ContainerStatus| {
        [it.exclusive.clone(), it.cpus.clone(), it.mems.clone()]
    };
    status.containers.iter().map(|it| (it.full_name(), place(it))).collect()
}

/// Places after these moves.
pub(crate) fn moved(
    mut places: BTreeMap<String, [String; 3]>,
    moves: &[Shift],
) -> BTreeMap<String, [String; 3]> {
    for it in moves {
        let from = [it.exclusive_from.clone(), it.cpus_from.clone(), it.mems_from.clone()];
        let to = [it.exclusive_to.clone(), it.cpus_to.clone(), it.mems_to.clone()];
        assert_eq!(places.insert(it.container.clone(), to), Some(from), "{it:?}");
    }
    places
}

pub(crate) fn has_problem(status: &Status, text: &str) -> bool {
    let problem = status.config.as_ref().and_then(|config| config.problem.as_ref());
    problem.is_some_and(|problem| problem.contains(text))
}

fn is_well(status: &Status) -> bool {
    status.config.as_ref().is_some_and(|config| config.problem.is_none())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_containers_that_move_are_those_that_the_diff_has_named() {
    let (mut node, base) = start("reservedCpus: \"0,8\"\n").await;
    node.guaranteed("owner", 2000).await;
    node.guaranteed("other", 2000).await;
    node.burstable("sharer", 100).await;
    let pod =
        PodSpec { namespace: "kube-system".into(), ..PodSpec::new("dns", QosClass::Burstable) };
    soon(node.kubelet.launch(&pod, &ContainerSpec::burstable("dns", 100))).await.unwrap();
    let before = places(&node.wait_until_in_line().await);

    let same = diff(&node, &format!("{base}reservedCpus: 0,8\n")).await;
    assert!(same.changes.is_empty() && same.moves.is_empty(), "{same:?}");
    let text = format!("{base}reservedCpus: 0-1,8-9\nreservedNamespaces: [kube-public]\n");
    let told = diff(&node, &text).await;
    let keys: Vec<&str> = told.changes.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(keys, ["reservedCpus", "reservedNamespaces"]);
    let named: Vec<&str> = told.moves.iter().map(|it| it.container.as_str()).collect();
    assert!(named.contains(&"default/owner/owner") && named.contains(&"kube-system/dns/dns"));
    assert!(!named.contains(&"default/other/other"), "{named:?}");
    // No container has moved by being asked about.
    assert_eq!(places(&node.check_in_line().await), before);

    rename_over(&node, &text);
    node.wait_until("other CPUs are reserved", |now| now.cpus.reserved == "0-1,8-9").await;
    let after = places(&node.wait_until_in_line().await);
    assert_eq!(after, moved(before, &told.moves));
    assert_eq!(sum(&metrics(&node).await, "bayplan_config_reloads_total", &["\"applied\""]), 1.0);

    // Killed and back with the same file, every container is where it was.
    node.kill_daemon();
    node.spawn_daemon(text.strip_prefix(&base).unwrap()).await;
    assert_eq!(places(&node.wait_until_in_line().await), after);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_file_keeps_what_holds() {
    let good = "reservedCpus: \"0,8\"\n";
    let (mut node, base) = start(good).await;
    node.guaranteed("owner", 2000).await;
    let before = places(&node.wait_until_in_line().await);
    for (bad, problem) in [
        ("reservedCpus: 1\nonFailure: ajar\n", "`onFailure` is `ajar`"),
        ("reservedCpus: 0,64\n", "`reservedCpus`: reserved CPUs 64 are not online"),
        ("reservedCpus: [\n", "not YAML"),
    ] {
        rename_over(&node, &format!("{base}{bad}"));
        let status = node.wait_until(problem, |now| has_problem(now, problem)).await;
        assert_eq!((status.cpus.reserved.as_str(), places(&status)), ("0,8", before.clone()));
        let ordered = config(&node, &["reload"]).await;
        let said = String::from_utf8_lossy(&ordered.stderr).into_owned();
        assert!(!ordered.status.success() && said.contains(problem), "{said}");
    }
    fs::remove_file(node.path("bayplan.yaml")).unwrap();
    node.wait_until("it is gone", |now| has_problem(now, "cannot read")).await;
    let text = metrics(&node).await;
    assert_eq!(sum(&text, "bayplan_config_is_good", &[]), 0.0);
    assert!(sum(&text, "bayplan_config_reloads_total", &["\"failed\""]) >= 4.0, "{text}");

    // Nothing has changed, so nothing is to be done.
    rename_over(&node, &format!("{base}{good}"));
    let status = node.wait_until("all is well", is_well).await;
    assert_eq!(places(&status), before);
    assert_eq!(sum(&metrics(&node).await, "bayplan_config_is_good", &[]), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_a_restart_is_named_and_the_rest_holds() {
    let (node, base) = start("").await;
    let text = format!("{base}maxWaitingCalls: 7\nreservedCpus: \"0,8\"\nlog: debug\n");
    rename_over(&node, &text);
    let status = node
        .wait_until("the rest holds", |now| now.cpus.reserved == "0,8" && is_restart_due(now))
        .await;
    assert_eq!(status.config.unwrap().restart_for, ["maxWaitingCalls"]);
    // It is told again as long as it is so.
    let told = diff(&node, &text).await;
    assert_eq!((told.changes.len(), told.changes[0].needs_restart), (1, true));
    rename_over(&node, &text.replace("maxWaitingCalls: 7\n", ""));
    node.wait_until("no restart is due", |now| !is_restart_due(now)).await;
}

fn is_restart_due(status: &Status) -> bool {
    status.config.as_ref().is_some_and(|config: &ConfigStatus| !config.restart_for.is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_reads_the_file_although_it_is_the_same() {
    let (node, _) = start("").await;
    let read_at = |status: &Status| status.config.as_ref().unwrap().read_at;
    let before = read_at(&node.status().await);
    // The daemon listens a moment before it hears signals.
    node.wait_until("it was read again", |now| {
        node.signal_daemon(Signal::SIGHUP);
        read_at(now) > before
    })
    .await;
    let text = metrics(&node).await;
    assert!(sum(&text, "bayplan_config_reloads_total", &["\"unchanged\""]) >= 1.0, "{text}");
    let done = config(&node, &["reload"]).await;
    assert_eq!(String::from_utf8_lossy(&done.stdout), "nothing changes\n");
}
