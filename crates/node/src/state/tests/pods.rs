//! Whole pods on their way through the state: what the sandbox says of the pod, and where its containers come to lie.

use bayplan_allocator::Within;
use bayplan_topology::Level;
use bayplan_types::MilliCpu;
use expect_test::{Expect, expect};

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// `POD/NAME CPUS of WHOLE`; without `of`, nothing is known of the pod.
fn container(line: &str) -> NewContainer {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (pod, name) = words[0].split_once('/').unwrap();
    let cpus = |word: &str| resources(word.parse::<i64>().unwrap() * 1000);
    NewContainer {
        pod: Pod {
            id: pod.to_owned(),
            namespace: "default".to_owned(),
            name: pod.to_owned(),
            qos: Some(QosClass::Guaranteed),
            resources: words.get(3).map(|word| cpus(word)).unwrap_or_default(),
            ..Pod::default()
        },
        name: name.to_owned(),
        resources: cpus(words[1]),
        ..NewContainer::default()
    }
}

fn place(state: &mut NodeState, ticket: u64, line: &str) -> String {
    let spec = container(line);
    let (ticket, id) = (Ticket(ticket), format!("{}/{}", spec.pod.id, spec.name));
    let told = match state.step(Event::TryAdmit(ticket, Box::new(spec.clone())), NOW).answer {
        Answer::Admission(Admission::Place(told)) => format!("cpus {}", told.cpus),
        Answer::AskFirst => "the runtime is asked first".to_owned(),
        // The last word is longer.
        Answer::Admission(Admission::Refuse(_)) => {
            match state.step(Event::Admit(ticket, Box::new(spec)), NOW).answer {
                Answer::Admission(Admission::Refuse(why)) => return why,
                other => panic!("{other:?}"),
            }
        }
        other => panic!("{other:?}"),
    };
    state.step(Event::CreateEnded(ticket, CreateOutcome::Created { id, pinned: true }), NOW);
    told
}

/// One line per step: a container, or `-ID` for one that has ended.
#[track_caller]
fn check(state: &mut NodeState, steps: &[&str], expected: Expect) {
    let mut shown = String::new();
    for (step, ticket) in steps.iter().zip(0..) {
        let came = match step.strip_prefix('-') {
            Some(id) => {
                state.step(Event::Ended(id.to_owned()), NOW);
                "ended".to_owned()
            }
            None => place(state, ticket, step),
        };
        shown.push_str(&format!("{step}: {came}\n"));
    }
    expected.assert_eq(&shown);
}

fn strict(line: &str, within: Within) -> NodeState {
    let mut state = state(line);
    state.rules.wishes.cpus.within = Some(within);
    state.rules.wishes.pod.is_one = true;
    state
}

#[test]
fn a_pod_is_placed_where_all_of_it_fits() {
    check(
        &mut state("numa:2 core:8"),
        &["x/a 5", "p/a 2 of 6", "p/b 2 of 6", "q/a 2", "p/c 2 of 6"],
        expect![[r#"
            x/a 5: cpus 1-5
            p/a 2 of 6: cpus 8-9
            p/b 2 of 6: cpus 10-11
            q/a 2: cpus 6-7
            p/c 2 of 6: cpus 12-13
        "#]],
    );
    check(
        &mut state("numa:2 core:8"),
        &["x/a 5", "p/a 2", "p/b 2", "p/c 2"],
        expect![[r#"
        x/a 5: cpus 1-5
        p/a 2: cpus 6-7
        p/b 2: cpus 8-9
        p/c 2: cpus 10-11
    "#]],
    );
}

#[test]
fn a_sidecar_keeps_its_cpus_and_the_init_containers_after_it_pass_theirs_on() {
    // Kubelet's effective request of the pod: the sidecar, and the larger of what comes before and what runs in the end.
    check(
        &mut state("numa:2 core:8"),
        &[
            "x/a 2",
            "p/sidecar 1 of 5",
            "p/init 3 of 5",
            "-p/init",
            "p/a 2 of 5",
            "p/b 2 of 5",
            "q/a 3",
            "-p/a",
            "-p/b",
            "-p/sidecar",
            "r/a 6",
        ],
        expect![[r#"
            x/a 2: cpus 1-2
            p/sidecar 1 of 5: cpus 3
            p/init 3 of 5: cpus 4-6
            -p/init: ended
            p/a 2 of 5: cpus 4-5
            p/b 2 of 5: cpus 6-7
            q/a 3: cpus 8-10
            -p/a: ended
            -p/b: ended
            -p/sidecar: ended
            r/a 6: cpus 0,3-7
        "#]],
    );
}

#[test]
fn the_runtime_is_asked_where_a_pod_seems_to_hold_too_much() {
    check(
        &mut state("numa:2 core:8"),
        &["p/init 2 of 4", "p/a 4 of 4", "-p/init", "p/a 4 of 4", "q/a 2", "q/b 2"],
        expect![[r#"
            p/init 2 of 4: cpus 1-2
            p/a 4 of 4: the runtime is asked first
            -p/init: ended
            p/a 4 of 4: cpus 1-4
            q/a 2: cpus 5-6
            q/b 2: cpus 0,7
        "#]],
    );
}

#[test]
fn a_pod_that_no_node_holds_is_refused_where_it_has_to_lie_together() {
    let mut state = strict("numa:2 core:4", Within::One(Level::NumaNode));
    check(
        &mut state,
        &["x/a 2", "y/a 3", "q/a 1 of 3", "q/a 1 of 1"],
        expect![[r#"
            x/a 2: cpus 1-2
            y/a 3: cpus 4-6
            q/a 1 of 3: bayplan: default/q/a refused: the pod needs 3 more CPUs together; 2 are free; the machine is wider than one NumaNode (`requests` in the configuration); `bayplan explain default/q/a` lists every pool
            q/a 1 of 1: cpus 7
        "#]],
    );
}

#[test]
fn a_container_stays_with_its_pod_or_is_refused() {
    let mut state = strict("numa:2 core:4", Within::One(Level::NumaNode));
    check(
        &mut state,
        &["p/a 2 of 2", "x/a 2", "p/b 1 of 3"],
        expect![[r#"
            p/a 2 of 2: cpus 1-2
            x/a 2: cpus 0,3
            p/b 1 of 3: bayplan: default/p/b refused: needs 1 exclusive CPU; 0 are free; the machine is wider than one NumaNode (`requests` in the configuration); `bayplan explain default/p/b` lists every pool
        "#]],
    );
}

#[test]
fn as_few_nodes_as_an_empty_machine_would_need_or_none() {
    let mut state = strict("numa:3 core:4", Within::Fewest(Level::NumaNode));
    check(
        &mut state,
        &["p/a 3 of 6", "x/a 3 of 3", "p/b 3 of 6", "y/a 2 of 2"],
        expect![[r#"
        p/a 3 of 6: cpus 1-3
        x/a 3 of 3: cpus 4-6
        p/b 3 of 6: cpus 8-10
        y/a 2 of 2: bayplan: default/y/a refused: would take CPUs from 2 NUMA nodes, 1 would do (`requests` in the configuration); `bayplan explain default/y/a` lists every pool
    "#]],
    );
}

#[test]
fn a_restart_asks_for_the_same_again_and_an_older_journal_is_read() {
    let mut before = strict("numa:2 core:8", Within::One(Level::NumaNode));
    check(
        &mut before,
        &["p/a 2 of 6", "p/b 2 of 6", "q/a 1"],
        expect![[r#"
        p/a 2 of 6: cpus 1-2
        p/b 2 of 6: cpus 3-4
        q/a 1: cpus 5
    "#]],
    );
    let lines: Vec<String> = before
        .snapshot_records()
        .iter()
        .map(|record| serde_json::to_string(record).unwrap())
        .collect();
    assert_eq!(lines.iter().filter(|line| line.contains("pod_needs")).count(), 2);
    let mut after = strict("numa:2 core:8", Within::One(Level::NumaNode));
    after.restore(replay(&lines), NOW);
    let wishes = |state: &NodeState| {
        let ids = state.containers.iter();
        let wishes = |(id, it): (&ContainerId, &Container)| state.request(*id, &it.spec).0.wishes;
        ids.map(wishes).collect::<Vec<_>>()
    };
    assert_eq!(wishes(&before), wishes(&after));
    assert_eq!(wishes(&after)[0].pod.rest.to_string(), "2");
}

#[test]
fn what_a_pod_needs_changes_in_place_and_is_kept_once() {
    let mut state = state("numa:2 core:4");
    for (ticket, line) in [(0, "a/x 1 of 2"), (1, "a/y 1 of 2"), (2, "b/x 1 of 2")] {
        place(&mut state, ticket, line);
    }
    let resized = |state: &mut NodeState, milli: i64| {
        let step = state.step(Event::PodResized("a".to_owned(), resources(milli)), NOW);
        assert!(step.plan.is_empty(), "{step:?}");
        step.records.len()
    };
    assert_eq!(resized(&mut state, 5000), 2);
    assert_eq!(resized(&mut state, 5000), 0);
    let needs = |state: &NodeState| -> Vec<MilliCpu> {
        let specs = state.containers.values().map(|it| it.spec.pod.resources);
        specs.map(|needs| needs.cpu_request(Some(QosClass::Guaranteed))).collect()
    };
    let expected = [MilliCpu(5000), MilliCpu(5000), MilliCpu(2000)];
    assert_eq!(needs(&state), expected);
    let lines: Vec<String> =
        state.snapshot_records().iter().map(|it| serde_json::to_string(it).unwrap()).collect();
    let mut after = super::state("numa:2 core:4");
    after.restore(replay(&lines), NOW);
    assert_eq!(needs(&after), expected);
    // No container has ended twice, and that does no harm.
    for _ in 0..2 {
        state.step(Event::Ended("a/x".to_owned()), NOW);
    }
    assert_eq!(state.containers.iter().len(), 2);
}
