//! What a pod says, on its way through the state: to the log, to `explain`, into the journal and back.

use expect_test::{Expect, expect};

use super::*;

fn annotated(pod: &str, name: &str, pairs: &[(&str, &str)]) -> NewContainer {
    let mut container = new_container(pod, name, 0, 2);
    container.pod.uid = format!("uid-{pod}");
    container.pod.namespace = "default".to_owned();
    container.pod.name = pod.to_owned();
    for (key, value) in pairs {
        let map = match key.starts_with("koordinator.sh/") {
            true => &mut container.pod.labels,
            false => &mut container.pod.annotations,
        };
        map.insert((*key).to_owned(), (*value).to_owned());
    }
    container
}

/// The runtime says that it runs.
fn found(container: NewContainer) -> Event {
    let seen = running(container, Pinning::default());
    Event::Synced(RuntimeView { basis: 0, containers: [("id".to_owned(), seen)].into() })
}

/// Notes of kind and text, then what `explain` says; once for a container that is created, once for one that is found.
fn check(pairs: &[(&str, &str)], expected: Expect) {
    let container = annotated("web", "app", pairs);
    let mut created = state("core:4");
    let event = Event::TryAdmit(Ticket(0), Box::new(container.clone()));
    let created_step = created.step(event, Timestamp::UNIX_EPOCH);
    let mut adopting = state("core:4");
    let found_step = adopting.step(found(container), Timestamp::UNIX_EPOCH);
    let shown = [(created, created_step), (adopting, found_step)].map(|(mut state, step)| {
        let mut shown = String::new();
        for note in &step.notes {
            if let Note::Failure { kind, message } = note {
                shown.push_str(&format!("{kind}: {message}\n"));
            }
        }
        let explained = state.step(Event::Explain("app".to_owned()), Timestamp::UNIX_EPOCH);
        let Answer::Explanations(explained) = explained.answer else { panic!("{explained:?}") };
        for warning in &explained[0].decision.warnings {
            shown.push_str(&format!("explain: {warning}\n"));
        }
        shown
    });
    assert_eq!(shown[0], shown[1]);
    expected.assert_eq(&shown[0]);
}

#[test]
fn what_is_not_understood_is_logged_counted_and_explained() {
    check(&[("bayplan.dev/prefer-shared-cpus", "true")], expect![""]);
    check(
        &[("bayplan.dev/siblings", "br\u{7}others"), ("koordinator.sh/qosClass", "LSX")],
        expect![[r#"
            not_understood: default/web/app: label `koordinator.sh/qosClass` is `LSX`, expected LSE, LSR, LS, BE or SYSTEM; ignored
            not_understood: default/web/app: annotation `bayplan.dev/siblings` is `br\u{7}others`, expected pair, shared or idle; ignored
            explain: label `koordinator.sh/qosClass` is `LSX`, expected LSE, LSR, LS, BE or SYSTEM; ignored
            explain: annotation `bayplan.dev/siblings` is `br\u{7}others`, expected pair, shared or idle; ignored
        "#]],
    );
}

#[test]
fn a_requirement_that_cannot_be_read_is_refused_and_a_running_container_stays() {
    let pairs = [("bayplan.dev/require-isolated-cpus", "yes"), ("bayplan.dev/siblings", "none")];
    let mut state = state("core:4");
    let container = annotated("web", "app", &pairs);
    let first = Event::TryAdmit(Ticket(0), Box::new(container.clone()));
    assert!(state.step(first, Timestamp::UNIX_EPOCH).notes.is_empty());
    let last = Event::Admit(Ticket(0), Box::new(container.clone()));
    let step = state.step(last, Timestamp::UNIX_EPOCH);
    let Answer::Admission(Admission::Refuse(why)) = &step.answer else { panic!("{step:?}") };
    expect![[r#"
        bayplan: default/web/app refused: annotation `bayplan.dev/require-isolated-cpus` is `yes`, expected true or false; `bayplan explain default/web/app` lists every pool"#]]
    .assert_eq(why);
    let not_understood =
        |note: &&Note| matches!(note, Note::Failure { kind: "not_understood", .. });
    assert_eq!(step.notes.iter().filter(not_understood).count(), 2);
    assert_eq!(state.ledger.allocations().count(), 0);
    state.step(found(container), Timestamp::UNIX_EPOCH);
    assert_eq!(state.ledger.allocations().count(), 1);
}

#[test]
fn a_restart_and_a_changed_machine_ask_for_the_same_again() {
    let mut before = state("core:8");
    before.rules.colocate_namespaces = true;
    make(&mut before, 0, annotated("db", "app", &[("bayplan.dev/within", "numa")]));
    make(
        &mut before,
        1,
        annotated(
            "web",
            "app",
            &[
                (
                    "bayplan.dev/affinity",
                    "app:\n- scope: {operator: AlwaysTrue}\n  match: {key: pod/name, operator: Equals, values: [db]}\n  weight: 7",
                ),
                ("siblings.bayplan.dev/container.app", "shared"),
                ("koordinator.sh/qosClass", "LSR"),
            ],
        ),
    );
    let requests = |state: &NodeState| {
        let ids = state.containers.iter();
        ids.map(|(id, container)| state.request(*id, &container.spec).0).collect::<Vec<_>>()
    };
    let asked = requests(&before);
    assert_eq!(asked[0].wishes.place.affinity, [(ContainerId(1), 10)]);
    assert_eq!(asked[1].wishes.place.affinity, [(ContainerId(0), 7)]);
    assert_ne!(asked[0].owner.pod, asked[1].owner.pod);
    assert_eq!(asked[0].owner.namespace, asked[1].owner.namespace);

    let records = before.snapshot_records();
    let lines: Vec<String> =
        records.iter().map(|record| serde_json::to_string(record).unwrap()).collect();
    let mut restarted = state("core:8");
    restarted.rules = before.rules.clone();
    restarted.restore(replay(&lines), Timestamp::UNIX_EPOCH);
    assert_eq!(requests(&restarted), asked);

    let smaller = Machine::new("core:8 offline:7", "").changed().unwrap();
    before.step(Event::MachineChanged(Box::new(smaller)), Timestamp::UNIX_EPOCH);
    assert_eq!(requests(&before), asked);
}

#[test]
fn a_record_without_labels_is_of_an_earlier_version_and_is_read() {
    let mut before = state("core:4");
    make(&mut before, 0, annotated("web", "app", &[]));
    let lines: Vec<String> = before
        .snapshot_records()
        .iter()
        .map(|record| serde_json::to_string(record).unwrap())
        .collect();
    assert!(lines.iter().all(|line| !line.contains("labels")));
    assert_eq!(replay(&lines).containers.len(), 1);
}

/// nri-plugins' test19: an L3 inside a NUMA node has no shared CPUs of its own here.
#[test]
fn a_burst_level_without_shared_cpus_of_its_own_is_told() {
    let told = |line: &str, level: &str| {
        let mut container = annotated("web", "app", &[("bayplan.dev/unlimited-burstable", level)]);
        container.pod.qos = Some(QosClass::Burstable);
        container.resources = Resources { cpu_shares: 1024, ..Resources::default() };
        let mut state = state(line);
        let event = Event::TryAdmit(Ticket(0), Box::new(container));
        let notes = state.step(event, Timestamp::UNIX_EPOCH).notes;
        let told = notes.iter().filter_map(|note| match note {
            Note::Failure { kind: "no_effect", message } => Some(message.clone()),
            _ => None,
        });
        told.collect::<Vec<String>>()
    };
    assert_eq!(told("numa:2 l3:1 core:2", "l3cache"), Vec::<String>::new());
    assert_eq!(told("numa:2 l3:2 core:2", "numa"), Vec::<String>::new());
    assert_eq!(told("numa:2 l3:2 core:2", "system"), Vec::<String>::new());
    let all = told("numa:2 l3:2 core:2", "l3cache");
    let [told] = all.as_slice() else { panic!("{all:?}") };
    assert!(told.contains("no L3 of this machine has shared CPUs of its own"), "{told}");
}
