//! Which CPUs inside a pool. In: a pool, budgets, the shared CPUs, a count that the budgets allow. Out: that many CPUs.
//!
//! Approach, from the pool down: the child that holds all of it with the fewest split cores and the least left over; if no single
//! child does, the child that can give most, then the same question for the rest. In the narrowest pool: whole cores first, then
//! threads of cores that are already broken, and only then half of a whole core. So the sibling of an odd CPU goes to the next one
//! who asks for an odd number, and whole cores stay whole for those who ask for them.

use bayplan_types::CpuSet;

use crate::budget::Budgets;
use crate::pool::{Pool, Pools};

/// CPUs, and what they do to cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Picked {
    pub(crate) cpus: CpuSet,
    /// Cores that were taken only in part.
    pub(crate) split_cores: usize,
    /// Of those, the ones that were whole before.
    pub(crate) broken_cores: usize,
}

impl Picked {
    fn add(&mut self, other: Picked) {
        self.cpus.union_with(&other.cpus);
        self.split_cores += other.split_cores;
        self.broken_cores += other.broken_cores;
    }
}

/// Picks `count` CPUs of `free` in `pool`. The caller has checked `count` against the budgets; should they not hold it all the
/// same, fewer are returned.
pub(crate) fn pick(
    pools: &Pools,
    budgets: &Budgets,
    free: &CpuSet,
    pool: &Pool,
    count: usize,
) -> Picked {
    if count == 0 {
        return Picked::default();
    }
    if pool.children.is_empty() {
        return pick_cores(pool, free, count);
    }
    let mut picked = Picked::default();
    let mut rest: Vec<&Pool> = pool.children.iter().filter_map(|id| pools.get(*id)).collect();
    while picked.cpus.len() < count && !rest.is_empty() {
        let missing = count - picked.cpus.len();
        if let Some(best) = pick_in_one(pools, budgets, free, &rest, missing) {
            picked.add(best);
            return picked;
        }
        let Some(position) = most_takeable(budgets, &rest) else { break };
        let widest = rest.remove(position);
        picked.add(pick(pools, budgets, free, widest, budgets.takeable(widest.id)));
    }
    // CPUs that lie in the pool but in none of its children.
    let mut direct = pool.cpus.intersection(free);
    for child in pool.children.iter().filter_map(|id| pools.get(*id)) {
        direct.subtract(&child.cpus);
    }
    let missing = count - picked.cpus.len();
    picked.cpus.extend(direct.iter().take(missing));
    picked
}

/// The best of those candidates that can hold all of it alone.
fn pick_in_one(
    pools: &Pools,
    budgets: &Budgets,
    free: &CpuSet,
    candidates: &[&Pool],
    count: usize,
) -> Option<Picked> {
    candidates
        .iter()
        .filter(|child| budgets.takeable(child.id) >= count)
        .map(|child| (budgets.takeable(child.id) - count, pick(pools, budgets, free, child, count)))
        .min_by_key(|(left, picked)| (picked.split_cores, picked.broken_cores, *left))
        .map(|(_, picked)| picked)
}

fn most_takeable(budgets: &Budgets, candidates: &[&Pool]) -> Option<usize> {
    let widest = candidates.iter().map(|child| budgets.takeable(child.id)).max()?;
    candidates.iter().position(|child| budgets.takeable(child.id) == widest)
}

fn pick_cores(pool: &Pool, free: &CpuSet, count: usize) -> Picked {
    let mut picked = Picked::default();
    let mut broken: Vec<CpuSet> = Vec::new();
    let mut whole: Vec<&CpuSet> = Vec::new();
    for core in &pool.cores {
        if !core.is_subset(free) {
            broken.push(core.intersection(free));
        } else if picked.cpus.len() + core.len() <= count {
            picked.cpus.union_with(core);
        } else {
            whole.push(core);
        }
    }
    // The most broken core first: it is of least use to anybody who wants a whole one.
    broken.retain(|threads| !threads.is_empty());
    broken.sort_by_key(CpuSet::len);
    whole.sort_by_key(|core| core.len());
    let broken = broken.iter().map(|threads| (threads, 0));
    for (threads, breaks) in broken.chain(whole.into_iter().map(|core| (core, 1))) {
        let missing = count - picked.cpus.len();
        if missing == 0 {
            break;
        }
        picked.cpus.extend(threads.iter().take(missing));
        picked.split_cores += 1;
        picked.broken_cores += breaks;
    }
    picked
}
