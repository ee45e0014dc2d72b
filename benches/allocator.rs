//! Time of one decision on a large machine that is in use: offer, commit and release of one container on 224 CPUs holding 200 others.

#![allow(missing_docs, reason = "criterion's macros make undocumented items")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot be set up should stop")]

use std::hint::black_box;
use std::sync::Arc;

use bayplan_allocator::policy::topology_aware::pools;
use bayplan_allocator::{ContainerId, Demand, Ledger, Request, offer};
use bayplan_topology::{derive, parse_machine};
use bayplan_types::{Bytes, MilliCpu};
use criterion::{Criterion, criterion_group, criterion_main};

/// Two packages with four NUMA nodes of 14 cores each: 224 CPUs, one core reserved. Of the 200 containers a quarter own one or two
/// CPUs, the others share.
fn busy_machine() -> Ledger {
    let topology =
        derive(&parse_machine("pack:2 l3:1 numa:4 core:14 pu:2 mem:64").unwrap()).unwrap();
    let pools = pools(&topology, &"0,112".parse().unwrap()).unwrap();
    let mut ledger = Ledger::new(Arc::new(pools));
    for id in 0..200 {
        let demand = match id % 8 {
            0 => Demand::new(2, None),
            4 => Demand::new(1, Some(MilliCpu(500))),
            _ => Demand::new(0, Some(MilliCpu(250))),
        };
        hold(&mut ledger, &request(id, demand));
    }
    ledger
}

fn request(id: u64, demand: Demand) -> Request {
    Request { memory: Bytes::gib(1), ..Request::new(ContainerId(id), demand) }
}

fn hold(ledger: &mut Ledger, request: &Request) {
    let offer = offer(ledger, request).unwrap();
    ledger.commit(offer).unwrap();
}

fn allocator(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("224 CPUs, 200 containers");
    for (name, demand) in [
        ("4 exclusive CPUs", Demand::new(4, None)),
        ("1 exclusive CPU and a shared part", Demand::new(1, Some(MilliCpu(500)))),
        ("shared", Demand::new(0, Some(MilliCpu(500)))),
        ("60 exclusive CPUs over several nodes", Demand::new(60, None)),
    ] {
        let mut ledger = busy_machine();
        let wanted = request(1000, demand);
        group.bench_function(format!("offer, commit, release: {name}"), |bencher| {
            bencher.iter(|| {
                hold(&mut ledger, black_box(&wanted));
                ledger.release(wanted.id)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, allocator);
criterion_main!(benches);
