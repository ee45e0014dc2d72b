//! Sets of CPUs of a machine: by domain, by core, by core kind, by priority. What containers hold does not count. Pure.

use bayplan_topology::Level;
use bayplan_types::{CoreKind, CpuId, CpuPriority, CpuSet};

use crate::pool::Pools;

/// The domains of a level that hold some of these CPUs, as one set; at least the CPUs themselves.
pub(crate) fn around(pools: &Pools, level: Level, cpus: &CpuSet) -> CpuSet {
    let mut around = cpus.clone();
    if matches!(level, Level::Core | Level::L2) {
        let cores = cpus.iter().filter_map(|cpu| pools.core_of(cpu));
        around.extend(cores.flat_map(|(_, core)| core.threads.iter().copied()));
    }
    // Cores are no domains.
    if level == Level::Core {
        return around;
    }
    let domains = pools.domains.iter().filter(|(it, _)| *it == level);
    domains
        .filter(|(_, domain)| domain.intersects(cpus))
        .for_each(|(_, domain)| around.union_with(domain));
    around
}

/// The other threads of the cores of these CPUs.
pub fn siblings_of(pools: &Pools, cpus: &CpuSet) -> CpuSet {
    around(pools, Level::Core, cpus).difference(cpus)
}

/// Whether all of the CPUs lie in one domain of the level. A machine that has none, as with a kernel without NUMA, is one.
pub(crate) fn is_within(pools: &Pools, cpus: &CpuSet, level: Level) -> bool {
    let mut domains = pools.domains.iter().filter(|(it, _)| *it == level).peekable();
    domains.peek().is_none() || domains.any(|(_, domain)| cpus.is_subset(domain))
}

/// The domain of a level that these CPUs lie in; `None` where they lie in several.
pub fn whole_domain(pools: &Pools, level: Level, cpus: &CpuSet) -> Option<CpuSet> {
    if level == Level::Machine {
        return Some(pools.cpus());
    }
    let mut domains = pools.domains.iter().filter(|(it, _)| *it == level);
    domains.find(|(_, it)| !cpus.is_empty() && cpus.is_subset(it)).map(|(_, it)| it.clone())
}

/// The domain of a level that these CPUs lie in, without its reserved and isolated CPUs.
pub fn domain_around(pools: &Pools, level: Level, cpus: &CpuSet) -> Option<CpuSet> {
    Some(whole_domain(pools, level, cpus)?.intersection(&pools.allocatable()))
}

/// One thread of each core, the lowest.
pub(crate) fn one_per_core(pools: &Pools, cpus: &CpuSet) -> CpuSet {
    let is_first = |cpu: &CpuId| match pools.core_of(*cpu) {
        Some((_, core)) => core.threads.iter().find(|thread| cpus.contains(**thread)) == Some(cpu),
        None => true,
    };
    cpus.iter().filter(is_first).collect()
}

/// `None` for performance cores on a machine with one kind of cores: all are.
pub(crate) fn cpus_of_kind(pools: &Pools, kind: CoreKind) -> Option<CpuSet> {
    let cpus = pools.kinds.iter().find(|(it, _)| *it == kind).map(|(_, cpus)| cpus.clone());
    cpus.or((kind == CoreKind::Efficient).then(CpuSet::new))
}

/// Whether the machine has cores of this kind. Where all are alike, they are performance cores.
pub fn has_cpus_of_kind(pools: &Pools, kind: CoreKind) -> bool {
    cpus_of_kind(pools, kind).is_none_or(|cpus| !cpus.is_empty())
}

/// Whether the machine has CPUs of this priority.
pub fn has_cpus_of_priority(pools: &Pools, priority: CpuPriority) -> bool {
    !cpus_of_priority(pools, priority).is_empty()
}

/// Whether some CPUs have another priority than others.
pub(crate) fn has_priorities(pools: &Pools) -> bool {
    !pools.high_priority.is_empty() || !pools.low_priority.is_empty()
}

/// On a machine where all CPUs have the same priority, all are normal.
pub(crate) fn cpus_of_priority(pools: &Pools, priority: CpuPriority) -> CpuSet {
    let mut cpus = pools.cpus();
    match priority {
        CpuPriority::High => cpus.intersect_with(&pools.high_priority),
        CpuPriority::Low => cpus.intersect_with(&pools.low_priority),
        CpuPriority::Normal => {
            cpus.subtract(&pools.high_priority);
            cpus.subtract(&pools.low_priority);
        }
    }
    cpus
}
