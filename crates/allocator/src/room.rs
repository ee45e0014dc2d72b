//! Which sharers have to move so that a pool can give up CPUs. In: the ledger, a pool, how many exclusive CPUs are wanted there. Out: moves, and the
//! loads after them.
//!
//! A container that shares is placed somewhere, but it need not stay there: its memory stays where it is, and it can run elsewhere.
//! So CPUs that are only kept for shared containers are no reason to spread a request for exclusive CPUs.
//!
//! Approach: while the pool cannot give enough, find the pool that is short (itself, one around it, or one inside it) and move the
//! largest sharer out of it, to the pool of whole NUMA nodes that has most room, or else to the next pool around it. A container that has exclusive
//! CPUs there, too, goes last, and only with its shared part: to the nearest node with room. On every pool the CPU time requested keeps fitting;
//! where the machine as a whole is short, no container can be moved. It ends, because every move leads out of the part of the machine that is short,
//! or further up.

use std::cmp::Reverse;

use bayplan_types::{CpuSet, MilliCpu};

use crate::allocation::Allocation;
use crate::budget::{Budgets, Load, Supply, Unit, Units};
use crate::change::Move;
use crate::counted::Counted;
use crate::id::ContainerId;
use crate::ledger::Ledger;
use crate::pool::{Pool, PoolId};

/// A container with a shared part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharer {
    id: ContainerId,
    pool: PoolId,
    milli: MilliCpu,
    /// It has CPUs of its own, too, which stay where they are.
    is_mixed: bool,
}

/// All shared containers that could be moved: those without CPUs of their own first, the largest first.
pub(crate) fn movable_sharers(ledger: &Ledger) -> Vec<Sharer> {
    // A container that moves leaves its memory behind, and what it had to be near.
    let may_move = |held: &Allocation| {
        let terms = &held.terms;
        let is_bound = terms.is_memory_bound || terms.is_place_bound;
        !held.is_reserved && !terms.is_immovable && !is_bound
    };
    let allocations = ledger.allocations().filter(|(_, held)| may_move(held));
    let mut sharers: Vec<Sharer> = allocations
        .filter_map(|(id, it)| {
            let is_mixed = !it.exclusive.is_empty();
            Some(Sharer { id, pool: it.pool, milli: it.shared?, is_mixed })
        })
        .collect();
    // Of equal ones those of the first pool, so that names decide only between those that are alike in everything.
    let order = |it: &Sharer| (it.is_mixed, Reverse(it.milli), it.pool, it.id);
    sharers.sort_by_key(order);
    sharers
}

/// What a request wants from a pool.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Exclusive CPUs, in the units of the supply.
    pub(crate) count: usize,
    /// CPU time on the pool's shared CPUs.
    pub(crate) shared: Option<MilliCpu>,
}

/// The moves after which `pool` can give `wanted`, and the load of each pool then; `None` when no moves help.
pub(crate) fn make_room(
    supply: Supply<'_>,
    loads: &[Load],
    sharers: &[Sharer],
    pool: &Pool,
    wanted: Wanted,
) -> Option<(Vec<Move>, Vec<Load>)> {
    let mut room = Room {
        supply,
        loads: loads.to_vec(),
        sharers: sharers.to_vec(),
        pool,
        wanted,
        budgets: Budgets::new(&supply, loads),
    };
    let mut moves: Vec<Move> = Vec::new();
    while room.gives() < wanted.count {
        let made = room.move_one()?;
        match moves.iter_mut().find(|earlier| earlier.container == made.container) {
            Some(earlier) => earlier.to = made.to,
            None => moves.push(made),
        }
        room.budgets = Budgets::new(&supply, &room.loads);
    }
    Some((moves, room.loads))
}

/// The sharers that have to go elsewhere so that these CPUs can be taken from all, and what the others request keeps fitting; none where that cannot
/// be.
pub fn plan_way(ledger: &Ledger, cpus: &CpuSet) -> Vec<Move> {
    let pools = ledger.pools();
    let taken = cpus.intersection(ledger.free());
    let around = pools.iter().filter(|pool| taken.is_subset(&pool.cpus));
    let Some(pool) = around.min_by_key(|pool| pool.cpus.len()).filter(|_| !taken.is_empty()) else {
        return Vec::new();
    };
    let takeable = Counted::new(pools, &taken);
    let units = Units { unit: Unit::Cpu, only_whole: false, cpus: 1 };
    let supply = Supply { pools, shared: Some(ledger.counted()), takeable: &takeable, units };
    let wanted = Wanted { count: taken.len(), shared: None };
    let room = make_room(supply, ledger.loads(), &movable_sharers(ledger), pool, wanted);
    room.map(|(moves, _)| moves).unwrap_or_default()
}

/// The state after the moves so far.
struct Room<'a> {
    supply: Supply<'a>,
    loads: Vec<Load>,
    sharers: Vec<Sharer>,
    pool: &'a Pool,
    wanted: Wanted,
    budgets: Budgets,
}

impl Room<'_> {
    fn gives(&self) -> usize {
        self.budgets.takeable_by(&self.supply, &self.loads, self.pool.id, self.wanted.shared)
    }

    fn load(&self, pool: PoolId) -> Load {
        self.loads.get(pool.index()).copied().unwrap_or_default()
    }

    /// Whether the pool can give all of it as far as its own sharers are concerned.
    fn is_short(&self, pool: &Pool) -> bool {
        let mut load = self.load(pool.id);
        if let Some(milli) = self.wanted.shared {
            load.add(milli);
        }
        let kept = load.cpus_kept(pool);
        let spare = self.supply.shared_in(pool.id).saturating_sub(kept);
        spare < self.wanted.count * self.supply.units.cpus
    }

    /// The widest pool around or at the target that is short, or else the pool inside it that keeps most back, of several that with
    /// the fewest containers.
    fn short_pool(&self) -> Option<&Pool> {
        let mut short = self.supply.pools.chain(self.pool.id).filter(|pool| self.is_short(pool));
        if let Some(first) = short.next() {
            return Some(short.last().unwrap_or(first));
        }
        let inside = self
            .supply
            .pools
            .iter()
            .filter(|pool| pool.id != self.pool.id && pool.cpus.is_subset(&self.pool.cpus));
        let kept = |pool: &&Pool| {
            let load = self.load(pool.id);
            let size = (Reverse(load.containers), Reverse(pool.cpus.len()), Reverse(pool.id));
            (load.cpus_kept(pool), size)
        };
        inside.filter(|pool| self.budgets.is_held_back(&self.supply, pool)).max_by_key(kept)
    }

    /// Moves the largest sharer that has somewhere to go out of the pool that is short.
    fn move_one(&mut self) -> Option<Move> {
        let short = self.short_pool()?;
        if short.id == PoolId::MACHINE {
            return None;
        }
        let inside = |id: PoolId| {
            self.supply.pools.get(id).is_some_and(|pool| pool.cpus.is_subset(&short.cpus))
        };
        let (position, to) =
            self.sharers.iter().enumerate().filter(|(_, sharer)| inside(sharer.pool)).find_map(
                |(position, sharer)| Some((position, self.destination(short, sharer)?)),
            )?;
        let sharer = self.sharers.get_mut(position)?;
        let milli = sharer.milli;
        let made = Move { container: sharer.id, from: sharer.pool, to, milli };
        sharer.pool = to;
        for pool in self.supply.pools.chain(made.from) {
            if let Some(load) = self.loads.get_mut(pool.id.index()) {
                load.remove(milli);
            }
        }
        for pool in self.supply.pools.chain(to) {
            if let Some(load) = self.loads.get_mut(pool.id.index()) {
                load.add(milli);
            }
        }
        Some(made)
    }

    /// Where a sharer can go: a pool of whole nodes that takes part in nothing of this, with most room, for a mixed one the nearest to where it
    /// was; or the next pool around the one that is short.
    fn destination(&self, short: &Pool, sharer: &Sharer) -> Option<PoolId> {
        let is_leaf = |pool: &Pool| {
            pool.is_shared
                && pool
                    .children
                    .iter()
                    .all(|child| self.supply.pools.get(*child).is_none_or(|child| !child.is_shared))
        };
        let apart = self.supply.pools.iter().filter(|pool| {
            is_leaf(pool)
                && !pool.cpus.intersects(&self.pool.cpus)
                && !pool.cpus.intersects(&short.cpus)
        });
        let room = |pool: &Pool| {
            let free = MilliCpu::from_cpus(self.supply.shared_in(pool.id));
            (free >= self.load(pool.id).milli + sharer.milli && free > MilliCpu::ZERO)
                .then(|| free - self.load(pool.id).milli)
        };
        let far = |pool: &Pool| if sharer.is_mixed { self.distance(sharer.pool, pool) } else { 0 };
        let best = apart
            .filter(|pool| self.fits_around(pool, sharer.milli))
            .filter_map(|pool| Some((Reverse(far(pool)), room(pool)?, Reverse(pool.id))))
            .max();
        match best {
            Some((.., Reverse(id))) => Some(id),
            None => short.parent.filter(|parent| *parent != sharer.pool),
        }
    }

    /// Between the nodes of two pools that are nearest to each other.
    fn distance(&self, from: PoolId, to: &Pool) -> u32 {
        let pools = self.supply.pools;
        let from = pools.get(from).into_iter().flat_map(|pool| pool.nodes.iter());
        let pairs = from.flat_map(|from| to.nodes.iter().map(move |to| (from, to)));
        pairs.map(|(from, to)| pools.distance(from, to)).min().unwrap_or(u32::MAX)
    }

    /// Whether the pools around `pool` that do not hold the target have room, too.
    fn fits_around(&self, pool: &Pool, milli: MilliCpu) -> bool {
        let mut around = self.supply.pools.chain(pool.id);
        around.all(|outer| {
            let holds_target = self.pool.cpus.is_subset(&outer.cpus);
            let free = MilliCpu::from_cpus(self.supply.shared_in(outer.id));
            holds_target || self.load(outer.id).milli + milli <= free
        })
    }
}
