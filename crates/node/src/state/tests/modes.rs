//! Draining, restoring and resuming, through the door of the state.

use bayplan_enforcement::render_plan;
use expect_test::{Expect, expect};

use super::*;

/// Plays: `NAME MILLI` creates a container in a pod of its own, `NAME=MILLI` resizes one, `-NAME` ends one; `drain`, `restore`, `resume`,
/// `sync` and `restart` are what they say. Shows after each step which containers run where, and of new ones why.
fn check(steps: &[&str], expected: Expect) {
    let mut world = World::new(Machine::new("numa:1 core:8 mem:8", "0"));
    let mut text = String::new();
    for step in steps {
        match *step {
            "drain" => world.play(Op::SetMode(Mode::Draining)).unwrap(),
            "restore" => world.play(Op::SetMode(Mode::Restored)).unwrap(),
            "resume" => world.play(Op::SetMode(Mode::Placing)).unwrap(),
            "sync" => world.sync().unwrap(),
            "restart" => {
                world.restart().unwrap();
                world.sync().unwrap();
            }
            other => change(&mut world, other),
        }
        let runs = |real: &Real| match real.pinning.cpus.to_string() {
            all if all.is_empty() => format!("{} all", real.spec.name),
            cpus => format!("{} {cpus}", real.spec.name),
        };
        let mut real: Vec<String> = world.real.values().map(runs).collect();
        real.sort();
        text.push_str(&format!("{step}: {}\n", real.join(", ")));
        world.check().unwrap();
    }
    expected.assert_eq(&text);
}

fn change(world: &mut World, step: &str) {
    let id_of = |world: &World, name: &str| {
        world.real.iter().find(|(_, real)| real.spec.name == name).unwrap().0.clone()
    };
    if let Some((name, milli)) = step.split_once('=') {
        let at = world.real.keys().position(|id| *id == id_of(world, name)).unwrap();
        world.resize(at, milli.parse().unwrap());
        world.resize_ends(0, ResizeOutcome::Done);
    } else if let Some(name) = step.strip_prefix('-') {
        let id = id_of(world, name);
        world.real.remove(&id);
        world.step(Event::Ended(id));
    } else {
        let (name, milli) = step.split_once(' ').unwrap();
        let mut spec = spec(0, 0, 0, milli.parse().unwrap(), 0);
        (spec.name, spec.pod.id) = (name.to_owned(), name.to_owned());
        if name.starts_with("isolated") {
            let key = "require-isolated-cpus.bayplan.dev".to_owned();
            spec.pod.annotations.insert(key, "true".to_owned());
        }
        world.admit(spec);
        let Some(Pending { ticket, spec, told, .. }) = world.pending.pop() else { return };
        let id = world.make_real(spec, told).unwrap();
        world.step(Event::CreateEnded(ticket, CreateOutcome::Created { id, pinned: true }));
    }
}

#[test]
fn while_draining_new_containers_own_nothing_and_owners_keep_their_cpus() {
    check(
        &[
            "a 2000",
            "drain",
            "b 2000",
            "isolated 1000",
            "a=3000",
            "b=3000",
            "restart",
            "-a",
            "c 2000",
            "resume",
            "d 2000",
        ],
        expect![[r#"
            a 2000: a 1-2
            drain: a 1-2
            b 2000: a 1-2, b 3-7
            isolated 1000: a 1-2, b 3-7
            a=3000: a 1-3, b 4-7
            b=3000: a 1-3, b 4-7
            restart: a 1-3, b 4-7
            -a: b 1-7
            c 2000: b 1-7, c 1-7
            resume: b 1-7, c 1-7
            d 2000: b 3-7, c 3-7, d 1-2
        "#]],
    );
}

#[test]
fn restoring_gives_all_containers_all_cpus_and_resuming_the_places_that_they_had() {
    check(
        &[
            "a 2000", "b 100", "restore", "c 2000", "restart", "sync", "-b", "resume", "sync",
            "d 2000",
        ],
        expect![[r#"
            a 2000: a 1-2
            b 100: a 1-2, b 3-7
            restore: a 0-7, b 0-7
            c 2000: a 0-7, b 0-7, c all
            restart: a 0-7, b 0-7, c all
            sync: a 0-7, b 0-7, c all
            -b: a 0-7, c all
            resume: a 1-2, c all
            sync: a 1-2, c 3-7
            d 2000: a 1-2, c 5-7, d 3-4
        "#]],
    );
}

#[test]
fn a_container_resized_while_nothing_is_placed_is_adopted_afterwards() {
    check(
        &["a 2000", "b 1000", "restore", "a=3000", "b=1000", "resume", "sync"],
        expect![[r#"
        a 2000: a 1-2
        b 1000: a 1-2, b 3
        restore: a 0-7, b 0-7
        a=3000: a 0-7, b 0-7
        b=1000: a 0-7, b 0-7
        resume: a 0-7, b 3
        sync: a 1-2,4-7, b 3
    "#]],
    );
}

#[test]
fn a_drained_node_can_be_restored_and_a_restored_one_drained() {
    check(
        &["a 2000", "drain", "restore", "b 1000", "drain", "sync", "c 1000", "resume"],
        expect![[r#"
        a 2000: a 1-2
        drain: a 1-2
        restore: a 0-7
        b 1000: a 0-7, b all
        drain: a 1-2, b all
        sync: a 1-2, b 3-7
        c 1000: a 1-2, b 3-7, c 3-7
        resume: a 1-2, b 3-7, c 3-7
    "#]],
    );
}

#[test]
fn explain_and_a_refusal_say_that_the_node_is_draining() {
    let mut world = World::new(Machine::new("numa:1 core:8 mem:8", "0"));
    world.step(Event::SetMode(Mode::Draining));
    change(&mut world, "a 2000");
    change(&mut world, "isolated 1000");
    let said = ["a", "isolated"].map(|name| world.state.explain(name)[0].decision.outcome.clone());
    expect![[r#"
        placed in machine without exclusive CPUs, because bayplan is draining
        refused: bayplan is draining, and the exclusive CPUs that it requires cannot be had; `bayplan resume` ends that"#]].assert_eq(&said.join("\n"));
}

/// What is read back is compared with what should be: the pinnings of `a`, which should be everywhere.
fn check_read_back(seen: &str, is_described: bool, expected: Expect) {
    let mut world = World::new(Machine::new("numa:1 core:4 mem:8", ""));
    change(&mut world, "a 2000");
    world.step(Event::SetMode(Mode::Restored));
    world.real.values_mut().for_each(|real| real.pinning.cpus = seen.parse().unwrap());
    let Answer::SyncBasis { .. } = world.step(Event::SyncStarted) else { panic!("no basis") };
    world.basis = Some((world.state.steps, BTreeSet::new(), BTreeSet::new()));
    world.take_view();
    let mut view = world.view.take().unwrap();
    if !is_described {
        view.containers.values_mut().for_each(|seen| seen.details = None);
    }
    let step = world.state.step(Event::ReadBack(view), Timestamp::UNIX_EPOCH);
    assert!(step.answers_after_plan);
    let mut text = render_plan(&step.plan).split_inclusive(' ').skip(4).collect::<String>();
    let Answer::NotInPlace(found) = step.answer else { panic!("{step:?}") };
    for it in found {
        text.push_str(&format!("{}: {}\n", it.container, it.why));
    }
    expected.assert_eq(&text);
}

#[test]
fn a_container_that_does_not_run_where_it_should_is_named_and_written_again() {
    check_read_back("0-3", true, expect![[""]]);
    check_read_back("", true, expect![[""]]);
    check_read_back(
        "1-2",
        true,
        expect![[r#"
        cpus 1-2 -> 0-3
        default/pod0/a: runs on CPUs 1-2, not 0-3
    "#]],
    );
    check_read_back(
        "0-3",
        false,
        expect![[r#"
        default/pod0/a: the runtime does not describe it
    "#]],
    );
}

#[test]
fn a_plan_of_a_mode_changes_nothing() {
    let mut world = World::new(Machine::new("numa:2 core:4 mem:8", ""));
    change(&mut world, "a 2000");
    let before = world.state.status();
    for to in Mode::ALL {
        let Answer::ModePlan(plan) = world.step(Event::PlanMode(to)) else { panic!("no plan") };
        assert_eq!((plan.from, plan.to, plan.owners), (Mode::Placing, to, 1));
        assert_eq!(plan.changes.len(), usize::from(to == Mode::Restored));
    }
    assert_eq!(world.state.status(), before);
}
