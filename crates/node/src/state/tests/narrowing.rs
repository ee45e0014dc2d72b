//! Memory nodes that become fewer again, through the door of the state.

use expect_test::{Expect, expect};

use super::*;

/// Plays: `NAME GIB` creates a container with one CPU in pod 0, `-NAME` ends one, `sync` asks the runtime, `status` says which containers could do
/// with fewer nodes. Some names say more: `fixed` is immovable, `left` has its memory left alone, the creation of `pending` does not end.
fn play(world: &mut World, steps: &[&str]) -> String {
    let mut text = String::new();
    for step in steps {
        let before = world.notes.len();
        match step.split_once(' ') {
            None if *step == "sync" => world.sync().unwrap(),
            None if *step == "status" => {
                for it in world.state.status().containers {
                    let said = it.narrowing_text().map(|said| format!("{} {said}\n", it.container));
                    text.push_str(&said.unwrap_or_default());
                }
            }
            None => {
                let name = step.trim_start_matches('-');
                let (id, _) = world.real.iter().find(|(_, real)| real.spec.name == name).unwrap();
                let id = id.clone();
                world.real.remove(&id);
                world.step(Event::Ended(id));
            }
            Some((name, gib)) => create(world, name, gib.parse().unwrap()),
        }
        world.check().unwrap();
        for note in &world.notes[before..] {
            if let Note::Narrowed { container, from, to, why } = note {
                text.push_str(&format!("{step}: {container} {from} -> {to} {why}\n"));
            }
        }
    }
    text + &mems(&world.state)
}

fn mems(state: &NodeState) -> String {
    let row = |(id, container): (&ContainerId, &Container)| {
        format!("{} {}\n", container.spec.name, state.ledger.allocation(*id).unwrap().mems)
    };
    state.containers.iter().map(row).collect()
}

fn create(world: &mut World, name: &str, gib: i64) {
    let mut spec = spec(0, 0, 0, 1000, gib);
    spec.name = name.to_owned();
    let said = match name {
        _ if name.starts_with("fixed") => "immovable.bayplan.dev",
        _ if name.starts_with("left") => "memory.preserve.bayplan.dev",
        _ => "",
    };
    if !said.is_empty() {
        spec.pod.annotations.insert(said.to_owned(), "true".to_owned());
    }
    world.admit(spec);
    if name.starts_with("pending") {
        return;
    }
    let Pending { ticket, spec, told, .. } = world.pending.pop().unwrap();
    let id = world.make_real(spec, told).unwrap();
    world.step(Event::CreateEnded(ticket, CreateOutcome::Created { id, pinned: true }));
}

/// Three NUMA nodes of 8 GiB.
fn check(narrows: bool, steps: &[&str], expected: Expect) {
    let machine = Machine::new("pack:1 numa:3 core:6 pu:1 mem:8", "");
    let mut world = World::new(Machine { narrows, ..machine });
    expected.assert_eq(&play(&mut world, steps));
    let places = mems(&world.state);
    world.restart().unwrap();
    assert_eq!(mems(&world.state), places);
    world.end().unwrap();
}

/// Every node is nearly full when `c` and `d` come, and two are not any more.
const WIDE: [&str; 7] = ["a 6", "b 6", "x 6", "c 3", "d 3", "-a", "-b"];

fn after_departures(more: &[&'static str]) -> Vec<&'static str> {
    [&WIDE[..], more].concat()
}

#[test]
fn a_narrowing_is_only_said_unless_the_configuration_allows_it() {
    check(
        false,
        &after_departures(&["status", "sync", "sync"]),
        expect![[r#"
        c could be narrowed from nodes 0-1 to 0, moving at most 3 GiB
        d could be narrowed from nodes 0-2 to 0, moving at most 3 GiB
        x 2
        c 0-1
        d 0-2
    "#]],
    );
}

#[test]
fn one_container_is_narrowed_by_each_sync_that_follows_a_departure() {
    check(
        true,
        &after_departures(&["sync", "status", "sync", "status", "sync"]),
        expect![[r#"
        sync: default/pod0/d 0-2 -> 0 because fewer will do, moving at most 3 GiB
        c could be narrowed from nodes 0-1 to 0, moving at most 3 GiB
        sync: default/pod0/c 0-1 -> 0 because fewer will do, moving at most 3 GiB
        x 2
        c 0
        d 0
    "#]],
    );
}

#[test]
fn a_container_that_is_immovable_or_left_alone_keeps_its_nodes() {
    for name in ["fixed", "left"] {
        let steps = ["a 6", "b 6", "x 6", &format!("{name} 3"), "-a", "-b", "-x", "status", "sync"];
        let mut world =
            World::new(Machine { narrows: true, ..Machine::new("numa:3 core:6 mem:8", "") });
        let text = play(&mut world, &steps);
        assert_eq!(text, format!("{name} 0-1\n"));
    }
}

#[test]
fn no_container_is_narrowed_while_one_is_being_created() {
    check(
        true,
        &after_departures(&["pending 0", "sync"]),
        expect![[r#"
        x 2
        c 0-1
        d 0-2
        pending 0
    "#]],
    );
}

#[test]
fn explain_and_journal_say_why_the_nodes_are_fewer() {
    let machine = Machine::new("numa:3 core:6 mem:8", "");
    let mut world = World::new(Machine { narrows: true, ..machine });
    play(&mut world, &after_departures(&["sync"]));
    let said: Vec<String> =
        world.state.explain("pod0").into_iter().map(|it| it.decision.outcome).collect();
    expect![[r#"
        placed in numa 2
        placed in machine
        placed in machine; moved from memory nodes 0-2 to 0 because fewer will do, moving at most 3 GiB"#]].assert_eq(&said.join("\n"));
    let journaled = replay(&world.journal);
    let told = |id: &ContainerId| journaled.containers[id].allocation.clone();
    for id in world.state.containers.ids() {
        assert_eq!(Some(told(id)), world.state.place(*id));
    }
}
