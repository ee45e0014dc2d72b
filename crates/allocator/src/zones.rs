//! What a scheduler may count on in each NUMA node. In: a ledger, and the CPUs of each node. Out: capacity, what can be requested, and what is left of it.
//!
//! A pod that asks for whole CPUs of one NUMA node and is sent here because of these figures is not refused for lack of CPU time or memory: what shared containers on the pools
//! around the node have requested counts as well, because it has to stay with them.

use bayplan_types::{Bytes, CpuSet, MilliCpu, NodeId};

use crate::ledger::Ledger;
use crate::pool::{Pool, PoolId};

/// An amount of a node: what there is, what pods can have, and what of that is not given or requested yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount<T> {
    /// What the node has.
    pub capacity: T,
    /// The same without what is reserved or of others.
    pub allocatable: T,
    /// What a new container can have.
    pub available: T,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The kernel's number.
    pub node: NodeId,
    /// CPU time: whole CPUs where containers hold them exclusively.
    pub cpu: Amount<MilliCpu>,
    /// Memory without huge pages; `None`: the kernel does not say how much there is.
    pub memory: Option<Amount<Bytes>>,
    /// Size of a page, and all pages of this size together.
    pub huge_pages: Vec<(Bytes, Amount<Bytes>)>,
}

/// Each node that is given, with its CPUs (none: a node that has only memory), in that order. `only_whole_cores`: exclusive CPUs are given in whole cores.
pub fn zones(ledger: &Ledger, nodes: &[(NodeId, CpuSet)], only_whole_cores: bool) -> Vec<Zone> {
    let given = given(ledger, only_whole_cores);
    let zone = |(node, cpus): &(NodeId, CpuSet)| Zone {
        node: *node,
        cpu: cpu(ledger, cpus, &given, only_whole_cores),
        memory: memory(ledger, *node),
        huge_pages: huge_pages(ledger, *node),
    };
    nodes.iter().map(zone).collect()
}

/// CPUs that each pool can give, by what it and the pools inside it have to keep.
fn given(ledger: &Ledger, only_whole_cores: bool) -> Vec<usize> {
    let pools = ledger.pools();
    let there = |id: PoolId| {
        let count = ledger.open().in_pool(id);
        if only_whole_cores { count.whole_cpus } else { count.cpus }
    };
    let mut given = vec![0; pools.pools.len()];
    // From the lowest on: a pool is behind the one around it.
    for pool in pools.pools.iter().rev() {
        let (in_children, from_children) = pool.children.iter().fold((0, 0), |(all, can), id| {
            (all + there(*id), can + given.get(id.index()).copied().unwrap_or(0))
        });
        let inside = from_children + there(pool.id).saturating_sub(in_children);
        let can = inside.min(spare(ledger, pool, &pool.cpus, only_whole_cores));
        given.get_mut(pool.id.index()).into_iter().for_each(|it| *it = can);
    }
    given
}

/// CPUs that a pool can give from these as far as its own sharers are concerned; of whole cores, a multiple of the widest.
fn spare(ledger: &Ledger, pool: &Pool, cpus: &CpuSet, only_whole_cores: bool) -> usize {
    let load = ledger.loads().get(pool.id.index()).copied().unwrap_or_default();
    let shared = ledger.counted().in_pool(pool.id).cpus;
    let spare = shared.saturating_sub(load.cpus_kept(pool));
    match only_whole_cores {
        true => spare - spare % widest_core(ledger, cpus),
        false => spare,
    }
}

/// Threads of the widest core among these CPUs.
fn widest_core(ledger: &Ledger, cpus: &CpuSet) -> usize {
    let cores = ledger.pools().cores.iter();
    let cores = cores.filter(|core| core.threads.iter().any(|it| cpus.contains(*it)));
    cores.map(|core| core.threads.len()).max().unwrap_or(1)
}

fn cpu(
    ledger: &Ledger,
    cpus: &CpuSet,
    given: &[usize],
    only_whole_cores: bool,
) -> Amount<MilliCpu> {
    let pools = ledger.pools();
    let count = |set: &CpuSet| MilliCpu::from_cpus(set.intersection(cpus).len());
    let is_inside = |pool: &Pool| !pool.cpus.is_empty() && pool.cpus.is_subset(cpus);
    let parent = |pool: &Pool| pool.parent.and_then(|it| pools.get(it));
    let widest =
        pools.iter().filter(|pool| is_inside(pool) && !parent(pool).is_some_and(is_inside));
    let (mut own, mut rest) = (0, ledger.open().cpus().intersection(cpus));
    for pool in widest {
        own += given.get(pool.id.index()).copied().unwrap_or(0);
        rest.subtract(&pool.cpus);
    }
    own += match only_whole_cores {
        true => {
            let whole =
                pools.cores.iter().filter(|core| core.threads.iter().all(|it| rest.contains(*it)));
            whole.map(|core| core.threads.len()).sum()
        }
        false => rest.len(),
    };
    let around = pools.iter().filter(|pool| !cpus.is_empty() && cpus.is_subset(&pool.cpus));
    let left = around.map(|pool| spare(ledger, pool, cpus, only_whole_cores));
    Amount {
        capacity: count(&pools.cpus()),
        allocatable: count(&pools.allocatable()),
        available: MilliCpu::from_cpus(left.fold(own, usize::min)),
    }
}

fn memory(ledger: &Ledger, node: NodeId) -> Option<Amount<Bytes>> {
    let capacity = ledger.pools().node(node).and_then(|(_, node)| node.memory)?;
    let available = ledger.charged().free_on(ledger.pools(), node);
    Some(Amount { capacity, allocatable: capacity, available })
}

fn huge_pages(ledger: &Ledger, node: NodeId) -> Vec<(Bytes, Amount<Bytes>)> {
    let of_node = ledger.pools().huge.iter().filter(|huge| huge.node == node);
    let amount = |size, capacity| {
        let available = ledger.charged().huge_free_on(ledger.pools(), node, size);
        Amount { capacity, allocatable: capacity, available }
    };
    of_node.map(|huge| (huge.size, amount(huge.size, huge.capacity))).collect()
}
