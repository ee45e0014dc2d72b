//! Memory nodes for a container. In: the NUMA nodes of its CPUs, an amount. Out: `cpuset.mems` and what is set aside on each node.
//!
//! The nodes of the CPUs come first. Where they cannot hold the amount, the nearest others are added, one by one, until they can; of
//! equally near ones first those that can hold all that is missing. Huge pages come from the same nodes as far as these have them.

use bayplan_types::{Bytes, MemoryKind, NodeId, NodeSet};
use smallvec::SmallVec;

use crate::allocation::{Allocation, HugeCharge};
use crate::charged::Charged;
use crate::grant::Grant;
use crate::pool::{Node, Pool, Pools};
use crate::request::Request;
use crate::score::Rejection;
use crate::wishes::{ColdStart, MemoryWishes};

/// The memory that one request may have.
#[derive(Clone, Debug)]
pub(crate) struct Memory<'a> {
    pools: &'a Pools,
    charged: &'a Charged,
    request: &'a Request,
    /// Free on each node, in the order of `Pools::nodes`; zero where its kind is not wished. Less what others are expected to use, where
    /// the machine has enough without it.
    free: SmallVec<[Bytes; 16]>,
}

/// The nodes of the CPUs that a container holds or shares: memory there is near.
pub(crate) fn near_nodes(pools: &Pools, held: &Allocation) -> NodeSet {
    if held.is_reserved {
        return pools.near_memory(pools.reserved());
    }
    if held.terms.preserve.cpus {
        return pools.near_memory(&pools.cpus());
    }
    let mut near = NodeSet::new();
    if !held.exclusive.is_empty() {
        near.union_with(&pools.near_memory(&held.exclusive));
    }
    let runs_in_pool = held.shared.is_some() || held.terms.part.runs_on_others();
    if let Some(pool) = pools.get(held.pool).filter(|_| runs_in_pool) {
        near.union_with(&pools.with_stand_ins(pool.nodes.clone(), &pool.cpus));
    }
    near
}

/// What a container gets after a cold start: nodes near its CPUs, of the kinds that it may have; all of these kinds that are not slow, where none is
/// near.
pub(crate) fn warm_nodes(pools: &Pools, near: &NodeSet, wishes: &MemoryWishes) -> NodeSet {
    let may = |id: &NodeId| pools.node(*id).is_some_and(|(_, node)| wishes.may_have(node.kind));
    let warm: NodeSet = near.iter().filter(may).collect();
    let fast = pools.nodes.iter().filter(|it| wishes.may_have(it.kind) && !it.kind.is_slow());
    if warm.is_empty() { fast.map(|it| it.id).collect() } else { warm }
}

/// The place of a container that runs already, with the memory that it asks for set aside on its memory nodes: those near its CPUs first, as far
/// as they have it. Where its nodes are not known, all count that it may have.
pub(crate) fn found_memory(
    pools: &Pools,
    charged: &Charged,
    request: &Request,
    held: Allocation,
) -> Allocation {
    let mut request = request.clone();
    if !held.mems.is_empty() {
        // What it uses is there, of whatever kind.
        request.wishes.memory.kinds = MemoryKind::ALL.to_vec();
        request.wishes.memory.cold_start = ColdStart::No;
    }
    // What others are expected to use, and do not set aside, does not count.
    request.wishes.memory.is_bound = true;
    let memory = Memory::new(pools, charged, &request);
    let near = near_nodes(pools, &held);
    let may = |node: &NodeId| held.mems.is_empty() || held.mems.contains(*node);
    let mut filling = Filling::new(&memory);
    let nodes = near.iter().chain(memory.others_by_distance(&near));
    nodes.filter(may).for_each(|node| filling.take(node));
    let mut grant = filling.grant;
    memory.add_huge(&mut grant, &near, may);
    Allocation { charges: grant.charges, huge_charges: grant.huge_charges, ..held }
}

impl<'a> Memory<'a> {
    pub(crate) fn new(pools: &'a Pools, charged: &'a Charged, request: &'a Request) -> Memory<'a> {
        let mut memory = Memory { pools, charged, request, free: SmallVec::new() };
        let free = |node: &Node| match memory.is_wished(node.id) {
            true => charged.free_on(pools, node.id),
            false => Bytes::ZERO,
        };
        let all: SmallVec<[Bytes; 16]> = pools.nodes.iter().map(free).collect();
        let likely = |(node, free): (&Node, &Bytes)| {
            free.saturating_sub(charged.expected_on(pools, node.id))
        };
        memory.free = pools.nodes.iter().zip(&all).map(likely).collect();
        if request.wishes.memory.is_bound || memory.free_total() < request.memory {
            memory.free = all;
        }
        memory
    }

    /// Whether a node is of a kind that the request may have. Where the machine has no node of these kinds, every node will do.
    fn is_wished(&self, node: NodeId) -> bool {
        let wishes = &self.request.wishes.memory;
        let nodes = &self.pools.nodes;
        // The slow memory may be gone since.
        let is_cold = wishes.cold_start != ColdStart::No
            && nodes.iter().any(|node| node.is_for_cold_start(wishes));
        let is_wished = |node: &Node| match is_cold {
            true => node.is_for_cold_start(wishes),
            false => wishes.may_have(node.kind),
        };
        self.pools.node(node).is_some_and(|(_, node)| is_wished(node))
            || !nodes.iter().any(is_wished)
    }

    /// Free memory of a node of a kind that is wished.
    fn free_on(&self, node: NodeId) -> Bytes {
        let index = self.pools.node(node).map(|(index, _)| index);
        index.and_then(|index| self.free.get(index).copied()).unwrap_or_default()
    }

    /// Free memory on a set of nodes. A machine without NUMA nodes does not count memory and always has room.
    pub(crate) fn free_in(&self, nodes: impl Iterator<Item = NodeId>) -> Bytes {
        if self.pools.nodes.is_empty() {
            return Bytes(u64::MAX);
        }
        nodes.map(|node| self.free_on(node)).sum()
    }

    /// Free memory of the machine.
    pub(crate) fn free_total(&self) -> Bytes {
        self.free_in(self.pools.nodes.iter().map(|node| node.id))
    }

    /// Free memory on the nodes of a pool, those without CPUs that hang on them included.
    pub(crate) fn free_near(&self, pool: &Pool) -> Bytes {
        self.free_in(pool.memory.iter())
    }

    fn free_huge(&self, size: Bytes, nodes: impl Iterator<Item = NodeId>) -> Bytes {
        let nodes = nodes.filter(|node| self.is_wished(*node));
        nodes.map(|node| self.charged.huge_free_on(self.pools, node, size)).sum()
    }

    /// The first size of huge pages of which these nodes have too few free. A machine without NUMA nodes does not count them.
    pub(crate) fn too_few_huge(&self, nodes: &NodeSet) -> Option<Rejection> {
        let asked = self.request.huge_pages.iter().filter(|_| !self.pools.nodes.is_empty());
        let mut few = asked.filter_map(|(size, needed)| {
            let (size, needed, free) = (*size, *needed, self.free_huge(*size, nodes.iter()));
            (free < needed).then_some(Rejection::TooFewHugePages { size, needed, free })
        });
        few.next()
    }

    /// Whether the memory is free on the nodes of a pool. Huge pages of which the machine as a whole has too few do not count.
    pub(crate) fn fits_near(&self, pool: &Pool) -> bool {
        let all = || self.pools.nodes.iter().map(|node| node.id);
        self.request.memory <= self.free_near(pool)
            && self.request.huge_pages.iter().all(|(size, needed)| {
                self.free_huge(*size, pool.memory.iter()) >= *needed
                    || self.free_huge(*size, all()) < *needed
            })
    }

    /// What a container gets that holds these CPUs.
    ///
    /// # Errors
    /// A [`Rejection`] when it is not to be had; near the CPUs, if the request is bound to them.
    pub(crate) fn grant_near(&self, held: &Allocation) -> Result<Grant, Rejection> {
        let claimed = &self.request.wishes.claimed;
        let near = match claimed.is_empty() {
            true => near_nodes(self.pools, held),
            false => self.pools.near_memory(claimed),
        };
        let is_bound = self.request.wishes.memory.is_bound;
        let bound_to = is_bound.then(|| self.pools.memory_of(&near));
        if let Some(few) = bound_to.as_ref().and_then(|nodes| self.too_few_huge(nodes)) {
            return Err(few);
        }
        let needed = self.request.memory;
        self.grant(&near, bound_to.as_ref()).ok_or_else(|| match &bound_to {
            Some(nodes) => {
                Rejection::TooLittleMemoryNear { needed, free: self.free_in(nodes.iter()) }
            }
            None => Rejection::TooLittleMemory { needed, free: self.free_total() },
        })
    }

    /// `None` when the nodes that may be used have too little free memory for what the request sets aside: all of the machine, or those
    /// in and at the pool when the request is bound to them.
    pub(crate) fn grant(&self, near: &NodeSet, bound_to: Option<&NodeSet>) -> Option<Grant> {
        if self.pools.nodes.is_empty() {
            return Some(Grant::default());
        }
        let may = |node: &NodeId| {
            self.is_wished(*node) && bound_to.is_none_or(|bound| bound.contains(*node))
        };
        let mut filling = Filling::new(self);
        let local = near.iter().filter(|id| self.pools.node(*id).is_some());
        local.filter(&may).for_each(|node| filling.take(node));
        // Mostly that is all.
        if !filling.is_enough() {
            let others = self.others_by_distance(near);
            for node in others.into_iter().filter(&may) {
                if filling.is_enough() {
                    break;
                }
                if filling.gains_by(node) {
                    filling.take(node);
                }
            }
        }
        let Filling { mut grant, missing, .. } = filling;
        let is_short = missing > Bytes::ZERO && !self.request.memory_is_expected;
        if is_short || grant.mems.is_empty() {
            return None;
        }
        self.add_huge(&mut grant, near, may);
        if self.request.wishes.memory.cold_start == ColdStart::Over {
            let may = |node: &NodeId| bound_to.is_none_or(|bound| bound.contains(*node));
            let warm = warm_nodes(self.pools, near, &self.request.wishes.memory);
            grant.mems.extend(warm.iter().filter(may));
        }
        Some(grant)
    }

    /// Huge pages on the nodes that are granted already, then on the nearest others. Where the machine has too few, what there is: kubelet
    /// has counted them. A node with pages of the size is always granted, because the kernel takes them nowhere else.
    fn add_huge(&self, grant: &mut Grant, near: &NodeSet, may: impl Fn(&NodeId) -> bool) {
        for (size, needed) in &self.request.huge_pages {
            let nodes = near.iter().chain(self.others_by_distance(near)).filter(&may);
            let mut nodes: Vec<NodeId> =
                nodes.filter(|node| self.pools.huge(*node, *size).is_some()).collect();
            nodes.sort_by_key(|node| !grant.mems.contains(*node));
            let mut missing = *needed;
            for node in &nodes {
                let bytes = self.charged.huge_free_on(self.pools, *node, *size).min(missing);
                if bytes > Bytes::ZERO {
                    grant.huge_charges.push(HugeCharge { node: *node, size: *size, bytes });
                    grant.mems.insert(*node);
                    missing -= bytes;
                }
            }
            if missing == *needed
                && let Some(nearest) = nodes.first()
            {
                grant.mems.insert(*nearest);
            }
        }
    }

    /// Nodes that are not near, by their distance to the nearest that is; of equally distant ones those first that hold all that is missing.
    fn others_by_distance(&self, near: &NodeSet) -> Vec<NodeId> {
        let pools = self.pools;
        let missing = self.request.memory.saturating_sub(self.free_in(near.iter()));
        let mut others: Vec<(u32, usize, NodeId)> = Vec::new();
        let known = || near.iter().filter_map(|id| pools.node(id));
        for (rank, (distance, id)) in known().flat_map(|(_, node)| node.nearest.iter().enumerate())
        {
            if near.contains(*id) {
                continue;
            }
            match others.iter_mut().find(|(_, _, seen)| seen == id) {
                Some(seen) => *seen = (seen.0.min(*distance), seen.1.min(rank), *id),
                None => others.push((*distance, rank, *id)),
            }
        }
        others.sort_by_key(|(distance, rank, id)| {
            (*distance, self.free_on(*id) < missing, *rank, *id)
        });
        match known().next().is_none() {
            // CPUs on nodes without memory and without a known distance: any node is as good as another.
            true => pools.nodes.iter().map(|node| node.id).collect(),
            false => others.into_iter().map(|(_, _, id)| id).collect(),
        }
    }
}

/// A grant in the making.
struct Filling<'a> {
    memory: &'a Memory<'a>,
    grant: Grant,
    /// Of what is asked for.
    missing: Bytes,
    /// Of the nodes so far.
    capacity: Bytes,
}

impl<'a> Filling<'a> {
    fn new(memory: &'a Memory<'a>) -> Filling<'a> {
        let (grant, missing) = (Grant::default(), memory.request.memory);
        Filling { memory, grant, missing, capacity: Bytes::ZERO }
    }

    fn holds_limit(&self) -> bool {
        self.memory.request.memory_limit.is_none_or(|limit| self.capacity >= limit)
    }

    fn is_enough(&self) -> bool {
        self.missing == Bytes::ZERO && self.holds_limit() && !self.grant.mems.is_empty()
    }

    /// A node that is full would not help, except to hold the limit.
    fn gains_by(&self, node: NodeId) -> bool {
        let is_full = self.memory.free_on(node).min(self.missing) == Bytes::ZERO;
        !is_full || !self.holds_limit() || self.grant.mems.is_empty()
    }

    fn take(&mut self, node: NodeId) {
        let charge = self.memory.free_on(node).min(self.missing);
        if charge > Bytes::ZERO {
            self.grant.charges.push((node, charge));
            self.missing -= charge;
        }
        let known = self.memory.pools.node(node);
        self.capacity += known.map_or(Bytes::ZERO, |(_, it)| it.capacity());
        self.grant.mems.insert(node);
    }
}
