//! Which containers are looked at after an event. That these are enough, debug builds look at in each history.

use super::*;

/// A container that shares, or one that owns a CPU.
fn container(name: &str, is_shared: bool) -> NewContainer {
    let own = new_container(name, name, 0, 1);
    match is_shared {
        true => NewContainer { resources: resources(100), ..own },
        false => own,
    }
}

/// Which containers are looked at after the event: their runtime ids, or `all`.
fn looked_at(state: &mut NodeState, event: Event) -> String {
    let affected = state.affected_by(&event).filter(|_| state.told.is_current());
    let step = state.step(event, Timestamp::UNIX_EPOCH);
    let few = affected.as_ref().and_then(|affected| state.moved_by(affected, &step.records));
    few.map_or("all".to_owned(), |few| few.into_iter().collect::<Vec<_>>().join(" "))
}

/// Which are looked at when a container is admitted, created, started and ended.
fn check(state: &mut NodeState, ticket: u64, is_shared: bool, expected: [&str; 4]) {
    let id = format!("id{ticket}");
    let admit = Event::TryAdmit(Ticket(ticket), Box::new(container(&id, is_shared)));
    let created = CreateOutcome::Created { id: id.clone(), pinned: true };
    let found = [
        admit,
        Event::CreateEnded(Ticket(ticket), created),
        Event::Started(id.clone()),
        Event::Ended(id),
    ]
    .map(|event| looked_at(state, event));
    assert_eq!(found, expected, "{is_shared}");
}

#[test]
fn an_event_of_one_container_is_followed_by_a_look_at_all_only_where_shared_cpus_change() {
    let mut state = state("numa:1 core:4 pu:1");
    assert_eq!(looked_at(&mut state, Event::Ping), "all", "before the first plan");
    make(&mut state, 1, container("a", true));
    check(&mut state, 2, true, ["", "id2", "id2", ""]);
    check(&mut state, 3, false, ["all", "id3", "id3", "all"]);
    assert_eq!(looked_at(&mut state, Event::Ping), "");
    // Where it is by now is not known.
    let failed = FailedWrite { container: "id1".to_owned(), is_gone: false, withheld: None };
    assert_eq!(looked_at(&mut state, Event::WritesFailed(vec![failed])), "all");
    check(&mut state, 4, true, ["all", "id4", "id4", ""]);
    assert_eq!(looked_at(&mut state, Event::SetMode(Mode::Draining)), "all");
    check(&mut state, 5, true, ["", "id5", "id5", ""]);
    assert_eq!(looked_at(&mut state, Event::SetMode(Mode::Restored)), "all");
    check(&mut state, 6, true, ["all"; 4]);
}
