//! One seed, with each hand.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_plant::Plant;
use bayplan_rebalance::{Knob, Proposal, Rebalancer, Settings};

use crate::PERIOD;
use crate::hand::{Change, Hand};
use crate::oracle;
use crate::suites::{Suite, Trial};

/// Rounds before an action that tell whether it was right.
const PAST: usize = 12;
/// How much better things have to be without the culprit for an action against it to be right.
const WORTH: f64 = 1.1;
/// Without a change that is in vain no container is slower by more than this.
const NO_HARM: f64 = 1.02;
/// Rounds between looks at what is in force.
const LOOK_EVERY: u32 = 24;

/// What happened to one machine under one hand.
#[derive(Default)]
pub(crate) struct Log {
    /// p99 in seconds of every service, from the onset on, round by round.
    pub(crate) p99s: BTreeMap<ContainerId, Vec<f64>>,
    pub(crate) made: Vec<Made>,
    /// When something was asked for, refused or not, and for which victim.
    pub(crate) asked: Vec<(Duration, ContainerId)>,
    /// Changes and undos.
    pub(crate) changed_at: Vec<Duration>,
    /// By number.
    pub(crate) undone_at: BTreeMap<u64, Duration>,
    /// How often a change that was in force was looked at while its target was to blame, and how often it was in vain.
    pub(crate) held: usize,
    pub(crate) held_in_vain: usize,
    /// Everything that was decided, for people.
    pub(crate) story: String,
}

/// A change that was made.
pub(crate) struct Made {
    pub(crate) at: Duration,
    pub(crate) proposal: Box<Proposal>,
    /// Whether it was made against a container that was to blame.
    pub(crate) is_right: bool,
    /// The same by the stricter count, with every container where it was in the minute before.
    pub(crate) is_right_then: bool,
}

/// One seed, and how it goes with nothing at the knobs and with the oracle.
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) trial: Trial,
    pub(crate) nothing: Log,
    pub(crate) oracle: Log,
    /// How it goes without the culprit; with the oracle where there is none.
    pub(crate) alone: Log,
    /// What the oracle does.
    pub(crate) best: Vec<Proposal>,
}

impl Case {
    pub(crate) fn new(suite: &Suite, seed: u64) -> Case {
        let trial = (suite.trial)(seed);
        let nothing = live(&trial, Hand::Absent);
        let best = oracle::choose(&trial);
        let oracle = live(&trial, Hand::Oracle(&best));
        let alone = match trial.culprit {
            Some(culprit) => {
                let plant = trial.plant.without(culprit);
                live(&Trial { plant, victims: trial.victims.clone(), ..trial }, Hand::Absent)
            }
            None => live(&trial, Hand::Oracle(&best)),
        };
        Case { seed, trial, nothing, oracle, alone, best }
    }

    /// How it goes with the rebalancer.
    pub(crate) fn with(&self, settings: &Settings) -> Log {
        live(&self.trial, Hand::Rebalancer(Box::new(Rebalancer::new(settings.clone()))))
    }
}

fn live(trial: &Trial, mut hand: Hand<'_>) -> Log {
    let mut plant = trial.plant.clone();
    let mut log = Log::default();
    let mut past: VecDeque<Plant> = VecDeque::new();
    let is_judged = matches!(hand, Hand::Rebalancer(_));
    for number in 1.. {
        if plant.now() >= trial.end {
            break;
        }
        if is_judged {
            past.push_back(plant.clone());
            if past.len() > PAST {
                past.pop_front();
            }
        }
        let round = plant.step(PERIOD);
        let is_on = plant.now() > trial.onset;
        if is_on {
            for (id, truth) in plant.truths() {
                if let Some(p99) = truth.p99 {
                    log.p99s.entry(*id).or_default().push(p99.as_secs_f64());
                }
            }
        }
        for change in hand.act(&mut plant, &round, is_on) {
            log.add(trial, &plant, past.front(), change);
        }
        if is_judged && number % LOOK_EVERY == 0 {
            log.look_at_what_holds(&plant);
        }
    }
    log
}

impl Log {
    fn look_at_what_holds(&mut self, plant: &Plant) {
        let in_force = plant.in_force().filter(|it| it.target != it.evidence.victim);
        for is_in_vain in in_force.filter_map(|proposal| is_in_vain(plant, proposal)) {
            self.held += 1;
            self.held_in_vain += usize::from(is_in_vain);
        }
    }

    fn add(&mut self, trial: &Trial, plant: &Plant, past: Option<&Plant>, change: Change) {
        let at = plant.now();
        let seconds = at.as_secs_f64() - trial.onset.as_secs_f64();
        let told = match change {
            Change::Made(proposal) => {
                let judged = |places| past.is_none_or(|it| is_right(it, plant, &proposal, places));
                let [is_right, is_right_then] = [Places::Now, Places::Then].map(judged);
                let told =
                    format!("{}{}", told(plant, &proposal), if is_right { "" } else { ", WRONG" });
                self.changed_at.push(at);
                self.asked.push((at, proposal.evidence.victim));
                self.made.push(Made { at, proposal, is_right, is_right_then });
                told
            }
            Change::Undone(number, verdict) => {
                self.changed_at.push(at);
                self.undone_at.insert(number, at);
                format!("#{number} undone: {verdict:?}")
            }
            Change::Kept(number, verdict) => format!("#{number} stays: {verdict:?}"),
            Change::Refused(proposal, why) => {
                self.asked.push((at, proposal.evidence.victim));
                format!("{}, refused: {why}", told(plant, &proposal))
            }
        };
        let _ = writeln!(self.story, "{seconds:>7.0} s  {told}");
    }
}

fn told(plant: &Plant, proposal: &Proposal) -> String {
    let name = |id| plant.tenants().get(&id).map_or("?", |tenant| tenant.name.as_str());
    let evidence = &proposal.evidence;
    let p99 = plant.truths().get(&evidence.victim).and_then(|truth| truth.p99).unwrap_or_default();
    let mut told = format!(
        "#{} {} {} of {} for {} (p99 {:.1} ms)",
        proposal.number,
        proposal.knob.name(),
        proposal.step,
        name(proposal.target),
        name(evidence.victim),
        p99.as_secs_f64() * 1000.0
    );
    for finding in &evidence.findings {
        let usual = finding.usual.map_or("-".to_owned(), |usual| format!("{usual:.3}"));
        let _ = write!(told, "; {} {:.3} (usual {usual})", finding.signal.name(), finding.short);
    }
    for culprit in evidence.culprits.iter().take(2) {
        let (tie, correlation) = (culprit.tie, culprit.correlation);
        let _ = write!(told, "; {} by {tie:?}, {correlation:.2}", name(culprit.container));
    }
    told
}

/// Where containers are in the minute that is run again.
#[derive(Clone, Copy, PartialEq)]
enum Places {
    /// Where they are by now: one that was moved a moment ago does no harm any more where it was, and some where it is.
    Now,
    /// Where they were: what is done for a victim of one that has just come is false then, whatever it suffers.
    Then,
}

/// Whether the victim would have been a good deal better off over the last minute without the culprit.
/// For what is done to the victim itself: with it, provided that it is others, its own limit or far memory that it suffers from.
fn is_right(past: &Plant, now: &Plant, proposal: &Proposal, places: Places) -> bool {
    // What a container does to itself is as it is now, and there is no activity of another to look back at.
    let mut past = if proposal.knob == Knob::Gather { now.clone() } else { past.clone() };
    past.undo(proposal.number);
    if places == Places::Now {
        seat(&mut past, now, proposal.number);
    }
    let victim = proposal.evidence.victim;
    // It takes a minute until memory is where it is to be.
    let settle = if proposal.knob == Knob::Memory { PAST } else { 2 };
    let as_was = p99_over(past.clone(), victim, settle);
    let is_better = |plant| p99_over(plant, victim, settle) * WORTH <= as_was;
    if proposal.target != victim {
        return is_better(past.without(proposal.target));
    }
    let mut turned = past.clone();
    turned.carry_out(proposal);
    let is_own = matches!(proposal.knob, Knob::Burst | Knob::Gather | Knob::Memory);
    let others = past.tenants().keys().filter(|id| **id != victim);
    let lonely = others.fold(past.clone(), |plant, other| plant.without(*other));
    is_better(turned) && (is_own || is_better(lonely))
}

/// Whether its victim would be no slower without a change, so that its target pays for nothing. `None` where that cannot be said: even without any change the target would do no harm now.
fn is_in_vain(plant: &Plant, proposal: &Proposal) -> Option<bool> {
    let p99 = |plant: Plant| p99_over(plant, proposal.evidence.victim, 2);
    let mut free = plant.clone();
    let of_target = plant.in_force().filter(|it| it.target == proposal.target);
    of_target.for_each(|it| free.undo(it.number));
    if p99(free) < WORTH * p99(plant.without(proposal.target)) {
        return None;
    }
    let mut without = plant.clone();
    without.undo(proposal.number);
    Some(p99(without) <= NO_HARM * p99(plant.clone()))
}

/// Puts every container where it is by now without one proposal.
fn seat(past: &mut Plant, now: &Plant, but: u64) {
    let moves = |plant: &Plant| -> BTreeMap<u64, Proposal> {
        let all = plant.in_force().filter(|it| !it.leave.is_empty() && it.number != but);
        all.map(|it| (it.number, it.clone())).collect()
    };
    let (before, after) = (moves(past), moves(now));
    before.keys().filter(|it| !after.contains_key(it)).for_each(|number| past.undo(*number));
    for proposal in after.values().filter(|it| !before.contains_key(&it.number)) {
        past.carry_out(proposal);
    }
}

/// Mean p99 of `id` over ten rounds after the first few, in which things settle.
fn p99_over(mut plant: Plant, id: ContainerId, settle: usize) -> f64 {
    let p99s = (0..settle + PAST - 2).map(|_| {
        plant.step(PERIOD);
        plant.truths().get(&id).and_then(|truth| truth.p99).map_or(0.0, |p99| p99.as_secs_f64())
    });
    p99s.skip(settle).sum::<f64>() / (PAST - 2) as f64
}
