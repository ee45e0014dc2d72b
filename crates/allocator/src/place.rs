//! How near a pool is to what a container wants to be near of. In: a pool, devices, other containers. Out: a distance, an affinity; the roomiest NUMA node, where that is wanted.

use std::cmp::Reverse;

use bayplan_topology::Level;
use bayplan_types::{CpuSet, NodeSet};

use crate::ledger::Ledger;
use crate::pool::{Pool, PoolId, Pools};
use crate::request::Request;
use crate::score::Rejection;
use crate::wishes::{Near, PlaceWishes, Strictness};

/// Sum of the distances between the pool and each device; for a pool with several NUMA nodes, from the farthest of them.
///
/// # Errors
/// A [`Rejection`] when the pool is not near a device that has to be near.
pub(crate) fn distance_to_devices(
    pools: &Pools,
    pool: &Pool,
    wishes: &PlaceWishes,
) -> Result<u32, Rejection> {
    let mut sum = 0u32;
    for near in &wishes.near {
        let nodes = nodes_near(pools, near);
        if near.strictness == Strictness::Required && !is_near(pool, near, &nodes) {
            return Err(Rejection::TooFarFrom(near.name.clone()));
        }
        let nearest = |from| nodes.iter().map(|to| pools.distance(from, to)).min();
        let farthest = pool.nodes.iter().filter_map(nearest).max();
        sum = sum.saturating_add(farthest.unwrap_or(0));
    }
    Ok(sum)
}

/// The NUMA nodes on which the devices hang, where those are several and each is to have CPUs; empty otherwise.
pub(crate) fn nodes_of_each(pools: &Pools, wishes: &PlaceWishes) -> NodeSet {
    let mut each = NodeSet::new();
    if wishes.is_near_each {
        let nodes = wishes.near.iter().map(|near| nodes_near(pools, near));
        // What hangs on several nodes is near in any of them.
        nodes.filter(|nodes| nodes.len() == 1).for_each(|nodes| each.union_with(&nodes));
    }
    if each.len() > 1 { each } else { NodeSet::new() }
}

fn nodes_near(pools: &Pools, near: &Near) -> NodeSet {
    if near.nodes.is_empty() { pools.nodes_of(&near.cpus) } else { near.nodes.clone() }
}

fn is_near(pool: &Pool, near: &Near, nodes: &NodeSet) -> bool {
    match (near.cpus.is_empty(), nodes.is_empty()) {
        (false, _) => pool.cpus.is_subset(&near.cpus) || pool.nodes.is_subset(nodes),
        (true, false) => pool.nodes.is_subset(nodes),
        // Nothing is known about its place: everywhere is near.
        (true, true) => true,
    }
}

/// Sum of the weights of the containers that are placed; each link between the two pools in the tree leaves three quarters of a weight.
pub(crate) fn affinity(ledger: &Ledger, pool: &Pool, wishes: &PlaceWishes) -> i64 {
    /// A weight without any links.
    const UNIT: i64 = 1000;
    let pools = ledger.pools();
    let of_one = |(id, weight): &(_, i32)| {
        let theirs = ledger.allocation(*id)?.pool;
        let faded = (0..links(pools, pool.id, theirs)).fold(UNIT, |unit, _| unit * 3 / 4);
        Some(i64::from(*weight) * faded)
    };
    wishes.affinity.iter().filter_map(of_one).sum()
}

/// Steps from one pool to the other through the pool around both.
fn links(pools: &Pools, from: PoolId, to: PoolId) -> usize {
    let Some(target) = pools.get(to) else { return 0 };
    let up = pools.chain(from).take_while(|it| !target.cpus.is_subset(&it.cpus)).count();
    let Some(common) = pools.chain(from).nth(up) else { return up };
    up + pools.chain(to).take_while(|it| it.id != common.id).count()
}

/// The same request with the wish to be near the roomiest NUMA node; `None` where it does not ask for that, or has other reasons for its place.
pub(crate) fn near_room(ledger: &Ledger, request: &Request) -> Option<Request> {
    let place = &request.wishes.place;
    let is_asked = place.is_balanced && place.near.is_empty() && request.previous.is_none();
    if !is_asked || request.demand.exclusive() == 0 {
        return None;
    }
    let nodes = roomiest_node(ledger)?;
    let (name, cpus) = ("balance".to_owned(), CpuSet::new());
    let near = Near { name, cpus, nodes, strictness: Strictness::Preferred };
    let mut request = request.clone();
    request.wishes.place.near = vec![near];
    Some(request)
}

/// The NUMA node with the most CPUs that a newcomer may own, in the die and the package of which the same is so; `None` on a machine without NUMA nodes.
pub(crate) fn roomiest_node(ledger: &Ledger) -> Option<NodeSet> {
    let within = roomiest(ledger, &[Level::Package, Level::Die, Level::NumaNode]).pop()?;
    Some(ledger.pools().nodes_of(&within)).filter(|nodes| !nodes.is_empty())
}

/// On a machine with one NUMA node, or with none: the CPUs outside of the package with the most CPUs that a newcomer may own, and those outside of its die and its L3 cache of which the same is so. None of
/// them on any other machine, and of a level of which there is one domain.
pub fn outside_roomiest(ledger: &Ledger) -> Vec<CpuSet> {
    let all = ledger.pools().cpus();
    if ledger.pools().count(Level::NumaNode, &all) > 1 {
        return Vec::new();
    }
    let within = roomiest(ledger, &[Level::Package, Level::Die, Level::L3]);
    let outside = within.iter().map(|it| all.difference(it));
    outside.filter(|it| !it.is_empty()).collect()
}

/// From the widest level to the narrowest, the domain with most room in that of the level before.
fn roomiest(ledger: &Ledger, levels: &[Level]) -> Vec<CpuSet> {
    let pools = ledger.pools();
    let room = |cpus: &CpuSet| {
        let pool = pools.get(pools.around(cpus));
        let load = pool.and_then(|pool| ledger.loads().get(pool.id.index()));
        let containers = load.map_or(0, |load| load.containers);
        let open = ledger.open().cpus().intersection(cpus).len();
        (open, Reverse(containers), Reverse(cpus.first()))
    };
    let mut found = Vec::new();
    let mut within = pools.cpus();
    for level in levels {
        let domains = pools.domains.iter().filter(|(it, _)| it == level);
        let inside = domains.filter(|(_, cpus)| cpus.is_subset(&within));
        if let Some((_, cpus)) = inside.max_by_key(|(_, cpus)| room(cpus)) {
            within = cpus.clone();
            found.push(within.clone());
        }
    }
    found
}
