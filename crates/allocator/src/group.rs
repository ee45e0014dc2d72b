//! Groups: containers with a common CPU set. In: a ledger, a group, another number of CPUs. Out: its members, its CPUs, and a group of that size. Offers are in
//! `group_offer.rs`.
//!
//! A group is an entry of the ledger that holds its CPUs as an exclusive container holds its own ([`Part::Group`]). Its members either share these CPUs
//! ([`Part::Member`]) or have CPUs of their own out of them ([`Part::Inside`]), which are the group's again when such a member goes. So every CPU still has one
//! owner, and what holds for exclusive CPUs holds for those of groups.
//!
//! Guarantees: a group that has members is neither released nor left without a CPU that they need; what cannot be had changes nothing.

use std::cmp::Reverse;
use std::ops::RangeInclusive;

use bayplan_topology::Level;
use bayplan_types::CpuSet;

use crate::allocation::Allocation;
use crate::change::Move;
use crate::domain::{around, cpus_of_kind};
use crate::id::ContainerId;
use crate::ledger::{AdoptError, Ledger};
use crate::memory::near_nodes;
use crate::offer::Refusal;
use crate::pick::choose::choose;
use crate::plan_offer::offer;
use crate::pool::{PoolId, Pools};
use crate::request::{Demand, Previous, Request};
use crate::score::Rejection;
use crate::wishes::{CpuWishes, Part, Siblings, Strictness};

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
            return Err(Refusal::of(PoolId::MACHINE, Rejection::NoSuchGroup));
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

    /// Whether so many CPUs beside these would be of several kinds of cores, because some of the kind that is preferred are open, and too few.
    pub fn mixes_kinds(&self, wishes: &CpuWishes, has: &CpuSet, more: usize) -> bool {
        let Some((kind, Strictness::Preferred)) = wishes.core_kind else { return false };
        let open = self.open().cpus().difference(has);
        let open = cpus_of_kind(&self.pools, kind).map(|it| it.intersection_len(&open));
        open.is_some_and(|open| (1..more).contains(&open))
    }

    /// The sizes on the way of a group to a larger one. A wish is met by all CPUs of an offer or by none, so one that would be of several kinds of cores grows CPU by CPU.
    pub(crate) fn sizes_to_grow(
        &self,
        wishes: &CpuWishes,
        has: &CpuSet,
        wanted: usize,
    ) -> RangeInclusive<usize> {
        match self.mixes_kinds(wishes, has, wanted.saturating_sub(has.len())) {
            true => has.len() + 1..=wanted,
            false => wanted..=wanted,
        }
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
        let mut moves = Vec::new();
        let mut had = Allocation { exclusive, ..held };
        for size in self.sizes_to_grow(&request.wishes.cpus, &had.exclusive, wanted) {
            let more = size.saturating_sub(had.exclusive.len());
            let pool = self.pool_to_grow(request, &had.exclusive, more);
            moves.extend(self.regrant(request, Allocation { pool, ..had.clone() }, size)?);
            if size < wanted {
                had = self.lift_quietly(request.id).unwrap_or(had);
            }
        }
        for (id, member) in members {
            let has = self.group(request.id).map(|it| it.exclusive.clone()).unwrap_or_default();
            let lost = member.exclusive.difference(&has);
            if !lost.is_empty() {
                return Err(Refusal::of(member.pool, Rejection::Taken(Box::new(lost))));
            }
            self.hold(id, member);
        }
        Ok(moves)
    }

    /// Those of its CPUs that no member has of its own become so many: some of those that the request names, as far as it names enough. Whole cores stay, or one thread of each. Where siblings
    /// are to be idle, those of all of its CPUs are.
    fn shrink(&mut self, request: &Request, held: Allocation, wanted: usize) -> Vec<Move> {
        let wishes = &request.wishes.cpus;
        let named = wishes.exactly.intersection(&held.exclusive);
        let from = if named.len() >= wanted { &named } else { &held.exclusive };
        let exclusive = choose_kept(&self.pools, wishes, from, wanted);
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
            Err(_) => Err(Refusal::of(PoolId::MACHINE, Rejection::NoSuchGroup)),
        }
    }

    /// Where a group that had these CPUs is to grow by so many: the narrowest pool around them with so many that it does not avoid. Sets that would leave too few in the whole machine are not
    /// avoided; the most important come first.
    pub(crate) fn pool_to_grow(&self, request: &Request, had: &CpuSet, more: usize) -> PoolId {
        let narrowest = self.pools.around(had);
        let avoids = &request.wishes.cpus.avoids;
        if avoids.is_empty() {
            return narrowest;
        }
        let mut open = self.pools.ownable(self.open().cpus()).difference(had);
        for avoided in avoids {
            let others = open.difference(avoided);
            if others.len() >= more {
                open = others;
            }
        }
        let mut around = self.pools.chain(narrowest);
        let found = around.find(|it| open.intersection_len(&it.cpus) >= more);
        found.map_or(narrowest, |it| it.id)
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

/// So many of the CPUs that a group has: those of the kind of cores that it prefers before others.
pub(crate) fn choose_kept(
    pools: &Pools,
    wishes: &CpuWishes,
    cpus: &CpuSet,
    count: usize,
) -> CpuSet {
    let kind = wishes.core_kind.and_then(|(kind, _)| cpus_of_kind(pools, kind));
    let liked = kind.map_or_else(|| cpus.clone(), |kind| kind.intersection(cpus));
    let first = choose(pools, &liked, count.min(liked.len()), wishes.is_spread());
    let others = cpus.difference(&liked);
    let left = count.saturating_sub(first.len()).min(others.len());
    first.union(&choose(pools, &others, left, wishes.is_spread()))
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
