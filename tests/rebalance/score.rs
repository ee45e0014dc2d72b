//! Figures of a suite, and the goals that it has.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_rebalance::Settings;

use crate::PERIOD;
use crate::run::{Case, Log, Made};
use crate::suites::{Aim, Suite};

/// A victim can be relieved where the oracle's p99 is so much below that of doing nothing.
const SOLVABLE: f64 = 1.2;
/// It is relieved when so much of the way from doing nothing to the oracle is made, for so many rounds.
const CLOSED: f64 = 0.75;
const ROUNDS: usize = 3;
/// Relief has to come within this time.
const RELIEF_WITHIN: Duration = Duration::from_secs(30);
pub(crate) const RELIEVED_MIN: f64 = 0.95;
/// False actions in a machine's day.
pub(crate) const FALSE_MAX: f64 = 1.0;
/// p99 in relation to doing nothing.
pub(crate) const WORSE_MAX: f64 = 1.02;
/// The same change to the same container within this time after it was taken back is to and fro.
const PING_PONG: Duration = Duration::from_secs(300);
const PING_PONG_MAX_PER_HOUR: f64 = 1.0;
/// Of the looks at changes in force.
const IN_VAIN_MAX: f64 = 0.25;

/// A suite in figures.
pub(crate) struct Score {
    pub(crate) name: &'static str,
    pub(crate) aim: Aim,
    pub(crate) machines: usize,
    pub(crate) machine_hours: f64,
    /// From the onset to the first change that was asked for a victim's sake, by victim that can be relieved; `None` for never.
    pub(crate) detected: Vec<Option<Duration>>,
    /// From the onset to relief, likewise.
    pub(crate) relieved: Vec<Option<Duration>>,
    pub(crate) made: usize,
    pub(crate) wrong: usize,
    /// The same by the stricter count.
    pub(crate) wrong_then: usize,
    pub(crate) undone: usize,
    pub(crate) moves: usize,
    /// Looks at changes in force with a target that was to blame, and those at changes that did nothing for their victim.
    pub(crate) held: usize,
    pub(crate) held_in_vain: usize,
    pub(crate) ping_pong: usize,
    /// Most changes and undos in any minute.
    pub(crate) busiest_minute: usize,
    /// Mean p99 in ms of the victims (of all services where there are none), with nothing at the knobs, the rebalancer, the oracle.
    pub(crate) p99_ms: [f64; 3],
    /// Mean p99 of all services in relation to doing nothing: over the suite, and of the worst seed.
    pub(crate) ratio: f64,
    pub(crate) ratio_worst: f64,
    pub(crate) worst_seed: u64,
    /// Seeds with which it is more than [`WORSE_MAX`], and by how much.
    pub(crate) worse: Vec<(u64, f64)>,
    /// In some case the oracle was slower than doing nothing.
    pub(crate) oracle_worse: bool,
}

/// Lives through all cases of a suite with the rebalancer.
pub(crate) fn score(suite: &Suite, cases: &[Case], settings: &Settings) -> Score {
    let mut score = Score {
        name: suite.name,
        aim: suite.aim,
        machines: 0,
        machine_hours: 0.0,
        detected: Vec::new(),
        relieved: Vec::new(),
        made: 0,
        wrong: 0,
        wrong_then: 0,
        undone: 0,
        moves: 0,
        held: 0,
        held_in_vain: 0,
        ping_pong: 0,
        busiest_minute: 0,
        p99_ms: [0.0; 3],
        ratio: 0.0,
        ratio_worst: 0.0,
        worst_seed: 0,
        worse: Vec::new(),
        oracle_worse: false,
    };
    for case in cases {
        score.add(case, &case.with(settings), cases.len() as f64);
    }
    score
}

impl Score {
    fn add(&mut self, case: &Case, log: &Log, seeds: f64) {
        self.machines += 1;
        self.machine_hours += case.trial.end.as_secs_f64() / 3600.0;
        for victim in &case.trial.victims {
            self.add_victim(case, log, *victim);
        }
        self.made += log.made.len();
        self.wrong += log.made.iter().filter(|made| !made.is_right).count();
        self.wrong_then += log.made.iter().filter(|made| !made.is_right_then).count();
        self.undone += log.undone_at.len();
        self.held += log.held;
        self.held_in_vain += log.held_in_vain;
        self.moves += log.made.iter().filter(|made| !made.proposal.leave.is_empty()).count();
        self.ping_pong += ping_pong(log);
        self.busiest_minute = self.busiest_minute.max(busiest(&log.changed_at));
        let of: Vec<ContainerId> = match case.trial.victims.as_slice() {
            [] => case.nothing.p99s.keys().copied().collect(),
            victims => victims.to_vec(),
        };
        let logs = [&case.nothing, log, &case.oracle];
        for (sum, log) in self.p99_ms.iter_mut().zip(logs) {
            *sum += 1000.0 * mean_of(log, &of) / seeds;
        }
        let all: Vec<ContainerId> = case.nothing.p99s.keys().copied().collect();
        let ratio = mean_of(log, &all) / mean_of(&case.nothing, &all);
        self.ratio += ratio / seeds;
        if ratio > self.ratio_worst {
            (self.ratio_worst, self.worst_seed) = (ratio, case.seed);
        }
        if ratio > WORSE_MAX {
            self.worse.push((case.seed, ratio));
        }
        self.oracle_worse |= mean_of(&case.oracle, &all) > 1.001 * mean_of(&case.nothing, &all);
    }

    fn add_victim(&mut self, case: &Case, log: &Log, victim: ContainerId) {
        let Some(relief) = relief_of(case, log, victim) else { return };
        let asked = log.asked.iter().filter(|(_, it)| *it == victim).map(|(at, _)| *at);
        let first = asked.into_iter().find(|at| *at > case.trial.onset);
        self.detected.push(first.map(|at| at - case.trial.onset));
        self.relieved.push(relief);
    }

    /// With another range of seeds of the same suite.
    pub(crate) fn merge(&mut self, other: Score) {
        let (own, others) = (self.machines as f64, other.machines as f64);
        let mean = |a: f64, b: f64| (a * own + b * others) / (own + others);
        self.ratio = mean(self.ratio, other.ratio);
        for (own, other) in self.p99_ms.iter_mut().zip(other.p99_ms) {
            *own = mean(*own, other);
        }
        if other.ratio_worst > self.ratio_worst {
            (self.ratio_worst, self.worst_seed) = (other.ratio_worst, other.worst_seed);
        }
        self.machines += other.machines;
        self.machine_hours += other.machine_hours;
        self.detected.extend(other.detected);
        self.relieved.extend(other.relieved);
        self.made += other.made;
        self.wrong += other.wrong;
        self.wrong_then += other.wrong_then;
        self.undone += other.undone;
        self.moves += other.moves;
        self.held += other.held;
        self.held_in_vain += other.held_in_vain;
        self.ping_pong += other.ping_pong;
        self.busiest_minute = self.busiest_minute.max(other.busiest_minute);
        self.worse.extend(other.worse);
        self.oracle_worse |= other.oracle_worse;
    }

    /// Share of the victims that were relieved in time; `None` where none could be.
    pub(crate) fn relieved_in_time(&self) -> Option<f64> {
        let in_time = self.relieved.iter().flatten().filter(|time| **time <= RELIEF_WITHIN).count();
        (!self.relieved.is_empty()).then(|| in_time as f64 / self.relieved.len() as f64)
    }

    pub(crate) fn wrong_per_day(&self) -> f64 {
        self.wrong as f64 * 24.0 / self.machine_hours
    }

    /// Goals that were not reached.
    pub(crate) fn misses(&self, settings: &Settings) -> Vec<Miss> {
        let mut misses = Vec::new();
        let mut miss = |is_missed: bool, goal: Goal, text: String| {
            if is_missed {
                misses.push(Miss { suite: self.name, goal, text });
            }
        };
        let share = self.relieved_in_time();
        let shows_nothing = self.aim == Aim::Relief && share.is_none();
        let percent = 100.0 * share.unwrap_or(1.0);
        let victims = self.relieved.len();
        miss(
            shows_nothing || percent < 100.0 * RELIEVED_MIN,
            Goal::Relief,
            format!("{percent:.0} % of {victims} victims relieved within 30 s"),
        );
        let per_day = self.wrong_per_day();
        miss(
            per_day > FALSE_MAX,
            Goal::False,
            format!("{per_day:.1} false actions per machine-day"),
        );
        let worse = 100.0 * (self.ratio - 1.0);
        miss(self.ratio > WORSE_MAX, Goal::Harm, format!("p99 {worse:.1} % above doing nothing"));
        let again = self.ping_pong as f64 / self.machine_hours;
        miss(
            again > PING_PONG_MAX_PER_HOUR,
            Goal::Calm,
            format!("{again:.1} times to and fro per hour"),
        );
        let in_vain = self.held_in_vain as f64 / self.held.max(1) as f64;
        let percent = 100.0 * in_vain;
        miss(
            in_vain > IN_VAIN_MAX,
            Goal::InVain,
            format!("{percent:.0} % of what is in force is in vain"),
        );
        let busiest = self.busiest_minute;
        let budget = settings.changes_per_minute as usize;
        miss(busiest > budget, Goal::Budget, format!("{busiest} changes in a minute"));
        miss(
            self.oracle_worse,
            Goal::Oracle,
            "the oracle does worse than doing nothing".to_owned(),
        );
        misses
    }
}

/// What every suite has to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// 95 % of the victims that can be relieved are within 30 s.
    Relief,
    /// No more than one false action in a machine's day.
    False,
    /// p99 of all services no more than 2 % above doing nothing.
    Harm,
    /// No change is made again and again.
    Calm,
    /// No more than a quarter of what is in force does nothing for its victim.
    InVain,
    /// No more changes and undos in any minute than the settings allow.
    Budget,
    /// The oracle is one.
    Oracle,
}

/// A goal that was not reached.
pub(crate) struct Miss {
    pub(crate) suite: &'static str,
    pub(crate) goal: Goal,
    pub(crate) text: String,
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}: {}", self.suite, self.goal, self.text)
    }
}

/// When a victim is relieved, `None` inside for never; `None` outside where the oracle could not do much for it.
pub(crate) fn relief_of(case: &Case, log: &Log, victim: ContainerId) -> Option<Option<Duration>> {
    let of = |log: &Log| log.p99s.get(&victim).cloned().unwrap_or_default();
    let [nothing, bayplan, oracle, alone] = [&case.nothing, log, &case.oracle, &case.alone].map(of);
    // The oracle may also make a victim faster than it ever was. What others do to it is over before that.
    let aim: Vec<f64> = oracle.iter().zip(&alone).map(|(a, b)| a.max(*b)).collect();
    (mean(&nothing) >= SOLVABLE * mean(&aim)).then(|| relief(&nothing, &bayplan, &aim))
}

/// Relief that came too late, or never.
pub(crate) fn is_late(relief: Option<Duration>) -> bool {
    relief.is_none_or(|time| time > RELIEF_WITHIN)
}

/// How long there was a gap until three quarters of it were closed for three rounds that had one.
fn relief(nothing: &[f64], bayplan: &[f64], oracle: &[f64]) -> Option<Duration> {
    let mut closed = 0;
    let rounds = nothing.iter().zip(bayplan).zip(oracle);
    let with_gap = rounds.filter(|((nothing, _), oracle)| **nothing >= SOLVABLE * **oracle);
    for (round, ((nothing, bayplan), oracle)) in with_gap.enumerate() {
        closed = if nothing - bayplan >= CLOSED * (nothing - oracle) { closed + 1 } else { 0 };
        if closed == ROUNDS {
            // The first round counts, too, though the oracle has not done anything in it.
            return Some(PERIOD * u32::try_from(round + 2 - ROUNDS).unwrap_or(u32::MAX));
        }
    }
    None
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn mean_of(log: &Log, ids: &[ContainerId]) -> f64 {
    let means: Vec<f64> =
        ids.iter().filter_map(|id| log.p99s.get(id)).map(|p99s| mean(p99s)).collect();
    mean(&means)
}

/// How often a change is made again soon after it was taken back.
fn ping_pong(log: &Log) -> usize {
    let mut last = BTreeMap::new();
    let mut count = 0;
    for Made { at, proposal, .. } in &log.made {
        let key = (proposal.knob, proposal.target, proposal.step, proposal.evidence.victim);
        let before = last.insert(key, proposal.number);
        let ended = before.and_then(|number| log.undone_at.get(&number));
        count += usize::from(ended.is_some_and(|ended| *at < *ended + PING_PONG));
    }
    count
}

fn busiest(changed_at: &[Duration]) -> usize {
    let minute = Duration::from_secs(60);
    let within = |from: &Duration| {
        changed_at.iter().filter(|at| *at >= from && **at - *from < minute).count()
    };
    changed_at.iter().map(within).max().unwrap_or(0)
}
