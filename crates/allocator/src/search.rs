//! Scores pools for one request. In: the ledger and the request. Out: a score or a rejection per pool, and the allocation for the best.

mod allocation;
mod kept;
mod make_way;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::Reverse;

use bayplan_topology::Level;
use bayplan_types::{CpuSet, MilliCpu};
use smallvec::SmallVec;

pub use self::kept::spare_cpus;
use self::kept::{kept_cpus, take_spare};
use crate::budget::{Budgets, Load, Supply, Unit, fits_shared};
use crate::change::Move;
use crate::clock::clock;
use crate::company::Company;
use crate::counted::Counted;
use crate::domain::{around, is_within};
use crate::eligible::eligible_under;
use crate::ledger::Ledger;
use crate::memory::Memory;
use crate::pick::way::Cost;
use crate::pick::{Kin, Picker, Spread};
use crate::place::{affinity, distance_to_devices, nodes_of_each};
use crate::pool::{Pool, PoolId, Pools};
use crate::request::Request;
use crate::requirement::Requirement;
use crate::room::{Sharer, Wanted, make_room, movable_sharers};
use crate::score::{Rejection, Score};
use crate::view::{View, views};
use crate::wishes::{Siblings, Within};

/// What is asked of which ledger, and the CPUs that can be had.
pub(crate) struct Question<'a> {
    ledger: &'a Ledger,
    request: &'a Request,
    /// Exclusive CPUs that a container which is placed anew keeps.
    kept: CpuSet,
    /// Their siblings, where those are to stay idle.
    kept_idle: CpuSet,
    /// Shared CPUs without these.
    free: Cow<'a, Counted>,
    /// Exclusive CPUs to pick beyond `kept`.
    missing: usize,
    views: SmallVec<[View<'a>; 1]>,
    memory: Memory<'a>,
    /// The rest of the pod, where something is known of it.
    company: Option<Company<'a>>,
}

impl<'a> Question<'a> {
    pub(crate) fn new(ledger: &'a Ledger, request: &'a Request) -> Question<'a> {
        let (pools, wishes) = (ledger.pools(), &request.wishes.cpus);
        let kept = kept_cpus(ledger, request);
        let mut free = Cow::Borrowed(ledger.counted());
        let mut kept_idle = CpuSet::new();
        if !kept.is_empty() {
            free.to_mut().remove_all(pools, &kept);
            if wishes.siblings == Siblings::Idle {
                let siblings = around(pools, Level::Core, &kept).difference(&kept);
                kept_idle = take_spare(ledger, request, free.to_mut(), &siblings, usize::MAX);
            }
        }
        let missing = request.demand.exclusive() - kept.len();
        let mut views = views(ledger, request, &kept.union(&kept_idle), missing, &free);
        let each = nodes_of_each(pools, &request.wishes.place);
        // A container that is placed anew grows beside what it keeps.
        if !each.is_empty() && kept.is_empty() {
            let first = views.first().map(|first| first.near_each(each));
            views.insert_many(0, first);
        }
        Question {
            missing,
            views,
            memory: Memory::new(pools, ledger.charged(), request),
            company: Company::new(ledger, request),
            ledger,
            request,
            kept,
            kept_idle,
            free,
        }
    }

    /// Only an odd CPU that may be paired has to do with strangers.
    fn kin(&self) -> Option<Kin<'a>> {
        let is_odd = !self.missing.is_multiple_of(self.ledger.pools().width);
        // Each of several nodes may give an odd number.
        let is_odd = is_odd || self.views.iter().any(|view| !view.each.is_empty());
        (is_odd && self.request.wishes.cpus.siblings == Siblings::Pair)
            .then_some(Kin { ledger: self.ledger, owner: self.request.owner })
    }
}

/// A pool that can hold the request.
pub(crate) struct Candidate<'a> {
    pub(crate) score: Score,
    pub(crate) moves: Vec<Move>,
    /// Which view the CPUs are picked from.
    pub(crate) view: usize,
    /// Picks the CPUs after the moves.
    roomier: Option<Box<Picker<'a>>>,
}

impl<'a> Candidate<'a> {
    fn without_moves(score: Score, view: usize) -> Candidate<'a> {
        Candidate { score, moves: Vec::new(), view, roomier: None }
    }
}

/// What a pool can do for the request.
pub(crate) enum Standing<'a> {
    /// It can hold it as things are.
    Fits(Candidate<'a>),
    /// It is short of CPUs that sharers keep.
    Short(Short),
}

/// A pool that could perhaps hold the request if sharers went elsewhere.
pub(crate) struct Short {
    /// Its score will be no better than this.
    pub(crate) at_best: Score,
    /// Its score in the view in which it is short, were one sharer to move.
    short: Score,
    /// The view in which it is short.
    view: usize,
    /// What to say if no container can make room.
    lacking: Rejection,
}

/// The search for the answer.
pub(crate) struct Search<'q, 'a> {
    question: &'q Question<'a>,
    ledger: &'a Ledger,
    request: &'a Request,
    /// One per view.
    pickers: SmallVec<[Picker<'q>; 1]>,
    /// Which containers could make room, once one has to.
    sharers: OnceCell<Vec<Sharer>>,
    /// Why no pool at all can hold it.
    impossible: Option<Rejection>,
}

impl<'q, 'a> Search<'q, 'a> {
    pub(crate) fn new(question: &'q Question<'a>) -> Search<'q, 'a> {
        let Question { ledger, request, .. } = *question;
        let is_exclusive = request.demand.exclusive() > 0;
        let views = question.views.iter().filter(|_| is_exclusive);
        let picker = |view: &'q View<'a>| {
            let supply = view.supply(ledger.pools(), &question.free);
            let budgets = Budgets::new(&supply, ledger.loads());
            let spread = Spread { is_even: request.wishes.cpus.is_even, each: view.each.clone() };
            Picker::new(supply, budgets, question.kin(), spread, view.count)
        };
        Search {
            question,
            ledger,
            request,
            pickers: views.map(picker).collect(),
            sharers: OnceCell::new(),
            impossible: impossible(question),
        }
    }

    /// From the view `from` on: those before it were found unfit once CPUs were picked from them.
    ///
    /// # Errors
    /// A [`Rejection`] when the pool cannot hold the request, whichever containers move.
    pub(crate) fn score(&self, pool: &Pool, from: usize) -> Result<Standing<'q>, Rejection> {
        match &self.impossible {
            Some(rejection) => Err(rejection.clone()),
            None if self.request.demand.exclusive() > 0 => self.score_exclusive(pool, from),
            None => {
                let score = self.score_shared(pool)?;
                Ok(Standing::Fits(Candidate::without_moves(score, 0)))
            }
        }
    }

    /// Whether exclusive CPUs can be picked in one more way.
    pub(crate) fn has_view(&self, view: usize) -> bool {
        view < self.pickers.len()
    }

    /// What a pool that is short can do after sharers have made room.
    pub(crate) fn score_with_room(
        &self,
        pool: &Pool,
        short: &Short,
    ) -> Result<Candidate<'q>, Rejection> {
        self.first_view(short.view, |view, picker| {
            match self.score_view(pool, view, picker, &short.short)? {
                Standing::Fits(candidate) => Ok(candidate),
                Standing::Short(Short { short, view, lacking, .. }) => {
                    let (supply, count) = (picker.supply, picker.count);
                    let wanted = Wanted { count, shared: self.request.demand.shared() };
                    let room = self.make_room(pool, &supply, wanted).ok_or(lacking.clone())?;
                    let pod_fits = self.rest_fits(pool, picker)?;
                    let before = Candidate::without_moves(Score { pod_fits, ..short }, view);
                    self.roomier(pool, (supply, count, &picker.spread), room, before).ok_or(lacking)
                }
            }
        })
    }

    fn score_exclusive(&self, pool: &Pool, from: usize) -> Result<Standing<'q>, Rejection> {
        let pools = self.ledger.pools();
        if !self.question.kept.is_subset(&pool.cpus) {
            return Err(Rejection::LeavesPrevious);
        }
        if self.request.demand.shared().is_some() && !pool.is_shared {
            return Err(shared_elsewhere(pool));
        }
        if let Some(Within::One(level)) = self.request.wishes.cpus.within
            && !is_within(pools, &pool.cpus, level)
        {
            return Err(Rejection::WiderThan(level));
        }
        if let Some(company) = self.question.company.filter(Company::is_one)
            && company.is_elsewhere(company.domain(pool))
        {
            return Err(Rejection::AwayFromPod);
        }
        let common = self.common(pool)?;
        self.first_view(from, |view, picker| self.score_view(pool, view, picker, &common))
    }

    /// What the first view, from `first` on, gives that can serve the request.
    fn first_view<T>(
        &self,
        first: usize,
        score: impl Fn(usize, &Picker<'q>) -> Result<T, Rejection>,
    ) -> Result<T, Rejection> {
        let mut refused = Rejection::NoSharedCpu;
        for (view, picker) in self.pickers.iter().enumerate().skip(first) {
            match score(view, picker) {
                Ok(scored) => return Ok(scored),
                Err(rejection) => refused = rejection,
            }
        }
        Err(refused)
    }

    fn score_view(
        &self,
        pool: &Pool,
        view: usize,
        picker: &Picker<'q>,
        common: &Score,
    ) -> Result<Standing<'q>, Rejection> {
        let (supply, count) = (&picker.supply, picker.count);
        let shared = self.request.demand.shared();
        let takeable = picker.budgets.takeable_by(supply, self.ledger.loads(), pool.id, shared);
        // A mixed container also needs a shared CPU that stays after the exclusive ones are gone; `takeable_by` counts it,
        // and comes to zero where even that is not to be had.
        let without_owner = self.question.free.in_pool(pool.id).cpus;
        let taken = if supply.shared.is_some() { count * supply.units.cpus } else { 0 };
        let stay_shared = shared.map_or(0, |milli| milli.cpus_needed().max(1));
        let refused =
            || self.too_few(pool, picker, takeable, without_owner - stay_shared.min(without_owner));
        if without_owner < taken + stay_shared || !picker.spread.each.is_subset(&pool.nodes) {
            return Err(refused());
        }
        // Isolated CPUs are of no use to others, and others' to a request for isolated ones.
        let is_shared = supply.shared.is_some();
        let free = if is_shared { &*self.question.free } else { supply.takeable };
        let left = |id| free.in_pool(id).cpus.saturating_sub(count * supply.units.cpus);
        let opens = is_shared && pool.is_inside_node && self.is_without_owners(pool);
        let wishes = &self.request.wishes.cpus;
        let common = Score {
            wishes: self.met_in(view) + usize::from(wishes.is_even),
            opens_domain: Reverse(opens),
            node_left: Reverse(left(pool.node)),
            cpus_left: Reverse(left(pool.id)),
            around_left: Reverse(left(pool.parent.unwrap_or(pool.id))),
            sharers: Reverse(if is_shared { self.sharers_alone(pool) } else { 0 }),
            ..common.clone()
        };
        if takeable < count {
            if supply.shared.is_none() {
                return Err(refused());
            }
            // What it costs is not known yet, but at least one node is taken and one sharer moves.
            let cost = Cost { nodes: u32::from(!pool.nodes.is_empty()), ..Cost::default() };
            let short = self.at_cost(common, pool, view, (cost, (1, MilliCpu::ZERO)));
            let at_best = self.bound(&short, view);
            return Ok(Standing::Short(Short { at_best, short, view, lacking: refused() }));
        }
        let Some(cost) = picker.cost(pool.id) else { return Err(refused()) };
        let pod_fits = self.rest_fits(pool, picker)?;
        let wishes = self.wishes_met(pool, view, picker);
        let common = Score { pod_fits, wishes, ..common };
        let score = self.at_cost(common, pool, view, (cost, (0, MilliCpu::ZERO)));
        Ok(Standing::Fits(Candidate::without_moves(score, view)))
    }

    /// A score that is no worse than that of any later view. Most of them meet fewer wishes; one that meets as many may fit without moves, in
    /// other units, so only the wishes say something of it.
    fn bound(&self, short: &Score, view: usize) -> Score {
        let later = (view + 1..self.pickers.len()).map(|it| self.met_in(it)).max();
        let met = later.filter(|met| *met >= self.met_in(view));
        let even = usize::from(self.request.wishes.cpus.is_even);
        Score { wishes: met.map_or(short.wishes, |met| met + even + 1), ..short.clone() }
    }

    /// Why a pool that can give so many units lacks CPUs; `unowned` are those of it without an owner that need not stay shared.
    fn too_few(&self, pool: &Pool, picker: &Picker<'q>, units: usize, unowned: usize) -> Rejection {
        let (pools, request, supply) = (self.ledger.pools(), self.request, &picker.supply);
        let kept = self.question.kept.len();
        let required = Requirement::all(&request.wishes.cpus);
        // A pool that is wider is refused for that.
        let required: Vec<Requirement> =
            required.filter(|it| !matches!(it, Requirement::Within(_))).collect();
        let is_isolated = supply.shared.is_none();
        let all = if is_isolated { pools.ownable_isolated() } else { pools.allocatable() };
        // With idle siblings, all threads of a core are needed for one of its CPUs.
        let mut counted = required.clone();
        if counted.contains(&Requirement::IdleSiblings) {
            counted.retain(|it| *it != Requirement::OnePerCore);
        }
        let eligible = eligible_under(pools, &counted, &all.intersection(&pool.cpus));
        // One CPU stays shared, and with it all of its core where whole cores are taken.
        let stays = match pool.id == PoolId::MACHINE && !pool.has_refuge && !is_isolated {
            true if eligible == all => supply.units.cpus,
            _ => 0,
        };
        let free = units.saturating_mul(supply.units.cpus);
        let free = if is_isolated { free } else { free.min(unowned) };
        Rejection::TooFewCpus {
            needed: match supply.units.unit {
                Unit::Whole => request.demand.exclusive(),
                _ => request.demand.exclusive().max(picker.count * supply.units.cpus + kept),
            },
            free: free + kept,
            most: eligible.len().saturating_sub(stays),
            required,
        }
    }

    /// Preferred wishes that the view meets.
    fn met_in(&self, view: usize) -> usize {
        self.question.views.get(view).map_or(0, |view| view.wishes_met)
    }

    /// The same, and whether each NUMA node gives as many CPUs, where that is wished.
    fn wishes_met(&self, pool: &Pool, view: usize, picker: &Picker<'q>) -> usize {
        let is_even = self.request.wishes.cpus.is_even && picker.is_even_in(pool.id);
        self.met_in(view) + usize::from(is_even)
    }

    /// Second threads of cores that the picker does not count. One package goes before one thread of each core, also where the kernel has no
    /// NUMA nodes: of a pool that has several, all CPUs count as such.
    fn doubled(&self, pool: &Pool, view: usize) -> usize {
        let Some(view) = self.question.views.get(view) else { return 0 };
        let spans = || self.ledger.pools().count(Level::Package, &pool.cpus) > 1;
        match self.request.wishes.cpus.is_spread() && spans() {
            true => view.doubled + self.question.missing,
            false => view.doubled,
        }
    }

    /// The score of a pool when that is what its CPUs cost.
    fn at_cost(
        &self,
        score: Score,
        pool: &Pool,
        view: usize,
        (cost, moved): (Cost, (usize, MilliCpu)),
    ) -> Score {
        Score {
            nodes_taken: Reverse(cost.nodes as usize),
            split_cores: Reverse(cost.split_cores as usize + self.doubled(pool, view)),
            broken_cores: Reverse(cost.broken_cores as usize),
            strangers: Reverse(cost.strangers as usize),
            moved: Reverse(moved),
            ..score
        }
    }

    /// Shared containers of the NUMA node around a pool, as long as no CPU is owned there.
    fn sharers_alone(&self, pool: &Pool) -> u32 {
        let Some(node) = self.ledger.pools().get(pool.node) else { return 0 };
        let load = self.ledger.loads().get(node.id.index());
        let load = load.filter(|_| self.is_without_owners(node));
        load.map_or(0, |load| load.containers)
    }

    fn is_without_owners(&self, pool: &Pool) -> bool {
        self.question.free.in_pool(pool.id).cpus == pool.allocatable
    }

    fn picker<'s>(&'s self, candidate: &'s Candidate<'q>) -> Option<&'s Picker<'q>> {
        candidate.roomier.as_deref().or(self.pickers.get(candidate.view))
    }

    /// What a pool can do once room is made in it.
    fn roomier(
        &self,
        pool: &Pool,
        (supply, count, spread): (Supply<'q>, usize, &Spread),
        (moves, loads): (Vec<Move>, Vec<Load>),
        before: Candidate<'q>,
    ) -> Option<Candidate<'q>> {
        let picker = self.picker_with(supply, &loads, (count, spread));
        let moved = (moves.len(), moves.iter().map(|made| made.milli).sum());
        let wishes = self.wishes_met(pool, before.view, &picker);
        let score = Score { wishes, ..before.score };
        let score = self.at_cost(score, pool, before.view, (picker.cost(pool.id)?, moved));
        Some(Candidate { score, moves, roomier: Some(Box::new(picker)), ..before })
    }

    /// Picks so many units where these are the loads.
    fn picker_with(
        &self,
        supply: Supply<'q>,
        loads: &[Load],
        (count, spread): (usize, &Spread),
    ) -> Picker<'q> {
        let budgets = Budgets::new(&supply, loads);
        Picker::new(supply, budgets, self.question.kin(), spread.clone(), count)
    }

    /// Whether the rest of the pod has room beside this container, without another making room for it.
    ///
    /// # Errors
    /// The pod has to lie together, and has not enough room even when sharers make it.
    fn rest_fits(&self, pool: &Pool, picker: &Picker<'q>) -> Result<bool, Rejection> {
        let Some(company) = self.question.company.filter(|it| !it.is_complete()) else {
            return Ok(true);
        };
        let (supply, domain) = (&picker.supply, company.domain(pool));
        let (pools, loads) = (self.ledger.pools(), self.ledger.loads());
        let wishes = &self.request.wishes.pod;
        let memory = self.request.memory + wishes.rest_memory;
        let has_memory = memory <= self.question.memory.free_near(domain);
        if supply.shared.is_none() {
            // A container that takes isolated CPUs leaves the others to the rest.
            let free = &self.question.free;
            return Ok(has_memory && fits_shared(pools, free, loads, domain.id, wishes.rest));
        }
        let wanted = company.wanted(picker.count, supply.units);
        let free = picker.budgets.takeable_by(supply, loads, domain.id, wanted.shared);
        let is_short = free < wanted.count;
        if is_short && company.needs_rest() && self.make_room(domain, supply, wanted).is_none() {
            let cpus =
                |units: usize| units.saturating_mul(supply.units.cpus) + self.question.kept.len();
            let (needed, free) = (cpus(wanted.count), cpus(free));
            return Err(Rejection::TooSmallForPod { needed, free });
        }
        Ok(has_memory && !is_short)
    }

    /// The sharers that have to go so that `pool` can give what is missing, and the loads then.
    fn make_room(
        &self,
        pool: &Pool,
        supply: &Supply<'_>,
        wanted: Wanted,
    ) -> Option<(Vec<Move>, Vec<Load>)> {
        supply.shared?;
        let sharers = self.sharers.get_or_init(|| movable_sharers(self.ledger));
        make_room(*supply, self.ledger.loads(), sharers, pool, wanted)
    }

    fn score_shared(&self, pool: &Pool) -> Result<Score, Rejection> {
        if !pool.is_shared {
            return Err(shared_elsewhere(pool));
        }
        let shared_cpus = self.question.free.in_pool(pool.id).cpus;
        if shared_cpus == 0 && !pool.has_refuge {
            return Err(Rejection::NoSharedCpu);
        }
        let (pools, loads, request) = (self.ledger.pools(), self.ledger.loads(), self.request);
        let milli = request.demand.shared().unwrap_or(MilliCpu::ZERO);
        let fits = fits_shared(pools, &self.question.free, loads, pool.id, milli);
        let common = self.common(pool)?;
        let pod_fits = self.question.company.is_none_or(|company| {
            let domain = company.domain(pool);
            let memory = request.memory + request.wishes.pod.rest_memory;
            company.is_complete()
                || (fits_shared(pools, &self.question.free, loads, domain.id, company.with_rest())
                    && memory <= self.question.memory.free_near(domain))
        });
        let burst_level = request.wishes.place.burst_level;
        let burst_fits = match request.ceiling {
            Some(ceiling) => ceiling <= MilliCpu::from_cpus(shared_cpus),
            None => burst_level.is_none_or(|level| holds_a_domain(pools, pool, level)),
        };
        let stays = common.stays && fits;
        let headroom = self.headroom(pool);
        Ok(Score { stays, cpu_fits: fits, burst_fits, pod_fits, headroom, ..common })
    }

    /// What does not depend on which CPUs are picked.
    fn common(&self, pool: &Pool) -> Result<Score, Rejection> {
        let (pools, request) = (self.ledger.pools(), self.request);
        let memory = &self.question.memory;
        if request.wishes.memory.is_bound {
            let (needed, free) = (request.memory, memory.free_near(pool));
            if needed > free && !request.memory_is_expected {
                return Err(Rejection::TooLittleMemoryNear { needed, free });
            }
            memory.too_few_huge(&pool.memory).map_or(Ok(()), Err)?;
        }
        let place = &request.wishes.place;
        let pod_here = self.question.company.map(|company| company.there(company.domain(pool)));
        Ok(Score {
            stays: request.previous.as_ref().is_some_and(|previous| previous.pool == pool.id),
            wishes: 0,
            cpu_fits: true,
            memory_fits: memory.fits_near(pool),
            burst_fits: true,
            numa_nodes: Reverse(pool.nodes.len()),
            nodes_taken: Reverse(0),
            devices: Reverse(distance_to_devices(pools, pool, place)?),
            affinity: affinity(self.ledger, pool, place),
            pod_here: pod_here.unwrap_or_default(),
            pod_fits: true,
            clock: clock(self.ledger, pool, place),
            split_cores: Reverse(0),
            domain: Reverse(pool.cpus.len()),
            broken_cores: Reverse(0),
            strangers: Reverse(0),
            opens_domain: Reverse(false),
            node_left: Reverse(0),
            cpus_left: Reverse(0),
            around_left: Reverse(0),
            sharers: Reverse(0),
            moved: Reverse((0, MilliCpu::ZERO)),
            distance: Reverse(pool.distance),
            headroom: 0,
            pool: Reverse(pool.id),
        })
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
}

/// Why no pool can hold the request, whatever others hold.
fn impossible(question: &Question<'_>) -> Option<Rejection> {
    let request = question.request;
    let (needed, width) = (request.demand.exclusive(), question.ledger.pools().width);
    if request.wishes.cpus.only_whole_cores && !question.ledger.pools().adds_up(needed) {
        return Some(Rejection::NotWholeCores { needed, width });
    }
    let free = question.memory.free_total();
    let is_short = request.memory > free && !request.memory_is_expected;
    is_short.then_some(Rejection::TooLittleMemory { needed: request.memory, free })
}

/// Why a pool that is not shared is not for a shared part.
fn shared_elsewhere(pool: &Pool) -> Rejection {
    if pool.is_inside_node { Rejection::TooNarrowToShare } else { Rejection::SharedAsOne }
}

/// Whether the pool is at least as wide as one domain of the level.
fn holds_a_domain(pools: &Pools, pool: &Pool, level: Level) -> bool {
    let mut domains = pools.domains.iter().filter(|(it, _)| *it == level);
    pool.id == PoolId::MACHINE || domains.any(|(_, domain)| domain.is_subset(&pool.cpus))
}
