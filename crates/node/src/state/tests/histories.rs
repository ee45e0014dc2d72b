//! Random histories on random machines, and those that went wrong once.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(1000)))]

    #[test]
    fn any_history_keeps_the_ledger_and_the_runtime_in_line(
        machine in any_machine(),
        (compacts, narrows, shares) in any::<(bool, bool, bool)>(),
        ops in prop::collection::vec(any_op(), 1..60),
    ) {
        let mut world = World::new(Machine { compacts, narrows, shares, ..machine });
        for op in ops {
            world.play(op)?;
            world.check()?;
        }
        world.end()?;
    }
}

#[test]
fn a_container_that_was_created_on_cpus_that_found_an_owner_meanwhile_is_moved_before_its_reply() {
    let mut world = small();
    world.admit(spec(3, 0, 0, 100, 0));
    world.make(0);
    created(&mut world, 0, 0, 4000);
    let Pending { ticket, made, .. } = world.pending.remove(0);
    let outcome = CreateOutcome::Created { id: made.unwrap(), pinned: true };
    let step = world.state.step(Event::CreateEnded(ticket, outcome), Timestamp::UNIX_EPOCH);
    assert!(step.answers_after_plan && step.plan.writes.len() == 1);
    world.carry_out(step);
    world.check().unwrap();
}

#[test]
fn the_first_of_two_creations_runs_where_the_first_was_told() {
    let mut world = small();
    world.admit(spec(3, 0, 0, 100, 0));
    created(&mut world, 0, 0, 4000);
    // Kubelet tries again, and is told of fewer CPUs; then the first one comes through.
    world.admit(spec(3, 0, 0, 100, 0));
    world.make(0);
    world.create_ends(0, true);
    world.check().unwrap();
}

#[test]
fn a_failed_write_is_repeated_by_the_next_sync_and_not_at_once() {
    let mut world = small();
    let shared = created(&mut world, 3, 0, 100);
    world.failing = u8::MAX;
    created(&mut world, 0, 0, 4000);
    assert!(world.wrong.contains(&shared));
    let failed = std::mem::take(&mut world.failures);
    let step = world.state.step(Event::WritesFailed(failed), Timestamp::UNIX_EPOCH);
    assert!(step.plan.is_empty() && step.sync_soon);
    world.sync().unwrap();
    world.check().unwrap();
}

#[test]
fn an_old_view_does_not_bring_back_what_has_ended() {
    let mut world = small();
    world.start_sync();
    let id = created(&mut world, 0, 0, 4000);
    world.take_view();
    world.real.remove(&id);
    world.step(Event::Ended(id));
    let view = world.view.take().unwrap();
    world.step(Event::Synced(view));
    assert!(world.state.containers.iter().len() == 0);
    world.end().unwrap();
}

#[test]
fn a_creation_that_is_repeated_with_other_resources_holds_one_place() {
    let mut world = small();
    world.admit(spec(0, 0, 0, 2000, 0));
    world.create_ends(0, false);
    world.admit(spec(0, 0, 0, 3000, 0));
    world.make(1);
    world.sync().unwrap();
    world.create_ends(0, true);
    world.sync().unwrap();
    world.check().unwrap();
    assert_eq!(world.state.containers.iter().len(), 1);
}

#[test]
fn what_differs_after_a_restart_is_repaired_by_the_first_sync() {
    let mut world = small();
    created(&mut world, 0, 0, 4000);
    let shared = created(&mut world, 3, 0, 100);
    world.restart().unwrap();
    world.real.get_mut(&shared).unwrap().pinning = Pinning::default();
    world.sync().unwrap();
    world.check().unwrap();
}
