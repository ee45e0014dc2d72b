//! Resizes that the runtime has not made.

use expect_test::{Expect, expect};

use super::*;

/// What happens after the resize was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Ends(ResizeOutcome),
    /// Another container with so many CPUs comes.
    Another(u8),
    /// The container is resized to so many CPUs.
    Again(i64),
    /// The runtime is asked, and has so many CPUs for it.
    Asked(i64),
}

use After::{Again, Another, Asked, Ends};
use ResizeOutcome::{Done, Failed, Unknown};

/// What is told of the container, a line for each event.
fn check(from: i64, to: i64, after: &[After], expected: &Expect) {
    let mut world = small();
    world.state.doubt_grace = SignedDuration::from_secs(60);
    let id = created(&mut world, 0, 0, from * 1000);
    let mut shown = line(&mut world, &id, "created", None);
    let mut others = 0;
    for it in std::iter::once(&Again(to)).chain(after) {
        let event = match it {
            Again(to) => Event::Resize(id.clone(), resources(to * 1000)),
            Ends(outcome) => Event::Resized(id.clone(), *outcome),
            Another(cpus) => {
                others += 1;
                created(&mut world, others, 0, i64::from(*cpus) * 1000);
                continue;
            }
            Asked(has) => {
                let real = world.real.get_mut(&id).unwrap();
                real.spec.resources = real.spec.resources.updated_by(resources(has * 1000));
                world.now += SignedDuration::from_secs(40);
                world.start_sync();
                world.take_view();
                Event::Synced(world.view.take().unwrap())
            }
        };
        shown += &line(&mut world, &id, &format!("{it:?}"), Some(event));
    }
    expected.assert_eq(&shown);
}

fn line(world: &mut World, id: &str, what: &str, event: Option<Event>) -> String {
    let now = world.now;
    let step = event.map(|event| world.state.step(event, now));
    let why = step.iter().flat_map(|it| &it.history).map(|it| format!("; {}", it.why));
    let why: String = why.collect();
    let asks_soon = if step.as_ref().is_some_and(|it| it.sync_soon) { "; asks soon" } else { "" };
    if let Some(step) = step {
        world.carry_out(step);
    }
    let key = world.state.containers.id_of(id).unwrap();
    let container = world.state.containers.get(&key).unwrap();
    let (asks, is_free) = (container.spec.resources.cpu_limit(), container.update.is_none());
    let asks = asks.unwrap_or_default();
    let state = match container.resize_name() {
        "" => String::new(),
        name => format!("; {name}"),
    };
    let mut again = fresh(&world.machine);
    again.restore(replay(&world.journal), now);
    assert_eq!(again.pinning(key), world.state.pinning(key), "after a restart");
    if is_free {
        world.check().unwrap();
    }
    format!("{what}: {asks} on {}{state}{why}{asks_soon}\n", world.real[id].pinning.cpus)
}

#[test]
fn a_resize_that_the_runtime_has_not_made_is_undone() {
    check(
        4,
        2,
        &[Ends(Failed)],
        &expect![[r#"
            created: 4 on 1-4
            Again(2): 2 on 1-2; under way; placed in machine
            Ends(Failed): 4 on 1-4; placed in machine; the runtime has not made the resize; resize_failed: default/pod0/c0: the runtime has not made the resize
        "#]],
    );
    check(
        2,
        4,
        &[Ends(Failed)],
        &expect![[r#"
            created: 2 on 1-2
            Again(4): 4 on 1-4; under way; placed in machine
            Ends(Failed): 2 on 1-2; placed in machine; the runtime has not made the resize; resize_failed: default/pod0/c0: the runtime has not made the resize
        "#]],
    );
    check(
        4,
        2,
        &[Ends(Done), Ends(Failed)],
        &expect![[r#"
            created: 4 on 1-4
            Again(2): 2 on 1-2; under way; placed in machine
            Ends(Done): 2 on 1-2
            Ends(Failed): 2 on 1-2
        "#]],
    );
    // Others have its CPUs, and there are others for it, or there are not.
    check(
        2,
        1,
        &[Another(3), Ends(Failed)],
        &expect![[r#"
            created: 2 on 1-2
            Again(1): 1 on 1; under way; placed in machine
            Ends(Failed): 2 on 1,5; placed in machine; the runtime has not made the resize; resize_failed: default/pod0/c0: the runtime has not made the resize
        "#]],
    );
    check(
        4,
        2,
        &[Another(5), Ends(Failed)],
        &expect![[r#"
            created: 4 on 1-4
            Again(2): 2 on 1-2; under way; placed in machine
            Ends(Failed): 4 on 0-2; shared; the runtime has not made the resize; it shares, as there is no room for what it had: refused: needs 4 exclusive CPUs; 2 are free; resize_failed: default/pod0/c0: the runtime has not made the resize; it shares, as there is no room for what it had: refused: needs 4 exclusive CPUs; 2 are free
        "#]],
    );
    // Of two at once it is not known which has failed.
    check(
        4,
        2,
        &[Again(3), Ends(Failed)],
        &expect![[r#"
            created: 4 on 1-4
            Again(2): 2 on 1-2; under way; placed in machine
            Again(3): 3 on 1-3; under way; placed in machine
            Ends(Failed): 3 on 1-3; under way
        "#]],
    );
}

#[test]
fn a_resize_in_doubt_is_what_the_runtime_says_that_it_is() {
    check(
        4,
        2,
        &[Ends(Unknown), Asked(2), Asked(4), Asked(4)],
        &expect![[r#"
            created: 4 on 1-4
            Again(2): 2 on 1-2; under way; placed in machine
            Ends(Unknown): 2 on 1-2; in doubt; asks soon
            Asked(2): 2 on 1-2
            Asked(4): 2 on 1-2
            Asked(4): 2 on 1-2
        "#]],
    );
    check(
        4,
        2,
        &[Ends(Unknown), Asked(4), Asked(4), Asked(4)],
        &expect![[r#"
            created: 4 on 1-4
            Again(2): 2 on 1-2; under way; placed in machine
            Ends(Unknown): 2 on 1-2; in doubt; asks soon
            Asked(4): 2 on 1-2; in doubt; asks soon
            Asked(4): 4 on 1-4; placed in machine; the runtime has not made the resize; resize_failed: default/pod0/c0: the runtime has not made the resize
            Asked(4): 4 on 1-4
        "#]],
    );
    // Kubelet tries again, and it is as little known as before whether the first was made.
    check(
        4,
        2,
        &[Ends(Unknown), Again(2), Ends(Failed), Asked(4), Asked(4)],
        &expect![[r#"
            created: 4 on 1-4
            Again(2): 2 on 1-2; under way; placed in machine
            Ends(Unknown): 2 on 1-2; in doubt; asks soon
            Again(2): 2 on 1-2; under way
            Ends(Failed): 2 on 1-2; in doubt; asks soon
            Asked(4): 2 on 1-2; in doubt; asks soon
            Asked(4): 4 on 1-4; placed in machine; the runtime has not made the resize; resize_failed: default/pod0/c0: the runtime has not made the resize
        "#]],
    );
}

#[test]
fn a_container_is_told_again_at_each_end_of_two_resizes_at_once() {
    for last in [Done, Failed, Unknown] {
        let mut world = small();
        let id = created(&mut world, 0, 0, 4000);
        let mut told = Vec::new();
        for event in [
            Event::Resize(id.clone(), resources(2000)),
            Event::Resize(id.clone(), resources(3000)),
            Event::Resized(id.clone(), Failed),
            Event::Resized(id.clone(), last),
        ] {
            let step = world.state.step(event, Timestamp::UNIX_EPOCH);
            told.push(step.plan.writes.iter().filter(|it| it.container == id).count());
        }
        assert_eq!(told, [1, 1, 1, 1], "the last ends as {last:?}");
    }
}
