//! Pods as kubelet has them, while their containers run: live annotations, and what is known of requests.

use bayplan_workload::{ContainerFacts, ExactRequests, PodAbout, PodFacts};

use super::*;
use crate::occupancy::tuning_of;
use crate::record::replay;

const CLASS: &str = "bayplan.dev/rdtclass";

/// The pod `web` with these annotations.
fn pod(annotations: &[(&str, &str)]) -> PodFacts {
    let requests = ExactRequests { memory: Some(Bytes::gib(1)), ..ExactRequests::default() };
    let own = ContainerFacts { requests, ..ContainerFacts::default() };
    PodFacts {
        uid: "uid-web".to_owned(),
        annotations: annotations.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        about: PodAbout { owner: Some("ReplicaSet/web".to_owned()), ..PodAbout::default() },
        containers: [("app".to_owned(), own)].into(),
        ..PodFacts::default()
    }
}

/// A node on which the container `app` of the pod `web` runs, which asks for the class `silver`.
fn running() -> NodeState {
    let mut state = state("core:4");
    state.rules.classes.resctrl = ["silver", "gold"].map(str::to_owned).into();
    let mut container = new_container("web", "app", 0, 2);
    container.pod.uid = "uid-web".to_owned();
    container.pod.annotations = [(CLASS.to_owned(), "silver".to_owned())].into();
    create(&mut state, container);
    state
}

fn create(state: &mut NodeState, container: NewContainer) {
    state.step(Event::TryAdmit(Ticket(7), Box::new(container)), Timestamp::UNIX_EPOCH);
    let outcome = CreateOutcome::Created { id: "id".to_owned(), pinned: true };
    state.step(Event::CreateEnded(Ticket(7), outcome), Timestamp::UNIX_EPOCH);
    state.step(Event::Started("id".to_owned()), Timestamp::UNIX_EPOCH);
}

fn class(state: &NodeState) -> Option<String> {
    let container = state.containers.values().next().unwrap();
    tuning_of(&container.spec, &state.rules).resctrl_class
}

fn after(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

#[test]
fn a_changed_class_counts_at_once_is_journalled_and_told() {
    let mut state = running();
    let place = state.ledger.clone();
    let step = state.step(Event::PodsSeen(vec![pod(&[(CLASS, "gold")])]), after(100));
    assert_eq!(class(&state).as_deref(), Some("gold"));
    assert!(step.plan.is_empty() && state.ledger.version() == place.version());
    let [entry] = &step.history[..] else { panic!("{:?}", step.history) };
    assert_eq!(entry.kind, Kind::Annotated);
    assert_eq!(entry.why, "bayplan.dev/rdtclass is gold, was silver");
    let [Record::Placed(record)] = &step.records[..] else { panic!("{:?}", step.records) };
    let container = NewContainer::from(record.container.clone());
    assert_eq!(tuning_of(&container, &state.rules).resctrl_class.as_deref(), Some("gold"));
    let known = state.explain("app")[0].known.clone().unwrap();
    assert_eq!(known.changes, "bayplan.dev/rdtclass is gold, was silver");
    assert_eq!(known.facts.unwrap().owner.as_deref(), Some("ReplicaSet/web"));
}

#[test]
fn a_container_changes_at_most_once_in_five_seconds() {
    let mut state = running();
    for (at, said, expected) in [
        (100, "gold", "gold"),
        (103, "silver", "gold"),
        (104, "silver", "gold"),
        (105, "silver", "silver"),
        (105, "gold", "silver"),
        (400, "gold", "gold"),
    ] {
        state.step(Event::PodsSeen(vec![pod(&[(CLASS, said)])]), after(at));
        assert_eq!(class(&state).as_deref(), Some(expected), "{at} {said}");
    }
}

#[test]
fn what_is_seen_again_or_is_of_another_pod_changes_nothing() {
    let mut state = running();
    let seen = |annotations: &[(&str, &str)]| Event::PodsSeen(vec![pod(annotations)]);
    state.step(seen(&[(CLASS, "silver")]), after(100));
    let other = PodFacts { uid: "uid-other".to_owned(), ..pod(&[(CLASS, "gold")]) };
    for event in [
        seen(&[(CLASS, "silver")]),
        seen(&[(CLASS, "silver"), ("bayplan.dev/within", "numa"), ("example.com/a", "b")]),
        Event::PodsSeen(vec![other]),
        Event::PodsSeen(Vec::new()),
    ] {
        let step = state.step(event, after(200));
        assert!(step.records.is_empty() && step.history.is_empty(), "{step:?}");
    }
}

#[test]
fn warnings_follow_the_annotations() {
    let mut state = running();
    let warnings = |state: &NodeState| state.explain("app")[0].decision.warnings.clone();
    state.step(Event::PodsSeen(vec![pod(&[(CLASS, "bronze")])]), after(100));
    let told = warnings(&state);
    assert!(told.len() == 1 && told[0].contains("bronze"), "{told:?}");
    state.step(Event::PodsSeen(vec![pod(&[(CLASS, "gold")])]), after(200));
    assert_eq!(warnings(&state), Vec::<String>::new());
}

#[test]
fn what_kubelet_knows_is_there_after_a_restart() {
    let mut state = running();
    state.step(Event::PodsSeen(vec![pod(&[(CLASS, "gold")])]), after(100));
    let lines = state.snapshot_records();
    let lines: Vec<String> = lines.iter().map(|it| serde_json::to_string(it).unwrap()).collect();
    let mut fresh = self::state("core:4");
    fresh.restore(replay(&lines), after(200));
    let known = fresh.explain("app")[0].known.clone().unwrap();
    assert_eq!(known.requests_from, "kubelet's PodsAPI");
    assert_eq!(class(&fresh).as_deref(), Some("gold"));
}
