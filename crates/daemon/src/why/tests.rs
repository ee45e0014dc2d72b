//! A state with each harm, and what is said of it.

mod measured;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bayplan_host::counters::GroupCounters;
use bayplan_node::decision::{Decision, End};
use bayplan_node::event::Event;
use bayplan_node::mode::Mode;
use bayplan_node::status::{ClockStatus, ContainerStatus, Explanation, HeldFile, HeldSets};
use expect_test::{Expect, expect};
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::feed::EventView;
use crate::live_map::rates::rates;
use crate::observer::GroupsRead;
use crate::prober::AuditView;
use crate::test_support::{make, new_container, state};
use crate::why::evidence::{Neighbours, fullest_clock};

const NAME: &str = "shop/web/app";

fn status(own: &str) -> ContainerStatus {
    let class = if own.is_empty() { "shared" } else { "exclusive" };
    let qos = if own.is_empty() { "Burstable" } else { "Guaranteed" };
    let cpus = if own.is_empty() { "0-7" } else { own };
    serde_json::from_value(json!({
        "id": "id", "namespace": "shop", "pod": "web", "container": "app", "qos": qos, "class": class, "phase": "running",
        "asked": "2 exclusive", "exclusive": own, "cpus": cpus, "mems": "0", "pool": "numa 0",
    }))
    .unwrap()
}

fn decision() -> Decision {
    Decision {
        at: Timestamp::UNIX_EPOCH,
        asked: "2 exclusive".to_owned(),
        outcome: "placed in numa 0".to_owned(),
        pools: Vec::new(),
        warnings: Vec::new(),
    }
}

/// A container of which nothing is measured, with these CPUs of its own.
fn evidence(own: &str) -> Evidence {
    Evidence::of(Explanation {
        container: NAME.to_owned(),
        now: Some(status(own)),
        decision: decision(),
        known: None,
        isolation: None,
        vectors: None,
        files: Vec::new(),
        rebalance: Vec::new(),
        front_end: None,
        end: None,
    })
}

fn measured(own: &str, measured: Measured) -> Evidence {
    Evidence { measured, ..evidence(own) }
}

fn event(kind: &str, why: &str) -> EventView {
    EventView {
        number: 0,
        at: Timestamp::UNIX_EPOCH,
        kind: kind.to_owned(),
        by: None,
        namespace: "shop".to_owned(),
        pod: "web".to_owned(),
        uid: None,
        container: "app".to_owned(),
        exclusive: None,
        why: why.to_owned(),
    }
}

/// The causes as people see them.
#[track_caller]
fn check(evidence: Evidence, expected: Expect) {
    let text = render_why(&why(evidence));
    let causes = text.split_once("\n1. ").map(|(_, causes)| format!("1. {causes}"));
    expected.assert_eq(&causes.unwrap_or(text));
}

#[test]
fn a_container_that_is_well_has_no_cause() {
    check(
        measured("2-3", Measured { cpus: Some(1.5), waiting: Some(0.01), ..Measured::default() }),
        expect![[r#"
            shop/web/app: nothing that is measured slows it down much
              asked    2 exclusive
              now      running on CPUs 2-3, owns 2-3, memory nodes 0
              decided  1970-01-01T00:00:00Z placed in numa 0
              measured uses 1.50 CPUs, 0.01 tasks waiting
        "#]],
    );
    check(
        evidence(""),
        expect![[r#"
        shop/web/app: nothing is measured of it
          asked    2 exclusive
          now      running on CPUs 0-7, memory nodes 0
          decided  1970-01-01T00:00:00Z placed in numa 0
    "#]],
    );
}

#[test]
fn a_limit_that_stops_it_is_told_with_the_limit_that_would_do() {
    let throttled = Measured { cpus: Some(1.2), throttled: Some(0.4), ..Measured::default() };
    check(
        measured("", throttled.clone()),
        expect![[r#"
        1. its CPU limit stops it 40.0 % of the time (high, about 40 % of its time)
           it uses 1.20 CPUs while it is stopped that often
           Help: raise limits.cpu, in place since Kubernetes 1.33, or let it burst (annotation bayplan.dev/cpu-burst)
             kubectl -n shop patch pod web --subresource resize -p '{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"2.0"}}}]}}'
    "#]],
    );
    check(
        measured("2-3", throttled),
        expect![[r#"
        1. its CPU limit stops it 40.0 % of the time (high, about 40 % of its time)
           it uses 1.20 CPUs while it is stopped that often
           Help: raise limits.cpu, in place since Kubernetes 1.33, or let it burst (annotation bayplan.dev/cpu-burst)
             kubectl -n shop patch pod web --subresource resize -p '{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"3"},"limits":{"cpu":"3"}}}]}}'
    "#]],
    );
}

#[test]
fn a_resize_keeps_exclusive_cpus_and_is_not_told_where_the_pod_has_them_together() {
    let command = |change: fn(&mut ContainerStatus)| {
        let throttled = Measured { cpus: Some(1.2), throttled: Some(0.4), ..Measured::default() };
        let mut evidence = measured("2-3", throttled);
        change(evidence.explanation.now.as_mut().unwrap());
        why(evidence).causes[0].command.clone()
    };
    let burstable = command(|now| now.qos = Some("Burstable".to_owned()));
    assert!(burstable.unwrap().contains(r#""requests":{"cpu":"3"},"limits":{"cpu":"3"}"#));
    assert_eq!(command(|now| now.exclusive_of_pod = std::mem::take(&mut now.exclusive)), None);
}

#[test]
fn waiting_is_told_with_neighbours_and_squeezes() {
    let waits = Measured {
        cpus: Some(2.0),
        waiting: Some(3.0),
        delay_ms: Some(12.5),
        ..Measured::default()
    };
    let squeezed = event("squeezed", "from CPUs 0-7 to 0-3, because of shop/db/db");
    let neighbours = Neighbours {
        count: 7,
        cpus: Some(6.5),
        busiest: vec!["batch/a/b 4.00".to_owned(), "batch/c/d 2.00".to_owned()],
    };
    let mut waiting = Evidence {
        neighbours: neighbours.clone(),
        events: vec![squeezed.clone()],
        rebalance_mode: "off".to_owned(),
        ..measured("", waits.clone())
    };
    waiting.explanation.decision.outcome.push_str("; squeezed from CPUs 0-7 to 0-3");
    check(
        waiting,
        expect![[r#"
            1. its tasks wait for a CPU 60.0 % of the time that they could run (high, about 60 % of its time)
               99 of 100 runs begin after at most 12.50 ms
               on CPUs 0-7 run 7 other containers, which use 6.50 CPUs: batch/a/b 4.00, batch/c/d 2.00
               squeezed 1970-01-01T00:00:00Z: from CPUs 0-7 to 0-3, because of shop/db/db
               Help: let the rebalancer look (rebalance.mode: observe), or ask for CPUs of its own: whole CPUs, requests equal to limits
                 bayplan config reload

            2. it shares fewer CPUs than before (low)
               squeezed 1970-01-01T00:00:00Z: from CPUs 0-7 to 0-3, because of shop/db/db
               Help: more of what happened to it:
                 bayplan journal --since 1d --container app
        "#]],
    );
    // It has got back what it was placed on.
    let events = vec![squeezed];
    let mut observed = Evidence { neighbours, events, ..measured("", waits.clone()) };
    observed.rebalance_mode = "observe".to_owned();
    observed.explanation.rebalance = vec![proposal("batch/a/b", NAME, "observed")];
    check(
        observed,
        expect![[r#"
        1. its tasks wait for a CPU 60.0 % of the time that they could run (high, about 60 % of its time)
           99 of 100 runs begin after at most 12.50 ms
           on CPUs 0-7 run 7 other containers, which use 6.50 CPUs: batch/a/b 4.00, batch/c/d 2.00
           Help: rebalance.mode: act would do this: idle on batch/a/b, for shop/web/app
             bayplan config reload

        Proposed or done by the rebalancer:
          observed  1970-01-01T00:00:00Z idle on batch/a/b, for shop/web/app
    "#]],
    );
    // Alone on CPUs of its own.
    check(
        measured("2-3", waits),
        expect![[r#"
        1. its tasks wait for a CPU 60.0 % of the time that they could run (high, about 60 % of its time)
           99 of 100 runs begin after at most 12.50 ms
           Help: its own tasks wait for each other on 2 CPUs: let it run fewer threads, or ask for more CPUs
             kubectl -n shop patch pod web --subresource resize -p '{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"5"},"limits":{"cpu":"5"}}}]}}'
    "#]],
    );
    // Without probes.
    check(
        measured("", Measured { cpu_stall: Some(0.25), ..Measured::default() }),
        expect![[r#"
            1. its tasks wait for a CPU 25.0 % of the time that they could run (high, about 25 % of its time)
               Help: higher requests, CPUs of its own (whole CPUs, requests equal to limits), or fewer neighbours
                 bayplan top --sort waiting
        "#]],
    );
}

fn proposal(target: &str, victim: &str, state: &str) -> bayplan_node::proposals::ProposalView {
    serde_json::from_value(json!({
        "number": 1, "at": "1970-01-01T00:00:00Z", "knob": "idle", "target": target, "victim": victim,
        "text": format!("idle on {target}, for {victim}"), "evidence": "waiting 2.00 > 0.50", "state": state,
    }))
    .unwrap()
}

/// What is gathered at this moment of [`NAME`], with these events and without any measurement.
fn gathered(now: Timestamp, events: &[EventView]) -> Evidence {
    gathered_by((None, None), &json!([]), (now, events))
}

/// The same by these readings and probes, without events.
fn gathered_of(
    readings: (Option<&GroupsRead>, Option<&GroupsRead>),
    probes: &serde_json::Value,
) -> Evidence {
    gathered_by(readings, probes, (Timestamp::UNIX_EPOCH, &[]))
}

fn gathered_by(
    readings: (Option<&GroupsRead>, Option<&GroupsRead>),
    probes: &serde_json::Value,
    (at, events): (Timestamp, &[EventView]),
) -> Evidence {
    let audit = json!({"format": "", "probes": probes, "recent_seconds": null, "containers": []});
    let audit: AuditView = serde_json::from_value(audit).unwrap();
    let names = [("id".to_owned(), NAME.to_owned())].into();
    let node = Node {
        at,
        status: &state("numa:1 core:8 mem:8").status(),
        rates: &rates(readings, &audit, &names, at),
        readings,
        audit: &audit,
        events,
        unhelped: &BTreeMap::new(),
        rebalance_mode: "off",
    };
    gather(evidence("").explanation, &node)
}

#[test]
fn events_of_more_than_an_hour_ago_are_no_cause() {
    let drifted = event("drifted", "another program has written 5 to cpu.weight; it is 10 again");
    for (seconds, is_told) in [(0, true), (3599, true), (3600, false), (-60, true)] {
        let now = Timestamp::from_second(seconds).unwrap();
        let found = why(gathered(now, std::slice::from_ref(&drifted))).causes;
        assert_eq!(found.iter().any(|it| it.kind == CauseKind::Drifted), is_told, "{seconds} s");
    }
}

#[test]
fn intruders_are_named() {
    let mut intruded = measured("2-3", Measured { taken_cpus: Some(0.2), ..Measured::default() });
    intruded.intruders =
        vec!["kernel thread kworker/2:1 on CPU 2: 6000.0 ms in the last minute".to_owned()];
    intruded.explanation.isolation = Some("interrupts may come to CPU 2".to_owned());
    check(
        intruded,
        expect![[r#"
        1. others take 10.0 % of the time of its exclusive CPUs (medium, about 10 % of its time)
           kernel thread kworker/2:1 on CPU 2: 6000.0 ms in the last minute
           interrupts may come to CPU 2
           Help: keep interrupts and kernel threads away (docs: kernel files); all that ran there:
             bayplan audit shop/web/app
    "#]],
    );
}

#[test]
fn what_does_not_hold_comes_first() {
    let mut off = measured("2-3", Measured { throttled: Some(0.9), ..Measured::default() });
    let held = HeldSets {
        cpus: "0-7".to_owned(),
        mems: String::new(),
        why: "the runtime has not taken the update; it is told again".to_owned(),
        is_expected: false,
    };
    let now = off.explanation.now.as_mut().unwrap();
    (now.held, now.intruders) = (Some(held), vec!["shop/db/db on 2".to_owned()]);
    off.explanation.files = vec![HeldFile {
        slot: "cpu.max".to_owned(),
        value: "max".to_owned(),
        reason: "owns its CPUs".to_owned(),
        failure: Some("EACCES".to_owned()),
    }];
    off.events =
        vec![event("drifted", "another program has written 5 to cpu.weight; it is 10 again")];
    check(
        off,
        expect![[r#"
        1. it runs on CPUs 0-7 instead of 2-3 (high)
           the runtime has not taken the update; it is told again
           Help: what is still to be written, and what stands against it
             bayplan plan

        2. other containers may run on its exclusive CPUs (high)
           shop/db/db on 2
           Help: an update of theirs has failed, or their CPUs are not chosen by Bayplan; what is known of it:
             bayplan check

        3. its CPU limit stops it 90.0 % of the time (high, about 90 % of its time)
           Help: raise limits.cpu, in place since Kubernetes 1.33, or let it burst (annotation bayplan.dev/cpu-burst)

        4. another program changes its kernel files (medium)
           drifted 1970-01-01T00:00:00Z: another program has written 5 to cpu.weight; it is 10 again
           Help: find the program that writes there; which values are contested:
             bayplan plan

        5. kernel files do not say what was asked for it (medium)
           cpu.max is not max: EACCES
           Help: what is to be written, and the kernel's answer:
             bayplan plan
    "#]],
    );
}

#[test]
fn what_operators_and_the_rebalancer_do_is_told() {
    check(
        Evidence { mode: Mode::Restored, ..evidence("2-3") },
        expect![[r#"
        1. an operator has restored the node: every container may run on every CPU (high)
           Help: end the mode restored, when what it was for is done
             bayplan resume
    "#]],
    );
    let mut held_back = evidence("");
    held_back.explanation.rebalance = vec![proposal(NAME, "shop/db/db", "kept")];
    check(
        held_back,
        expect![[r#"
        1. it is held back for another container: idle on shop/web/app, for shop/db/db (medium)
           waiting 2.00 > 0.50
           Help: it is given back when that container is well; at once, with all else that is turned:
             bayplan rebalance pause

        Proposed or done by the rebalancer:
          kept      1970-01-01T00:00:00Z idle on shop/web/app, for shop/db/db
    "#]],
    );
}

#[test]
fn a_container_that_was_placed_while_draining_is_told_so_also_when_that_is_over() {
    let mut state = state("numa:1 core:8 mem:8");
    state.step(Event::SetMode(Mode::Draining), Timestamp::UNIX_EPOCH);
    let mut container = new_container("pod", "app", 0, 2);
    (container.pod.namespace, container.pod.name) = ("shop".to_owned(), "web".to_owned());
    make(&mut state, 1, container);
    let explanation = state.explain(NAME).remove(0);
    let in_mode = |mode| Evidence { mode, ..Evidence::of(explanation.clone()) };
    check(
        in_mode(Mode::Draining),
        expect![[r#"
        1. it was placed without exclusive CPUs, because the node is drained (medium)
           Help: end the mode draining, and make the container anew
             bayplan resume
    "#]],
    );
    check(
        in_mode(Mode::Placing),
        expect![[r#"
        1. it was placed without exclusive CPUs, because the node was drained then (medium)
           Help: make the container anew
             kubectl -n shop delete pod web
    "#]],
    );
}

#[test]
fn what_is_only_good_to_know_comes_last() {
    let mut little = measured("", Measured { migrations: Some(900.0), ..Measured::default() });
    little.explanation.decision.warnings = vec!["bayplan.dev/cpus: `x` is no number".to_owned()];
    let now = little.explanation.now.as_mut().unwrap();
    now.narrowing = Some(serde_json::from_value(json!({"to": "0", "moves_bytes": null})).unwrap());
    check(
        little,
        expect![[r#"
        1. its tasks go to another CPU 900 times a second (low)
           Help: CPUs of its own, or fewer of them under one cache; the rebalancer's knob gather does that
             bayplan rebalance status

        2. it could be narrowed from nodes 0 to 0, moving any amount of memory (low)
           Help: memory.narrow: true in the configuration does it; then:
             bayplan config reload

        3. what it asks for is not all done: bayplan.dev/cpus: `x` is no number (low)
           Help: correct the annotation; what there is:
             bayplan annotations
    "#]],
    );
}

#[test]
fn one_that_is_gone_says_how_it_ended() {
    let mut gone = evidence("");
    gone.explanation.now = None;
    check(
        gone.clone(),
        expect![[r#"
        1. it is not there: placed in numa 0 (high)
           Help: ask for less, make room, or read why each pool was rejected
             bayplan explain shop/web/app
    "#]],
    );
    let why = "it exited with code 137: OOMKilled".to_owned();
    gone.explanation.end = Some(End { at: Timestamp::UNIX_EPOCH, why });
    check(
        gone,
        expect![[r#"
        1. it is gone: it exited with code 137: OOMKilled (high)
           ended 1970-01-01T00:00:00Z
           Help: raise limits.memory of the container, or find what takes the memory
             kubectl -n shop describe pod web
    "#]],
    );
}

#[test]
fn names_that_a_shell_would_take_apart_are_in_no_command() {
    let mut odd =
        measured("", Measured { throttled: Some(0.5), cpus: Some(1.0), ..Measured::default() });
    odd.explanation.container = "shop/web;reboot/app".to_owned();
    assert_eq!(why(odd).causes[0].command, None);
}
