//! Compaction through the door of the state: what is moved, told and kept, and what is not.

use bayplan_allocator::Limits;
use expect_test::{Expect, expect};

use super::*;
use crate::config::CompactionConfig;

/// Two NUMA nodes of four cores, one of whose CPUs is kept for sharers: 0-3 and 8-11, 4-7 and 12-15.
const TWO: &str = "pack:1 numa:2 core:4 pu:2 mem:8";

fn enabled() -> CompactionConfig {
    CompactionConfig { enabled: true, ..CompactionConfig::default() }
}

fn world(config: CompactionConfig) -> World {
    let mut world = World::new(Machine { compacts: true, ..Machine::new(TWO, "") });
    world.state = world.state.with_compaction(config);
    world
}

/// Plays: `NAME MILLI` creates a container, `-NAME` ends one, `sync` asks the runtime. Gives who was said to be moved, and who owns what
/// at the end.
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
                Note::Moved { container, from, to, why } => {
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

/// A Guaranteed container. Some names say more: `fixed` is immovable, `left` left alone, `system` in `kube-system`, the creation of `pending`
/// does not end.
fn create(world: &mut World, name: &str, milli: i64) {
    let mut spec = spec(if name.starts_with("system") { 5 } else { 0 }, 0, 0, milli, 0);
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

#[test]
fn without_compaction_nobody_is_moved() {
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
fn who_is_immovable_or_left_alone_or_reserved_stays() {
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
    let steps = ["left 1000", "system 2000", "a 6000", "c 2000", "fixed 2000", "-c", "sync"];
    check(
        enabled(),
        &steps,
        expect![[r#"
        sync: default/pod0/a 1-3,9-11 -> 5-7,13-15 so that free CPUs lie together (6 CPUs change)
        left 
        system 
        a 5-7,13-15
        fixed 4,12
    "#]],
    );
}

#[test]
fn nobody_is_moved_while_somebody_is_being_created() {
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
fn who_was_moved_is_told_why_and_the_last_time_only() {
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

#[test]
fn sharers_let_go_before_who_is_moved_and_take_after_him() {
    let mut world = world(enabled());
    play(&mut world, &["s 500", "a 6000", "c 2000", "d 2000", "-c"]);
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
        move   owner cpus 4,12 -> 0,8 mems 1 -> 0
        grow   sharer cpus 5-7,13-15 -> 4-7,12-15
    "#]]
    .assert_eq(&text);
}
