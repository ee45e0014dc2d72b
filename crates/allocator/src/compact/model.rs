//! The machine in numbers: free threads of every core. In: a ledger, which containers may be moved. Out: counts, and what a move does to them.
//!
//! It knows nothing of sharers and memory; what comes of a move there is asked of the allocator at the end.

use std::collections::BTreeMap;

use bayplan_topology::Level;
use bayplan_types::{Bytes, CpuId, CpuSet, NodeSet};

use crate::allocation::Allocation;
use crate::id::ContainerId;
use crate::ledger::Ledger;
use crate::pool::{Pool, PoolId, Pools};
use crate::request::Request;

/// Free CPUs of one domain. Ordered by [`Hole::weight`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hole {
    /// CPUs without an owner.
    pub cpus: usize,
    /// Of those, the ones in cores that are wholly free.
    pub whole: usize,
}

impl Hole {
    /// Twice its size: an odd CPU counts half as much as one in a whole core.
    pub fn weight(self) -> usize {
        self.cpus + self.whole
    }
}

/// Threads of one core: its position in the model, and how many.
pub(super) type Part = (usize, usize);

/// A pool without pools inside it.
struct Leaf {
    domain: Option<usize>,
    cores: Vec<usize>,
}

/// Where a container could go: a pool, and the leaves inside it.
struct Target {
    pool: PoolId,
    /// Levels of which one domain holds all of it.
    levels: Vec<Level>,
    /// The target around it.
    parent: Option<usize>,
    domain: Option<usize>,
    nodes: NodeSet,
    leaves: Vec<usize>,
}

/// A container that may be moved.
pub(super) struct Seat {
    pub(super) id: ContainerId,
    /// CPUs of its own.
    pub(super) size: usize,
    parts: Vec<Part>,
    split_cores: usize,
    nodes: NodeSet,
    memory: Bytes,
    cpus: CpuSet,
    /// Where it would be no worse off.
    targets: Vec<usize>,
    /// The one of them that it is in.
    home: Option<usize>,
}

/// Everything that moves do not change.
pub(super) struct Model {
    /// Threads of each core, free or not.
    threads: Vec<usize>,
    leaf_of: Vec<usize>,
    leaves: Vec<Leaf>,
    targets: Vec<Target>,
    domains: usize,
    free: Vec<usize>,
    pub(super) seats: Vec<Seat>,
    /// Which containers have all of their CPUs in a domain, by domain.
    pub(super) seats_in: Vec<Vec<usize>>,
    /// CPUs of the largest domain that can be handed out.
    pub(super) capacity: usize,
    /// Of the largest core.
    pub(super) threads_max: usize,
}

/// One container that goes somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) seat: usize,
    pub(super) target: usize,
    /// What it gives up, and what it takes.
    left: Vec<Part>,
    taken: Vec<Part>,
    pub(super) cpus: usize,
    pub(super) memory: Bytes,
}

/// The machine after some steps.
#[derive(Clone)]
pub(super) struct State {
    free: Vec<usize>,
    pub(super) leaves: Vec<Hole>,
    pub(super) domains: Vec<Hole>,
    pub(super) steps: Vec<Step>,
    pub(super) cpus: usize,
    pub(super) memory: Bytes,
}

/// Levels of which one domain holds all CPUs of `pool`.
pub(super) fn levels(pools: &Pools, pool: PoolId) -> Vec<Level> {
    let around = pools.chain(pool);
    around.flat_map(levels_at).collect()
}

fn levels_at(pool: &Pool) -> impl Iterator<Item = Level> + '_ {
    std::iter::once(pool.level).chain(pool.merged.iter().map(|(level, _)| *level))
}

/// The narrowest pool that holds `cpus`.
pub(super) fn narrowest(pools: &Pools, cpus: &CpuSet) -> PoolId {
    let holding = pools.iter().filter(|pool| cpus.is_subset(&pool.cpus));
    holding.last().map_or(PoolId::MACHINE, |pool| pool.id)
}

/// The domains of one level, or the machine if it has none.
pub(super) fn domains(pools: &Pools, level: Level) -> Vec<&Pool> {
    let found: Vec<&Pool> =
        pools.iter().filter(|pool| levels_at(pool).any(|it| it == level)).collect();
    if found.is_empty() { pools.iter().take(1).collect() } else { found }
}

impl Model {
    pub(super) fn new(
        ledger: &Ledger,
        movable: &BTreeMap<ContainerId, Request>,
        level: Level,
    ) -> Model {
        let pools = ledger.pools();
        let domains = domains(pools, level);
        let domain_of = |cpus: &CpuSet| domains.iter().position(|it| cpus.is_subset(&it.cpus));
        let mut cores: Vec<CpuSet> = Vec::new();
        let (mut leaf_of, mut leaves, mut leaf_pools) = (Vec::new(), Vec::new(), Vec::new());
        for pool in pools.iter().filter(|pool| pool.children.is_empty()) {
            let first = cores.len();
            cores.extend(pools.own_core_sets(pool));
            leaf_of.resize(cores.len(), leaves.len());
            leaf_pools.push(pool);
            leaves.push(Leaf {
                domain: domain_of(&pool.cpus),
                cores: (first..cores.len()).collect(),
            });
        }
        let is_target = |pool: &&Pool| pool.nodes.len() <= 1;
        let target_of = |id: PoolId| pools.iter().filter(is_target).position(|it| it.id == id);
        let targets = pools.iter().filter(is_target).map(|pool| {
            let inside =
                leaf_pools.iter().enumerate().filter(|(_, it)| it.cpus.is_subset(&pool.cpus));
            Target {
                pool: pool.id,
                levels: levels(pools, pool.id),
                parent: pool.parent.and_then(target_of),
                domain: domain_of(&pool.cpus),
                nodes: pool.nodes.clone(),
                leaves: inside.map(|(index, _)| index).collect(),
            }
        });
        let allocatable = pools.allocatable();
        let capacity = domains.iter().map(|it| it.cpus.intersection_len(&allocatable)).max();
        let mut model = Model {
            capacity: capacity.unwrap_or(0),
            threads: cores.iter().map(|core| core.len()).collect(),
            threads_max: cores.iter().map(|core| core.len()).max().unwrap_or(1),
            free: cores.iter().map(|core| core.intersection_len(ledger.free())).collect(),
            targets: targets.collect(),
            domains: domains.len(),
            seats: Vec::new(),
            seats_in: vec![Vec::new(); domains.len()],
            leaf_of,
            leaves,
        };
        let core_of: BTreeMap<CpuId, usize> = cores
            .iter()
            .enumerate()
            .flat_map(|(index, core)| core.iter().map(move |cpu| (cpu, index)))
            .collect();
        for (id, allocation) in ledger.allocations() {
            let wanted = movable.get(&id).filter(|request| is_movable(request, allocation));
            if wanted.is_some() {
                let domain = domain_of(&allocation.exclusive);
                let at = model.seats.len();
                let seats = domain.and_then(|domain| model.seats_in.get_mut(domain));
                seats.into_iter().for_each(|seats| seats.push(at));
                model.seats.push(model.seat(pools, &core_of, id, allocation));
            }
        }
        model
    }

    fn seat(
        &self,
        pools: &Pools,
        core_of: &BTreeMap<CpuId, usize>,
        id: ContainerId,
        held: &Allocation,
    ) -> Seat {
        let cpus = &held.exclusive;
        let mut threads: BTreeMap<usize, usize> = BTreeMap::new();
        for core in cpus.iter().filter_map(|cpu| core_of.get(&cpu)) {
            *threads.entry(*core).or_default() += 1;
        }
        let parts: Vec<Part> = threads.into_iter().collect();
        let needed = levels(pools, narrowest(pools, cpus));
        let suits = |target: &Target| needed.iter().all(|level| target.levels.contains(level));
        let widest = self.targets.iter().enumerate().filter(|(_, target)| {
            let parent = target.parent.and_then(|parent| self.targets.get(parent));
            suits(target) && !parent.is_some_and(suits)
        });
        let is_split = |(core, count): &&Part| self.threads.get(*core).is_some_and(|it| it > count);
        Seat {
            id,
            size: cpus.len(),
            split_cores: parts.iter().filter(is_split).count(),
            nodes: pools.nodes_of(cpus),
            memory: held.set_aside().map(|(_, bytes)| bytes).sum(),
            cpus: cpus.clone(),
            home: widest.clone().find(|(_, it)| it.holds(&parts, &self.leaf_of)).map(|(at, _)| at),
            targets: widest.map(|(index, _)| index).collect(),
            parts,
        }
    }

    /// Before any step.
    pub(super) fn start(&self) -> State {
        let mut state = State {
            free: self.free.clone(),
            leaves: vec![Hole::default(); self.leaves.len()],
            domains: vec![Hole::default(); self.domains],
            steps: Vec::new(),
            cpus: 0,
            memory: Bytes::ZERO,
        };
        for (core, free) in self.free.iter().enumerate() {
            self.count(&mut state, core, 0, *free);
        }
        state
    }

    pub(super) fn largest_hole(&self, state: &State) -> Hole {
        state.domains.iter().copied().max_by_key(|hole| hole.weight()).unwrap_or_default()
    }

    /// What the largest hole could weigh at best.
    pub(super) fn ideal(&self) -> usize {
        let free: usize = self.free.iter().sum();
        let ideal = free.min(self.capacity);
        ideal + ideal / self.threads_max * self.threads_max
    }

    /// The pool that a step leads to.
    pub(super) fn pool(&self, step: &Step) -> PoolId {
        self.targets.get(step.target).map_or(PoolId::MACHINE, |target| target.pool)
    }

    /// The domain of a leaf.
    pub(super) fn domain_of_leaf(&self, leaf: usize) -> Option<usize> {
        self.leaves.get(leaf)?.domain
    }

    /// A core has other free threads than before.
    fn count(&self, state: &mut State, core: usize, before: usize, now: usize) {
        let threads = self.threads.get(core).copied().unwrap_or_default();
        let whole = |free: usize| if free == threads { free } else { 0 };
        let change = |hole: &mut Hole| {
            hole.cpus = hole.cpus + now - before;
            hole.whole = hole.whole + whole(now) - whole(before);
        };
        let Some(leaf) = self.leaf_of.get(core) else { return };
        state.leaves.get_mut(*leaf).into_iter().for_each(change);
        let domain = self.leaves.get(*leaf).and_then(|leaf| leaf.domain);
        domain.and_then(|at| state.domains.get_mut(at)).into_iter().for_each(change);
    }

    fn change(&self, state: &mut State, parts: &[Part], change: fn(usize, usize) -> usize) {
        for (core, count) in parts {
            let Some(free) = state.free.get_mut(*core) else { continue };
            let before = *free;
            *free = change(before, *count);
            let now = *free;
            self.count(state, *core, before, now);
        }
    }

    /// What tells one seat from others that a search can treat alike.
    pub(super) fn kind(&self, state: &State, seat: &Seat) -> impl Ord + Clone + use<> {
        let becomes_whole = |(core, count): &&Part| {
            let free = state.free.get(*core).copied().unwrap_or_default();
            self.threads.get(*core) == Some(&(free + count))
        };
        let whole = seat.parts.iter().filter(becomes_whole).count();
        let leaf = seat.parts.first().and_then(|(core, _)| self.leaf_of.get(*core)).copied();
        let leaves = seat.parts.iter().filter_map(|(core, _)| self.leaf_of.get(*core));
        let last = leaves.max().copied();
        (seat.size, leaf, last, seat.parts.len(), whole, seat.split_cores)
    }

    /// Where a seat could go in `state`, one of each kind of target.
    pub(super) fn targets(&self, state: &State, seat: &Seat) -> Vec<usize> {
        let mut kinds = Vec::new();
        let mut found = Vec::new();
        for index in &seat.targets {
            let Some(target) = self.targets.get(*index) else { continue };
            let is_here = seat.home == Some(*index);
            let holes = target.leaves.iter().filter_map(|leaf| state.leaves.get(*leaf).copied());
            let free: usize = holes.clone().map(|hole| hole.cpus).sum();
            // A container that is spread may have some of its CPUs there.
            let is_there = |(core, _): &&Part| {
                self.leaf_of.get(*core).is_some_and(|leaf| target.leaves.contains(leaf))
            };
            let own: usize = seat.parts.iter().filter(is_there).map(|(_, count)| count).sum();
            // A container that has only whole cores gains nothing by staying in the same place.
            let is_of_use = if is_here { seat.split_cores > 0 } else { free + own >= seat.size };
            if !is_of_use {
                continue;
            }
            let kind = (is_here, own, target.domain, holes.collect::<Vec<Hole>>());
            if !kinds.contains(&kind) {
                kinds.push(kind);
                found.push(*index);
            }
        }
        found
    }

    /// Makes a step, if the target has room for it without splitting more cores.
    pub(super) fn step(&self, state: &mut State, at: usize, target_index: usize) -> Option<()> {
        let (seat, target) = (self.seats.get(at)?, self.targets.get(target_index)?);
        // Within a pool only the threads of split cores change.
        let is_here = seat.home == Some(target_index);
        let is_whole = |(core, count): &&Part| self.threads.get(*core) == Some(count);
        let left: Vec<Part> =
            seat.parts.iter().filter(|part| !(is_here && is_whole(part))).copied().collect();
        let count = left.iter().map(|(_, count)| count).sum();
        self.change(state, &left, |free, count| free + count);
        let taken = self.pick(state, target, count);
        let split = taken.iter().filter(|part| !is_whole(part)).count();
        let got: usize = taken.iter().map(|(_, count)| count).sum();
        if got < count || split > seat.split_cores || taken == left {
            self.change(state, &left, |free, count| free.saturating_sub(count));
            return None;
        }
        self.change(state, &taken, |free, count| free.saturating_sub(count));
        let leaves_nodes = seat.nodes.is_disjoint(&target.nodes);
        let memory = if leaves_nodes { seat.memory } else { Bytes::ZERO };
        state.cpus += count;
        state.memory += memory;
        state.steps.push(Step { seat: at, target: target_index, left, taken, cpus: count, memory });
        Some(())
    }

    /// Takes the last step back.
    pub(super) fn undo(&self, state: &mut State) {
        let Some(step) = state.steps.pop() else { return };
        self.change(state, &step.taken, |free, count| free + count);
        self.change(state, &step.left, |free, count| free.saturating_sub(count));
        state.cpus -= step.cpus;
        state.memory -= step.memory;
    }

    /// The leaf that holds all of it with least left over, or else the widest ones.
    fn pick(&self, state: &State, target: &Target, count: usize) -> Vec<Part> {
        let hole = |leaf: &usize| state.leaves.get(*leaf).copied().unwrap_or_default();
        let whole = count / self.threads_max * self.threads_max;
        let fits = target.leaves.iter().filter(|leaf| hole(leaf).cpus >= count);
        let best = fits.min_by_key(|leaf| (hole(leaf).whole < whole, hole(leaf).cpus, **leaf));
        if let Some(leaf) = best {
            return self.pick_cores(state, *leaf, count);
        }
        let mut rest = target.leaves.clone();
        rest.sort_by_key(|leaf| std::cmp::Reverse(hole(leaf).cpus));
        let (mut taken, mut missing) = (Vec::new(), count);
        for leaf in rest {
            let here = missing.min(hole(&leaf).cpus);
            taken.extend(self.pick_cores(state, leaf, here));
            missing -= here;
        }
        taken
    }

    /// Whole cores first, then the most broken ones, as the allocator does.
    fn pick_cores(&self, state: &State, leaf: usize, count: usize) -> Vec<Part> {
        let Some(leaf) = self.leaves.get(leaf) else { return Vec::new() };
        let (mut taken, mut missing, mut rest) = (Vec::new(), count, Vec::new());
        for core in &leaf.cores {
            let free = state.free.get(*core).copied().unwrap_or_default();
            let threads = self.threads.get(*core).copied().unwrap_or_default();
            if free == threads && free <= missing {
                taken.push((*core, free));
                missing -= free;
            } else if free > 0 {
                rest.push((free == threads, free, *core));
            }
        }
        rest.sort_unstable();
        for (_, free, core) in rest {
            let here = free.min(missing);
            if here > 0 {
                taken.push((core, here));
                missing -= here;
            }
        }
        taken
    }

    /// CPUs that a container keeps that goes to `pool`.
    pub(super) fn kept(&self, pools: &Pools, step: &Step) -> CpuSet {
        let seat = self.seats.get(step.seat).filter(|seat| seat.home == Some(step.target));
        let Some(seat) = seat else { return CpuSet::new() };
        let leaves = pools.iter().filter(|pool| pool.children.is_empty());
        let around = leaves.filter(|pool| pool.cpus.intersects(&seat.cpus));
        let cores = around.flat_map(|pool| pools.own_core_sets(pool));
        let mut kept = CpuSet::new();
        for core in cores.filter(|core| core.is_subset(&seat.cpus)) {
            kept.union_with(&core);
        }
        kept
    }
}

impl Target {
    /// Whether a container with these CPUs is there already.
    fn holds(&self, parts: &[Part], leaf_of: &[usize]) -> bool {
        let is_here =
            |core: usize| leaf_of.get(core).is_some_and(|leaf| self.leaves.contains(leaf));
        parts.iter().all(|(core, _)| is_here(*core))
    }
}

/// A container that was adopted with other CPUs than it asks for stays where it is, as does one that asks to stay.
pub(super) fn is_movable(request: &Request, held: &Allocation) -> bool {
    !held.is_reserved
        && !held.exclusive.is_empty()
        && request.demand.exclusive() == held.exclusive.len()
        && request.demand.shared() == held.shared
        && may_move(request)
}

/// Whether its pod lets it be moved.
pub(super) fn may_move(request: &Request) -> bool {
    !request.wishes.is_immovable && !request.wishes.preserve.cpus
}
