//! Makes a plan on a copy of the ledger. In: a ledger, steps of the model. Out: moves as the allocator makes them, or nothing if one
//! of them cannot be made, or leaves a container worse off.

use std::collections::BTreeMap;

use bayplan_topology::Level;
use bayplan_types::Bytes;

use super::model::{Model, State, Step, domains, levels, may_move, narrowest};
use super::wish::Wish;
use crate::allocation::Allocation;
use crate::change::{Cost, Move, Relocation};
use crate::company::Company;
use crate::id::ContainerId;
use crate::ledger::Ledger;
use crate::plan_offer::offer;
use crate::pool::{PoolId, Pools};
use crate::request::{Previous, Request};

/// Moves, and the ledger after them.
pub(super) struct Outcome {
    pub(super) moves: Vec<Relocation>,
    pub(super) ledger: Ledger,
}

/// `None` when a step cannot be made as planned.
pub(super) fn try_steps(
    ledger: &Ledger,
    movable: &BTreeMap<ContainerId, Request>,
    model: &Model,
    plan: &State,
) -> Option<Outcome> {
    let mut ledger = ledger.clone();
    let mut moves = Vec::new();
    for step in &plan.steps {
        moves.push(try_step(&mut ledger, movable, model, step)?);
    }
    Some(Outcome { moves, ledger })
}

fn try_step(
    ledger: &mut Ledger,
    movable: &BTreeMap<ContainerId, Request>,
    model: &Model,
    step: &Step,
) -> Option<Relocation> {
    let container = model.seats.get(step.seat)?.id;
    let kept = model.kept(ledger.pools(), step);
    try_move(ledger, movable, container, Previous { pool: model.pool(step), exclusive: kept })
}

/// Lets a container go to a pool, where it keeps some CPUs; `None`, and an invalid ledger, where that cannot be, or it would be worse off.
pub(super) fn try_move(
    ledger: &mut Ledger,
    movable: &BTreeMap<ContainerId, Request>,
    container: ContainerId,
    Previous { pool: target, exclusive: kept }: Previous,
) -> Option<Relocation> {
    let from = ledger.lift(container)?;
    let mut request = movable.get(&container)?.clone();
    // A container that was in this pool before is preferred there above all else, so the offer goes where the plan says.
    let pool = match from.shared {
        Some(_) => ledger.pools().chain(target).find(|pool| pool.is_shared)?.id,
        None => target,
    };
    request.previous = Some(Previous { pool, exclusive: kept });
    let offered = offer(ledger, &request).ok()?;
    let to = offered.allocation().clone();
    let sharers = offered.moves().to_vec();
    let pools = ledger.pools();
    let leaves_pod = Company::new(ledger, &request)
        .is_some_and(|company| company.beside(&to) < company.beside(&from));
    let is_fine = !leaves_pod
        && to.exclusive.is_subset(&pools.get(pool)?.cpus)
        && to.exclusive != from.exclusive
        && Standing::new(pools, &to).is_no_worse_than(&Standing::new(pools, &from))
        && sharers
            .iter()
            .all(|made| movable.get(&made.container).is_some_and(may_move) && is_fair(pools, made));
    if !is_fine {
        return None;
    }
    ledger.commit(offered).ok()?;
    let cost = cost(&from, &to);
    Some(Relocation { container, from, to, sharers, cost })
}

/// A sharer may have to run elsewhere, but not on more NUMA nodes.
fn is_fair(pools: &Pools, made: &Move) -> bool {
    let nodes = |pool: PoolId| pools.get(pool).map(|pool| pool.nodes.len());
    nodes(made.to) <= nodes(made.from)
}

fn cost(from: &Allocation, to: &Allocation) -> Cost {
    let left = from.set_aside().filter(|(node, _)| !to.mems.contains(*node));
    Cost {
        cpus: to.exclusive.difference(&from.exclusive).len(),
        memory: left.map(|(_, bytes)| bytes).sum(),
    }
}

/// How good a container's place is.
struct Standing {
    /// Levels of which one domain holds all of its CPUs.
    levels: Vec<Level>,
    /// NUMA nodes of its CPUs, and of the CPUs that it shares.
    nodes: [usize; 2],
    split_cores: usize,
    distance: u32,
    /// Memory set aside on other nodes than those of its CPUs.
    remote: Bytes,
    /// Huge pages set aside.
    huge: Bytes,
}

impl Standing {
    fn new(pools: &Pools, held: &Allocation) -> Standing {
        let narrowest = narrowest(pools, &held.exclusive);
        let near = pools.nodes_of(&held.exclusive);
        let remote = held.set_aside().filter(|(node, _)| !near.contains(*node));
        let shared = held.shared.and_then(|_| pools.get(held.pool));
        let leaves = pools.iter().filter(|pool| pool.children.is_empty());
        let around = leaves.filter(|pool| pool.cpus.intersects(&held.exclusive));
        let is_split = |threads: usize, of: usize| threads > 0 && threads < of;
        Standing {
            levels: levels(pools, narrowest),
            nodes: [near.len(), shared.map_or(0, |pool| pool.nodes.len())],
            split_cores: around
                .flat_map(|pool| pools.own_core_sets(pool))
                .filter(|core| is_split(core.intersection_len(&held.exclusive), core.len()))
                .count(),
            distance: pools.get(narrowest).map_or(0, |pool| pool.distance),
            remote: remote.map(|(_, bytes)| bytes).sum(),
            huge: held.huge_charges.iter().map(|charge| charge.bytes).sum(),
        }
    }

    fn is_no_worse_than(&self, other: &Standing) -> bool {
        let [nodes, shared_nodes] = self.nodes;
        other.levels.iter().all(|level| self.levels.contains(level))
            && nodes <= other.nodes[0]
            && shared_nodes <= other.nodes[1]
            && self.split_cores <= other.split_cores
            && self.distance <= other.distance
            && self.remote <= other.remote
            && self.huge >= other.huge
    }
}

/// Whether a container that asks now gets all of its CPUs in one domain.
pub(super) fn holds(ledger: &Ledger, wish: &Wish) -> bool {
    let Ok(offered) = offer(ledger, &wish.request) else { return false };
    let pools = ledger.pools();
    let to = offered.allocation();
    let mut domains = domains(pools, wish.level).into_iter();
    domains.any(|domain| to.exclusive.is_subset(&domain.cpus))
}
