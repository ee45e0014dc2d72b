//! What a scheduler may count on in each NUMA node. In: a ledger, and the CPUs of each node. Out: capacity, what can be requested, and what is left of it.
//!
//! A pod that asks for whole CPUs of one NUMA node and is sent here because of these figures is not refused for lack of CPU time or memory: what shared containers on the pools
//! around the node have requested counts as well, because it has to stay with them.

use bayplan_types::{Bytes, CpuSet, MilliCpu, NodeId};

use crate::ledger::Ledger;
use crate::pool::Pool;

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

/// Each node that is given, with its CPUs (none: a node that has only memory), in that order.
pub fn zones(ledger: &Ledger, nodes: &[(NodeId, CpuSet)]) -> Vec<Zone> {
    let zone = |(node, cpus): &(NodeId, CpuSet)| Zone {
        node: *node,
        cpu: cpu(ledger, cpus),
        memory: memory(ledger, *node),
        huge_pages: huge_pages(ledger, *node),
    };
    nodes.iter().map(zone).collect()
}

fn cpu(ledger: &Ledger, cpus: &CpuSet) -> Amount<MilliCpu> {
    let pools = ledger.pools();
    let count = |set: &CpuSet| MilliCpu::from_cpus(set.intersection(cpus).len());
    let load = |pool: &Pool| ledger.loads().get(pool.id.index()).copied().unwrap_or_default();
    // The widest pools inside of the node: loads of pools have those of the pools inside them.
    let is_inside = |pool: &Pool| !pool.cpus.is_empty() && pool.cpus.is_subset(cpus);
    let parent = |pool: &Pool| pool.parent.and_then(|it| pools.get(it));
    let widest =
        pools.iter().filter(|pool| is_inside(pool) && !parent(pool).is_some_and(is_inside));
    let inside: MilliCpu = widest.map(|pool| load(pool).milli).sum();
    let own = count(ledger.open().cpus()).saturating_sub(inside);
    let around = pools.iter().filter(|pool| !cpus.is_empty() && cpus.is_subset(&pool.cpus));
    let left = around.map(|pool| {
        let (load, shared) = (load(pool), ledger.counted().in_pool(pool.id).cpus);
        let kept = load.milli.max(MilliCpu::from_cpus(load.cpus_kept(pool)));
        MilliCpu::from_cpus(shared).saturating_sub(kept)
    });
    Amount {
        capacity: count(&pools.cpus()),
        allocatable: count(&pools.allocatable()),
        available: left.fold(own, MilliCpu::min),
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
