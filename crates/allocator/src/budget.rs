//! How much each pool can give up. In: pools, the shared CPUs, the CPUs that may be taken, the load of each pool. Out: budgets.
//!
//! A pool must keep enough shared CPUs for the CPU time requested on it and inside it, and at least one if any container shares it; the machine
//! always keeps one, so that a BestEffort container can start at any time, unless it has reserved CPUs to which containers that request nothing can
//! flee. Pools form a tree, so limits hold along the whole chain: what is taken from a pool is taken from every pool around it.

use bayplan_types::MilliCpu;
use smallvec::{SmallVec, smallvec};

use crate::counted::{Count, Counted};
use crate::pool::{Core, CoreIdx, Pool, PoolId, Pools};

/// One value per pool, without heap allocation on machines of up to so many pools.
pub(crate) type PerPool<T> = SmallVec<[T; 64]>;

/// What the containers on a pool and on the pools inside it ask of its shared CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) milli: MilliCpu,
    pub(crate) containers: u32,
}

impl Load {
    pub(crate) fn add(&mut self, milli: MilliCpu) {
        self.milli += milli;
        self.containers += 1;
    }

    pub(crate) fn remove(&mut self, milli: MilliCpu) {
        self.milli -= milli;
        self.containers -= 1;
    }

    /// Whether the pool must have a shared CPU, whatever its containers request.
    pub(crate) fn needs_a_cpu(self, pool: &Pool) -> bool {
        (self.containers > 0 || pool.id == PoolId::MACHINE) && !pool.has_refuge
    }

    /// Shared CPUs that must stay.
    pub(crate) fn cpus_kept(self, pool: &Pool) -> usize {
        self.milli.cpus_needed().max(usize::from(self.needs_a_cpu(pool)))
    }
}

/// What is taken at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A CPU; of whole cores as long as there are any.
    Cpu,
    /// A CPU; of a core all or none.
    Whole,
    /// A CPU; one of each core before a second one of any.
    Spread,
    /// One thread of a core.
    Thread,
    /// All threads of a core.
    Core,
}

/// In which units CPUs are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Units {
    pub(crate) unit: Unit,
    /// Of cores of which some threads are taken or closed to others, nothing is taken.
    pub(crate) only_whole: bool,
    /// CPUs that are no longer shared when one unit is taken.
    pub(crate) cpus: usize,
}

impl Units {
    /// No core gives more than one unit.
    pub(crate) fn is_by_core(self) -> bool {
        matches!(self.unit, Unit::Thread | Unit::Core)
    }

    /// Units that there are.
    pub(crate) fn count(self, count: Count) -> usize {
        match (self.is_by_core(), self.only_whole) {
            (true, true) => count.whole_cores,
            (true, false) => count.cores,
            (false, true) => count.whole_cpus,
            (false, false) => count.cpus,
        }
    }

    /// Units that there are in whole cores.
    fn count_whole(self, count: Count) -> usize {
        Units { only_whole: true, ..self }.count(count)
    }

    /// Units that one core can give, of which `free` threads are there.
    pub(crate) fn in_core(self, core: &Core, free: usize) -> usize {
        match (free == 0 || (self.only_whole && free < core.threads.len()), self.is_by_core()) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => free,
        }
    }
}

/// What one request can be served from.
#[derive(Clone, Copy)]
pub(crate) struct Supply<'a> {
    pub(crate) pools: &'a Pools,
    /// CPUs on which shared parts run; `None`: what is taken is not taken from them.
    pub(crate) shared: Option<&'a Counted>,
    /// CPUs that may be taken.
    pub(crate) takeable: &'a Counted,
    pub(crate) units: Units,
}

impl Supply<'_> {
    /// Shared CPUs of a pool.
    pub(crate) fn shared_in(&self, pool: PoolId) -> usize {
        self.shared.map_or(0, |shared| shared.in_pool(pool).cpus)
    }

    /// CPUs of a pool in cores of which all threads can be taken one by one; `None` unless all of these have the machine's width.
    pub(crate) fn uniform_whole_cpus(&self, pool: PoolId) -> Option<usize> {
        let there = self.takeable.in_pool(pool);
        let is_uniform = there.whole_cpus == there.whole_cores * self.pools.width;
        (is_uniform && self.units.unit == Unit::Cpu).then_some(there.whole_cpus)
    }

    /// Units that can be taken from the pool as far as its own sharers are concerned.
    fn spare(&self, pool: &Pool, load: Load) -> usize {
        match self.shared {
            Some(shared) => {
                let cpus = shared.in_pool(pool.id).cpus.saturating_sub(load.cpus_kept(pool));
                cpus / self.units.cpus.max(1)
            }
            None => usize::MAX,
        }
    }

    /// Units in a pool that keeps nothing back for its own shared containers; `given` is what each pool inside it can give.
    fn inside(&self, pool: &Pool, given: &[usize], units: fn(Units, Count) -> usize) -> usize {
        let there = |id: PoolId| units(self.units, self.takeable.in_pool(id));
        let in_children: usize = pool.children.iter().map(|id| there(*id)).sum();
        let from_children: usize = pool.children.iter().map(|id| of(given, *id)).sum();
        from_children + there(pool.id).saturating_sub(in_children)
    }

    /// Units in cores that are in the pool and in no pool inside it.
    pub(crate) fn own_units(&self, pool: &Pool) -> usize {
        let units =
            |(idx, core): (CoreIdx, &Core)| self.units.in_core(core, self.takeable.in_core(idx));
        self.pools.own_cores(pool).map(units).sum()
    }
}

/// What can be taken from each pool as far as it and the pools inside it are concerned.
#[derive(Clone)]
pub(crate) struct Budgets {
    takeable: PerPool<usize>,
}

impl Budgets {
    pub(crate) fn new(supply: &Supply<'_>, loads: &[Load]) -> Budgets {
        let pools = &supply.pools.pools;
        let mut takeable: PerPool<usize> = smallvec![0; pools.len()];
        // Children come after their parents, so going backwards meets them first.
        for pool in pools.iter().rev() {
            let load = loads.get(pool.id.index()).copied().unwrap_or_default();
            let all = supply.inside(pool, &takeable, Units::count);
            set(&mut takeable, pool.id, all.min(supply.spare(pool, load)));
        }
        Budgets { takeable }
    }

    /// Units that can be taken from the pool, its surroundings left aside.
    pub(crate) fn takeable(&self, pool: PoolId) -> usize {
        of(&self.takeable, pool)
    }

    /// Whether the pool could give more if fewer shared it; what the pools inside it keep back does not count.
    pub(crate) fn is_held_back(&self, supply: &Supply<'_>, pool: &Pool) -> bool {
        supply.inside(pool, &self.takeable, Units::count) > self.takeable(pool.id)
    }

    /// Of the units that can be taken from each pool, those in whole cores.
    pub(crate) fn in_whole_cores(&self, supply: &Supply<'_>) -> PerPool<usize> {
        let pools = &supply.pools.pools;
        let mut whole: PerPool<usize> = smallvec![0; pools.len()];
        for pool in pools.iter().rev() {
            let in_whole = supply.inside(pool, &whole, Units::count_whole);
            // What the pool's own sharers keep back is not takeable, so it need not be asked again.
            set(&mut whole, pool.id, in_whole.min(self.takeable(pool.id)));
        }
        whole
    }

    /// Units that a new request can take from `id` while it also asks for `shared` CPU time on the pool; `loads` are those of the budgets.
    pub(crate) fn takeable_by(
        &self,
        supply: &Supply<'_>,
        loads: &[Load],
        id: PoolId,
        shared: Option<MilliCpu>,
    ) -> usize {
        let limit = |pool: &Pool| match shared {
            None => self.takeable(pool.id),
            Some(milli) => {
                let mut load = loads.get(pool.id.index()).copied().unwrap_or_default();
                load.add(milli);
                supply.spare(pool, load)
            }
        };
        supply.pools.chain(id).map(limit).fold(self.takeable(id), usize::min)
    }
}

/// Whether `milli` more CPU time fits on the shared CPUs of `id` and of every pool around it.
pub(crate) fn fits_shared(
    pools: &Pools,
    shared: &Counted,
    loads: &[Load],
    id: PoolId,
    milli: MilliCpu,
) -> bool {
    pools.chain(id).all(|pool| {
        let load = loads.get(pool.id.index()).copied().unwrap_or_default();
        load.milli + milli <= MilliCpu::from_cpus(shared.in_pool(pool.id).cpus)
    })
}

fn of(counts: &[usize], pool: PoolId) -> usize {
    counts.get(pool.index()).copied().unwrap_or(0)
}

fn set(counts: &mut [usize], pool: PoolId, value: usize) {
    if let Some(slot) = counts.get_mut(pool.index()) {
        *slot = value;
    }
}
