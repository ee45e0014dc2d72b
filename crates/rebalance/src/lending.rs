//! CPUs that exclusive containers lend to BestEffort containers. In: what each holder used and whether it waited, step by step. Out: the CPUs that are lent.
//!
//! A holder keeps what it used at its peak of the last half minute and one core more; whole cores of the rest are lent, because a thread beside its own would slow it down. All come back at the first
//! sign of delay (PSI `cpu`, "some"), and as soon as it uses nearly what it keeps; after a delay it lends nothing for a while, for longer each time. It lends one core more at each step, so that
//! a load that begins finds most of its CPUs.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_types::CpuSet;

/// Over this time the peak of a holder counts.
const PEAK_OVER: Duration = Duration::from_secs(30);
/// Share of a step in which some task waited for a CPU that is a sign of delay: a hundredth is what accounting itself shows now and then.
const DELAYED: f64 = 0.02;
/// After a delay nothing is lent for so long, twice as long after each further one, at most so many times.
const PAUSE: Duration = Duration::from_secs(60);
const DOUBLED_MAX: u32 = 4;
/// A holder without a delay for so long after its pause begins anew.
const FORGIVEN_AFTER: Duration = Duration::from_secs(1800);

/// A container that lends, over one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Holder {
    /// Which one.
    pub id: ContainerId,
    /// Cores that it owns as a whole, each with its hardware threads, in the order in which they are lent.
    pub cores: Vec<CpuSet>,
    /// CPUs that it kept busy.
    pub used: f64,
    /// Share of the time, 0 to 1, in which some of its tasks waited for a CPU; `None` where the kernel does not tell, and nothing is lent.
    pub stalled: Option<f64>,
}

/// What is known of holders from one step to the next.
#[derive(Clone, Debug, Default)]
pub struct Lending {
    holders: BTreeMap<ContainerId, Known>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    /// What it used, with the time, newest last.
    used: VecDeque<(Duration, f64)>,
    since: Duration,
    lent: usize,
    delays: u32,
    paused_until: Duration,
}

impl Lending {
    /// What is lent from `now` on, by holder; those that are not named any more lend nothing.
    pub fn step(&mut self, holders: &[Holder], now: Duration) -> BTreeMap<ContainerId, CpuSet> {
        self.holders.retain(|id, _| holders.iter().any(|holder| holder.id == *id));
        let lent = holders.iter().filter_map(|holder| {
            let known = self.holders.entry(holder.id);
            let known = known.or_insert_with(|| Known { since: now, ..Known::default() });
            known.step(holder, now);
            let cores = holder.cores.iter().take(known.lent);
            let cpus = cores.fold(CpuSet::new(), |all, core| all.union(core));
            (!cpus.is_empty()).then_some((holder.id, cpus))
        });
        lent.collect()
    }
}

impl Known {
    fn step(&mut self, holder: &Holder, now: Duration) {
        self.used.push_back((now, holder.used));
        while self.used.front().is_some_and(|(at, _)| *at + PEAK_OVER < now) {
            self.used.pop_front();
        }
        let Some(stalled) = holder.stalled else {
            self.lent = 0;
            return;
        };
        if stalled > DELAYED && self.lent > 0 {
            self.pause(now);
        }
        // Of a newcomer no peak is known.
        if now < self.paused_until || now < self.since + PEAK_OVER {
            self.lent = 0;
            return;
        }
        let spare = spare_cores(holder, self.peak());
        self.lent = spare.min(self.lent + 1);
    }

    fn pause(&mut self, now: Duration) {
        if now > self.paused_until + FORGIVEN_AFTER {
            self.delays = 0;
        }
        self.paused_until = now + PAUSE * (1 << self.delays.min(DOUBLED_MAX));
        self.delays += 1;
    }

    fn peak(&self) -> f64 {
        self.used.iter().map(|(_, used)| *used).fold(0.0, f64::max)
    }
}

/// Cores that stay unused at this peak with one core more than that.
fn spare_cores(holder: &Holder, peak: f64) -> usize {
    let threads = holder.cores.iter().map(CpuSet::len).max().unwrap_or(1).max(1) as f64;
    let kept = (peak / threads).ceil() + 1.0;
    let fits = |lent: &usize| (holder.cores.len() - lent) as f64 >= kept;
    (0..=holder.cores.len()).rev().find(fits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ContainerId = ContainerId(7);

    fn holder(used: f64, stalled: Option<f64>) -> Holder {
        let cores = ["4,12", "5,13", "6,14", "7,15"].map(|core| core.parse().unwrap());
        Holder { id: ID, cores: cores.into(), used, stalled }
    }

    /// What is lent at the end of stretches, each with its seconds, what was used, and how much was waited.
    fn check(stretches: &[(u64, f64, Option<f64>)], expected: &[&str]) {
        let (mut lending, mut now) = (Lending::default(), 0);
        let lent = stretches.iter().map(|(seconds, used, stalled)| {
            let mut lent = BTreeMap::new();
            for _ in 0..*seconds {
                now += 1;
                lent = lending.step(&[holder(*used, *stalled)], Duration::from_secs(now));
            }
            lent.get(&ID).map_or_else(String::new, CpuSet::to_string)
        });
        assert_eq!(lent.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_a_holder_did_not_use_for_half_a_minute_is_lent_core_by_core() {
        check(
            &[(30, 0.1, Some(0.0)), (1, 0.1, Some(0.0)), (1, 0.1, Some(0.0)), (9, 0.1, Some(0.0))],
            &["", "4,12", "4-5,12-13", "4-5,12-13"],
        );
        check(&[(60, 3.0, Some(0.0))], &["4,12"]);
        check(&[(60, 5.0, Some(0.0))], &[""]);
    }

    #[test]
    fn all_comes_back_at_the_first_sign_of_delay_and_stays_for_longer_each_time() {
        check(
            &[
                (60, 0.1, Some(0.0)),
                (1, 0.1, Some(0.05)),
                (59, 0.1, Some(0.0)),
                (1, 0.1, Some(0.0)),
                (1, 0.1, Some(0.3)),
                (119, 0.1, Some(0.0)),
                (1, 0.1, Some(0.0)),
            ],
            &["4-5,12-13", "", "", "4,12", "", "", "4,12"],
        );
    }

    #[test]
    fn what_is_used_comes_back_at_once() {
        check(&[(60, 0.1, Some(0.0)), (1, 4.5, Some(0.0))], &["4-5,12-13", ""]);
    }

    #[test]
    fn nothing_is_lent_where_waiting_is_not_told_or_the_holder_is_gone() {
        check(&[(60, 0.1, None)], &[""]);
        let mut lending = Lending::default();
        for now in 0..60 {
            lending.step(&[holder(0.1, Some(0.0))], Duration::from_secs(now));
        }
        assert_eq!(lending.step(&[], Duration::from_secs(60)), BTreeMap::new());
        assert!(lending.holders.is_empty());
    }

    /// A delay that no borrower can be the reason of does not count.
    #[test]
    fn waiting_before_anything_is_lent_is_its_own() {
        check(&[(30, 0.1, Some(0.5)), (3, 0.1, Some(0.0))], &["", "4-5,12-13"]);
    }
}
