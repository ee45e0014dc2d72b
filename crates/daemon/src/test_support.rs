//! A state with containers, for tests of the tasks around it.

use std::sync::Arc;

use bayplan_allocator::Ledger;
use bayplan_allocator::policy::{Policy, pools};
use bayplan_node::NodeState;
use bayplan_node::event::{Answer, Event};
use bayplan_topology::{derive, parse_machine};
use bayplan_types::{CpuSet, QosClass};
use bayplan_workload::annotations::Rule;
use bayplan_workload::{
    Admission, CreateOutcome, NewContainer, Pod, RequestRules, Resources, Ticket,
};
use jiff::Timestamp;

/// An empty node of this machine, where pods may ask for everything.
pub(crate) fn state(line: &str) -> NodeState {
    let rules = RequestRules { permissions: vec![Rule::everything()], ..RequestRules::default() };
    state_by(line, rules)
}

/// The same by these rules.
pub(crate) fn state_by(line: &str, rules: RequestRules) -> NodeState {
    let topology = derive(&parse_machine(line).unwrap()).unwrap();
    let pools = pools(&topology, Policy::default(), &CpuSet::new()).unwrap();
    NodeState::new(Ledger::new(Arc::new(pools)), rules, String::new())
}

/// A container of a Guaranteed pod.
pub(crate) fn new_container(pod_id: &str, name: &str, attempt: u32, cpus: i64) -> NewContainer {
    let pod = Pod {
        id: pod_id.to_owned(),
        uid: "uid".to_owned(),
        qos: Some(QosClass::Guaranteed),
        ..Pod::default()
    };
    let resources = Resources { cpu_shares: cpus * 1024, ..Resources::default() };
    NewContainer { pod, name: name.to_owned(), attempt, resources, ..NewContainer::default() }
}

/// Admits and creates; gives the runtime's id.
pub(crate) fn make(state: &mut NodeState, ticket: u64, container: NewContainer) -> String {
    let id = format!("id{ticket}");
    let admitted =
        state.step(Event::TryAdmit(Ticket(ticket), Box::new(container)), Timestamp::UNIX_EPOCH);
    assert!(matches!(admitted.answer, Answer::Admission(Admission::Place(_))), "{admitted:?}");
    let created = CreateOutcome::Created { id: id.clone(), pinned: true };
    state.step(Event::CreateEnded(Ticket(ticket), created), Timestamp::UNIX_EPOCH);
    id
}
