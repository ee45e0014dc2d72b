//! A set of CPUs, counted per core and per pool. In: CPUs that come and go. Out: how many CPUs, whole cores and parts of cores each
//! pool has, without a look at its CPUs.

use bayplan_types::{CpuId, CpuSet};

use crate::pool::{CoreIdx, PoolId, Pools};

/// What a pool has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) cpus: usize,
    /// CPUs of cores of which all threads are in the set.
    pub(crate) whole_cpus: usize,
    /// Cores of which some thread is in the set.
    pub(crate) cores: usize,
    /// Cores of which all threads are in the set.
    pub(crate) whole_cores: usize,
}

/// The set and its counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    cpus: CpuSet,
    /// Threads of each core that are in the set.
    threads: Vec<usize>,
    pools: Vec<Count>,
}

impl Counted {
    pub(crate) fn new(pools: &Pools, cpus: &CpuSet) -> Counted {
        let mut counted = Counted {
            cpus: CpuSet::new(),
            threads: vec![0; pools.cores.len()],
            pools: vec![Count::default(); pools.pools.len()],
        };
        counted.insert_all(pools, cpus);
        counted
    }

    pub(crate) fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    pub(crate) fn in_pool(&self, pool: PoolId) -> Count {
        self.pools.get(pool.index()).copied().unwrap_or_default()
    }

    /// Threads of a core that are in the set.
    pub(crate) fn in_core(&self, core: CoreIdx) -> usize {
        self.threads.get(core.index()).copied().unwrap_or(0)
    }

    pub(crate) fn insert_all(&mut self, pools: &Pools, cpus: &CpuSet) {
        for cpu in cpus.iter() {
            if self.cpus.insert(cpu) {
                self.count(pools, cpu, true);
            }
        }
    }

    pub(crate) fn remove_all(&mut self, pools: &Pools, cpus: &CpuSet) {
        for cpu in cpus.iter() {
            if self.cpus.remove(cpu) {
                self.count(pools, cpu, false);
            }
        }
    }

    fn count(&mut self, pools: &Pools, cpu: CpuId, is_coming: bool) {
        let Some((idx, core)) = pools.core_of(cpu) else { return };
        let Some(threads) = self.threads.get_mut(idx.index()) else { return };
        let width = core.threads.len();
        let before = *threads;
        *threads = if is_coming { before + 1 } else { before - 1 };
        let (fewer, more) = (before.min(*threads), before.max(*threads));
        let is_first = fewer == 0;
        let is_last = more == width;
        for pool in pools.chain(core.pool) {
            let Some(count) = self.pools.get_mut(pool.id.index()) else { continue };
            let change = |value: &mut usize, by: usize| {
                *value = if is_coming { *value + by } else { *value - by };
            };
            change(&mut count.cpus, 1);
            change(&mut count.cores, usize::from(is_first));
            change(&mut count.whole_cores, usize::from(is_last));
            change(&mut count.whole_cpus, if is_last { width } else { 0 });
        }
    }
}
