//! Devices.

use bayplan_types::{CpuSet, NodeId};

use super::limits::SyntheticError;
use super::shape::{Shape, too_many};
use super::words::{Devices, Per, Words};
use crate::snapshot::{DeviceFacts, PciAddress};

/// Each device has a bus of its own, and the first sixteen are for the board.
const DEVICES_MAX: u32 = 240;
const FIRST_BUS: u8 = 16;
/// Functions on one bus: 32 devices of 8 functions, of which the first is the network device itself.
const VIRTUAL_MAX: u32 = 255;

/// What is the same for all devices of a word.
struct Model {
    class: u32,
    vendor: u16,
    device: u16,
    driver: &'static str,
}

const NIC: Model = Model { class: 0x02_0000, vendor: 0x8086, device: 0x1592, driver: "ice" };
const NIC_VIRTUAL: Model = Model { device: 0x1889, driver: "iavf", ..NIC };
const GPU: Model = Model { class: 0x03_0200, vendor: 0x1002, device: 0x74a1, driver: "amdgpu" };
const NVME: Model = Model { class: 0x01_0802, vendor: 0x144d, device: 0xa80a, driver: "nvme" };

/// Where a device is.
#[derive(Clone)]
struct Slot {
    node: Option<NodeId>,
    cpus: CpuSet,
}

/// The devices of the line, each on a bus of its own, in the order of what holds them.
pub(super) fn devices(
    words: &Words,
    shape: &Shape,
    online: &CpuSet,
) -> Result<Vec<DeviceFacts>, SyntheticError> {
    let mut devices = Vec::new();
    let mut bus = 0_u32;
    for (asked, model) in [(words.nics, NIC), (words.gpus, GPU), (words.nvmes, NVME)] {
        let Some(asked) = asked else { continue };
        let slots = slots(asked, shape, online);
        too_many(slots.len() + bus as usize, "devices", DEVICES_MAX)?;
        for (number, slot) in slots.into_iter().enumerate() {
            let address = PciAddress {
                domain: 0,
                bus: FIRST_BUS + u8::try_from(bus).unwrap_or(0),
                device: 0,
                function: 0,
            };
            let mut device = function(address, &model, &slot);
            match model.class >> 16 {
                0x02 => device.interfaces.push(format!("enp{}s0f0", address.bus)),
                0x03 => device
                    .dev_nodes
                    .extend([format!("dri/card{number}"), format!("dri/renderD{}", 128 + number)]),
                _ => {
                    device.dev_nodes.extend([format!("nvme{number}n1"), format!("nvme{number}")]);
                }
            }
            devices.push(device);
            if model.class == NIC.class {
                let count = words.functions.unwrap_or(0);
                too_many(count as usize, "virtual functions per device", VIRTUAL_MAX)?;
                devices.extend((1..=count).map(|number| virtual_function(address, number, &slot)));
            }
            bus += 1;
        }
    }
    devices.sort_by_key(|device| device.address);
    Ok(devices)
}

fn slots(asked: Devices, shape: &Shape, online: &CpuSet) -> Vec<Slot> {
    let nodes: Vec<(NodeId, u32, &CpuSet)> =
        shape.nodes().map(|(numa, pack, cpus)| (NodeId(numa), pack, cpus)).collect();
    let running = |cpus: &CpuSet| cpus.intersection(online);
    let holders: Vec<Slot> = match asked.per {
        Per::Machine => vec![Slot { node: None, cpus: online.clone() }],
        Per::Numa if !nodes.is_empty() => {
            let slots = nodes.iter();
            slots.map(|(node, _, cpus)| Slot { node: Some(*node), cpus: running(cpus) }).collect()
        }
        Per::Pack | Per::Numa => {
            let packages = shape.packages().into_iter();
            let slots = packages.map(|(package, cpus)| {
                let first = nodes.iter().find(|(_, pack, _)| *pack == package);
                match first {
                    Some((node, _, cpus)) => Slot { node: Some(*node), cpus: running(cpus) },
                    None => Slot { node: None, cpus: running(&cpus) },
                }
            });
            slots.collect()
        }
    };
    let each = holders.into_iter().flat_map(|slot| std::iter::repeat_n(slot, asked.count as usize));
    // More than can be is refused by the caller; it need not be made.
    each.take(DEVICES_MAX as usize + 1).collect()
}

fn function(address: PciAddress, model: &Model, slot: &Slot) -> DeviceFacts {
    DeviceFacts {
        vendor: Some(model.vendor),
        device: Some(model.device),
        node: slot.node,
        // The kernel writes an empty list for a node with offline CPUs only.
        local_cpus: Some(slot.cpus.clone()),
        driver: Some(model.driver.to_owned()),
        ..DeviceFacts::new(address, model.class)
    }
}

fn virtual_function(physical: PciAddress, number: u32, slot: &Slot) -> DeviceFacts {
    let byte = |number: u32| u8::try_from(number).unwrap_or(0);
    let address = PciAddress { device: byte(number / 8), function: byte(number % 8), ..physical };
    let interface = format!("enp{}s0f0v{}", physical.bus, number - 1);
    DeviceFacts {
        physical: Some(physical),
        interfaces: vec![interface],
        ..function(address, &NIC_VIRTUAL, slot)
    }
}
