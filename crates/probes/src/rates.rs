//! From two drains to rates. In: two readings of counters. Out: how much per second in between.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{CgroupId, Counters, Drain, Event, EventCounts, delay_bucket_ends};

/// Where less of the time was counted, what was counted is no measure of the rest.
const COUNTED_SHARE_MIN: f64 = 0.1;

/// What happened to one container between two drains.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// CPUs that it kept busy on average.
    pub cpus: f64,
    /// Tasks that could have run and had no CPU, on average.
    pub waiting: f64,
    /// Involuntary switches per second.
    pub involuntary: f64,
    /// The same by [`crate::Preempter`].
    pub preempted_by: [f64; 4],
    /// Migrations per second, by [`crate::Distance`].
    pub migrations: [f64; 5],
    /// There were runs.
    pub has_runs: bool,
    /// Half of the runs began after at most this delay; `None` when there were no runs, or when it is longer than the buckets tell.
    pub delay_p50: Option<Duration>,
    /// 99 of 100 runs began after at most this delay.
    pub delay_p99: Option<Duration>,
    /// Cycles per instruction; `None` where they are not counted, or in less than a tenth of the time.
    pub cycles_per_instruction: Option<f64>,
    /// [`Event::CacheMisses`] per thousand instructions, likewise.
    pub cache_misses: Option<f64>,
}

/// The rates of every container that is in `after`; one that is not in `before` began at 0. Empty when no time went by.
pub fn rates_between(before: &Drain, after: &Drain) -> BTreeMap<CgroupId, Rates> {
    let elapsed = after.at.saturating_duration_since(before.at);
    if elapsed.is_zero() {
        return BTreeMap::new();
    }
    let nothing = Counters::default();
    let of = |(id, now): (&CgroupId, &Counters)| {
        let then = before.containers.get(id).unwrap_or(&nothing);
        let mut rates = Rates::new(&now.since(then), elapsed);
        if let Some(now) = after.events.get(id) {
            let events = before.events.get(id).map_or_else(|| now.clone(), |it| now.since(it));
            rates.cycles_per_instruction = events.per_instruction(Event::Cycles);
            rates.cache_misses = events.per_instruction(Event::CacheMisses).map(|it| it * 1e3);
        }
        (*id, rates)
    };
    after.containers.iter().map(of).collect()
}

impl Counters {
    /// What was added since `before`; a counter that went down counts as not changed.
    pub fn since(&self, before: &Counters) -> Counters {
        fn each<const N: usize>(now: &[u64; N], then: &[u64; N]) -> [u64; N] {
            std::array::from_fn(|at| now[at].saturating_sub(then[at]))
        }
        Counters {
            exec_ns: self.exec_ns.saturating_sub(before.exec_ns),
            runs: self.runs.saturating_sub(before.runs),
            delay_ns: self.delay_ns.saturating_sub(before.delay_ns),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
            preempted_by: each(&self.preempted_by, &before.preempted_by),
            migrations: each(&self.migrations, &before.migrations),
            delays: each(&self.delays, &before.delays),
        }
    }

    /// An upper bound of the delay before at least `share` (0 to 1) of the runs. `None`: no runs, or the bound is beyond the last bucket.
    pub fn delay_quantile(&self, share: f64) -> Option<Duration> {
        let total: u64 = self.delays.iter().sum();
        if total == 0 {
            return None;
        }
        let mut below = 0;
        let ends = delay_bucket_ends().zip(&self.delays);
        for (end, runs) in ends {
            below += runs;
            if below as f64 >= share * total as f64 {
                return Some(Duration::from_nanos(end));
            }
        }
        None
    }
}

impl EventCounts {
    fn per_instruction(&self, event: Event) -> Option<f64> {
        let is_measured = self.counted_share()? >= COUNTED_SHARE_MIN;
        let count = self.counts.get(&event).filter(|_| is_measured)?;
        let instructions = self.counts.get(&Event::Instructions).filter(|it| **it > 0)?;
        Some(*count as f64 / *instructions as f64)
    }
}

impl Rates {
    fn new(added: &Counters, elapsed: Duration) -> Rates {
        let per_second = |count: u64| count as f64 / elapsed.as_secs_f64();
        let share = |ns: u64| ns as f64 / 1e9 / elapsed.as_secs_f64();
        Rates {
            cpus: share(added.exec_ns),
            waiting: share(added.delay_ns),
            involuntary: per_second(added.involuntary),
            preempted_by: added.preempted_by.map(per_second),
            migrations: added.migrations.map(per_second),
            has_runs: added.delays.iter().any(|runs| *runs > 0),
            delay_p50: added.delay_quantile(0.5),
            delay_p99: added.delay_quantile(0.99),
            cycles_per_instruction: None,
            cache_misses: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use proptest::prelude::*;

    use super::*;

    fn drain(at: Instant, id: u64, counters: Counters) -> Drain {
        let containers = BTreeMap::from([(CgroupId(id), counters)]);
        Drain {
            at,
            containers,
            events: BTreeMap::new(),
            outside: Counters::default(),
            intrusions: BTreeMap::new(),
            unnamed: crate::Intrusion::default(),
        }
    }

    #[test]
    fn rates_are_per_second_of_the_time_between() {
        let start = Instant::now();
        let before = Counters { exec_ns: 1_000_000_000, ..Counters::default() };
        let mut after =
            Counters { exec_ns: 4_000_000_000, delay_ns: 500_000_000, ..before.clone() };
        after.migrations[1] = 20;
        after.delays[3] = 99;
        after.delays[10] = 1;
        let rates = rates_between(
            &drain(start, 1, before),
            &drain(start + Duration::from_secs(2), 1, after),
        );
        let rates = &rates[&CgroupId(1)];
        assert_eq!((rates.cpus, rates.waiting, rates.migrations[1]), (1.5, 0.25, 10.0));
        assert_eq!(rates.delay_p50, Some(Duration::from_nanos(1 << 13)));
        assert_eq!(rates.delay_p99, Some(Duration::from_nanos(1 << 13)));
    }

    #[test]
    fn a_group_that_came_in_between_began_at_nothing_and_one_that_went_is_not_there() {
        let start = Instant::now();
        let counters = Counters { exec_ns: 2_000_000_000, ..Counters::default() };
        let before = drain(start, 1, counters.clone());
        let after = drain(start + Duration::from_secs(1), 2, counters);
        let rates = rates_between(&before, &after);
        assert_eq!(rates.keys().collect::<Vec<_>>(), [&CgroupId(2)]);
        assert_eq!(rates[&CgroupId(2)].cpus, 2.0);
    }

    #[test]
    fn without_time_there_are_no_rates() {
        let start = Instant::now();
        let drain = drain(start, 1, Counters::default());
        assert!(rates_between(&drain, &drain).is_empty());
    }

    /// Between two readings of cycles, instructions and misses, counted for so much of a second.
    #[track_caller]
    fn check_events(before: [u64; 3], after: [u64; 3], counted: f64, expected: [Option<f64>; 2]) {
        let start = Instant::now();
        let events = |counts: [u64; 3], seconds: f64| {
            let kinds = [Event::Cycles, Event::Instructions, Event::CacheMisses];
            let ns = |seconds: f64| Duration::from_secs_f64(seconds).as_nanos().try_into().unwrap();
            let counts = kinds.into_iter().zip(counts).collect();
            EventCounts {
                counts,
                enabled_ns: ns(seconds),
                running_ns: ns(seconds * counted),
                unread_ns: 0,
            }
        };
        let [mut then, mut now] = [0, 1]
            .map(|seconds| drain(start + Duration::from_secs(seconds), 1, Counters::default()));
        then.events = BTreeMap::from([(CgroupId(1), events(before, 1.0))]);
        now.events = BTreeMap::from([(CgroupId(1), events(after, 2.0))]);
        let rates = &rates_between(&then, &now)[&CgroupId(1)];
        assert_eq!([rates.cycles_per_instruction, rates.cache_misses], expected);
    }

    #[test]
    fn counts_are_told_per_instruction() {
        check_events([5, 5, 5], [3005, 2005, 15], 1.0, [Some(1.5), Some(5.0)]);
        check_events([0, 0, 0], [3000, 2000, 0], 0.5, [Some(1.5), Some(0.0)]);
    }

    #[test]
    fn without_instructions_or_with_too_little_counted_nothing_is_told() {
        check_events([5, 5, 5], [3005, 5, 15], 1.0, [None, None]);
        check_events([0, 0, 0], [3000, 2000, 10], 0.05, [None, None]);
        check_events([0, 0, 0], [0, 0, 0], 0.0, [None, None]);
        let start = Instant::now();
        let [then, now] = [0, 1]
            .map(|seconds| drain(start + Duration::from_secs(seconds), 1, Counters::default()));
        assert_eq!(rates_between(&then, &now)[&CgroupId(1)].cycles_per_instruction, None);
    }

    #[test]
    fn a_delay_beyond_the_buckets_has_no_bound() {
        let mut counters = Counters::default();
        assert_eq!(counters.delay_quantile(0.5), None);
        counters.delays[18] = 1;
        assert_eq!(counters.delay_quantile(0.5), None);
    }

    proptest! {
        #[test]
        fn what_was_added_and_what_was_before_make_what_is(before: [u64; 4], added: [u32; 4]) {
            let counters = |words: [u64; 4]| Counters {
                exec_ns: words[0], runs: words[1], preempted_by: words, ..Counters::default()
            };
            let before = before.map(|word| word >> 1);
            let sum = std::array::from_fn(|at| before[at] + u64::from(added[at]));
            let since = counters(sum).since(&counters(before));
            prop_assert_eq!(since, counters(added.map(u64::from)));
        }
    }
}
