//! Sizes that follow measured CPU time. In: what the members of a group have used since the last look, its size, the time. Out: the size that it is to have. Pure.

use std::collections::VecDeque;

use bayplan_types::MilliCpu;
use jiff::{SignedDuration, Timestamp};

/// How the size of a group follows the CPU time of its members, within the bounds of its type and never below what they request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follow {
    /// So many percent of what is used are added to it.
    pub headroom_percent: usize,
    /// A group that has up to so many CPUs more than it is to have keeps them.
    pub deadband: usize,
    /// A group has another size no more often than that, but for what its members request.
    pub changes_per_minute: usize,
}

impl Default for Follow {
    fn default() -> Follow {
        Follow { headroom_percent: 25, deadband: 1, changes_per_minute: 4 }
    }
}

const MINUTE: SignedDuration = SignedDuration::from_secs(60);

/// What is known of one group from look to look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Followed {
    /// CPUs that it is to have.
    pub(crate) size: usize,
    /// When that changed, within the last minute.
    changes: VecDeque<Timestamp>,
}

impl Followed {
    /// One look at a group of `has` CPUs, of which the members have used `used` CPUs of time; at least `least`, at most `most`. True: it is to have another size.
    pub(crate) fn step(
        &mut self,
        follow: &Follow,
        (used, has): (MilliCpu, usize),
        (least, most): (usize, Option<usize>),
        now: Timestamp,
    ) -> bool {
        while self.changes.front().is_some_and(|then| now.duration_since(*then) >= MINUTE) {
            self.changes.pop_front();
        }
        let percent =
            100_u64.saturating_add(u64::try_from(follow.headroom_percent).unwrap_or(u64::MAX));
        let wanted = MilliCpu(used.0.saturating_mul(percent).div_ceil(100)).cpus_needed();
        let wanted = wanted.min(most.unwrap_or(usize::MAX)).max(least);
        let is_within = (wanted..=wanted.saturating_add(follow.deadband)).contains(&has);
        let next = if is_within { has } else { wanted };
        let is_over = self.changes.len() >= follow.changes_per_minute;
        let is_tried = next == self.size;
        if next == has || (is_over && !is_tried) {
            self.size = has;
            return false;
        }
        // What the machine had no room for is tried again, and is no other size.
        if !is_tried {
            self.changes.push_back(now);
        }
        self.size = next;
        true
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Used thousandths of a CPU, look by look, every ten seconds; the sizes that follow.
    fn check(follow: Follow, bounds: (usize, Option<usize>), used: &[u64], expected: Expect) {
        let (mut followed, mut has) = (Followed::default(), bounds.0);
        let mut sizes = Vec::new();
        for (look, used) in (0..).zip(used) {
            if followed.step(&follow, (MilliCpu(*used), has), bounds, at(10 * look)) {
                has = followed.size;
            }
            sizes.push(has.to_string());
        }
        expected.assert_eq(&sizes.join(" "));
    }

    #[test]
    fn a_size_follows_use_with_headroom_deadband_and_budget() {
        let often = Follow { changes_per_minute: 60, ..Follow::default() };
        check(often, (1, None), &[800, 1000, 2000, 3000, 4000], expect!["1 2 3 4 5"]);
        check(often, (1, Some(3)), &[9000, 9000], expect!["3 3"]);
        check(often, (2, None), &[0, 3200, 2400, 2300, 1600, 100, 0], expect!["2 4 4 4 2 2 2"]);
        let seldom = Follow { changes_per_minute: 1, ..Follow::default() };
        check(seldom, (1, None), &[4000, 0, 0, 0, 0, 0, 0], expect!["5 5 5 5 5 5 1"]);
    }

    proptest! {
        /// It stays within its bounds, and the budget is kept.
        #[test]
        fn sizes_keep_bounds_and_budget(
            used in prop::collection::vec(0_u64..40_000, 1..80),
            least in 1_usize..4,
            most in 4_usize..16,
            changes_per_minute in 1_usize..6,
        ) {
            let follow = Follow { changes_per_minute, ..Follow::default() };
            let (mut followed, mut has) = (Followed::default(), least);
            let mut changes: Vec<i64> = Vec::new();
            for (look, used) in (0..).zip(used) {
                let second = 7 * look;
                let bounds = (least, Some(most));
                if followed.step(&follow, (MilliCpu(used), has), bounds, at(second)) {
                    has = followed.size;
                    changes.push(second);
                }
                prop_assert!((least..=most).contains(&has));
                let recent = changes.iter().filter(|then| second - **then < 60).count();
                prop_assert!(recent <= changes_per_minute);
            }
        }
    }
}
