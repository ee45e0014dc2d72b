//! Placement by example. Properties over random machines and histories are in [`properties`], the comparison with brute force in [`exact`].

mod exact;
mod groups;
mod memory;
mod peers;
mod pods;
mod properties;
mod requirements;
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
fn whole_cores_in_the_tightest_domain() {
    check(
        "pack:2 numa:2 core:4 pu:2",
        "0,16",
        &["1 2", "2 4", "3 8", "4 3", "5 10", "6 1", "7 0+500"],
        expect![[r#"
            1 2: numa 0, owns [1,17] of 1,17, mems 0
            2 4: numa 0, owns [2-3,18-19] of 2-3,18-19, mems 0
            3 8: numa 1, owns [4-7,20-23] of 4-7,20-23, mems 1
            4 3: numa 2, owns [8-9,24] of 8-9,24, mems 2
            5 10: package 1, owns [10,12-15,26,28-31] of 10,12-15,26,28-31, mems 2-3
            6 1: numa 2, owns [25] of 25, mems 2
            7 0+500: numa 2, owns [] of 11,27, mems 2
        "#]],
    );
}

#[test]
fn what_is_odd_goes_to_a_core_that_is_broken_or_has_fewer_threads() {
    // The last share of several L3s.
    check(
        "numa:1 l3:3 core:2 pu:2",
        "",
        &["1 3", "2 5"],
        expect![[r#"
        1 3: l3 0, owns [0-1,7] of 0-1,7, mems 0
        2 5: machine, owns [2-3,6,8-9] of 2-3,6,8-9, mems 0
    "#]],
    );
    // Two of three threads: one core is split, not two.
    check(
        "numa:2 core:2 pu:3",
        "",
        &["1 1", "2 2", "3 2"],
        expect![[r#"
        1 1: numa 0, owns [1] of 1, mems 0
        2 2: numa 0, owns [5,9] of 5,9, mems 0
        3 2: numa 0, owns [0,4] of 0,4, mems 0
    "#]],
    );
    // A core that has lost a thread.
    check(
        "numa:1 core:4 pu:2 offline:6",
        "",
        &["1 4", "2 1"],
        expect![[r#"
        1 4: machine, owns [1,3,5,7] of 1,3,5,7, mems 0
        2 1: machine, owns [2] of 2, mems 0
    "#]],
    );
}

#[test]
fn several_l3s_in_a_node_are_tighter_than_the_node() {
    check(
        "pack:1 numa:1 l3:4 core:4 pu:2",
        "",
        &["1 4", "2 8", "3 2", "4 6", "5 12"],
        expect![[r#"
            1 4: l3 0, owns [1-2,17-18] of 1-2,17-18, mems 0
            2 8: l3 1, owns [4-7,20-23] of 4-7,20-23, mems 0
            3 2: l3 0, owns [3,19] of 3,19, mems 0
            4 6: l3 2, owns [8-10,24-26] of 8-10,24-26, mems 0
            5 12: refused: needs 12 exclusive CPUs; 11 are free
        "#]],
    );
}

#[test]
fn shared_parts_keep_a_cpu_and_spread() {
    check(
        "pack:2 core:2 pu:1",
        "",
        &["1 0+0", "2 0+0", "3 0+1500", "4 1", "5 1", "6 1", "-4", "7 0+9000"],
        expect![[r#"
            1 0+0: package 0, owns [] of 0-1, mems 
            2 0+0: package 1, owns [] of 2-3, mems 
            3 0+1500: package 0, owns [] of 0-1, mems 
            4 1: package 1, owns [2] of 2, mems 
            5 1: package 1, owns [3] of 3, mems 
            6 1: refused: needs 1 exclusive CPU; 0 are free
            -4: shared 0-2
            7 0+9000: package 1, owns [] of 2, mems 
        "#]],
    );
}

#[test]
fn shared_containers_make_room_for_exclusive_ones() {
    check(
        "pack:1 numa:2 core:4",
        "",
        &["1 0+3000", "2 0+500", "3 4", "4 0+100", "5 1", "6 1", "-3", "7 0+100"],
        expect![[r#"
            1 0+3000: numa 0, owns [] of 0-3, mems 0
            2 0+500: numa 1, owns [] of 4-7, mems 1
            3 4: numa 1, owns [4-7] of 4-7, mems 1
            4 0+100: numa 0, owns [] of 0-3, mems 0
            5 1: refused: needs 1 exclusive CPU; 0 are free
            6 1: refused: needs 1 exclusive CPU; 0 are free
            -3: shared 0-7
            7 0+100: numa 1, owns [] of 4-7, mems 1
        "#]],
    );
}

#[test]
fn sharers_that_keep_a_thread_in_each_of_two_nodes_do_not_split_cores() {
    let machine = "pack:1 numa:2 core:4 pu:2";
    check(
        machine,
        "",
        &["1 0+500", "2 0+500", "3 14"],
        expect![[r#"
        1 0+500: numa 0, owns [] of 0-3,8-11, mems 0
        2 0+500: numa 1, owns [] of 4-7,12-15, mems 1
        3 14: machine, owns [0-6,8-14] of 0-6,8-14, mems 0-1
    "#]],
    );
    // It does not matter how many of them have to go.
    let sharers = ["1 0+100", "2 0+100", "3 0+100", "4 0+100", "5 0+100", "6 0+100", "7 14"];
    check(
        machine,
        "",
        &sharers,
        expect![[r#"
            1 0+100: numa 0, owns [] of 0-3,8-11, mems 0
            2 0+100: numa 1, owns [] of 4-7,12-15, mems 1
            3 0+100: numa 0, owns [] of 0-3,8-11, mems 0
            4 0+100: numa 1, owns [] of 4-7,12-15, mems 1
            5 0+100: numa 0, owns [] of 0-3,8-11, mems 0
            6 0+100: numa 1, owns [] of 4-7,12-15, mems 1
            7 14: machine, owns [0-6,8-14] of 0-6,8-14, mems 0-1
        "#]],
    );
}

#[test]
fn shared_containers_with_a_cpu_in_each_node_spread_no_request_over_more_nodes() {
    check(
        "pack:1 numa:4 core:2 pu:2",
        "",
        &["1 0+500", "2 0+500", "3 0+500", "4 0+500", "5 8"],
        expect![[r#"
            1 0+500: numa 0, owns [] of 0-1,8-9, mems 0
            2 0+500: numa 1, owns [] of 2-3,10-11, mems 1
            3 0+500: numa 2, owns [] of 4-5,12-13, mems 2
            4 0+500: numa 3, owns [] of 6-7,14-15, mems 3
            5 8: machine, owns [0-3,8-11] of 0-3,8-11, mems 0-1
        "#]],
    );
}

#[test]
fn the_fullest_node_is_filled_before_an_l3_is_filled_elsewhere() {
    // The sixth would fill an L3 of the other node. The last does so rather than begin one.
    check(
        "pack:1 numa:2 l3:3 core:4",
        "",
        &["1 2", "2 1", "3 4", "4 4", "5 3", "-1", "6 1", "-3", "7 2", "8 1"],
        expect![[r#"
            1 2: l3 0, owns [1-2] of 1-2, mems 0
            2 1: l3 0, owns [3] of 3, mems 0
            3 4: l3 1, owns [4-7] of 4-7, mems 0
            4 4: l3 2, owns [8-11] of 8-11, mems 0
            5 3: l3 3, owns [12-14] of 12-14, mems 1
            -1: shared 0-2,15-23
            6 1: l3 0, owns [1] of 1, mems 0
            -3: shared 0,2,4-7,15-23
            7 2: l3 0, owns [0,2] of 0,2, mems 0
            8 1: l3 3, owns [15] of 15, mems 1
        "#]],
    );
}

#[test]
fn the_first_owner_of_a_node_comes_where_fewest_share() {
    // A container that follows fills up what is begun.
    check(
        "pack:1 numa:3 core:4",
        "",
        &["1 0+100", "2 0+100", "3 2", "4 0+100", "5 0+100", "6 2", "7 3"],
        expect![[r#"
            1 0+100: numa 0, owns [] of 0-3, mems 0
            2 0+100: numa 1, owns [] of 4-7, mems 1
            3 2: numa 2, owns [8-9] of 8-9, mems 2
            4 0+100: numa 0, owns [] of 0-3, mems 0
            5 0+100: numa 1, owns [] of 4-7, mems 1
            6 2: numa 2, owns [10-11] of 10-11, mems 2
            7 3: numa 0, owns [1-3] of 1-3, mems 0
        "#]],
    );
}

#[test]
fn no_container_moves_only_so_that_fewer_share_a_node() {
    check(
        "pack:1 numa:2 core:4",
        "",
        &["1 0+3000", "2 0+100", "3 0+100", "4 3"],
        expect![[r#"
            1 0+3000: numa 0, owns [] of 0-3, mems 0
            2 0+100: numa 1, owns [] of 4-7, mems 1
            3 0+100: numa 1, owns [] of 4-7, mems 1
            4 3: numa 1, owns [4-6] of 4-6, mems 1
        "#]],
    );
}

#[test]
fn only_containers_in_the_way_make_room() {
    let mut ledger = machine("pack:1 numa:3 core:2 pu:2", "").unwrap();
    // Most CPU time is asked for in the first node, of which nothing is taken.
    let before = [(1, 0, Some(2500)), (3, 0, Some(100)), (4, 0, Some(200)), (2, 1, None)];
    for (id, exclusive, shared) in before {
        let offer = offer(&ledger, &request(id, exclusive, shared)).unwrap();
        ledger.commit(offer).unwrap();
    }
    let offer = offer(&ledger, &request(5, 8, None)).unwrap();
    let mut moved: Vec<u64> = offer.moves().iter().map(|made| made.container.0).collect();
    moved.sort_unstable();
    assert_eq!(moved, [3, 4]);
}

#[test]
fn the_shared_part_of_a_mixed_one_makes_room_on_one_near_node_and_not_on_all() {
    // Until 2026-11-22 it spread over the package or the machine, and was rewritten with every owner that came or went there.
    let mut ledger = machine("pack:2 numa:2 core:4", "").unwrap();
    for step in ["1 1+500", "2 2", "4 0+1000"] {
        play(&mut ledger, step);
    }
    let shown = |ledger: &Ledger| {
        let held = ledger.allocation(ContainerId(1)).unwrap();
        let pool = &ledger.pools().get(held.pool).unwrap().name;
        format!("{pool}, owns [{}] of {}, mems {}", held.exclusive, ledger.cpus_of(held), held.mems)
    };
    assert_eq!(shown(&ledger), "numa 0, owns [1] of 0-1, mems 0");
    // Most room is in the other package.
    assert_eq!(play(&mut ledger, "3 1"), "numa 0, owns [0] of 0, mems 0");
    assert_eq!(shown(&ledger), "numa 1, owns [1] of 1,4-7, mems 0-1");
    let mut again = machine("pack:2 numa:2 core:4", "").unwrap();
    for (id, held) in ledger.allocations() {
        again.adopt(id, held.clone()).unwrap();
    }
    assert_eq!(again.holdings(), ledger.holdings());
    assert_eq!(play(&mut ledger, "1=2+500"), "package 0, owns [1,4] of 1,4-7, mems 0-1");
    // Room that returns moves no container; a resize asks anew.
    play(&mut again, "-3");
    assert_eq!(shown(&again), "numa 1, owns [1] of 1,4-7, mems 0-1");
    assert_eq!(play(&mut again, "1=1+400"), "numa 0, owns [1] of 0-1, mems 0");
}

#[test]
fn no_shared_part_makes_room_that_would_leave_what_it_is_bound_to() {
    for (sharer, stays) in [
        ("1 1+500", false),
        ("1 1+500 near:0", false),
        ("1 1+500 near:0!", true),
        ("1 1+500 within:Numa", true),
        ("1 1+500 fewest:Numa", true),
        ("1 1+500 bound", true),
        ("1 1+500 immovable", true),
        ("1 0+500 near:0", false),
        ("1 0+500 near:0!", true),
        ("1 0+500 bound", true),
        ("1 0+500 immovable", true),
    ] {
        let mut ledger = machine("pack:2 numa:2 core:4", "").unwrap();
        let held = |ledger: &Ledger| ledger.allocation(ContainerId(1)).unwrap().clone();
        play(&mut ledger, sharer);
        let before = held(&ledger);
        assert_eq!(ledger.pools().get(before.pool).unwrap().name, "numa 0", "{sharer}");
        let owned = 4 - before.exclusive.len();
        play(&mut ledger, &format!("2 {owned} near:0!"));
        assert_eq!(held(&ledger) == before, stays, "{sharer}");
    }
}

#[test]
fn a_request_as_large_as_the_machine_allows_is_placed_beside_any_shared_container() {
    check(
        "pack:2 numa:2 core:4",
        "",
        &["1 0+900", "2 0+900", "3 0+900", "4 0+900", "5 6", "6 6", "7 1"],
        expect![[r#"
            1 0+900: numa 0, owns [] of 0-3, mems 0
            2 0+900: numa 1, owns [] of 4-7, mems 1
            3 0+900: numa 2, owns [] of 8-11, mems 2
            4 0+900: numa 3, owns [] of 12-15, mems 3
            5 6: package 0, owns [1-6] of 1-6, mems 0-1
            6 6: package 1, owns [8-10,12-14] of 8-10,12-14, mems 2-3
            7 1: refused: needs 1 exclusive CPU; 0 are free
        "#]],
    );
}

#[test]
fn a_mixed_container_owns_and_shares_in_one_node() {
    check(
        "pack:2 numa:1 l3:1 core:4 pu:2",
        "",
        &["1 1+500", "2 2+400", "3 8+1", "4 0+2000 ceiling:4000", "5 0+100 ceiling:9000"],
        expect![[r#"
            1 1+500: package 0, owns [1] of 0-3,8-11, mems 0
            2 2+400: package 0, owns [2,10] of 0,2-3,8-11, mems 0
            3 8+1: machine, owns [4-7,12-15] of 0,3-9,11-15, mems 0-1
            4 0+2000 ceiling:4000: package 0, owns [] of 0,3,8-9,11, mems 0
            5 0+100 ceiling:9000: package 0, owns [] of 0,3,8-9,11, mems 0
        "#]],
    );
}

#[test]
fn memory_decides_the_nodes() {
    check(
        "pack:2 numa:2 core:4 pu:1 mem:10",
        "0",
        &[
            "1 1 mem:4",
            "2 1 mem:8",
            "3 2 mem:12",
            "4 0+100 limit:25",
            "5 1 mem:99",
            "6 0+100 mem:9 reserved",
        ],
        expect![[r#"
            1 1 mem:4: numa 0, owns [1] of 1, mems 0
            2 1 mem:8: numa 1, owns [4] of 4, mems 1
            3 2 mem:12: package 1, owns [8-9] of 8-9, mems 2-3
            4 0+100 limit:25: numa 3, owns [] of 12-15, mems 0,2-3
            5 1 mem:99: refused: needs 99 GiB, the machine has 16 GiB free
            6 0+100 mem:9 reserved: machine, owns [] of 0, mems 0-1,3
        "#]],
    );
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
fn a_growing_container_does_not_take_the_sibling_that_shared_ones_need() {
    let steps = ["1 1", "2 0+2000", "1=2"];
    check(
        "numa:1 core:2 pu:2",
        "",
        &steps,
        expect![[r#"
        1 1: machine, owns [1] of 1, mems 0
        2 0+2000: machine, owns [] of 0,2-3, mems 0
        1=2: machine, owns [1,3] of 1,3, mems 0
    "#]],
    );
    let steps = ["1 1", "2 0+2500", "1=2"];
    check(
        "numa:1 core:2 pu:2",
        "",
        &steps,
        expect![[r#"
            1 1: machine, owns [1] of 1, mems 0
            2 0+2500: machine, owns [] of 0,2-3, mems 0
            1=2: refused: needs 2 exclusive CPUs; 1 is free
        "#]],
    );
}

#[test]
fn system_pods_run_on_the_reserved_cpus() {
    check(
        "core:4 pu:2",
        "0,4",
        &["1 0+500 reserved", "2 2 reserved", "3 6", "4 4", "-1", "-2"],
        expect![[r#"
            1 0+500 reserved: machine, owns [] of 0,4, mems 
            2 2 reserved: machine, owns [] of 0,4, mems 
            3 6: machine, owns [1-3,5-7] of 1-3,5-7, mems 
            4 4: refused: needs 4 exclusive CPUs; 0 are free
            -1: shared 
            -2: shared 
        "#]],
    );
}

#[test]
fn a_container_that_requests_nothing_flees_to_the_reserved_cpus_when_all_others_are_owned() {
    check(
        "numa:2 core:4",
        "0",
        &["1 0+0", "2 7", "3 0+0", "4 0+100", "-2", "5 7", "-4", "6 7", "7 1+0"],
        expect![[r#"
            1 0+0: numa 1, owns [] of 4-7, mems 1
            2 7: machine, owns [1-7] of 1-7, mems 0-1
            3 0+0: machine, owns [] of 0, mems 0-1
            4 0+100: machine, owns [] of 0, mems 0-1
            -2: shared 1-7
            5 7: refused: needs 7 exclusive CPUs; 6 are free
            -4: shared 1-7
            6 7: machine, owns [1-7] of 1-7, mems 0-1
            7 1+0: refused: needs 1 exclusive CPU; 0 are free
        "#]],
    );
}

#[test]
fn isolated_cpus_are_in_no_shared_set() {
    check(
        "core:8 isolated:6-7",
        "0",
        &["1 0+100", "2 4", "3 1"],
        expect![[r#"
            1 0+100: machine, owns [] of 1-5, mems 
            2 4: machine, owns [1-4] of 1-4, mems 
            3 1: refused: needs 1 exclusive CPU; 0 are free
        "#]],
    );
}

#[test]
fn the_sibling_of_an_odd_cpu_is_paired_shared_or_idle_as_wished() {
    check(
        "numa:1 core:8 pu:2",
        "0,8",
        &[
            "1 1 pod:1",
            "2 1 pod:2 shared",
            "3 1 idle",
            "4 3 idle",
            "5 1 pod:2",
            "6 1 pod:1",
            "7 1",
            "8 2",
            "9 0+100",
            "-3",
            "10 1",
            "-2",
            "11 1",
        ],
        expect![[r#"
            1 1 pod:1: machine, owns [1] of 1, mems 0
            2 1 pod:2 shared: machine, owns [2] of 2, mems 0
            3 1 idle: machine, owns [3] of 3, idle 11, mems 0
            4 3 idle: machine, owns [4-5,12] of 4-5,12, idle 13, mems 0
            5 1 pod:2: machine, owns [9] of 9, mems 0
            6 1 pod:1: machine, owns [6] of 6, mems 0
            7 1: machine, owns [14] of 14, mems 0
            8 2: machine, owns [7,15] of 7,15, mems 0
            9 0+100: machine, owns [] of 10, mems 0
            -3: shared 3,10-11
            10 1: machine, owns [3] of 3, mems 0
            -2: shared 2,10-11
            11 1: machine, owns [11] of 11, mems 0
        "#]],
    );
}

#[test]
fn idle_siblings_leave_the_sharers_of_each_domain_what_they_requested() {
    check(
        "pack:2 die:2 numa:1 l3:3 core:1 pu:2",
        "0",
        &["1 6", "2 0", "3 0+2001", "4 7 idle", "4=3 idle", "4=5 idle"],
        expect![[r#"
            1 6: package 0 die 1, owns [3-5,15-17] of 3-5,15-17, mems 1
            2 0: package 1 die 0, owns [] of 6-8,18-20, mems 2
            3 0+2001: package 1 die 1, owns [] of 9-11,21-23, mems 3
            4 7 idle: package 1, owns [6,9-11,21-23] of 6,9-11,21-23, idle 18, mems 2-3
            4=3 idle: package 1, owns [9-10,21] of 9-10,21, idle 22, mems 3
            4=5 idle: package 1, owns [9-11,21-22] of 9-11,21-22, idle 23, mems 3
        "#]],
    );
}

#[test]
fn an_odd_cpu_is_paired_with_its_own_pod_then_its_own_namespace() {
    check(
        "numa:1 core:8 pu:2",
        "",
        &["1 1 pod:1", "2 1 pod:2", "3 1 pod:3", "4 1 pod:4", "-2", "-3", "5 3 pod:4", "6 1 pod:9"],
        expect![[r#"
            1 1 pod:1: machine, owns [1] of 1, mems 0
            2 1 pod:2: machine, owns [9] of 9, mems 0
            3 1 pod:3: machine, owns [2] of 2, mems 0
            4 1 pod:4: machine, owns [10] of 10, mems 0
            -2: shared 0,3-9,11-15
            -3: shared 0,2-9,11-15
            5 3 pod:4: machine, owns [2-3,11] of 2-3,11, mems 0
            6 1 pod:9: machine, owns [9] of 9, mems 0
        "#]],
    );
}

#[test]
fn a_half_core_of_the_same_namespace_comes_before_one_of_another() {
    let halves =
        ["1 1 pod:1 ns:1", "2 1 pod:2 ns:2", "3 1 pod:3 ns:3", "4 1 pod:4 ns:4", "-2", "-3"];
    let steps = [&halves[..], &["5 1 pod:5 ns:4"]].concat();
    check(
        "numa:1 core:8 pu:2",
        "",
        &steps,
        expect![[r#"
        1 1 pod:1 ns:1: machine, owns [1] of 1, mems 0
        2 1 pod:2 ns:2: machine, owns [9] of 9, mems 0
        3 1 pod:3 ns:3: machine, owns [2] of 2, mems 0
        4 1 pod:4 ns:4: machine, owns [10] of 10, mems 0
        -2: shared 0,3-9,11-15
        -3: shared 0,2-9,11-15
        5 1 pod:5 ns:4: machine, owns [2] of 2, mems 0
    "#]],
    );
}

#[test]
fn one_thread_of_each_core_when_spread() {
    check(
        "numa:2 core:4 pu:2",
        "",
        &[
            "1 3 spread",
            "2 2 spread idle",
            "3 2 spread shared",
            "4 2",
            "5 3 spread idle",
            "1=4 spread",
        ],
        expect![[r#"
            1 3 spread: numa 0, owns [1-3] of 1-3, mems 0
            2 2 spread idle: numa 1, owns [4-5] of 4-5, idle 12-13, mems 1
            3 2 spread shared: numa 1, owns [6-7] of 6-7, mems 1
            4 2: numa 0, owns [0,8] of 0,8, mems 0
            5 3 spread idle: refused: needs 4 exclusive CPUs with idle siblings; 0 are free
            1=4 spread: numa 0, owns [1-3,9] of 1-3,9, mems 0
        "#]],
    );
}

#[test]
fn whole_cores_only_when_that_is_asked_for() {
    check(
        "numa:1 core:4 pu:2",
        "",
        &["1 3 whole", "2 4 whole"],
        expect![[r#"
        1 3 whole: refused: 3 CPUs are no whole number of cores of 2 threads
        2 4 whole: machine, owns [1-2,5-6] of 1-2,5-6, mems 0
    "#]],
    );
}

#[test]
fn a_container_that_stands_apart_keeps_others_out_when_that_is_required() {
    check(
        "numa:2 l3:2 core:4",
        "",
        &[
            "1 1 apart:L3!",
            "2 1",
            "3 1 apart:L3",
            "4 1 apart:L3",
            "5 1 apart:L3!",
            "6 1 apart:Numa!",
            "-1",
            "7 1 apart:L3!",
            "8 0+100",
        ],
        expect![[r#"
            1 1 apart:L3!: l3 0, owns [1] of 1, mems 0
            2 1: l3 1, owns [4] of 4, mems 0
            3 1 apart:L3: l3 2, owns [8] of 8, mems 1
            4 1 apart:L3: l3 3, owns [12] of 12, mems 1
            5 1 apart:L3!: refused: needs 1 exclusive CPU without other exclusive containers in the same L3; 0 are free
            6 1 apart:Numa!: refused: needs 1 exclusive CPU without other exclusive containers in the same NUMA node; 0 are free
            -1: shared 0-3,5-7,9-11,13-15
            7 1 apart:L3!: l3 0, owns [1] of 1, mems 0
            8 0+100: numa 0, owns [] of 0,2-3,5-7, mems 0
        "#]],
    );
}

#[test]
fn isolated_cpus_are_for_containers_that_ask_for_them() {
    check(
        "core:8 isolated:5-7",
        "0",
        &[
            "1 1",
            "2 2 isolated",
            "3 2 isolated",
            "4 2 isolated!",
            "5 1 isolated!",
            "-2",
            "6 1+200 isolated!",
            "7 0+100",
        ],
        expect![[r#"
            1 1: machine, owns [1] of 1, mems 
            2 2 isolated: machine, owns [5-6] of 5-6, mems 
            3 2 isolated: machine, owns [2-3] of 2-3, mems 
            4 2 isolated!: refused: needs 2 exclusive CPUs isolated by the kernel; 1 is free
            5 1 isolated!: machine, owns [7] of 7, mems 
            -2: shared 4
            6 1+200 isolated!: machine, owns [5] of 4-5, mems 
            7 0+100: machine, owns [] of 4, mems 
        "#]],
    );
}

#[test]
fn cpus_in_a_partition_of_another_system_are_not_given() {
    let mut snapshot = parse_machine("core:8 isolated:6-7").unwrap();
    snapshot.partitioned = Some("5-6".parse().unwrap());
    let topology = derive(&snapshot).unwrap();
    let mut ledger =
        Ledger::new(Arc::new(pools(&topology, Policy::default(), &CpuSet::new()).unwrap()));
    assert_eq!(play(&mut ledger, "1 0+100"), "machine, owns [] of 0-4, mems ");
    assert_eq!(play(&mut ledger, "2 1 isolated!"), "machine, owns [7] of 7, mems ");
    let refused = "refused: needs 1 exclusive CPU isolated by the kernel; 0 are free";
    assert_eq!(play(&mut ledger, "3 1 isolated!"), refused);
}

/// A container that has claimed them holds nothing, has the memory near them, and is neither owner nor sharer of others.
#[test]
fn claimed_cpus_are_not_given_and_memory_near_them_is_set_aside() {
    let ledger = machine("pack:2 numa:1 core:4 mem:8", "").unwrap();
    let claimed = ledger.pools().with_claimed(&"2-3,6".parse().unwrap());
    let mut ledger = Ledger::new(Arc::new(claimed));
    for (step, expected) in [
        ("1 0+0 claimed:6 mem:3", "machine, owns [] of 0-1,4-5,7, mems 1"),
        ("2 0+0 claimed:2-3 mem:9", "machine, owns [] of 0-1,4-5,7, mems 0-1"),
        ("3 4", "machine, owns [1,4-5,7] of 1,4-5,7, mems 0-1"),
        ("4 1", "refused: needs 1 exclusive CPU; 0 are free"),
    ] {
        assert_eq!(play(&mut ledger, step), expected, "{step}");
    }
}

#[test]
fn claimed_cpus_leave_reserved_ones_and_without_these_one_shared_one() {
    for (reserved, claimed, expected) in [
        ("", "2-9", "reserved , shared 0-1"),
        ("", "0-3", "reserved , shared 3"),
        ("0", "0-2", "reserved 0, shared 3"),
        ("0", "0-3", "reserved 0, shared "),
    ] {
        let ledger = machine("core:4", reserved).unwrap();
        let pools = ledger.pools().with_claimed(&claimed.parse().unwrap());
        let shown = format!("reserved {}, shared {}", pools.reserved(), pools.allocatable());
        assert_eq!(shown, expected, "{reserved} {claimed}");
    }
}

/// As for an owner of so many CPUs; here they are these.
#[test]
fn sharers_make_room_for_cpus_that_are_claimed() {
    for (steps, claimed, expected) in [
        (&["1 0+3000"][..], "0", ""),
        (&["1 0+3000"], "0-1", "1 -> numa 1"),
        (&["1 0+3000", "2 0+3000"], "0-1", "1 -> machine"),
        (&["1 0+4000", "2 0+3000"], "0-1", ""),
        (&["1 0+1000", "2 0+1000", "3 0+1000"], "0-2,4-5", "1 -> machine"),
        (&["1 4", "2 0+500"], "4", ""),
        (&["1 0+3000 immovable"], "0-1", ""),
    ] {
        let mut ledger = machine("pack:1 numa:2 core:4", "").unwrap();
        steps.iter().for_each(|step| drop(play(&mut ledger, step)));
        let moves = plan_way(&ledger, &claimed.parse().unwrap());
        let name = |id| ledger.pools().get(id).unwrap().name.clone();
        let shown: Vec<String> =
            moves.iter().map(|it| format!("{} -> {}", it.container.0, name(it.to))).collect();
        assert_eq!(shown.join(", "), expected, "{steps:?} {claimed}");
    }
}

#[test]
fn the_kind_of_core_and_the_priority_are_respected() {
    check(
        "core-hybrid",
        "",
        &["1 4", "2 4 kind:E", "3 14", "4 16 kind:E!", "5 2 kind:P!"],
        expect![[r#"
            1 4: machine, owns [1-2,9-10] of 1-2,9-10, mems 0
            2 4 kind:E: machine, owns [16-19] of 16-19, mems 0
            3 14: machine, owns [0,3-8,11-15,20-21] of 0,3-8,11-15,20-21, mems 0
            4 16 kind:E!: refused: needs 16 exclusive CPUs on efficient cores; 9 are free
            5 2 kind:P!: refused: needs 2 exclusive CPUs on performance cores; 0 are free
        "#]],
    );
    check(
        "core:8 fast:4-5",
        "",
        &[
            "1 1 priority:High",
            "2 2 priority:High",
            "3 1 priority:High!",
            "4 2 priority:High!",
            "5 2 priority:Normal",
        ],
        expect![[r#"
            1 1 priority:High: machine, owns [4] of 4, mems 
            2 2 priority:High: machine, owns [1-2] of 1-2, mems 
            3 1 priority:High!: machine, owns [5] of 5, mems 
            4 2 priority:High!: refused: needs 2 exclusive CPUs of high priority; 0 are free
            5 2 priority:Normal: machine, owns [3,6] of 3,6, mems 
        "#]],
    );
}

#[test]
fn cpus_stay_within_a_domain_or_are_spread_evenly_when_that_is_asked_for() {
    check(
        "pack:2 numa:2 core:4 pu:2",
        "",
        &["1 10 within:Numa", "2 10 within:Pack", "3 10 even", "4 17 within:Pack"],
        expect![[r#"
            1 10 within:Numa: refused: is wider than one NumaNode
            2 10 within:Pack: package 0, owns [0-4,16-20] of 0-4,16-20, mems 0-1
            3 10 even: package 1, owns [8-10,12-13,24-26,28-29] of 8-10,12-13,24-26,28-29, mems 2-3
            4 17 within:Pack: refused: is wider than one Package
        "#]],
    );
}

#[test]
fn hidden_hyperthreads_leave_one_thread_of_each_core() {
    check(
        "numa:1 core:4 pu:2",
        "",
        &["1 4 hide", "2 1+100 hide", "3 0+100 hide"],
        expect![[r#"
            1 4 hide: machine, owns [1-2,5-6] of 1-2, mems 0
            2 1+100 hide: machine, owns [3] of 0,3, mems 0
            3 0+100 hide: machine, owns [] of 0,7, mems 0
        "#]],
    );
}

#[test]
fn memory_is_of_the_kinds_that_are_wished_and_bound_where_that_is_wished() {
    check(
        "pack:2 numa:1 core:4 mem:10 hbm:4 pmem:40",
        "",
        &[
            "1 1 mem:4",
            "2 1 mem:4 memory:Hbm",
            "3 1 mem:4 memory:Hbm",
            "4 1 mem:20 memory:Dram",
            "5 1 mem:12 bound",
            "6 1 mem:60 bound",
            "7 1 mem:4 bound memory:Hbm",
        ],
        expect![[r#"
            1 1 mem:4: package 0, owns [1] of 1, mems 0
            2 1 mem:4 memory:Hbm: package 0, owns [2] of 2, mems 2
            3 1 mem:4 memory:Hbm: package 1, owns [4] of 4, mems 3
            4 1 mem:20 memory:Dram: refused: needs 20 GiB, the machine has 16 GiB free
            5 1 mem:12 bound: package 0, owns [3] of 3, mems 0,4
            6 1 mem:60 bound: refused: needs 60 GiB on its own NUMA nodes, 34 GiB are free
            7 1 mem:4 bound memory:Hbm: refused: needs 4 GiB, the machine has 0 B free
        "#]],
    );
}

#[test]
fn a_sharer_that_is_moved_gets_memory_of_the_kinds_that_it_has() {
    let mut ledger = machine("pack:2 numa:1 core:4 mem:10 hbm:4 pmem:40", "").unwrap();
    for step in ["1 0+500 mem:2 memory:Hbm near:0", "2 0+500 mem:2 near:0", "3 4 near:0!"] {
        play(&mut ledger, step);
    }
    let mems = [1, 2].map(|id| ledger.allocation(ContainerId(id)).unwrap().mems.to_string());
    assert_eq!(mems, ["2-3", "0-1"]);
}

#[test]
fn a_container_bound_to_memory_that_is_not_near_is_refused_also_without_an_amount() {
    check(
        "pack:2 numa:1 core:4 mem:10 hbm:4/machine",
        "",
        &["1 1 memory:Hbm bound near:1!", "2 1 memory:Hbm near:1!", "3 1 memory:Hbm bound"],
        expect![[r#"
            1 1 memory:Hbm bound near:1!: refused: is not near `device at 1`
            2 1 memory:Hbm near:1!: package 1, owns [4] of 4, mems 2
            3 1 memory:Hbm bound: package 0, owns [1] of 1, mems 2
        "#]],
    );
}

#[test]
fn devices_and_other_containers_draw_and_repel() {
    check(
        "pack:2 numa:2 core:4",
        "",
        &[
            "1 1 near:2",
            "2 0+100 near:3!",
            "3 3 near:2",
            "4 2 near:2",
            "5 4 near:2!",
            "6 0+100 with:4",
            "7 0+100 without:4",
            "8 1 without:1",
            "9 0+100 burst:Pack",
            "10 0+100 burst:Mach",
        ],
        expect![[r#"
            1 1 near:2: numa 2, owns [8] of 8, mems 2
            2 0+100 near:3!: numa 3, owns [] of 12-15, mems 3
            3 3 near:2: numa 2, owns [9-11] of 9-11, mems 2
            4 2 near:2: numa 3, owns [12-13] of 12-13, mems 3
            5 4 near:2!: refused: is not near `device at 2`
            6 0+100 with:4: numa 3, owns [] of 14-15, mems 3
            7 0+100 without:4: numa 0, owns [] of 0-3, mems 0
            8 1 without:1: numa 1, owns [4] of 4, mems 1
            9 0+100 burst:Pack: package 0, owns [] of 0-3,5-7, mems 0-1
            10 0+100 burst:Mach: machine, owns [] of 0-3,5-7,14-15, mems 0-3
        "#]],
    );
}

#[test]
fn a_container_that_is_left_alone_is_counted_but_owns_nothing() {
    check(
        "numa:2 core:4",
        "",
        &["1 2 preserve", "2 0+500 preserve", "3 4", "4 1"],
        expect![[r#"
            1 2 preserve: machine, owns [] of 0-7, mems 0-1
            2 0+500 preserve: machine, owns [] of 0-7, mems 0-1
            3 4: numa 0, owns [0-3] of 0-3, mems 0
            4 1: numa 1, owns [4] of 4, mems 1
        "#]],
    );
}

#[test]
fn a_domain_smaller_than_a_core_holds_only_its_own_threads() {
    // Some hypervisors report an L3 for each thread.
    let mut snapshot = parse_machine("numa:1 l3:1 core:2 pu:2").unwrap();
    for cpu in &mut snapshot.cpus {
        for cache in &mut cpu.caches {
            cache.shared_cpus = Some(CpuSet::from(cpu.id));
        }
    }
    let topology = derive(&snapshot).unwrap();
    let mut ledger =
        Ledger::new(Arc::new(pools(&topology, Policy::default(), &CpuSet::new()).unwrap()));
    assert_eq!(play(&mut ledger, "1 1"), "l3 0, owns [0] of 0, mems 0");
    assert_eq!(play(&mut ledger, "2 2"), "machine, owns [1-2] of 1-2, mems 0");
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

/// The sharers of node 0 could make room there, but node 1 is nearer to the device and has room as it is.
#[test]
fn under_one_shared_pool_owners_get_nodes_and_all_others_what_is_left_of_the_machine() {
    check(
        "one-shared-pool pack:2 numa:2 core:4 pu:2 mem:8",
        "0,16",
        &[
            "1 0+500",
            "2 4",
            "3 0+0",
            "4 8",
            "5 2+500",
            "6 30",
            "7 16",
            "-4",
            "8 1+500 within:Numa",
            "9 1 within:Numa",
        ],
        expect![[r#"
            1 0+500: machine, owns [] of 1-15,17-31, mems 0-3
            2 4: numa 0, owns [1-2,17-18] of 1-2,17-18, mems 0
            3 0+0: machine, owns [] of 3-15,19-31, mems 0-3
            4 8: numa 1, owns [4-7,20-23] of 4-7,20-23, mems 1
            5 2+500: machine, owns [3,19] of 3,8-15,19,24-31, mems 0-3
            6 30: refused: needs 30 exclusive CPUs; 15 are free
            7 16: refused: needs 16 exclusive CPUs; 15 are free
            -4: shared 4-15,20-31
            8 1+500 within:Numa: refused: is wider than one NumaNode
            9 1 within:Numa: numa 1, owns [4] of 4, mems 1
        "#]],
    );
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

#[test]
fn each_of_the_devices_has_cpus_near_it_where_that_is_wished() {
    let line = "pack:2 numa:2 core:4 pu:2 mem:8";
    check(
        line,
        "0,16",
        &[
            "1 4 near:0 near:2",
            "2 4 near:0 near:2 each",
            "3 3 near:1 near:3 each mem:1",
            "4 2 near:1 near:2 each",
            // They hang on one node, or nothing is left near one of them: all come to one place.
            "5 4 near:3 near:3 each",
            "6 2 near:0 near:1 each",
            "7 6 near:1 near:2 each",
            "8 2 near:2 near:3 each whole",
        ],
        expect![[r#"
            1 4 near:0 near:2: numa 0, owns [1-2,17-18] of 1-2,17-18, mems 0
            2 4 near:0 near:2 each: machine, owns [3,8,19,24] of 3,8,19,24, mems 0,2
            3 3 near:1 near:3 each mem:1: machine, owns [4,12,20] of 4,12,20, mems 1,3
            4 2 near:1 near:2 each: machine, owns [5,9] of 5,9, mems 1-2
            5 4 near:3 near:3 each: numa 3, owns [13-14,29-30] of 13-14,29-30, mems 3
            6 2 near:0 near:1 each: numa 1, owns [6,22] of 6,22, mems 1
            7 6 near:1 near:2 each: machine, owns [7,10,21,23,25-26] of 7,10,21,23,25-26, mems 1-2
            8 2 near:2 near:3 each whole: numa 2, owns [11,27] of 11,27, mems 2
        "#]],
    );
}
