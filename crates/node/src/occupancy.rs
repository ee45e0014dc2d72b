//! Which containers run where, for everything that is written beside CPU sets. In: the state. Out: values that stand for themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bayplan_allocator::{ContainerId, NoHome};
use bayplan_types::{CpuClass, CpuSet, MilliCpu, NodeSet, QosClass};
use bayplan_workload::annotations::{Tuning, read_annotations};
use bayplan_workload::{NewContainer, RequestRules};

use crate::turned::{Turn, Turned};

/// The node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Containers that the runtime has made, by their full names.
    pub occupants: Vec<Occupant>,
    /// Groups of containers with a common CPU set.
    pub groups: Vec<OccupiedGroup>,
    /// CPUs for system pods.
    pub reserved: CpuSet,
    /// CPUs that have no owner and are not reserved.
    pub shared: CpuSet,
    /// Nothing of the machine is to be changed.
    pub is_restored: bool,
    /// No container is being created or updated, and each has what it was to be told.
    pub is_at_rest: bool,
    /// An operator has paused the rebalancer.
    pub is_rebalance_paused: bool,
    /// What the rebalancer has turned.
    pub turned: Turned,
    /// CPU time that BestEffort containers have together; `None`: as much as they get.
    pub budget: Option<MilliCpu>,
    /// CPUs that containers lend to them.
    pub lent: CpuSet,
    /// QoS classes with a strategy for containers that use wide vectors.
    pub clock_classes: BTreeSet<QosClass>,
    /// Containers that use wide vectors and may go to another clock domain; none where there is no strategy for them.
    pub clocks: BTreeMap<ContainerId, ClockStanding>,
    /// After how many steps of the state.
    pub step: u64,
}

/// What the strategy for containers with wide vectors says of the place of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockStanding {
    /// Others by which the best clock domain is better than where it runs.
    pub gain: usize,
    /// Others by which it is better than its own place, which is elsewhere if the rebalancer has sent it away.
    pub gain_at_home: usize,
    /// All CPUs but those of the best clock domain.
    pub leave: CpuSet,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OccupiedGroup {
    /// Its type and number.
    pub name: String,
    /// All of its CPUs.
    pub cpus: CpuSet,
    /// Class of frequency and sleep that its type names.
    pub cpu_class: Option<String>,
}

/// One container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// The ledger's id.
    pub id: ContainerId,
    /// `namespace/pod/container`.
    pub name: String,
    /// The runtime's id.
    pub runtime_id: String,
    /// Class of scheduling that its pod names, or else the type of its group.
    pub scheduling_class: Option<String>,
    /// What kubelet said of it, with those annotations that bayplan knows.
    pub spec: Arc<NewContainer>,
    /// What its pod asks for beside its place, as far as its namespace may.
    pub tuning: Arc<Tuning>,
    /// Class of its CPUs.
    pub class: CpuClass,
    /// All CPUs that it may run on.
    pub cpus: CpuSet,
    /// Those of them that it owns.
    pub exclusive: CpuSet,
    /// NUMA nodes that its memory is to be on; empty where that is not bayplan's to say.
    pub mems: NodeSet,
    /// NUMA nodes that its memory belongs on as long as it runs where it does, if those are others than its place has.
    pub home: Result<NodeSet, NoHome>,
    /// Its CPU set is not bayplan's to say.
    pub is_left_alone: bool,
    /// Another component has chosen CPUs for its pod, and Bayplan carries that out.
    pub is_claimed: bool,
    /// Its owner wants it to stay where it is.
    pub is_immovable: bool,
    /// It can share CPUs of other NUMA nodes: nothing binds it to its place.
    pub may_share_elsewhere: bool,
    /// Its exclusive CPUs are its pod's, and others of the pod may run on them.
    pub is_together: bool,
    /// It was started.
    pub is_running: bool,
}

impl Occupant {
    /// The runtime is told of its CPUs: bayplan has chosen them, or carries out the choice of another component.
    pub fn has_told_cpus(&self) -> bool {
        !self.cpus.is_empty() && (!self.is_left_alone || self.is_claimed)
    }

    /// The name of its pod's group, without the groups above; empty where kubelet has named none.
    pub fn pod_group(&self) -> &str {
        // Runtimes tell `SLICE:PREFIX:ID`.
        let parent = self.spec.pod.cgroup_parent.split(':').next().unwrap_or_default();
        parent.rsplit('/').next().unwrap_or_default()
    }
}

/// What a pod asks for beside its place; most ask for nothing.
pub fn tuning_of(container: &NewContainer, rules: &RequestRules) -> Tuning {
    match container.pod.annotations.is_empty() && container.facts.is_none() {
        true => Tuning::default(),
        false => read_annotations(container, rules).0.tuning,
    }
}

impl Occupancy {
    /// Whether all of these is turned of which the containers are there.
    pub fn has_turned(&self, turned: &Turned) -> bool {
        let is_there = |turn: &Turn| self.occupants.iter().any(|it| it.id == turn.target);
        turned.iter().all(|(number, turn)| self.turned.get(number).is_some() || !is_there(turn))
    }

    /// CPUs that BestEffort containers may run on; of one with a CPU set that is not known, all without an owner.
    pub fn best_effort_cpus(&self) -> CpuSet {
        let lowest =
            self.occupants.iter().filter(|it| it.spec.pod.qos == Some(QosClass::BestEffort));
        lowest.fold(CpuSet::new(), |all, it| match it.cpus.is_empty() || it.is_left_alone {
            true => all.union(&self.reserved).union(&self.shared),
            false => all.union(&it.cpus),
        })
    }
}
