//! What kubelet, or the API server, knows of a pod beside what CRI carries: exact requests, extended resources, owner, priority, and the
//! annotations as they are now. In: a pod as a value. Out: the part of it that is about one container. Pure.

use std::collections::BTreeMap;

use bayplan_types::NodeSet;

use crate::resources::ExactRequests;

/// One pod at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Kubernetes UID; of a static pod the one that kubelet gives it.
    pub uid: String,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Kubernetes name.
    pub name: String,
    /// Those of its annotations that Bayplan can read ([`crate::annotations::relevant`]).
    pub annotations: BTreeMap<String, String>,
    /// What is true for the pod as a whole.
    pub about: PodAbout,
    /// By name; init containers among them.
    pub containers: BTreeMap<String, ContainerFacts>,
}

/// What is true for all containers of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodAbout {
    /// Kind and name of the controller, for example `ReplicaSet/web-5d4f`.
    pub owner: Option<String>,
    /// Name of its priority class.
    pub priority_class: Option<String>,
    /// The priority that follows from it.
    pub priority: Option<i32>,
    /// Requests of the pod as a whole (`spec.resources`).
    pub requests: ExactRequests,
    /// How far a resize in place is.
    pub resize: Option<ResizeState>,
}

/// A resize in place that has not come to its end (conditions `PodResizePending`, `PodResizeInProgress`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeState {
    /// The node has no room now; kubelet tries again.
    Deferred,
    /// The node will never have room.
    Infeasible,
    /// Kubelet is at work on it.
    InProgress,
}

impl ResizeState {
    /// Kubernetes' word.
    pub const fn name(self) -> &'static str {
        match self {
            ResizeState::Deferred => "Deferred",
            ResizeState::Infeasible => "Infeasible",
            ResizeState::InProgress => "InProgress",
        }
    }

    /// Every state.
    pub const ALL: [ResizeState; 3] =
        [ResizeState::Deferred, ResizeState::Infeasible, ResizeState::InProgress];
}

/// One container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerFacts {
    /// As its specification says.
    pub requests: ExactRequests,
    /// As it runs (`status.containerStatuses[].resources`); during a resize in place these are others.
    pub running: ExactRequests,
    /// It runs before, or beside, the others: kubelet makes its OOM score of another's request where it is restartable.
    pub is_init: bool,
    /// Amounts of extended resources by name, for example 2 of `power.intel.com/performance`.
    pub extended: BTreeMap<String, u64>,
}

/// What is known of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Of its pod.
    pub about: PodAbout,
    /// Of itself.
    pub own: ContainerFacts,
    /// Its cgroup settings have changed since kubelet told this.
    pub is_older: bool,
}

/// Devices of one resource that kubelet has given to a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssignedDevices {
    /// The resource, for example `intel.com/sriov_netdevice`.
    pub resource: String,
    /// What the device plugin calls them; PCI addresses with some.
    pub ids: Vec<String>,
    /// The NUMA nodes that the plugin says they are on; empty where it does not say.
    pub nodes: NodeSet,
}

/// Devices of the node at one moment, as plugins have told kubelet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// All that containers can have.
    pub allocatable: Vec<AssignedDevices>,
    /// What containers have of them.
    pub given: Vec<AssignedDevices>,
}

impl PodFacts {
    /// What is known of the container of this name; `None`: the pod has none.
    pub fn of(&self, container: &str) -> Option<Facts> {
        let own = self.containers.get(container)?.clone();
        Some(Facts { about: self.about.clone(), own, is_older: false })
    }
}
