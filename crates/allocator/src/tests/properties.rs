//! Invariants over random machines and histories.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_types::{Bytes, CpuSet, MilliCpu};
use proptest::prelude::*;

use super::{machine, request, wish};
use crate::search::{Question, Search, Standing};
use crate::*;

/// What a history does next.
#[derive(Clone, Debug)]
enum Op {
    Create {
        exclusive: usize,
        shared: Option<u64>,
        gib: u64,
        limit: Option<u64>,
        reserved: bool,
        wishes: Vec<&'static str>,
    },
    Release(usize),
    Resize {
        which: usize,
        exclusive: usize,
        shared: Option<u64>,
    },
    Restart,
    Narrow,
}

/// Half of the containers wish nothing.
fn any_wishes() -> impl Strategy<Value = Vec<&'static str>> {
    const WISHES: [&str; 32] = [
        "idle",
        "shared",
        "spread",
        "whole",
        "apart:Core",
        "apart:Core!",
        "apart:L3",
        "apart:L3!",
        "apart:Numa!",
        "isolated",
        "isolated!",
        "kind:E",
        "priority:High",
        "within:Numa",
        "even",
        "hide",
        "bound",
        "memory:Hbm",
        "near:0",
        "near:1!",
        "with:1",
        "without:2",
        "preserve",
        "keep-mems",
        "immovable",
        "mate:1",
        "rest:3",
        "restmem:2",
        "one!",
        "within:fewest",
        "huge2M:1",
        "huge1G:2",
    ];
    let some = prop::collection::vec(prop::sample::select(&WISHES[..]), 1..4);
    prop_oneof![Just(Vec::new()), some]
}

fn any_op() -> impl Strategy<Value = Op> {
    let shared = || prop::option::of(0u64..4000);
    prop_oneof![
        5 => (
            0usize..9, shared(), 0u64..12, prop::option::of(0u64..40), prop::bool::weighted(0.1),
            any_wishes(),
        )
            .prop_map(|(exclusive, shared, gib, limit, reserved, wishes)| Op::Create {
                exclusive, shared, gib, limit, reserved, wishes
            }),
        3 => any::<usize>().prop_map(Op::Release),
        1 => (any::<usize>(), 0usize..12, shared())
            .prop_map(|(which, exclusive, shared)| Op::Resize { which, exclusive, shared }),
        1 => Just(Op::Restart),
        1 => Just(Op::Narrow),
    ]
}

fn any_machine() -> impl Strategy<Value = (String, String)> {
    let shape = (1u32..4, 1u32..3, 1u32..3, 1u32..4, 1u32..5, 1u32..3, any::<bool>());
    let extra = prop::sample::select(vec![
        "",
        "",
        "",
        " ecore:3",
        " pmem:16/pack",
        " hbm:2",
        " cxl:8/machine",
        " huge:2M=512",
        " huge:1G=2",
        " fast:1",
    ]);
    (shape, prop::bool::ANY, prop::bool::weighted(0.2), extra, prop::option::weighted(0.2, 1u32..4))
        .prop_map(
            |((pack, die, numa, l3, core, pu, l3_first), reserve, isolate, extra, offline)| {
                let middle = if l3_first {
                    format!("l3:{l3} numa:{numa}")
                } else {
                    format!("numa:{numa} l3:{l3}")
                };
                let cpus = pack * die * numa * l3 * core * pu;
                let mut line = format!("pack:{pack} die:{die} {middle} core:{core} pu:{pu} mem:8");
                if isolate && cpus > 2 {
                    line.push_str(&format!(" isolated:{}", cpus - 1));
                }
                if cpus > 4 {
                    line.push_str(extra);
                    line.push_str(
                        &offline.map(|cpu| format!(" offline:{cpu}")).unwrap_or_default(),
                    );
                }
                (line, if reserve && cpus > 2 { "0".to_owned() } else { String::new() })
            },
        )
}

fn restarted(ledger: &Ledger) -> Ledger {
    let mut again = Ledger::new(Arc::new(ledger.pools().clone()));
    for (id, allocation) in ledger.allocations() {
        again.adopt(id, allocation.clone()).unwrap();
    }
    again
}

/// Narrows until nobody can do with fewer nodes; that ends, and nobody else is touched.
fn narrow_all(
    ledger: &mut Ledger,
    requests: &BTreeMap<ContainerId, Request>,
) -> Result<(), TestCaseError> {
    let mut plan = plan_narrowing(ledger, |id| requests.get(&id).cloned());
    while let Some(first) = plan.first().cloned() {
        let before = ledger.clone();
        ledger.narrow(&first).unwrap();
        prop_assert!(first.to.is_subset(&first.from) && first.to != first.from);
        let wanted = &requests[&first.container];
        let (now, then) = (ledger.allocation(first.container), before.allocation(first.container));
        let (now, then) = (now.unwrap(), then.unwrap());
        let set_aside: Bytes = now.charges.iter().map(|(_, bytes)| *bytes).sum();
        prop_assert_eq!(set_aside, wanted.memory);
        let lacking = |held: &Allocation| -> Bytes {
            held.huge_pages_lacking(wanted).into_iter().map(|(_, bytes)| bytes).sum()
        };
        prop_assert!(lacking(now) <= lacking(then));
        for (id, held) in ledger.allocations().filter(|(id, _)| *id != first.container) {
            prop_assert_eq!(before.allocation(id), Some(held));
        }
        prop_assert!(ledger.narrow(&first).is_err());
        plan = plan_narrowing(ledger, |id| requests.get(&id).cloned());
        prop_assert!(plan.iter().all(|next| next.container != first.container));
    }
    Ok(())
}

/// Exclusive CPUs given may starve nobody: each pool keeps shared CPUs for what is requested on it, unless shared requests alone
/// were already more than the pool has.
fn check_room(ledger: &Ledger, before: &Ledger) -> Result<(), TestCaseError> {
    for pool in ledger.pools().iter() {
        let room = |ledger: &Ledger| MilliCpu::from_cpus(ledger.shared_cpus(pool.id).len());
        let has_grown = ledger.shared_requests(pool.id) > before.shared_requests(pool.id);
        let shrank = room(ledger) < room(before);
        if shrank && !has_grown {
            prop_assert!(ledger.shared_requests(pool.id) <= room(ledger), "pool {}", pool.name);
        }
    }
    Ok(())
}

/// A pool of which it was not worked out who would have to move would not have won.
fn check_skipped(ledger: &Ledger, wanted: &Request, offer: &Offer) -> Result<(), TestCaseError> {
    let question = Question::new(ledger, wanted);
    let search = Search::new(&question);
    let won = offer.considered().iter().filter_map(|row| row.outcome.as_ref().ok()).max();
    for row in offer.considered() {
        if row.outcome != Err(Rejection::NotWorthMoves) {
            continue;
        }
        let pool = ledger.pools().get(row.pool).unwrap();
        let Ok(Standing::Short(short)) = search.score(pool) else {
            prop_assert!(false, "{} is not short", pool.name);
            continue;
        };
        if let Ok(candidate) = search.score_with_room(pool, &short) {
            prop_assert!(candidate.score <= short.at_best, "{}", pool.name);
            prop_assert!(Some(&candidate.score) < won, "{}", pool.name);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2500))]

    #[test]
    fn any_history_on_any_machine_keeps_every_invariant(
        (line, reserved) in any_machine(),
        ops in prop::collection::vec(any_op(), 1..40),
    ) {
        let mut ledger = machine(&line, &reserved).unwrap();
        let initial = ledger.holdings().clone();
        let mut live: Vec<ContainerId> = Vec::new();
        let mut requests = BTreeMap::new();
        for (step, op) in ops.into_iter().enumerate() {
            let before = ledger.clone();
            match op {
                Op::Create { exclusive, shared, gib, limit, reserved, wishes } => {
                    let mut wanted = request(step as u64, exclusive, shared);
                    wanted.memory = Bytes::gib(gib);
                    wanted.memory_limit = limit.map(Bytes::gib);
                    wanted.is_reserved = reserved;
                    wanted.owner.pod = step as u64 / 3;
                    wishes.iter().for_each(|word| wish(&mut wanted, word));
                    prop_assert_eq!(offer(&ledger, &wanted), offer(&ledger, &wanted));
                    if let Ok(offer) = offer(&ledger, &wanted) {
                        check_skipped(&ledger, &wanted, &offer)?;
                        let allocation = offer.allocation().clone();
                        ledger.commit(offer).unwrap();
                        if !allocation.is_reserved && !wanted.wishes.preserve.cpus {
                            prop_assert_eq!(allocation.exclusive.len(), exclusive);
                        }
                        live.push(wanted.id);
                        requests.insert(wanted.id, wanted);
                    } else {
                        // Only memory or exclusive CPUs can be lacking: a shared part always fits somewhere.
                        prop_assert!(exclusive > 0 || gib > 0 || !wishes.is_empty());
                    }
                }
                Op::Release(which) if !live.is_empty() => {
                    let id = live.swap_remove(which % live.len());
                    prop_assert!(ledger.release(id).is_some());
                    prop_assert!(ledger.release(id).is_none());
                }
                Op::Resize { which, exclusive, shared } if !live.is_empty() => {
                    let id = live[which % live.len()];
                    let held = ledger.release(id).unwrap();
                    let mut wanted = request(id.0, exclusive, shared);
                    wanted.previous =
                        Some(Previous { pool: held.pool, exclusive: held.exclusive.clone() });
                    match offer(&ledger, &wanted) {
                        Ok(offer) => {
                            let now = offer.allocation().exclusive.clone();
                            prop_assert_eq!(now.len(), exclusive);
                            // Without the wish, isolated CPUs are given back.
                            let held = ledger.pools().ownable(&held.exclusive).intersection(&ledger.pools().allocatable());
                            prop_assert!(now.is_subset(&held) || held.is_subset(&now));
                            ledger.commit(offer).unwrap();
                            requests.insert(id, wanted);
                        }
                        Err(_) => ledger.adopt(id, held).unwrap(),
                    }
                }
                Op::Restart => {
                    let again = restarted(&ledger);
                    prop_assert_eq!(again.holdings(), ledger.holdings());
                    ledger = again;
                }
                Op::Narrow => narrow_all(&mut ledger, &requests)?,
                _ => {}
            }
            prop_assert_eq!(check_ledger(&ledger), Vec::<String>::new());
            check_room(&ledger, &before)?;
        }
        for id in live {
            ledger.release(id);
        }
        prop_assert_eq!(ledger.holdings(), &initial);
    }

    #[test]
    fn a_larger_machine_never_refuses_what_a_smaller_one_took(
        (pack, numa, core, pu, more) in (1u32..3, 1u32..3, 1u32..5, 1u32..3, 1u32..3),
        ops in prop::collection::vec((0usize..6, prop::option::of(0u64..2000), any::<prop::sample::Index>(), any::<bool>()), 1..25),
    ) {
        let line = |pack| format!("pack:{pack} numa:{numa} core:{core} pu:{pu}");
        let mut small = machine(&line(pack), "").unwrap();
        let mut large = machine(&line(pack + more), "").unwrap();
        let mut live = Vec::new();
        for (id, (exclusive, shared, which, leaves)) in (0..).zip(ops) {
            let wanted = request(id, exclusive, shared);
            if let Ok(taken) = offer(&small, &wanted) {
                small.commit(taken).unwrap();
                let on_large = offer(&large, &wanted);
                prop_assert!(on_large.is_ok(), "{}: {:?}", wanted.demand, on_large);
                large.commit(on_large.unwrap()).unwrap();
                live.push(wanted.id);
            }
            if leaves && !live.is_empty() {
                let id = live.swap_remove(which.index(live.len()));
                small.release(id).unwrap();
                large.release(id).unwrap();
            }
        }
    }

    #[test]
    fn equal_containers_in_another_order_get_the_same_places(
        (line, reserved) in any_machine(),
        demands in prop::collection::vec((0usize..5, prop::option::of(0u64..2000)), 1..12),
    ) {
        let places = |renamed: fn(u64) -> u64| {
            let mut ledger = machine(&line, &reserved).unwrap();
            let mut places = Vec::new();
            for (id, (exclusive, shared)) in (0..).zip(&demands) {
                if let Ok(offer) = offer(&ledger, &request(renamed(id), *exclusive, *shared)) {
                    places.push(offer.allocation().clone());
                    ledger.commit(offer).unwrap();
                }
            }
            (places, ledger.free().clone())
        };
        prop_assert_eq!(places(|id| id), places(|id| 1000 - id));
    }

    #[test]
    fn pools_form_a_tree_of_disjoint_children((line, reserved) in any_machine()) {
        let ledger = machine(&line, &reserved).unwrap();
        for pool in ledger.pools().iter() {
            let mut seen = CpuSet::new();
            for child in pool.children.iter().filter_map(|id| ledger.pools().get(*id)) {
                prop_assert!(child.cpus.is_subset(&pool.cpus) && child.cpus != pool.cpus);
                prop_assert!(child.cpus.is_disjoint(&seen));
                seen.union_with(&child.cpus);
            }
        }
        let names: std::collections::BTreeSet<_> =
            ledger.pools().iter().map(|pool| &pool.name).collect();
        prop_assert_eq!(names.len(), ledger.pools().iter().count());
    }
}
