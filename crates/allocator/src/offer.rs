//! Asks where a container could go. In: the ledger and a request. Out: an offer with every pool's score, or every pool's rejection.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::Reverse;

use bayplan_types::{CpuSet, MilliCpu, NodeSet};

use crate::budget::{Budgets, Supply, Units, fits_shared};
use crate::counted::Counted;
use crate::ledger::{Allocation, Ledger};
use crate::memory;
use crate::pick::{Kin, Picker};
use crate::pool::{Pool, PoolId};
use crate::request::{ContainerId, Request};
use crate::room::{Move, Sharer, Wanted, make_room, movable_sharers};
use crate::score::{Rejection, Score};

/// What became of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Considered {
    /// The pool.
    pub pool: PoolId,
    /// Its score, or why it cannot hold the request.
    pub outcome: Result<Score, Rejection>,
}

/// A proposal that changes nothing until [`Ledger::commit`] takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub(crate) made_at: u64,
    pub(crate) container: ContainerId,
    pub(crate) allocation: Allocation,
    pub(crate) moves: Vec<Move>,
    pub(crate) considered: Vec<Considered>,
}

impl Offer {
    /// Where the container would go.
    pub fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    /// Sharers that run elsewhere from then on.
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// Every pool, in pool order. Empty for a request on reserved CPUs, where there is no choice.
    pub fn considered(&self) -> &[Considered] {
        &self.considered
    }
}

/// No pool can hold the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why not, pool by pool, in pool order.
    pub considered: Vec<Considered>,
}

/// The best pool for `request`, scored against every other.
///
/// # Errors
/// [`Refusal`] lists why each pool cannot hold it.
pub fn offer(ledger: &Ledger, request: &Request) -> Result<Offer, Refusal> {
    if request.is_reserved && !ledger.pools().reserved().is_empty() {
        return offer_reserved(ledger, request);
    }
    let question = Question::new(ledger, request);
    let search = Search::new(&question);
    let mut best: Option<Candidate<'_>> = None;
    let mut considered = Vec::with_capacity(ledger.pools().pools.len());
    for pool in ledger.pools().iter() {
        let outcome = search.score(pool).map(|candidate| {
            let score = candidate.score.clone();
            if best.as_ref().is_none_or(|leader| score > leader.score) {
                best = Some(candidate);
            }
            score
        });
        considered.push(Considered { pool: pool.id, outcome });
    }
    let chosen = best.and_then(|Candidate { score, roomier, moves }| {
        let pool = score.pool.0;
        let picked = roomier.as_deref().unwrap_or(&search.picker).pick(pool);
        Some((search.allocation(pool, &picked)?, moves))
    });
    match chosen {
        Some((allocation, moves)) => Ok(Offer {
            made_at: ledger.version(),
            container: request.id,
            allocation,
            moves,
            considered,
        }),
        None => Err(Refusal { considered }),
    }
}

fn offer_reserved(ledger: &Ledger, request: &Request) -> Result<Offer, Refusal> {
    let pools = ledger.pools();
    let near = pools.nodes_of(pools.reserved());
    let Some(grant) = memory::grant(pools, ledger.charged(), &near, request) else {
        let outcome = Err(too_little_memory(ledger, request));
        return Err(Refusal { considered: vec![Considered { pool: PoolId::MACHINE, outcome }] });
    };
    let allocation = Allocation {
        pool: PoolId::MACHINE,
        is_reserved: true,
        exclusive: CpuSet::new(),
        shared: Some(request.demand.shared().unwrap_or(MilliCpu::ZERO)),
        mems: grant.mems,
        charges: grant.charges,
    };
    Ok(Offer {
        made_at: ledger.version(),
        container: request.id,
        allocation,
        moves: Vec::new(),
        considered: Vec::new(),
    })
}

fn too_little_memory(ledger: &Ledger, request: &Request) -> Rejection {
    let free = memory::free_total(ledger.pools(), ledger.charged());
    Rejection::TooLittleMemory { needed: request.memory, free }
}

/// What is asked of which ledger, and the CPUs that can be had.
struct Question<'a> {
    ledger: &'a Ledger,
    request: &'a Request,
    /// Exclusive CPUs that a container which is placed anew keeps.
    kept: CpuSet,
    /// Shared CPUs without `kept`.
    free: Cow<'a, Counted>,
    /// Exclusive CPUs to pick beyond `kept`.
    missing: usize,
}

impl<'a> Question<'a> {
    fn new(ledger: &'a Ledger, request: &'a Request) -> Question<'a> {
        let kept = kept_cpus(ledger, request);
        let mut free = Cow::Borrowed(ledger.counted());
        if !kept.is_empty() {
            free.to_mut().remove_all(ledger.pools(), &kept);
        }
        let missing = request.demand.exclusive() - kept.len();
        Question { ledger, request, kept, free, missing }
    }

    fn supply(&self) -> Supply<'_> {
        Supply {
            pools: self.ledger.pools(),
            shared: Some(&self.free),
            takeable: &self.free,
            units: Units { is_spread: false, only_whole: false, cpus: 1 },
        }
    }
}

/// A pool that can hold the request.
struct Candidate<'a> {
    score: Score,
    moves: Vec<Move>,
    /// Picks the CPUs after the moves.
    roomier: Option<Box<Picker<'a>>>,
}

/// The search for the answer.
struct Search<'a> {
    question: &'a Question<'a>,
    ledger: &'a Ledger,
    request: &'a Request,
    picker: Picker<'a>,
    /// Who could make room, once somebody has to.
    sharers: OnceCell<Vec<Sharer>>,
    machine_has_memory: bool,
}

impl<'a> Search<'a> {
    fn new(question: &'a Question<'a>) -> Search<'a> {
        let Question { ledger, request, .. } = *question;
        let supply = question.supply();
        let budgets = Budgets::new(&supply, ledger.loads());
        let free_memory = memory::free_total(ledger.pools(), ledger.charged());
        Search {
            question,
            ledger,
            request,
            picker: Picker::new(supply, budgets, Kin::default(), false, question.missing),
            sharers: OnceCell::new(),
            machine_has_memory: request.memory <= free_memory,
        }
    }

    fn score(&self, pool: &Pool) -> Result<Candidate<'a>, Rejection> {
        if !self.machine_has_memory {
            return Err(too_little_memory(self.ledger, self.request));
        }
        if self.request.demand.exclusive() > 0 {
            self.score_exclusive(pool)
        } else {
            let score = self.score_shared(pool)?;
            Ok(Candidate { score, moves: Vec::new(), roomier: None })
        }
    }

    fn score_exclusive(&self, pool: &Pool) -> Result<Candidate<'a>, Rejection> {
        let (kept, missing) = (&self.question.kept, self.question.missing);
        if !kept.is_subset(&pool.cpus) {
            return Err(Rejection::LeavesPrevious);
        }
        let shared = self.request.demand.shared();
        if shared.is_some() && pool.is_inside_node {
            return Err(Rejection::TooNarrowToShare);
        }
        let supply = &self.picker.supply;
        let takeable =
            self.picker.budgets.takeable_by(supply, self.ledger.loads(), pool.id, shared);
        let refused = Rejection::TooFewCpus {
            needed: self.request.demand.exclusive(),
            free: takeable + kept.len(),
        };
        // A mixed container also needs a shared CPU that stays after the exclusive ones are gone; `takeable_by` counts it,
        // and comes to zero where even that is not to be had.
        let without_owner = supply.shared_in(pool.id);
        let stay_shared = shared.map_or(0, |milli| milli.cpus_needed().max(1));
        if without_owner < missing + stay_shared {
            return Err(refused);
        }
        let (moves, roomier) = match takeable >= missing {
            true => (Vec::new(), None),
            false => match self.make_room(pool) {
                Some((moves, picker)) => (moves, Some(Box::new(picker))),
                None => return Err(refused),
            },
        };
        let picker = roomier.as_deref().unwrap_or(&self.picker);
        let Some(cost) = picker.cost(pool.id) else { return Err(refused) };
        let around = pool.parent.unwrap_or(pool.id);
        let score = Score {
            nodes_taken: Reverse(cost.nodes),
            split_cores: Reverse(cost.split_cores),
            broken_cores: Reverse(cost.broken_cores),
            strangers: Reverse(cost.strangers),
            moved: Reverse((moves.len(), moves.iter().map(|made| made.milli).sum())),
            cpus_left: Reverse(without_owner - missing),
            around_left: Reverse(supply.shared_in(around).saturating_sub(missing)),
            headroom: 0,
            ..self.common(pool)
        };
        Ok(Candidate { score, moves, roomier })
    }

    /// The sharers that have to go so that `pool` can give what is missing, and the picker for what there is then.
    fn make_room(&self, pool: &Pool) -> Option<(Vec<Move>, Picker<'a>)> {
        let (supply, missing) = (self.picker.supply, self.question.missing);
        let wanted = Wanted { count: missing, shared: self.request.demand.shared() };
        let sharers = self.sharers.get_or_init(|| movable_sharers(self.ledger));
        let (moves, budgets) = make_room(supply, self.ledger.loads(), sharers, pool, wanted)?;
        Some((moves, Picker::new(supply, budgets, Kin::default(), false, missing)))
    }

    fn score_shared(&self, pool: &Pool) -> Result<Score, Rejection> {
        if pool.is_inside_node {
            return Err(Rejection::TooNarrowToShare);
        }
        let shared_cpus = self.question.free.in_pool(pool.id).cpus;
        if shared_cpus == 0 {
            return Err(Rejection::NoSharedCpu);
        }
        let (pools, loads) = (self.ledger.pools(), self.ledger.loads());
        let milli = self.request.demand.shared().unwrap_or(MilliCpu::ZERO);
        let fits = fits_shared(pools, &self.question.free, loads, pool.id, milli);
        let common = self.common(pool);
        Ok(Score {
            stays: common.stays && fits,
            cpu_fits: fits,
            burst_fits: self
                .request
                .ceiling
                .is_none_or(|ceiling| ceiling <= MilliCpu::from_cpus(shared_cpus)),
            headroom: self.headroom(pool),
            ..common
        })
    }

    fn common(&self, pool: &Pool) -> Score {
        let pools = self.ledger.pools();
        let near = memory::free_in(pools, self.ledger.charged(), &pool.nodes);
        Score {
            stays: self.request.previous.as_ref().is_some_and(|previous| previous.pool == pool.id),
            cpu_fits: true,
            memory_fits: self.request.memory <= near,
            burst_fits: true,
            numa_nodes: Reverse(pool.nodes.len()),
            domain: Reverse(pool.cpus.len()),
            nodes_taken: Reverse(0),
            split_cores: Reverse(0),
            broken_cores: Reverse(0),
            strangers: Reverse(0),
            moved: Reverse((0, MilliCpu::ZERO)),
            cpus_left: Reverse(0),
            around_left: Reverse(0),
            distance: Reverse(pool.distance),
            headroom: 0,
            pool: Reverse(pool.id),
        }
    }

    /// Room on the shared CPUs in milli-CPU. Every container weighs a quarter of a CPU at least, so that BestEffort containers,
    /// which request nothing, spread too.
    fn headroom(&self, pool: &Pool) -> i64 {
        const WEIGHT_MIN_MILLI: i64 = 250;
        let load = self.ledger.loads().get(pool.id.index()).copied().unwrap_or_default();
        let milli = |amount: MilliCpu| i64::try_from(amount.0).unwrap_or(i64::MAX);
        milli(MilliCpu::from_cpus(self.question.free.in_pool(pool.id).cpus))
            .saturating_sub(milli(load.milli).max(i64::from(load.containers) * WEIGHT_MIN_MILLI))
    }

    fn allocation(&self, pool: PoolId, picked: &CpuSet) -> Option<Allocation> {
        let pools = self.ledger.pools();
        let exclusive = picked.union(&self.question.kept);
        let shared = self.request.demand.shared();
        let mut near = NodeSet::new();
        if !exclusive.is_empty() {
            near.union_with(&pools.nodes_of(&exclusive));
        }
        if shared.is_some() {
            near.union_with(&pools.get(pool)?.nodes);
        }
        let grant = memory::grant(pools, self.ledger.charged(), &near, self.request)?;
        Some(Allocation {
            pool,
            is_reserved: false,
            exclusive,
            shared,
            mems: grant.mems,
            charges: grant.charges,
        })
    }
}

/// Of the CPUs that a container which is placed anew holds, those it keeps: all of them, or as many as it still asks for, whole cores first.
fn kept_cpus(ledger: &Ledger, request: &Request) -> CpuSet {
    let Some(previous) = &request.previous else { return CpuSet::new() };
    let wanted = request.demand.exclusive();
    let held = previous.exclusive.intersection(ledger.free());
    if held.len() <= wanted {
        return held;
    }
    let takeable = Counted::new(ledger.pools(), &held);
    let units = Units { is_spread: false, only_whole: false, cpus: 1 };
    let supply = Supply { pools: ledger.pools(), shared: None, takeable: &takeable, units };
    let budgets = Budgets::new(&supply, &[]);
    Picker::new(supply, budgets, Kin::default(), false, wanted).pick(PoolId::MACHINE)
}
