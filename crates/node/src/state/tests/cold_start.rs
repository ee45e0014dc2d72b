//! Starts on slow memory, through the door of the state.

use expect_test::{Expect, expect};

use super::*;

/// Plays: `POD NAME GIB` creates a container with one CPU (pod 2 wants a cold start of two minutes), `-NAME` ends one, `NAME=CPUS` resizes one,
/// `wait` lets a minute go by, `restart` starts the daemon again, `back` sets the clock back by a day. A line for each change of memory nodes and each warning.
fn check(line: &str, steps: &[&str], expected: Expect) {
    let mut world = World::new(Machine { narrows: true, ..Machine::new(line, "") });
    let mut text = String::new();
    for step in steps {
        let before = world.notes.len();
        play(&mut world, step);
        world.check().unwrap();
        for note in &world.notes[before..] {
            match note {
                Note::Narrowed { container, from, to, .. }
                | Note::Warmed { container, from, to } => {
                    text.push_str(&format!("{step}: {container} {from} -> {to}\n"));
                }
                Note::Failure { message, .. } => text.push_str(&format!("{step}: {message}\n")),
                _ => {}
            }
        }
        let real = world.real.values().map(|it| format!("{} {}", it.spec.name, it.pinning.mems));
        text.push_str(&format!("{step}: {}\n", real.collect::<Vec<_>>().join(", ")));
    }
    expected.assert_eq(&text);
}

fn play(world: &mut World, step: &str) {
    let words: Vec<&str> = step.split(' ').collect();
    match words[..] {
        ["wait"] => world.play(Op::Wait).unwrap(),
        ["sync"] => world.sync().unwrap(),
        ["back"] => world.now -= SignedDuration::from_hours(24),
        ["restart"] => world.restart().unwrap(),
        [pod, name, gib] => {
            let mut spec = spec(pod.parse().unwrap(), 0, 0, 1000, gib.parse().unwrap());
            spec.name = name.to_owned();
            world.admit(spec);
            let Pending { ticket, spec, told, .. } = world.pending.pop().unwrap();
            let id = world.make_real(spec, told).unwrap();
            world.step(Event::CreateEnded(ticket, CreateOutcome::Created { id, pinned: true }));
        }
        [word] => {
            let (name, cpus) =
                word.trim_start_matches('-').split_once('=').unwrap_or((&word[1..], ""));
            let id = world.real.iter().find(|(_, it)| it.spec.name == name).unwrap().0.clone();
            match cpus {
                "" => {
                    world.real.remove(&id);
                    world.step(Event::Ended(id));
                }
                cpus => {
                    let cpus: i64 = cpus.parse().unwrap();
                    let answer = world.step(Event::Resize(id.clone(), resources(cpus * 1000)));
                    if let Answer::Admission(Admission::Place(told)) = answer {
                        world.real.get_mut(&id).unwrap().pinning = told;
                    }
                    world.step(Event::Resized(id, ResizeOutcome::Done));
                }
            }
        }
        _ => unreachable!("no step is called {step}"),
    }
}

const TWO_PACKAGES: &str = "pack:2 numa:1 core:4 mem:8 pmem:16 online:kernel";

#[test]
fn a_cold_start_ends_when_it_is_time_and_nothing_is_taken_away_after_it() {
    check(
        TWO_PACKAGES,
        &["2 a 4", "wait", "0 b 4", "wait", "-b", "sync", "a=2", "sync"],
        expect![[r#"
            2 a 4: a 2
            wait: a 2
            0 b 4: a 2, b 0
            wait: default/pod2/a 2 -> 0,2
            wait: a 0,2, b 0
            -b: a 0,2
            sync: a 0,2
            a=2: a 0,2
            sync: a 0,2
        "#]],
    );
}

#[test]
fn a_cold_start_goes_on_after_a_restart() {
    check(
        TWO_PACKAGES,
        &["2 a 4", "wait", "restart", "a=2", "wait", "restart"],
        expect![[r#"
        2 a 4: a 2
        wait: a 2
        restart: a 2
        a=2: a 2
        wait: default/pod2/a 2 -> 0,2
        wait: a 0,2
        restart: a 0,2
    "#]],
    );
}

#[test]
fn a_clock_that_is_set_back_does_not_make_a_cold_start_longer() {
    check(
        TWO_PACKAGES,
        &["2 a 4", "wait", "back", "restart", "wait", "wait", "wait"],
        expect![[r#"
            2 a 4: a 2
            wait: a 2
            back: a 2
            restart: a 2
            wait: a 2
            wait: a 2
            wait: default/pod2/a 2 -> 0,2
            wait: a 0,2
        "#]],
    );
}

#[test]
fn a_container_that_cannot_start_cold_starts_as_usual_and_is_told_why() {
    check(
        TWO_PACKAGES,
        &["2 a 20", "2 b 14", "wait", "wait"],
        expect![[r#"
        2 a 20: a 2-3
        2 b 14: default/pod2/b: annotation `cold-start` has no effect: needs 14 GiB of slow memory, 12 GiB are free
        2 b 14: a 2-3, b 1,3
        wait: a 2-3, b 1,3
        wait: default/pod2/a 2-3 -> 0,2-3
        wait: a 0,2-3, b 1,3
    "#]],
    );
    check(
        "pack:1 numa:1 core:4 mem:8",
        &["2 a 4"],
        expect![[r#"
        2 a 4: default/pod2/a: annotation `cold-start` has no effect: the machine has no slow memory of its kinds
        2 a 4: a 0
    "#]],
    );
}
