//! How many CPUs each pool can give up. In: pools, the shared CPUs, the load of each pool. Out: budgets.
//!
//! A pool must keep enough shared CPUs for the CPU time requested on it and inside it, and at least one if anybody shares it;
//! the machine always keeps one, so that a BestEffort container can start at any time. Pools form a tree, so limits hold along
//! the whole chain: what is taken from a pool is taken from every pool around it.

use bayplan_types::{CpuSet, MilliCpu};

use crate::pool::{Pool, PoolId, Pools};

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

    /// Shared CPUs that must stay.
    pub(crate) fn cpus_kept(self, pool: &Pool) -> usize {
        let floor = usize::from(self.containers > 0 || pool.id == PoolId::MACHINE);
        self.milli.cpus_needed().max(floor)
    }
}

pub(crate) struct Budgets {
    /// Shared CPUs of each pool.
    shared: Vec<usize>,
    /// What can be taken from each pool as far as it and the pools inside it are concerned.
    takeable: Vec<usize>,
}

impl Budgets {
    pub(crate) fn new(pools: &Pools, free: &CpuSet, loads: &[Load]) -> Budgets {
        let shared: Vec<usize> =
            pools.pools.iter().map(|pool| pool.cpus.intersection_len(free)).collect();
        let mut takeable = vec![0; pools.pools.len()];
        // Children come after their parents, so going backwards meets them first.
        for pool in pools.pools.iter().rev() {
            let load = loads.get(pool.id.index()).copied().unwrap_or_default();
            let spare = of(&shared, pool.id).saturating_sub(load.cpus_kept(pool));
            let inside: usize = pool.children.iter().map(|child| of(&takeable, *child)).sum();
            let in_children: usize = pool.children.iter().map(|child| of(&shared, *child)).sum();
            let direct = of(&shared, pool.id).saturating_sub(in_children);
            if let Some(slot) = takeable.get_mut(pool.id.index()) {
                *slot = spare.min(inside + direct);
            }
        }
        Budgets { shared, takeable }
    }

    /// Budgets under which everything may be taken.
    pub(crate) fn unlimited(pools: &Pools, free: &CpuSet) -> Budgets {
        let shared: Vec<usize> =
            pools.pools.iter().map(|pool| pool.cpus.intersection_len(free)).collect();
        Budgets { takeable: shared.clone(), shared }
    }

    /// Shared CPUs of the pool.
    pub(crate) fn shared(&self, pool: PoolId) -> usize {
        of(&self.shared, pool)
    }

    /// What can be taken from the pool, its surroundings left aside.
    pub(crate) fn takeable(&self, pool: PoolId) -> usize {
        of(&self.takeable, pool)
    }

    /// CPUs that a newcomer can take for itself from `id` while it also asks for `shared` CPU time on the pool.
    pub(crate) fn takeable_by(
        &self,
        pools: &Pools,
        loads: &[Load],
        id: PoolId,
        shared: Option<MilliCpu>,
    ) -> usize {
        let limit = |pool: &Pool| {
            let mut load = loads.get(pool.id.index()).copied().unwrap_or_default();
            if let Some(milli) = shared {
                load.add(milli);
            }
            self.shared(pool.id).saturating_sub(load.cpus_kept(pool))
        };
        pools.chain(id).map(limit).fold(self.takeable(id), usize::min)
    }

    /// Whether `milli` more CPU time fits on the shared CPUs of `id` and of every pool around it.
    pub(crate) fn fits_shared(
        &self,
        pools: &Pools,
        loads: &[Load],
        id: PoolId,
        milli: MilliCpu,
    ) -> bool {
        pools.chain(id).all(|pool| {
            let load = loads.get(pool.id.index()).copied().unwrap_or_default();
            load.milli + milli <= MilliCpu::from_cpus(self.shared(pool.id))
        })
    }
}

fn of(counts: &[usize], pool: PoolId) -> usize {
    counts.get(pool.index()).copied().unwrap_or(0)
}
