//! What a proposal turned out to be worth. In: the trouble before, and the rounds after. Out: a verdict, or that it is too early for one.

use std::time::Duration;

use bayplan_allocator::ContainerId;

use crate::detect::{self, Judge};
use crate::knob::Knob;
use crate::ladder;
use crate::proposal::{Evidence, Proposal, Verdict};
use crate::sample::Sample;

impl Judge<'_> {
    /// The verdict on a change made at `since`; `None` as long as too few rounds have passed.
    pub(crate) fn verdict(&self, proposal: &Proposal, since: Duration) -> Option<Verdict> {
        let Proposal { evidence, target, knob, .. } = proposal;
        let settings = self.settings;
        let after: Vec<Option<&Sample>> = self.windows.of(evidence.victim, since).collect();
        let least = settings.relief_min * share(evidence, *target);
        let is_useless = |rounds: &[Option<&Sample>]| {
            self.relief(evidence, *knob, rounds).is_some_and(|relief| relief < least)
        };
        // Where more than half of the rounds agree, the others cannot change the middle one any more. Only against it: harm to others shows later.
        let is_clear = settings.parts.verdict
            && after.len() * 2 > settings.settle
            && after.iter().all(|round| is_useless(std::slice::from_ref(round)));
        if after.len() < settings.settle && !is_clear {
            return None;
        }
        let Some(relief) = self.relief(evidence, *knob, &after) else {
            return (after.len() >= 2 * settings.settle).then_some(Verdict::Unknown);
        };
        if relief < least && settings.parts.verdict {
            return Some(Verdict::Useless { relief });
        }
        Some(Verdict::Kept { relief })
    }

    /// The share of the gap between trouble and limits that was closed, all findings that the knob is for together, each in multiples of its limit.
    fn relief(&self, evidence: &Evidence, knob: Knob, after: &[Option<&Sample>]) -> Option<f64> {
        let (mut gap, mut closed) = (0.0, 0.0);
        let signals = ladder::signals(knob);
        for finding in evidence.findings.iter().filter(|it| signals.contains(&it.signal)) {
            let values: Vec<Option<f64>> = after
                .iter()
                .take(self.settings.settle)
                .map(|it| it.and_then(|sample| detect::value(finding.signal, sample)))
                .collect();
            let now = detect::median(values.iter())?;
            gap += (finding.short - finding.limit) / finding.limit;
            closed += (finding.short - now) / finding.limit;
        }
        (gap > 0.0).then(|| closed / gap).filter(|it| it.is_finite())
    }
}

/// The part of the trouble that a target can be blamed for: its share of what all culprits with the same tie do. Of three that do the same, one can be asked for a
/// third of the relief, or none of them would ever be worth it.
fn share(evidence: &Evidence, target: ContainerId) -> f64 {
    let Some(own) = evidence.culprits.iter().find(|it| it.container == target) else { return 1.0 };
    let same = evidence.culprits.iter().filter(|it| it.tie == own.tie);
    own.magnitude / same.map(|it| it.magnitude).sum::<f64>().max(f64::MIN_POSITIVE)
}

/// Who lost more than the victim gained, of those who lost anything; both in multiples of a limit.
pub(crate) fn worst_off(
    losses: impl Iterator<Item = (ContainerId, f64)>,
    gain: f64,
) -> Option<ContainerId> {
    losses
        .filter(|(_, loss)| *loss > gain.max(0.0))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposal::{Culprit, Tie};

    fn check_worst_off(losses: &[(u64, f64)], gain: f64, expected: Option<u64>) {
        let losses = losses.iter().map(|(id, loss)| (ContainerId(*id), *loss));
        assert_eq!(worst_off(losses, gain), expected.map(ContainerId));
    }

    #[test]
    fn who_lost_more_than_was_gained_speaks_against_it() {
        check_worst_off(&[], 1.0, None);
        check_worst_off(&[(2, 0.5), (3, 0.9)], 1.0, None);
        check_worst_off(&[(2, 1.5), (3, 2.5), (4, 1.1)], 1.0, Some(3));
    }

    #[test]
    fn where_nothing_was_gained_only_those_count_who_lost() {
        check_worst_off(&[(2, -0.5), (3, 0.0)], -1.0, None);
        check_worst_off(&[(2, 0.1)], -1.0, Some(2));
    }

    /// Culprits as tie and magnitude, numbered from 2; the first of them is the target.
    fn check_share(culprits: &[(Tie, f64)], target: u64, expected: f64) {
        let culprits = (2..).map(ContainerId).zip(culprits);
        let culprits = culprits.map(|(container, (tie, magnitude))| Culprit {
            tie: *tie,
            correlation: 0.0,
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
    fn who_is_no_culprit_is_asked_for_all_of_it() {
        check_share(&[(Tie::Cpu, 3.0)], 1, 1.0);
        check_share(&[], 1, 1.0);
    }
}
