//! Containers that use wide vectors: which count, and where new ones go.

use bayplan_enforcement::render_plan;
use bayplan_workload::{VectorStrategy, WideVectors};
use expect_test::{Expect, expect};

use super::*;

/// Four nodes of four CPUs in two packages.
const MACHINE: &str = "pack:2 numa:2 core:4 pu:1 mem:8";

const SPREAD: WideVectors = WideVectors { burstable: VectorStrategy::Spread, ..OFF };
const SQUEEZE: WideVectors = WideVectors { burstable: VectorStrategy::Squeeze, ..OFF };
const AUTO: WideVectors = WideVectors { burstable: VectorStrategy::Auto, per_domain: 1, ..OFF };
const OFF: WideVectors = WideVectors {
    guaranteed: VectorStrategy::Off,
    burstable: VectorStrategy::Off,
    best_effort: VectorStrategy::Off,
    per_domain: 2,
    is_measured: true,
};

/// A container of a Deployment that is named as its letter; it asks for half a CPU. Other signs: `!` its pod says that it uses wide vectors, `-` that it does not, `*` two CPUs of its own.
fn container(name: &str) -> NewContainer {
    let deployment: String = name.chars().filter(char::is_ascii_lowercase).collect();
    let says = |value: &str| ("bayplan.dev/wide-vectors".to_owned(), value.to_owned());
    let said = [('!', "true"), ('-', "false")].into_iter();
    let said = said.filter(|(sign, _)| name.contains(*sign)).map(|(_, value)| says(value));
    let owns = name.contains('*');
    let qos = if owns { QosClass::Guaranteed } else { QosClass::Burstable };
    let milli = if owns { 2000 } else { 500 };
    let quota = if owns { milli * 100 } else { -1 };
    let pod = Pod {
        id: name.to_owned(),
        namespace: "n".to_owned(),
        name: format!("{deployment}-h-{name}"),
        qos: Some(qos),
        annotations: said.collect(),
        labels: [("pod-template-hash".to_owned(), "h".to_owned())].into(),
        ..Pod::default()
    };
    let resources = Resources { cpu_quota: quota, ..resources(milli) };
    NewContainer { pod, name: "c".to_owned(), resources, ..NewContainer::default() }
}

/// Steps: `seen NAMES` three times that these, and no other container, used them; a name alone is created. Shows for each step where the container is, and at the end what is told.
fn run(wide: WideVectors, steps: &[&str]) -> String {
    let mut state = state(MACHINE);
    state.rules.wide_vectors = wide;
    let (mut shown, mut names, mut second) = (String::new(), Vec::new(), 0);
    for (ticket, step) in (0..).zip(steps) {
        if let Some(using) = step.strip_prefix("seen ") {
            let using: Vec<&str> = using.split(' ').collect();
            for _ in 0..3 {
                second += 10;
                let read =
                    names.iter().map(|name: &&str| ((*name).to_owned(), using.contains(name)));
                let now = Timestamp::from_second(second).unwrap();
                let placed = state.ledger.version();
                let step = state.step(Event::VectorsSeen(read.collect()), now);
                assert_eq!(state.ledger.version(), placed, "what was seen has moved something");
                assert!(step.records.is_empty() && render_plan(&step.plan).is_empty());
            }
            continue;
        }
        names.push(*step);
        let now = Timestamp::from_second(second).unwrap();
        state.step(Event::Admit(Ticket(ticket), Box::new(container(step))), now);
        let created = CreateOutcome::Created { id: (*step).to_owned(), pinned: true };
        state.step(Event::CreateEnded(Ticket(ticket), created), now);
        let id = state.containers.id_of(step).unwrap();
        let pool = state.ledger.allocation(id).unwrap().pool;
        let pool = &state.ledger.pools().get(pool).unwrap().name;
        shown.push_str(&format!("{step}: {pool}\n"));
    }
    for clock in state.status().clocks {
        shown.push_str(&format!("{} on {}\n", clock.containers, clock.cpus));
    }
    let clocks = state.occupancy().clocks;
    for name in names {
        if let Some(it) =
            clocks.get(&state.containers.id_of(name).unwrap()).filter(|it| it.gain > 0)
        {
            let (gain, home, leave) = (it.gain, it.gain_at_home, &it.leave);
            shown.push_str(&format!("{name} gains {gain}, from home {home}, leaves {leave}\n"));
        }
        for told in state.explain(name).into_iter().filter_map(|it| it.vectors) {
            shown.push_str(&format!("{name} {told}\n"));
        }
    }
    shown
}

#[track_caller]
fn check(wide: WideVectors, steps: &[&str], expected: Expect) {
    expected.assert_eq(&run(wide, steps));
}

#[test]
fn by_annotation_they_are_spread_or_squeezed() {
    let steps = ["a!", "b", "c!", "d!"];
    check(
        SPREAD,
        &steps,
        expect![[r#"
        a!: numa 0
        b: numa 1
        c!: numa 2
        d!: numa 3
        1 on 0-7
        2 on 8-15
        a! counts as one with wide vectors, to be spread
        c! counts as one with wide vectors, to be spread
        d! counts as one with wide vectors, to be spread
    "#]],
    );
    check(
        SQUEEZE,
        &steps,
        expect![[r#"
        a!: numa 0
        b: numa 1
        c!: numa 0
        d!: numa 1
        3 on 0-7
        0 on 8-15
        a! counts as one with wide vectors, to be squeezed into few packages
        c! counts as one with wide vectors, to be squeezed into few packages
        d! counts as one with wide vectors, to be squeezed into few packages
    "#]],
    );
    check(
        AUTO,
        &steps,
        expect![[r#"
            a!: numa 0
            b: numa 1
            c!: numa 2
            d!: numa 3
            1 on 0-7
            2 on 8-15
            a! gains 2, from home 2, leaves 0-7
            a! counts as one with wide vectors, to be squeezed into few packages
            c! counts as one with wide vectors, to be squeezed into few packages
            d! counts as one with wide vectors, to be squeezed into few packages
        "#]],
    );
    check(
        OFF,
        &steps,
        expect![[r#"
        a!: numa 0
        b: numa 1
        c!: numa 2
        d!: numa 3
    "#]],
    );
}

#[test]
fn the_next_instance_of_a_workload_that_was_seen_counts() {
    let steps = ["a1", "b1", "c1", "seen a1 b1", "a2", "b2-", "c2", "c3!"];
    check(
        SPREAD,
        &steps,
        expect![[r#"
        a1: numa 0
        b1: numa 1
        c1: numa 2
        a2: numa 3
        b2-: numa 0
        c2: numa 1
        c3!: numa 2
        2 on 0-7
        2 on 8-15
        a1 counts as one with wide vectors, to be spread
        b1 counts as one with wide vectors, to be spread
        a2 counts as one with wide vectors, to be spread
        c3! counts as one with wide vectors, to be spread
    "#]],
    );
    check(
        WideVectors { is_measured: false, ..SPREAD },
        &steps,
        expect![[r#"
        a1: numa 0
        b1: numa 1
        c1: numa 2
        a2: numa 3
        b2-: numa 0
        c2: numa 1
        c3!: numa 2
        0 on 0-7
        1 on 8-15
        c3! counts as one with wide vectors, to be spread
    "#]],
    );
}

#[test]
fn those_that_run_would_gain_elsewhere() {
    let steps = ["a1", "b1", "c1", "d1", "e1", "f1-", "seen a1 b1 e1 f1-"];
    check(
        SPREAD,
        &steps,
        expect![[r#"
        a1: numa 0
        b1: numa 1
        c1: numa 2
        d1: numa 3
        e1: numa 0
        f1-: numa 1
        3 on 0-7
        0 on 8-15
        a1 gains 2, from home 2, leaves 0-7
        a1 counts as one with wide vectors, to be spread
        b1 gains 2, from home 2, leaves 0-7
        b1 counts as one with wide vectors, to be spread
        e1 gains 2, from home 2, leaves 0-7
        e1 counts as one with wide vectors, to be spread
    "#]],
    );
    check(
        SQUEEZE,
        &["a1", "b1", "c1", "seen a1 b1 c1"],
        expect![[r#"
        a1: numa 0
        b1: numa 1
        c1: numa 2
        2 on 0-7
        1 on 8-15
        a1 counts as one with wide vectors, to be squeezed into few packages
        b1 counts as one with wide vectors, to be squeezed into few packages
        c1 gains 2, from home 2, leaves 8-15
        c1 counts as one with wide vectors, to be squeezed into few packages
    "#]],
    );
}

/// The one with more others goes, as the rebalancer would have it, and then none gains any more.
#[test]
fn one_that_was_sent_to_the_better_domain_gains_nothing_there() {
    let mut state = state(MACHINE);
    state.rules.wide_vectors = SPREAD;
    let now = Timestamp::UNIX_EPOCH;
    for (ticket, name) in (0..).zip(["a", "b"]) {
        state.step(Event::Admit(Ticket(ticket), Box::new(container(name))), now);
        let created = CreateOutcome::Created { id: name.to_owned(), pinned: true };
        state.step(Event::CreateEnded(Ticket(ticket), created), now);
    }
    for _ in 0..3 {
        let read = ["a", "b"].map(|name| (name.to_owned(), true));
        state.step(Event::VectorsSeen(read.into()), now);
    }
    let shown = |state: &NodeState| {
        let it = &state.occupancy().clocks[&state.containers.id_of("a").unwrap()];
        format!("gains {}, from home {}, leaves {}", it.gain, it.gain_at_home, it.leave)
    };
    let counts = |state: &NodeState| -> Vec<usize> {
        state.status().clocks.iter().map(|it| it.containers).collect()
    };
    assert_eq!(shown(&state), "gains 1, from home 1, leaves 0-7");
    assert_eq!(counts(&state), [2, 0]);
    let (knob, target) = (Knob::Clock, state.containers.id_of("a").unwrap());
    let leave = "0-7".parse().unwrap();
    let turn = Turn { knob, target, step: 1, leave, mems: Default::default() };
    state.step(Event::Turn(Turned::from_turns([(1, turn)])), now);
    let cpus = state.pinning(target).unwrap().cpus.to_string();
    assert_eq!(cpus, "8-11");
    assert_eq!(shown(&state), "gains 0, from home 1, leaves 0-7");
    assert_eq!(counts(&state), [1, 1], "the status counts where it runs");
    assert_eq!(state.occupancy().clock_classes, [QosClass::Burstable].into());
    state.rules.wide_vectors = OFF;
    assert_eq!(state.occupancy().clock_classes, [].into());
}

#[test]
fn one_with_cpus_of_its_own_counts_for_others_only() {
    check(
        SPREAD,
        &["a!*", "b!", "c!"],
        expect![[r#"
        a!*: numa 0
        b!: numa 2
        c!: numa 1
        2 on 0-7
        1 on 8-15
        a!* counts as one with wide vectors for others
        b! counts as one with wide vectors, to be spread
        c! counts as one with wide vectors, to be spread
    "#]],
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Without a strategy nothing depends on what was seen or said.
    #[test]
    fn without_a_strategy_nothing_changes(
        steps in prop::collection::vec(("[abc]", prop::bool::ANY, prop::bool::ANY), 1..12),
    ) {
        let name = |at: usize, letter: &str, sign: &str| format!("{letter}{at}{sign}");
        let with: Vec<String> = steps.iter().enumerate().flat_map(|(at, (letter, says, sees))| {
            let name = name(at, letter, if *says { "!" } else { "" });
            let seen = sees.then(|| format!("seen {name}"));
            std::iter::once(name).chain(seen)
        }).collect();
        let plain: Vec<String> =
            steps.iter().enumerate().map(|(at, (letter, ..))| name(at, letter, "")).collect();
        let run = |steps: &[String]| {
            let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
            run(OFF, &steps).replace('!', "")
        };
        prop_assert_eq!(run(&with), run(&plain));
    }
}
