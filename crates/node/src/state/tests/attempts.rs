//! Which creation and which attempt of a container counts: those in doubt, never started, or repeated.

use super::*;

#[test]
fn a_new_attempt_takes_the_place_of_the_one_before() {
    let mut state = state("core:4");
    let first = make(&mut state, 0, new_container("1", "app", 0, 3));
    assert_eq!(owned(&state), "1-3");
    // It crashed, and kubelet has said nothing; there is one more CPU, not three.
    let second = make(&mut state, 1, new_container("1", "app", 1, 3));
    assert_ne!(first, second);
    assert_eq!(owned(&state), "1-3");
}

#[test]
fn a_new_sandbox_of_a_pod_takes_the_place_of_the_old_one() {
    let mut state = state("core:4");
    make(&mut state, 0, new_container("1", "app", 0, 3));
    let pod = new_container("2", "app", 0, 3).pod;
    state.step(Event::PodStarted(pod), Timestamp::UNIX_EPOCH);
    assert_eq!(owned(&state), "");
}

/// A creation that came to an unknown end at second 0, with 30 seconds of grace: what it owns after syncs at these seconds that do not
/// find it.
fn owned_in_doubt(seconds: &[i64]) -> Vec<String> {
    let mut state = state("core:4").with_doubt_grace(SignedDuration::from_secs(30));
    let admit = Event::Admit(Ticket(1), Box::new(new_container("1", "app", 0, 3)));
    state.step(admit, Timestamp::UNIX_EPOCH);
    state.step(Event::CreateEnded(Ticket(1), CreateOutcome::Unknown), Timestamp::UNIX_EPOCH);
    let look = |second: &i64| {
        let now = Timestamp::from_second(*second).unwrap();
        let Answer::SyncBasis { basis, .. } = state.step(Event::SyncStarted, now).answer else {
            unreachable!("an answer to another question")
        };
        let view = RuntimeView { basis, containers: BTreeMap::new() };
        state.step(Event::Synced(view), now);
        owned(&state)
    };
    seconds.iter().map(look).collect()
}

#[test]
fn a_creation_in_doubt_keeps_its_place_while_the_runtime_may_be_at_work() {
    assert_eq!(owned_in_doubt(&[29, 31]), ["1-3", ""]);
}

#[test]
fn a_clock_that_is_put_back_starts_the_wait_for_a_creation_in_doubt_anew() {
    assert_eq!(owned_in_doubt(&[-3600, -3571, -3569]), ["1-3", "1-3", ""]);
}

#[test]
fn an_attempt_that_was_never_started_is_not_adopted_beside_a_later_one() {
    let mut state = state("core:4");
    make(&mut state, 0, new_container("1", "app", 0, 2));
    make(&mut state, 1, new_container("1", "app", 1, 2));
    let containers =
        [("id0".to_owned(), seen(0, false)), ("id1".to_owned(), seen(1, false))].into();
    let basis = state.steps + 1;
    state.step(Event::SyncStarted, Timestamp::UNIX_EPOCH);
    state.step(Event::Synced(RuntimeView { basis, containers }), Timestamp::UNIX_EPOCH);
    assert_eq!(state.containers.iter().len(), 1);
    assert_eq!(owned(&state), "1-2");
}

/// The runtime goes on listing it as created, and it had CPUs of its own again at the next sync, and after a restart.
#[test]
fn what_was_ended_before_it_was_started_is_not_adopted_again() {
    let mut before = state("core:4");
    let id = make(&mut before, 0, new_container("1", "app", 0, 2));
    let mut lines: Vec<String> = Vec::new();
    let mut note = |step: &Step| {
        lines.extend(step.records.iter().map(|it| serde_json::to_string(it).unwrap()));
    };
    note(&before.step(Event::Ended(id.clone()), Timestamp::UNIX_EPOCH));
    let sync = |state: &mut NodeState, is_there: bool, is_running: bool| {
        state.step(Event::SyncStarted, Timestamp::UNIX_EPOCH);
        let containers = is_there.then(|| (id.clone(), seen(0, is_running))).into_iter().collect();
        let view = RuntimeView { basis: state.steps, containers };
        state.step(Event::Synced(view), Timestamp::UNIX_EPOCH);
        owned(state)
    };
    let restarted = |lines: &[String]| {
        let mut after = state("core:4");
        after.restore(replay(lines), Timestamp::UNIX_EPOCH);
        after
    };
    let compacted = |state: &NodeState| -> Vec<String> {
        let records = state.snapshot_records();
        records.iter().map(|record| serde_json::to_string(record).unwrap()).collect()
    };
    for mut state in [before.clone(), restarted(&lines), restarted(&compacted(&before))] {
        assert_eq!([sync(&mut state, true, false), sync(&mut state, true, false)], ["", ""]);
        // It was started all the same.
        assert_eq!(sync(&mut state.clone(), true, true), "1-2");
        sync(&mut state, false, false);
        assert!(state.departed.unstarted().is_empty());
    }
}

/// Kubelet has given up the creation, found what it had made, and stopped that before the runtime was asked. It kept its CPUs until it was removed.
#[test]
fn what_was_ended_before_its_creation_was_known_is_not_adopted() {
    let mut before = state("core:4");
    let mut lines: Vec<String> = Vec::new();
    for event in [
        Event::TryAdmit(Ticket(0), Box::new(new_container("1", "app", 0, 2))),
        Event::CreateEnded(Ticket(0), CreateOutcome::Unknown),
        Event::Ended("id0".to_owned()),
        Event::Ended("id0".to_owned()),
    ] {
        let step = before.step(event, Timestamp::UNIX_EPOCH);
        lines.extend(step.records.iter().map(|it| serde_json::to_string(it).unwrap()));
    }
    assert_eq!(owned(&before), "1-2");
    assert_eq!(lines.iter().filter(|line| line.contains("unstarted")).count(), 1, "{lines:?}");
    let mut restarted = state("core:4");
    restarted.restore(replay(&lines), Timestamp::UNIX_EPOCH);
    for mut state in [before, restarted] {
        for (is_running, expected) in [(false, ""), (false, ""), (true, "1-2")] {
            state.step(Event::SyncStarted, Timestamp::UNIX_EPOCH);
            let containers = [("id0".to_owned(), seen(0, is_running))].into();
            let view = RuntimeView { basis: state.steps, containers };
            state.step(Event::Synced(view), Timestamp::UNIX_EPOCH);
            assert_eq!(owned(&state), expected);
        }
    }
}
