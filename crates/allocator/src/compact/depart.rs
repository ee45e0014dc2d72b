//! Plans moving an exclusive container off some of its CPUs, for the sake of another that is there. In: a ledger, the container that goes, the CPUs
//! to leave. Out: one move.
//!
//! It is a move as compaction makes them: offered by the allocator, and no container is worse off by it than it was. Beside that it stays on the NUMA
//! nodes of its CPUs and its memory, none of its wishes that is met now is not met then, and no third one has to move for it. So where it goes is as
//! good as where it was, and nothing has to lead back.

use std::collections::BTreeMap;

use bayplan_types::CpuSet;

use super::apply::try_move;
use super::model::is_movable;
use super::wish::Limits;
use crate::change::Relocation;
use crate::id::ContainerId;
use crate::ledger::Ledger;
use crate::pool::Pool;
use crate::request::{Previous, Request};
use crate::view::keeps_wishes;

/// The move after which a container owns nothing of `leave`; `None` where there is no place on its nodes that is as good as its own, or that takes more CPUs than
/// `limits` lets change.
pub fn plan_departure(
    ledger: &Ledger,
    (id, request): (ContainerId, &Request),
    leave: &CpuSet,
    limits: &Limits,
) -> Option<Relocation> {
    let held = ledger.allocation(id)?;
    if !held.exclusive.intersects(leave) || !is_movable(request, held) {
        return None;
    }
    let mut others = ledger.clone();
    others.lift(id);
    let pools = ledger.pools();
    let nodes = pools.nodes_of(&held.exclusive);
    let is_allowed = |made: &Relocation| {
        let to = &made.to;
        made.sharers.is_empty()
            && made.cost.cpus <= limits.cpus_max
            && pools.nodes_of(&to.exclusive) == nodes
            && to.mems == held.mems
            && keeps_wishes(&others, &request.wishes.cpus, &held.exclusive, &to.exclusive)
    };
    let movable = BTreeMap::from([(id, request.clone())]);
    let is_away = |pool: &&Pool| pool.nodes == nodes && !pool.cpus.intersects(leave);
    let mut moves = pools.iter().filter(is_away).filter_map(|pool| {
        let place = Previous { pool: pool.id, exclusive: CpuSet::new() };
        try_move(&mut ledger.clone(), &movable, id, place)
    });
    moves.find(is_allowed)
}
