use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_topology::{Topology, derive, parse_machine};
use bayplan_types::{CpuClass, CpuSet, NodeSet, QosClass};
use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use bayplan_rebalance::Mode;
use bayplan_rebalance::{Evidence, Proposal};

const PERIOD: Duration = Duration::from_secs(5);

fn machine(line: &str) -> Topology {
    derive(&parse_machine(line).unwrap()).unwrap()
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn tenant(name: &str, list: &str, work: Work, demand: Demand, nature: Nature) -> Tenant {
    Tenant {
        name: name.to_owned(),
        qos: match work {
            Work::Batch => QosClass::BestEffort,
            Work::Service { .. } => QosClass::Burstable,
        },
        class: CpuClass::Shared,
        cpus: cpus(list),
        mems: NodeSet::new(),
        weight: 100.0,
        limit: None,
        work,
        acts: vec![Act { from: Duration::ZERO, demand, nature }],
        cycle: None,
        wander: 0.0,
        hops: 0.0,
        hops_from: Duration::ZERO,
        mode: Mode::Act,
        knobs: Knob::ALL.into(),
    }
}

fn server(list: &str, demand: f64) -> Tenant {
    let work = Work::Service { request: Duration::from_millis(1) };
    tenant("web/front/server", list, work, Demand::Constant(demand), Nature::SERVER)
}

fn hog(list: &str, demand: f64, nature: Nature) -> Tenant {
    tenant("batch/job/hog", list, Work::Batch, Demand::Constant(demand), nature)
}

fn proposal(number: u64, knob: Knob, target: u64, step: u32, leave: &str) -> Proposal {
    Proposal {
        number,
        at: Duration::ZERO,
        mode: Mode::Act,
        knob,
        target: ContainerId(target),
        step,
        leave: cpus(leave),
        evidence: Evidence { victim: ContainerId(1), findings: vec![], culprits: vec![] },
    }
}

/// The plant after twenty periods.
fn settled(mut plant: Plant) -> Plant {
    (0..20).for_each(|_| drop(plant.step(PERIOD)));
    plant
}

fn p99_ms(plant: &Plant) -> f64 {
    plant.truths()[&ContainerId(1)].p99.unwrap().as_secs_f64() * 1000.0
}

const PACK: &str = "pack:1 numa:1 l3:1 core:8 pu:2 cache:48K,2M,32M";
const TWO: &str = "pack:2 numa:1 l3:1 core:8 pu:2 cache:48K,2M,32M";

/// The p99 of a server beside another tenant, alone and after each knob.
fn check_knobs(
    line: &str,
    victim: Tenant,
    other: Tenant,
    knobs: &[(Knob, u64, u32, &str)],
    expected: Expect,
) {
    let both = Plant::new(machine(line), vec![victim, other], 1);
    let alone = p99_ms(&settled(both.without(ContainerId(2))));
    let disturbed = p99_ms(&settled(both.clone()));
    let mut text = format!("alone {alone:.2} ms, disturbed {disturbed:.2} ms\n");
    for (knob, target, step, leave) in knobs {
        let mut plant = both.clone();
        let outcome = plant.carry_out(&proposal(1, *knob, *target, *step, leave));
        let after = p99_ms(&settled(plant));
        let outcome = match outcome {
            Outcome::Done => String::new(),
            Outcome::Refused(why) => format!(", refused: {why}"),
        };
        text += &format!("{} {step} of {target}: {after:.2} ms{outcome}\n", knob.name());
    }
    expected.assert_eq(&text);
}

#[test]
fn a_container_that_shares_all_cpus_is_helped_by_knobs_of_cpu_time() {
    check_knobs(
        PACK,
        server("0-15", 4.0),
        hog("0-15", 32.0, Nature::COMPUTE),
        &[
            (Knob::Idle, 2, 1, ""),
            (Knob::Siblings, 2, 1, "0-7"),
            (Knob::Suppress, 2, 1, ""),
            (Knob::Suppress, 2, 2, ""),
            (Knob::Burst, 1, 1, ""),
            (Knob::Bandwidth, 2, 1, ""),
            (Knob::Cache, 2, 1, ""),
            (Knob::Move, 2, 1, "0-15"),
            (Knob::Siblings, 2, 1, "0-15"),
            (Knob::Evict, 2, 1, ""),
        ],
        expect![[r#"
            alone 5.42 ms, disturbed 16.93 ms
            idle 1 of 2: 7.37 ms
            siblings 1 of 2: 6.47 ms
            suppress 1 of 2: 12.65 ms
            suppress 2 of 2: 6.23 ms
            burst 1 of 1: 16.93 ms
            bandwidth 1 of 2: 16.93 ms
            cache 1 of 2: 16.93 ms
            move 1 of 2: 16.93 ms, refused: there is no other cache or node with shared CPUs
            siblings 1 of 2: 16.93 ms, refused: batch/job/hog would have no CPU left
            evict 1 of 2: 16.93 ms
        "#]],
    );
}

#[test]
fn a_container_that_shares_cores_is_helped_by_free_siblings() {
    check_knobs(
        PACK,
        server("0-3", 2.0),
        hog("4-15", 12.0, Nature::COMPUTE),
        &[(Knob::Idle, 2, 1, ""), (Knob::Siblings, 2, 1, "8-11"), (Knob::Suppress, 2, 1, "")],
        expect![[r#"
            alone 6.03 ms, disturbed 15.55 ms
            idle 1 of 2: 15.55 ms
            siblings 1 of 2: 6.03 ms
            suppress 1 of 2: 7.59 ms
        "#]],
    );
}

#[test]
fn a_container_that_shares_memory_is_helped_by_knobs_of_memory() {
    let knobs = [
        (Knob::Idle, 2, 1, ""),
        (Knob::Bandwidth, 2, 1, ""),
        (Knob::Bandwidth, 2, 3, ""),
        (Knob::Cache, 2, 1, ""),
        (Knob::Cache, 2, 3, ""),
        (Knob::Move, 2, 1, "0-7,16-23"),
        (Knob::Suppress, 2, 2, ""),
    ];
    let victim = || server("0-3,16-19", 3.0);
    check_knobs(
        TWO,
        victim(),
        hog("4-7,20-23", 8.0, Nature::STREAM),
        &knobs,
        expect![[r#"
            alone 6.45 ms, disturbed 11.81 ms
            idle 1 of 2: 11.81 ms
            bandwidth 1 of 2: 9.38 ms
            bandwidth 3 of 2: 7.34 ms
            cache 1 of 2: 6.62 ms
            cache 3 of 2: 6.62 ms
            move 1 of 2: 6.56 ms
            suppress 2 of 2: 8.29 ms
        "#]],
    );
    check_knobs(
        TWO,
        victim(),
        hog("4-7,20-23", 8.0, Nature::SCATTER),
        &knobs,
        expect![[r#"
            alone 6.45 ms, disturbed 7.38 ms
            idle 1 of 2: 7.38 ms
            bandwidth 1 of 2: 6.97 ms
            bandwidth 3 of 2: 6.45 ms
            cache 1 of 2: 6.45 ms
            cache 3 of 2: 6.45 ms
            move 1 of 2: 6.45 ms
            suppress 2 of 2: 6.47 ms
        "#]],
    );
}

#[test]
fn an_owner_of_cpus_can_be_moved_and_keeps_their_number() {
    let owner = Tenant { class: CpuClass::Exclusive, ..server("0-3", 2.0) };
    check_knobs(
        TWO,
        owner,
        hog("4-7,20-23", 8.0, Nature::STREAM),
        &[(Knob::MoveOwner, 1, 1, "0-7,16-23"), (Knob::Move, 1, 1, "0-7,16-23")],
        expect![[r#"
            alone 6.03 ms, disturbed 11.25 ms
            move-owner 1 of 1: 6.98 ms
            move 1 of 1: 11.25 ms, refused: there is no other cache or node with shared CPUs
        "#]],
    );
}

#[test]
fn memory_comes_home() {
    let far = Tenant { mems: "1".parse().unwrap(), ..server("0-3,16-19", 4.0) };
    check_knobs(
        TWO,
        far,
        hog("8-15", 1.0, Nature::COMPUTE),
        &[(Knob::Memory, 1, 1, "")],
        expect![[r#"
            alone 10.97 ms, disturbed 10.97 ms
            memory 1 of 1: 8.71 ms
        "#]],
    );
}

#[test]
fn a_limit_that_is_too_tight_is_helped_by_bursts_alone() {
    let limited = Tenant { limit: Some(2.4), ..server("0-15", 2.0) };
    check_knobs(
        PACK,
        limited,
        hog("0-15", 1.0, Nature::COMPUTE),
        &[(Knob::Burst, 1, 1, ""), (Knob::Idle, 2, 1, "")],
        expect![[r#"
            alone 69.80 ms, disturbed 83.61 ms
            burst 1 of 1: 35.76 ms
            idle 1 of 2: 83.61 ms
        "#]],
    );
}

#[test]
fn knobs_may_do_nothing_or_be_refused() {
    let plant =
        Plant::new(machine(PACK), vec![server("0-15", 4.0), hog("0-15", 32.0, Nature::COMPUTE)], 1)
            .with_knobs(Stubborn {
                useless: [Knob::Idle].into(),
                refused: [Knob::Siblings].into(),
            });
    let before = p99_ms(&settled(plant.clone()));
    let mut turned = plant;
    assert_eq!(turned.carry_out(&proposal(1, Knob::Idle, 2, 1, "")), Outcome::Done);
    let siblings = turned.carry_out(&proposal(2, Knob::Siblings, 2, 1, "0-7"));
    assert_eq!(siblings, Outcome::Refused("siblings cannot be turned here".to_owned()));
    let refused = turned.carry_out(&proposal(3, Knob::Idle, 9, 1, ""));
    assert_eq!(refused, Outcome::Refused("there is no container #9".to_owned()));
    assert_eq!(turned.in_force().map(|p| p.number).collect::<Vec<_>>(), [1]);
    assert_eq!(p99_ms(&settled(turned)), before);
}

#[test]
fn what_is_undone_was_never_done() {
    let plant =
        Plant::new(machine(TWO), vec![server("0-7", 4.0), hog("0-7", 9.0, Nature::STREAM)], 1);
    for knob in Knob::ALL.into_iter().filter(|knob| *knob != Knob::Memory) {
        let mut turned = plant.clone();
        let leave = if knob == Knob::Siblings { "0-3" } else { "0-7,16-23" };
        turned.carry_out(&proposal(1, knob, 2, 2, leave));
        turned = settled(turned);
        turned.undo(1);
        turned.undo(7);
        let (undone, never) = (p99_ms(&settled(turned)), p99_ms(&settled(settled(plant.clone()))));
        assert!((undone - never).abs() < 0.01 * never, "{}: {undone} {never}", knob.name());
    }
}

#[test]
fn knobs_that_are_turned_as_far_as_they_go_are_not_offered() {
    let mut plant =
        Plant::new(machine(PACK), vec![server("0-15", 4.0), hog("0-15", 32.0, Nature::COMPUTE)], 1);
    let all: BTreeSet<Knob> = Knob::ALL.into();
    assert_eq!(plant.scene().residents[&ContainerId(2)].knobs, all);
    plant.carry_out(&proposal(1, Knob::Idle, 2, 1, ""));
    plant.carry_out(&proposal(2, Knob::Cache, 2, 3, ""));
    let left: BTreeSet<Knob> = &all - &[Knob::Idle, Knob::Cache].into();
    assert_eq!(plant.scene().residents[&ContainerId(2)].knobs, left);
    assert_eq!(plant.scene().residents[&ContainerId(1)].knobs, all);
}

#[test]
fn sensors_lose_lie_and_lack() {
    let lie = Lie {
        about: ContainerId(1),
        from: Duration::from_secs(50),
        until: Duration::from_secs(100),
        change: |sample| sample.throttled = Some(0.9),
    };
    let sensor = Sensor {
        lost: 0.3,
        lost_rounds: 0.1,
        counters: false,
        lies: vec![lie],
        ..Sensor::default()
    };
    let mut plant =
        Plant::new(machine(PACK), vec![server("0-15", 4.0), hog("0-15", 2.0, Nature::COMPUTE)], 3)
            .with_sensor(sensor);
    let rounds: Vec<Round> = (0..1000).map(|_| plant.step(PERIOD)).collect();
    let of =
        |id| rounds.iter().filter(|round| round.samples.contains_key(&ContainerId(id))).count();
    let empty = rounds.iter().filter(|round| round.samples.is_empty()).count();
    let lies =
        rounds.iter().filter_map(|round| Some((round.at, round.samples.get(&ContainerId(1))?)));
    let lies: Vec<u64> =
        lies.filter(|(_, s)| s.throttled == Some(0.9)).map(|(at, _)| at.as_secs()).collect();
    let has_counters =
        rounds.iter().flat_map(|round| round.samples.values()).any(|s| s.cache_misses.is_some());
    expect!["635 627 of 1000, 181 empty; lies [55, 60, 70, 80, 90, 95]; counters false"].assert_eq(
        &format!(
            "{} {} of 1000, {empty} empty; lies {lies:?}; counters {has_counters}",
            of(1),
            of(2)
        ),
    );
}

/// Containers of any kind on a machine with 32 CPUs and two nodes.
fn tenants() -> impl Strategy<Value = Vec<Tenant>> {
    let one = (
        0_u32..30,
        1_u32..32,
        0.0..40.0,
        0_usize..4,
        any::<bool>(),
        1.0..10_000.0,
        prop::option::of(0.1..20.0),
    )
        .prop_map(|(first, count, demand, nature, is_service, weight, limit)| {
            let set: CpuSet = (first..(first + count).min(32)).map(bayplan_types::CpuId).collect();
            let nature = [Nature::SERVER, Nature::COMPUTE, Nature::STREAM, Nature::SCATTER][nature];
            let list = set.to_string();
            let tenant =
                if is_service { server(&list, demand) } else { hog(&list, demand, nature) };
            Tenant { weight, limit, ..tenant }
        });
    prop::collection::vec(one, 1..7)
}

fn knobs() -> impl Strategy<Value = Vec<(usize, u64, u32)>> {
    prop::collection::vec((0_usize..12, 1_u64..7, 1_u32..4), 0..6)
}

fn turn(plant: &mut Plant, knobs: &[(usize, u64, u32)]) {
    for (number, (knob, target, step)) in (1..).zip(knobs) {
        plant.carry_out(&proposal(number, Knob::ALL[*knob], *target, *step, "0-7,16-23"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_handed_out_twice_and_every_number_is_one(tenants in tenants(), knobs in knobs()) {
        let mut plant = Plant::new(machine(TWO), tenants, 1);
        turn(&mut plant, &knobs);
        for _ in 0..5 {
            let round = plant.step(PERIOD);
            for load in plant.state.as_ref().unwrap().times.loads() {
                prop_assert!(load <= 1.0 + 1e-6, "{load}");
            }
            for (id, truth) in plant.truths() {
                let tenant = &plant.tenants[id];
                let seat = plant.seat(*id, tenant);
                prop_assert!(truth.cpus <= seat.cpus.len() as f64 + 1e-6);
                prop_assert!(truth.cpus <= tenant.limit.unwrap_or(f64::INFINITY) + 1e-6);
                prop_assert!(truth.instructions.is_finite());
            }
            for sample in round.samples.values() {
                let share = |value: Option<f64>| value.is_none_or(|v| (0.0..=1.0).contains(&v));
                prop_assert!(share(sample.throttled) && share(sample.cpu_pressure), "{sample:?}");
                prop_assert!(share(sample.far_memory), "{sample:?}");
                let others = [sample.waiting, sample.preempted, sample.cycles_per_instruction, sample.cache_misses];
                prop_assert!(others.into_iter().flatten().all(|v| v.is_finite() && v >= 0.0), "{sample:?}");
            }
            for held in (0..2).map(|cache| {
                plant.state.as_ref().unwrap().memory.occupancy.iter().map(move |row| row[cache]).sum::<f64>()
            }) {
                prop_assert!(held <= 32.0 + 1e-6, "{held} MiB");
            }
        }
    }

    #[test]
    fn same_seed_same_bytes(tenants in tenants(), knobs in knobs(), seed in any::<u64>()) {
        let run = || {
            let mut plant = Plant::new(machine(TWO), tenants.clone(), seed);
            turn(&mut plant, &knobs);
            (0..4).map(|_| format!("{:?}", plant.step(PERIOD))).collect::<String>()
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn more_of_a_neighbour_never_makes_a_server_faster(
        demand in 0.5..10.0, less in 0.0..16.0, more in 0.0..16.0, nature in 0_usize..3, place in 0_usize..3,
    ) {
        let nature = [Nature::COMPUTE, Nature::STREAM, Nature::SCATTER][nature];
        let list = ["0-15", "8-15", "4-7,12-15"][place];
        let with = |hogs| {
            p99_ms(&settled(Plant::new(machine(PACK), vec![server("0-15", demand), hog(list, hogs, nature)], 1)))
        };
        let (few, many) = (with(less), with(less + more));
        // Where there are other CPUs, half-busy ones still draw some threads and full ones none, so that more may be a little better there.
        let part = if place == 2 { 0.95 } else { 0.995 };
        prop_assert!(many >= few * part, "{few} ms beside {less}, {many} ms beside {}", less + more);
    }

    #[test]
    fn the_idle_class_takes_no_cpu_time_from_others(demand in 0.5..16.0, hogs in 0.0..40.0, others in 0.0..20.0) {
        let all = vec![server("0-15", demand), hog("0-15", hogs, Nature::COMPUTE), hog("4-11", others, Nature::COMPUTE)];
        let mut plant = Plant::new(machine("pack:1 numa:1 core:16"), all, 1);
        let alone = settled(plant.without(ContainerId(2)));
        plant.carry_out(&proposal(1, Knob::Idle, 2, 1, ""));
        let beside = settled(plant);
        for id in [1, 3].map(ContainerId) {
            let (alone, beside) = (alone.truths()[&id].instructions, beside.truths()[&id].instructions);
            // Its instructions still take cache and memory.
            prop_assert!(beside >= 0.98 * alone, "{alone} alone, {beside}");
        }
    }
}

#[test]
fn two_seeds_differ_in_demand_and_what_is_done_does_not() {
    let wandering = || Tenant { wander: 0.3, ..server("0-15", 4.0) };
    let demands = |seed, knob: Option<Knob>| {
        let mut plant =
            Plant::new(machine(PACK), vec![wandering(), hog("0-15", 8.0, Nature::COMPUTE)], seed);
        if let Some(knob) = knob {
            plant.carry_out(&proposal(1, knob, 2, 1, ""));
        }
        let mut demands = BTreeMap::new();
        for _ in 0..20 {
            plant.step(PERIOD);
            demands.insert(plant.now(), wandering().demand(plant.now(), 1, plant.seed).to_bits());
        }
        demands
    };
    assert_ne!(demands(1, None), demands(2, None));
    assert_eq!(demands(1, None), demands(1, Some(Knob::Idle)));
}
