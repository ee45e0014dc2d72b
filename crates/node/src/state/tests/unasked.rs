//! Containers that the runtime made while the front end had no connection, and creations that a lost connection left in doubt (issue 35).

use expect_test::{Expect, expect};

use super::*;
use crate::known::Known;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Four CPUs, of which containers may own three. Played:
///
/// - `own NAME CPUS`: the runtime asks and creates; `end NAME`; `drain`, `resume`; `restart`, which leaves what the journal says;
/// - `view NAME=CPUS ...`: these run, anywhere, and ask for so many CPUs;
/// - `reconnect`: there is a new connection;
/// - `doubt NAME CPUS`: it is placed, and the connection ends before the runtime tells that it has made it; `start NAME`: the runtime is about to start it.
#[track_caller]
fn check(state: NodeState, steps: &[&str], expected: Expect) {
    let (mut state, mut shown) = (state, String::new());
    for (ticket, line) in steps.iter().enumerate() {
        let ticket = Ticket(u64::try_from(ticket).unwrap());
        let words: Vec<&str> = line.split_whitespace().collect();
        let step = match words[..] {
            ["own", name, cpus] => {
                admit(&mut state, ticket, named(name, cpus));
                let created = CreateOutcome::Created { id: name.to_owned(), pinned: true };
                state.step(Event::CreateEnded(ticket, created), NOW)
            }
            ["doubt", name, cpus] => {
                let due_id = Some(name.to_owned());
                admit(&mut state, ticket, NewContainer { due_id, attempt: 7, ..named(name, cpus) });
                state.step(Event::CreateEnded(ticket, CreateOutcome::Unknown), NOW)
            }
            ["reconnect"] => state.step(Event::Reconnected, NOW),
            ["start", name] => state.step(Event::Starting(name.to_owned()), NOW),
            ["end", name] => state.step(Event::Ended(name.to_owned()), NOW),
            ["drain"] => state.step(Event::SetMode(Mode::Draining), NOW),
            ["resume"] => state.step(Event::SetMode(Mode::Placing), NOW),
            ["restart"] => {
                let records = state.snapshot_records();
                let lines: Vec<String> =
                    records.iter().map(|it| serde_json::to_string(it).unwrap()).collect();
                state = fresh_state();
                state.restore(replay(&lines), NOW)
            }
            _ => view(&mut state, &words[1..]),
        };
        shown.push_str(&format!("{line}: {}\n", render(&state, &step)));
    }
    assert_eq!(check_ledger(state.ledger()), Vec::<String>::new());
    expected.assert_eq(&shown);
}

fn admit(state: &mut NodeState, ticket: Ticket, spec: NewContainer) {
    let step = state.step(Event::Admit(ticket, Box::new(spec)), NOW);
    assert!(matches!(step.answer, Answer::Admission(Admission::Place(_))), "{step:?}");
}

fn view(state: &mut NodeState, listed: &[&str]) -> Step {
    let Answer::SyncBasis { basis, .. } = state.step(Event::SyncStarted, NOW).answer else {
        panic!("no basis")
    };
    let seen = listed.iter().map(|it| {
        let (name, cpus) = it.split_once('=').unwrap();
        let container = named(name, cpus);
        let seen = Seen {
            pod_id: container.pod.id.clone(),
            name: container.name.clone(),
            attempt: 0,
            is_alive: true,
            is_running: true,
            details: Some(Box::new(SeenDetails { container, pinning: Pinning::default() })),
        };
        (name.to_owned(), seen)
    });
    let containers = seen.collect();
    state.step(Event::Synced(RuntimeView { basis, containers }), NOW)
}

fn named(name: &str, cpus: &str) -> NewContainer {
    new_container(name, "app", 0, cpus.parse().unwrap())
}

fn fresh_state() -> NodeState {
    state("core:4").with_unasked_placed(true)
}

/// What each container owns, and how many sets the step writes.
fn render(state: &NodeState, step: &Step) -> String {
    let owned = state.containers.iter().map(|(id, container)| {
        let held = state.ledger.allocation(*id).unwrap();
        let what = match held.exclusive.is_empty() {
            true => "shares".to_owned(),
            false => format!("owns {}", held.exclusive),
        };
        format!("{} {what}, ", container.spec.pod.id)
    });
    format!("{}{} writes", owned.collect::<String>(), step.plan.writes.len())
}

#[test]
fn what_was_created_without_asking_has_cpus_of_its_own_after_the_sync() {
    check(
        fresh_state(),
        &["own old 1", "view old=1 late=2 sharer=0", "view old=1 late=2 sharer=0", "restart"],
        expect![[r#"
            own old 1: old owns 1, 0 writes
            view old=1 late=2 sharer=0: old owns 1, late owns 2-3, sharer shares, 2 writes
            view old=1 late=2 sharer=0: old owns 1, late owns 2-3, sharer shares, 0 writes
            restart: old owns 1, late owns 2-3, sharer shares, 0 writes
        "#]],
    );
}

#[test]
fn where_the_proxy_decides_or_nothing_was_known_it_shares() {
    let steps = ["view late=2", "view late=2"];
    check(
        state("core:4"),
        &steps,
        expect![[r#"
            view late=2: late shares, 1 writes
            view late=2: late shares, 0 writes
        "#]],
    );
    check(
        fresh_state().with_known(Known::Partial { first_view: None }),
        &steps,
        expect![[r#"
            view late=2: late shares, 1 writes
            view late=2: late shares, 0 writes
        "#]],
    );
}

#[test]
fn without_room_it_shares_until_there_is_some_also_across_a_restart() {
    check(
        fresh_state(),
        &["own old 2", "view old=2 late=2", "restart", "end old", "view late=2"],
        expect![[r#"
            own old 2: old owns 1-2, 0 writes
            view old=2 late=2: old owns 1-2, late shares, 1 writes
            restart: old owns 1-2, late shares, 0 writes
            end old: late shares, 1 writes
            view late=2: late owns 1-2, 1 writes
        "#]],
    );
}

#[test]
fn while_draining_it_waits() {
    check(
        fresh_state(),
        &["drain", "view late=2", "resume", "view late=2"],
        expect![[r#"
            drain: 0 writes
            view late=2: late shares, 1 writes
            resume: late shares, 0 writes
            view late=2: late owns 1-2, 1 writes
        "#]],
    );
}

#[test]
fn a_connection_lost_between_the_answer_and_the_start_leaves_the_container_its_place() {
    check(
        fresh_state(),
        &["doubt new 2", "start new", "view new=2"],
        expect![[r#"
            doubt new 2: new owns 1-2, 0 writes
            start new: new owns 1-2, 1 writes
            view new=2: new owns 1-2, 1 writes
        "#]],
    );
    check(
        fresh_state(),
        &["doubt new 2", "restart", "view new=2"],
        expect![[r#"
            doubt new 2: new owns 1-2, 0 writes
            restart: new owns 1-2, 0 writes
            view new=2: new owns 1-2, 1 writes
        "#]],
    );
}

#[test]
fn what_a_lost_answer_has_told_is_told_again() {
    let mut state = fresh_state();
    let id = make(&mut state, 0, named("old", "1"));
    assert!(state.step(Event::Ping, NOW).plan.is_empty());
    let told = vec![id.clone(), "gone".to_owned()];
    let step = state.step(Event::ToldInDoubt(told), NOW);
    let told: Vec<&str> = step.plan.writes.iter().map(|it| it.container.as_str()).collect();
    assert_eq!(told, [id.as_str()]);
}

/// The runtime waits with a registration until its creations have ended, so what it does not list then it has not made.
#[test]
fn a_creation_in_doubt_is_given_up_after_the_next_registration_and_not_before() {
    let state = fresh_state().with_doubt_grace(SignedDuration::from_secs(30));
    check(
        state,
        &["doubt new 2", "view", "reconnect", "view"],
        expect![[r#"
            doubt new 2: new owns 1-2, 0 writes
            view: new owns 1-2, 0 writes
            reconnect: new owns 1-2, 0 writes
            view: 0 writes
        "#]],
    );
}
