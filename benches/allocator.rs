//! Time and memory of the allocator's decisions on machines of 112 to 1,024 CPUs that hold 0, 100 and 500 containers, and of plans of
//! compaction on these machines when containers have come and gone for a while.
//!
//! After criterion's figures comes a table of single calls: median and 99th percentile of the wall time, and how often memory was asked
//! for. Times of single calls include what else the machine was doing; compare medians.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot be set up should stop")]
#![allow(clippy::print_stdout, reason = "the table is what it is for")]

use std::alloc::System;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bayplan_allocator::policy::{Policy, pools};
use bayplan_allocator::{
    Compaction, ContainerId, Demand, Ledger, Limits, Previous, Request, Score, Wish, offer,
    plan_compaction,
};
use bayplan_topology::{Level, derive, parse_machine};
use bayplan_types::{Bytes, CpuClass, CpuSet, MilliCpu};
use criterion::Criterion;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Two packages each: one NUMA node, sub-NUMA clusters, and chiplets with an L3 for every 16 CPUs.
const MACHINES: [(&str, &str); 4] = [
    ("112 CPUs", "pack:2 numa:2 core:14 pu:2 mem:128"),
    ("224 CPUs", "pack:2 l3:1 numa:4 core:14 pu:2 mem:128"),
    ("512 CPUs", "pack:2 numa:4 l3:4 core:8 pu:2 mem:256"),
    ("1024 CPUs", "pack:2 numa:8 l3:4 core:8 pu:2 mem:256"),
];
const CONTAINERS: [u64; 3] = [0, 100, 500];
const ROUNDS: usize = 4000;
/// Plans take milliseconds.
const PLAN_ROUNDS: usize = 200;
/// Those of the daemon.
const LIMITS: Limits =
    Limits { moves_max: 8, cpus_max: 64, memory_max: None, gain_min_percent: 10, states_max: 2000 };

/// One core is reserved. One in sixteen containers owns two CPUs, another owns one and shares, until a quarter of the machine is owned;
/// the rest share.
fn busy_machine(spec: &str, containers: u64) -> Ledger {
    let topology = derive(&parse_machine(spec).unwrap()).unwrap();
    let reserved: CpuSet = topology.cores()[0].clone();
    let pools = pools(&topology, Policy::default(), &reserved).unwrap();
    let mut ledger = Ledger::new(Arc::new(pools));
    for id in 0..containers {
        let is_full = ledger.cpus_in_class(CpuClass::Exclusive) * 4 > topology.cpus().len();
        let demand = match id % 16 {
            _ if is_full => Demand::new(0, Some(MilliCpu(50))),
            0 => Demand::new(2, None),
            8 => Demand::new(1, Some(MilliCpu(50))),
            _ => Demand::new(0, Some(MilliCpu(50))),
        };
        hold(&mut ledger, &request(id, demand));
    }
    ledger
}

fn request(id: u64, demand: Demand) -> Request {
    Request { memory: Bytes(1 << 28), ..Request::new(ContainerId(id), demand) }
}

fn hold(ledger: &mut Ledger, request: &Request) {
    let offer = offer(ledger, request).unwrap();
    ledger.commit(offer).unwrap();
}

/// One decision, on a machine that is as it was when it is over.
type Step = fn(&mut Ledger);

const NEWCOMER: u64 = 1_000_000;

const STEPS: [(&str, Step); 7] = [
    ("place 4 exclusive CPUs", |ledger| place(ledger, Demand::new(4, None))),
    ("place 1 exclusive CPU and a shared part", |ledger| {
        place(ledger, Demand::new(1, Some(MilliCpu(500))));
    }),
    ("place a sharer", |ledger| place(ledger, Demand::new(0, Some(MilliCpu(500))))),
    ("place 36 exclusive CPUs over several domains", |ledger| place(ledger, Demand::new(36, None))),
    ("place 4 exclusive CPUs of a pod with 4 more", |ledger| {
        let mut wanted = request(NEWCOMER, Demand::new(4, None));
        wanted.wishes.pod.rest = MilliCpu(4000);
        hold(ledger, black_box(&wanted));
        ledger.release(ContainerId(NEWCOMER));
    }),
    ("resize 4 exclusive CPUs to 6", resize),
    ("explain 4 exclusive CPUs", explain),
];

fn place(ledger: &mut Ledger, demand: Demand) {
    hold(ledger, black_box(&request(NEWCOMER, demand)));
    ledger.release(ContainerId(NEWCOMER));
}

fn resize(ledger: &mut Ledger) {
    hold(ledger, &request(NEWCOMER, Demand::new(4, None)));
    let held = ledger.release(ContainerId(NEWCOMER)).unwrap();
    let mut wanted = request(NEWCOMER, Demand::new(6, None));
    wanted.previous = Some(Previous { pool: held.pool, exclusive: held.exclusive });
    hold(ledger, black_box(&wanted));
    ledger.release(ContainerId(NEWCOMER));
}

/// Wall time, and how often memory was asked for.
type Spent = (Duration, usize);

/// A part of a decision; what comes before and after it is not counted.
type Part = fn(&mut Ledger) -> Spent;

const PARTS: [(&str, Part); 3] = [
    ("only offer 4 exclusive CPUs", |ledger| spent(|| drop(offer(ledger, &newcomer()).unwrap()))),
    ("only commit 4 exclusive CPUs", |ledger| {
        let offer = offer(ledger, &newcomer()).unwrap();
        let spent = spent(|| ledger.commit(offer).unwrap());
        ledger.release(ContainerId(NEWCOMER));
        spent
    }),
    ("only release 4 exclusive CPUs", |ledger| {
        hold(ledger, &newcomer());
        spent(|| drop(ledger.release(ContainerId(NEWCOMER))))
    }),
];

fn newcomer() -> Request {
    request(NEWCOMER, Demand::new(4, None))
}

fn spent(work: impl FnOnce()) -> Spent {
    let region = Region::new(ALLOCATOR);
    let start = Instant::now();
    work();
    let elapsed = start.elapsed();
    (elapsed, region.change().allocations)
}

fn explain(ledger: &mut Ledger) {
    let offer = offer(ledger, &request(NEWCOMER, Demand::new(4, None))).unwrap();
    let scores =
        offer.considered().iter().filter_map(|considered| considered.outcome.as_ref().ok());
    let winner: &Score = scores.clone().max().unwrap();
    black_box(scores.filter_map(|score| score.loses_to(winner)).collect::<Vec<_>>());
}

/// A node after many arrivals and departures, with what each container asked for.
struct Churned {
    ledger: Ledger,
    requests: BTreeMap<ContainerId, Request>,
    /// CPUs of the largest hole.
    hole: usize,
    seed: u64,
}

impl Churned {
    /// The first moment, after a while, at which moving a container is worth it.
    fn new(spec: &str) -> Churned {
        let (ledger, requests) = (busy_machine(spec, 0), BTreeMap::new());
        let mut node = Churned { ledger, requests, hole: 0, seed: 1 };
        let mut events = 0;
        while events < 1000 || node.join_holes().moves.is_empty() {
            node.event(ContainerId(events));
            events += 1;
        }
        node.hole = node.join_holes().before.cpus;
        node
    }

    /// The same numbers in every run.
    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.seed >> 33) % below
    }

    /// A container comes, most often with exclusive CPUs, or one goes, sooner when the machine is full.
    fn event(&mut self, id: ContainerId) {
        let held = u64::try_from(self.requests.len()).unwrap();
        if held > 0 && self.random(100) < 45 {
            let which = usize::try_from(self.random(held)).unwrap();
            self.release(which);
            return;
        }
        let demand = match self.random(10) {
            0 => Demand::new(0, Some(MilliCpu(500))),
            1 => Demand::new(1, Some(MilliCpu(500))),
            2 => Demand::new(usize::try_from(8 + self.random(9)).unwrap(), None),
            _ => Demand::new(usize::try_from(1 + self.random(8)).unwrap(), None),
        };
        let wanted = request(id.0, demand);
        match offer(&self.ledger, &wanted) {
            Ok(offer) => {
                self.ledger.commit(offer).unwrap();
                self.requests.insert(id, wanted);
            }
            Err(_) => self.release(0),
        }
    }

    fn release(&mut self, which: usize) {
        let id = *self.requests.keys().nth(which).unwrap();
        self.requests.remove(&id);
        self.ledger.release(id);
    }

    fn join_holes(&self) -> Compaction {
        plan_compaction(&self.ledger, &self.requests, None, &LIMITS)
    }

    /// For a request of one CPU more than the largest hole has.
    fn make_room(&self) -> Compaction {
        let cpus = self.hole + 1;
        let wish = request(NEWCOMER, Demand::new(cpus, None));
        let wish = Wish { request: wish, level: Level::NumaNode };
        plan_compaction(&self.ledger, &self.requests, Some(&wish), &LIMITS)
    }
}

/// What is planned.
type Plan = fn(&Churned) -> Compaction;

const PLANS: [(&str, Plan); 2] =
    [("join holes", Churned::join_holes), ("make room", Churned::make_room)];

fn criterion_figures(criterion: &mut Criterion) {
    for (machine, spec) in MACHINES {
        let mut group = criterion.benchmark_group(machine);
        for containers in CONTAINERS {
            for (name, step) in STEPS {
                let mut ledger = busy_machine(spec, containers);
                group.bench_function(format!("{containers} containers: {name}"), |bencher| {
                    bencher.iter(|| step(&mut ledger));
                });
            }
            for (name, part) in PARTS {
                let mut ledger = busy_machine(spec, containers);
                group.bench_function(format!("{containers} containers: {name}"), |bencher| {
                    bencher.iter_custom(|rounds| (0..rounds).map(|_| part(&mut ledger).0).sum());
                });
            }
        }
        group.finish();
    }
    for (machine, spec) in MACHINES {
        let mut group = criterion.benchmark_group(machine);
        group.sample_size(20).measurement_time(Duration::from_secs(2));
        let node = Churned::new(spec);
        for (name, plan) in PLANS {
            group.bench_function(format!("plan_compaction: {name}"), |bencher| {
                bencher.iter(|| plan(black_box(&node)));
            });
        }
        group.finish();
    }
}

/// One line per machine, number of containers and step.
fn table() {
    println!(
        "\n{:<10} {:>10}  {:<46} {:>10} {:>10} {:>8}",
        "machine", "containers", "offer, commit, release", "p50", "p99", "allocs"
    );
    for (machine, spec) in MACHINES {
        for containers in [0, 100, 250, 500] {
            for (name, step) in STEPS {
                let mut ledger = busy_machine(spec, containers);
                let measured = measure(ROUNDS, &mut || spent(|| step(&mut ledger)));
                print_line(machine, containers, name, measured);
            }
            for (name, part) in PARTS {
                let mut ledger = busy_machine(spec, containers);
                let measured = measure(ROUNDS, &mut || part(&mut ledger));
                print_line(machine, containers, name, measured);
            }
        }
    }
    for (machine, spec) in MACHINES {
        let node = Churned::new(spec);
        let containers = u64::try_from(node.requests.len()).unwrap();
        for (name, plan) in PLANS {
            let mut step = || spent(|| drop(black_box(plan(&node))));
            let name = format!("plan_compaction: {name}");
            print_line(machine, containers, &name, measure(PLAN_ROUNDS, &mut step));
        }
    }
}

fn print_line(machine: &str, containers: u64, name: &str, measured: (Duration, Duration, usize)) {
    let (p50, p99, allocations) = measured;
    let [p50, p99] = [p50, p99].map(|time| time.as_nanos() as f64 / 1e3);
    println!(
        "{machine:<10} {containers:>10}  {name:<46} {p50:>7.1} us {p99:>7.1} us {allocations:>8}"
    );
}

/// Median, 99th percentile, and how often memory is asked for.
fn measure(rounds: usize, step: &mut dyn FnMut() -> Spent) -> (Duration, Duration, usize) {
    for _ in 0..rounds / 8 {
        step();
    }
    let (_, allocations) = step();
    let mut times: Vec<Duration> = (0..rounds).map(|_| step().0).collect();
    times.sort_unstable();
    (times[rounds / 2], times[rounds * 99 / 100], allocations)
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    criterion_figures(&mut criterion);
    criterion.final_summary();
    table();
}
