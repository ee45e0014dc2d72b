//! Huge pages through the door of the state: what is told, said and kept.

use expect_test::{Expect, expect};

use super::*;

/// Creates containers of one CPU in pod 0 by their GiB in huge pages of 2 MiB: where their memory is, what `explain` says, what the log
/// says; and that a restart knows all that.
fn check(line: &str, annotations: &[(&str, &str)], gibs: &[u64], expected: Expect) {
    let mut world = World::new(Machine::new(line, ""));
    for (name, gib) in (0..).zip(gibs) {
        let mut spec = spec(0, name, 0, 1000, 0);
        spec.huge_pages.insert(TWO_MIB, Bytes::gib(*gib));
        let annotations = annotations.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        spec.pod.annotations.extend(annotations);
        let pending = world.pending.len();
        world.admit(spec);
        if world.pending.len() > pending {
            let Pending { ticket, spec, told, .. } = world.pending.remove(pending);
            let id = world.make_real(spec, told).unwrap();
            world.step(Event::CreateEnded(ticket, CreateOutcome::Created { id, pinned: true }));
        }
        world.check().unwrap();
    }
    let mut text = String::new();
    for (id, container) in &world.state.containers {
        let decision = &container.decision;
        let mems = world.state.pinning(*id).unwrap().mems;
        text.push_str(&format!("{}: {}, mems {mems}", container.spec.name, decision.asked));
        text.push_str(&decision.warnings.iter().map(|it| format!("; {it}")).collect::<String>());
        text.push('\n');
    }
    for note in &world.notes {
        if let Note::Failure { message, .. } | Note::Refused { why: message, .. } = note {
            text.push_str(&format!("! {message}\n"));
        }
    }
    expected.assert_eq(&text);
    let before = world.state.ledger.holdings().clone();
    world.restart().unwrap();
    assert_eq!(*world.state.ledger.holdings(), before);
    world.end().unwrap();
}

#[test]
fn huge_pages_decide_the_memory_nodes() {
    check(
        "pack:2 numa:1 core:4 mem:8 huge:2M=2048",
        &[],
        &[3, 3, 2],
        expect![[r#"
        c0: 1 exclusive, 3 GiB in huge pages of 2 MiB, mems 0
        c1: 1 exclusive, 3 GiB in huge pages of 2 MiB, mems 1
        c2: 1 exclusive, 2 GiB in huge pages of 2 MiB, mems 0-1
    "#]],
    );
}

#[test]
fn a_machine_with_too_few_is_no_refusal_but_said() {
    check(
        "pack:2 numa:1 core:4 mem:8 huge:2M=1024",
        &[],
        &[3, 2],
        expect![[r#"
        c0: 1 exclusive, 3 GiB in huge pages of 2 MiB, mems 0-1
        c1: 1 exclusive, 2 GiB in huge pages of 2 MiB, mems 0-1; of what it asks for, the machine lacks 1 GiB in huge pages of 2 MiB
        ! default/pod0/c1: of what it asks for, the machine lacks 1 GiB in huge pages of 2 MiB
    "#]],
    );
}

#[test]
fn a_bound_container_is_refused_where_its_nodes_have_too_few() {
    let bound = [("bayplan.dev/memory-bound", "true")];
    check(
        "pack:2 numa:1 core:4 mem:8 huge:2M=1024",
        &bound,
        &[2, 3],
        expect![[r#"
        c0: 1 exclusive, 2 GiB in huge pages of 2 MiB, mems 0
        ! bayplan: default/pod0/c1 refused: needs 3 GiB in huge pages of 2 MiB on its own NUMA nodes, 2 GiB are free (annotation `bayplan.dev/memory-bound`); `bayplan explain default/pod0/c1` lists every pool
    "#]],
    );
}

#[test]
fn a_journal_of_before_is_read() {
    let mut world = World::new(Machine::new("numa:2 core:4 mem:8 huge:2M=1024", ""));
    world.admit(spec(0, 0, 0, 1000, 1));
    let place = |state: &NodeState| state.ledger.holdings().clone();
    let before = place(&world.state);
    let old: Vec<String> =
        world.journal.iter().map(|line| line.replace(r#""is_memory_bound":false,"#, "")).collect();
    assert!(world.journal != old && old.iter().all(|line| !line.contains("huge")));
    let mut again = fresh(&world.machine);
    again.restore(replay(&old), Timestamp::UNIX_EPOCH);
    assert_eq!(place(&again), before);
}
