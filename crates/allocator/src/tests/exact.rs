//! Brute force on small machines: of every pool and every set of CPUs that sharers can do without, the one that was chosen is the best
//! under the score.

use std::cmp::Reverse;

use bayplan_topology::Level;
use bayplan_types::CpuSet;
use proptest::prelude::*;

use super::{machine, request};
use crate::*;

/// The criteria of the score that depend on the pool and on the CPUs, in their order.
/// Last, the L3s: kubelet's `prefer-align-cpus-by-uncorecache` spans the fewest.
type Worth = [Reverse<usize>; 6];

/// Where cores have different numbers of threads, the number of split cores is the answer to a knapsack problem that the picker does not
/// solve; the NUMA nodes are the fewest all the same.
fn worth(ledger: &Ledger, pool: &Pool, cpus: &CpuSet) -> Worth {
    let pools = ledger.pools();
    let cores = || pools.cores.iter().map(|core| core.threads.iter().copied().collect::<CpuSet>());
    let split = cores().filter(|core| core.intersects(cpus) && !core.is_subset(cpus));
    let is_whole = |core: &CpuSet| core.is_subset(ledger.free());
    let is_uniform = pools.cores.iter().all(|core| core.threads.len() == pools.width);
    if !is_uniform {
        return [pool.nodes.len(), pools.nodes_of(cpus).len(), 0, 0, 0, 0].map(Reverse);
    }
    let domains = |at| pools.domains.iter().filter(move |(level, _)| *level == at);
    // Over several packages or nodes as much as possible lies in one of them, which may cost an L3.
    let is_in_one = |at| domains(at).any(|(_, domain)| cpus.is_subset(domain));
    let l3s = match is_in_one(Level::NumaNode)
        || pools.nodes_of(cpus).is_empty() && is_in_one(Level::Package)
    {
        true => domains(Level::L3).filter(|(_, l3)| l3.intersects(cpus)).count(),
        false => 0,
    };
    [
        pool.nodes.len(),
        pools.nodes_of(cpus).len(),
        split.clone().count(),
        pool.cpus.len(),
        split.filter(is_whole).count(),
        l3s,
    ]
    .map(Reverse)
}

/// Whether the sharers of every pool can do without these CPUs.
fn is_spare(ledger: &Ledger, cpus: &CpuSet) -> bool {
    ledger.pools().iter().zip(ledger.loads()).all(|(pool, load)| {
        let shared = ledger.shared_cpus(pool.id).len();
        let taken = pool.cpus.intersection_len(cpus);
        taken == 0 || taken + load.cpus_kept(pool) <= shared
    })
}

/// Every set of `count` of the shared CPUs.
fn subsets(free: &CpuSet, count: usize) -> Vec<CpuSet> {
    let cpus: Vec<_> = free.iter().collect();
    let masks = (0u32..1 << cpus.len()).filter(|mask| mask.count_ones() as usize == count);
    masks
        .map(|mask| (0..cpus.len()).filter(|at| mask >> at & 1 == 1).map(|at| cpus[at]).collect())
        .collect()
}

fn brute_force(ledger: &Ledger, count: usize) -> Option<Worth> {
    let spare = subsets(ledger.free(), count).into_iter().filter(|cpus| is_spare(ledger, cpus));
    let worths = spare.flat_map(|cpus| {
        let pools = ledger.pools().iter().filter(|pool| cpus.is_subset(&pool.cpus));
        pools.map(|pool| worth(ledger, pool, &cpus)).collect::<Vec<_>>()
    });
    worths.max()
}

fn small_machine() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec![
        "core:4 pu:2",
        "numa:2 core:3 pu:2",
        "numa:3 core:2 pu:2",
        "pack:2 numa:2 core:3",
        "numa:1 l3:3 core:2 pu:2",
        "pack:2 l3:2 core:3",
        "numa:2 core:4,2 pu:2",
        "pack:2 numa:2 core:1,2,1,2 pu:2",
        "l3:2 core:2,1 pu:2",
        "numa:2 core:2 pu:3",
        "numa:4 core:3",
        "pack:2 numa:1 l3:2 core:3",
    ]);
    (line, prop::option::of(0u32..6)).prop_map(|(line, offline)| match offline {
        Some(cpu) => format!("{line} offline:{cpu}"),
        None => line.to_owned(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_chosen_cpus_are_the_best_under_the_score(
        line in small_machine(),
        history in prop::collection::vec((0usize..4, prop::option::of(0u64..900), prop::bool::weighted(0.3)), 0..7),
        count in 1usize..7,
    ) {
        let mut ledger = machine(&line, "").unwrap();
        for (id, (exclusive, shared, leaves)) in (0..).zip(history) {
            if let Ok(offer) = offer(&ledger, &request(id, exclusive, shared)) {
                ledger.commit(offer).unwrap();
            }
            if leaves {
                ledger.release(ContainerId(id / 2));
            }
        }
        let best = brute_force(&ledger, count);
        match offer(&ledger, &request(1000, count, None)) {
            Ok(offer) if offer.moves().is_empty() => {
                let allocation = offer.allocation();
                let pool = ledger.pools().get(allocation.pool).unwrap();
                let chosen = worth(&ledger, pool, &allocation.exclusive);
                prop_assert!(is_spare(&ledger, &allocation.exclusive));
                prop_assert!(Some(chosen) >= best, "{line}: chose {} in {}, {chosen:?}; best is {best:?}", allocation.exclusive, pool.name);
            }
            // With moves a better place is made than any that is there.
            Ok(_) => {}
            Err(_) => prop_assert!(best.is_none(), "{line}: refused, but {best:?} is there"),
        }
    }
}
