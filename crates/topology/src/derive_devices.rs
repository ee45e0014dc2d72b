//! Devices and where they are. In: what the kernel says of PCI functions, and the nodes. Out: devices with a locality.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bayplan_types::fold::name_cpus;
use bayplan_types::{CpuSet, NodeId};

use crate::device::{Device, DeviceKind};
use crate::snapshot::{DeviceFacts, Oddity, PciAddress};
use crate::topology::NumaNode;

const PCI_DIR: &str = "/sys/bus/pci/devices";

/// The devices, by address. One without a place of its own has that of its physical function.
pub(crate) fn derive_devices(
    facts: &[DeviceFacts],
    online: &CpuSet,
    nodes: &[NumaNode],
    oddities: &mut Vec<Oddity>,
) -> Vec<Device> {
    let mut by_address: BTreeMap<PciAddress, &DeviceFacts> = BTreeMap::new();
    for device in facts {
        match by_address.entry(device.address) {
            Entry::Vacant(entry) => drop(entry.insert(device)),
            Entry::Occupied(_) => oddities.push(Oddity::new(
                format!("{PCI_DIR}/{}", device.address),
                "the device is there twice",
                "what the first one says",
            )),
        }
    }
    let mut place = |facts: &DeviceFacts| locality(facts, online, nodes, oddities);
    let devices = by_address.values().map(|facts| {
        let physical = facts.physical.and_then(|physical| by_address.get(&physical));
        let (node, cpus) = match (place(facts), physical) {
            ((None, None), Some(physical)) => place(physical),
            (own, _) => own,
        };
        Device {
            address: facts.address,
            kind: DeviceKind::of_class(facts.class),
            class: facts.class,
            vendor: facts.vendor,
            device: facts.device,
            node,
            cpus: cpus.unwrap_or_else(|| online.clone()),
            physical: facts.physical,
            driver: facts.driver.clone(),
            interfaces: facts.interfaces.clone(),
            dev_nodes: facts.dev_nodes.clone(),
            memory_node: facts.memory_node,
        }
    });
    devices.collect()
}

/// `local_cpulist` comes from the node, or from the bus where there is no node; so the node counts where both are there and differ.
fn locality(
    facts: &DeviceFacts,
    online: &CpuSet,
    nodes: &[NumaNode],
    oddities: &mut Vec<Oddity>,
) -> (Option<NodeId>, Option<CpuSet>) {
    let dir = format_args!("{PCI_DIR}/{}", facts.address).to_string();
    let local = facts.local_cpus.as_ref().map(|cpus| cpus.intersection(online));
    let local = local.filter(|cpus| !cpus.is_empty());
    let Some(id) = facts.node else {
        let only = local.filter(|cpus| cpus != online);
        // Without a number the node can still be told by its CPUs.
        let node = nodes.iter().find(|node| Some(&node.cpus) == only.as_ref());
        return (node.map(|node| node.id), only);
    };
    let Some(node) = nodes.iter().find(|node| node.id == id) else {
        if !nodes.is_empty() {
            let found = format!("node {id}, which is not there");
            oddities.push(Oddity::new(format!("{dir}/numa_node"), found, "not known"));
        }
        return (None, local.filter(|cpus| cpus != online));
    };
    let near = match node.near.and_then(|near| nodes.iter().find(|node| node.id == near)) {
        Some(near) => &near.cpus,
        None => &node.cpus,
    };
    if near.is_empty() {
        return (Some(id), local);
    }
    if let Some(local) = local.filter(|local| local != near && !node.cpus.is_empty()) {
        let found = format!("{}, but node {id} has {}", name_cpus(&local), name_cpus(near));
        oddities.push(Oddity::new(format!("{dir}/local_cpulist"), found, "the CPUs of the node"));
    }
    (Some(id), Some(near.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Snapshot;
    use crate::{derive, parse_machine};

    /// The device `0000:10:00.0` of a machine with two nodes after `change`: its node, its CPUs, and how many oddities there are.
    #[track_caller]
    fn check(change: impl FnOnce(&mut DeviceFacts), node: Option<u32>, cpus: &str, odd: usize) {
        let mut snapshot = parse_machine("pack:2 numa:1 core:2 nic:1/machine").unwrap();
        change(&mut snapshot.devices[0]);
        let topology = derive(&snapshot).unwrap();
        let device = topology.device("10:00.0").unwrap();
        assert_eq!((device.node, device.cpus.to_string()), (node.map(NodeId), cpus.to_owned()));
        assert_eq!(topology.oddities().len(), odd, "{:?}", topology.oddities());
    }

    fn set(list: &str) -> Option<CpuSet> {
        Some(list.parse().unwrap())
    }

    #[test]
    fn the_node_counts_and_without_one_the_cpus() {
        check(|_| {}, None, "0-3", 0);
        check(|it| it.node = Some(NodeId(1)), Some(1), "2-3", 1);
        check(|it| (it.node, it.local_cpus) = (Some(NodeId(1)), set("2-3,64")), Some(1), "2-3", 0);
        check(|it| it.local_cpus = set("0-1"), Some(0), "0-1", 0);
        check(|it| it.local_cpus = set("1-2"), None, "1-2", 0);
        check(|it| it.local_cpus = None, None, "0-3", 0);
        check(|it| it.node = Some(NodeId(7)), None, "0-3", 1);
    }

    #[test]
    fn a_virtual_function_is_where_its_physical_one_is() {
        let mut snapshot = parse_machine("pack:2 numa:1 core:2 nic:1 vf:2").unwrap();
        for device in snapshot.devices.iter_mut().filter(|device| device.physical.is_some()) {
            (device.node, device.local_cpus) = (None, None);
        }
        let topology = derive(&snapshot).unwrap();
        let of = |name| topology.device(name).unwrap();
        assert_eq!(of("enp17s0f0v1").node, Some(NodeId(1)));
        assert_eq!(of("enp17s0f0v1").physical, Some(of("enp17s0f0").address));
    }

    #[test]
    fn a_device_is_found_by_every_name() {
        let snapshot = parse_machine("numa:1 core:2 nvme:1 gpu:1").unwrap();
        let topology = derive(&snapshot).unwrap();
        let address = |name| topology.device(name).map(|device| device.address.to_string());
        let nvme = Some("0000:11:00.0".to_owned());
        for name in ["/dev/nvme0n1", "/dev/nvme0", "0000:11:00.0", "11:00.0"] {
            assert_eq!(address(name), nvme, "{name}");
        }
        assert_eq!(address("/dev/dri/renderD128"), Some("0000:10:00.0".to_owned()));
        for name in ["/dev/nvme0n", "nvme0n1", "12:00.0", "", "/dev/"] {
            assert_eq!(address(name), None, "{name}");
        }
    }

    #[test]
    fn the_same_device_twice_is_odd() {
        let mut snapshot: Snapshot = parse_machine("core:2 nic:1").unwrap();
        snapshot.devices.push(snapshot.devices[0].clone());
        let topology = derive(&snapshot).unwrap();
        assert_eq!((topology.devices().len(), topology.oddities().len()), (1, 1));
    }
}
