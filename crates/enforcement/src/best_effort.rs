//! How much CPU time BestEffort containers get together, whether a container suffers from them or not. In: what the CPUs have, what everything else uses. Out: a budget, step by step.
//!
//! The node is to stay below a share of its CPU time. What everything but BestEffort containers leaves of that is theirs. It shrinks as soon as others use more, and grows by a part of the node at a
//! time, so that a load that comes back soon finds its time free; changes that are smaller than a hundredth of the node are not worth a write. There is a floor, below which they would make no
//! progress at all. The same rule as Koordinator's suppression by quota (`resourceUsedThresholdWithBE`), with its values as defaults.

use bayplan_types::MilliCpu;

/// Smaller changes than this part of the node are left out.
const WORTH_PART: u64 = 100;

/// What the budget follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetPolicy {
    /// Share of the node's CPU time, in percent, that everything together is to use at most; 0: there is no budget.
    pub node_percent: u64,
    /// Share of the node's CPU time, in percent, that BestEffort containers have at least.
    pub floor_percent: u64,
    /// Share of the node's CPU time, in percent, by which the budget grows at once.
    pub growth_percent: u64,
}

/// What the CPUs did since the last step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeUse {
    /// What they have.
    pub capacity: MilliCpu,
    /// What everything but BestEffort containers used.
    pub others: MilliCpu,
}

/// The next budget after `last`; `None` where there is to be none.
pub fn next_budget(
    policy: &BudgetPolicy,
    used: &NodeUse,
    last: Option<MilliCpu>,
) -> Option<MilliCpu> {
    if policy.node_percent == 0 {
        return None;
    }
    let capacity = used.capacity.0;
    let part = |percent: u64| capacity.saturating_mul(percent.min(100)) / 100;
    let left = part(policy.node_percent).saturating_sub(used.others.0);
    let wanted = left.max(part(policy.floor_percent));
    let next = match last {
        // Without a budget before, nothing was held back: there is nothing to grow from.
        None => wanted,
        Some(MilliCpu(last)) if last > capacity => wanted,
        Some(MilliCpu(last)) if wanted.abs_diff(last) < capacity / WORTH_PART => last,
        Some(MilliCpu(last)) => wanted.min(last.saturating_add(part(policy.growth_percent).max(1))),
    };
    Some(MilliCpu(next))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cgroup::CpuQuota;

    const POLICY: BudgetPolicy =
        BudgetPolicy { node_percent: 65, floor_percent: 5, growth_percent: 10 };

    /// Budgets step by step on 16 CPUs, by what others use; in thousandths of a CPU.
    fn check(policy: BudgetPolicy, others: &[u64], expected: &[u64]) {
        let mut last = None;
        let budgets = others.iter().filter_map(|others| {
            let used = NodeUse { capacity: MilliCpu(16_000), others: MilliCpu(*others) };
            last = next_budget(&policy, &used, last);
            last.map(|it| it.0)
        });
        assert_eq!(budgets.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_others_leave_of_the_mark_is_the_budget() {
        check(POLICY, &[0], &[10_400]);
        check(POLICY, &[4000], &[6400]);
        check(BudgetPolicy { node_percent: 0, ..POLICY }, &[4000], &[]);
        check(BudgetPolicy { node_percent: 100, ..POLICY }, &[4000], &[12_000]);
    }

    #[test]
    fn it_shrinks_at_once_and_grows_by_steps() {
        check(
            POLICY,
            &[0, 9000, 0, 0, 0, 0, 0, 0, 0],
            &[10_400, 1400, 3000, 4600, 6200, 7800, 9400, 10_400, 10_400],
        );
    }

    #[test]
    fn there_is_a_floor_and_small_changes_are_left_out() {
        check(POLICY, &[16_000, 64_000], &[800, 800]);
        check(POLICY, &[4000, 4100, 3900, 4160], &[6400, 6400, 6400, 6240]);
    }

    #[test]
    fn a_budget_is_a_limit_that_the_kernel_takes() {
        for (milli, quota_us) in [(0, 1000), (5, 1000), (1500, 150_000), (u64::MAX, u64::MAX)] {
            let quota = CpuQuota::of(MilliCpu(milli));
            assert_eq!((quota.quota_us, quota.period_us), (quota_us, 100_000), "{milli}");
        }
    }

    proptest! {
        /// Whatever happened before, with a steady load the budget comes to the mark within ten steps and stays there.
        #[test]
        fn it_settles(capacity in 1000_u64..1_000_000, share in 0_u64..200, last: Option<u32>) {
            let used = NodeUse {
                capacity: MilliCpu(capacity),
                others: MilliCpu(capacity * share / 100),
            };
            let mut budget = last.map(|it| MilliCpu(u64::from(it)));
            for _ in 0..11 {
                budget = next_budget(&POLICY, &used, budget);
            }
            let wanted = (capacity * 65 / 100).saturating_sub(used.others.0);
            let wanted = wanted.max(capacity * 5 / 100);
            let found = budget.map_or(0, |it| it.0);
            prop_assert!(found.abs_diff(wanted) <= capacity / 100, "{found} for {wanted}");
            prop_assert_eq!(next_budget(&POLICY, &used, budget), budget);
        }
    }
}
