//! Groups: containers with a common CPU set. In: a ledger, and a request of a group or of a container that belongs to one. Out: offers, and a group of
//! another size.
//!
//! A group is an entry of the ledger that holds its CPUs as an exclusive container holds its own ([`Part::Group`]). Its members either share these CPUs
//! ([`Part::Member`]) or have CPUs of their own out of them ([`Part::Inside`]), which are the group's again when such a member goes. So every CPU still has one
//! owner, and what holds for exclusive CPUs holds for those of groups.
//!
//! Guarantees: a group that has members is neither released nor left without a CPU that they need; what cannot be had changes nothing.

use std::cmp::Reverse;

use bayplan_topology::Level;
use bayplan_types::{CpuSet, MilliCpu};

use crate::budget::Load;
use crate::ledger::{AdoptError, Allocation, Ledger, Terms};
use crate::memory::{Memory, near_nodes};
use crate::offer::{Considered, Offer, Refusal, offer};
use crate::pool::{Pool, PoolId, Pools};
use crate::request::{ContainerId, Demand, Previous, Request};
use crate::requirement::{Picked, check_picked};
use crate::room::{Move, plan_way};
use crate::score::Rejection;
use crate::search::choose;
use crate::view::around;
use crate::wishes::{Part, Siblings};

impl Part {
    /// The group that a member belongs to.
    pub fn group(self) -> Option<ContainerId> {
        match self {
            Part::Member(group) | Part::Inside(group) => Some(group),
            Part::Alone | Part::Holder | Part::Joined | Part::Group => None,
        }
    }

    /// Whether it runs on exclusive CPUs that another entry of the ledger holds.
    pub fn runs_on_others(self) -> bool {
        matches!(self, Part::Joined | Part::Member(_))
    }
}

impl Allocation {
    /// Whether it is that of a group and of no container.
    pub fn is_group(&self) -> bool {
        self.terms.part == Part::Group
    }
}

impl Ledger {
    /// What a group holds for those of its members that have no CPUs of their own; `None` for what is no group.
    pub fn group(&self, id: ContainerId) -> Option<&Allocation> {
        self.allocation(id).filter(|it| it.is_group())
    }

    /// Every group, by id.
    pub fn groups(&self) -> impl Iterator<Item = (ContainerId, &Allocation)> {
        self.allocations().filter(|(_, it)| it.is_group())
    }

    /// The members of a group, the oldest first.
    pub fn members_of(
        &self,
        group: ContainerId,
    ) -> impl Iterator<Item = (ContainerId, &Allocation)> {
        self.allocations().filter(move |(_, it)| it.terms.part.group() == Some(group))
    }

    /// Whether members of a group share its CPUs.
    pub(crate) fn has_sharing_member(&self, group: ContainerId) -> bool {
        self.members_of(group).any(|(_, it)| it.terms.part.runs_on_others())
    }

    /// CPUs that members of a group have of their own.
    fn given_inside(&self, group: ContainerId) -> CpuSet {
        let mut given = CpuSet::new();
        self.members_of(group).for_each(|(_, it)| given.union_with(&it.exclusive));
        given
    }

    /// All CPUs of a group, those that members have of their own included; empty for what is no group.
    pub fn group_cpus(&self, id: ContainerId) -> CpuSet {
        let own = self.group(id).map(|it| it.exclusive.clone());
        own.map(|own| own.union(&self.given_inside(id))).unwrap_or_default()
    }

    /// The entry that holds the CPUs on which this one runs; `None` where that is itself, or is gone.
    pub(crate) fn lender_of(&self, allocation: &Allocation) -> Option<&Allocation> {
        match allocation.terms.part {
            Part::Joined => self.holder_of(allocation.terms.owner).map(|(_, holder)| holder),
            Part::Member(group) => self.group(group),
            _ => None,
        }
    }

    /// Gives a group another number of CPUs, in `request.demand`, those that members have of their own included; it keeps what it can of those that it has. Members
    /// that share them may have the memory of its new CPUs, too.
    ///
    /// # Errors
    /// Why it cannot have them; nothing is changed then.
    pub fn resize_group(&mut self, request: &Request) -> Result<Vec<Move>, Refusal> {
        let id = request.id;
        let Some(held) = self.group(id).cloned() else {
            return Err(refused(PoolId::MACHINE, Rejection::NoSuchGroup));
        };
        let given = self.given_inside(id).len();
        let shared = usize::from(self.has_sharing_member(id));
        let wanted = request.demand.exclusive().max(given + shared);
        let has = given + held.exclusive.len();
        // It may have to have others, and not only more or fewer.
        let is_elsewhere = !request.wishes.cpus.exactly.is_subset(&self.group_cpus(id));
        if wanted == has && !is_elsewhere {
            return Ok(Vec::new());
        }
        let before = self.holdings.clone();
        let made = match wanted > has || is_elsewhere {
            true => self.grow(request, held, wanted),
            false => Ok(self.shrink(request, held, wanted - given)),
        };
        match made {
            Ok(_) => self.follow(id),
            Err(_) => self.restore(before),
        }
        made
    }

    /// Those of these CPUs that a group may have beside its own: neither owned, nor closed by another container.
    pub fn open_to_groups(&self, cpus: &CpuSet) -> CpuSet {
        let open = self.open().cpus().union(self.open_isolated());
        self.pools.ownable(cpus).intersection(&open)
    }

    /// Takes over what is left of a group on this machine: as [`Ledger::adopt`], with these CPUs only. Of its idle siblings those of the CPUs that it keeps stay idle.
    ///
    /// # Errors
    /// [`AdoptError`]; nothing is changed then.
    pub fn adopt_group(
        &mut self,
        id: ContainerId,
        had: &Allocation,
        kept: &CpuSet,
    ) -> Result<(), AdoptError> {
        let beside = around(&self.pools, Level::Core, kept).difference(kept);
        let idle = had.idle.intersection(&beside);
        let pool = self.pools.around(&kept.union(&idle));
        self.adopt(id, Allocation { pool, exclusive: kept.clone(), idle, ..had.clone() })
    }

    /// With the CPUs that members have of their own, which stay theirs: it grows near them, and beside them.
    fn grow(
        &mut self,
        request: &Request,
        held: Allocation,
        wanted: usize,
    ) -> Result<Vec<Move>, Refusal> {
        let inside = |(_, it): &(ContainerId, &Allocation)| !it.terms.part.runs_on_others();
        let members = self.members_of(request.id).filter(inside);
        let members: Vec<(ContainerId, Allocation)> =
            members.map(|(id, it)| (id, it.clone())).collect();
        let exclusive = self.group_cpus(request.id);
        for (id, _) in &members {
            self.lift_quietly(*id);
        }
        self.lift_quietly(request.id);
        let pool = self.pools.around(&exclusive);
        let moves = self.regrant(request, Allocation { exclusive, pool, ..held }, wanted)?;
        for (id, member) in members {
            let has = self.group(request.id).map(|it| it.exclusive.clone()).unwrap_or_default();
            let lost = member.exclusive.difference(&has);
            if !lost.is_empty() {
                return Err(refused(member.pool, Rejection::Taken(Box::new(lost))));
            }
            self.hold(id, member);
        }
        Ok(moves)
    }

    /// Those of its CPUs that no member has of its own become so many: those that the request names, or else whole cores stay, or one thread of each. Where siblings
    /// are to be idle, those of all of its CPUs are.
    fn shrink(&mut self, request: &Request, held: Allocation, wanted: usize) -> Vec<Move> {
        let wishes = &request.wishes.cpus;
        let named = wishes.exactly.intersection(&held.exclusive);
        let exclusive = match named.len() == wanted {
            true => named,
            false => choose(&self.pools, &held.exclusive, wanted, wishes.is_spread()),
        };
        let all = exclusive.union(&self.given_inside(request.id));
        let beside = around(&self.pools, Level::Core, &all).difference(&all);
        let idle = match wishes.siblings {
            Siblings::Idle => held.owned().intersection(&beside),
            _ => held.idle.intersection(&beside),
        };
        let pool = self.pools.around(&exclusive.union(&idle));
        self.lift_quietly(request.id);
        self.hold(request.id, Allocation { pool, exclusive, idle, ..held });
        Vec::new()
    }

    /// Takes an offer of so many CPUs for a group that is not in the ledger at the moment and had these.
    fn regrant(
        &mut self,
        request: &Request,
        had: Allocation,
        wanted: usize,
    ) -> Result<Vec<Move>, Refusal> {
        let previous = Previous { pool: had.pool, exclusive: had.exclusive };
        let has_previous = !previous.exclusive.is_empty();
        let wanted = Request {
            demand: Demand::new(wanted, None),
            previous: has_previous.then_some(previous),
            ..request.clone()
        };
        let offered = offer(self, &wanted)?;
        let moves = offered.moves.clone();
        match self.commit(offered) {
            Ok(()) => Ok(moves),
            Err(_) => Err(refused(PoolId::MACHINE, Rejection::NoSuchGroup)),
        }
    }

    /// The narrowest pool that has what a group holds and what its members have of their own.
    fn pool_around(&self, group: ContainerId, held: &Allocation) -> PoolId {
        self.pools.around(&held.owned().union(&self.given_inside(group)))
    }

    /// Members that share the CPUs of a group are placed where it is.
    fn follow(&mut self, group: ContainerId) {
        let Some(mut held) = self.group(group).cloned() else { return };
        held.pool = self.pool_around(group, &held);
        if let Some(it) = self.holdings.allocations.get_mut(&group) {
            it.pool = held.pool;
        }
        let near = near_nodes(&self.pools, &held);
        let members: Vec<ContainerId> = self
            .members_of(group)
            .filter_map(|(id, it)| it.terms.part.runs_on_others().then_some(id))
            .collect();
        for id in members {
            let more = self.allocation(id).map(|it| self.may_have_of(it, [&near]));
            if let Some(member) = self.holdings.allocations.get_mut(&id) {
                member.pool = held.pool;
                member.mems.union_with(&more.unwrap_or_default());
            }
        }
        self.changed();
    }

    /// A member has these CPUs of its own from now on.
    pub(crate) fn take_from_group(&mut self, group: ContainerId, cpus: &CpuSet) {
        if let Some(mut held) = self.lift_quietly(group) {
            held.exclusive.subtract(cpus);
            self.hold_quietly(group, held);
        }
    }

    /// They are the group's again.
    pub(crate) fn give_to_group(&mut self, group: ContainerId, cpus: &CpuSet) {
        if let Some(mut held) = self.lift_quietly(group) {
            held.exclusive.union_with(cpus);
            held.pool = self.pool_around(group, &held);
            self.hold_quietly(group, held);
        }
    }
}

pub(crate) fn refused(pool: PoolId, why: Rejection) -> Refusal {
    Refusal { considered: vec![Considered { pool, outcome: Err(why) }] }
}

/// A place in the group that the request names; `None` where it names none.
pub(crate) fn offer_in_group(ledger: &Ledger, request: &Request) -> Option<Result<Offer, Refusal>> {
    let part = request.wishes.pod.part;
    let id = part.group()?;
    let Some(group) = ledger.group(id) else {
        return Some(Err(refused(PoolId::MACHINE, Rejection::NoSuchGroup)));
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
        Ok(Offer::new(ledger, request, grant.give_to(held)))
    });
    Some(granted.map_err(|why| refused(group.pool, why)))
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
        return Err(refused(pool, Rejection::Taken(Box::new(taken))));
    }
    let none = CpuSet::new();
    let picked = Picked { exclusive: cpus, kept: &none, idle: &none };
    check_picked(ledger, request, &picked).map_err(|it| refused(pool, Rejection::Unmet(it)))?;
    let moves = plan_way(ledger, cpus);
    if let Some(why) = starves(ledger, cpus, &moves) {
        return Err(refused(pool, why));
    }
    let held =
        Allocation { exclusive: cpus.clone(), terms: request.terms(), ..Allocation::new(pool) };
    let memory = Memory::new(pools, ledger.charged(), request);
    let grant = memory.grant_near(&held).map_err(|why| refused(pool, why))?;
    Ok(Offer { moves, ..Offer::new(ledger, request, grant.give_to(held)) })
}

/// Why the sharers could not do without these CPUs after the moves.
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
    let (needed, short) = pools.iter().find_map(lacking)?;
    let (free, most) = (needed.saturating_sub(short), needed);
    Some(Rejection::TooFewCpus { needed, free, most, required: Vec::new() })
}

/// The domain of a level that these CPUs lie in; `None` where they lie in several.
pub fn whole_domain(pools: &Pools, level: Level, cpus: &CpuSet) -> Option<CpuSet> {
    if level == Level::Machine {
        return Some(pools.cpus());
    }
    let mut domains = pools.domains.iter().filter(|(it, _)| *it == level);
    domains.find(|(_, it)| !cpus.is_empty() && cpus.is_subset(it)).map(|(_, it)| it.clone())
}

/// The same without its reserved and isolated CPUs.
pub fn domain_around(pools: &Pools, level: Level, cpus: &CpuSet) -> Option<CpuSet> {
    Some(whole_domain(pools, level, cpus)?.intersection(&pools.allocatable()))
}

/// Domains of a level of which no container and no group owns a CPU, each without its reserved and isolated CPUs: those with the fewest containers that would have to
/// go elsewhere first.
pub fn open_domains(ledger: &Ledger, level: Level) -> Vec<CpuSet> {
    let pools = ledger.pools();
    let allocatable = pools.allocatable();
    let whole = (level == Level::Machine).then(|| pools.cpus());
    let of_level = pools.domains.iter().filter(|(it, _)| *it == level).map(|(_, it)| it.clone());
    let mut domains: Vec<CpuSet> = of_level.chain(whole).collect();
    for domain in &mut domains {
        domain.intersect_with(&allocatable);
    }
    domains.retain(|it| !it.is_empty() && it.is_subset(ledger.open().cpus()));
    let sharers = |cpus: &CpuSet| {
        let pool = pools.get(pools.around(cpus));
        let load = pool.and_then(|pool| ledger.loads().get(pool.id.index()));
        load.map_or(0, |load| load.containers)
    };
    domains.sort_by_key(|it| (sharers(it), Reverse(it.len()), it.first()));
    domains
}
