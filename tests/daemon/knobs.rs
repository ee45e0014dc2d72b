//! Knobs of the rebalancer from counters to a verdict and back, each with what it changes. Those that need counters of processors are in the daemon's own tests.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_daemon::RebalanceView;
use bayplan_daemon::config::Config;
use bayplan_node::proposals::ProposalState;
use bayplan_rebalance::{Knob, Mode};
use bayplan_types::{Bytes, QosClass};

use crate::node::Node;
use crate::observing::{metrics, sum};
use crate::rebalancing::{
    Cure, Doing, Groups, MACHINE, Trouble, acting, fast, files_when, has, hog, pause, settled,
    text, text_of, view_when, write,
};

/// A knob, and a server that suffers until it is turned.
struct Case {
    knob: Knob,
    machine: &'static str,
    /// Owns CPUs until all others are there.
    passing: Option<u64>,
    hog: fn() -> PodSpec,
    doing: [Doing; 2],
    cure: Cure,
    /// What the knob changes.
    shown: fn(&Groups) -> String,
}

/// The server waits for the hog.
const WAITING: [Doing; 2] = [
    Doing { server: 90, stalled: 80, throttled: 0, hog: 140 },
    Doing { server: 90, stalled: 0, throttled: 0, hog: 100 },
];

/// The same, and the hog would have room on as many other CPUs.
const FITTING: [Doing; 2] = [
    Doing { server: 90, stalled: 80, throttled: 0, hog: 110 },
    Doing { server: 90, stalled: 0, throttled: 0, hog: 110 },
];

/// The server is stopped by its own limit, and CPUs have nothing to do.
const THROTTLED: [Doing; 2] = [
    Doing { server: 40, stalled: 0, throttled: 50, hog: 10 },
    Doing { server: 45, stalled: 0, throttled: 0, hog: 10 },
];

const CASES: [Case; 4] = [
    Case {
        knob: Knob::Idle,
        machine: MACHINE,
        passing: None,
        hog: || hog(QosClass::BestEffort, None),
        doing: WAITING,
        cure: Groups::is_idle,
        shown: |groups| text_of(groups).join(" "),
    },
    Case {
        knob: Knob::Suppress,
        machine: MACHINE,
        passing: None,
        hog: || hog(QosClass::BestEffort, None),
        doing: WAITING,
        cure: Groups::is_suppressed,
        shown: |groups| text_of(groups).join(" "),
    },
    Case {
        knob: Knob::Burst,
        machine: MACHINE,
        passing: None,
        hog: || hog(QosClass::BestEffort, None),
        doing: THROTTLED,
        cure: has_burst,
        shown: |groups| text(&groups.server, "cpu.max.burst"),
    },
    // All CPUs of a node are another container's while the two come to the other one.
    Case {
        knob: Knob::Move,
        machine: "pack:1 numa:2 l3:1 core:2 pu:1 mem:8",
        passing: Some(2000),
        hog: || hog(QosClass::Burstable, None),
        doing: FITTING,
        cure: Groups::is_apart,
        shown: |groups| groups.cpus()[1].to_string(),
    },
];

fn has_burst(groups: &Groups) -> bool {
    text(&groups.server, "cpu.max.burst") != "0"
}

/// The only knob, and looks so far apart that the writer of the counters is hardly late for one.
fn only(config: &mut Config, knob: Knob) {
    acting(config);
    config.rebalance.interval = Duration::from_millis(400);
    let others = Knob::ALL.into_iter().filter(|it| *it != knob);
    config.rebalance.forbidden = others.collect();
}

async fn troubled(case: &Case, cure: Cure) -> (Node, Arc<Groups>, Trouble) {
    let mut node = Node::without_daemon(case.machine);
    node.adjust = match case.knob {
        Knob::Idle => |config| only(config, Knob::Idle),
        Knob::Suppress => |config| only(config, Knob::Suppress),
        Knob::Burst => |config| only(config, Knob::Burst),
        _ => |config| only(config, Knob::Move),
    };
    node.start_daemon().await;
    let passing = match case.passing {
        Some(milli) => Some(node.guaranteed("passing", milli).await.0),
        None => None,
    };
    let server = ContainerSpec::guaranteed("server", 500, Bytes::gib(1));
    let groups = settled(&mut node, (QosClass::Guaranteed, &server), &(case.hog)()).await;
    let pod = groups.server.parent().unwrap();
    for group in [&groups.server, pod] {
        write(group, "cpu.max", "50000 100000\n");
    }
    if let Some(pod) = passing {
        node.kubelet.end_pod(&pod).await.unwrap();
    }
    let trouble = Trouble::of(Arc::clone(&groups), cure, case.doing);
    (node, groups, trouble)
}

/// It is counted after it was shown. On a loaded machine it may not be judged in time, which is as good here.
async fn until_not_kept(node: &Node, knob: &str) {
    let is_told = async {
        loop {
            let text = metrics(node).await;
            let told = |verdict: &&str| {
                let labels = [&*format!("knob=\"{knob}\""), &*format!("verdict=\"{verdict}\"")];
                sum(&text, "bayplan_rebalance_verdicts_total", &labels) >= 1.0
            };
            if ["useless", "harmful", "unknown"].iter().any(told) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), is_told).await.is_ok(), "{knob}");
}

async fn check(case: &Case) {
    use ProposalState::{Kept, Undone};
    let knob = case.knob.name();
    // What helps is kept, until a pause.
    let (node, groups, _trouble) = troubled(case, case.cure).await;
    let before = (case.shown)(&groups);
    let view = view_when(&node, &format!("{knob} kept"), |it| has(it, knob, Kept)).await;
    assert_ne!((case.shown)(&groups), before, "{view:#?}");
    assert!(view.proposals.iter().all(|it| it.knob == knob), "{view:#?}");
    node.check_in_line().await;
    pause(&node, true).await;
    files_when("given back", || (case.shown)(&groups) == before).await;
    node.check_in_line().await;
    // What does not is taken back by the verdict.
    let (node, groups, _trouble) = troubled(case, |_| false).await;
    assert_eq!((case.shown)(&groups), before);
    view_when(&node, &format!("{knob} undone"), |it| has(it, knob, Undone)).await;
    until_not_kept(&node, knob).await;
    pause(&node, true).await;
    files_when("taken back", || (case.shown)(&groups) == before).await;
    node.check_in_line().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_knob_is_turned_judged_and_given_back() {
    for case in &CASES {
        check(case).await;
    }
}

/// Its place is set aside for it all the time, so a crash undoes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_went_to_another_node_is_at_home_after_a_crash() {
    let case = CASES.iter().find(|it| it.knob == Knob::Move).unwrap();
    let (mut node, groups, _trouble) = troubled(case, case.cure).await;
    let before = groups.cpus();
    files_when("elsewhere", || groups.is_apart()).await;
    node.kill_daemon();
    node.adjust = |config| {
        fast(config);
        config.rebalance.mode = Mode::Off;
    };
    node.start_daemon().await;
    files_when("at home", || groups.cpus() == before).await;
    node.check_in_line().await;
}

/// Another program wants that file otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn a_fight_for_cpu_max_is_seen_and_ends_the_suppression() {
    let case = CASES.iter().find(|it| it.knob == Knob::Suppress).unwrap();
    let (node, groups, _trouble) = troubled(case, case.cure).await;
    view_when(&node, "kept", |it| has(it, "suppress", ProposalState::Kept)).await;
    let others = "max 100000";
    let is_over = |it: &RebalanceView| {
        if groups.is_suppressed() {
            write(groups.class(), "cpu.max", &format!("{others:<16}\n"));
        }
        has(it, "suppress", ProposalState::Undone)
    };
    let view = view_when(&node, "over", is_over).await;
    let labels = ["file=\"cpu.max\"", "by=\"others\""];
    let drifts = sum(&metrics(&node).await, "bayplan_file_drifts_total", &labels);
    assert!(drifts >= 1.0, "{view:#?}");
    files_when("the other's", || text(groups.class(), "cpu.max") == others).await;
}

/// Where everything else is forbidden, a controller with an overview of the cluster is asked, and nothing is done.
#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_is_only_recommended() {
    let case = Case { knob: Knob::Evict, ..CASES.into_iter().next().unwrap() };
    let mut node = Node::without_daemon(case.machine);
    node.adjust = |config| {
        acting(config);
        let others: BTreeSet<Knob> =
            Knob::ALL.into_iter().filter(|it| *it != Knob::Evict).collect();
        config.rebalance.forbidden = others;
    };
    node.start_daemon().await;
    let server = ContainerSpec::burstable("server", 100);
    let groups = settled(&mut node, (QosClass::Burstable, &server), &(case.hog)()).await;
    let before = (text_of(&groups), groups.cpus());
    let _trouble = Trouble::of(Arc::clone(&groups), |_| false, case.doing);
    let is_told = |it: &RebalanceView| has(it, "evict", ProposalState::Observed);
    let view = view_when(&node, "recommended", is_told).await;
    let told = view.proposals.iter().find(|it| it.knob == "evict").unwrap();
    assert_eq!((&*told.target, &*told.victim), ("default/hog/hog", "default/server/server"));
    assert_eq!(view.proposals.iter().filter(|it| it.state.is_in_force()).count(), 0);
    let labels = ["knob=\"evict\"", "mode=\"observe\""];
    let count = sum(&metrics(&node).await, "bayplan_rebalance_proposals_total", &labels);
    assert!(count >= 1.0);
    assert_eq!((text_of(&groups), groups.cpus()), before);
    node.check_in_line().await;
}
