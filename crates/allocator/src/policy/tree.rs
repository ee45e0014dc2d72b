//! Pools are the hardware tree itself. In: a topology, a policy and the reserved CPUs. Out: the pools.

use std::cmp::Reverse;

use bayplan_topology::{HugePages, Level, NumaNode, Object, ObjectIdx, Topology};
use bayplan_types::{Bytes, CpuPriority, CpuSet, MilliCpu, NodeId, NodeSet};

use crate::policy::Policy;
use crate::pool::{Core, CoreIdx, Huge, Node, Pool, PoolId, Pools};

/// Why the reserved CPUs cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolsError {
    /// Some reserved CPUs are not online on this machine.
    #[error("reserved CPUs {missing} are not online; this machine has {online}")]
    ReservedNotOnline {
        /// Those that are missing.
        missing: Box<CpuSet>,
        /// Every online CPU.
        online: Box<CpuSet>,
    },
    /// Nothing is left for containers.
    #[error(
        "no CPU is left for containers: all of {online} are reserved ({reserved}) or isolated ({isolated})"
    )]
    NothingLeft {
        /// Every online CPU.
        online: Box<CpuSet>,
        /// The reserved ones.
        reserved: Box<CpuSet>,
        /// The isolated ones.
        isolated: Box<CpuSet>,
    },
    /// The machine has none of the CPUs that are to be used at all.
    #[error("the machine has none of {available}, so no CPU is left for containers")]
    NothingAvailable {
        /// Those that are to be used.
        available: Box<CpuSet>,
    },
    /// More CPUs are to be reserved than there are.
    #[error("{wanted} CPUs are to be reserved; {there} are there for it")]
    TooFewToReserve {
        /// CPU time that they are to hold.
        wanted: MilliCpu,
        /// All that could be reserved.
        there: Box<CpuSet>,
    },
    /// Some reserved CPUs are not for containers.
    #[error("reserved CPUs {outside} are not among the available ones ({available})")]
    ReservedNotAvailable {
        /// Those that are not.
        outside: Box<CpuSet>,
        /// The available ones.
        available: Box<CpuSet>,
    },
}

/// The hardware tree as pools: machine, packages, dies, NUMA nodes, L3s; an object with the same CPUs as the one around it is
/// not a pool of its own. `reserved` CPUs stay out of every shared and exclusive set; a CPU that is both isolated and reserved
/// counts as reserved.
///
/// # Errors
/// [`PoolsError`] when `reserved` names CPUs that are not online or leaves nothing.
pub fn pools(topology: &Topology, policy: Policy, reserved: &CpuSet) -> Result<Pools, PoolsError> {
    let online = topology.cpus();
    let missing = reserved.difference(online);
    if !missing.is_empty() {
        let (missing, online) = (Box::new(missing), Box::new(online.clone()));
        return Err(PoolsError::ReservedNotOnline { missing, online });
    }
    // No container can run on reserved CPUs that are not allowed to containers.
    let reserved = &reserved.difference(&topology.withheld());
    let isolated = kept_out(topology).difference(reserved);
    let pools = with_classes(topology, policy, reserved.clone(), isolated);
    if pools.allocatable().is_empty() {
        return Err(PoolsError::NothingLeft {
            online: Box::new(online.clone()),
            reserved: Box::new(pools.reserved),
            isolated: Box::new(pools.isolated),
        });
    }
    Ok(pools)
}

/// As [`pools`], for a machine that has changed under running containers: those cannot be told that it does not suit. Reserved CPUs
/// that are not online are left out. If none of them is, the lowest CPUs take their place: as many, but no more than half of those
/// that are not isolated. Where all CPUs would be reserved or isolated, one of them, rather a reserved one, is shared.
pub fn surviving_pools(topology: &Topology, policy: Policy, reserved: &CpuSet) -> Pools {
    let online = topology.cpus();
    let isolated = kept_out(topology);
    let withheld = topology.withheld();
    let mut kept = reserved.intersection(online).difference(&withheld);
    if kept.is_empty() && !reserved.intersects(&withheld) {
        let candidates = online.difference(&isolated);
        kept = candidates.iter().take(reserved.len().min(candidates.len() / 2)).collect();
    }
    let mut isolated = isolated.difference(&kept);
    if online.difference(&kept).is_subset(&isolated) {
        match (kept.last(), isolated.difference(&withheld).first().or(isolated.first())) {
            (Some(cpu), _) => kept.remove(cpu),
            (None, Some(cpu)) => isolated.remove(cpu),
            (None, None) => false,
        };
    }
    with_classes(topology, policy, kept, isolated)
}

/// Online CPUs that are isolated by the kernel's command line, that belong to an isolated cpuset partition, or that the groups around all pods do not allow.
fn kept_out(topology: &Topology) -> CpuSet {
    topology.isolated().union(&taken(topology)).intersection(topology.cpus())
}

/// CPUs on which no container can run, whatever it is told: those of an isolated cpuset partition, and those that the groups around all pods do not allow.
fn taken(topology: &Topology) -> CpuSet {
    topology.partitioned().union(&topology.withheld())
}

fn with_classes(topology: &Topology, policy: Policy, reserved: CpuSet, isolated: CpuSet) -> Pools {
    let mut pools = derive_pools(topology);
    for pool in &mut pools {
        pool.is_shared &= policy == Policy::TopologyAware || pool.id == PoolId::MACHINE;
    }
    if let Some(machine) = pools.first_mut() {
        machine.has_refuge = !reserved.is_empty();
    }
    let cores = derive_cores(topology, &mut pools);
    let count = topology.cpus().last().map_or(0, |cpu| cpu.0 as usize + 1);
    let mut core_of = vec![None; count];
    for (at, core) in cores.iter().enumerate() {
        for cpu in &core.threads {
            if let Some(slot) = core_of.get_mut(cpu.0 as usize) {
                *slot = Some(CoreIdx(at));
            }
        }
    }
    let width = cores.iter().map(|core| core.threads.len()).max().unwrap_or(1);
    let objects = topology.objects().iter();
    let domains = objects.filter(|it| !matches!(it.level, Level::Machine | Level::Core));
    let domains: Vec<(Level, CpuSet)> = domains.map(|it| (it.level, it.cpus.clone())).collect();
    let mut pools = Pools {
        counted_domains: counted_domains(topology, &domains),
        domain_cpus: Vec::new(),
        domains,
        pools,
        cores,
        core_of,
        width,
        nodes: derive_nodes(topology),
        huge: derive_huge(topology),
        reserved,
        partitioned: taken(topology).intersection(&isolated),
        stand_ins: topology.stand_ins().to_vec(),
        isolated,
        kinds: topology.core_kinds().to_vec(),
        high_priority: topology.cpus_of_priority(CpuPriority::High),
        low_priority: topology.cpus_of_priority(CpuPriority::Low),
    };
    pools.count_allocatable();
    pools
}

fn derive_pools(topology: &Topology) -> Vec<Pool> {
    let mut pools: Vec<Pool> = Vec::new();
    // Which pool each object became, or was merged into.
    let mut pool_of: Vec<Option<PoolId>> = vec![None; topology.objects().len()];
    for object in topology.objects() {
        let parent = object.parent.and_then(|ObjectIdx(idx)| *pool_of.get(idx as usize)?);
        let merged = match parent.and_then(|id| pools.get(id.index())) {
            Some(outer) => !is_pool(object.level) || outer.cpus == object.cpus,
            None => false,
        };
        let id = match parent {
            Some(outer) if merged => {
                if let Some(outer) = pools.get_mut(outer.index())
                    && outer.cpus == object.cpus
                {
                    outer.merged.push((object.level, pool_name(topology, object)));
                }
                outer
            }
            _ => {
                let id = PoolId(u32::try_from(pools.len()).unwrap_or(u32::MAX));
                if let Some(outer) = parent.and_then(|outer| pools.get_mut(outer.index())) {
                    outer.children.push(id);
                }
                pools.push(pool(topology, object, id, parent));
                id
            }
        };
        if let Some(slot) = pool_of.get_mut(object.idx.0 as usize) {
            *slot = Some(id);
        }
    }
    for at in 0..pools.len() {
        let inside = node_pools(&pools, at);
        let node = node_around(&pools, at);
        if let Some(pool) = pools.get_mut(at) {
            pool.node_pools = inside;
            pool.node = node.unwrap_or(pool.id);
        }
    }
    pools
}

/// Levels below the L3 are too small to be shared by containers.
fn is_pool(level: Level) -> bool {
    !matches!(level, Level::Cluster | Level::L2 | Level::Core)
}

/// The outermost pool with one NUMA node around a pool that has one; parents come before their children.
fn node_around(pools: &[Pool], at: usize) -> Option<PoolId> {
    let around = pools.get(pools.get(at)?.parent?.index())?;
    (around.nodes.len() <= 1).then_some(around.node)
}

/// The outermost pools with one NUMA node inside a pool with several.
fn node_pools(pools: &[Pool], at: usize) -> Vec<PoolId> {
    let Some(pool) = pools.get(at).filter(|pool| pool.nodes.len() > 1) else { return Vec::new() };
    let has_several = |id: PoolId| pools.get(id.index()).is_some_and(|outer| outer.nodes.len() > 1);
    let inside = pools.iter().skip(at + 1).filter(|it| it.cpus.is_subset(&pool.cpus));
    let nodes = inside.filter(|it| it.nodes.len() <= 1 && it.parent.is_some_and(has_several));
    nodes.map(|it| it.id).collect()
}

/// Every core, pool by pool, and where each pool's own cores begin and end.
fn derive_cores(topology: &Topology, pools: &mut [Pool]) -> Vec<Core> {
    let mut cores: Vec<Core> = Vec::new();
    for at in 0..pools.len() {
        let Some(pool) = pools.get(at) else { continue };
        let mut own = pool.cpus.clone();
        for child in pool.children.iter().filter_map(|id| pools.get(id.index())) {
            own.subtract(&child.cpus);
        }
        let id = pool.id;
        let parts = topology.cores().iter().map(|core| core.intersection(&own));
        let mut parts: Vec<Core> = parts
            .filter(|part| !part.is_empty())
            .map(|part| Core { threads: part.iter().collect(), pool: id })
            .collect();
        let lowest = topology.cpus().first();
        parts.sort_by_key(|core| {
            (Reverse(core.threads.len()), core.threads.first().copied() == lowest)
        });
        let start = cores.len();
        cores.append(&mut parts);
        if let Some(pool) = pools.get_mut(at) {
            pool.cores = start..cores.len();
        }
    }
    cores
}

fn pool(topology: &Topology, object: &Object, id: PoolId, parent: Option<PoolId>) -> Pool {
    let nodes = topology.nodes_of(&object.cpus);
    let mut nodes_around = topology.nodes().iter();
    let is_inside_node =
        nodes_around.any(|node| object.cpus.is_subset(&node.cpus) && object.cpus != node.cpus);
    let attached = topology
        .nodes()
        .iter()
        .filter(|node| node.cpus.is_empty() && node.near.is_some_and(|near| nodes.contains(near)));
    let mut memory = nodes.clone();
    memory.extend(attached.map(|node| node.id));
    for it in topology.stand_ins().iter().filter(|it| it.cpus.intersects(&object.cpus)) {
        memory.union_with(&it.mems);
    }
    Pool {
        id,
        memory,
        name: pool_name(topology, object),
        level: object.level,
        parent,
        children: Vec::new(),
        cpus: object.cpus.clone(),
        distance: largest_distance(topology, &nodes),
        is_inside_node,
        is_shared: !is_inside_node,
        has_refuge: false,
        nodes,
        cores: 0..0,
        node_pools: Vec::new(),
        node: id,
        allocatable: 0,
        merged: Vec::new(),
    }
}

/// The kernel numbers dies per package, every other object per machine.
fn pool_name(topology: &Topology, object: &Object) -> String {
    let outer = object.parent.map(|idx| topology.object(idx));
    match object.level {
        Level::Machine => "machine".to_owned(),
        Level::Package => format!("package {}", object.id),
        Level::Die => match outer {
            Some(package) if package.level == Level::Package => {
                format!("package {} die {}", package.id, object.id)
            }
            _ => format!("die {} of CPU {}", object.id, lowest(&object.cpus)),
        },
        Level::Drawer => format!("drawer {}", object.id),
        Level::Book => format!("book {}", object.id),
        Level::NumaNode => format!("numa {}", object.id),
        Level::L3 => format!("l3 {}", object.id),
        Level::Cluster | Level::L2 | Level::Core => {
            format!("{} of CPU {}", object.level, lowest(&object.cpus))
        }
    }
}

fn lowest(cpus: &CpuSet) -> String {
    cpus.first().map_or_else(|| "none".to_owned(), |cpu| cpu.to_string())
}

fn largest_distance(topology: &Topology, nodes: &NodeSet) -> u32 {
    let pairs = nodes.iter().flat_map(|a| nodes.iter().map(move |b| (a, b)));
    pairs.filter_map(|(a, b)| topology.distance(a, b)).max().unwrap_or(10)
}

fn derive_nodes(topology: &Topology) -> Vec<Node> {
    let with_memory: Vec<_> =
        topology.nodes().iter().filter(|node| topology.may_hold_pods(node)).collect();
    let nearest = |from: NodeId| {
        let mut others: Vec<(u32, bool, NodeId)> = with_memory
            .iter()
            .map(|to| {
                let far = if to.id == from { 0 } else { u32::MAX };
                (topology.distance(from, to.id).unwrap_or(far), to.cpus.is_empty(), to.id)
            })
            .collect();
        others.sort_unstable();
        others.into_iter().map(|(distance, _, id)| (distance, id)).collect()
    };
    with_memory
        .iter()
        .map(|node| Node {
            id: node.id,
            kind: node.kind,
            is_movable_only: node.is_movable_only,
            memory: node.memory.map(|memory| memory.saturating_sub(huge_pages(node))),
            nearest: nearest(node.id),
        })
        .collect()
}

fn counted_domains(topology: &Topology, domains: &[(Level, CpuSet)]) -> Vec<(Level, CpuSet)> {
    let nodes = topology.nodes().iter().map(|node| (Level::NumaNode, node.cpus.clone()));
    let packages = domains.iter().filter(|(it, _)| *it == Level::Package);
    nodes.chain(packages.cloned()).collect()
}

fn derive_huge(topology: &Topology) -> Vec<Huge> {
    let nodes = topology.nodes().iter().filter(|node| topology.may_hold_pods(node));
    let of_node = |node: &NumaNode| {
        let id = node.id;
        let huge = |pages: &HugePages| Huge { node: id, size: pages.size, capacity: bytes(pages) };
        node.huge_pages.iter().map(huge).filter(|huge| huge.capacity > Bytes::ZERO).collect()
    };
    nodes.flat_map(|node| -> Vec<Huge> { of_node(node) }).collect()
}

fn bytes(pages: &HugePages) -> Bytes {
    Bytes(pages.size.0.saturating_mul(pages.total))
}

/// Memory that was set aside as huge pages, which a container cannot use as ordinary memory.
fn huge_pages(node: &NumaNode) -> Bytes {
    node.huge_pages.iter().map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use bayplan_topology::{derive, parse_machine};

    use super::*;

    #[test]
    fn a_machine_that_has_changed_always_has_pools_and_a_shared_cpu() {
        for (line, reserved, expected) in [
            // Reserved CPUs that are online are all that is reserved.
            ("core:4", "0", "reserved 0, isolated , shared 1-3"),
            ("core:4 offline:1", "0-1", "reserved 0, isolated , shared 2-3"),
            ("core:4", "3,9", "reserved 3, isolated , shared 0-2"),
            // None is: as many of the lowest, at most half.
            ("core:4 offline:0", "0", "reserved 1, isolated , shared 2-3"),
            ("core:8 offline:0-1", "0-1", "reserved 2-3, isolated , shared 4-7"),
            ("core:8 offline:0-3", "0-3", "reserved 4-5, isolated , shared 6-7"),
            ("core:4 offline:0 isolated:1", "0", "reserved 2, isolated 1, shared 3"),
            ("core:2 offline:0", "0", "reserved , isolated , shared 1"),
            // Nothing would be left to share.
            ("core:4 offline:2-3", "0-1", "reserved 0, isolated , shared 1"),
            ("core:4 isolated:1-3", "0", "reserved , isolated 1-3, shared 0"),
            ("core:4 isolated:1-3 offline:0", "", "reserved , isolated 2-3, shared 1"),
            ("core:4 isolated:1-3 offline:0", "0", "reserved , isolated 2-3, shared 1"),
            ("core:4 isolated:2", "2", "reserved 2, isolated , shared 0-1,3"),
        ] {
            let topology = derive(&parse_machine(line).unwrap()).unwrap();
            let pools =
                surviving_pools(&topology, Policy::TopologyAware, &reserved.parse().unwrap());
            let shown = format!(
                "reserved {}, isolated {}, shared {}",
                pools.reserved(),
                pools.isolated(),
                pools.allocatable()
            );
            assert_eq!(shown, expected, "{line} reserved:{reserved}");
        }
    }

    #[test]
    fn an_object_that_is_no_pool_of_its_own_is_found_by_its_name() {
        let line = "pack:1 numa:2 l3:1 core:4 offline:0-3";
        let topology = derive(&parse_machine(line).unwrap()).unwrap();
        let pools = surviving_pools(&topology, Policy::TopologyAware, &CpuSet::new());
        for name in ["machine", "package 0", "numa 1", "l3 1"] {
            assert_eq!(pools.named(name).map(|pool| pool.id), Some(PoolId::MACHINE), "{name}");
        }
        assert_eq!(pools.named("numa 0"), None);
        assert_eq!(pools.lasting_name(PoolId::MACHINE), Some("numa 1"));
    }
}
