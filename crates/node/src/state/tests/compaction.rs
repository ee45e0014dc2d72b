//! Compaction through the door of the state: what is moved, told and kept, and what is not.

use bayplan_allocator::Limits;
use expect_test::{Expect, expect};

use super::*;
use crate::settings::CompactionConfig;

/// Two NUMA nodes of four cores, with one CPU kept for shared containers: 0-3 and 8-11, 4-7 and 12-15.
const TWO: &str = "pack:1 numa:2 core:4 pu:2 mem:8";

fn enabled() -> CompactionConfig {
    CompactionConfig { enabled: true, ..CompactionConfig::default() }
}

fn world(config: CompactionConfig) -> World {
    let mut world = World::new(Machine { compacts: true, ..Machine::new(TWO, "") });
    world.state = world.state.with_compaction(config);
    world
}

/// Plays: `NAME MILLI` creates a container, `-NAME` ends one, `sync` asks the runtime. Gives which containers were said to be moved, and which own
/// what at the end.
fn play(world: &mut World, steps: &[&str]) -> String {
    let mut text = String::new();
    for step in steps {
        let before = world.notes.len();
        match step.split_once(' ') {
            None if *step == "sync" => world.sync().unwrap(),
            None => {
                let id = id_of(world, step.trim_start_matches('-')).unwrap();
                world.real.remove(&id);
                world.step(Event::Ended(id));
            }
            Some((name, milli)) => create(world, name, milli.parse().unwrap()),
        }
        world.check().unwrap();
        for note in &world.notes[before..] {
            match note {
                Note::Moved { container, from, to, why, .. } => {
                    text.push_str(&format!("{step}: {container} {from} -> {to} {why}\n"));
                }
                Note::Failure { kind: "no_effect", .. } => {}
                Note::Failure { kind, message } => text.push_str(&format!("{kind} {message}\n")),
                Note::Refused { container, .. } => text.push_str(&format!("refused {container}\n")),
                _ => {}
            }
        }
    }
    text + &owners(&world.state)
}

fn owners(state: &NodeState) -> String {
    let mut text = String::new();
    for (id, container) in &state.containers {
        let cpus = &state.ledger.allocation(*id).unwrap().exclusive;
        text.push_str(&format!("{} {cpus}\n", container.spec.name));
    }
    text
}

/// The runtime's id of a container.
fn id_of(world: &World, name: &str) -> Option<String> {
    world.real.iter().find(|(_, real)| real.spec.name == name).map(|(id, _)| id.clone())
}

/// A Guaranteed container. Some names say more: `fixed` is immovable, `left` left alone, the creation of `pending`
/// does not end.
fn create(world: &mut World, name: &str, milli: i64) {
    let mut spec = spec(0, 0, 0, milli, 0);
    spec.name = name.to_owned();
    let said = match name {
        _ if name.starts_with("fixed") => "immovable.bayplan.dev",
        _ if name.starts_with("left") => "cpu.preserve.bayplan.dev",
        _ => "",
    };
    if !said.is_empty() {
        spec.pod.annotations.insert(said.to_owned(), "true".to_owned());
    }
    let pending = world.pending.len();
    world.admit(spec);
    if world.pending.len() == pending || name.starts_with("pending") {
        return;
    }
    let Pending { ticket, spec, told, .. } = world.pending.remove(pending);
    let id = world.make_real(spec, told).unwrap();
    world.step(Event::CreateEnded(ticket, CreateOutcome::Created { id, pinned: true }));
}

fn check(config: CompactionConfig, steps: &[&str], expected: Expect) {
    let mut world = world(config);
    expected.assert_eq(&play(&mut world, steps));
    let places = owners(&world.state);
    // Whatever is on disk of the last step when the power fails, every container has a place of its own.
    for known in 0..world.journal.len() {
        let mut torn = fresh(&world.machine);
        let step = torn.restore(replay(&world.journal[..known]), Timestamp::UNIX_EPOCH);
        let is_failure = |note: &Note| matches!(note, Note::Failure { .. });
        assert!(!step.notes.iter().any(is_failure), "{:?}", step.notes);
    }
    world.restart().unwrap();
    assert_eq!(owners(&world.state), places);
    world.end().unwrap();
}

/// `d` sits in the second node, and would fit into the first as soon as `c` has left it.
const HOLES: [&str; 4] = ["a 6000", "c 2000", "d 2000", "-c"];

fn with_holes(more: &[&'static str]) -> Vec<&'static str> {
    [&HOLES[..], more].concat()
}

#[test]
fn holes_are_joined_by_the_sync_that_follows_a_departure() {
    check(
        enabled(),
        &with_holes(&[]),
        expect![[r#"
        a 1-3,9-11
        d 4,12
    "#]],
    );
    check(
        enabled(),
        &with_holes(&["sync", "sync"]),
        expect![[r#"
        sync: default/pod0/d 4,12 -> 0,8 so that free CPUs lie together (2 CPUs change)
        a 1-3,9-11
        d 0,8
    "#]],
    );
}

/// With a budget of one move, a departure leaves something to do for the event that follows.
#[test]
fn holes_are_joined_by_the_sync_that_follows_an_arrival_with_cpus_of_its_own() {
    let limits = Limits { moves_max: 1, cpus_max: 2, ..enabled().limits };
    let config = CompactionConfig { limits, ..enabled() };
    let holes = ["a 4000", "b 2000", "c 2000", "d 2000", "e 2000", "-b", "-c", "sync", "sync"];
    check(
        config,
        &[&holes[..], &["s 500", "sync"]].concat(),
        expect![[r#"
        sync: default/pod0/d 4,12 -> 3,11 so that free CPUs lie together (2 CPUs change)
        a 1-2,9-10
        d 3,11
        e 5,13
        s 
    "#]],
    );
    check(
        config,
        &[&holes[..], &["f 4000", "sync"]].concat(),
        expect![[r#"
            sync: default/pod0/d 4,12 -> 3,11 so that free CPUs lie together (2 CPUs change)
            sync: default/pod0/d 3,11 -> 7,15 so that free CPUs lie together (2 CPUs change)
            a 1-2,9-10
            d 7,15
            e 5,13
            f 4,6,12,14
        "#]],
    );
}

#[test]
fn what_room_has_cost_is_not_there_for_joining() {
    let limits = Limits { moves_max: 1, ..enabled().limits };
    let steps = with_holes(&["e 7000", "sync"]);
    check(
        CompactionConfig { limits, ..enabled() },
        &steps,
        expect![[r#"
        e 7000: default/pod0/d 4,12 -> 0,8 to make room for default/pod0/e (2 CPUs change)
        a 1-3,9-11
        d 0,8
        e 4-7,12-14
    "#]],
    );
}

#[test]
fn without_compaction_no_container_is_moved() {
    let steps = with_holes(&["sync", "e 8000"]);
    check(
        CompactionConfig::default(),
        &steps,
        expect![[r#"
        refused default/pod0/e
        a 1-3,9-11
        d 4,12
    "#]],
    );
}

#[test]
fn room_is_made_before_a_container_is_spread_over_nodes() {
    check(
        enabled(),
        &with_holes(&["e 7000"]),
        expect![[r#"
        e 7000: default/pod0/d 4,12 -> 0,8 to make room for default/pod0/e (2 CPUs change)
        a 1-3,9-11
        d 0,8
        e 4-7,12-14
    "#]],
    );
}

#[test]
fn a_container_that_is_immovable_or_left_alone_stays() {
    let steps = ["a 6000", "c 2000", "fixed 2000", "-c", "sync", "e 7000"];
    check(
        enabled(),
        &steps,
        expect![[r#"
        sync: default/pod0/a 1-3,9-11 -> 5-7,13-15 so that free CPUs lie together (6 CPUs change)
        a 5-7,13-15
        fixed 4,12
        e 0-3,9-11
    "#]],
    );
    let steps = ["left 1000", "a 6000", "c 2000", "fixed 2000", "-c", "sync"];
    check(
        enabled(),
        &steps,
        expect![[r#"
        sync: default/pod0/a 1-3,9-11 -> 5-7,13-15 so that free CPUs lie together (6 CPUs change)
        left 
        a 5-7,13-15
        fixed 4,12
    "#]],
    );
}

#[test]
fn no_container_is_moved_while_one_is_being_created() {
    check(
        enabled(),
        &["a 6000", "c 2000", "pending 2000", "-c", "sync"],
        expect![[r#"
        a 1-3,9-11
        pending 4,12
    "#]],
    );
    check(
        enabled(),
        &with_holes(&["pending 1000", "sync"]),
        expect![[r#"
        a 1-3,9-11
        d 4,12
        pending 0
    "#]],
    );
}

#[test]
fn the_budget_is_kept() {
    let steps = ["a 4000", "b 2000", "c 2000", "d 2000", "e 2000", "-b", "-c", "sync"];
    check(
        enabled(),
        &steps,
        expect![[r#"
        sync: default/pod0/a 1-2,9-10 -> 6-7,14-15 so that free CPUs lie together (4 CPUs change)
        a 6-7,14-15
        d 4,12
        e 5,13
    "#]],
    );
    let limits = Limits { cpus_max: 3, ..enabled().limits };
    check(
        CompactionConfig { limits, ..enabled() },
        &steps,
        expect![[r#"
        sync: default/pod0/d 4,12 -> 3,11 so that free CPUs lie together (2 CPUs change)
        a 1-2,9-10
        d 3,11
        e 5,13
    "#]],
    );
    let limits = Limits { gain_min_percent: 100, moves_max: 1, ..enabled().limits };
    check(
        CompactionConfig { limits, ..enabled() },
        &steps,
        expect![[r#"
        sync: default/pod0/a 1-2,9-10 -> 6-7,14-15 so that free CPUs lie together (4 CPUs change)
        a 6-7,14-15
        d 4,12
        e 5,13
    "#]],
    );
}

#[test]
fn a_moved_container_is_told_why_and_the_last_time_only() {
    let mut world = world(enabled());
    let steps = with_holes(&["sync", "-a", "f 6000", "-f", "e 8000"]);
    play(&mut world, &steps);
    let text: Vec<String> =
        world.state.explain("pod0").into_iter().map(|it| it.decision.outcome).collect();
    expect![[r#"
        placed in numa 1; moved from CPUs 4,12 to 0,8 so that free CPUs lie together (2 CPUs change)
        placed in numa 1"#]]
    .assert_eq(&text.join("\n"));
}

/// The same with a container that shares what `c` has left.
const SHARED: [&str; 7] = ["a 6000", "c 2000", "d 2000", "e 5000", "-c", "s 500", "-e"];

#[test]
fn shared_containers_let_go_before_a_move_and_take_after_it() {
    let mut world = world(enabled());
    play(&mut world, &SHARED);
    world.start_sync();
    world.take_view();
    let view = world.view.take().unwrap();
    let step = world.state.step(Event::Synced(view), Timestamp::UNIX_EPOCH);
    let ids = [("s", "sharer"), ("d", "owner")];
    let mut text = bayplan_enforcement::render_plan(&step.plan);
    for (name, word) in ids {
        text = text.replace(&id_of(&world, name).unwrap(), word);
    }
    expect![[r#"
        move   sharer cpus 0,8 -> 5-7,13-15 mems 0 -> 0-1
        move   owner cpus 4,12 -> 0,8 mems 1 -> 0
        grow   sharer cpus 5-7,13-15 -> 4-7,12-15
    "#]]
    .assert_eq(&text);
}

#[test]
fn a_departure_and_the_end_of_a_creation_ask_for_a_sync_while_holes_are_due() {
    for (config, expected) in [(enabled(), true), (CompactionConfig::default(), false)] {
        let mut world = world(config);
        play(&mut world, &["a 6000", "c 2000", "d 2000", "pending 1000", "pending2 1000"]);
        let ended = Event::Ended(id_of(&world, "c").unwrap());
        let [failed, made] = [0, 1].map(|at| world.pending[at].ticket);
        let outcome = CreateOutcome::Created { id: "new".to_owned(), pinned: true };
        let failed = Event::CreateEnded(failed, CreateOutcome::Failed);
        for event in [ended, failed, Event::CreateEnded(made, outcome)] {
            let step = world.state.step(event, Timestamp::UNIX_EPOCH);
            assert_eq!(step.sync_soon, expected);
            assert!(!step.notes.iter().any(|note| matches!(note, Note::Moved { .. })));
        }
    }
}

#[test]
fn a_container_in_the_wrong_place_is_repaired_before_any_is_moved() {
    let mut world = world(enabled());
    play(&mut world, &SHARED);
    let id = id_of(&world, "s").unwrap();
    world.real.get_mut(&id).unwrap().pinning = Pinning::default();
    let failed = FailedWrite { container: id, is_gone: false, withheld: None };
    world.step(Event::WritesFailed(vec![failed]));
    expect![[r#"
        a 1-3,9-11
        d 4,12
        s 
    "#]]
    .assert_eq(&play(&mut world, &["sync"]));
    expect![[r#"
        sync: default/pod0/d 4,12 -> 0,8 so that free CPUs lie together (2 CPUs change)
        a 1-3,9-11
        d 0,8
        s 
    "#]]
    .assert_eq(&play(&mut world, &["sync"]));
}

/// Kubelet's calls without anything going wrong, among everything else that can happen.
fn any_op_of_a_busy_node() -> impl Strategy<Value = Vec<Op>> {
    let create = (0u8..3, 0u8..3, 0u32..2, 1i64..7).prop_map(|(pod, name, attempt, cpus)| {
        let (milli, gib, which) = (cpus * 1000, 1, usize::MAX);
        vec![
            Op::Admit { pod, name, attempt, milli, gib },
            Op::Make(which),
            Op::CreateEnds { which, is_answered: true },
        ]
    });
    let remove = any::<usize>().prop_map(|which| vec![Op::Remove(which)]);
    let quiet = Just(vec![Op::FailuresArrive, Op::Sync, Op::Sync]);
    prop_oneof![4 => create, 3 => remove, 3 => quiet, 1 => any_op().prop_map(|op| vec![op])]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_busy_node_that_compacts_keeps_the_ledger_and_the_runtime_in_line(
        (numa, l3, pu) in (2u32..4, 1u32..3, 1u32..3),
        ops in prop::collection::vec(any_op_of_a_busy_node(), 1..60),
    ) {
        let line = format!("pack:1 numa:{numa} l3:{l3} core:4 pu:{pu} mem:8");
        let mut world = World::new(Machine { compacts: true, ..Machine::new(&line, "") });
        for op in ops.into_iter().flatten() {
            let notes = world.notes.len();
            world.play(op)?;
            world.check()?;
            let is_move = |note: &&Note| matches!(note, Note::Moved { .. });
            prop_assert!(world.notes[notes..].iter().filter(is_move).count() <= 2 * 8);
        }
        world.end()?;
    }
}
