//! Devices of one NUMA node, by extended resource. In: what kubelet has of its device plugins. Out: how many there are, and how many no container has. Pure.
//!
//! A device that its plugin places on several NUMA nodes counts on each, as other publishers of NodeResourceTopologies count it; one without a place on none.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_types::NodeId;
use bayplan_workload::Inventory;

/// One extended resource on one NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceCount {
    pub(crate) resource: String,
    pub(crate) all: usize,
    /// Those that no container has.
    pub(crate) free: usize,
}

/// By the names of resources.
pub(crate) fn devices_on(inventory: &Inventory, node: NodeId) -> Vec<DeviceCount> {
    let given = inventory.given.iter();
    let given: BTreeSet<(&str, &str)> =
        given.flat_map(|it| it.ids.iter().map(|id| (it.resource.as_str(), id.as_str()))).collect();
    let mut there: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for it in inventory.allocatable.iter().filter(|it| it.nodes.contains(node)) {
        there.entry(&it.resource).or_default().extend(it.ids.iter().map(String::as_str));
    }
    let view = |(resource, ids): (&str, BTreeSet<&str>)| DeviceCount {
        resource: resource.to_owned(),
        all: ids.len(),
        free: ids.iter().filter(|id| !given.contains(&(resource, **id))).count(),
    };
    there.into_iter().map(view).collect()
}

#[cfg(test)]
mod tests {
    use bayplan_workload::AssignedDevices;

    use super::*;

    /// Devices of a resource on these nodes.
    fn some(resource: &str, ids: &[&str], nodes: &[u32]) -> AssignedDevices {
        AssignedDevices {
            resource: resource.to_owned(),
            ids: ids.iter().map(|it| (*it).to_owned()).collect(),
            nodes: nodes.iter().map(|it| NodeId(*it)).collect(),
        }
    }

    #[test]
    fn devices_count_on_their_nodes() {
        let inventory = Inventory {
            allocatable: vec![
                some("a/gpu", &["g0"], &[0]),
                some("a/gpu", &["g1", "g2"], &[1]),
                some("a/nic", &["n0"], &[0, 1]),
                some("a/fuse", &["f0", "f1"], &[]),
            ],
            given: vec![some("a/gpu", &["g2", "gone"], &[1]), some("b/gpu", &["g1"], &[1])],
        };
        for (node, expected) in [
            (0, vec![("a/gpu", 1, 1), ("a/nic", 1, 1)]),
            (1, vec![("a/gpu", 2, 1), ("a/nic", 1, 1)]),
            (2, vec![]),
        ] {
            let found = devices_on(&inventory, NodeId(node));
            let found: Vec<_> =
                found.iter().map(|it| (it.resource.as_str(), it.all, it.free)).collect();
            assert_eq!(found, expected, "node {node}");
        }
    }
}
