//! Which containers could do with fewer memory nodes. In: a ledger and what containers ask for. Out: narrowings, the best first.
//!
//! A container has more nodes than the memory it asks for needs when it came while the near ones were full, when it had to run
//! elsewhere and its memory stayed, when it asks for less since, or when it was found running. Once there is room, fewer nodes do: those that
//! it would get if it were placed now, on the CPUs that it holds and of the nodes that it has.
//!
//! That is a proposal and no side effect: the kernel moves the pages on the nodes that are left (cgroup v2, since Linux 5.15), which
//! slows the container down while it lasts. [`Narrowing::moves_memory`] says how much that may be.
//!
//! Guarantees: nothing is changed; the same input gives the same plan; each narrowing is possible by itself. Never narrowed are containers that are
//! immovable and those that have their memory nodes left alone.

use std::cmp::Reverse;

use bayplan_types::{Bytes, NodeSet};

use crate::allocation::Allocation;
use crate::change::Narrowing;
use crate::id::ContainerId;
use crate::ledger::Ledger;
use crate::memory::{Memory, near_nodes};
use crate::request::Request;

/// All containers that could do with fewer memory nodes: those that give up most of them first, of these the one that has least to move. Only
/// containers that have nodes beyond those of their CPUs are asked for their request.
pub fn plan_narrowing(
    ledger: &Ledger,
    request_of: impl Fn(ContainerId) -> Option<Request>,
) -> Vec<Narrowing> {
    let held = ledger.allocations();
    let mut plan: Vec<Narrowing> =
        held.filter_map(|(id, held)| narrowing(ledger, id, held, &request_of)).collect();
    plan.sort_by_key(|it| {
        (Reverse(it.gain()), it.moves_memory.is_none(), it.moves_memory, it.container)
    });
    plan
}

fn narrowing(
    ledger: &Ledger,
    container: ContainerId,
    held: &Allocation,
    request_of: impl Fn(ContainerId) -> Option<Request>,
) -> Option<Narrowing> {
    let pools = ledger.pools();
    let may_narrow = !held.terms.is_immovable && !held.terms.preserve.memory;
    if !may_narrow || held.mems.len() < 2 {
        return None;
    }
    let near = near_nodes(pools, held);
    if held.mems.is_subset(&near) {
        return None;
    }
    let request = request_of(container)?;
    let charged = ledger.charged_without(held);
    let memory = Memory::new(pools, &charged, &request);
    let bound = match request.wishes.memory.is_bound {
        true => held.mems.intersection(&pools.memory_of(&near)),
        false => held.mems.clone(),
    };
    let grant = memory.grant(&near, Some(&bound))?;
    (grant.mems != held.mems).then(|| Narrowing {
        made_at: ledger.version(),
        container,
        moves_memory: moved_at_most(ledger, &request, &held.mems.difference(&grant.mems)),
        from: held.mems.clone(),
        to: grant.mems.clone(),
        grant,
    })
}

/// What it may use of the memory of these nodes. What is set aside does not limit it: the kernel takes pages where there are any.
fn moved_at_most(ledger: &Ledger, request: &Request, left: &NodeSet) -> Option<Bytes> {
    let limit = match request.memory_is_expected || request.memory == Bytes::ZERO {
        true => request.memory_limit,
        false => Some(request.memory),
    };
    let huge: Bytes = request.huge_pages.values().copied().sum();
    let pools = ledger.pools();
    let capacities = left.iter().map(|id| pools.node(id).and_then(|(_, it)| it.memory));
    let capacity: Option<Bytes> = capacities.sum();
    limit.into_iter().chain(capacity).min().map(|memory| memory + huge)
}
