//! Placement by example. Properties over random machines and histories are in [`properties`], the comparison with brute force in [`exact`].

mod cores;
mod exact;
mod groups;
mod memory;
mod near;
mod peers;
mod pods;
mod properties;
mod requirements;
mod set_apart;
mod sharing;
mod zones;

use std::sync::Arc;

use bayplan_topology::{Level, derive, parse_machine};
use bayplan_types::{Bytes, CoreKind, CpuId, CpuPriority, CpuSet, MemoryKind, MilliCpu, NodeId};
use expect_test::{Expect, expect};

use crate::policy::{Policy, pools};
use crate::*;

/// `one-shared-pool` before the machine is that policy.
fn split_policy(line: &str) -> (&str, Policy) {
    match line.strip_prefix("one-shared-pool ") {
        Some(rest) => (rest, Policy::OneSharedPool),
        None => (line, Policy::TopologyAware),
    }
}

fn machine(line: &str, reserved: &str) -> Option<Ledger> {
    let (line, policy) = split_policy(line);
    let topology = derive(&parse_machine(line).unwrap()).unwrap();
    let pools = pools(&topology, policy, &reserved.parse().unwrap()).ok()?;
    Some(Ledger::new(Arc::new(pools)))
}

fn request(id: u64, exclusive: usize, shared: Option<u64>) -> Request {
    Request::new(ContainerId(id), Demand::new(exclusive, shared.map(MilliCpu)))
}

/// One line per step: `ID EXCLUSIVE+SHARED [WISH]...`, `-ID` to release, or `ID=EXCLUSIVE+SHARED [WISH]...` to resize.
fn check(line: &str, reserved: &str, steps: &[&str], expected: Expect) {
    let mut ledger = machine(line, reserved).unwrap();
    let mut text = String::new();
    for step in steps {
        text.push_str(&format!("{step}: {}\n", play(&mut ledger, step)));
    }
    expected.assert_eq(&text);
}

/// A word of a step: `NAME`, `NAME:VALUE`, with `!` at the end where it is required.
fn wish(wanted: &mut Request, word: &str) {
    let strictness = if word.ends_with('!') { Strictness::Required } else { Strictness::Preferred };
    let (name, value) = word.trim_end_matches('!').split_once(':').unwrap_or((word, ""));
    let level = |name: &str| Level::ALL.into_iter().find(|it| it.name().starts_with(name)).unwrap();
    let gib = |value: &str| Bytes::gib(value.parse().unwrap());
    let Wishes { cpus, memory, place, pod, preserve, claimed, is_immovable } = &mut wanted.wishes;
    match name.trim_end_matches('!') {
        "mem" => wanted.memory = gib(value),
        "expects" => (wanted.memory, wanted.memory_is_expected) = (gib(value), true),
        "limit" => wanted.memory_limit = Some(gib(value)),
        "ceiling" => wanted.ceiling = Some(MilliCpu(value.parse().unwrap())),
        "huge2M" => drop(wanted.huge_pages.insert(Bytes(2 << 20), gib(value))),
        "huge1G" => drop(wanted.huge_pages.insert(Bytes::gib(1), gib(value))),
        "reserved" => wanted.is_reserved = true,
        "pod" => wanted.owner.pod = value.parse().unwrap(),
        "ns" => wanted.owner.namespace = value.parse().unwrap(),
        "claimed" => *claimed = value.parse().unwrap(),
        "idle" => cpus.siblings = Siblings::Idle,
        "shared" => cpus.siblings = Siblings::Shared,
        "spread" => cpus.packing = Packing::Spread,
        "each-core" => cpus.packing = Packing::OnePerCore,
        "whole" => cpus.only_whole_cores = true,
        "apart" => cpus.apart = Some((level(value), strictness)),
        "isolated" => cpus.isolated = Some(strictness),
        "kind" => {
            let kind = CoreKind::ALL.into_iter().find(|it| it.name().starts_with(value)).unwrap();
            cpus.core_kind = Some((kind, strictness));
        }
        "priority" => {
            let priority = CpuPriority::ALL.into_iter().find(|it| it.name().starts_with(value));
            cpus.priority = Some((priority.unwrap(), strictness));
        }
        "fewest" => cpus.within = Some(Within::Fewest(level(value))),
        "within" => cpus.within = Some(Within::One(level(value))),
        "mate" => pod.mates.push(ContainerId(value.parse().unwrap())),
        "rest" => pod.rest = MilliCpu(value.parse::<u64>().unwrap() * 1000),
        "restmem" => pod.rest_memory = gib(value),
        "one" => (pod.is_one, pod.is_rest_sure) = (true, strictness == Strictness::Required),
        "even" => cpus.is_even = true,
        "avoid" => cpus.avoids.push(value.parse().unwrap()),
        "balance" => place.is_balanced = true,
        "hide" => cpus.hides_hyperthreads = true,
        "bound" => memory.is_bound = true,
        "cold" => memory.cold_start = ColdStart::Cold,
        "warm" => memory.cold_start = ColdStart::Over,
        "memory" => {
            let kind = MemoryKind::ALL.into_iter().find(|it| it.name().starts_with(value)).unwrap();
            memory.kinds.push(kind);
        }
        "near" => place.near.push(Near {
            name: format!("device at {value}"),
            cpus: CpuSet::new(),
            nodes: value.parse().unwrap(),
            strictness,
        }),
        "each" => place.is_near_each = true,
        "with" => place.affinity.push((ContainerId(value.parse().unwrap()), 100)),
        "without" => place.affinity.push((ContainerId(value.parse().unwrap()), -100)),
        "burst" => place.burst_level = Some(level(value)),
        "preserve" => preserve.cpus = true,
        "keep-mems" => preserve.memory = true,
        "immovable" => *is_immovable = true,
        "group" => pod.part = Part::Group,
        "in" => pod.part = Part::Member(ContainerId(value.parse().unwrap())),
        "inside" => pod.part = Part::Inside(ContainerId(value.parse().unwrap())),
        "exactly" => cpus.exactly = value.parse().unwrap(),
        other => unreachable!("no wish is called {other}"),
    }
}

/// What a step asks for, and whether a container is resized.
fn parse_step(step: &str) -> (Request, bool) {
    let mut words = step.split_whitespace();
    let first = words.next().unwrap();
    let (id, demand, is_resize) = match first.split_once('=') {
        Some((id, demand)) => (id, demand, true),
        None => (first, words.next().unwrap(), false),
    };
    let (exclusive, shared) = demand.split_once('+').unwrap_or((demand, ""));
    let mut wanted = request(id.parse().unwrap(), exclusive.parse().unwrap(), shared.parse().ok());
    words.for_each(|word| wish(&mut wanted, word));
    (wanted, is_resize)
}

/// NUMA nodes in the order of their numbers, with their CPUs.
fn nodes_with_cpus(pools: &Pools) -> Vec<(NodeId, CpuSet)> {
    let is_of =
        |node: NodeId| move |cpu: &CpuId| pools.nodes_of(&CpuSet::from(*cpu)).contains(node);
    let cpus = |node: NodeId| pools.cpus().iter().filter(is_of(node)).collect();
    pools.memory_nodes().iter().map(|node| (node, cpus(node))).collect()
}

fn play(ledger: &mut Ledger, step: &str) -> String {
    if let Some(id) = step.strip_prefix('-') {
        ledger.release(ContainerId(id.parse().unwrap())).unwrap();
        return format!("shared {}", ledger.free());
    }
    let (mut wanted, is_resize) = parse_step(step);
    if is_resize && ledger.group(wanted.id).is_some() {
        wanted.wishes.pod.part = Part::Group;
        let resized = ledger.resize_group(&wanted).map(|_| ());
        let cpus = ledger.group_cpus(wanted.id);
        return format!("{cpus}{}", resized.err().map(|why| refused(&why)).unwrap_or_default());
    }
    if is_resize {
        let held = ledger.release(wanted.id).unwrap();
        wanted.previous = Some(Previous { pool: held.pool, exclusive: held.exclusive });
    }
    match offer(ledger, &wanted) {
        Ok(offer) => {
            let allocation = offer.allocation().clone();
            ledger.commit(offer).unwrap();
            let pool = &ledger.pools().get(allocation.pool).unwrap().name;
            let cpus = ledger.cpus_of(&allocation);
            let idle = match allocation.idle.is_empty() {
                true => String::new(),
                false => format!(", idle {}", allocation.idle),
            };
            let (exclusive, mems) = (&allocation.exclusive, &allocation.mems);
            format!("{pool}, owns [{exclusive}] of {cpus}{idle}, mems {mems}")
        }
        Err(refusal) => refused(&refusal),
    }
}

fn refused(refusal: &Refusal) -> String {
    match &refusal.considered[0].outcome {
        Err(rejection) => format!("refused: {rejection}"),
        Ok(_) => unreachable!("a refusal with a pool that fits"),
    }
}

#[test]
fn a_resize_stays_where_it_is() {
    check(
        "pack:2 numa:1 core:8 pu:2",
        "",
        &["1 4", "2 2", "-1", "1 2", "1=6", "1=3", "2=20", "3 0+500", "3=0+700"],
        expect![[r#"
            1 4: package 0, owns [1-2,17-18] of 1-2,17-18, mems 0
            2 2: package 0, owns [3,19] of 3,19, mems 0
            -1: shared 0-2,4-18,20-31
            1 2: package 0, owns [1,17] of 1,17, mems 0
            1=6: package 0, owns [1-2,4,17-18,20] of 1-2,4,17-18,20, mems 0
            1=3: package 0, owns [1-2,17] of 1-2,17, mems 0
            2=20: machine, owns [3-4,8-15,19-20,24-31] of 3-4,8-15,19-20,24-31, mems 0-1
            3 0+500: package 0, owns [] of 0,5-7,16,18,21-23, mems 0
            3=0+700: package 0, owns [] of 0,5-7,16,18,21-23, mems 0
        "#]],
    );
}

#[test]
fn a_stale_offer_is_refused() {
    let mut ledger = machine("core:4", "").unwrap();
    let first = offer(&ledger, &request(1, 1, None)).unwrap();
    let second = offer(&ledger, &request(2, 1, None)).unwrap();
    ledger.commit(first).unwrap();
    let before = ledger.holdings().clone();
    assert_eq!(ledger.commit(second), Err(StaleOffer { made_at: 0, current: 1 }));
    assert_eq!(*ledger.holdings(), before);
}

#[test]
fn adopting_what_is_not_free_is_refused() {
    let mut ledger = machine("pack:2 core:2", "").unwrap();
    let allocation = |exclusive: &str, shared| Allocation {
        exclusive: exclusive.parse().unwrap(),
        shared,
        mems: "7".parse().unwrap(),
        ..Allocation::new(PoolId::MACHINE)
    };
    let mut adopt = |id, exclusive, shared| {
        ledger.adopt(ContainerId(id), allocation(exclusive, shared)).map_err(|e| e.to_string())
    };
    assert_eq!(adopt(1, "1", None), Ok(()));
    assert_eq!(adopt(1, "2", None), Err("#1 is already in the ledger".to_owned()));
    assert_eq!(adopt(2, "0-2", None), Err("CPUs 1 are not free".to_owned()));
    assert_eq!(adopt(2, "", None), Err("the allocation is empty".to_owned()));
    let starve = "pool `machine` would have no shared CPU left".to_owned();
    assert_eq!(adopt(2, "0,2-3", None), Err(starve));
    assert_eq!(adopt(2, "2", Some(MilliCpu(5))), Ok(()));
}

#[test]
fn the_winner_says_why_the_others_lost() {
    let ledger = machine("pack:2 numa:2 core:4 pu:2", "").unwrap();
    let offer = offer(&ledger, &request(1, 3, None)).unwrap();
    let mut scores: Vec<&Score> =
        offer.considered().iter().filter_map(|c| c.outcome.as_ref().ok()).collect();
    scores.sort();
    let winner = scores.pop().unwrap();
    let lost: Vec<String> = scores.iter().filter_map(|score| score.loses_to(winner)).collect();
    expect![[r#"
        [
            "spans 4 NUMA nodes, not 1",
            "spans 2 NUMA nodes, not 1",
            "spans 2 NUMA nodes, not 1",
            "equal; the lower pool wins",
            "equal; the lower pool wins",
            "equal; the lower pool wins",
        ]
    "#]]
    .assert_debug_eq(&lost);
}

#[test]
fn moves_are_not_worked_out_for_pools_that_lose_anyway() {
    let mut ledger = machine("numa:2 core:4 pu:2", "").unwrap();
    for step in ["1 0+6000", "2 0+2000", "3 0+500"] {
        play(&mut ledger, step);
    }
    let mut wanted = request(4, 4, None);
    wish(&mut wanted, "near:1");
    let offer = offer(&ledger, &wanted).unwrap();
    let outcome = |row: &Considered| match &row.outcome {
        Ok(score) => format!("{} NUMA nodes, moved {:?}", score.numa_nodes.0, score.moved.0),
        Err(rejection) => rejection.to_string(),
    };
    let outcomes: Vec<String> = offer.considered().iter().map(outcome).collect();
    expect![[r#"
        2 NUMA nodes, moved (0, MilliCpu(0))
        shared containers would have to move, and it would still lose
        1 NUMA nodes, moved (0, MilliCpu(0))"#]]
    .assert_eq(&outcomes.join("\n"));
}
