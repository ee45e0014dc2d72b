//! Types of groups change while containers run, and that cannot be done: there is no room, the runtime refuses updates, or the daemon is killed in between. Everything is as the old
//! types have it afterwards, or as the new ones do, in ledger and runtime alike.

use std::collections::BTreeMap;

use bayplan_cri::embedded::Fault;
use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_node::history::Kind;
use bayplan_node::status::Status;
use bayplan_types::QosClass;

use crate::cluster_config::{HERE, give, held};
use crate::history::told;
use crate::node::{Node, soon};
use crate::observing::{metrics, sum};
use crate::reload::{config, diff, has_problem, moved, places, rename_over, start};

/// gRPC `UNKNOWN`, which is containerd's ordinary error.
const UNKNOWN: u32 = 2;
const UPDATE: &str = "UpdateContainerResources";

const OLD: &str = "reservedCpus: \"0,8\"
groups:
- {name: web, members: {namespaces: [shop]}, size: {requests: {min: 1, max: 6}}}
";
/// A type of its own for each of two pods of the group.
const NEW: &str = "reservedCpus: \"0,8\"
groups:
- {name: front, members: {match: [{key: pod/name, operator: In, values: [front]}]}, size: {fixed: 3}}
- {name: back, members: {namespaces: [shop]}, size: {fixed: 4}}
";
/// Larger than the machine.
const HUGE: &str = "reservedCpus: \"0,8\"
groups:
- {name: web, members: {namespaces: [shop]}, size: {requests: {min: 1, max: 6}}}
- {name: spare, instances: {min: 2}, size: {fixed: 6}}
";

/// Members have what there is, whatever they request.
const FIXED: &str = "reservedCpus: \"0,8\"
groups:
- {name: web, members: {namespaces: [shop]}, size: {fixed: 1}}
";
/// Too small for what they request.
const BOUNDED: &str = "reservedCpus: \"0,8\"
groups:
- {name: web, members: {namespaces: [shop]}, size: {requests: {min: 1, max: 1}}}
";

type Places = BTreeMap<String, [String; 3]>;

/// A node with two members of a group, a container that shares and one that owns CPUs.
async fn running() -> (Node, String, Places) {
    running_under(OLD).await
}

async fn running_under(types: &str) -> (Node, String, Places) {
    let (mut node, base) = start(types).await;
    for name in ["front", "back"] {
        let pod = PodSpec { namespace: "shop".into(), ..PodSpec::new(name, QosClass::Burstable) };
        soon(node.kubelet.launch(&pod, &ContainerSpec::burstable(name, 1000))).await.unwrap();
    }
    node.burstable("sharer", 100).await;
    node.guaranteed("owner", 2000).await;
    let before = places(&node.wait_until_in_line().await);
    (node, base, before)
}

fn groups(status: &Status) -> Vec<&str> {
    status.groups.iter().map(|it| it.name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn types_that_cannot_be_had_are_refused_before_anything_moves_as_the_diff_says() {
    for (old, new, why) in [
        (OLD, HUGE, "`spare`: 1 of at least 2 groups can be had: needs 6 exclusive CPUs"),
        (
            FIXED,
            BOUNDED,
            "web[0] would have 1 CPUs and is to have 2: 2 CPUs would be requested of at most 1",
        ),
    ] {
        refused(old, new, &format!("`groups` cannot be changed to this now: {why}")).await;
    }
}

async fn refused(old: &str, new: &str, problem: &str) {
    let (node, base, before) = running_under(old).await;
    let updates = node.runtime.calls(UPDATE);
    let text = format!("{base}{new}");
    let file = node.path("candidate.yaml");
    std::fs::write(&file, &text).unwrap();
    let asked = config(&node, &["diff", file.to_str().unwrap()]).await;
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(!asked.status.success() && said.contains(problem), "{said}");

    rename_over(&node, &text);
    let status = node.wait_until("it is refused", |now| has_problem(now, problem)).await;
    assert_eq!((places(&status), groups(&status)), (before.clone(), vec!["web[0]"]));
    let ordered = config(&node, &["reload"]).await;
    let said = String::from_utf8_lossy(&ordered.stderr).into_owned();
    assert!(!ordered.status.success() && said.contains(problem), "{said}");
    assert_eq!(places(&node.check_in_line().await), before);
    assert_eq!(node.runtime.calls(UPDATE), updates, "something was moved");
    assert_eq!(sum(&metrics(&node).await, "bayplan_config_is_good", &[]), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn types_of_the_cluster_that_are_refused_are_not_kept_for_the_next_start() {
    let (mut node, _, before) = running().await;
    assert_eq!(give(&node, HERE, 1, OLD).await.0, 200);
    let (code, said) = give(&node, HERE, 2, HUGE).await;
    assert!(code == 422 && said.contains("`spare`: 1 of at least 2 groups"), "{code} {said}");
    for _ in 0..2 {
        let status = node.wait_until_in_line().await;
        assert_eq!((places(&status), groups(&status)), (before.clone(), vec!["web[0]"]));
        assert_eq!(held(&status), Some(("BayplanConfig/default".to_owned(), 1)));
        node.kill_daemon();
        node.spawn_daemon(OLD).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_the_runtime_goes_on_to_refuse_is_taken_back() {
    for taken in 0..2 {
        let (node, base, before) = running().await;
        let text = format!("{base}{NEW}");
        let moves = diff(&node, &text).await.moves;
        assert!(moves.len() > 2, "{moves:#?}");
        // The first updates are made, all others are not.
        let updates = node.runtime.calls(UPDATE);
        node.runtime.inject_after(UPDATE, updates + taken, Fault::Fail(UNKNOWN));
        rename_over(&node, &text);
        let problem = "so the change of `groups` was taken back";
        let status = node.wait_until("it was taken back", |now| has_problem(now, problem)).await;
        // The old types hold, also for those that the runtime has moved and does not move back.
        assert_eq!((places(&status), groups(&status)), (before.clone(), vec!["web[0]"]));
        let is_told = |it: &bayplan_node::history::Entry| {
            it.kind == Kind::Failure && it.why.starts_with("config_undone: ")
        };
        assert_eq!(told(&node.history()).into_iter().filter(is_told).count(), 1);
        let undone = ["\"config_undone\""];
        assert_eq!(sum(&metrics(&node).await, "bayplan_failures_total", &undone), 1.0);

        node.runtime.clear_faults();
        assert_eq!(places(&node.wait_until_in_line().await), before);
        // Nothing is left of it: with a runtime that does as it is told, the same is carried out.
        let done = config(&node, &["reload"]).await;
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let status = node.wait_until_in_line().await;
        assert_eq!(places(&status), moved(before, &moves));
        assert_eq!(groups(&status), ["back[0]", "front[0]"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_refuses_once_does_not_undo_a_change() {
    let (node, base, before) = running().await;
    let text = format!("{base}{NEW}");
    let moves = diff(&node, &text).await.moves;
    let updates = node.runtime.calls(UPDATE);
    node.runtime.inject(UPDATE, Fault::Fail(UNKNOWN));
    rename_over(&node, &text);
    soon(node.runtime.called(UPDATE, updates + 1)).await;
    node.runtime.clear_faults();
    node.wait_until("the new types hold", |now| groups(now) == ["back[0]", "front[0]"]).await;
    let status = node.wait_until_in_line().await;
    assert_eq!(places(&status), moved(before, &moves));
    assert_eq!(status.config.unwrap().problem, None);
}

/// The journal has the whole change before the first update, so a start goes on with it.
#[tokio::test(flavor = "multi_thread")]
async fn killed_between_two_updates_the_daemon_comes_back_with_the_whole_change() {
    for made in 0..3 {
        let (mut node, base, before) = running().await;
        let text = format!("{base}{NEW}");
        let moves = diff(&node, &text).await.moves;
        let updates = node.runtime.calls(UPDATE);
        node.runtime.inject_after(UPDATE, updates + made, Fault::Hang);
        rename_over(&node, &text);
        soon(node.runtime.called(UPDATE, updates + made + 1)).await;
        node.kill_daemon();
        node.runtime.clear_faults();
        node.spawn_daemon(NEW).await;
        let status = node.wait_until_in_line().await;
        assert_eq!(places(&status), moved(before, &moves), "after {made} updates");
        assert_eq!(groups(&status), ["back[0]", "front[0]"]);
    }
}

/// Killed after it was taken back, the daemon reads the file with the new types, and no start refuses one.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_after_a_change_that_was_taken_back_tries_it_again() {
    let (mut node, base, before) = running().await;
    let text = format!("{base}{NEW}");
    let updates = node.runtime.calls(UPDATE);
    node.runtime.inject_after(UPDATE, updates + 1, Fault::Fail(UNKNOWN));
    rename_over(&node, &text);
    node.wait_until("it was taken back", |now| has_problem(now, "taken back")).await;
    node.kill_daemon();
    node.runtime.clear_faults();
    // Under the old types, it is where the journal has it.
    node.spawn_daemon(OLD).await;
    assert_eq!(places(&node.wait_until_in_line().await), before);
    node.kill_daemon();
    node.spawn_daemon(NEW).await;
    node.wait_until("the new types hold", |now| groups(now) == ["back[0]", "front[0]"]).await;
    node.wait_until_in_line().await;
}
