//! A machine that does not exist, to try the rebalancer on. In: a topology, containers with demand over time, proposals that are carried out. Out: samples as a real machine
//! would give them, and beside them what is true.
//!
//! Problem: whether a controller helps shows over thousands of machine-hours, against machines that can be had twice, once with and once without it.
//!
//! Approach: each period is taken as settled. Four steps lead towards the point at which CPU time, pace of instructions, caches and memory agree; what they need from the last
//! period (caches, how threads lie on CPUs) they begin with. No event is simulated, so that a period costs some microseconds.
//!
//! | What | Model | From |
//! |---|---|---|
//! | CPU time | by weight on each CPU, threads drift to CPUs with room, idle class last | cgroup-v2.rst, "CPU Interface Files" |
//! | delay by others | if no CPU of one's own is free, and as far as others keep them busy, an exponential wait; its mean is their part, by weight, of a slice of 3 ms | the kernel's `base_slice_ns` with 8 CPUs and more; that CPUs are busy independently of each other is an assumption |
//! | delay by oneself | M/M/c, Erlang's C formula | Erlang 1917 |
//! | own limit | CPU time within 100 ms is a normal sum; burst adds to the quota | sched-bwc.rst |
//! | threads of a core | each of two does 0.625 of what it would do alone | Marr et al. 2002: up to 1.3 for two |
//! | cache | share of what is brought in; power law of misses | Chandra et al., HPCA 2005; Xu et al., ISPASS 2010; Hartstein et al., CF 2006 |
//! | memory bandwidth | latency flat to 40 %, a line to 80 %, steep above; 3.8 GB/s per core | Jacob 2009; data sheet of the Xeon 8480 |
//! | migrations | a thread that wakes up elsewhere does so where the others run; 0.5 ms of misses after each to another cache | assumption: 8 MiB from memory at 16 GB/s |
//! | far memory | 1.6 times at distance 21 | measured by many on two packages, 80 to 100 against 140 to 150 ns |
//! | programs | four kinds, see [`Nature`] | Ferdman et al., ASPLOS 2012, for servers; the others are round numbers for STREAM, `mcf` and a loop |
//! | noise | 5 % on every number | assumption |
//!
//! How neighbours hurt through caches and memory alone, on CPUs of one's own, is the case of CPI² (EuroSys 2013) and Bubble-Up (MICRO 2011). Chandra et al. have measured worse beside one
//! neighbour than comes out here: misses four times as many, a third of the instructions.
//!
//! Guarantees: no clock, no randomness but of the seed, same input, same bytes. Chance depends on seed, container and time alone, so two plants with one seed meet the same
//! demand whatever is done to them. Not modelled: disks, networks, memory pressure, power limits, how long a cache takes to warm up (it settles within a
//! period or two).

mod layout;
mod memory;
mod queue;
mod random;
mod sensor;
mod share;
mod solve;
mod tenant;
#[cfg(test)]
mod tests;
mod truth;
mod turned;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_topology::Topology;
use bayplan_types::{CpuClass, CpuSet, NodeSet};

use bayplan_rebalance::Knob;
use bayplan_rebalance::Round;
use bayplan_rebalance::{Outcome, Proposal};
use bayplan_rebalance::{Resident, Scene, Unrest, Workload};
use layout::Layout;
use solve::{Body, State, pace_alone, solve};
use turned::{Seat, Turned, knobs_left, new_cpus};

pub use random::chance;
pub use sensor::{Lie, Sensor};
pub use tenant::{Act, Demand, Nature, Tenant, Work};
pub use truth::Truth;

/// Share of a container's memory that comes home in a period; moving pages is bounded by what the kernel copies beside other work, an assumption.
const HOMEWARD: f64 = 0.2;

/// How knobs behave.
#[derive(Clone, Debug, Default)]
pub struct Stubborn {
    /// They can be turned, and nothing comes of it.
    pub useless: BTreeSet<Knob>,
    /// They cannot be turned.
    pub refused: BTreeSet<Knob>,
}

/// One machine with containers on it.
#[derive(Clone, Debug)]
pub struct Plant {
    topology: Arc<Topology>,
    layout: Layout,
    seed: u64,
    now: Duration,
    tenants: BTreeMap<ContainerId, Tenant>,
    sensor: Sensor,
    stubborn: Stubborn,
    unrest: Option<Unrest>,
    in_force: BTreeMap<u64, Turned>,
    /// Since when every tenant is where it is.
    since: BTreeMap<ContainerId, Duration>,
    /// Share of memory by node.
    pages: BTreeMap<ContainerId, Vec<f64>>,
    state: Option<State>,
    truths: BTreeMap<ContainerId, Truth>,
}

impl Plant {
    /// A machine at time 0. Containers get ids from 1 on, in their order.
    pub fn new(topology: Topology, tenants: Vec<Tenant>, seed: u64) -> Plant {
        let layout = Layout::new(&topology);
        let tenants: BTreeMap<ContainerId, Tenant> = (1..).map(ContainerId).zip(tenants).collect();
        let home = |(id, tenant): (&ContainerId, &Tenant)| {
            (*id, layout.pages(&tenant.mems, &layout.positions(&tenant.cpus)))
        };
        Plant {
            pages: tenants.iter().map(home).collect(),
            since: tenants.keys().map(|id| (*id, Duration::ZERO)).collect(),
            topology: Arc::new(topology),
            layout,
            seed,
            now: Duration::ZERO,
            tenants,
            sensor: Sensor::default(),
            stubborn: Stubborn::default(),
            unrest: None,
            in_force: BTreeMap::new(),
            state: None,
            truths: BTreeMap::new(),
        }
    }

    /// The same machine, seen through this sensor.
    #[must_use]
    pub fn with_sensor(self, sensor: Sensor) -> Plant {
        Plant { sensor, ..self }
    }

    /// The same machine, with knobs that behave like this.
    #[must_use]
    pub fn with_knobs(self, stubborn: Stubborn) -> Plant {
        Plant { stubborn, ..self }
    }

    /// The machine as it is now, as if `id` had gone. Those that are left keep their names, their demand and their place.
    #[must_use]
    pub fn without(&self, id: ContainerId) -> Plant {
        let mut plant = self.clone();
        plant.tenants.remove(&id);
        plant.pages.remove(&id);
        plant.since.remove(&id);
        plant.in_force.retain(|_, turned| turned.proposal.target != id);
        // Its rows are those of the tenants, so it begins anew.
        plant.state = None;
        plant
    }

    /// Says why nothing is to be changed, or that there is no reason any more.
    pub fn set_unrest(&mut self, unrest: Option<Unrest>) {
        self.unrest = unrest;
    }

    /// The end of the last period.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// All tenants, by id.
    pub fn tenants(&self) -> &BTreeMap<ContainerId, Tenant> {
        &self.tenants
    }

    /// What was true in the last period; empty before the first.
    pub fn truths(&self) -> &BTreeMap<ContainerId, Truth> {
        &self.truths
    }

    /// Proposals that are in force.
    pub fn in_force(&self) -> impl Iterator<Item = &Proposal> {
        self.in_force.values().map(|turned| &turned.proposal)
    }

    /// Lives through one period; returns what was measured.
    pub fn step(&mut self, period: Duration) -> Round {
        self.now += period;
        self.bring_home();
        let bodies: Vec<Body> =
            self.tenants.iter().map(|(id, tenant)| self.body(*id, tenant)).collect();
        let state = self.state.get_or_insert_with(|| State::new(&self.layout, &bodies));
        let outcomes = solve(&self.layout, &bodies, state);
        let mut samples = BTreeMap::new();
        for (id, (truth, sample)) in self.tenants.keys().zip(outcomes) {
            self.truths.insert(*id, truth);
            if let Some(sample) = self.sensor.measure(*id, self.now, sample, self.seed) {
                samples.insert(*id, sample);
            }
        }
        self.truths.retain(|id, _| self.tenants.contains_key(id));
        Round { at: self.now, period, samples }
    }

    /// The node at the end of the last period, as the rebalancer is told of it.
    pub fn scene(&self) -> Scene {
        let residents = self.tenants.iter().map(|(id, tenant)| (*id, self.resident(*id, tenant)));
        Scene {
            topology: Arc::clone(&self.topology),
            residents: residents.collect(),
            shared: self.shared(),
            // Nothing else is on the machine.
            idle: BTreeMap::new(),
            intruders: BTreeMap::new(),
            touched: BTreeSet::new(),
            disallowed: BTreeSet::new(),
            contested: BTreeSet::new(),
            // Nothing has wide vectors.
            clocks: BTreeMap::new(),
            unrest: self.unrest,
        }
    }

    /// Does what is proposed.
    pub fn carry_out(&mut self, proposal: &Proposal) -> Outcome {
        let Some(tenant) = self.tenants.get(&proposal.target) else {
            return Outcome::Refused(format!("there is no container {}", proposal.target));
        };
        if self.stubborn.refused.contains(&proposal.knob) {
            return Outcome::Refused(format!("{} cannot be turned here", proposal.knob.name()));
        }
        let seat = self.seat(proposal.target, tenant);
        let loads = self.state.as_ref().map(|state| state.times.loads()).unwrap_or_default();
        match new_cpus(proposal, tenant, &seat, &self.layout, &self.shared(), &loads) {
            Ok(cpus) => {
                let turned = Turned { proposal: proposal.clone(), cpus };
                self.in_force.insert(proposal.number, turned);
                self.note_move(proposal);
                Outcome::Done
            }
            Err(why) => Outcome::Refused(why),
        }
    }

    /// Takes back a proposal that is in force.
    pub fn undo(&mut self, number: u64) {
        if let Some(turned) = self.in_force.remove(&number) {
            self.note_move(&turned.proposal);
        }
    }

    fn note_move(&mut self, proposal: &Proposal) {
        if !proposal.leave.is_empty() {
            self.since.insert(proposal.target, self.now);
        }
    }

    fn seat(&self, id: ContainerId, tenant: &Tenant) -> Seat {
        Seat::with(id, tenant, &self.in_force, &self.stubborn.useless)
    }

    /// Memory of tenants that are to have it near goes there, by and by.
    fn bring_home(&mut self) {
        for (id, tenant) in &self.tenants {
            let seat = Seat::with(*id, tenant, &self.in_force, &self.stubborn.useless);
            let Some(pages) = self.pages.get_mut(id).filter(|_| seat.comes_home) else { continue };
            let cpus = self.layout.positions(&seat.cpus);
            let home = self.layout.pages(&NodeSet::new(), &cpus);
            for (share, aim) in pages.iter_mut().zip(home) {
                *share += HOMEWARD * (aim - *share);
            }
        }
    }

    fn body(&self, id: ContainerId, tenant: &Tenant) -> Body {
        let nature = tenant.act(self.now).map_or(Nature::COMPUTE, |act| act.nature);
        let seat = self.seat(id, tenant);
        let cpus = self.layout.positions(&seat.cpus);
        // Undisturbed is where it was put, whatever is done with it later.
        let place = self.layout.positions(&tenant.cpus);
        let pages = self.pages.get(&id).cloned();
        Body {
            pace_alone: pace_alone(&self.layout, &nature, &place),
            demand: tenant.demand(self.now, id.0, self.seed),
            pages: pages.unwrap_or_else(|| self.layout.pages(&tenant.mems, &place)),
            nature,
            hops: if self.now > tenant.hops_from { tenant.hops } else { 0.0 },
            work: tenant.work,
            cpus,
            seat,
        }
    }

    /// CPUs without an owner.
    fn shared(&self) -> CpuSet {
        let mut shared = self.topology.cpus().clone();
        for (id, tenant) in &self.tenants {
            if tenant.class == CpuClass::Exclusive {
                shared.subtract(&self.seat(*id, tenant).cpus);
            }
        }
        shared
    }

    fn resident(&self, id: ContainerId, tenant: &Tenant) -> Resident {
        let cpus = self.seat(id, tenant).cpus;
        let is_owner = tenant.class == CpuClass::Exclusive;
        Resident {
            workload: workload(&tenant.name),
            name: tenant.name.clone(),
            qos: Some(tenant.qos),
            class: tenant.class,
            exclusive: if is_owner { cpus.clone() } else { CpuSet::new() },
            cpus,
            mems: tenant.mems.clone(),
            since: self.since.get(&id).copied().unwrap_or_default(),
            mode: tenant.mode,
            knobs: knobs_left(id, tenant, &self.in_force),
        }
    }
}

/// Of `namespace/pod/container`; each pod is its own owner.
fn workload(name: &str) -> Workload {
    let mut parts = name.splitn(3, '/').map(str::to_owned);
    let mut part = || parts.next().unwrap_or_default();
    let (namespace, owner, container) = (part(), part(), part());
    Workload { image: format!("{container}:1"), namespace, owner, container }
}
