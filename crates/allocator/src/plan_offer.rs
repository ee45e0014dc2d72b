//! Asks where a container could go. In: the ledger and a request. Out: an offer with every pool's score, or every pool's rejection.

use bayplan_types::MilliCpu;
use smallvec::SmallVec;

use crate::allocation::Allocation;
use crate::group_offer::{offer_exactly, offer_in_group};
use crate::id::ContainerId;
use crate::ledger::Ledger;
use crate::memory::Memory;
use crate::offer::{Considered, Offer, Refusal};
use crate::pool::{Pool, PoolId};
use crate::request::{Demand, Request};
use crate::requirement::Requirement;
use crate::score::{Rejection, Score};
use crate::search::{Candidate, Question, Search, Short, Standing};
use crate::together::offer_beside;
use crate::wishes::Within;

/// The best pool for `request`, scored against every other.
///
/// # Errors
/// [`Refusal`] lists why each pool cannot hold it.
pub fn offer(ledger: &Ledger, request: &Request) -> Result<Offer, Refusal> {
    if request.is_reserved && !ledger.pools().reserved().is_empty() {
        return offer_reserved(ledger, request);
    }
    if let Some(in_group) = offer_in_group(ledger, request) {
        return in_group;
    }
    if request.wishes.has_no_choice() {
        return offer_preserved(ledger, request);
    }
    if !request.wishes.cpus.exactly.is_empty() {
        return offer_exactly(ledger, request);
    }
    if let Some(beside) = offer_beside(ledger, request) {
        return beside;
    }
    let question = Question::new(ledger, request);
    let search = Search::new(&question);
    let mut unfit: Vec<Unfit> = Vec::new();
    loop {
        let (best, considered) = compare(ledger, &search, &unfit);
        let Some((pool, candidate)) = best else { return Err(Refusal { considered }) };
        let view = candidate.view;
        let why = match search.allocation(pool, &candidate) {
            Ok(it) if ledger.pools().ownable(&it.exclusive) != it.exclusive => {
                Rejection::Unmet(Requirement::Isolated)
            }
            Ok(allocation) => {
                let moves = candidate.moves;
                let offer = Offer {
                    moves,
                    considered,
                    ..Offer::new(ledger.version(), request.id, allocation)
                };
                match lacks_room_for_rest(ledger, request, &offer) {
                    None => return Ok(offer),
                    Some(why) => why,
                }
            }
            Err(why) => why,
        };
        unfit.retain(|it| it.pool != pool.id);
        unfit.push(Unfit { pool: pool.id, view, why });
    }
}

/// A pool with CPUs that do not do, which was found out only after they were picked. Another view of it, which gives up a preference, may do.
struct Unfit {
    pool: PoolId,
    /// The view that they were picked from, and every one before it.
    view: usize,
    why: Rejection,
}

/// Where a pod has to lie on as few domains as possible: why the rest of it could not follow, as one container that is placed next.
fn lacks_room_for_rest(ledger: &Ledger, request: &Request, offer: &Offer) -> Option<Rejection> {
    let (wishes, exclusive) = (&request.wishes, &offer.allocation.exclusive);
    let rest = wishes.pod.rest.whole_cpus();
    let is_sure = wishes.pod.is_one && wishes.pod.is_rest_sure && request.previous.is_none();
    let Some(Within::Fewest(level)) = wishes.cpus.within else { return None };
    if !is_sure || rest == 0 || exclusive.is_empty() {
        return None;
    }
    let fraction = Some(wishes.pod.rest.fraction()).filter(|it| *it > MilliCpu::ZERO);
    let mut next = Request::new(ContainerId(u64::MAX), Demand::new(rest, fraction));
    next.owner = request.owner;
    next.wishes.cpus = wishes.cpus.clone();
    next.wishes.cpus.only_whole_cores &= rest.is_multiple_of(ledger.pools().width);
    next.wishes.pod.is_one = true;
    next.wishes.pod.mates = wishes.pod.mates.iter().copied().chain([request.id]).collect();
    let mut then = ledger.clone();
    let is_placed = then.commit(offer.clone()).is_ok() && self::offer(&then, &next).is_ok();
    (!is_placed).then_some(Rejection::NoRoomForRest { rest, level })
}

/// The best pool, and what became of every one.
fn compare<'l, 'q>(
    ledger: &'l Ledger,
    search: &Search<'q, '_>,
    unfit: &[Unfit],
) -> (Option<(&'l Pool, Candidate<'q>)>, Vec<Considered>) {
    let mut best = Best(None);
    let mut considered = Vec::with_capacity(ledger.pools().pools.len());
    let mut short: SmallVec<[(&Pool, Short); 8]> = SmallVec::new();
    for pool in ledger.pools().iter() {
        let standing = match unfit.iter().find(|it| it.pool == pool.id) {
            None => search.score(pool, 0),
            Some(Unfit { view, why, .. }) if search.has_view(view + 1) => {
                search.score(pool, view + 1).map_err(|_| why.clone())
            }
            Some(Unfit { why, .. }) => Err(why.clone()),
        };
        let outcome = match standing {
            Ok(Standing::Fits(candidate)) => Ok(best.consider(pool, candidate)),
            Ok(Standing::Short(it)) => {
                short.push((pool, it));
                Err(Rejection::NotWorthMoves)
            }
            Err(rejection) => Err(rejection),
        };
        considered.push(Considered { pool: pool.id, outcome });
    }
    // Which containers would have to move is worked out only for pools that could win by it.
    short.sort_unstable_by(|(_, one), (_, other)| other.at_best.cmp(&one.at_best));
    for (pool, short) in short {
        if best.score().is_some_and(|leader| *leader > short.at_best) {
            break;
        }
        let scored = search.score_with_room(pool, &short);
        let outcome = scored.map(|candidate| best.consider(pool, candidate));
        if let Some(row) = considered.get_mut(pool.id.index()) {
            row.outcome = outcome;
        }
    }
    let winner = best.0.as_ref();
    let moved = winner.and_then(|(pool, it)| Some((*pool, search.with_sharers_moved(pool, it)?)));
    if let Some((pool, moved)) = moved
        && let Some(row) = considered.get_mut(pool.id.index())
    {
        row.outcome = Ok(best.consider(pool, moved));
    }
    (best.0, considered)
}

/// The leader so far.
struct Best<'l, 'q>(Option<(&'l Pool, Candidate<'q>)>);

impl<'l, 'q> Best<'l, 'q> {
    fn score(&self) -> Option<&Score> {
        self.0.as_ref().map(|(_, leader)| &leader.score)
    }

    fn consider(&mut self, pool: &'l Pool, candidate: Candidate<'q>) -> Score {
        let score = candidate.score.clone();
        if self.score().is_none_or(|leader| score > *leader) {
            self.0 = Some((pool, candidate));
        }
        score
    }
}

fn offer_reserved(ledger: &Ledger, request: &Request) -> Result<Offer, Refusal> {
    let allocation = Allocation {
        is_reserved: true,
        shared: Some(request.demand.shared().unwrap_or(MilliCpu::ZERO)),
        ..Allocation::new(PoolId::MACHINE)
    };
    with_memory_near(ledger, request, allocation)
}

/// A container that has its CPUs left alone runs anywhere, and what it requests is kept free on the machine; one with CPUs that were chosen for its
/// pod runs there, and requests none of the others.
fn offer_preserved(ledger: &Ledger, request: &Request) -> Result<Offer, Refusal> {
    let own = MilliCpu::from_cpus(request.demand.exclusive());
    let allocation = Allocation {
        shared: Some(own + request.demand.shared().unwrap_or(MilliCpu::ZERO)),
        ..Allocation::new(PoolId::MACHINE)
    };
    with_memory_near(ledger, request, allocation)
}

/// There is no choice of pools; only the memory can be lacking.
fn with_memory_near(
    ledger: &Ledger,
    request: &Request,
    allocation: Allocation,
) -> Result<Offer, Refusal> {
    let held = Allocation { terms: request.terms(), ..allocation };
    let memory = Memory::new(ledger.pools(), ledger.charged(), request);
    match memory.grant_near(&held) {
        Ok(grant) => Ok(Offer::new(ledger.version(), request.id, grant.give_to(held))),
        Err(rejection) => Err(Refusal::of(PoolId::MACHINE, rejection)),
    }
}
