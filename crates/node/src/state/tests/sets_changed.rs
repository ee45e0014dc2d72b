//! Sets that were changed past the runtime.

use super::*;

fn found(cpus: &str) -> Pinning {
    Pinning { cpus: cpus.parse().unwrap(), mems: "0".parse().unwrap() }
}

/// How often the runtime is told of the container when its files say this.
fn told(world: &mut World, id: &str, cpus: &str, basis: u64) -> usize {
    let changed = [(id.to_owned(), found(cpus))].into();
    let step = world.state.step(Event::SetsChanged(basis, changed), Timestamp::UNIX_EPOCH);
    assert_eq!(step.history.len(), step.plan.writes.len());
    step.plan.writes.len()
}

#[test]
fn a_set_changed_past_the_runtime_is_told_again_unless_something_is_known_better() {
    let mut world = small();
    let id = created(&mut world, 3, 0, 100);
    let now = world.state.steps;
    assert_eq!(told(&mut world, &id, "7", now), 0, "it does not run yet");
    // Its beginning and its end.
    world.start(0);
    world.start(0);
    let started = world.state.steps;
    assert_eq!(told(&mut world, &id, "0-7", started), 0, "it is where it is to be");
    assert_eq!(told(&mut world, &id, "7", started - 1), 0, "it was started since");
    assert_eq!(told(&mut world, "nobody", "7", started), 0, "nobody");
    assert_eq!(told(&mut world, &id, "7", started), 1);
    assert_eq!(told(&mut world, &id, "0-7", started), 0, "it is right again");
    world.state.step(Event::SetMode(Mode::Restored), Timestamp::UNIX_EPOCH);
    let restored = world.state.steps;
    assert_eq!(told(&mut world, &id, "7", restored), 0, "everything is given back");
}
