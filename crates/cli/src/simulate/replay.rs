//! The daemon's decisions without the daemon. In: a trace, an empty ledger. Out: one [`PlacementRow`] per event, and which container is where at the
//! end.
//!
//! Each container takes the way that it takes in the daemon: what kubelet would put into the CRI message, `derive_request`, `offer`,
//! `commit`; each end of one is a `release`. Which sets have to be rewritten is what `plan_pinnings` says, asked once per pool, because all that
//! share a pool gain and lose the same CPUs, and once for each sharer that had to go to another pool. So an event costs no more in a long trace than
//! in a short one. Guarantees: no I/O, no clock; the same trace and ledger give the same rows.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bayplan_allocator::{Allocation, ContainerId, Ledger, PoolId, Request};
use bayplan_cri::kubelet::{CgroupDriver, ContainerSpec, PodSpec};
use bayplan_cri::translate::resources;
use bayplan_enforcement::{DesiredState, ObservedState, plan_pinnings};
use bayplan_node::settings::CompactionConfig;
use bayplan_types::{CpuSet, MilliCpu, NodeSet, Pinning};
use bayplan_workload::{Hardware, NewContainer, Pod, RequestRules, derive_request, parse_qos};

use crate::simulate::mover::{Mover, Touched};
use crate::simulate::placement::{Effect, Kind, Outcome, Placed, PlacementRow};
use crate::simulate::trace::{Event, Op, Trace, Wanted};

/// What the caller may want to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// An event begins.
    Begun,
    /// What a container asks for is known.
    Understood,
    /// A container was placed or refused.
    Decided {
        /// It asked for CPUs of its own, and nothing else.
        is_exclusive: bool,
    },
    /// A container was released.
    Released,
    /// Everything about the event is done.
    Settled,
}

/// Replays all of it, and tells `watch` how far it is.
pub(crate) fn replay(
    trace: &Trace,
    ledger: Ledger,
    rules: &RequestRules,
    compaction: CompactionConfig,
    watch: &mut dyn FnMut(Moment),
) -> (Vec<PlacementRow>, Replay) {
    let mut replay = Replay::new(ledger, rules.clone(), compaction);
    let rows = trace.events.iter().map(|event| {
        watch(Moment::Begun);
        let asked = replay.understand(event);
        if let Asked::Place(..) = asked {
            watch(Moment::Understood);
        }
        let decided = replay.decide(asked);
        watch(match &event.op {
            Op::Create(wanted) => Moment::Decided { is_exclusive: wanted.is_exclusive() },
            Op::Remove => Moment::Released,
        });
        let outcome = replay.settle(decided);
        watch(Moment::Settled);
        PlacementRow { id: event.id.clone(), op: event.op.name(), outcome }
    });
    let rows = rows.collect();
    (rows, replay)
}

/// A node in the middle of a trace.
#[derive(Debug)]
pub(crate) struct Replay {
    ledger: Ledger,
    rules: RequestRules,
    next_id: u64,
    /// Containers that were created and not removed; `None` for the refused.
    live: HashMap<String, Option<ContainerId>>,
    /// What the containers that hold something are, for new ones that care about their neighbours.
    specs: BTreeMap<ContainerId, NewContainer>,
    /// Where containers with a shared part were last seen.
    homes: BTreeMap<ContainerId, Home>,
    /// How many of them there are, by pool.
    sharers: BTreeMap<PoolId, usize>,
    /// The shared CPUs that those were last told, by the pool's name.
    told: ObservedState,
    mover: Mover,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Home {
    pool: PoolId,
    mems: NodeSet,
}

impl Home {
    /// `None` for one that has no shared part, or that has the reserved CPUs as its shared ones, which never change.
    fn of(allocation: &Allocation) -> Option<Home> {
        let shares = allocation.shared.is_some() && !allocation.is_reserved;
        shares.then(|| Home { pool: allocation.pool, mems: allocation.mems.clone() })
    }
}

/// What an event asks of the allocator.
pub(crate) enum Asked<'e> {
    /// A place for a container of this name.
    Place(&'e str, Box<(NewContainer, Request)>),
    /// That the container of this name gives its place back.
    Release(&'e str),
}

/// What the allocator said.
pub(crate) enum Decided {
    /// And these had to go elsewhere.
    Placed(ContainerId, Touched),
    Refused(String),
    /// And these could go elsewhere.
    Released(ContainerId, Touched),
    /// The remove of a container that was refused.
    Skipped,
}

impl Replay {
    pub(crate) fn new(ledger: Ledger, rules: RequestRules, compaction: CompactionConfig) -> Replay {
        Replay {
            ledger,
            rules,
            next_id: 0,
            live: HashMap::new(),
            specs: BTreeMap::new(),
            homes: BTreeMap::new(),
            sharers: BTreeMap::new(),
            told: ObservedState::new(),
            mover: Mover::new(compaction),
        }
    }

    /// What the containers hold.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The trace's names of the containers that hold something.
    pub(crate) fn names(&self) -> BTreeMap<ContainerId, &str> {
        let held = self.live.iter().filter_map(|(name, id)| Some(((*id)?, name.as_str())));
        held.collect()
    }

    /// The daemon's way from what kubelet says to a request.
    pub(crate) fn understand<'e>(&mut self, event: &'e Event) -> Asked<'e> {
        let Op::Create(wanted) = &event.op else { return Asked::Release(&event.id) };
        let id = ContainerId(self.next_id);
        self.next_id += 1;
        let spec = new_container(&event.id, wanted);
        let others = self.specs.iter().map(|(other, spec)| (*other, spec));
        let (mut request, _) = derive_request(id, &spec, &self.rules, Hardware::default(), others);
        request.wishes.preserve.cpus |= self.rules.preserve.cpus;
        request.wishes.preserve.memory |= self.rules.preserve.memory;
        Asked::Place(&event.id, Box::new((spec, request)))
    }

    pub(crate) fn decide(&mut self, asked: Asked<'_>) -> Decided {
        match asked {
            Asked::Place(name, asked) => {
                let (spec, request) = *asked;
                let id = request.id;
                let placed = self.place(spec, request);
                self.live.insert(name.to_owned(), placed.is_ok().then_some(id));
                match placed {
                    Ok(touched) => Decided::Placed(id, touched),
                    Err(why) => Decided::Refused(why),
                }
            }
            Asked::Release(name) => {
                let held = self.live.remove(name).flatten();
                let released = held.filter(|id| self.ledger.release(*id).is_some());
                let Some(id) = released else { return Decided::Skipped };
                self.specs.remove(&id);
                let mut touched = Touched::new();
                self.mover.leave(id, &mut self.ledger, &mut touched);
                Decided::Released(id, touched)
            }
        }
    }

    /// Containers that had to go elsewhere.
    fn place(&mut self, spec: NewContainer, request: Request) -> Result<Touched, String> {
        let mut touched = Touched::new();
        let offered = self.mover.offer(&mut self.ledger, &request, &mut touched);
        let offered = offered.map_err(|refusal| {
            // The machine comes first, and has most to give.
            let why = refusal.considered.first().and_then(|row| row.outcome.as_ref().err());
            why.map_or("no pool can hold it".to_owned(), ToString::to_string)
        })?;
        for id in offered.moves().iter().map(|made| made.container) {
            if let Some(held) = self.ledger.allocation(id) {
                touched.entry(id).or_insert_with(|| held.clone());
            }
        }
        self.ledger.commit(offered).map_err(|stale| stale.to_string())?;
        self.specs.insert(request.id, spec);
        self.mover.enter(request, &mut self.ledger, &mut touched);
        Ok(touched)
    }

    /// Counts which others have to be written, and says what came of the event.
    pub(crate) fn settle(&mut self, decided: Decided) -> Outcome {
        let outcome = self.outcome(decided);
        self.told = self.desired();
        outcome
    }

    fn outcome(&mut self, decided: Decided) -> Outcome {
        match decided {
            Decided::Refused(why) => Outcome::Refused { why },
            Decided::Skipped => Outcome::Skipped,
            Decided::Released(id, touched) => {
                self.leave(id);
                Outcome::Removed(self.effect(&touched))
            }
            Decided::Placed(id, mut touched) => {
                let Some(allocation) = self.ledger.allocation(id).cloned() else {
                    return Outcome::Skipped;
                };
                touched.remove(&id);
                let effect = self.effect(&touched);
                self.enter(id, &allocation);
                Outcome::Placed(Box::new(Placed {
                    kind: kind_of(&allocation),
                    cpus: self.ledger.cpus_of(&allocation),
                    exclusive: allocation.exclusive,
                    mems: allocation.mems,
                    effect,
                }))
            }
        }
    }

    fn effect(&mut self, touched: &Touched) -> Effect {
        let names = self.names();
        let moved = touched.iter().filter_map(|(id, before)| {
            let now = &self.ledger.allocation(*id)?.exclusive;
            let name = names.get(id).filter(|_| *now != before.exclusive)?;
            Some(((*name).to_owned(), now.clone()))
        });
        let moved = moved.collect();
        Effect { updates: self.update_others(touched), moved }
    }

    fn enter(&mut self, id: ContainerId, allocation: &Allocation) {
        if let Some(home) = Home::of(allocation) {
            *self.sharers.entry(home.pool).or_default() += 1;
            self.homes.insert(id, home);
        }
    }

    fn leave(&mut self, id: ContainerId) -> Option<Home> {
        let home = self.homes.remove(&id)?;
        if let Some(count) = self.sharers.get_mut(&home.pool) {
            *count = count.saturating_sub(1);
        }
        Some(home)
    }

    /// How many have other CPUs than they were told. One that was touched is asked for itself, one that was not with its pool.
    fn update_others(&mut self, touched: &Touched) -> usize {
        let mut told = std::mem::take(&mut self.told);
        let mut arrived = DesiredState::new();
        for (id, before) in touched {
            let Some(now) = self.ledger.allocation(*id).cloned() else { continue };
            let old = match self.leave(*id) {
                Some(home) => self.pinning_told(&told, &home, &before.exclusive),
                None => Pinning { cpus: before.exclusive.clone(), mems: before.mems.clone() },
            };
            told.insert(id.to_string(), old);
            let cpus = self.ledger.cpus_of(&now);
            arrived.insert(id.to_string(), Pinning { cpus, mems: now.mems.clone() });
        }
        let mut desired = self.desired();
        desired.extend(arrived);
        let plan = plan_pinnings(&desired, &told);
        // A set that slides has two writes.
        let written: BTreeSet<&str> =
            plan.writes.iter().map(|write| write.container.as_str()).collect();
        let containers = |name: &&str| match self.ledger.pools().named(name) {
            Some(pool) => self.sharers.get(&pool.id).copied().unwrap_or(0),
            None => 1,
        };
        let updates = written.iter().map(containers).sum();
        for id in touched.keys() {
            if let Some(now) = self.ledger.allocation(*id).cloned() {
                self.enter(*id, &now);
            }
        }
        updates
    }

    /// What a container with a shared part was told last.
    fn pinning_told(&self, told: &ObservedState, home: &Home, exclusive: &CpuSet) -> Pinning {
        let shared = self.ledger.pools().get(home.pool).and_then(|pool| told.get(&pool.name));
        let mut cpus = shared.map(|shared| shared.cpus.clone()).unwrap_or_default();
        cpus.union_with(exclusive);
        Pinning { cpus, mems: home.mems.clone() }
    }

    /// Where the sharers of every pool that has some run, by its name; on the reserved CPUs where all others are owned.
    fn desired(&self) -> DesiredState {
        let shared = self.sharers.iter().filter(|(_, count)| **count > 0);
        let pinned = shared.filter_map(|(id, _)| {
            let pool = self.ledger.pools().get(*id)?;
            let sharer = Allocation { shared: Some(MilliCpu::ZERO), ..Allocation::new(*id) };
            let cpus = self.ledger.cpus_of(&sharer);
            Some((pool.name.clone(), Pinning { cpus, ..Pinning::default() }))
        });
        pinned.collect()
    }
}

fn kind_of(allocation: &Allocation) -> Kind {
    match (allocation.exclusive.is_empty(), allocation.shared.is_some()) {
        (true, _) => Kind::Shared,
        (false, true) => Kind::Mixed,
        (false, false) => Kind::Exclusive,
    }
}

/// The container as the daemon reads it out of kubelet's message.
pub(crate) fn new_container(name: &str, wanted: &Wanted) -> NewContainer {
    let namespace = wanted.namespace.clone();
    let pod = PodSpec { namespace, ..PodSpec::new(&wanted.pod, wanted.qos) };
    let container = ContainerSpec {
        cpu_request: wanted.cpu_request,
        cpu_limit: wanted.cpu_limit,
        memory_limit: wanted.memory_limit,
        ..ContainerSpec::burstable(name, 0)
    };
    let cgroup_parent = pod.cgroup_parent(CgroupDriver::Cgroupfs);
    NewContainer {
        pod: Pod {
            qos: parse_qos(&cgroup_parent),
            cgroup_parent,
            namespace: pod.namespace,
            name: pod.name,
            annotations: wanted.annotations.clone(),
            labels: wanted.labels.clone(),
            ..Pod::default()
        },
        name: container.name.clone(),
        attempt: 0,
        resources: resources(&container.resources()),
        ..NewContainer::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bayplan_allocator::policy::{Policy, pools};
    use bayplan_topology::{derive, parse_machine};
    use proptest::prelude::*;

    use super::*;
    use crate::simulate::tests::{random_trace, trace};
    use crate::simulate::trace::Trace;

    /// What is counted is what changes for each container.
    fn check_updates(trace: &Trace, enabled: bool) {
        let topology = derive(&parse_machine("pack:2 l3:1 numa:2 core:4 pu:2").unwrap()).unwrap();
        let ledger = Ledger::new(Arc::new(
            pools(&topology, Policy::default(), &"0,16".parse().unwrap()).unwrap(),
        ));
        let mut compaction = CompactionConfig { enabled, ..CompactionConfig::default() };
        compaction.limits.moves_max = 2;
        let mut replay = Replay::new(ledger, RequestRules::default(), compaction);
        let pinnings = |replay: &Replay| -> BTreeMap<ContainerId, Pinning> {
            let pinning = |it: &Allocation| Pinning {
                cpus: replay.ledger.cpus_of(it),
                mems: it.mems.clone(),
            };
            replay.ledger.allocations().map(|(id, it)| (id, pinning(it))).collect()
        };
        for event in &trace.events {
            let before = pinnings(&replay);
            let asked = replay.understand(event);
            let decided = replay.decide(asked);
            let after = pinnings(&replay);
            let has_changed = |(id, now): &(&ContainerId, &Pinning)| {
                before.get(id).is_some_and(|before| before != *now)
            };
            let expected = after.iter().filter(has_changed).count();
            let effect = match replay.settle(decided) {
                Outcome::Placed(placed) => placed.effect,
                Outcome::Removed(effect) => effect,
                Outcome::Refused { .. } | Outcome::Skipped => Effect::default(),
            };
            assert_eq!(effect.updates, expected);
        }
    }

    #[test]
    fn a_container_that_flees_to_the_reserved_cpus_is_counted() {
        let came = [(4, 0), (11, 0), (4, 23), (7, 28), (7, 28)];
        check_updates(&random_trace(&came), false);
        check_updates(&trace(&["+e E", "+all G 30000", "-all"]), false);
    }

    proptest! {
        #[test]
        fn asking_once_per_pool_counts_every_container_that_changes(
            events in prop::collection::vec((0u8..12, 0u8..30), 0..60),
            enabled in any::<bool>(),
        ) {
            check_updates(&random_trace(&events), enabled);
        }
    }
}
