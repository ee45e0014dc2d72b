//! The rebalancer on machines that do not exist: does it help, how soon, and does it leave alone what is well?
//!
//! `suites.rs` has the table: what is wrong on each machine, and what should come of it. `hand.rs` has nothing, the rebalancer or an oracle turn
//! knobs; `run.rs` lives through one seed with each of them; `score.rs` makes figures of that, `table.rs` words. The goals are assertions here.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod drawn;
mod hand;
mod oracle;
mod run;
mod score;
mod suites;
mod table;

use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use bayplan_rebalance::{Knob, Parts, Settings};

use run::Case;
use score::{Goal, Miss, Score, score};
use suites::{SUITES, Suite};

/// Length of a round.
const PERIOD: Duration = Duration::from_secs(5);

/// All cases with what does not depend on the rebalancer: few seeds in an ordinary run, so many times more where asked for, and from another one on.
static CASES: LazyLock<Vec<Vec<Case>>> =
    LazyLock::new(|| cases(number("BAYPLAN_REBALANCE_FIRST").unwrap_or(0)));

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

fn cases(first: u64) -> Vec<Vec<Case>> {
    let times = number("BAYPLAN_REBALANCE_SEEDS").unwrap_or(1);
    each(|suite, _| {
        (first..first + suite.seeds * times).map(|seed| Case::new(suite, seed)).collect()
    })
}

/// All suites, or those of which the names stand in `BAYPLAN_REBALANCE_ONLY`, with commas between them.
fn chosen() -> impl Iterator<Item = &'static Suite> {
    let only = std::env::var("BAYPLAN_REBALANCE_ONLY").ok();
    SUITES.iter().filter(move |suite| {
        only.as_ref().is_none_or(|names| names.split(',').any(|name| name == suite.name))
    })
}

/// Does something with every suite, on all CPUs, and returns it in the order of the table.
fn each<T: Send>(work: impl Fn(&Suite, usize) -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let suites = chosen().enumerate();
        let threads: Vec<_> =
            suites.map(|(idx, suite)| scope.spawn(move || work(suite, idx))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn scores(cases: &[Vec<Case>], settings: &Settings) -> Vec<Score> {
    each(|suite, idx| score(suite, &cases[idx], settings))
}

fn misses(scores: &[Score], settings: &Settings) -> Vec<Miss> {
    scores.iter().flat_map(|score| score.misses(settings)).collect()
}

/// Goals that are not reached yet. A change that reaches one takes its line away.
const NOT_YET: &[(&str, Goal)] = &[
    ("beside", Goal::Relief),
    ("tight-limit", Goal::Relief),
    // Without counters it is not seen which container is slow for a crowded cache, and memory comes home whether its distance costs much or not.
    ("no-counters", Goal::Relief),
    ("no-probes", Goal::Relief),
];

#[test]
fn the_goals_are_met() {
    if let Ok(one) = std::env::var("BAYPLAN_REBALANCE_TELL") {
        println!("{}", table::story(&one));
        return;
    }
    if std::env::var_os("BAYPLAN_REBALANCE_ABLATIONS").is_some() {
        let (unneeded, told) = check_parts();
        println!("{told}");
        assert!(unneeded.is_empty(), "parts without which no suite breaks: {unneeded:?}\n{told}");
        return;
    }
    let settings = Settings::default();
    let scores = scores(&CASES, &settings);
    println!("{}", table::render(&scores));
    if std::env::var_os("BAYPLAN_REBALANCE_WHY").is_some() {
        println!("{}", table::render_late(&CASES, &settings));
    }
    let misses = misses(&scores, &settings);
    misses.iter().for_each(|miss| println!("{miss}"));
    let known = |miss: &&Miss| NOT_YET.contains(&(miss.suite, miss.goal));
    let new: Vec<String> = misses.iter().filter(|miss| !known(miss)).map(Miss::to_string).collect();
    assert!(new.is_empty(), "{}\n{}", table::render(&scores), new.join("\n"));
    let is_missed = |(suite, goal): &&(&str, Goal)| {
        misses.iter().any(|it| it.suite == *suite && it.goal == *goal)
    };
    let reached: Vec<_> = NOT_YET.iter().filter(|it| !is_missed(it)).collect();
    println!("reached, though they stand in NOT_YET: {reached:?}");
}

/// What each part of the judgement and each knob is good for: without it, some suite misses a goal that it reaches with it. Every part must be; of knobs it is told. Takes twenty times as
/// long as the suites, so it is asked for, after changes of the judgement.
fn check_parts() -> (Vec<&'static str>, String) {
    let mut told = String::new();
    let (all, default) = (Parts::default(), Settings::default());
    let parts = [
        ("baseline", Parts { baseline: false, ..all }),
        ("confirmation", Parts { confirmation: false, ..all }),
        ("correlation", Parts { correlation: false, ..all }),
        ("verdict", Parts { verdict: false, ..all }),
        ("memory", Parts { memory: false, ..all }),
    ];
    let whole = misses(&scores(&CASES, &default), &default);
    let mut is_needed = |name: &str, settings: &Settings| {
        let scores = scores(&CASES, settings);
        let is_new =
            |miss: &Miss| !whole.iter().any(|it| it.suite == miss.suite && it.goal == miss.goal);
        let broken = misses(&scores, settings).into_iter().filter(is_new);
        let broken: Vec<String> = broken.map(|miss| miss.to_string()).collect();
        told += &format!("without {name}\n{}{}\n\n", table::render(&scores), broken.join("\n"));
        !broken.is_empty()
    };
    let mut unneeded = Vec::new();
    for (name, parts) in parts {
        if !is_needed(name, &Settings { parts, ..default.clone() }) {
            unneeded.push(name);
        }
    }
    for knob in Knob::ALL {
        let name = format!("the knob {}", knob.name());
        is_needed(&name, &Settings { forbidden: [knob].into(), ..default.clone() });
    }
    (unneeded, told)
}
