//! Somebody with CPUs of his own goes away from some of them, for the sake of another who is there, and comes back. In: a ledger, who goes, the CPUs to leave.
//! Out: one move.
//!
//! It is a move as compaction makes them: offered by the allocator, and nobody is worse off by it than he was. Beside that no third one has to move for it, so
//! that it can be taken back by one move, too.

use std::collections::BTreeMap;

use bayplan_types::{CpuSet, MilliCpu};

use super::apply::{cost, try_move};
use super::model::may_move;
use super::{Limits, Relocation};
use crate::ledger::Ledger;
use crate::pool::Pool;
use crate::request::{ContainerId, Previous, Request};

/// The move after which a container owns nothing of `leave`, with the least memory that has to follow; `None` where there is no place that is as good as its own.
pub fn plan_departure(
    ledger: &Ledger,
    (id, request): (ContainerId, &Request),
    leave: &CpuSet,
    limits: &Limits,
) -> Option<Relocation> {
    let is_there = ledger.allocation(id).is_some_and(|held| held.exclusive.intersects(leave));
    if !is_there || !may_move(request) {
        return None;
    }
    let movable = BTreeMap::from([(id, request.clone())]);
    let pools = ledger.pools();
    let is_away = |pool: &&Pool| !pool.cpus.intersects(leave);
    let is_allowed = |made: &Relocation| {
        // What it wants to be near of is on its node.
        let stays = || pools.nodes_of(&made.to.exclusive) == pools.nodes_of(&made.from.exclusive);
        made.sharers.is_empty()
            && made.cost.cpus <= limits.cpus_max
            && limits.memory_max.is_none_or(|most| made.cost.memory <= most)
            && (request.wishes.place.near.is_empty() || stays())
    };
    let moves = pools.iter().filter(is_away).filter_map(|pool| {
        let place = Previous { pool: pool.id, exclusive: CpuSet::new() };
        let made = try_move(&mut ledger.clone(), &movable, id, place)?;
        is_allowed(&made).then_some((made.cost.memory, pool.id, made))
    });
    moves.min_by_key(|(memory, pool, _)| (*memory, *pool)).map(|(.., made)| made)
}

/// The move that takes a departure back; `None` where others have taken the place since, or the container is somewhere else by now.
pub fn plan_return(ledger: &Ledger, departure: &Relocation) -> Option<Relocation> {
    let Relocation { container, from: to, to: left, .. } = departure;
    let from = ledger.allocation(*container).filter(|it| it.exclusive == left.exclusive)?.clone();
    let cost = cost(&from, to);
    let planned =
        Relocation { container: *container, from, to: to.clone(), sharers: Vec::new(), cost };
    let mut after = ledger.clone();
    after.release(*container);
    let open = after.open().cpus().union(after.open_isolated());
    let is_open = to.exclusive.is_subset(&open);
    after.adopt(*container, to.clone()).ok()?;
    // Less is set aside where others have taken the memory.
    let is_same = after.allocation(*container) == Some(to);
    let has_short = ledger.pools().iter().any(|it| is_short(&after, it) && !is_short(ledger, it));
    (is_open && is_same && !has_short).then_some(planned)
}

/// Whether sharers ask for more than the CPUs that nobody owns.
fn is_short(ledger: &Ledger, pool: &Pool) -> bool {
    ledger.shared_requests(pool.id) > MilliCpu::from_cpus(ledger.shared_cpus(pool.id).len())
}
