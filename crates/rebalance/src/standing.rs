//! Proposals that were made and not undone, and what became of earlier ones.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bayplan_allocator::ContainerId;

use crate::knob::Knob;
use crate::ladder::Domain;
use crate::proposal::Proposal;
use crate::sample::Signal;

/// A proposal and where it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Standing {
    pub proposal: Proposal,
    pub domain: Domain,
    pub stage: Stage,
    /// How much each container may have suffered when this was proposed, whether that was sure or not: 1 is at a limit.
    pub ill_before: BTreeMap<ContainerId, f64>,
    /// The signals of the victim when this was proposed, whether they were found or not; without those that were not measured.
    pub before: BTreeMap<Signal, f64>,
    /// From which container the victim suffered, and the CPUs that this one wanted then.
    pub culprit: Option<(ContainerId, f64)>,
    /// The number of what was proposed before this was judged and leaves it nothing to do, if it helps.
    pub covered_by: Option<u64>,
    /// Since when all that could feel it are well.
    pub well_since: Option<Duration>,
    /// Since when the culprit wants a good deal less than it did.
    pub calm_since: Option<Duration>,
}

/// Where a proposal is.
///
/// ```text
///            done                   relief
/// Proposed ────────▶ Settling ─────────────▶ Kept
///    │ │               │  ▲ │                  │ fled in vain,
///    │ │ no word       │  └─┘ unrest           │ all well for long, covered,
///    │ └───────────┐   │ no relief, harm,      │ one is gone
///    │ refused     ▼   ▼ ten minutes of unrest ▼
///    └──────▶ (gone) Undone ◀──────────────────┘
/// ```
///
/// `Undone` is no state: the proposal is forgotten with the verdict, and only [`Tried`] remembers it. What is not allowed any more is withdrawn from each of them, and not even remembered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stage {
    /// Said, and not carried out yet.
    Proposed,
    /// Carried out, and not judged yet. Rounds that ended after this count.
    Settling {
        /// When it was carried out.
        begun: Duration,
        /// The same, or when unrest ended after that.
        since: Duration,
    },
    /// It helps.
    Kept,
}

impl Standing {
    /// It stays as long as its container lives and may have it: one that has room at home only by this would go away from there again with all of its
    /// pages.
    pub(crate) fn is_for_good(&self) -> bool {
        self.stage == Stage::Kept && self.proposal.knob == Knob::Memory
    }

    /// Rounds up to now say nothing of it.
    pub(crate) fn wait(&mut self, now: Duration) {
        self.restart();
        if let Stage::Settling { since, .. } = &mut self.stage {
            *since = now;
        }
    }

    /// It has to show anew that all is well.
    pub(crate) fn restart(&mut self) {
        (self.well_since, self.calm_since) = (None, None);
    }
}

/// How long something has been so, with `since` kept in step.
pub(crate) fn lasting(since: &mut Option<Duration>, is_so: bool, now: Duration) -> Duration {
    *since = is_so.then_some(since.unwrap_or(now));
    since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
}

/// More pairs than this are not remembered; those that may be tried again first go first.
const PAIRS_MAX: usize = 512;
/// Times that a wait is doubled, at most: from 10 minutes to 10 hours.
const DOUBLED_MAX: u32 = 6;

/// After so many times what it was not to be tried for at first, nothing is known of it any more.
const LONG_AGO: u32 = 12;

/// What was tried for which victim, on which target, and did not help or was not needed for long.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tried {
    pairs: BTreeMap<Pair, Past>,
    /// Victims for which several things in a row did not help, so that they are likely to suffer from something else.
    hopeless: BTreeMap<ContainerId, Past>,
}

/// So many failures in a row for one victim are no reason to wait.
const FAILURES_FREE: u32 = 3;

/// Victim, target, knob.
pub(crate) type Pair = (ContainerId, ContainerId, Knob);

#[derive(Clone, Copy, Debug, Default)]
struct Past {
    not_before: Duration,
    failures: u32,
    /// The last one.
    failed: Duration,
    released: Option<Duration>,
    returns: u32,
    /// When it was taken back because another change seemed to do.
    covered: Option<Duration>,
    /// How often that was not so.
    needed: u32,
}

impl Past {
    /// Once more in vain: not again for `forget`, doubled with every failure but the first so many, which cost nothing.
    fn failed(&mut self, now: Duration, forget: Duration, free: u32) {
        // Long ago it may have been another trouble.
        if now > self.not_before.max(self.failed) + LONG_AGO * forget {
            self.failures = 0;
        }
        self.failed = now;
        if self.failures >= free {
            self.not_before = now + doubled(forget, self.failures - free);
        }
        self.failures += 1;
    }
}

impl Tried {
    /// Whether it may be tried now.
    pub(crate) fn allows(&self, pair: &Pair, now: Duration) -> bool {
        self.pairs.get(pair).is_none_or(|past| past.not_before <= now)
            && self.hopeless.get(&pair.0).is_none_or(|past| past.not_before <= now)
    }

    /// Something helped this victim.
    pub(crate) fn helped(&mut self, victim: ContainerId) {
        self.hopeless.remove(&victim);
    }

    /// It did not help: not again for `forget`, twice that the next time. After several in a row for one victim nothing is tried for it for a while.
    pub(crate) fn failed(&mut self, pair: Pair, now: Duration, forget: Duration) {
        self.past(pair).failed(now, forget, 0);
        self.hopeless.entry(pair.0).or_default().failed(now, forget, FAILURES_FREE);
    }

    /// It could not be done: not again for `forget`, twice that the next time.
    pub(crate) fn refused(&mut self, pair: Pair, now: Duration, forget: Duration) {
        self.past(pair).failed(now, forget, 0);
    }

    /// It was released because all were well.
    pub(crate) fn released(&mut self, pair: Pair, now: Duration) {
        self.past(pair).released = Some(now);
    }

    /// It was taken back because another change seems to leave it nothing to do.
    pub(crate) fn covered(&mut self, pair: Pair, now: Duration) {
        self.past(pair).covered = Some(now);
    }

    /// How long it stands before it is taken back for that: not at all, `quiet` after the first time that it was needed all the same, twice that the next time.
    pub(crate) fn trial(&self, pair: &Pair, quiet: Duration) -> Duration {
        let needed = self.pairs.get(pair).map_or(0, |past| past.needed);
        needed.checked_sub(1).map_or(Duration::ZERO, |times| doubled(quiet, times))
    }

    /// It is proposed: again, and soon after its release?
    pub(crate) fn proposed(&mut self, pair: Pair, now: Duration, quiet: Duration) {
        let Some(past) = self.pairs.get_mut(&pair) else { return };
        let was_needed = past.covered.take().is_some_and(|at| now < at + quiet);
        past.needed += u32::from(was_needed);
        if let Some(at) = past.released.take() {
            past.returns = if now < at + quiet { past.returns + 1 } else { 0 };
        }
    }

    /// How long all have to be well before it is released.
    pub(crate) fn quiet(&self, pair: &Pair, quiet: Duration) -> Duration {
        doubled(quiet, self.pairs.get(pair).map_or(0, |past| past.returns))
    }

    /// Forgets containers that are not known any more.
    pub(crate) fn retain(&mut self, is_there: impl Fn(ContainerId) -> bool) {
        self.pairs.retain(|(victim, target, _), _| is_there(*victim) && is_there(*target));
        self.hopeless.retain(|victim, _| is_there(*victim));
    }

    fn past(&mut self, pair: Pair) -> &mut Past {
        if !self.pairs.contains_key(&pair) && self.pairs.len() >= PAIRS_MAX {
            let first = self.pairs.iter().min_by_key(|(_, past)| past.not_before);
            if let Some(first) = first.map(|(pair, _)| *pair) {
                self.pairs.remove(&first);
            }
        }
        self.pairs.entry(pair).or_default()
    }
}

fn doubled(time: Duration, times: u32) -> Duration {
    time.saturating_mul(1 << times.min(DOUBLED_MAX))
}

/// The changes of the last minute.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget {
    made: VecDeque<Duration>,
}

impl Budget {
    /// Takes one change out of the budget of the minute that ends now; `false` where there is none left.
    pub(crate) fn take(&mut self, now: Duration, per_minute: u32) -> bool {
        while self.made.front().is_some_and(|at| *at + Duration::from_secs(60) <= now) {
            self.made.pop_front();
        }
        let is_left = self.made.len() < per_minute as usize;
        if is_left {
            self.made.push_back(now);
        }
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const PAIR: Pair = (ContainerId(1), ContainerId(2), Knob::Idle);

    #[test]
    fn each_failure_doubles_the_wait_and_a_long_time_forgets_them() {
        let mut tried = Tried::default();
        let mut now = MINUTE;
        let mut waits = Vec::new();
        for _ in 0..10 {
            tried.failed(PAIR, now, MINUTE);
            tried.helped(PAIR.0);
            let wait = (1..1000).find(|m| tried.allows(&PAIR, now + *m * MINUTE)).unwrap();
            waits.push(wait);
            now += wait * MINUTE;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64, 64]);
        now += (LONG_AGO + 1) * MINUTE;
        tried.failed(PAIR, now, MINUTE);
        assert!(tried.allows(&PAIR, now + MINUTE));
    }

    #[test]
    fn what_was_needed_beside_another_change_stands_for_longer_each_time() {
        let (mut tried, mut now, mut waits) = (Tried::default(), MINUTE, Vec::new());
        for _ in 0..10 {
            waits.push(tried.trial(&PAIR, MINUTE).as_secs() / 60);
            tried.covered(PAIR, now);
            tried.proposed(PAIR, now + MINUTE / 2, MINUTE);
            now += 1000 * MINUTE;
        }
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 64, 64, 64]);
        // A victim that comes back later does so for another trouble.
        tried.covered(PAIR, now);
        tried.proposed(PAIR, now + MINUTE, MINUTE);
        assert_eq!(tried.trial(&PAIR, MINUTE), 64 * MINUTE);
        assert_eq!(Tried::default().trial(&PAIR, MINUTE), Duration::ZERO);
    }

    #[test]
    fn after_some_failures_nothing_is_tried_for_a_victim() {
        let mut tried = Tried::default();
        for target in 2..6 {
            let pair = (ContainerId(1), ContainerId(target), Knob::Idle);
            assert!(tried.allows(&pair, MINUTE));
            tried.failed(pair, MINUTE, MINUTE);
        }
        let other = (ContainerId(1), ContainerId(9), Knob::Move);
        assert!(!tried.allows(&other, MINUTE));
        assert!(tried.allows(&(ContainerId(2), ContainerId(9), Knob::Move), MINUTE));
        tried.helped(ContainerId(1));
        assert!(tried.allows(&other, MINUTE));
    }

    #[test]
    fn pairs_are_not_remembered_without_end() {
        let mut tried = Tried::default();
        for number in 0..2 * PAIRS_MAX as u64 {
            let pair = (ContainerId(number), ContainerId(0), Knob::Idle);
            tried.failed(pair, Duration::from_secs(number), MINUTE);
        }
        assert_eq!(tried.pairs.len(), PAIRS_MAX);
        tried.retain(|id| id.0 == 0);
        assert_eq!(tried.pairs.len(), 0);
    }

    #[test]
    fn a_budget_is_for_every_minute_and_not_for_each() {
        let mut budget = Budget::default();
        let taken: Vec<u64> =
            (0..200).filter(|s| budget.take(Duration::from_secs(*s), 3)).collect();
        assert_eq!(taken, [0, 1, 2, 60, 61, 62, 120, 121, 122, 180, 181, 182]);
    }
}
