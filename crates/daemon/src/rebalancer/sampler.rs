//! From two readings to samples. In: counters of the kernel's files and of the probes. Out: what each container did and suffered in between.
//!
//! Each source has its own clock: rates are over the time between two readings of that source. What is not measured is `None`, and so is what the
//! probes were not asked for in time: the judgement of a change must not see what was before it.

use std::collections::BTreeMap;
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_host::counters::{GroupCounters, MonitorCounters, Stall, TICKS_PER_SECOND};
use bayplan_node::occupancy::{Occupancy, Occupant};
use bayplan_probes::{
    CgroupId, Distance, Drain, Identity, Preempter, Rates, delay_bucket_ends, rates_between,
};
use bayplan_rebalance::{Intruder, Migrations, Sample};
use bayplan_topology::Topology;
use bayplan_types::CpuId;

use crate::observer::{ContainerLabels, GroupsRead, Placed};
use crate::prober::{Seen, recent_ns};

/// What was read last, and what that meant.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    files: Option<GroupsRead>,
    /// By the runtime's id.
    of_files: BTreeMap<String, Sample>,
    idle: BTreeMap<CpuId, f64>,
    drain: Option<Drain>,
    of_probes: BTreeMap<ContainerLabels, Rates>,
    intruders: BTreeMap<ContainerLabels, Intruder>,
}

impl Sampler {
    /// All containers of which two readings tell; with what the probes add, where they count.
    pub(super) fn sample(
        &mut self,
        occupancy: &Occupancy,
        files: Option<GroupsRead>,
        probes: Option<(Vec<Seen>, Drain)>,
    ) -> BTreeMap<ContainerId, Sample> {
        self.take_files(files);
        self.take_probes(probes);
        let sample = |it: &Occupant| {
            let mut sample = self.of_files.get(&it.runtime_id)?.clone();
            if let Some(rates) = self.of_probes.get(&ContainerLabels::of(it)) {
                add_rates(&mut sample, rates);
            }
            // No count, and known at any time.
            sample.clock = occupancy.clocks.get(&it.id).map(|it| it.gain as f64);
            Some((it.id, sample))
        };
        occupancy.occupants.iter().filter_map(sample).collect()
    }

    /// Share of the time between the last two readings in which each CPU had nothing to do.
    pub(super) fn idle(&self) -> &BTreeMap<CpuId, f64> {
        &self.idle
    }

    /// What is no container and took most of the time of a container's own CPUs, as far as the probes tell.
    pub(super) fn intruders(&self, occupancy: &Occupancy) -> BTreeMap<ContainerId, Intruder> {
        let of =
            |it: &Occupant| Some((it.id, self.intruders.get(&ContainerLabels::of(it))?.clone()));
        occupancy.occupants.iter().filter_map(of).collect()
    }

    fn take_files(&mut self, now: Option<GroupsRead>) {
        let Some(now) = now else { return };
        let Some(before) = &self.files else {
            self.files = Some(now);
            return;
        };
        let elapsed = now.at.saturating_duration_since(before.at);
        if elapsed.is_zero() {
            return;
        }
        let of_each = now.groups.iter().filter_map(|(id, (counters, placed))| {
            let (then, _) = before.groups.get(id)?;
            let mut sample = sample_of(then, counters, *placed, elapsed)?;
            if let Some(caches) = now.caches.get(id) {
                add_caches(&mut sample, before.caches.get(id), caches, elapsed);
            }
            Some((id.clone(), sample))
        });
        self.of_files = of_each.collect();
        let idle = now.idle_ticks.iter().filter_map(|(cpu, after)| {
            let ticks = after.checked_sub(*before.idle_ticks.get(cpu)?)?;
            Some((*cpu, (ticks as f64 / TICKS_PER_SECOND / elapsed.as_secs_f64()).min(1.0)))
        });
        self.idle = idle.collect();
        self.files = Some(now);
    }

    /// Probes that have stopped counting, or have told nothing new, tell nothing.
    fn take_probes(&mut self, now: Option<(Vec<Seen>, Drain)>) {
        self.of_probes.clear();
        self.intruders.clear();
        let Some((seen, drain)) = now else {
            self.drain = None;
            return;
        };
        if let Some(before) = self.drain.as_ref().filter(|before| before.at < drain.at) {
            let mut rates = rates_between(before, &drain);
            // A container that was not in the drain before has counted for an unknown time.
            rates.retain(|cgroup, _| before.containers.contains_key(cgroup));
            let labels = |it: &Seen| ContainerLabels {
                namespace: it.namespace.clone(),
                pod: it.pod.clone(),
                container: it.name.clone(),
            };
            let of_each =
                seen.iter().filter_map(|it| Some((labels(it), rates.remove(&it.cgroup)?)));
            self.of_probes = of_each.collect();
            let intruder =
                |it: &Seen| Some((labels(it), largest_intruder(it.cgroup, before, &drain)?));
            self.intruders = seen.iter().filter_map(intruder).collect();
        }
        self.drain = Some(drain);
    }
}

/// Of the named tasks and interrupts outside of containers on the CPUs of an owner, the one that took most of their time between two readings.
fn largest_intruder(owner: CgroupId, before: &Drain, now: &Drain) -> Option<Intruder> {
    let period = now.at.saturating_duration_since(before.at).as_secs_f64();
    let (had, has) = (before.intrusions.get(&owner)?, now.intrusions.get(&owner)?);
    let is_outside = |it: &&bayplan_probes::Intruder| {
        !matches!(it.identity, Identity::Container(_) | Identity::Others(_))
    };
    let mut taken: BTreeMap<String, u64> = BTreeMap::new();
    for intruder in has.keys().filter(is_outside) {
        *taken.entry(label_of(intruder)).or_default() += recent_ns(intruder, had, has);
    }
    let (name, ns) = taken.into_iter().max_by_key(|(_, ns)| *ns)?;
    Some(Intruder { name, cpus: ns as f64 / 1e9 / period })
}

/// A task's name, and for interrupts the number or kind with the name of what they are for.
fn label_of(intruder: &bayplan_probes::Intruder) -> String {
    let bayplan_probes::Intruder { identity, name, .. } = intruder;
    match identity {
        _ if name.is_empty() => identity.to_string(),
        Identity::KernelThread | Identity::Process(_) => name.clone(),
        _ => format!("{identity} ({name})"),
    }
}

/// What a group did between two readings; `None` where its CPU time is not counted, or began anew.
pub(crate) fn sample_of(
    before: &GroupCounters,
    after: &GroupCounters,
    placed: Option<Placed>,
    elapsed: Duration,
) -> Option<Sample> {
    let micros = elapsed.as_secs_f64() * 1e6;
    let part = |before: Option<u64>, after: Option<u64>| {
        Some(after?.checked_sub(before?)? as f64 / micros)
    };
    let share = |before, after| part(before, after).map(|it| it.min(1.0));
    let stalled = |stall: Option<Stall>| stall.map(|it| it.some_usec);
    Some(Sample {
        cpus: part(before.cpu_usec, after.cpu_usec)?,
        throttled: share(before.throttled_usec, after.throttled_usec),
        cpu_pressure: share(stalled(before.pressure.cpu), stalled(after.pressure.cpu)),
        far_memory: placed.and_then(far_share),
        ..Sample::default()
    })
}

/// Bytes are counted from the beginning of the monitor group, which is another one when the class changes.
pub(super) fn add_caches(
    sample: &mut Sample,
    before: Option<&MonitorCounters>,
    after: &MonitorCounters,
    elapsed: Duration,
) {
    sample.cache_bytes = after.occupancy.map(|it| it.0 as f64);
    let then = before.and_then(|it| it.total);
    let moved = after.total.zip(then).and_then(|(now, then)| now.0.checked_sub(then.0));
    sample.memory_bandwidth = moved.map(|bytes| bytes as f64 / elapsed.as_secs_f64());
}

fn far_share(Placed { near, far }: Placed) -> Option<f64> {
    let all = near.0.saturating_add(far.0);
    (all > 0).then(|| far.0 as f64 / all as f64)
}

/// Where the machine names no last-level caches, as many virtual machines do, it is not known which migrations go to another one.
pub(super) fn forget_migrations_without_caches(
    topology: &Topology,
    samples: &mut BTreeMap<ContainerId, Sample>,
) {
    if !topology.caches().iter().any(|it| it.level == 3) {
        samples.values_mut().for_each(|it| it.migrations = None);
    }
}

fn migrations_of(rates: &Rates) -> Migrations {
    let mut migrations = Migrations::default();
    for (distance, rate) in Distance::ALL.iter().zip(rates.migrations) {
        let sum = match distance {
            Distance::SameCore | Distance::SameL3 => &mut migrations.within_cache,
            Distance::SameNode => &mut migrations.within_node,
            Distance::SamePackage | Distance::AcrossPackages => &mut migrations.across_nodes,
        };
        *sum += rate;
    }
    migrations
}

pub(super) fn add_rates(sample: &mut Sample, rates: &Rates) {
    sample.waiting = Some(rates.waiting);
    // Beyond the last of the probes' limits it is told as the next one would be; none at all would be no trouble.
    let next = || delay_bucket_ends().last().map(|last| Duration::from_nanos(2 * last));
    let beyond = || rates.has_runs.then(next);
    sample.delay_p99 = rates.delay_p99.or_else(|| beyond().flatten());
    // For the system's tasks there is no container to blame; a client of a server on the same CPU is among them at every answer.
    let mut by = Preempter::ALL.iter().zip(rates.preempted_by);
    sample.preempted = by.find(|(by, _)| **by == Preempter::Container).map(|(_, rate)| rate);
    sample.migrations = Some(migrations_of(rates));
    sample.cycles_per_instruction = rates.cycles_per_instruction;
    sample.cache_misses = rates.cache_misses;
}
