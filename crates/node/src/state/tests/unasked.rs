//! Containers that the runtime made while the front end had no connection, and creations that a lost connection left in doubt (issue 35).

use expect_test::{Expect, expect};

use super::*;
use crate::groups::{GroupType, Instances, Most};
use crate::known::Known;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Four CPUs, of which containers may own three. Played:
///
/// - `own NAME CPUS`: the runtime asks and creates; `end NAME`; `drain`, `resume`; `restart`, which leaves what the journal says;
/// - `view NAME=CPUS ...`: these run, anywhere, and ask for so many CPUs;
/// - `list`: the runtime is asked what runs, and the next view says what was there then;
/// - `reconnect`: there is a new connection;
/// - `doubt NAME CPUS`: it is placed, and the connection ends before the runtime tells that it has made it; `start NAME`: the runtime is about to start it.
///
/// A restart keeps how long a creation in doubt is waited for.
#[track_caller]
fn check(state: NodeState, steps: &[&str], expected: Expect) {
    let (mut state, mut shown, mut basis) = (state, String::new(), None);
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
                state = fresh_state().with_doubt_grace(state.doubt_grace);
                state.restore(replay(&lines), NOW)
            }
            ["list"] => {
                let step = state.step(Event::SyncStarted, NOW);
                basis = basis_of(&step);
                step
            }
            _ => view(&mut state, basis.take(), &words[1..]),
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

fn basis_of(step: &Step) -> Option<u64> {
    match step.answer {
        Answer::SyncBasis { basis, .. } => Some(basis),
        _ => None,
    }
}

/// `listed_at`: when the runtime was asked, if that was before now.
fn view(state: &mut NodeState, listed_at: Option<u64>, listed: &[&str]) -> Step {
    let basis = listed_at.or_else(|| basis_of(&state.step(Event::SyncStarted, NOW))).unwrap();
    let listed = listed.iter().map(|it| {
        let (name, cpus) = it.split_once('=').unwrap();
        named(name, cpus)
    });
    see(state, basis, listed)
}

/// These run, and the runtime calls each as its pod.
fn see(state: &mut NodeState, basis: u64, listed: impl Iterator<Item = NewContainer>) -> Step {
    let seen =
        listed.map(|container| (container.pod.id.clone(), running(container, Pinning::default())));
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
        let what = match (held.exclusive.is_empty(), held.terms.part.group()) {
            (_, Some(_)) => "is in its group".to_owned(),
            (true, None) => "shares".to_owned(),
            (false, None) => format!("owns {}", held.exclusive),
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

#[test]
fn a_view_that_was_begun_before_the_registration_does_not_give_up_a_creation_in_doubt() {
    let state = fresh_state().with_doubt_grace(SignedDuration::from_secs(30));
    check(
        state,
        &["doubt new 2", "list", "reconnect", "view", "start new", "view new=2"],
        expect![[r#"
            doubt new 2: new owns 1-2, 0 writes
            list: new owns 1-2, 0 writes
            reconnect: new owns 1-2, 0 writes
            view: new owns 1-2, 0 writes
            start new: new owns 1-2, 1 writes
            view new=2: new owns 1-2, 1 writes
        "#]],
    );
}

#[test]
fn a_creation_in_doubt_is_waited_for_again_after_a_restart() {
    let state = fresh_state().with_doubt_grace(SignedDuration::from_secs(30));
    check(
        state,
        &["doubt new 2", "restart", "view", "start new", "view new=2"],
        expect![[r#"
            doubt new 2: new owns 1-2, 0 writes
            restart: new owns 1-2, 0 writes
            view: new owns 1-2, 0 writes
            start new: new owns 1-2, 1 writes
            view new=2: new owns 1-2, 1 writes
        "#]],
    );
}

#[test]
fn a_container_that_starts_and_is_not_known_is_looked_for() {
    let mut state = fresh_state();
    let id = make(&mut state, 0, named("known", "1"));
    for (name, expected) in [(id.as_str(), false), ("unknown", true)] {
        let step = state.step(Event::Starting(name.to_owned()), NOW);
        assert_eq!(step.sync_soon, expected, "{name}");
    }
}

/// Admission refuses a container that has no room in its group; such a one got exclusive CPUs outside of it.
#[test]
fn what_has_no_room_in_its_group_shares_until_there_is_some() {
    let web = GroupType {
        members: groups::of_namespaces("*"),
        instances: Instances { max: Most::Count(1), ..Instances::default() },
        ..groups::kind("web", groups::requests(1, 2))
    };
    let types: Arc<[GroupType]> = [web].into();
    check(
        groups::empty(("core:4", "0"), &types).with_unasked_placed(true),
        &["own old 2", "view old=2 late=1", "view old=2 late=1", "end old", "view late=1"],
        expect![[r#"
            own old 2: old is in its group, 0 writes
            view old=2 late=1: old is in its group, late shares, 1 writes
            view old=2 late=1: old is in its group, late shares, 0 writes
            end old: late shares, 1 writes
            view late=1: late is in its group, 1 writes
        "#]],
    );
}

/// As at a creation: a preference that keeps too much from others is taken back, and a requirement that cannot be read gives no place.
#[test]
fn a_place_is_given_by_the_rules_of_a_creation() {
    let idle = ("bayplan.dev/siblings", "idle");
    let unread = ("scheduling.koordinator.sh/resource-status", r#"{"cpuset":"2-"}"#);
    let asks = [idle, idle, idle, unread];
    let listed = asks.into_iter().enumerate().map(|(at, (key, value))| {
        let mut container = named(&at.to_string(), "1");
        container.pod.annotations = [(key.to_owned(), value.to_owned())].into();
        container
    });
    let mut state = state("core:4 pu:2").with_unasked_placed(true);
    state.rules.permissions.clear();
    let basis = basis_of(&state.step(Event::SyncStarted, NOW)).unwrap();
    let step = see(&mut state, basis, listed);
    expect!["3 shares, 0 owns 1, 1 owns 2, 2 owns 3, 4 writes"].assert_eq(&render(&state, &step));
    assert_eq!(check_ledger(state.ledger()), Vec::<String>::new());
}
