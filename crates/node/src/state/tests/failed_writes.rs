//! Writes that fail, resizes that are refused and records that cannot be read: what is told, and what is tried again.

use super::*;

#[test]
fn a_failed_write_is_forgiven_when_the_kernel_was_asked() {
    let mut state = state("core:4");
    let id = make(&mut state, 0, new_container("1", "app", 0, 2));
    let failed = FailedWrite { container: id.clone(), is_gone: false, withheld: None };
    state.step(Event::WritesFailed(vec![failed]), Timestamp::UNIX_EPOCH);
    state.step(Event::SyncStarted, Timestamp::UNIX_EPOCH);
    let view = RuntimeView { basis: state.steps, containers: [(id.clone(), seen(0, true))].into() };
    let step = state.step(Event::Synced(view), Timestamp::UNIX_EPOCH);
    assert_eq!(step.forgiven, [id]);
}

/// It was planned as for a container that may run anywhere, which only loses CPUs and waits for nothing.
#[test]
fn a_withheld_write_is_planned_again_as_one_that_gives_cpus() {
    let mut state = state("core:4");
    let sharer = make(&mut state, 0, new_container("1", "sharer", 0, 0));
    let owner = make(&mut state, 1, new_container("2", "owner", 0, 2));
    let other = make(&mut state, 2, new_container("3", "other", 0, 0));
    let step = state.step(Event::Ended(owner), Timestamp::UNIX_EPOCH);
    let withheld = step.plan.writes.iter().find(|it| it.container == sharer).unwrap();
    assert_eq!(withheld.pass, Pass::Grow);
    let failed = |withheld: Option<&Write>| {
        let withheld = withheld.cloned().map(Box::new);
        vec![FailedWrite { container: sharer.clone(), is_gone: false, withheld }]
    };
    let before = state.clone();
    let planned = |mut state: NodeState, failed: Vec<Vec<FailedWrite>>| {
        for failed in failed {
            state.step(Event::WritesFailed(failed), Timestamp::UNIX_EPOCH);
        }
        let step = state.step(Event::Started(other.clone()), Timestamp::UNIX_EPOCH);
        let writes = step.plan.writes.iter().filter(|it| it.container == sharer);
        writes.map(|it| (it.pass, it.old.clone())).collect::<Vec<_>>()
    };
    let grow = vec![(Pass::Grow, withheld.old.clone())];
    assert_eq!(planned(before.clone(), vec![failed(Some(withheld))]), grow);
    let unknown = vec![(Pass::Shrink, None)];
    assert_eq!(planned(before.clone(), vec![failed(None)]), unknown);
    // The first of its writes has failed, so it is not known where it is.
    assert_eq!(planned(before, vec![failed(None), failed(Some(withheld))]), unknown);
}

/// What `status` says that a container has instead of what it was told.
fn held(state: &NodeState, name: &str) -> Option<String> {
    let status = state.clone().status();
    let found = status.containers.into_iter().find(|it| it.container == name)?;
    found.held.map(|held| held.cpus)
}

#[test]
fn a_container_whose_update_the_runtime_refuses_is_shown_where_it_is() {
    let mut state = state("core:4");
    let sharer = make(&mut state, 0, new_container("1", "sharer", 0, 0));
    assert_eq!(held(&state, "sharer"), None);
    make(&mut state, 1, new_container("2", "owner", 0, 2));
    // As long as nothing is known to have failed, what was told holds.
    assert_eq!(held(&state, "sharer"), None);
    let failed = || vec![FailedWrite { container: sharer.clone(), is_gone: false, withheld: None }];
    state.step(Event::WritesFailed(failed()), Timestamp::UNIX_EPOCH);
    let before = held(&state, "sharer").unwrap();
    // It stays there however often it is tried again, and wherever it is told to be meanwhile.
    make(&mut state, 2, new_container("3", "second", 0, 1));
    assert_eq!(held(&state, "sharer").as_ref(), Some(&before));
    state.step(Event::WritesFailed(failed()), Timestamp::UNIX_EPOCH);
    assert_eq!(held(&state, "sharer"), Some(before));
    state.step(Event::WritesLanded(vec![sharer]), Timestamp::UNIX_EPOCH);
    assert_eq!(held(&state, "sharer"), None);
}

#[test]
fn a_container_is_counted_as_elsewhere_only_until_the_cause_is_gone() {
    let told =
        |state: &NodeState, id: &str| state.pinning(state.containers.id_of(id).unwrap()).unwrap();
    for is_owner_gone in [true, false] {
        let mut state = state("core:4");
        let sharer = make(&mut state, 0, new_container("1", "sharer", 0, 0));
        let owner = make(&mut state, 1, new_container("2", "owner", 0, 2));
        let failed =
            vec![FailedWrite { container: sharer.clone(), is_gone: false, withheld: None }];
        state.step(Event::WritesFailed(failed), Timestamp::UNIX_EPOCH);
        assert_eq!(state.failed_updates(), 1);
        let (mut seen, of_owner) = (seen(0, true), (owner.clone(), seen(1, true)));
        let pinning = match is_owner_gone {
            // It may run where it is, so nothing is written any more.
            true => {
                state.step(Event::Ended(owner), Timestamp::UNIX_EPOCH);
                told(&state, &sharer)
            }
            // An operator has put it right.
            false => told(&state, &sharer),
        };
        assert_eq!(state.failed_updates(), usize::from(!is_owner_gone));
        seen.details =
            Some(Box::new(SeenDetails { container: new_container("1", "sharer", 0, 0), pinning }));
        state.step(Event::SyncStarted, Timestamp::UNIX_EPOCH);
        let mut containers: BTreeMap<String, Seen> = [(sharer, seen)].into();
        containers.extend((!is_owner_gone).then_some(of_owner));
        let view = RuntimeView { basis: state.steps, containers };
        state.step(Event::Synced(view), Timestamp::UNIX_EPOCH);
        assert_eq!(state.failed_updates(), 0);
    }
}

#[test]
fn what_a_neighbour_had_taken_is_no_longer_told_once_it_is_given_back() {
    let mut state = state("core:4");
    make(&mut state, 0, new_container("1", "sharer", 0, 0));
    let outcome = |state: &NodeState| {
        let found = state.explain("sharer");
        found.into_iter().next().unwrap().decision.outcome
    };
    let first = outcome(&state);
    let owner = make(&mut state, 1, new_container("2", "owner", 0, 2));
    let squeezed = outcome(&state);
    assert!(squeezed.starts_with(&format!("{first}; squeezed from CPUs 0-3 to ")), "{squeezed}");
    state.step(Event::Ended(owner), Timestamp::UNIX_EPOCH);
    assert_eq!(outcome(&state), first);
}

#[test]
fn a_refused_resize_is_not_the_last_word_and_leaves_everything() {
    let mut state = state("core:4");
    let id = make(&mut state, 0, new_container("1", "app", 0, 2));
    let before = state.ledger().holdings().clone();
    let huge = Resources { cpu_shares: 9 * 1024, ..Resources::default() };
    let first = state.step(Event::TryResize(id.clone(), huge), Timestamp::UNIX_EPOCH);
    assert!(
        matches!(first.answer, Answer::Admission(Admission::Refuse(_))) && first.notes.is_empty()
    );
    let last = state.step(Event::Resize(id, huge), Timestamp::UNIX_EPOCH);
    assert!(
        matches!(last.answer, Answer::Admission(Admission::Refuse(_))) && !last.notes.is_empty()
    );
    assert_eq!(*state.ledger().holdings(), before);
}

#[test]
fn a_journal_record_with_a_set_that_is_no_list_costs_the_place_and_not_the_container() {
    let mut before = state("core:4");
    make(&mut before, 0, new_container("1", "app", 0, 2));
    let lines: Vec<String> = before
        .snapshot_records()
        .iter()
        .map(|record| serde_json::to_string(record).unwrap().replace("\"1-2\"", "\"0-x\""))
        .collect();
    let mut after = state("core:4");
    let step = after.restore(replay(&lines), Timestamp::UNIX_EPOCH);
    let [Note::Failure { kind: "not_restored", message }] = &step.notes[..] else {
        panic!("{step:?}")
    };
    assert!(message.contains("`0-x` is not a number or a range"), "{message}");
    assert_eq!((after.containers.iter().len(), owned(&after).as_str()), (1, ""));
}
