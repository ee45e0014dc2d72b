//! Memory nodes for a container. In: the NUMA nodes of its CPUs, an amount. Out: `cpuset.mems` and what is set aside on each node.
//!
//! The nodes of the CPUs come first. Where they cannot hold the amount, the nearest others are added, one by one, until they can.

use bayplan_types::{Bytes, NodeId, NodeSet};

use crate::pool::Pools;
use crate::request::Request;

/// Nodes a container may use, and what it holds on each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) mems: NodeSet,
    pub(crate) charges: Vec<(NodeId, Bytes)>,
}

/// Memory in use per node, in the order of `Pools::nodes`.
pub(crate) fn free_on(pools: &Pools, charged: &[Bytes], node: NodeId) -> Bytes {
    let Some((index, node)) = pools.node(node) else { return Bytes::ZERO };
    let capacity = node.memory.unwrap_or(Bytes(u64::MAX));
    capacity.saturating_sub(charged.get(index).copied().unwrap_or(Bytes::ZERO))
}

/// Free memory on a set of nodes. A machine without NUMA nodes does not count memory and always has room.
pub(crate) fn free_in(pools: &Pools, charged: &[Bytes], nodes: &NodeSet) -> Bytes {
    if pools.nodes.is_empty() {
        return Bytes(u64::MAX);
    }
    nodes.iter().map(|node| free_on(pools, charged, node)).sum()
}

/// Free memory of the machine.
pub(crate) fn free_total(pools: &Pools, charged: &[Bytes]) -> Bytes {
    free_in(pools, charged, &pools.nodes.iter().map(|node| node.id).collect())
}

/// `None` when the whole machine has too little free memory for what the request sets aside.
pub(crate) fn grant(
    pools: &Pools,
    charged: &[Bytes],
    near: &NodeSet,
    request: &Request,
) -> Option<Grant> {
    let mut grant = Grant::default();
    if pools.nodes.is_empty() {
        return Some(grant);
    }
    let (mut missing, mut capacity) = (request.memory, Bytes::ZERO);
    for (is_local, node) in nodes_by_distance(pools, near) {
        let holds_limit = request.memory_limit.is_none_or(|limit| capacity >= limit);
        if !is_local && missing == Bytes::ZERO && holds_limit && !grant.mems.is_empty() {
            break;
        }
        let charge = free_on(pools, charged, node).min(missing);
        // A distant node that is full would not help.
        if !is_local && charge == Bytes::ZERO && holds_limit && !grant.mems.is_empty() {
            continue;
        }
        if charge > Bytes::ZERO {
            grant.charges.push((node, charge));
            missing -= charge;
        }
        capacity += free_on(pools, &[], node);
        grant.mems.insert(node);
    }
    (missing == Bytes::ZERO).then_some(grant)
}

/// Local nodes by number, then the others, nearest to any local node first.
fn nodes_by_distance(pools: &Pools, near: &NodeSet) -> Vec<(bool, NodeId)> {
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
    others.sort_unstable();
    nodes.extend(others.into_iter().map(|(_, _, id)| (false, id)));
    if nodes.is_empty() {
        // CPUs whose nodes have no memory and no known distance: any node is as good as another.
        nodes.extend(pools.nodes.iter().map(|node| (false, node.id)));
    }
    nodes
}
