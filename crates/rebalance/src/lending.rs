//! CPUs that exclusive containers lend to BestEffort containers. In: what each holder used and whether it waited, step by step. Out: the CPUs that are lent.
//!
//! A holder keeps as many cores as it used CPUs at its peak of the last half minute, because the kernel gives each busy thread a core of its own, and one more. Of the rest those are lent of which no
//! hardware thread was busy for half a minute, the longest idle first. All come back at the first sign of delay (PSI `cpu`, "some"), and as soon as it uses more than leaves them spare; after that it lends
//! nothing for a while, for longer each time. While it waits it lends no more than before, and nothing while it cannot be read. It lends one core more at each step, so that a load that begins
//! finds most of its CPUs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_types::{CpuId, CpuSet};

/// Over this time the peak of a holder counts, and so long a core was idle before it is lent.
const PEAK_OVER: Duration = Duration::from_secs(30);
/// Share of a step in which some task waited for a CPU that is a sign of delay: a hundredth is what accounting itself shows now and then.
const DELAYED: f64 = 0.02;
/// A thread that is busy for no more of a step is idle: the kernel's own work, and the hundredths of a second in which it counts.
const IDLE_MAX: f64 = 0.05;
/// After a recall nothing is lent for so long, twice as long after each further one, at most so many times.
const PAUSE: Duration = Duration::from_secs(60);
const DOUBLED_MAX: u32 = 4;
/// A holder without a recall for so long after its pause begins anew.
const FORGIVEN_AFTER: Duration = Duration::from_secs(1800);

/// A container that lends, over one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Holder {
    /// Which one.
    pub id: ContainerId,
    /// Cores that it owns as a whole; of those that are idle for equally long the first is lent first.
    pub cores: Vec<HeldCore>,
    /// CPUs that it kept busy.
    pub used: f64,
    /// Share of the time, 0 to 1, in which some of its tasks waited for a CPU; `None` where the kernel does not tell, and nothing is lent.
    pub stalled: Option<f64>,
}

/// A core of a holder, over one step.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldCore {
    /// Its hardware threads.
    pub cpus: CpuSet,
    /// Share of the time, 0 to 1, in which its busiest thread had something to do.
    pub busy: f64,
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
    /// Since when each core is idle, by its first CPU; for those that are lent or were not seen before, the present.
    idle_since: BTreeMap<CpuId, Duration>,
    lent: Vec<CpuSet>,
    recalls: u32,
    paused_until: Duration,
}

impl Lending {
    /// What is lent from `now` on, by holder. Of those in `may_lend` that could not be read, and lend nothing, the pause after a recall stays.
    pub fn step(
        &mut self,
        holders: &[Holder],
        may_lend: &BTreeSet<ContainerId>,
        now: Duration,
    ) -> BTreeMap<ContainerId, CpuSet> {
        self.holders.retain(|id, _| may_lend.contains(id));
        for (id, known) in &mut self.holders {
            if !holders.iter().any(|holder| holder.id == *id) {
                known.lent.clear();
                known.idle_since.clear();
            }
        }
        let lent = holders.iter().filter_map(|holder| {
            let known = self.holders.entry(holder.id).or_default();
            known.step(holder, now);
            let cpus = known.lent.iter().fold(CpuSet::new(), |all, core| all.union(core));
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
        self.lent.retain(|lent| holder.cores.iter().any(|core| core.cpus == *lent));
        self.note_idle(holder, now);
        let Some(stalled) = holder.stalled else {
            self.lent.clear();
            return;
        };
        let spare = spare_cores(holder, self.peak());
        if !self.lent.is_empty() && (stalled > DELAYED || spare < self.lent.len()) {
            self.recall(now);
        }
        if stalled <= DELAYED && now >= self.paused_until && spare > self.lent.len() {
            self.lent.extend(self.longest_idle(holder, now));
        }
    }

    /// What borrowers do on a lent core says nothing of its holder.
    fn note_idle(&mut self, holder: &Holder, now: Duration) {
        let mut idle_since = BTreeMap::new();
        for core in &holder.cores {
            let Some(first) = core.cpus.first() else { continue };
            let is_idle = core.busy <= IDLE_MAX && !self.lent.contains(&core.cpus);
            let since = self.idle_since.get(&first).filter(|_| is_idle);
            idle_since.insert(first, since.copied().unwrap_or(now));
        }
        self.idle_since = idle_since;
    }

    /// Of the cores that are not lent.
    fn longest_idle(&self, holder: &Holder, now: Duration) -> Option<CpuSet> {
        let idle = holder.cores.iter().filter_map(|core| {
            let since = *self.idle_since.get(&core.cpus.first()?)?;
            let is_long = now >= since + PEAK_OVER && !self.lent.contains(&core.cpus);
            is_long.then_some((since, &core.cpus))
        });
        idle.min_by_key(|(since, _)| *since).map(|(_, cpus)| cpus.clone())
    }

    fn recall(&mut self, now: Duration) {
        if now > self.paused_until + FORGIVEN_AFTER {
            self.recalls = 0;
        }
        self.paused_until = now + PAUSE * (1 << self.recalls.min(DOUBLED_MAX));
        self.recalls += 1;
        self.lent.clear();
    }

    fn peak(&self) -> f64 {
        self.used.iter().map(|(_, used)| *used).fold(0.0, f64::max)
    }
}

/// Cores that stay unused at this peak with one core more than that.
fn spare_cores(holder: &Holder, peak: f64) -> usize {
    let kept = peak.ceil() + 1.0;
    let fits = |lent: &usize| (holder.cores.len() - lent) as f64 >= kept;
    (0..=holder.cores.len()).rev().find(fits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ContainerId = ContainerId(7);

    /// With four cores that are busy for such a part.
    fn holder_on(busy: [f64; 4], used: f64, stalled: Option<f64>) -> Holder {
        let cores = ["4,12", "5,13", "6,14", "7,15"].into_iter().zip(busy);
        let cores = cores.map(|(cpus, busy)| HeldCore { cpus: cpus.parse().unwrap(), busy });
        Holder { id: ID, cores: cores.collect(), used, stalled }
    }

    fn holder(used: f64, stalled: Option<f64>) -> Holder {
        holder_on([0.0; 4], used, stalled)
    }

    /// What is lent at the end of stretches, each with its seconds, what was used, and how much was waited.
    fn check(stretches: &[(u64, f64, Option<f64>)], expected: &[&str]) {
        let (mut lending, mut now) = (Lending::default(), 0);
        let lent = stretches.iter().map(|(seconds, used, stalled)| {
            let mut lent = BTreeMap::new();
            for _ in 0..*seconds {
                now += 1;
                let holders = [holder(*used, *stalled)];
                lent = lending.step(&holders, &[ID].into(), Duration::from_secs(now));
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
        check(&[(60, 2.0, Some(0.0))], &["4,12"]);
    }

    /// Each of three busy threads has a core of its own, although two cores have as many threads.
    #[test]
    fn a_core_per_busy_cpu_is_kept_and_one_more() {
        check(&[(60, 1.9, Some(0.0))], &["4,12"]);
        check(&[(60, 3.0, Some(0.0))], &[""]);
        check(&[(60, 5.0, Some(0.0))], &[""]);
    }

    /// What is lent at the end of stretches, each with its seconds and how busy the cores were.
    fn check_idle(stretches: &[(u64, [f64; 4])], expected: &[&str]) {
        let (mut lending, mut now) = (Lending::default(), 0);
        let lent = stretches.iter().map(|(seconds, busy)| {
            let mut lent = BTreeMap::new();
            for _ in 0..*seconds {
                now += 1;
                let holder = holder_on(*busy, 0.5, Some(0.0));
                lent = lending.step(&[holder], &[ID].into(), Duration::from_secs(now));
            }
            lent.get(&ID).map_or_else(String::new, CpuSet::to_string)
        });
        assert_eq!(lent.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn only_cores_that_were_idle_are_lent_and_the_longest_idle_first() {
        check_idle(&[(60, [0.5, 0.3, 0.0, 0.2])], &["6,14"]);
        check_idle(&[(60, [0.5, 0.3, 0.2, 0.1])], &[""]);
        check_idle(
            &[(10, [0.5, 0.5, 0.0, 0.5]), (20, [0.5, 0.0, 0.0, 0.5]), (1, [0.5, 0.0, 0.0, 0.5])],
            &["", "", "6,14"],
        );
        check_idle(&[(10, [0.5, 0.5, 0.0, 0.5]), (31, [0.5, 0.0, 0.0, 0.5])], &["", "5-6,13-14"]);
        // What borrowers do there is no reason to take a core back.
        check_idle(&[(60, [0.5, 0.3, 0.0, 0.2]), (60, [0.5, 0.3, 1.0, 0.2])], &["6,14", "6,14"]);
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
            &["4-5,12-13", "", "", "6,14", "", "", "7,15"],
        );
    }

    #[test]
    fn what_is_used_comes_back_at_once() {
        check(&[(60, 0.1, Some(0.0)), (1, 4.5, Some(0.0))], &["4-5,12-13", ""]);
    }

    /// A load that comes every two minutes would find its cores lent each time.
    #[test]
    fn a_recall_by_use_pauses_as_one_by_delay() {
        let still = |seconds| (seconds, 0.1, Some(0.0));
        let load = (1, 4.5, Some(0.0));
        check(
            &[still(60), load, still(59), still(1), load, still(119), still(1)],
            &["4-5,12-13", "", "", "6,14", "", "", "7,15"],
        );
    }

    #[test]
    fn nothing_is_lent_where_waiting_is_not_told_or_the_holder_is_gone() {
        check(&[(60, 0.1, None)], &[""]);
        let mut lending = Lending::default();
        for now in 0..60 {
            let holders = [holder(0.1, Some(0.0))];
            lending.step(&holders, &[ID].into(), Duration::from_secs(now));
        }
        assert_eq!(lending.step(&[], &[].into(), Duration::from_secs(60)), BTreeMap::new());
        assert!(lending.holders.is_empty());
    }

    /// A core was lent in the same second.
    #[test]
    fn a_holder_that_is_waiting_lends_nothing_more() {
        check(&[(30, 0.1, Some(0.0)), (9, 0.1, Some(0.5)), (1, 0.1, Some(0.0))], &["", "", "4,12"]);
    }

    /// A single failed look ended the pause after a recall.
    #[test]
    fn a_reading_that_is_missing_ends_no_pause() {
        let (mut lending, may_lend) = (Lending::default(), BTreeSet::from([ID]));
        let mut step = |now: u64, holders: &[Holder]| {
            let lent = lending.step(holders, &may_lend, Duration::from_secs(now));
            lent.get(&ID).map_or_else(String::new, CpuSet::to_string)
        };
        let still = [holder(0.1, Some(0.0))];
        let mut lent = String::new();
        for now in 0..60 {
            lent = step(now, &still);
        }
        assert_eq!(lent, "4-5,12-13");
        assert_eq!(step(60, &[holder(0.1, Some(0.3))]), "");
        assert_eq!(step(61, &[]), "");
        for now in 62..120 {
            assert_eq!(step(now, &still), "", "{now}");
        }
        assert_eq!(step(120, &still), "4,12");
        // What is lent comes back without a reading, too, and a core is idle for half a minute anew.
        assert_eq!(step(121, &[]), "");
        assert_eq!(step(122, &still), "");
        assert_eq!(step(152, &still), "4,12");
    }

    /// A delay that no borrower can be the reason of does not count.
    #[test]
    fn waiting_before_anything_is_lent_is_its_own() {
        check(&[(30, 0.1, Some(0.5)), (3, 0.1, Some(0.0))], &["", "4-5,12-13"]);
    }
}
