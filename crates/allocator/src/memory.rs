//! Memory nodes for a container. In: the NUMA nodes of its CPUs, an amount. Out: `cpuset.mems` and what is set aside on each node.
//!
//! The nodes of the CPUs come first. Where they cannot hold the amount, the nearest others are added, one by one, until they can; of
//! equally near ones first those that can hold all that is missing. Huge pages come from the same nodes as far as these have them.

use bayplan_types::{Bytes, MemoryKind, NodeId, NodeSet};

use crate::charged::{Charged, HugeCharge};
use crate::ledger::Allocation;
use crate::pool::{Pool, Pools};
use crate::request::Request;
use crate::score::Rejection;

/// Nodes a container may use, and what it holds on each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) mems: NodeSet,
    pub(crate) charges: Vec<(NodeId, Bytes)>,
    pub(crate) huge_charges: Vec<HugeCharge>,
}

impl Grant {
    /// The allocation with this memory.
    pub(crate) fn give_to(self, held: Allocation) -> Allocation {
        let Grant { mems, charges, huge_charges } = self;
        Allocation { mems, charges, huge_charges, ..held }
    }
}

/// The memory that one request may have.
#[derive(Clone, Debug)]
pub(crate) struct Memory<'a> {
    pools: &'a Pools,
    charged: &'a Charged,
    request: &'a Request,
}

/// The nodes of the CPUs that somebody holds or shares: memory there is near.
pub(crate) fn near_nodes(pools: &Pools, held: &Allocation) -> NodeSet {
    if held.is_reserved {
        return pools.nodes_of(pools.reserved());
    }
    if held.terms.preserve.cpus {
        return pools.nodes_of(&pools.cpus());
    }
    let mut near = NodeSet::new();
    if !held.exclusive.is_empty() {
        near.union_with(&pools.nodes_of(&held.exclusive));
    }
    if let Some(pool) = held.shared.and_then(|_| pools.get(held.pool)) {
        near.union_with(&pool.nodes);
    }
    near
}

impl<'a> Memory<'a> {
    pub(crate) fn new(pools: &'a Pools, charged: &'a Charged, request: &'a Request) -> Memory<'a> {
        Memory { pools, charged, request }
    }

    /// Whether a node is of a kind that the request may have. Where the machine has no node of these kinds, every node will do.
    fn is_wished(&self, node: NodeId) -> bool {
        let kinds = &self.request.wishes.memory.kinds;
        let is_wished = |kind: MemoryKind| match kinds.is_empty() {
            true => kind != MemoryKind::Hbm,
            false => kinds.contains(&kind),
        };
        let kind = self.pools.node(node).map(|(_, node)| node.kind);
        kind.is_some_and(is_wished) || !self.pools.nodes.iter().any(|node| is_wished(node.kind))
    }

    fn free_on(&self, node: NodeId) -> Bytes {
        self.charged.free_on(self.pools, node)
    }

    /// Free memory on a set of nodes. A machine without NUMA nodes does not count memory and always has room.
    pub(crate) fn free_in(&self, nodes: impl Iterator<Item = NodeId>) -> Bytes {
        if self.pools.nodes.is_empty() {
            return Bytes(u64::MAX);
        }
        nodes.filter(|node| self.is_wished(*node)).map(|node| self.free_on(node)).sum()
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

    /// What somebody gets who holds these CPUs.
    ///
    /// # Errors
    /// A [`Rejection`] when it is not to be had; near the CPUs, if the request is bound to them.
    pub(crate) fn grant_near(&self, held: &Allocation) -> Result<Grant, Rejection> {
        let near = near_nodes(self.pools, held);
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
        let mut grant = Grant::default();
        if self.pools.nodes.is_empty() {
            return Some(grant);
        }
        let may = |node: &NodeId| {
            self.is_wished(*node) && bound_to.is_none_or(|bound| bound.contains(*node))
        };
        let limit = self.request.memory_limit;
        let (mut missing, mut capacity) = (self.request.memory, Bytes::ZERO);
        for (is_local, node) in self.nodes_by_distance(near).filter(|(_, node)| may(node)) {
            let holds_limit = limit.is_none_or(|limit| capacity >= limit);
            if !is_local && missing == Bytes::ZERO && holds_limit && !grant.mems.is_empty() {
                break;
            }
            let charge = self.free_on(node).min(missing);
            // A distant node that is full would not help.
            if !is_local && charge == Bytes::ZERO && holds_limit && !grant.mems.is_empty() {
                continue;
            }
            if charge > Bytes::ZERO {
                grant.charges.push((node, charge));
                missing -= charge;
            }
            capacity += self.pools.node(node).map_or(Bytes::ZERO, |(_, it)| it.capacity());
            grant.mems.insert(node);
        }
        if missing > Bytes::ZERO || grant.mems.is_empty() {
            return None;
        }
        self.add_huge(&mut grant, near, may);
        Some(grant)
    }

    /// Huge pages on the nodes that are granted already, then on the nearest others. Where the machine has too few, what there is: kubelet
    /// has counted them. A node with pages of the size is always granted, because the kernel takes them nowhere else.
    fn add_huge(&self, grant: &mut Grant, near: &NodeSet, may: impl Fn(&NodeId) -> bool) {
        for (size, needed) in &self.request.huge_pages {
            let mut nodes: Vec<NodeId> =
                self.nodes_by_distance(near).map(|(_, node)| node).filter(&may).collect();
            nodes.retain(|node| self.pools.huge(*node, *size).is_some());
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

    /// Local nodes by number, then the others, nearest to any local node first.
    fn nodes_by_distance(&self, near: &NodeSet) -> impl Iterator<Item = (bool, NodeId)> {
        let pools = self.pools;
        let missing = self.request.memory.saturating_sub(self.free_in(near.iter()));
        let mut nodes: Vec<(bool, NodeId)> =
            near.iter().filter(|id| pools.node(*id).is_some()).map(|id| (true, id)).collect();
        let mut others: Vec<(u32, usize, NodeId)> = Vec::new();
        for (rank, (distance, id)) in near
            .iter()
            .filter_map(|id| pools.node(id))
            .flat_map(|(_, node)| node.nearest.iter().enumerate())
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
        nodes.extend(others.into_iter().map(|(_, _, id)| (false, id)));
        if nodes.is_empty() {
            // CPUs whose nodes have no memory and no known distance: any node is as good as another.
            nodes.extend(pools.nodes.iter().map(|node| (false, node.id)));
        }
        nodes.into_iter()
    }
}
