//! What a proposal turned out to be worth. In: the trouble before, and the rounds after. Out: a verdict, or that it is too early for one.
//!
//! Each signal has one vote between -1 and 1: which part of the gap between trouble and limit was closed, by medians. What is within the noise is no change, and a gap smaller than the noise counts
//! as one of that size. So neither one signal that is far off decides, nor chance; and what is too high only since then votes against it. What looks like relief and may be chance is looked at once more, after nearly as many rounds again.

use std::collections::BTreeMap;
use std::time::Duration;

use bayplan_allocator::ContainerId;

use crate::detect::{self, Condition, Judge};
use crate::knob::Knob;
use crate::ladder;
use crate::path::{Path, path};
use crate::proposal::{Evidence, Finding, Proposal, SignalChange, Verdict};
use crate::sample::{Sample, Signal};
use crate::scene::{Resident, Scene};
use crate::standing::Standing;

/// So many standard deviations between the medians of three rounds before and after are chance: one time in fourteen it is more, and where what may be chance is looked at
/// once more, after five, one in twelve.
const CHANCE: f64 = 1.5;
/// No signal varies less than by this share of its value from round to round, however alike some of them were.
const SPREAD_MIN: f64 = 0.03;

/// So many times its limit a signal counts at most when gains and losses are compared, so that one that is far off does not outweigh all others.
pub(crate) const SEVERITY_MAX: f64 = 10.0;

/// What has become of one signal: which part of its gap was closed, -1 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Vote {
    /// As it looks.
    seen: f64,
    /// 0 where that may be chance.
    sure: f64,
    /// The signal before and since then.
    change: SignalChange,
}

/// What has become of all signals: the means of their votes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Relief {
    /// As it looks.
    pub(crate) seen: f64,
    /// Without what may be chance.
    sure: f64,
    /// The signal that spoke against it most.
    pub(crate) worse: Option<SignalChange>,
}

/// What comes of looking at a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Look {
    /// That is its verdict.
    Decided(Verdict),
    /// It looks as if this part of the gap was closed, and that may be chance.
    Undecided {
        /// -1 to 1.
        seen: f64,
    },
}

/// Rounds of one container, newest first.
type Rounds<'a> = [Option<&'a Sample>];

impl Judge<'_> {
    /// Looks at a change made at `since`; `None` as long as too few rounds have passed.
    pub(crate) fn look(
        &self,
        standing: &Standing,
        victim: &Resident,
        since: Duration,
    ) -> Option<Look> {
        let proposal = &standing.proposal;
        let Proposal { evidence, target, .. } = proposal;
        let settings = self.settings;
        let after: Vec<Option<&Sample>> =
            self.windows.after(evidence.victim, since).take(2 * settings.settle).collect();
        let least = settings.relief_min * share(evidence, *target);
        // Where more than half of the rounds agree about every signal, the others cannot change the middle one of any. Only against it: harm to others shows later.
        let is_clear = settings.parts.verdict
            && after.len() * 2 > settings.settle
            && after.iter().all(|round| {
                let votes = self.votes(proposal, std::slice::from_ref(round));
                let votes: Vec<f64> = votes.map(|it| it.sure).collect();
                all_below(&votes, least)
            });
        if after.len() < settings.settle && !is_clear {
            return None;
        }
        // Two looks and no more: one at each round would find chance now and then. An odd number of rounds has a middle one.
        let is_last = after.len() + 1 >= 2 * settings.settle;
        let first = after.len().checked_sub(settings.settle).filter(|newer| *newer > 0);
        let first = first.and_then(|newer| self.relief(standing, victim, after.get(newer..)?));
        let decided = |Relief { seen, sure: relief, worse }| match relief >= least
            || !settings.parts.verdict
        {
            true => Some(Verdict::Kept { relief }),
            false => (seen < least).then_some(Verdict::Useless { relief, worse }),
        };
        // It stands, also where nothing came of it yet because as much was changed as may be in a minute.
        if let Some(verdict) = first.and_then(decided) {
            return Some(Look::Decided(verdict));
        }
        if let Some(Relief { seen, .. }) = first.filter(|_| !is_last) {
            return Some(Look::Undecided { seen });
        }
        let Some(all) = self.relief(standing, victim, &after) else {
            let is_hopeless = after.len() >= 2 * settings.settle;
            return is_hopeless.then_some(Look::Decided(Verdict::Unknown));
        };
        let Relief { seen, sure: relief, worse } = all;
        let last = is_last.then_some(Verdict::Useless { relief, worse });
        let verdict = decided(all).or(last);
        Some(verdict.map_or(Look::Undecided { seen }, Look::Decided))
    }

    /// What has become of the signals in the last rounds; `None` as long as they are not all of the place that it has since then.
    pub(crate) fn relief_lately(&self, standing: &Standing, victim: &Resident) -> Option<Relief> {
        let proposal = &standing.proposal;
        let since = victim.since.max(proposal.at);
        let rounds = self.windows.of(proposal.evidence.victim, since);
        let rounds: Vec<Option<&Sample>> = rounds.take(2 * self.settings.settle).collect();
        let is_enough = rounds.len() >= 2 * self.settings.settle;
        self.relief(standing, victim, &rounds).filter(|_| is_enough)
    }

    /// The votes of all signals that the knob is for, and of those that are too high only since then: -1 to 1. `None` where none of the former was measured.
    fn relief(&self, standing: &Standing, victim: &Resident, after: &Rounds<'_>) -> Option<Relief> {
        let mut votes: Vec<Vote> = self.votes(&standing.proposal, after).collect();
        if votes.is_empty() {
            return None;
        }
        votes.extend(self.new_troubles(standing, victim, after));
        let mean =
            |vote: fn(&Vote) -> f64| votes.iter().map(vote).sum::<f64>() / votes.len() as f64;
        let against = votes.iter().min_by(|a, b| a.sure.total_cmp(&b.sure));
        let worse = against.filter(|it| it.sure < 0.0).map(|it| it.change);
        Some(Relief { seen: mean(|it| it.seen), sure: mean(|it| it.sure), worse })
    }

    /// Of the signals that were found and that the knob is for.
    fn votes(&self, proposal: &Proposal, after: &Rounds<'_>) -> impl Iterator<Item = Vote> {
        let signals = ladder::signals(proposal.knob);
        let found = proposal.evidence.findings.iter();
        let found = found.filter(move |it| signals.contains(&it.signal));
        found.filter_map(|it| vote(it, after))
    }

    /// All signals of a container in the last rounds of the short window, the worse of two.
    pub(crate) fn lately_shown(&self, id: ContainerId) -> BTreeMap<Signal, f64> {
        let rounds = self.windows.of(id, Duration::ZERO).take(self.settings.short);
        let rounds: Vec<Option<&Sample>> = rounds.collect();
        let shown = |signal| Some((signal, middle(signal, &rounds)?));
        Signal::ALL.into_iter().filter_map(shown).collect()
    }

    /// Votes against it of signals that were not found before, and that others can be to blame for, as far as they are above their limits since then: 0 to -1 at twice the limit. On fewer CPUs those count, too, that were
    /// too high before and that the knob is not for, found or not, as far as they are worse; and those that were not measured before were at the limit.
    fn new_troubles(
        &self,
        standing: &Standing,
        victim: &Resident,
        after: &Rounds<'_>,
    ) -> impl Iterator<Item = Vote> {
        let key = detect::key(self.topology, victim);
        let Standing { proposal, before: shown, .. } = standing;
        let evidence = &proposal.evidence;
        let is_gather = proposal.knob == Knob::Gather;
        let before = self.windows.until(evidence.victim, proposal.at);
        let before: Vec<Option<&Sample>> = before.take(self.settings.short).collect();
        let found = |signal| evidence.findings.iter().find(|it| it.signal == signal);
        let is_voter = |signal| ladder::signals(proposal.knob).contains(&signal);
        let counts = move |it: &Signal| {
            path(*it) != Path::Own && (found(*it).is_none() || (is_gather && !is_voter(*it)))
        };
        Signal::ALL.into_iter().filter(counts).filter_map(move |signal| {
            let (limit, _) = self.limit(&key, signal)?;
            let now = middle(signal, after)?;
            let (was, base, spread) = match found(signal) {
                Some(it) => (it.short, it.short.max(limit), it.spread),
                // However long ago that was.
                None if is_gather => {
                    let was = shown.get(&signal).copied().unwrap_or(limit);
                    (was, was.max(limit), 0.0)
                }
                None => (middle(signal, &before)?, limit, 0.0),
            };
            let chance = CHANCE * noise(spread, now, signal, after);
            let chance = chance.max(grain(signal, now, limit, after));
            let is_new = now > base && was <= base && now - was > chance;
            let against = -((now - base) / limit).min(1.0);
            let change = SignalChange { signal, was, now };
            is_new.then_some(Vote { seen: against, sure: against, change })
        })
    }
}

/// There are votes, and none is for it. Their mean would not do: of two signals each may be better in another round, and both in the end.
fn all_below(votes: &[f64], least: f64) -> bool {
    !votes.is_empty() && votes.iter().all(|vote| *vote < least)
}

/// Which part of the gap between trouble and limit was closed; below 0 where the gap has grown.
fn vote(finding: &Finding, after: &Rounds<'_>) -> Option<Vote> {
    let now = middle(finding.signal, after)?;
    let chance = CHANCE * noise(finding.spread, finding.short, finding.signal, after);
    let chance = chance.max(grain(finding.signal, finding.short.max(now), finding.limit, after));
    let closed = finding.short - now;
    let seen = (closed / (finding.short - finding.limit).max(chance)).clamp(-1.0, 1.0);
    let sure = if closed.abs() > chance { seen } else { 0.0 };
    let change = SignalChange { signal: finding.signal, was: finding.short, now };
    Some(Vote { seen, sure, change }).filter(|it| it.seen.is_finite())
}

/// What a signal may have changed by where nothing has: delays are counted by powers of two, and told as the upper end. Where no round since then is above the
/// limit it is well, whatever the step was.
fn grain(signal: Signal, value: f64, limit: f64, after: &Rounds<'_>) -> f64 {
    let mut values = after.iter().flatten().filter_map(|it| detect::value(signal, it));
    match signal {
        Signal::Delay if values.any(|it| it > limit) => value / 2.0,
        _ => 0.0,
    }
}

/// About a standard deviation of a signal: as it was before, as it is since then, or the least that is believed.
fn noise(before: f64, value: f64, signal: Signal, after: &Rounds<'_>) -> f64 {
    let values = after.iter().flatten().filter_map(|it| detect::value(signal, it));
    detect::spread(values).max(before).max(SPREAD_MIN * value)
}

/// The median of a signal; of two the worse one, which of every signal is the higher one, so that no single round makes a change look good.
fn middle(signal: Signal, rounds: &Rounds<'_>) -> Option<f64> {
    let negated = |sample| detect::value(signal, sample).map(|it| -it);
    let values: Vec<Option<f64>> = rounds.iter().map(|it| it.and_then(negated)).collect();
    detect::median(values.iter()).map(|it| -it)
}

/// The part of the trouble that a target can be blamed for: its share of what all culprits with the same tie do. Of three that do the same, one can be asked for a
/// third of the relief, or none of them would ever be worth it.
fn share(evidence: &Evidence, target: ContainerId) -> f64 {
    let Some(own) = evidence.culprits.iter().find(|it| it.container == target) else { return 1.0 };
    let same = evidence.culprits.iter().filter(|it| it.tie == own.tie);
    own.magnitude / same.map(|it| it.magnitude).sum::<f64>().max(f64::MIN_POSITIVE)
}

/// How much more than in the worst round before a change those in its domain suffer that are no less important than its victim; below 0 where even
/// the worst round since then is better. In multiples of a limit.
pub(crate) fn losses(
    scene: &Scene,
    standing: &Standing,
    conditions: &BTreeMap<ContainerId, Condition>,
) -> Vec<(ContainerId, f64)> {
    let victim = standing.proposal.evidence.victim;
    let importance = scene.residents.get(&victim).and_then(|it| it.qos);
    let counts = |id: &ContainerId| {
        let resident = scene.residents.get(id).filter(|_| *id != victim);
        resident.is_some_and(|it| it.qos >= importance && it.cpus.intersects(&standing.domain.cpus))
    };
    let bound = |severity: f64| severity.clamp(1.0, SEVERITY_MAX);
    let loss = |(id, now): (&ContainerId, &Condition)| {
        let before = bound(standing.ill_before.get(id).copied().unwrap_or(1.0));
        let (sure, worst) = (bound(now.severity()), bound(now.worst));
        (*id, (sure - before).max(0.0) - (before - worst).max(0.0))
    };
    conditions.iter().filter(|(id, _)| counts(id)).map(loss).collect()
}

/// The one that lost most, where all others together lost more than the victim gained; what some of them gained is below 0. All in multiples of a
/// limit.
pub(crate) fn worst_off(losses: &[(ContainerId, f64)], gain: f64) -> Option<ContainerId> {
    let sum: f64 = losses.iter().map(|(_, loss)| loss).sum();
    let worst = losses.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    worst.filter(|(_, loss)| *loss > 0.0 && sum > gain.max(0.0)).map(|(id, _)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposal::{Culprit, Tie};

    /// The vote of a pressure that was at `short` with a limit of 0.2, by what it is after.
    fn check_vote(short: f64, spread: f64, after: &[f64], expected: f64) {
        let (signal, limit) = (Signal::CpuPressure, 0.2);
        let finding = Finding { signal, short, long: short, usual: None, limit, spread };
        let sample = |it: &f64| Sample { cpu_pressure: Some(*it), ..Sample::default() };
        let samples: Vec<Sample> = after.iter().map(sample).collect();
        let rounds: Vec<Option<&Sample>> = samples.iter().map(Some).collect();
        let vote = vote(&finding, &rounds).unwrap().sure;
        assert!((vote - expected).abs() < 0.01, "{vote}");
    }

    #[test]
    fn a_vote_is_the_part_of_the_gap_that_was_closed() {
        check_vote(0.6, 0.0, &[0.4, 0.4, 0.4], 0.5);
        check_vote(0.6, 0.0, &[0.45, 0.2, 0.4], 0.5);
        check_vote(0.6, 0.0, &[0.9, 0.9, 0.9], -0.75);
    }

    #[test]
    fn of_two_rounds_the_worse_one_counts() {
        check_vote(0.6, 0.0, &[0.2, 0.6], 0.0);
        check_vote(0.6, 0.0, &[0.4, 0.2], 0.5);
        check_vote(0.6, 0.0, &[0.38, 0.40, 0.36, 0.41], 0.5);
    }

    #[test]
    fn a_round_is_only_against_it_where_every_signal_is() {
        for (votes, expected) in
            [(&[0.1, -1.0][..], true), (&[1.0, -1.0], false), (&[0.25, 0.0], false), (&[], false)]
        {
            assert_eq!(all_below(votes, 0.25), expected, "{votes:?}");
        }
    }

    #[test]
    fn no_vote_counts_for_more_than_one() {
        check_vote(0.6, 0.0, &[0.0, 0.0, 0.0], 1.0);
        check_vote(0.21, 0.0, &[0.9, 0.9, 0.9], -1.0);
    }

    #[test]
    fn what_may_be_chance_is_no_change() {
        check_vote(0.6, 0.0, &[0.58, 0.58, 0.58], 0.0);
        check_vote(0.6, 0.2, &[0.4, 0.4, 0.4], 0.0);
        check_vote(0.6, 0.0, &[0.7, 0.4, 0.2], 0.0);
        // Nearly nothing was wrong, and nearly nothing has changed.
        check_vote(0.201, 0.0, &[0.196, 0.196, 0.196], 0.0);
        check_vote(0.201, 0.0, &[0.19, 0.19, 0.19], 1.0);
    }

    fn check_worst_off(losses: &[(u64, f64)], gain: f64, expected: Option<u64>) {
        let losses: Vec<_> = losses.iter().map(|(id, loss)| (ContainerId(*id), *loss)).collect();
        assert_eq!(worst_off(&losses, gain), expected.map(ContainerId));
    }

    #[test]
    fn the_greatest_loss_speaks_against_it_where_more_was_lost_than_gained() {
        check_worst_off(&[], 1.0, None);
        check_worst_off(&[(2, 0.5), (3, 0.4)], 1.0, None);
        check_worst_off(&[(2, 0.5), (3, 0.9)], 1.0, Some(3));
        check_worst_off(&[(2, 1.5), (3, 2.5), (4, 1.1)], 1.0, Some(3));
    }

    #[test]
    fn what_others_gain_counts_as_what_the_victim_does() {
        check_worst_off(&[(2, 1.5), (3, -1.0)], 1.0, None);
        check_worst_off(&[(2, 2.5), (3, -1.0)], 1.0, Some(2));
        check_worst_off(&[(3, -1.0)], -1.0, None);
    }

    #[test]
    fn where_nothing_was_gained_only_losses_count() {
        check_worst_off(&[(2, -0.5), (3, 0.0)], -1.0, None);
        check_worst_off(&[(2, 0.1)], -1.0, Some(2));
    }

    /// Culprits as tie and magnitude, numbered from 2; the first of them is the target.
    fn check_share(culprits: &[(Tie, f64)], target: u64, expected: f64) {
        let culprits = (2..).map(ContainerId).zip(culprits);
        let culprits = culprits.map(|(container, (tie, magnitude))| Culprit {
            tie: *tie,
            correlation: 0.0,
            class: std::cmp::Reverse(bayplan_types::QosClass::BestEffort),
            magnitude: *magnitude,
            container,
        });
        let victim = ContainerId(1);
        let evidence = Evidence { victim, findings: Vec::new(), culprits: culprits.collect() };
        let share = share(&evidence, ContainerId(target));
        assert!((share - expected).abs() < 1e-9, "{share}");
    }

    #[test]
    fn of_several_culprits_each_is_asked_for_its_part() {
        check_share(&[(Tie::Cpu, 3.0)], 2, 1.0);
        check_share(&[(Tie::Cpu, 3.0), (Tie::Cpu, 1.0)], 2, 0.75);
        check_share(&[(Tie::Cpu, 3.0), (Tie::L3, 1e9)], 2, 1.0);
    }

    #[test]
    fn a_container_that_is_no_culprit_is_asked_for_all_of_it() {
        check_share(&[(Tie::Cpu, 3.0)], 1, 1.0);
        check_share(&[], 1, 1.0);
    }
}
