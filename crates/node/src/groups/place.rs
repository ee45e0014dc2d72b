//! What types of groups are to be near or far from. In: a name of the configuration, the devices and pools of a machine. Out: the CPUs and NUMA nodes that are near it.

use std::borrow::Cow;

use bayplan_allocator::Pools;
use bayplan_topology::{Device, find_device};
use bayplan_types::{CpuSet, NodeId, NodeSet};

/// Where sysfs has NUMA nodes, which files of balloons name.
const NODES: &str = "/sys/devices/system/node/node";

/// CPUs and NUMA nodes that are near a device, or those of a NUMA node; `None`: the machine does not have it.
pub fn place_named(pools: &Pools, devices: &[Device], name: &str) -> Option<(CpuSet, NodeSet)> {
    let name = name.trim_end_matches('/');
    let Some(number) = name.strip_prefix(NODES) else {
        let device = find_device(devices, device_name(name).as_ref())?;
        return Some((device.cpus.clone(), device.node.into_iter().collect()));
    };
    let nodes: NodeSet = [NodeId(number.parse().ok()?)].into_iter().collect();
    let cpus = pools.cpus_of_nodes(&nodes);
    let is_there = !cpus.is_empty() || nodes.is_subset(&pools.memory_nodes());
    is_there.then_some((cpus, nodes))
}

/// A device by a directory of sysfs, which nri-plugins names, by its own name.
fn device_name(path: &str) -> Cow<'_, str> {
    for (dir, prefix) in [
        ("/sys/class/net/", ""),
        ("/sys/bus/pci/devices/", ""),
        ("/sys/block/", "/dev/"),
        ("/sys/class/block/", "/dev/"),
    ] {
        if let Some(name) = path.strip_prefix(dir) {
            return format!("{prefix}{name}").into();
        }
    }
    path.into()
}
