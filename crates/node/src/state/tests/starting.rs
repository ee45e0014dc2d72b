//! Updates that reach a container while the runtime starts it.

use expect_test::{Expect, expect};

use super::*;

/// A container that shares is made; then what the steps say happens, and where it runs is shown after each.
fn check(steps: &[&str], expected: Expect) {
    let mut world = small();
    let id = created(&mut world, 3, 0, 100);
    let mut shown = String::new();
    for step in steps {
        match *step {
            "its start begins" | "its start ends" => world.start(0),
            "an owner comes" => {
                created(&mut world, 0, 0, 4000);
            }
            "its start ends unheard" => {
                let real = world.real.get_mut(&id).unwrap();
                (real.is_starting, real.is_running) = (false, true);
            }
            "a sync" => world.sync().unwrap(),
            "the daemon restarts" => world.restart().unwrap(),
            other => panic!("{other}"),
        }
        let due = world.state.pinning(world.state.containers.id_of(&id).unwrap()).unwrap();
        let is = &world.real[&id].pinning.cpus;
        shown.push_str(&format!("{step}: is to run on {}, runs on {is}\n", due.cpus));
    }
    expected.assert_eq(&shown);
}

#[test]
fn a_container_that_lets_go_while_being_started_is_told_again_when_it_runs() {
    check(
        &["its start begins", "an owner comes", "its start ends", "a sync"],
        expect![[r#"
            its start begins: is to run on 0-7, runs on 0-7
            an owner comes: is to run on 0,5-7, runs on 0-7
            its start ends: is to run on 0,5-7, runs on 0,5-7
            a sync: is to run on 0,5-7, runs on 0,5-7
        "#]],
    );
}

#[test]
fn a_start_whose_end_is_not_heard_of_is_made_good_by_the_sync_that_sees_it() {
    check(
        &["its start begins", "an owner comes", "its start ends unheard", "a sync"],
        expect![[r#"
            its start begins: is to run on 0-7, runs on 0-7
            an owner comes: is to run on 0,5-7, runs on 0-7
            its start ends unheard: is to run on 0,5-7, runs on 0-7
            a sync: is to run on 0,5-7, runs on 0,5-7
        "#]],
    );
}

#[test]
fn a_restart_during_a_start_is_made_good_as_well() {
    check(
        &[
            "its start begins",
            "an owner comes",
            "the daemon restarts",
            "a sync",
            "its start ends unheard",
            "a sync",
        ],
        expect![[r#"
            its start begins: is to run on 0-7, runs on 0-7
            an owner comes: is to run on 0,5-7, runs on 0-7
            the daemon restarts: is to run on 0,5-7, runs on 0-7
            a sync: is to run on 0,5-7, runs on 0-7
            its start ends unheard: is to run on 0,5-7, runs on 0-7
            a sync: is to run on 0,5-7, runs on 0,5-7
        "#]],
    );
}

#[test]
fn a_container_that_runs_where_it_should_is_not_told_again() {
    let mut world = small();
    let id = created(&mut world, 3, 0, 100);
    let step = world.state.step(Event::Started(id), Timestamp::UNIX_EPOCH);
    assert!(step.plan.is_empty() && !step.answers_after_plan);
}
