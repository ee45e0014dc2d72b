//! What holds for any history, also for one that no machine would make.

use proptest::prelude::*;

use super::harness::parse_scene;
use super::*;

const SCENE: &str = "
    machine pack:1 numa:2 l3:1 core:2 pu:2
    a guaranteed 0-3
    b burstable 0-3
    c besteffort 0-3
    d besteffort 0-7
    e burstable 4-5 exclusive
    f unknown 6-7
";
const CONTAINERS: usize = 6;

/// A round as it may come: which container is measured how, and what else is the matter.
#[derive(Clone, Debug)]
struct Turn {
    values: Vec<Option<[f64; 8]>>,
    is_unrest: bool,
    is_refused: bool,
    /// It is not said how it was carried out.
    is_silent: bool,
    seconds: u64,
    /// The container that is not there.
    gone: Option<u64>,
}

#[derive(Clone, Debug)]
struct History {
    turns: Vec<Turn>,
    modes: Vec<Mode>,
    forbidden: BTreeSet<Knob>,
    per_minute: u32,
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![6 => 0.0..1.0f64, 4 => 1.0..6.0f64, 1 => any::<f64>()]
}

/// One container over several rounds: phases in which it is much the same, because nothing is concluded from noise.
fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let sample = proptest::option::weighted(0.95, proptest::array::uniform8(value()));
    let phase = (
        proptest::collection::vec(sample, CONTAINERS),
        1..12usize,
        proptest::bool::weighted(0.1),
        proptest::bool::weighted(0.2),
        proptest::bool::weighted(0.1),
        prop_oneof![8 => Just(5u64), 1 => 0..100u64],
        proptest::option::weighted(0.1, 1..=CONTAINERS as u64),
    );
    proptest::collection::vec(phase, 1..20).prop_map(|phases| {
        let turns = phases.into_iter().flat_map(|phase| {
            let (values, rounds, is_unrest, is_refused, is_silent, seconds, gone) = phase;
            let turn = Turn { values, is_unrest, is_refused, is_silent, seconds, gone };
            std::iter::repeat_n(turn, rounds)
        });
        turns.collect()
    })
}

fn histories() -> impl Strategy<Value = History> {
    let mode = prop_oneof![1 => Just(Mode::Off), 1 => Just(Mode::Observe), 4 => Just(Mode::Act)];
    let modes = proptest::collection::vec(mode, CONTAINERS);
    let forbidden = proptest::collection::btree_set(proptest::sample::select(&Knob::ALL[..]), 0..4);
    (turns(), modes, forbidden, 0..8u32).prop_map(|(turns, modes, forbidden, per_minute)| History {
        turns,
        modes,
        forbidden,
        per_minute,
    })
}

fn sample(values: &[f64; 8]) -> Sample {
    let [cpus, waiting, delay, pressure, throttled, cpi, misses, bandwidth] = *values;
    Sample {
        cpus,
        waiting: Some(waiting),
        delay_p99: Duration::try_from_secs_f64(delay / 100.0).ok(),
        cpu_pressure: Some(pressure),
        throttled: Some(throttled),
        cycles_per_instruction: Some(cpi),
        cache_misses: Some(misses),
        memory_bandwidth: Some(bandwidth * 1e9),
        far_memory: Some(throttled),
        clock: Some(waiting),
        ..Sample::default()
    }
}

fn scene_of(history: &History) -> Scene {
    let (mut scene, _) = parse_scene(SCENE);
    for (resident, mode) in scene.residents.values_mut().zip(&history.modes) {
        resident.mode = *mode;
    }
    scene
}

fn settings_of(history: &History) -> Settings {
    let changes_per_minute = history.per_minute;
    Settings { forbidden: history.forbidden.clone(), changes_per_minute, ..Settings::default() }
}

/// What was said in every round, with its end.
fn play(history: &History) -> Vec<(Duration, Vec<Decision>)> {
    let whole = scene_of(history);
    let mut rebalancer = Rebalancer::new(settings_of(history));
    let mut now = Duration::ZERO;
    let mut told = Vec::new();
    for turn in &history.turns {
        now += Duration::from_secs(turn.seconds);
        let mut scene = whole.clone();
        scene.unrest = turn.is_unrest.then_some(Unrest::Drift);
        scene.residents.retain(|id, _| Some(id.0) != turn.gone);
        let samples = (1..).map(ContainerId).zip(&turn.values);
        let samples = samples.filter_map(|(id, it)| Some((id, sample(it.as_ref()?)))).collect();
        let round = Round { at: now, period: Duration::from_secs(5), samples };
        let decisions = rebalancer.look(&scene, &round);
        for decision in &decisions {
            let Decision::Propose(proposal) = decision else { continue };
            let outcome = match turn.is_refused {
                true => Outcome::Refused("no".to_owned()),
                false => Outcome::Done,
            };
            if !turn.is_silent {
                rebalancer.carried_out(proposal.number, &outcome, now);
            }
        }
        told.push((now, decisions));
    }
    // All containers go, and time passes: nothing may stay in force.
    let empty = Scene { residents: BTreeMap::new(), ..whole };
    for _ in 0..1000 {
        now += Duration::from_secs(5);
        let samples = BTreeMap::new();
        let round = Round { at: now, period: Duration::from_secs(5), samples };
        told.push((now, rebalancer.look(&empty, &round)));
    }
    assert_eq!(rebalancer.standing().count(), 0);
    told
}

fn is_change(decision: &Decision) -> bool {
    match decision {
        Decision::Propose(proposal) => proposal.mode == Mode::Act,
        Decision::Judge { verdict, .. } => !matches!(verdict, crate::Verdict::Kept { .. }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_minute_has_more_changes_than_the_budget(history in histories()) {
        let told = play(&history);
        let changes: Vec<Duration> = told
            .iter()
            .flat_map(|(at, said)| said.iter().filter(|it| is_change(it)).map(|_| *at))
            .collect();
        let per_minute = history.per_minute.max(1) as usize;
        for (first, last) in changes.iter().zip(changes.iter().skip(per_minute)) {
            prop_assert!(*last - *first >= Duration::from_secs(60));
        }
    }

    #[test]
    fn in_unrest_only_what_needs_no_measurement_is_undone(history in histories()) {
        use crate::Verdict;
        for ((_, said), turn) in play(&history).iter().zip(&history.turns) {
            for decision in said.iter().filter(|_| turn.is_unrest) {
                let Decision::Judge { verdict, .. } = decision else {
                    return Err(TestCaseError::fail("a proposal in unrest"));
                };
                prop_assert!(matches!(verdict, Verdict::Unknown | Verdict::Over));
            }
        }
    }

    #[test]
    fn nothing_is_unjudged_for_longer_than_ten_minutes_and_its_turn(history in histories()) {
        let mut history = history;
        history.turns.iter_mut().for_each(|it| it.is_refused = false);
        let budget_s = 60 * (24 / u64::from(history.per_minute.max(1)) + 1);
        let mut open: BTreeMap<u64, Duration> = BTreeMap::new();
        for (at, said) in play(&history) {
            for decision in said {
                match decision {
                    Decision::Propose(proposal) if proposal.mode == Mode::Act => {
                        open.insert(proposal.number, at);
                    }
                    Decision::Propose(_) => {}
                    Decision::Judge { number, .. } => drop(open.remove(&number)),
                }
            }
            // A round comes within 100 s, and an undo when the budget has one left.
            let limit = Duration::from_secs(600 + 100 + budget_s);
            prop_assert!(open.values().all(|since| at <= *since + limit));
        }
    }

    #[test]
    fn no_container_is_asked_for_more_than_is_allowed(history in histories()) {
        let scene = scene_of(&history);
        for (_, said) in play(&history) {
            for decision in said {
                let Decision::Propose(proposal) = decision else { continue };
                let victim = &scene.residents[&proposal.evidence.victim];
                let target = &scene.residents[&proposal.target];
                prop_assert!(proposal.mode > Mode::Off);
                prop_assert!(proposal.mode <= victim.mode.min(target.mode));
                prop_assert!(!history.forbidden.contains(&proposal.knob));
                prop_assert!(target.knobs.contains(&proposal.knob));
                prop_assert!(!proposal.evidence.findings.is_empty());
                prop_assert!(proposal.step >= 1);
            }
        }
    }

    #[test]
    fn every_proposal_that_was_carried_out_is_undone_once_at_most(history in histories()) {
        let mut open = BTreeSet::new();
        for (_, said) in play(&history) {
            for decision in said {
                match decision {
                    Decision::Propose(proposal) => prop_assert!(open.insert(proposal.number)),
                    Decision::Judge { number, verdict: crate::Verdict::Kept { .. } } => {
                        prop_assert!(open.contains(&number));
                    }
                    Decision::Judge { number, .. } => prop_assert!(open.remove(&number)),
                }
            }
        }
    }

    #[test]
    fn the_same_history_has_the_same_story(history in histories()) {
        prop_assert_eq!(format!("{:?}", play(&history)), format!("{:?}", play(&history)));
    }

    #[test]
    fn a_lie_is_a_hole(history in histories(), liar in 0..CONTAINERS, lie in 0..4usize) {
        let lie = [f64::NAN, f64::INFINITY, -1.0, 1e300][lie];
        let mut with_lies = history.clone();
        let mut with_holes = history;
        for turn in &mut with_lies.turns {
            turn.values[liar] = Some([lie; 8]);
        }
        for turn in &mut with_holes.turns {
            turn.values[liar] = None;
        }
        prop_assert_eq!(format!("{:?}", play(&with_lies)), format!("{:?}", play(&with_holes)));
    }
}
