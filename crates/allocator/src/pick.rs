//! Which CPUs inside a pool. In: a pool, what there is, a number of units that the budgets allow. Out: what that would cost, and the CPUs.
//!
//! Approach, from the pool down: the pool inside it that holds all of it at the least cost and with the least left over; if no single
//! one does, the fewest NUMA nodes (or, inside a node, the fewest L3s), nearest to each other, and whole cores of each as long as there are
//! enough. In the narrowest pool: whole cores first, then threads of cores that are already broken, and only then a part of a whole core. So the
//! sibling of an odd CPU goes to the next container that asks for an odd number, and whole cores stay whole for those that ask for them.
//!
//! Where that leaves something to be wished, a [`Way`] is looked for, which is the best there is: fewer parts of cores or fewer L3s in a node, as many
//! CPUs of each node, whole cores of several widths.
//!
//! Costs are counted without looking at CPUs; one walk over the pools gives them all.

pub(crate) mod choose;
mod span;
pub(crate) mod way;
pub(crate) mod ways;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use bayplan_topology::Level;
use bayplan_types::{CpuSet, NodeSet};
use smallvec::{SmallVec, smallvec};

use crate::budget::{Budgets, PerPool, Supply, Unit};
use crate::ledger::Ledger;
use crate::pool::{Core, CoreIdx, Pool, PoolId};
use crate::wishes::Owner;
use way::{Cost, Giving, Part, Parts, Way};

/// The container that asks, and its kin.
#[derive(Clone, Copy)]
pub(crate) struct Kin<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) owner: Owner,
}

/// How units lie over NUMA nodes, beyond as few as possible.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spread {
    /// As many from each node as from the others, where one cannot give them.
    pub(crate) is_even: bool,
    /// As many from each of these nodes as from the others, and from no other node, although one could. Empty: none.
    pub(crate) each: NodeSet,
}

/// Of more CPUs over several NUMA nodes the first way that is found is taken: a better one takes too long to find.
const COUNT_OVER_NODES_MAX: usize = 256;

/// Ways that are compared at most where one thread of each core is wished; of a larger question the first way is taken as well.
const WAYS_MAX: usize = 400_000;

/// One question: so many units from what there is.
pub(crate) struct Picker<'a> {
    pub(crate) supply: Supply<'a>,
    pub(crate) budgets: Budgets,
    /// `None`: strangers do not matter.
    kin: Option<Kin<'a>>,
    pub(crate) spread: Spread,
    pub(crate) count: usize,
    /// For each pool, what `count` units of it cost; `None` where it cannot give them.
    costs: PerPool<Option<Cost>>,
}

impl<'a> Picker<'a> {
    pub(crate) fn new(
        supply: Supply<'a>,
        budgets: Budgets,
        kin: Option<Kin<'a>>,
        spread: Spread,
        count: usize,
    ) -> Picker<'a> {
        let costs = smallvec![None; supply.pools.pools.len()];
        let mut picker = Picker { supply, budgets, kin, spread, count, costs };
        // Children come after their parents, so going backwards meets them first.
        for pool in supply.pools.pools.iter().rev() {
            let cost = picker.cost_of(pool, count);
            if let Some(slot) = picker.costs.get_mut(pool.id.index()) {
                *slot = cost;
            }
        }
        picker
    }

    /// What the question costs in `pool`; `None` where it cannot be had.
    pub(crate) fn cost(&self, pool: PoolId) -> Option<Cost> {
        self.costs.get(pool.index()).copied().flatten()
    }

    /// The CPUs.
    pub(crate) fn pick(&self, pool: PoolId) -> CpuSet {
        let mut cpus = CpuSet::new();
        if let Some(pool) = self.supply.pools.get(pool) {
            self.pick_from(pool, self.count, &mut cpus);
        }
        cpus
    }

    fn pick_from(&self, pool: &Pool, count: usize, cpus: &mut CpuSet) {
        for part in self.parts(pool, count).unwrap_or_default() {
            let Some(from) = self.supply.pools.get(part.pool) else { continue };
            if !part.is_own {
                self.pick_from(from, part.count, cpus);
                continue;
            }
            let Supply { takeable, units, .. } = self.supply;
            let takeable = takeable.cpus();
            self.take_cores(from, part.count, |core, threads| {
                let threads = if units.unit == Unit::Core { core.threads.len() } else { threads };
                let free = core.threads.iter().filter(|cpu| takeable.contains(**cpu));
                cpus.extend(free.copied().take(threads));
            });
        }
    }

    fn cost_of(&self, pool: &Pool, count: usize) -> Option<Cost> {
        if count == 0 {
            return Some(Cost::default());
        }
        // Tables are as long as the count, which may be absurd.
        if count > pool.cpus.len() {
            return None;
        }
        if self.supply.units.unit == Unit::Whole {
            return self.way_in_whole_cores(pool, count).map(|way| way.cost);
        }
        if pool.children.is_empty() {
            return (self.budgets.takeable(pool.id) >= count).then(|| self.own_cost(pool, count));
        }
        let mut cost = Cost::default();
        for part in self.parts(pool, count)? {
            cost.add(self.cost_of_part(part)?);
        }
        if pool.nodes.len() <= 1 {
            cost.nodes = u32::from(!pool.nodes.is_empty());
        }
        Some(cost)
    }

    fn cost_of_part(&self, part: Part) -> Option<Cost> {
        let pool = self.supply.pools.get(part.pool)?;
        match part {
            Part { is_own: true, count, .. } => Some(self.own_cost(pool, count)),
            Part { count, .. } if count == self.count => self.cost(part.pool),
            Part { count, .. } => self.cost_of(pool, count),
        }
    }

    fn own_cost(&self, pool: &Pool, count: usize) -> Cost {
        let cost = match self.is_in_whole_cores(pool, count) {
            true => Cost::default(),
            false => self.take_cores(pool, count, |_, _| {}),
        };
        Cost { nodes: u32::from(!pool.nodes.is_empty()), ..cost }
    }

    /// Whether whole cores are all that is taken from a pool without pools inside it. That many are there is not asked core by core.
    fn is_in_whole_cores(&self, pool: &Pool, count: usize) -> bool {
        let whole = self.supply.uniform_whole_cpus(pool.id);
        pool.children.is_empty()
            && count.is_multiple_of(self.supply.pools.width)
            && whole.is_some_and(|whole| whole >= count)
    }

    /// Where `count` units of the pool come from; `None` when it cannot give them.
    fn parts(&self, pool: &Pool, count: usize) -> Option<Parts> {
        if self.budgets.takeable(pool.id) < count {
            return None;
        }
        if self.supply.units.unit == Unit::Whole {
            return self.way_in_whole_cores(pool, count).map(|way| way.parts);
        }
        let own = Part { pool: pool.id, is_own: true, count };
        if pool.children.is_empty() || self.is_spread_over(pool) {
            return Some(smallvec![own]);
        }
        if self.is_over_each(pool, count) {
            return self.span(pool, count);
        }
        let children = pool.children.iter();
        let children = children.map(|id| Part { pool: *id, is_own: false, count });
        let left = |part: &Part| self.available(*part).checked_sub(count);
        let alone = |part: Part| Some((self.cost_of_part(part)?, left(&part)?, part));
        // A pool with cores of its own that belong to no NUMA node or L3 is rare.
        let own = (!pool.cores.is_empty()).then_some(own);
        let alone = children
            .chain(own)
            .filter(|part| left(part).is_some())
            .filter_map(alone)
            .min_by_key(|(cost, left, _)| (*cost, *left));
        let Some((cost, _, part)) = alone else { return self.span(pool, count) };
        // Whole cores of the same NUMA node go before one L3.
        let better = match self.is_inside_node(pool) && self.splits_needlessly(cost, count) {
            true => self.best_way(pool, count, &pool.children, Giving::Any),
            false => None,
        };
        match better.filter(|way| way.cost.split_cores < cost.split_cores) {
            Some(way) => Some(way.parts),
            None => Some(smallvec![part]),
        }
    }

    /// Whether it is, or lies in, one NUMA node and one package.
    fn is_inside_node(&self, pool: &Pool) -> bool {
        pool.nodes.len() <= 1 && self.supply.pools.count(Level::Package, &pool.cpus) <= 1
    }

    /// Whether more cores are split than the number of CPUs makes necessary.
    fn splits_needlessly(&self, cost: Cost, count: usize) -> bool {
        let is_odd = !count.is_multiple_of(self.supply.pools.width);
        self.supply.units.unit == Unit::Cpu && cost.split_cores > u32::from(is_odd)
    }

    /// Whether one of each of its cores is taken before a second, in whichever pool inside it; not where sharers of these keep something back.
    fn is_spread_over(&self, pool: &Pool) -> bool {
        let Supply { pools, units, takeable, .. } = self.supply;
        let inside = || pools.iter().filter(|it| it.cpus.is_subset(&pool.cpus) && it.id != pool.id);
        let has_all =
            |it: &Pool| self.budgets.takeable(it.id) == units.count(takeable.in_pool(it.id));
        units.unit == Unit::Spread && self.is_inside_node(pool) && inside().all(has_all)
    }

    /// The cores that are in the pool and in no pool inside it; all that are in it, where these are spread over.
    fn cores_of(&self, pool: &Pool) -> SmallVec<[(CoreIdx, &Core); 32]> {
        let pools = self.supply.pools;
        if !self.is_spread_over(pool) {
            return pools.own_cores(pool).collect();
        }
        let inside = pools.iter().filter(|it| it.cpus.is_subset(&pool.cpus));
        inside.flat_map(|it| pools.own_cores(it)).collect()
    }

    /// Whether each NUMA node from which the pool's units come gives as many, but for one core; those of one node are.
    pub(crate) fn is_even_in(&self, pool: PoolId) -> bool {
        let Some(pool) = self.supply.pools.get(pool) else { return false };
        match self.parts(pool, self.count).as_deref() {
            _ if pool.nodes.len() <= 1 => true,
            None => false,
            Some([alone]) => alone.is_own || self.is_even_in(alone.pool),
            Some(parts) => self.are_even(parts),
        }
    }

    /// Whether each gives something, and none a core more than another.
    fn are_even(&self, parts: &[Part]) -> bool {
        let counts = parts.iter().map(|part| part.count);
        let (least, most) = (counts.clone().min().unwrap_or(0), counts.max().unwrap_or(0));
        least > 0 && most - least <= self.core_units()
    }

    /// Units of a whole core.
    fn core_units(&self) -> usize {
        if self.supply.units.is_by_core() { 1 } else { self.supply.pools.width }
    }

    /// As many units, but for one core, from each of so many NUMA nodes, as near to each other as possible.
    fn even_way(&self, pool: &Pool, count: usize, nodes: u32) -> Option<Way> {
        let share = count / usize::try_from(nodes).ok().filter(|nodes| *nodes > 1)?;
        let core = self.core_units();
        let rings = self.rings(pool).into_iter();
        let ways = rings.flat_map(|(distance, domains)| {
            let least = share.saturating_sub(core).max(1)..=share;
            let givings = least.map(|least| Giving::Between(least, least + core));
            let ways: SmallVec<[Way; 4]> = givings
                .filter_map(|giving| self.best_way(pool, count, &domains, giving))
                .filter(|way| way.cost.nodes == nodes)
                .collect();
            ways.into_iter().map(move |way| (distance, way))
        });
        let key = |(distance, way): &(u32, Way)| (*distance, way.key());
        ways.min_by(|one, other| key(one).cmp(&key(other))).map(|(_, way)| way)
    }

    /// The NUMA nodes of a pool that are within a distance of one of them, for each node and distance.
    fn rings(&self, pool: &Pool) -> BTreeSet<(u32, Vec<PoolId>)> {
        let pools = self.supply.pools;
        let node = |id: &PoolId| pools.get(*id).and_then(|it| it.nodes.first());
        let mut rings = BTreeSet::new();
        for seed in pool.node_pools.iter().filter_map(node) {
            let far = |id: &PoolId| node(id).map_or(u32::MAX, |to| pools.distance(seed, to));
            for distance in pool.node_pools.iter().map(far).collect::<BTreeSet<u32>>() {
                let inside = pool.node_pools.iter().filter(|id| far(id) <= distance);
                rings.insert((distance, inside.copied().collect()));
            }
        }
        rings
    }

    /// Whether the pool has all of the nodes of which each is to give something.
    fn is_over_each(&self, pool: &Pool, count: usize) -> bool {
        let each = &self.spread.each;
        !each.is_empty() && count == self.count && each.is_subset(&pool.nodes)
    }

    fn available(&self, part: Part) -> usize {
        match self.supply.pools.get(part.pool) {
            Some(pool) if part.is_own => self.supply.own_units(pool),
            _ => self.budgets.takeable(part.pool),
        }
    }

    /// Whether as many CPUs are wished of each NUMA node of the pool.
    fn is_evened(&self, pool: &Pool) -> bool {
        self.spread.is_even && !pool.node_pools.is_empty()
    }

    /// One that splits fewer cores of a node, or else needs fewer L3s, than was found; where one thread of each core is wished, one with fewer
    /// second threads.
    fn better_way(&self, pool: &Pool, count: usize, found: Cost, domains: usize) -> Option<Way> {
        let inside = if pool.node_pools.is_empty() { &pool.children } else { &pool.node_pools };
        let is_best = match self.supply.units.unit == Unit::Spread {
            true => {
                let sizes = inside.iter().map(|id| self.budgets.takeable(*id).min(count));
                let is_too_large = sizes.sum::<usize>().saturating_mul(count) > WAYS_MAX;
                is_too_large || found.split_cores as usize <= self.second_threads(pool, count)
            }
            false => {
                let is_inside = self.is_inside_node(pool);
                // Where all cores have as many threads, an odd number splits one in any way; else a narrower core may be just what is left over.
                let splits_least =
                    found.split_cores == 0 || self.supply.uniform_whole_cpus(pool.id).is_some();
                let needs_all = || splits_least && self.needs_as_many(inside, count, domains);
                let has_fewest = domains <= 2 || !is_inside || needs_all();
                let is_too_large = !is_inside && count > COUNT_OVER_NODES_MAX;
                is_too_large || (has_fewest && !self.splits_needlessly(found, count))
            }
        };
        if is_best {
            return None;
        }
        let way = self.best_way(pool, count, inside, Giving::Any)?;
        let is_better = (way.cost.split_cores, way.parts.len()) < (found.split_cores, domains);
        let takes_more_nodes = !pool.node_pools.is_empty() && way.cost.nodes > found.nodes;
        (is_better && !takes_more_nodes).then_some(way)
    }

    /// Whether fewer of these domains, whichever, cannot give so many units.
    fn needs_as_many(&self, inside: &[PoolId], count: usize, domains: usize) -> bool {
        let sizes = inside.iter().map(|id| self.budgets.takeable(*id));
        let mut sizes: SmallVec<[usize; 64]> = sizes.collect();
        sizes.sort_unstable_by_key(|size| Reverse(*size));
        sizes.into_iter().take(domains.saturating_sub(1)).sum::<usize>() < count
    }

    /// Further threads of cores that so many CPUs of the pool cannot do without, because there are fewer cores.
    fn second_threads(&self, pool: &Pool, count: usize) -> usize {
        let Supply { pools, takeable, .. } = self.supply;
        let inside = pools.iter().filter(|it| it.cpus.is_subset(&pool.cpus));
        let cores = inside.flat_map(|it| pools.own_cores(it));
        count.saturating_sub(cores.filter(|(idx, _)| takeable.in_core(*idx) > 0).count())
    }

    /// Takes units of the cores that are in the pool and in no pool inside it; `take` is called with each core and the number of its threads.
    fn take_cores(&self, pool: &Pool, count: usize, mut take: impl FnMut(&Core, usize)) -> Cost {
        let Supply { units, takeable, .. } = self.supply;
        match units.unit {
            Unit::Spread => return self.take_spread(pool, count, take),
            Unit::Whole => {
                let cores = self.whole_cores(pool, count).unwrap_or_default();
                let cores = cores.iter().filter_map(|idx| self.supply.pools.cores.get(idx.index()));
                cores.for_each(|core| take(core, core.threads.len()));
                return Cost::default();
            }
            Unit::Cpu | Unit::Thread | Unit::Core => {}
        }
        let mut missing = count;
        let mut cost = Cost::default();
        let mut rest: SmallVec<[Rest; 64]> = SmallVec::new();
        for (idx, core) in self.supply.pools.own_cores(pool) {
            if missing == 0 {
                break;
            }
            let (width, free) = (core.threads.len(), takeable.in_core(idx));
            let (is_whole, there) = (free == width, units.in_core(core, free));
            if is_whole && !units.is_by_core() && width <= missing {
                take(core, width);
                missing -= width;
            } else if there > 0 {
                let strangeness = if is_whole { 0 } else { self.strangeness(core) };
                rest.push(Rest { idx, units: there, breaks: u32::from(is_whole), strangeness });
            }
        }
        while missing > 0 {
            let Some(at) = best_of(&rest, missing) else { break };
            let next = rest.swap_remove(at);
            let Some(core) = self.supply.pools.cores.get(next.idx.index()) else { continue };
            let threads = next.units.min(missing);
            take(core, threads);
            missing -= threads;
            cost.split_cores += u32::from(!units.is_by_core());
            cost.broken_cores += next.breaks;
            cost.strangers += next.strangeness;
        }
        cost
    }

    /// One thread of each core, of whole ones first; then a second one of each, and so on.
    fn take_spread(&self, pool: &Pool, count: usize, mut take: impl FnMut(&Core, usize)) -> Cost {
        let Supply { units, takeable, .. } = self.supply;
        let there = |idx, core: &Core| units.in_core(core, takeable.in_core(idx));
        let mut cores = self.cores_of(pool);
        cores.sort_by_key(|(idx, core)| there(*idx, core) < core.threads.len());
        let mut taken: SmallVec<[usize; 32]> = smallvec![0; cores.len()];
        let mut missing = count;
        for round in 0..self.supply.pools.width {
            for ((idx, core), taken) in cores.iter().zip(&mut taken) {
                if missing > 0 && there(*idx, core) > round {
                    *taken += 1;
                    missing -= 1;
                }
            }
        }
        let mut cost = Cost::default();
        for ((_, core), threads) in cores.iter().zip(taken).filter(|(_, threads)| *threads > 0) {
            take(core, threads);
            cost.split_cores += u32::try_from(threads - 1).unwrap_or(u32::MAX);
        }
        cost
    }

    /// 0 when another thread of the core belongs to the same pod, 1 for the same namespace, 2 for others.
    fn strangeness(&self, core: &Core) -> u32 {
        let Some(Kin { ledger, owner }) = self.kin else { return 0 };
        let strange = |theirs: Owner| match theirs {
            _ if theirs == owner => 0,
            _ if theirs.namespace == owner.namespace => 1,
            _ => 2,
        };
        let owners = core.threads.iter().filter_map(|cpu| ledger.owner_of(*cpu));
        owners.map(strange).min().unwrap_or(2)
    }
}

/// A core of which only a part is taken.
#[derive(Clone, Copy)]
struct Rest {
    idx: CoreIdx,
    units: usize,
    /// 1 when it was whole.
    breaks: u32,
    strangeness: u32,
}

/// One core that can give all that is missing, rather a broken one, of kin, and the most broken, which is of least use to a request for a whole one;
/// or else the one that can give most.
fn best_of(rest: &[Rest], missing: usize) -> Option<usize> {
    let key = |core: &Rest| match core.units >= missing {
        true => (0, Reverse(0), core.breaks, core.strangeness, core.units, core.idx),
        false => (1, Reverse(core.units), core.breaks, core.strangeness, 0, core.idx),
    };
    let ranked = rest.iter().enumerate().filter(|(_, core)| core.units > 0);
    ranked.min_by_key(|(_, core)| key(core)).map(|(at, _)| at)
}
