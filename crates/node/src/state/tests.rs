//! The state of the node, driven by events: tables by subject, and random histories on random machines.

mod affected;
mod allowed;
mod annotations;
mod any_groups;
mod attempts;
mod claims;
mod cold_start;
mod colocation;
mod compaction;
mod failed_writes;
mod groups;
mod histories;
mod huge_pages;
mod invariants;
mod known;
mod live;
mod machine;
mod modes;
mod narrowing;
mod ops;
mod overflow;
mod pods;
mod reconfigured;
mod refused;
mod sets_changed;
mod starting;
mod together;
mod turned;
mod unasked;
mod undone;
mod vectors;
mod wishes;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bayplan_allocator::policy::{Policy, pools};
use bayplan_allocator::{Part, check_ledger};
use bayplan_enforcement::{Pass, Write, is_in_place};
use bayplan_rebalance::Knob;
use bayplan_topology::{Topology, derive, parse_machine};
use bayplan_types::{Bytes, CpuId, CpuSet, MilliCpu, Pinning, QosClass};
use bayplan_workload::annotations::Rule;
use bayplan_workload::{
    Admission, CreateOutcome, NewContainer, Pod, ResizeOutcome, Resources, Ticket,
};
use proptest::prelude::*;

use self::machine::{Machine, any_few_cpus, any_machine, cpus_of, fresh};
use self::ops::{Op, any_milli, any_op};
use self::world::{Pending, Real, World, created, small};
use super::*;
use crate::container::Phase;
use crate::event::{
    Answer, ChangedMachine, Event, FailedWrite, Note, RuntimeView, Seen, SeenDetails, Step,
};
use crate::groups::GroupType;
use crate::history::Kind;
use crate::record::{AllocationForm, Record, replay};
use crate::settings::CompactionConfig;
use crate::turned::Turn;

/// Pods 0 to 2 are Guaranteed, 3 Burstable, 4 BestEffort, 5 is a system pod. Pod 1 has a GiB in huge pages beside its memory, if any; pod 2
/// starts on slow memory. For pods 6 and 7, which are Guaranteed, too, a scheduler has chosen CPUs.
fn spec(pod: u8, name: u8, attempt: u32, milli: i64, gib: i64) -> NewContainer {
    let qos = match pod {
        0..=2 | 6 | 7 => QosClass::Guaranteed,
        4 => QosClass::BestEffort,
        _ => QosClass::Burstable,
    };
    let namespace = if pod == 5 { "kube-system" } else { "default" };
    NewContainer {
        pod: Pod {
            id: format!("sandbox{pod}"),
            namespace: namespace.into(),
            name: format!("pod{pod}"),
            qos: Some(qos),
            // Of one pod it is known what it needs as a whole.
            resources: if pod == 1 { resources(6000) } else { Resources::default() },
            annotations: match pod {
                2 => BTreeMap::from([("bayplan.dev/cold-start".to_owned(), "2m".to_owned())]),
                6 => BTreeMap::from([chosen("1-2")]),
                7 => BTreeMap::from([chosen("2,5-6")]),
                _ => BTreeMap::new(),
            },
            ..Pod::default()
        },
        name: format!("c{name}"),
        attempt,
        resources: Resources { memory_limit: gib << 30, ..resources(milli) },
        huge_pages: (pod == 1 && gib > 0).then(|| (TWO_MIB, Bytes::gib(1))).into_iter().collect(),
        ..NewContainer::default()
    }
}

/// What Koordinator's scheduler writes into a pod.
fn chosen(cpus: &str) -> (String, String) {
    let name = "scheduling.koordinator.sh/resource-status".to_owned();
    (name, format!(r#"{{"cpuset":"{cpus}","numaNodeResources":[{{"node":0}}]}}"#))
}

const TWO_MIB: Bytes = Bytes(2 << 20);

/// As kubelet computes them.
fn resources(milli: i64) -> Resources {
    Resources {
        cpu_shares: (milli * 1024 / 1000).max(2),
        cpu_quota: milli * 100,
        cpu_period: 100_000,
        memory_limit: 0,
        // A twentieth of the machine's memory, if it is Burstable.
        oom_score_adj: 950,
    }
}

/// As many histories as are usual, or as PROPTEST_CASES asks for where that is more.
fn cases(usual: u32) -> u32 {
    ProptestConfig::default().cases.max(usual)
}

fn to_line(record: &Record) -> String {
    serde_json::to_string(record).unwrap()
}

fn pick<T>(among: &[T], which: usize) -> Option<&T> {
    among.get(which.checked_rem(among.len())?)
}

/// Rules that allow every wish.
pub(crate) fn everything() -> RequestRules {
    RequestRules { permissions: vec![Rule::everything()], ..RequestRules::default() }
}

pub(crate) fn state(line: &str) -> NodeState {
    let topology = derive(&parse_machine(line).unwrap()).unwrap();
    let pools = pools(&topology, Policy::default(), &CpuSet::new()).unwrap();
    NodeState::new(Ledger::new(Arc::new(pools)), everything(), String::new())
}

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

fn owned(state: &NodeState) -> String {
    let ledger = state.ledger();
    ledger.pools().allocatable().difference(ledger.free()).to_string()
}

/// What the runtime and the kernel say of the container `1/app`, which has CPUs 1 and 2.
fn seen(attempt: u32, is_running: bool) -> Seen {
    let pinning = Pinning { cpus: "1-2".parse().unwrap(), ..Pinning::default() };
    Seen { is_running, ..running(new_container("1", "app", attempt, 2), pinning) }
}

/// What the runtime and the kernel say of a container that runs there.
fn running(container: NewContainer, pinning: Pinning) -> Seen {
    Seen {
        pod_id: container.pod.id.clone(),
        name: container.name.clone(),
        attempt: container.attempt,
        is_alive: true,
        is_running: true,
        details: Some(Box::new(SeenDetails { container, pinning })),
    }
}
