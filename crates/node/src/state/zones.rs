//! What schedulers may count on: NUMA nodes with what is left of them, and groups. In: the state, and the CPUs of each node. Out: [`NodeZones`].

use std::collections::BTreeMap;

use bayplan_allocator::{Zone, zones};
use bayplan_types::{CpuSet, NodeId};

use crate::mode::Mode;
use crate::state::NodeState;
use crate::status::GroupStatus;

/// The node at one moment, for schedulers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeZones {
    /// Nothing is promised in any but [`Mode::Placing`].
    pub mode: Mode,
    /// In the order in which the nodes were given.
    pub zones: Vec<Zone>,
    /// CPUs without an exclusive container.
    pub shared: CpuSet,
    /// CPUs for system pods.
    pub reserved: CpuSet,
    /// CPUs that the kernel keeps out.
    pub isolated: CpuSet,
    /// CPUs that another component has chosen for pods.
    pub claimed: CpuSet,
    /// Pods with exclusive CPUs, by namespace, name and uid.
    pub owners: Vec<PodCpus>,
    /// Every group, by type and number.
    pub groups: Vec<GroupStatus>,
}

/// A pod and the exclusive CPUs of its containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodCpus {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Kubernetes name.
    pub name: String,
    /// Kubernetes UID; empty where it is not known.
    pub uid: String,
    /// Those of all its containers.
    pub cpus: CpuSet,
}

impl NodeState {
    /// Each NUMA node that is given, with its CPUs (none: a node that has only memory), in that order.
    pub fn zones(&self, nodes: &[(NodeId, CpuSet)]) -> NodeZones {
        let (pools, usual) = (self.ledger.pools(), &self.rules.wishes.cpus);
        NodeZones {
            mode: self.mode,
            zones: zones(&self.ledger, nodes, usual.only_whole_cores),
            shared: self.ledger.free().clone(),
            reserved: pools.reserved().clone(),
            isolated: pools.isolated().clone(),
            claimed: self.claimed.clone(),
            owners: self.owners(),
            groups: self.group_statuses(),
        }
    }

    fn owners(&self) -> Vec<PodCpus> {
        let mut owners = BTreeMap::<_, CpuSet>::new();
        for (id, allocation) in self.ledger.allocations().filter(|(_, it)| !it.exclusive.is_empty())
        {
            let Some(container) = self.containers.get(&id) else { continue };
            let pod = &container.spec.pod;
            let key = (&pod.namespace, &pod.name, &pod.uid);
            owners.entry(key).or_default().union_with(&allocation.exclusive);
        }
        let owner = |((namespace, name, uid), cpus): ((&String, &String, &String), CpuSet)| {
            let [namespace, name, uid] = [namespace, name, uid].map(Clone::clone);
            PodCpus { namespace, name, uid, cpus }
        };
        owners.into_iter().map(owner).collect()
    }
}
