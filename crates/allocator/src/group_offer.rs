//! Offers of CPUs of a group, or of CPUs that are named. In: a ledger, a request. Out: an offer, or why there is none.

use bayplan_types::{CpuSet, MilliCpu};

use crate::allocation::Allocation;
use crate::budget::Load;
use crate::change::Move;
use crate::eligible::{Picked, check_picked};
use crate::id::ContainerId;
use crate::ledger::Ledger;
use crate::memory::Memory;
use crate::offer::{Offer, Refusal};
use crate::pick::choose::choose;
use crate::pool::{Pool, PoolId};
use crate::request::Request;
use crate::room::plan_way;
use crate::score::Rejection;
use crate::terms::Terms;
use crate::wishes::Part;

/// A place in the group that the request names; `None` where it names none.
pub(crate) fn offer_in_group(ledger: &Ledger, request: &Request) -> Option<Result<Offer, Refusal>> {
    let part = request.wishes.pod.part;
    let id = part.group()?;
    let Some(group) = ledger.group(id) else {
        return Some(Err(Refusal::of(PoolId::MACHINE, Rejection::NoSuchGroup)));
    };
    let placed = match part {
        Part::Inside(_) => inside(ledger, request, id, group),
        _ => beside(request, group),
    };
    let granted = placed.and_then(|held| {
        // Those that share run on the CPUs of the group, and have their memory there.
        let place = if held.exclusive.is_empty() { group } else { &held };
        let memory = Memory::new(ledger.pools(), ledger.charged(), request);
        let grant = memory.grant_near(place)?;
        Ok(Offer::new(ledger.version(), request.id, grant.give_to(held)))
    });
    Some(granted.map_err(|why| Refusal::of(group.pool, why)))
}

/// On the CPUs that the group has for all of its members.
fn beside(request: &Request, group: &Allocation) -> Result<Allocation, Rejection> {
    if group.exclusive.is_empty() {
        return Err(Rejection::FullGroup { needed: 1, free: 0 });
    }
    let terms = Terms { part: request.wishes.pod.part, closes: None, ..request.terms() };
    Ok(Allocation { terms, ..Allocation::new(group.pool) })
}

/// On CPUs of its own, out of those of the group. One stays for those that share them.
fn inside(
    ledger: &Ledger,
    request: &Request,
    id: ContainerId,
    group: &Allocation,
) -> Result<Allocation, Rejection> {
    let pools = ledger.pools();
    let wishes = &request.wishes.cpus;
    let needed = match wishes.exactly.is_empty() {
        true => request.demand.exclusive().max(1),
        false => wishes.exactly.len(),
    };
    let is_shared = ledger.has_sharing_member(id);
    let free = group.exclusive.len().saturating_sub(usize::from(is_shared));
    if !wishes.exactly.is_subset(&group.exclusive) {
        let taken = wishes.exactly.difference(&group.exclusive);
        return Err(Rejection::Taken(Box::new(taken)));
    }
    if needed > free {
        return Err(Rejection::FullGroup { needed, free });
    }
    let exclusive = match &request.previous {
        _ if !wishes.exactly.is_empty() => wishes.exactly.clone(),
        Some(previous) => {
            let kept = previous.exclusive.intersection(&group.exclusive);
            let kept = choose(pools, &kept, needed.min(kept.len()), wishes.is_spread());
            let others = group.exclusive.difference(&kept);
            let more = choose(pools, &others, needed - kept.len(), wishes.is_spread());
            kept.union(&more)
        }
        None => choose(pools, &group.exclusive, needed, wishes.is_spread()),
    };
    let terms = Terms {
        part: Part::Inside(id),
        closes: group.terms.closes,
        is_immovable: true,
        ..request.terms()
    };
    let pool = pools.around(&exclusive);
    Ok(Allocation { exclusive, terms, ..Allocation::new(pool) })
}

/// Exactly the CPUs that the request names; sharers make way for it.
///
/// # Errors
/// Other containers own some of them, or cannot do without them.
pub(crate) fn offer_exactly(ledger: &Ledger, request: &Request) -> Result<Offer, Refusal> {
    let (pools, cpus) = (ledger.pools(), &request.wishes.cpus.exactly);
    let pool = pools.around(cpus);
    let open = ledger.open().cpus().union(ledger.open_isolated());
    let taken = cpus.difference(&pools.ownable(cpus).intersection(&open));
    if !taken.is_empty() {
        return Err(Refusal::of(pool, Rejection::Taken(Box::new(taken))));
    }
    let none = CpuSet::new();
    let picked = Picked { exclusive: cpus, kept: &none, idle: &none };
    check_picked(ledger, request, &picked).map_err(|it| Refusal::of(pool, Rejection::Unmet(it)))?;
    let moves = plan_way(ledger, cpus);
    if let Some(why) = starves(ledger, cpus, &moves) {
        return Err(Refusal::of(pool, why));
    }
    let held =
        Allocation { exclusive: cpus.clone(), terms: request.terms(), ..Allocation::new(pool) };
    let memory = Memory::new(pools, ledger.charged(), request);
    let grant = memory.grant_near(&held).map_err(|why| Refusal::of(pool, why))?;
    Ok(Offer { moves, ..Offer::new(ledger.version(), request.id, grant.give_to(held)) })
}

/// How many of these CPUs the sharers could not do without after the moves.
fn starves(ledger: &Ledger, cpus: &CpuSet, moves: &[Move]) -> Option<Rejection> {
    let pools = ledger.pools();
    let taken = cpus.intersection(ledger.free());
    let mut loads: Vec<Load> = ledger.loads().to_vec();
    let mut change = |pool: PoolId, milli: MilliCpu, change: fn(&mut Load, MilliCpu)| {
        for outer in pools.chain(pool) {
            loads.get_mut(outer.id.index()).into_iter().for_each(|load| change(load, milli));
        }
    };
    for made in moves {
        change(made.from, made.milli, Load::remove);
        change(made.to, made.milli, Load::add);
    }
    let lacking = |pool: &Pool| {
        let lost = taken.intersection_len(&pool.cpus);
        let left = ledger.counted().in_pool(pool.id).cpus.saturating_sub(lost);
        let kept = loads.get(pool.id.index()).map_or(0, |load| load.cpus_kept(pool));
        (lost > 0 && left < kept).then(|| (lost, kept - left))
    };
    let (named, kept) = pools.iter().find_map(lacking)?;
    Some(Rejection::KeptShared { named, kept: kept.min(named) })
}
