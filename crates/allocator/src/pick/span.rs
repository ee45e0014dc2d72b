//! Units gathered from several domains, one after the other. In: a pool and what its domains can give. Out: how much comes from which.

use std::cmp::Reverse;

use bayplan_types::NodeId;
use smallvec::SmallVec;

use super::Picker;
use super::way::{Cost, Part, Parts};
use crate::budget::PerPool;
use crate::pool::{Pool, PoolId};

impl Picker<'_> {
    /// The fewest NUMA nodes of a pool that has several, else the fewest of its children: the largest first, until one can hold the rest.
    /// Once with whole cores only, because what is odd breaks a core in every domain that is spanned, and once with all.
    pub(super) fn span(&self, pool: &Pool, count: usize) -> Option<Parts> {
        let is_over_each = self.is_over_each(pool, count);
        let gather = |is_whole: bool| -> Option<(Cost, Parts)> {
            let mut span = Span::new(self, pool, count, is_whole);
            if is_over_each {
                span.begin_with_each();
                span.even_out(count);
            } else {
                while let Some(part) = span.next_part() {
                    span.take(part);
                }
                if self.is_evened(pool) && span.missing == 0 {
                    span.even_out(count);
                }
            }
            if span.missing > 0 || (is_over_each && !self.are_even(&span.parts)) {
                return None;
            }
            let mut cost = Cost::default();
            for part in &span.parts {
                cost.add(self.cost_of_part(*part)?);
            }
            Some((cost, span.parts))
        };
        let ways = [true, false].into_iter().filter_map(gather);
        let (cost, parts) = ways.min_by_key(|(cost, _)| *cost)?;
        let better = match is_over_each {
            true => None,
            false if self.is_evened(pool) => {
                let is_found = self.are_even(&parts) && !self.splits_needlessly(cost, count);
                if is_found { None } else { self.even_way(pool, count, cost.nodes) }
            }
            false => self.better_way(pool, count, cost, parts.len()),
        };
        Some(better.map_or(parts, |way| way.parts))
    }
}

/// Units that are gathered from several domains.
struct Span<'a, 'b> {
    picker: &'a Picker<'b>,
    pool: &'a Pool,
    /// Domains that nothing was taken from yet.
    open: SmallVec<[Part; 16]>,
    /// What each pool can still give.
    left: PerPool<usize>,
    /// Whole cores only, but for the last domain: what each pool has of them.
    whole: Option<PerPool<usize>>,
    missing: usize,
    parts: Parts,
}

impl<'a, 'b> Span<'a, 'b> {
    fn new(picker: &'a Picker<'b>, pool: &'a Pool, count: usize, is_whole: bool) -> Span<'a, 'b> {
        let pools = &picker.supply.pools.pools;
        let domains = if pool.node_pools.is_empty() { &pool.children } else { &pool.node_pools };
        let mut open: SmallVec<[Part; 16]> =
            domains.iter().map(|id| Part { pool: *id, is_own: false, count: 0 }).collect();
        let with_own = pools.iter().filter(|it| {
            !it.cores.is_empty() && !it.children.is_empty() && it.cpus.is_subset(&pool.cpus)
        });
        let own = with_own.filter(|it| it.id == pool.id || it.nodes.len() > 1);
        open.extend(own.map(|it| Part { pool: it.id, is_own: true, count: 0 }));
        Span {
            picker,
            pool,
            open,
            left: pools.iter().map(|it| picker.budgets.takeable(it.id)).collect(),
            whole: is_whole.then(|| picker.budgets.in_whole_cores(&picker.supply)),
            missing: count,
            parts: Parts::new(),
        }
    }

    /// The domain to take from next: the nearest that can give the rest, with the least left over; else the one that can give most.
    fn next_part(&self) -> Option<Part> {
        if self.missing == 0 {
            return None;
        }
        let rest = |part: &Part| Part { count: self.missing, ..*part };
        let holds_rest = |part: &&Part| self.usable(part, None) >= self.missing;
        let last = self.open.iter().filter(holds_rest).map(rest).min_by_key(|part| {
            let cost = self.picker.cost_of_part(*part);
            (cost.is_none(), cost, self.far(part), self.usable(part, None), part.pool)
        });
        last.or_else(|| {
            let usable =
                |part: &Part| Part { count: self.usable(part, self.whole.as_ref()), ..*part };
            let open = self.open.iter().map(usable).filter(|part| part.count > 0);
            open.max_by_key(|part| (part.count, Reverse(self.far(part)), Reverse(part.pool)))
        })
    }

    /// Units that the domain and everything between it and the pool can give, all or in whole cores.
    fn usable(&self, part: &Part, whole: Option<&PerPool<usize>>) -> usize {
        let picker = self.picker;
        let own = match whole {
            Some(whole) if !part.is_own => whole.get(part.pool.index()).copied().unwrap_or(0),
            _ => picker.available(*part),
        };
        let around = self.chain(part.pool);
        let usable =
            around.filter_map(|it| self.left.get(it.id.index()).copied()).fold(own, usize::min);
        let usable = usable.min(self.missing);
        match whole.is_some() && !picker.supply.units.is_by_core() {
            true => usable - usable % picker.supply.pools.width,
            false => usable,
        }
    }

    /// The domain and the pools around it, up to the pool.
    fn chain(&self, from: PoolId) -> impl Iterator<Item = &'a Pool> {
        let cpus = &self.pool.cpus;
        self.picker.supply.pools.chain(from).take_while(|it| it.cpus.is_subset(cpus))
    }

    /// Sum of the distances to the domains that were chosen before.
    fn far(&self, part: &Part) -> u64 {
        let pools = self.picker.supply.pools;
        let node = |id: PoolId| -> Option<NodeId> { pools.get(id)?.nodes.first() };
        let Some(from) = node(part.pool) else { return 0 };
        let chosen = self.parts.iter().filter_map(|part| node(part.pool));
        chosen.map(|to| u64::from(pools.distance(from, to))).sum()
    }

    fn take(&mut self, part: Part) {
        self.missing -= part.count;
        let chain: SmallVec<[usize; 8]> = self.chain(part.pool).map(|it| it.id.index()).collect();
        for at in chain {
            if let Some(left) = self.left.get_mut(at) {
                *left = left.saturating_sub(part.count);
            }
        }
        self.open.retain(|open| (open.pool, open.is_own) != (part.pool, part.is_own));
        self.parts.push(part);
    }

    /// Chooses the domains of which each is to give something.
    fn begin_with_each(&mut self) {
        let (pools, each) = (self.picker.supply.pools, &self.picker.spread.each);
        let is_one = |part: &&Part| pools.get(part.pool).is_some_and(|it| it.nodes.is_subset(each));
        self.parts = self.open.iter().filter(is_one).copied().collect();
    }

    /// The same number of units from each domain, as far as each has them and no core is split for it, but where each is to have at least one.
    fn even_out(&mut self, count: usize) {
        let mut parts = std::mem::take(&mut self.parts);
        *self = Span::new(self.picker, self.pool, count, self.whole.is_some());
        parts.sort_by_key(|part| (self.usable(part, None), part.pool));
        let width = self.picker.core_units();
        for (at, part) in parts.iter().enumerate() {
            let share = self.missing.div_ceil(parts.len() - at);
            let share = match share < width && !self.picker.spread.each.is_empty() {
                true => share,
                false => share.next_multiple_of(width),
            };
            let count = share.min(self.usable(part, None));
            self.take(Part { count, ..*part });
        }
    }
}
