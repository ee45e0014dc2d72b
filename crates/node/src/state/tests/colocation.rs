//! Budget and loans of BestEffort containers, through the door of the state.

use bayplan_enforcement::render_plan;
use bayplan_types::NodeSet;
use expect_test::{Expect, expect};

use super::*;
use crate::colocation::Colocation;

/// Four CPUs: container 0 owns 1 and 2, 1 is BestEffort, 2 is Burstable.
fn shared_node() -> (NodeState, [ContainerId; 3]) {
    let mut state = state("numa:1 core:4 pu:1 mem:4");
    let mut containers = ["0", "1", "2"].map(|pod| new_container(pod, "c", 0, 0));
    containers[0] = new_container("0", "own", 0, 2);
    containers[1].pod.qos = Some(QosClass::BestEffort);
    containers[2].pod.qos = Some(QosClass::Burstable);
    let mut pods = 0..;
    let ids = containers.map(|it| {
        let id = make(&mut state, pods.next().unwrap(), it);
        state.containers.id_of(&id).unwrap()
    });
    (state, ids)
}

/// Steps: `lend CPUS` and `budget MILLI` replace what was before, `leave CPUS` sends the BestEffort container away, `pause`, `go on`, `restore`, `resume`, `ended` are what they say. Shows what
/// is written, and after each step the CPUs that are lent.
fn check(steps: &[&str], expected: Expect) {
    let (mut state, [owner, borrower, _]) = shared_node();
    let mut text = String::new();
    for step in steps {
        let (word, rest) = step.split_once(' ').unwrap_or((step, ""));
        let event = match word {
            "lend" => Event::Colocate(Colocation {
                budget: None,
                lent: [(owner, rest.parse().unwrap())].into(),
            }),
            "budget" => Event::Colocate(Colocation {
                budget: Some(MilliCpu(rest.parse().unwrap())),
                lent: state.colocation.lent.clone(),
            }),
            "leave" => {
                let leave = rest.parse().unwrap();
                let (knob, target) = (Knob::Move, borrower);
                let turn = Turn { knob, target, step: 1, leave, mems: NodeSet::new() };
                Event::Turn(Turned::from_turns([(1, turn)]))
            }
            "pause" => Event::PauseRebalance(true),
            "go" => Event::PauseRebalance(false),
            "restore" => Event::SetMode(Mode::Restored),
            "resume" => Event::SetMode(Mode::Placing),
            "ended" => Event::Ended("id0".to_owned()),
            other => panic!("`{other}` is no step"),
        };
        let made = state.step(event, Timestamp::UNIX_EPOCH);
        let waits = if made.answers_after_plan { ", awaited" } else { "" };
        let lent = Some(state.lent_now()).filter(|it| !it.is_empty());
        let lent = lent.map_or_else(|| "nothing".to_owned(), |it| it.to_string());
        text.push_str(&format!("{step}: {lent} lent{waits}\n{}", render_plan(&made.plan)));
    }
    expected.assert_eq(&text);
}

#[test]
fn best_effort_containers_alone_run_on_lent_cpus() {
    check(
        &["lend 2", "lend 1-2", "lend "],
        expect![[r#"
        lend 2: 2 lent, awaited
        grow   id1 cpus 0,3 -> 0,2-3
        lend 1-2: 1-2 lent, awaited
        grow   id1 cpus 0,2-3 -> 0-3
        lend : nothing lent, awaited
        shrink id1 cpus 0-3 -> 0,3
    "#]],
    );
}

/// Whatever is named, only what is its holder's own is lent.
#[test]
fn what_is_not_its_holders_is_not_lent() {
    check(
        &["lend 0-3", "ended"],
        expect![[r#"
        lend 0-3: 1-2 lent, awaited
        grow   id1 cpus 0,3 -> 0-3
        ended: nothing lent
        grow   id2 cpus 0,3 -> 0-3
    "#]],
    );
}

#[test]
fn a_pause_and_a_restore_end_loans() {
    check(
        &["lend 2", "pause", "go on", "restore", "resume"],
        expect![[r#"
        lend 2: 2 lent, awaited
        grow   id1 cpus 0,3 -> 0,2-3
        pause: nothing lent
        shrink id1 cpus 0,2-3 -> 0,3
        go on: 2 lent
        grow   id1 cpus 0,3 -> 0,2-3
        restore: nothing lent, awaited
        grow   id0 cpus 1-2 -> 0-3
        grow   id1 cpus 0,2-3 -> 0-3
        grow   id2 cpus 0,3 -> 0-3
        resume: 2 lent, awaited
        shrink id0 cpus 0-3 -> 1-2
        shrink id1 cpus 0-3 -> 0,2-3
        shrink id2 cpus 0-3 -> 0,3
    "#]],
    );
}

/// The rebalancer has sent it away from these CPUs.
#[test]
fn a_loan_does_not_undo_a_leave() {
    check(
        &["leave 2", "lend 1-2", "leave 1"],
        expect![[r#"
        leave 2: nothing lent, awaited
        lend 1-2: 1-2 lent, awaited
        grow   id1 cpus 0,3 -> 0-1,3
        leave 1: 1-2 lent, awaited
        shrink id1 cpus 0-1,3 -> 0,3
        grow   id1 cpus 0,3 -> 0,2-3
    "#]],
    );
}

/// All containers would be looked at, and the answer would wait for the runtime, every second.
#[test]
fn a_budget_alone_needs_no_plan() {
    check(
        &["budget 2000", "lend 2", "budget 1500"],
        expect![[r#"
        budget 2000: nothing lent
        lend 2: 2 lent, awaited
        grow   id1 cpus 0,3 -> 0,2-3
        budget 1500: 2 lent
    "#]],
    );
}

#[test]
fn borrowers_share_and_are_bayplans_to_place() {
    let (mut state, [owner, borrower, burstable]) = shared_node();
    let lent = [(owner, "2".parse().unwrap())].into();
    state.step(Event::Colocate(Colocation { budget: None, lent }), Timestamp::UNIX_EPOCH);
    let with_loans = |state: &NodeState, id, cpus: &str| {
        let allocation = state.ledger.allocation(id).unwrap();
        state.with_loans(id, allocation, cpus.parse().unwrap()).to_string()
    };
    assert_eq!(with_loans(&state, borrower, "0,3"), "0,2-3");
    // Nothing is added to a container without a CPU set, of another class, or that owns CPUs.
    assert_eq!(with_loans(&state, borrower, ""), "");
    assert_eq!(with_loans(&state, burstable, "0,3"), "0,3");
    assert_eq!(with_loans(&state, owner, "1-2"), "1-2");
    state.step(Event::Colocate(Colocation::default()), Timestamp::UNIX_EPOCH);
    assert_eq!(with_loans(&state, borrower, "0,3"), "0,3");
}
