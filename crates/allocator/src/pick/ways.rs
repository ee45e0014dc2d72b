//! The best way to take units from several domains at once. In: a pool, the domains in it, what each may give at what cost. Out: a [`Way`]
//! per number of units.
//!
//! A table per domain is joined with the next, up the tree of pools, so that what each pool can give holds on the whole way. Polynomial: the
//! number of units squared for each domain.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use smallvec::{SmallVec, smallvec};

use super::Picker;
use super::way::{Cost, Giving, Key, Part, Way};
use crate::pool::{CoreIdx, Pool, PoolId};

/// By number of units; `None` where that many cannot be had.
type Table = Vec<Option<Way>>;

#[cfg(test)]
thread_local! {
    /// Ways that were compared by this thread, for tests that bound the search.
    pub(crate) static COMPARED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Puts a way of this key into the table where none as good is there.
fn improve(table: &mut Table, count: usize, key: Key, way: impl FnOnce() -> Way) {
    #[cfg(test)]
    COMPARED.set(COMPARED.get() + 1);
    if let Some(slot) = table.get_mut(count)
        && slot.as_ref().is_none_or(|there| key < there.key())
    {
        *slot = Some(way());
    }
}

/// The table of two domains together.
fn join(one: &Table, other: &Table) -> Table {
    let mut joined: Table = vec![None; one.len()];
    // Of equally good ways that of the domains that come first.
    for (had, before) in one.iter().enumerate().rev() {
        let Some(before) = before else { continue };
        for (more, after) in other.iter().enumerate().take(one.len() - had) {
            if let Some(after) = after {
                improve(&mut joined, had + more, before.key_with(after), || before.and(after));
            }
        }
    }
    joined
}

/// Cores of these groups with so many threads together, as many of the first group as possible.
fn fill(
    groups: &[(usize, SmallVec<[CoreIdx; 16]>)],
    count: usize,
) -> Option<SmallVec<[CoreIdx; 16]>> {
    if count == 0 {
        return Some(SmallVec::new());
    }
    let ((width, cores), narrower) = groups.split_first()?;
    (0..=cores.len().min(count / width)).rev().find_map(|taken| {
        let rest = fill(narrower, count - taken * width)?;
        Some(cores.iter().take(taken).copied().chain(rest).collect())
    })
}

impl Picker<'_> {
    /// The best way to take `count` units of the pool from `domains`, of which each gives what is allowed.
    pub(super) fn best_way(
        &self,
        pool: &Pool,
        count: usize,
        domains: &[PoolId],
        giving: Giving,
    ) -> Option<Way> {
        let table = self.ways_in(pool, count, domains, giving);
        table.into_iter().nth(count).flatten()
    }

    fn ways_in(&self, pool: &Pool, count: usize, domains: &[PoolId], giving: Giving) -> Table {
        let takeable = self.budgets.takeable(pool.id).min(count);
        let mut table: Table = vec![None; count + 1];
        improve(&mut table, 0, Key::default(), Way::default);
        if domains.contains(&pool.id) {
            for units in (1..=takeable).filter(|units| giving.allows(*units)) {
                let part = Part { pool: pool.id, is_own: false, count: units };
                if let Some(cost) = self.cost_of_part(part) {
                    // Several domains in one node are one node.
                    let cost = Cost { nodes: u32::from(pool.id == pool.node), ..cost };
                    let way = Way { cost, uneven: units * units, parts: smallvec![part] };
                    improve(&mut table, units, way.key(), || way);
                }
            }
            return table;
        }
        let pools = self.supply.pools;
        let holds = |inner: &&Pool| {
            domains.iter().filter_map(|id| pools.get(*id)).any(|it| it.cpus.is_subset(&inner.cpus))
        };
        let inside = pool.children.iter().filter_map(|id| pools.get(*id)).filter(holds);
        for inner in inside {
            table = join(&table, &self.ways_in(inner, count, domains, giving));
        }
        table.iter_mut().skip(takeable + 1).for_each(|way| *way = None);
        table
    }

    /// The best way to take CPUs of a pool in whole cores, where these differ in their threads.
    pub(super) fn way_in_whole_cores(&self, pool: &Pool, count: usize) -> Option<Way> {
        self.whole_ways(pool, count).into_iter().nth(count).flatten()
    }

    /// The cores of the pool, and of no pool inside it, that make so many CPUs without a part of a core; the widest first.
    pub(super) fn whole_cores(&self, pool: &Pool, count: usize) -> Option<SmallVec<[CoreIdx; 16]>> {
        let mut by_width: BTreeMap<Reverse<usize>, SmallVec<[CoreIdx; 16]>> = BTreeMap::new();
        for (idx, core) in self.supply.pools.own_cores(pool) {
            let width = core.threads.len();
            if self.supply.takeable.in_core(idx) == width {
                by_width.entry(Reverse(width)).or_default().push(idx);
            }
        }
        let groups: SmallVec<[(usize, SmallVec<[CoreIdx; 16]>); 4]> =
            by_width.into_iter().map(|(Reverse(width), cores)| (width, cores)).collect();
        fill(&groups, count)
    }

    fn whole_ways(&self, pool: &Pool, count: usize) -> Table {
        let takeable = self.budgets.takeable(pool.id).min(count);
        let mut table: Table = vec![None; count + 1];
        improve(&mut table, 0, Key::default(), Way::default);
        let nodes = u32::from(!pool.nodes.is_empty());
        for units in 1..=takeable {
            if self.whole_cores(pool, units).is_some() {
                let part = Part { pool: pool.id, is_own: true, count: units };
                let cost = Cost { nodes, ..Cost::default() };
                let way = Way { cost, uneven: 0, parts: smallvec![part] };
                improve(&mut table, units, way.key(), || way);
            }
        }
        for inner in pool.children.iter().filter_map(|id| self.supply.pools.get(*id)) {
            table = join(&table, &self.whole_ways(inner, count));
        }
        table.iter_mut().skip(takeable + 1).for_each(|way| *way = None);
        if pool.nodes.len() <= 1 {
            let ways = table.iter_mut().flatten().filter(|way| !way.parts.is_empty());
            ways.for_each(|way| way.cost.nodes = nodes);
        }
        table
    }
}
