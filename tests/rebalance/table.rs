//! The table for people.

use std::fmt::Write;
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_rebalance::Settings;

use crate::chosen;
use crate::run::{Case, Log};
use crate::score::{Score, is_late, relief_of};
use crate::suites::SUITES;

/// Rounds of which a case is told.
const ROUNDS_TOLD: usize = 16;

/// Everything that is decided in one case, told as `SUITE:SEED`.
pub(crate) fn story(one: &str) -> String {
    let (name, seed) = one.split_once(':').unwrap_or((one, "0"));
    let Some(suite) = SUITES.iter().find(|suite| suite.name == name) else {
        let names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
        return format!("there is no suite `{name}`; there are {}", names.join(", "));
    };
    let case = Case::new(suite, seed.parse().unwrap_or(0));
    let log = case.with(&Settings::default());
    format!("{}\n{}{}", suite.about, render_case(&case, &log), log.story)
}

/// Every case in which a victim was not relieved in time or something was done that was false, with all that was decided until two minutes after the
/// onset.
pub(crate) fn render_late(cases: &[Vec<Case>], settings: &Settings) -> String {
    let mut text = String::new();
    for (suite, cases) in chosen().zip(cases) {
        for case in cases {
            let log = case.with(settings);
            let late = |victim: &ContainerId| relief_of(case, &log, *victim).is_some_and(is_late);
            let is_false = log.made.iter().any(|made| !made.is_right);
            if is_false || case.trial.victims.iter().any(late) {
                let _ = writeln!(text, "--- {}:{}", suite.name, case.seed);
                text += &render_case(case, &log);
                log.story
                    .lines()
                    .filter(|line| line.contains("WRONG") || begins_within(line, 120.0))
                    .for_each(|line| text += &format!("{line}\n"));
            }
        }
    }
    text
}

fn begins_within(line: &str, seconds: f64) -> bool {
    let first = line.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    first.is_some_and(|at| at <= seconds)
}

/// What the oracle does, and p99 of the victims in the first rounds from the onset on.
fn render_case(case: &Case, log: &Log) -> String {
    let oracle =
        case.best.iter().map(|it| format!("{} {} of {}", it.knob.name(), it.step, it.target));
    let oracle = oracle.collect::<Vec<_>>().join(", ");
    let mut text = format!("Seconds from the onset. The oracle turns: {oracle}\n");
    for victim in &case.trial.victims {
        let relief = match relief_of(case, log, *victim) {
            None => "could not be".to_owned(),
            Some(None) => "never".to_owned(),
            Some(Some(time)) => format!("after {} s", time.as_secs()),
        };
        let _ = writeln!(text, "{victim} relieved: {relief}; p99 in ms:");
        for (name, log) in [
            ("nothing", &case.nothing),
            ("it", log),
            ("oracle", &case.oracle),
            ("alone", &case.alone),
        ] {
            let p99s = log.p99s.get(victim).into_iter().flatten().take(ROUNDS_TOLD);
            let p99s: Vec<String> = p99s.map(|p99| format!("{:.1}", p99 * 1e3)).collect();
            let _ = writeln!(text, "  {name:<7} {}", p99s.join(" "));
        }
    }
    text + &render_services(case, log)
}

/// The p99 of every service, means of long parts of the time: without and with the rebalancer.
fn render_services(case: &Case, log: &Log) -> String {
    let mut text = String::new();
    let span = ROUNDS_TOLD * 8;
    for id in case.nothing.p99s.keys() {
        let _ = writeln!(text, "{id}, means of p99 in ms over {span} rounds each:");
        for (name, log) in [("nothing", &case.nothing), ("it", log)] {
            let p99s = log.p99s.get(id).map(Vec::as_slice).unwrap_or_default();
            let mean = |part: &[f64]| 1e3 * part.iter().sum::<f64>() / part.len() as f64;
            let means = p99s.chunks(span).map(|part| format!("{:.1}", mean(part)));
            let _ = writeln!(text, "  {name:<7} {}", means.collect::<Vec<_>>().join(" "));
        }
    }
    text
}

/// One line per suite.
pub(crate) fn render(scores: &[Score]) -> String {
    let mut text = format!(
        "{:<13} {:>6} {:>8} {:>12} {:>12} {:>8} {:>8} {:>6} {:>8} {:>8} {:>6} {:>6} {:>7} {:>6} {:>24} {:>7} {:>7} {:>12}\n",
        "suite",
        "hours",
        "victims",
        "detected s",
        "relief s",
        "in 30 s",
        "actions",
        "false",
        "per day",
        "stricter",
        "undone",
        "moves",
        "in vain",
        "again",
        "p99 ms: 0 / it / oracle",
        "ratio",
        "worst",
        "of seed",
    );
    for score in scores {
        let in_time = score
            .relieved_in_time()
            .map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share));
        let [nothing, bayplan, oracle] = score.p99_ms;
        let _ = writeln!(
            text,
            "{:<13} {:>6.0} {:>8} {:>12} {:>12} {:>8} {:>8} {:>6} {:>8.1} {:>8} {:>6} {:>6} {:>7} {:>6} {:>24} {:>7.3} {:>7.3} {:>12}",
            score.name,
            score.machine_hours,
            score.relieved.len(),
            times(&score.detected),
            times(&score.relieved),
            in_time,
            score.made,
            score.wrong,
            score.wrong_per_day(),
            score.wrong_then,
            score.undone,
            score.moves,
            format!("{}/{}", score.held_in_vain, score.held),
            score.ping_pong,
            format!("{nothing:.1} / {bayplan:.1} / {oracle:.1}"),
            score.ratio,
            score.ratio_worst,
            score.worst_seed,
        );
    }
    let hours: f64 = scores.iter().map(|score| score.machine_hours).sum();
    let wrong: usize = scores.iter().map(|score| score.wrong).sum();
    let wrong_then: usize = scores.iter().map(|score| score.wrong_then).sum();
    let made: usize = scores.iter().map(|score| score.made).sum();
    let machines: usize = scores.iter().map(|score| score.machines).sum();
    let relieved: Vec<_> = scores.iter().flat_map(|score| &score.relieved).collect();
    let late = relieved.iter().filter(|it| is_late(***it)).count();
    let _ = writeln!(
        text,
        "all: {machines} machines, {hours:.0} machine-hours; {} of {} victims relieved within 30 s; {made} actions, {wrong} false, {:.2} per machine-day ({wrong_then}, {:.2}, by the stricter count)",
        relieved.len() - late,
        relieved.len(),
        wrong as f64 * 24.0 / hours,
        wrong_then as f64 * 24.0 / hours
    );
    for score in scores {
        for (seed, ratio) in &score.worse {
            let _ = writeln!(text, "worse than doing nothing: {}:{seed}, {ratio:.3}", score.name);
        }
    }
    text
}

/// Median and 95th percentile in seconds; `-` for never.
fn times(times: &[Option<Duration>]) -> String {
    if times.is_empty() {
        return "-".to_owned();
    }
    let mut seconds: Vec<f64> =
        times.iter().map(|time| time.map_or(f64::INFINITY, |time| time.as_secs_f64())).collect();
    seconds.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        let idx = ((seconds.len() - 1) * percent + 50) / 100;
        seconds.get(idx).copied().filter(|time| time.is_finite())
    };
    let text = |time: Option<f64>| time.map_or("-".to_owned(), |time| format!("{time:.0}"));
    format!("{} / {}", text(at(50)), text(at(95)))
}
