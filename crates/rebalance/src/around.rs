//! Which hardware is around some CPUs.

use bayplan_topology::{Level, Topology};
use bayplan_types::CpuSet;

/// All CPUs of the objects of a level that hold some of these; these themselves where there is no such level.
pub(crate) fn around(topology: &Topology, level: Level, cpus: &CpuSet) -> CpuSet {
    let mut all = cpus.clone();
    match level {
        Level::Core => topology
            .cores()
            .iter()
            .filter(|core| core.intersects(cpus))
            .for_each(|core| all.union_with(core)),
        Level::L3 => topology
            .caches()
            .iter()
            .filter(|cache| cache.level == 3 && cache.cpus.intersects(cpus))
            .for_each(|cache| all.union_with(&cache.cpus)),
        _ => topology
            .nodes()
            .iter()
            .filter(|node| node.cpus.intersects(cpus))
            .for_each(|node| all.union_with(&node.cpus)),
    }
    all
}
