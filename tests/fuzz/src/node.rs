//! A small node for what kubelet says: two packages with two memory nodes, huge pages, an isolated CPU, reserved CPUs, devices.

use std::sync::LazyLock;

use bayplan_allocator::policy::Policy;
use bayplan_allocator::{ContainerId, Ledger, check_ledger, offer};
use bayplan_node::NodeState;
use bayplan_node::event::ChangedMachine;
use bayplan_topology::{derive, parse_machine};
use bayplan_types::CpuSet;
use bayplan_workload::annotations::Rule;
use bayplan_workload::{Hardware, NewContainer, Pod, RequestRules, derive_request};

const MACHINE: &str = "pack:2 numa:2 l3:1 core:4 pu:2 mem:4 huge:2M=64 nic:1 isolated:6-7";

static NODE: LazyLock<ChangedMachine> = LazyLock::new(|| {
    let topology = derive(&parse_machine(MACHINE).expect("a line of ours")).expect("a machine");
    ChangedMachine::new(&topology, Policy::default(), &CpuSet::first_n(2))
});

/// A node without containers.
pub fn fresh_node() -> NodeState {
    let ledger = Ledger::new(NODE.pools.clone().into());
    NodeState::new(ledger, rules(), NODE.fingerprint.clone()).with_devices(NODE.devices.clone())
}

/// As in the default configuration, with everything that makes more of a container's words.
pub fn rules() -> RequestRules {
    RequestRules {
        reserved_namespaces: vec!["kube-*".to_owned()],
        prefer_isolated_cpus: true,
        colocate_pods: true,
        permissions: vec![Rule::everything()],
        ..RequestRules::default()
    }
}

/// Places the container on a node with the `others`, if it can be placed: whatever it says, the ledger stays sound, and no warning can
/// obey a terminal.
pub fn check_request(container: &NewContainer, others: &[NewContainer]) {
    let mut ledger = Ledger::new(NODE.pools.clone().into());
    let all: Vec<&NewContainer> = others.iter().chain([container]).collect();
    for (id, newcomer) in all.iter().enumerate() {
        let there = all[..id].iter().zip(0..).map(|(it, id)| (ContainerId(id), *it));
        let id = ContainerId(id as u64);
        let hardware =
            Hardware { devices: &NODE.devices, memory: NODE.pools.memory(), ..Hardware::default() };
        let (request, warnings) = derive_request(id, newcomer, &rules(), hardware, there);
        for warning in warnings {
            check_shown(&warning.text);
        }
        match offer(&ledger, &request) {
            Ok(offer) => ledger.commit(offer).expect("nothing else was committed"),
            Err(refusal) => assert!(!refusal.considered.is_empty(), "refused without a reason"),
        }
        let breaches = check_ledger(&ledger);
        assert!(breaches.is_empty(), "{breaches:#?}");
    }
}

/// A text for people says something, and does nothing to a terminal.
pub fn check_shown(text: &str) {
    assert!(!text.is_empty());
    assert_eq!(
        text.chars().find(|c| c.is_control() && *c != '\n'),
        None,
        "a terminal would obey {text:?}"
    );
}

/// A Guaranteed container with two CPUs, in a pod with these annotations.
pub fn container(
    name: &str,
    annotations: impl IntoIterator<Item = (String, String)>,
) -> NewContainer {
    let pod = Pod {
        id: "p".to_owned(),
        namespace: "default".to_owned(),
        name: "web-0".to_owned(),
        cgroup_parent: "/kubepods/pod1".to_owned(),
        qos: Some(bayplan_types::QosClass::Guaranteed),
        annotations: annotations.into_iter().collect(),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        ..Pod::default()
    };
    let mut container = NewContainer { pod, name: name.to_owned(), ..NewContainer::default() };
    container.resources.cpu_shares = 2048;
    container.resources.cpu_quota = 200_000;
    container.resources.cpu_period = 100_000;
    container.resources.memory_limit = 1 << 30;
    container
}
