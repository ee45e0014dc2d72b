//! Time and memory of the allocator's decisions on machines of 112 to 1,024 CPUs that hold 0, 100 and 500 containers.
//!
//! After criterion's figures comes a table of single calls: median and 99th percentile of the wall time, and how often memory was asked
//! for. Times of single calls include what else the machine was doing; compare medians.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot be set up should stop")]
#![allow(clippy::print_stdout, reason = "the table is what it is for")]

use std::alloc::System;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bayplan_allocator::policy::topology_aware::pools;
use bayplan_allocator::{ContainerId, Demand, Ledger, Previous, Request, Score, offer};
use bayplan_topology::{derive, parse_machine};
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

/// One core is reserved. One in sixteen containers owns two CPUs, another owns one and shares, until a quarter of the machine is owned;
/// the rest share.
fn busy_machine(spec: &str, containers: u64) -> Ledger {
    let topology = derive(&parse_machine(spec).unwrap()).unwrap();
    let reserved: CpuSet = topology.cores()[0].clone();
    let pools = pools(&topology, &reserved).unwrap();
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

fn explain(ledger: &mut Ledger) {
    let offer = offer(ledger, &request(NEWCOMER, Demand::new(4, None))).unwrap();
    let scores =
        offer.considered().iter().filter_map(|considered| considered.outcome.as_ref().ok());
    let winner: &Score = scores.clone().max().unwrap();
    black_box(scores.filter_map(|score| score.loses_to(winner)).collect::<Vec<_>>());
}

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
                let (p50, p99, allocations) = measure(&mut ledger, step);
                let [p50, p99] = [p50, p99].map(|time| time.as_nanos() as f64 / 1e3);
                println!(
                    "{machine:<10} {containers:>10}  {name:<46} {p50:>7.1} us {p99:>7.1} us {allocations:>8}"
                );
            }
        }
    }
}

fn measure(ledger: &mut Ledger, step: Step) -> (Duration, Duration, usize) {
    (0..ROUNDS / 8).for_each(|_| step(ledger));
    let region = Region::new(ALLOCATOR);
    step(ledger);
    let allocations = region.change().allocations;
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            step(ledger);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    (times[ROUNDS / 2], times[ROUNDS * 99 / 100], allocations)
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    criterion_figures(&mut criterion);
    criterion.final_summary();
    table();
}
