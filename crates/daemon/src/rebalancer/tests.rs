mod allowed;
mod classes;
mod counted;
mod loops;
mod lost;
mod moves;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bayplan_allocator::{ContainerId, NoHome};
use bayplan_host::counters::{GroupCounters, MonitorCounters, Pressure, Stall};
use bayplan_node::occupancy::{Occupancy, Occupant, tuning_of};
use bayplan_probes::Rates;
use bayplan_rebalance::{
    Decision, Knob, Migrations, Mode, Rebalancer, Round, Sample, Scene, Settings,
};
use bayplan_topology::{derive, parse_machine};
use bayplan_types::{Bytes, CpuClass, CpuId, QosClass};
use bayplan_workload::{NewContainer, Pod, RequestRules};
use expect_test::{Expect, expect};

use super::reach::Reach;
use super::sampler::{Sampler, add_caches, add_rates, forget_migrations_without_caches, sample_of};
use super::scene::{Bounds, Stays, note_drift, scene_of};
use crate::config::RebalanceConfig;
use crate::enforcer::Drift;
use crate::observer::{GroupsRead, Placed};

const SECOND: Duration = Duration::from_secs(1);

fn stall(some_usec: u64) -> Option<Stall> {
    Some(Stall { some_usec, full_usec: None })
}

fn counters(cpu_usec: u64, cpu_stall: u64) -> GroupCounters {
    let pressure = Pressure { cpu: stall(cpu_stall), ..Pressure::default() };
    GroupCounters { cpu_usec: Some(cpu_usec), pressure, ..GroupCounters::default() }
}

fn check_sample(
    before: &GroupCounters,
    after: &GroupCounters,
    placed: Option<Placed>,
    expected: Expect,
) {
    let sample = sample_of(before, after, placed, SECOND * 2);
    let shown = sample.map_or_else(
        || "none".to_owned(),
        |it| {
            let Sample { cpus, throttled, cpu_pressure, far_memory, .. } = it;
            format!("{cpus} {throttled:?} {cpu_pressure:?} {far_memory:?}")
        },
    );
    expected.assert_eq(&shown);
}

#[test]
fn what_was_counted_in_between_is_per_second_and_what_was_not_is_nothing() {
    let (before, after) = (counters(1_000_000, 0), counters(4_000_000, 500_000));
    check_sample(&before, &after, None, expect!["1.5 None Some(0.25) None"]);
    let placed = Placed { near: Bytes(3), far: Bytes(1) };
    check_sample(&before, &after, Some(placed), expect!["1.5 None Some(0.25) Some(0.25)"]);
    let nothing = Placed { near: Bytes(0), far: Bytes(0) };
    let throttled = |usec| GroupCounters { throttled_usec: Some(usec), ..counters(usec, usec) };
    // Several CPUs may be stopped at once.
    check_sample(
        &throttled(0),
        &throttled(9_000_000),
        Some(nothing),
        expect!["4.5 Some(1.0) Some(1.0) None"],
    );
    check_sample(&after, &before, None, expect!["none"]);
    check_sample(&GroupCounters::default(), &after, None, expect!["none"]);
}

#[test]
fn what_passes_a_cache_is_counted_from_the_beginning_of_its_group() {
    let read = |occupancy: u64, total: Option<u64>| MonitorCounters {
        occupancy: Some(Bytes(occupancy)),
        total: total.map(Bytes),
        ..MonitorCounters::default()
    };
    let rows = [
        (Some(read(1, Some(1000))), read(7, Some(5000)), Some(2000.0)),
        // The group was made anew, has no counter, or was not there.
        (Some(read(1, Some(5000))), read(7, Some(1000)), None),
        (Some(read(1, Some(1000))), read(7, None), None),
        (None, read(7, Some(1000)), None),
    ];
    for (before, after, bandwidth) in rows {
        let mut sample = Sample { cpus: 0.5, ..Sample::default() };
        add_caches(&mut sample, before.as_ref(), &after, SECOND * 2);
        let cache_bytes = Some(7.0);
        let due =
            Sample { cpus: 0.5, memory_bandwidth: bandwidth, cache_bytes, ..Sample::default() };
        assert_eq!(sample, due);
    }
}

fn rates(delay_p99: Option<Duration>, has_runs: bool) -> Rates {
    Rates {
        cpus: 0.5,
        waiting: 0.1,
        involuntary: 1107.0,
        preempted_by: [1.0, 6.0, 1000.0, 100.0],
        migrations: [0.0; 5],
        delay_p50: None,
        delay_p99,
        cycles_per_instruction: None,
        cache_misses: None,
        has_runs,
    }
}

/// A server that answers a client on the same CPU leaves it to the client thousands of times a second, and is well.
#[test]
fn a_container_that_leaves_the_cpu_to_a_client_outside_is_not_preempted() {
    let delay_p99 = Some(Duration::from_micros(64));
    let mut sample = Sample { cpus: 0.5, ..Sample::default() };
    add_rates(&mut sample, &rates(delay_p99, true));
    let due = Sample { waiting: Some(0.1), delay_p99, preempted: Some(6.0), ..sample.clone() };
    assert_eq!(sample, due);
}

/// Before, it counted as not measured, so the container that waited for longest did not wait at all.
#[test]
fn a_delay_beyond_the_last_limit_of_the_probes_is_a_long_one_and_not_none() {
    let delay = |rates| {
        let mut sample = Sample::default();
        add_rates(&mut sample, &rates);
        sample.delay_p99
    };
    assert_eq!(delay(rates(None, true)), Some(Duration::from_nanos(1 << 28)));
    assert_eq!(delay(rates(None, false)), None);
}

fn occupant(id: u64, name: &str, qos: QosClass, cpus: &str) -> Occupant {
    let pod =
        Pod { namespace: "n".to_owned(), name: name.to_owned(), qos: Some(qos), ..Pod::default() };
    Occupant {
        id: ContainerId(id),
        name: format!("n/{name}/main"),
        runtime_id: format!("id-{name}"),
        scheduling_class: None,
        spec: Arc::new(NewContainer { pod, name: "main".to_owned(), ..NewContainer::default() }),
        tuning: Arc::default(),
        class: CpuClass::Shared,
        cpus: cpus.parse().unwrap(),
        exclusive: "".parse().unwrap(),
        mems: "0".parse().unwrap(),
        home: Err(NoHome::AtHome),
        is_left_alone: false,
        is_immovable: false,
        is_claimed: false,
        may_share_elsewhere: false,
        is_together: false,
        is_running: true,
    }
}

fn occupancy(occupants: Vec<Occupant>) -> Occupancy {
    let shared = "0-1".parse().unwrap();
    Occupancy { occupants, shared, is_at_rest: true, ..Occupancy::default() }
}

fn scene(occupancy: &Occupancy, stays: &Stays, is_late: bool) -> Scene {
    let (config, reach) = (RebalanceConfig::default(), Reach::default());
    scene_within(occupancy, stays, Bounds { config: &config, reach: &reach }, is_late)
}

fn scene_within(occupancy: &Occupancy, stays: &Stays, bounds: Bounds<'_>, is_late: bool) -> Scene {
    let topology = derive(&parse_machine("pack:1 core:1 pu:2").unwrap()).unwrap();
    scene_of(occupancy, Arc::new(topology), stays, bounds, is_late)
}

fn annotated(wish: &str, occupant: Occupant) -> Occupant {
    let mut occupant = occupant;
    let key = "bayplan.dev/rebalance".to_owned();
    Arc::make_mut(&mut occupant.spec).pod.annotations.insert(key, wish.to_owned());
    occupant.tuning = Arc::new(tuning_of(&occupant.spec, &RequestRules::default()));
    occupant
}

/// Mode and knobs of all containers on a node in mode `act` that can turn all that is in files.
fn check_offer(occupants: Vec<Occupant>, expected: Expect) {
    check_offer_of([Knob::Idle, Knob::Suppress, Knob::Burst].into(), occupants, expected);
}

fn check_offer_of(knobs: BTreeSet<Knob>, occupants: Vec<Occupant>, expected: Expect) {
    let config = RebalanceConfig { mode: Mode::Act, ..RebalanceConfig::default() };
    let reach = Reach { knobs, lacking: None, classes: None };
    let bounds = Bounds { config: &config, reach: &reach };
    let scene = scene_within(&occupancy(occupants), &Stays::default(), bounds, false);
    let lines = scene.residents.values().map(|it| {
        let knobs: Vec<&str> = it.knobs.iter().map(|knob| knob.name()).collect();
        format!("{} {}: {}\n", it.name, it.mode.name(), knobs.join(" "))
    });
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn a_container_to_be_acted_on_is_offered_what_touches_no_other() {
    let hog = |id, name| occupant(id, name, QosClass::BestEffort, "0-1");
    let mut limited = occupant(3, "limited", QosClass::Burstable, "0-1");
    Arc::make_mut(&mut limited.spec).resources.cpu_quota = 100_000;
    let mut decided = limited.clone();
    decided.id = ContainerId(4);
    Arc::make_mut(&mut decided.spec)
        .pod
        .annotations
        .insert("bayplan.dev/cpu-burst".to_owned(), "0".to_owned());
    decided.tuning = Arc::new(tuning_of(&decided.spec, &RequestRules::default()));
    check_offer(
        vec![hog(1, "a"), hog(2, "b"), limited, decided],
        expect![[r#"
        n/a/main act: idle suppress evict
        n/b/main act: idle suppress evict
        n/limited/main act: burst evict
        n/limited/main act: evict
    "#]],
    );
    check_offer(
        vec![hog(1, "a"), annotated("observe", hog(2, "b"))],
        expect![[r#"
            n/a/main act: evict
            n/b/main observe: idle siblings suppress evict
        "#]],
    );
    let mut mate = annotated("off", hog(2, "a"));
    mate.name = "n/a/mate".to_owned();
    check_offer(
        vec![hog(1, "a"), mate],
        expect![[r#"
            n/a/main act: evict
            n/a/mate off: idle siblings suppress evict
        "#]],
    );
}

#[test]
fn only_a_container_that_asked_for_nothing_is_suppressed() {
    let all = || {
        vec![
            occupant(1, "hog", QosClass::BestEffort, "0-1"),
            occupant(2, "web", QosClass::Burstable, "0-1"),
        ]
    };
    check_offer_of(
        [Knob::Siblings].into(),
        all(),
        expect![[r#"
        n/hog/main act: siblings evict
        n/web/main act: siblings evict
    "#]],
    );
    check_offer_of(
        [Knob::Siblings, Knob::Suppress].into(),
        all(),
        expect![[r#"
        n/hog/main act: siblings suppress evict
        n/web/main act: siblings evict
    "#]],
    );
}

/// On a node with two caches of one CPU, in mode `act` for all containers.
#[track_caller]
fn check_moves(occupant: Occupant, expected: &[Knob]) {
    check_moves_on("numa:1 l3:2 core:1 pu:1", occupant, expected);
}

#[track_caller]
fn check_moves_on(machine: &str, occupant: Occupant, expected: &[Knob]) {
    check_offers([Knob::Move, Knob::MoveOwner].into(), machine, occupant, expected);
}

#[track_caller]
fn check_offered(knob: Knob, machine: &str, occupant: Occupant, expected: &[Knob]) {
    check_offers([knob].into(), machine, occupant, expected);
}

#[track_caller]
fn check_offers(knobs: BTreeSet<Knob>, machine: &str, occupant: Occupant, expected: &[Knob]) {
    let config = RebalanceConfig { mode: Mode::Act, ..RebalanceConfig::default() };
    let reach = Reach { knobs, lacking: None, classes: None };
    let bounds = Bounds { config: &config, reach: &reach };
    let topology = Arc::new(derive(&parse_machine(machine).unwrap()).unwrap());
    let id = occupant.id;
    let scene = scene_of(&occupancy(vec![occupant]), topology, &Stays::default(), bounds, false);
    let knobs = scene.residents[&id].knobs.iter().copied();
    assert_eq!(knobs.filter(|it| *it != Knob::Evict).collect::<Vec<_>>(), expected);
}

#[test]
fn a_shared_container_is_moved_unless_bound_and_an_owner_only_if_its_pod_agrees() {
    let sharer = |cpus| occupant(1, "web", QosClass::Burstable, cpus);
    let gathered = |cpus, machine, expected: &[Knob]| {
        check_offered(Knob::Gather, machine, sharer(cpus), expected);
    };
    gathered("0-1", "numa:1 l3:2 core:1 pu:1", &[Knob::Gather]);
    gathered("0", "numa:1 l3:2 core:1 pu:1", &[]);
    gathered("0-1", "numa:1 l3:1 core:2 pu:1", &[]);
    let free = Occupant { may_share_elsewhere: true, ..sharer("0") };
    check_moves(free.clone(), &[Knob::Move]);
    check_moves(sharer("0"), &[]);
    check_moves(sharer("0-1"), &[Knob::Move]);
    check_moves(Occupant { is_immovable: true, ..free.clone() }, &[]);
    let owner = Occupant { exclusive: "0".parse().unwrap(), ..sharer("0") };
    check_moves(owner.clone(), &[]);
    let agreed = annotated("act", owner);
    check_moves(agreed.clone(), &[Knob::MoveOwner]);
    check_moves(Occupant { is_immovable: true, ..agreed.clone() }, &[]);
    check_moves(Occupant { is_left_alone: true, ..agreed.clone() }, &[]);
    // Its shared part would stay.
    check_moves(Occupant { cpus: "0-1".parse().unwrap(), ..agreed.clone() }, &[]);
    // An exclusive container does not leave its NUMA node; a shared one does.
    check_moves_on("numa:2 l3:1 core:1 pu:1", agreed, &[]);
    check_moves_on("numa:2 l3:1 core:1 pu:1", free, &[Knob::Move]);
}

#[test]
fn where_nothing_can_be_turned_all_containers_are_observed() {
    let config = RebalanceConfig { mode: Mode::Act, ..RebalanceConfig::default() };
    let reach = Reach { lacking: Some("no"), ..Reach::default() };
    let bounds = Bounds { config: &config, reach: &reach };
    let occupancy = occupancy(vec![occupant(1, "a", QosClass::BestEffort, "0-1")]);
    let scene = scene_within(&occupancy, &Stays::default(), bounds, false);
    let resident = &scene.residents[&ContainerId(1)];
    assert_eq!(resident.mode, Mode::Observe);
    assert!(resident.knobs.contains(&Knob::Idle));
}

#[test]
fn a_scene_says_why_nothing_is_to_be_changed() {
    let calm = occupancy(Vec::new());
    for (occupancy, is_late, expected) in [
        (calm.clone(), false, "None"),
        (calm.clone(), true, "Some(Overload)"),
        (Occupancy { is_at_rest: false, ..calm.clone() }, true, "Some(Creating)"),
        (Occupancy { is_restored: true, ..calm.clone() }, false, "Some(Restored)"),
        (Occupancy { is_rebalance_paused: true, is_restored: true, ..calm }, false, "Some(Paused)"),
    ] {
        let scene = scene(&occupancy, &Stays::default(), is_late);
        assert_eq!(format!("{:?}", scene.unrest), expected);
    }
}

#[test]
fn a_container_that_is_elsewhere_is_there_anew() {
    let mut stays = Stays::default();
    let mut occupancy = occupancy(vec![
        occupant(1, "stays", QosClass::Burstable, "0-1"),
        occupant(2, "moves", QosClass::Burstable, "0-1"),
    ]);
    stays.note(&occupancy, SECOND);
    occupancy.occupants[1].cpus = "0".parse().unwrap();
    stays.note(&occupancy, SECOND * 2);
    let since = |scene: &Scene, id| scene.residents[&ContainerId(id)].since.as_secs();
    let scene = scene(&occupancy, &stays, false);
    assert_eq!((since(&scene, 1), since(&scene, 2)), (1, 2));
}

/// Unrest and modes after another program has changed files of `changed`, and again and again those of `contested`.
fn check_drift(changed: &[&str], contested: &[&str], expected: Expect) {
    let names = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect();
    let drift = Drift { changed: names(changed), contested: names(contested) };
    let off = annotated("off", occupant(2, "off", QosClass::Burstable, "0-1"));
    let occupants = vec![occupant(1, "web", QosClass::Burstable, "0-1"), off];
    let config = RebalanceConfig { mode: Mode::Act, ..RebalanceConfig::default() };
    let reach = Reach { knobs: [Knob::Idle].into(), lacking: None, classes: None };
    let bounds = Bounds { config: &config, reach: &reach };
    let mut scene = scene_within(&occupancy(occupants), &Stays::default(), bounds, false);
    note_drift(&mut scene, &drift);
    let modes: Vec<&str> = scene.residents.values().map(|it| it.mode.name()).collect();
    expected.assert_eq(&format!("{:?} {}", scene.unrest, modes.join(" ")));
}

#[test]
fn files_that_others_change_freeze_what_concerns_their_containers() {
    check_drift(&[], &[], expect!["None act off"]);
    check_drift(&["n/web/main"], &[], expect!["Some(Drift) act off"]);
    check_drift(&[], &["n/web/main", "n/off/main"], expect!["None observe off"]);
    check_drift(&["n/off/main", "irq 9"], &["package 0"], expect!["None act off"]);
}

fn check_owner(name: &str, labels: &[(&str, &str)], expected: &str) {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let pod = Pod { name: name.to_owned(), labels: labels.collect(), ..Pod::default() };
    assert_eq!(pod.made_by(), expected);
}

#[test]
fn pods_of_one_owner_are_the_same_workload() {
    check_owner("web-7d4b9-x2x4z", &[("pod-template-hash", "7d4b9")], "web");
    check_owner("web-1-7d4b9-x2x4z", &[("pod-template-hash", "7d4b9")], "web-1");
    check_owner("agent-x2x4z", &[("controller-revision-hash", "5c6")], "agent");
    check_owner("db-0", &[("controller-revision-hash", "db-5c6")], "db");
    check_owner("sum-x2x4z", &[("batch.kubernetes.io/job-name", "sum")], "sum");
    check_owner("sum-x2x4z", &[("job-name", "sum")], "sum");
    check_owner("alone-1", &[], "alone-1");
    check_owner("odd", &[("pod-template-hash", "7d4b9")], "odd");
    check_owner("odd", &[("controller-revision-hash", "")], "odd");
}

/// What is usual of one version says nothing of the next; which pod runs it does not matter.
#[test]
fn another_image_is_another_workload() {
    let version = |id, pod: &str, image: &str| {
        let mut occupant = occupant(id, pod, QosClass::Burstable, "0-1");
        Arc::make_mut(&mut occupant.spec).image = image.to_owned();
        Arc::make_mut(&mut occupant.spec)
            .pod
            .labels
            .insert("pod-template-hash".to_owned(), "7d4b9".to_owned());
        occupant
    };
    let occupants = vec![
        version(1, "web-7d4b9-a", "sha256:1"),
        version(2, "web-7d4b9-b", "sha256:1"),
        version(3, "web-7d4b9-c", "sha256:2"),
    ];
    let scene = scene(&occupancy(occupants), &Stays::default(), false);
    let workload = |id| &scene.residents[&ContainerId(id)].workload;
    assert_eq!(workload(1), workload(2));
    assert_ne!(workload(1), workload(3));
    assert_eq!(workload(3).image, "sha256:2");
}

/// A server that waits for a hog, in the counters that the kernel's files would have, through sampler, scene and rebalancer. After each look what it knows and says.
fn play(bounds: Bounds<'_>) -> Vec<(Rebalancer, Scene, Vec<Decision>)> {
    let occupancy = occupancy(vec![
        occupant(1, "server", QosClass::Burstable, "0-1"),
        occupant(2, "hog", QosClass::BestEffort, "0-1"),
    ]);
    let mut stays = Stays::default();
    let (mut sampler, mut rebalancer) = (Sampler::default(), Rebalancer::new(Settings::default()));
    let begun = Instant::now();
    let look = |round: u64| {
        let at = SECOND * 5 * u32::try_from(round).unwrap();
        stays.note(&occupancy, at);
        // Of each 5 s, the server runs 3 and waits during 4, and the hog runs 7.
        let groups = [
            ("id-server", counters(3_000_000 * round, 4_000_000 * round)),
            ("id-hog", counters(7_000_000 * round, 0)),
        ];
        let groups: BTreeMap<_, _> =
            groups.into_iter().map(|(id, it)| (id.to_owned(), (it, None))).collect();
        let idle_ticks = [(CpuId(0), 50 * round), (CpuId(1), 0)].into();
        let caches = BTreeMap::new();
        let files = Some(GroupsRead {
            at: begun + at,
            groups,
            caches,
            idle_ticks,
            frequencies_khz: BTreeMap::new(),
        });
        let samples = sampler.sample(&occupancy, files, None);
        assert_eq!(samples.len(), if round == 0 { 0 } else { 2 });
        let idle = [(CpuId(0), 0.1), (CpuId(1), 0.0)].into();
        assert_eq!(*sampler.idle(), if round == 0 { BTreeMap::new() } else { idle });
        let round = Round { at, period: SECOND * 5, samples };
        let scene = scene_within(&occupancy, &stays, bounds, false);
        let decisions = rebalancer.look(&scene, &round);
        (rebalancer.clone(), scene, decisions)
    };
    (0..40).map(look).collect()
}

#[test]
fn a_victim_is_seen_in_the_counters_of_files_alone() {
    let (config, reach) = (RebalanceConfig::default(), Reach::default());
    let looks = play(Bounds { config: &config, reach: &reach });
    let proposed: Vec<Decision> = looks.into_iter().flat_map(|(.., said)| said).collect();
    let Some(Decision::Propose(first)) = proposed.first() else { panic!("{proposed:?}") };
    assert_eq!((first.evidence.victim, first.target), (ContainerId(1), ContainerId(2)));
    assert_eq!(first.knob, Knob::Suppress);
    assert!(proposed.iter().all(|it| matches!(it, Decision::Propose(_))), "{proposed:?}");
}

/// As in a virtual machine: every migration within the node would count as one to a cold cache.
#[test]
fn where_no_last_level_caches_are_known_migrations_are_not() {
    for (machine, is_known) in [("numa:2 core:2 pu:1", false), ("numa:2 l3:1 core:2 pu:1", true)] {
        let topology = derive(&parse_machine(machine).unwrap()).unwrap();
        let migrations = Some(Migrations { within_node: 900.0, ..Migrations::default() });
        let sample = Sample { cpus: 1.0, migrations, ..Sample::default() };
        let mut samples = [(ContainerId(1), sample)].into();
        forget_migrations_without_caches(&topology, &mut samples);
        assert_eq!(samples[&ContainerId(1)].migrations.is_some(), is_known, "{machine}");
        assert!((samples[&ContainerId(1)].cpus - 1.0).abs() < f64::EPSILON);
    }
}
