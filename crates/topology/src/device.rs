//! What a device is and where it is.

use std::fmt;

use bayplan_types::{CpuSet, NodeId};

use crate::snapshot::PciAddress;

/// One device with a place in the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its PCI address.
    pub address: PciAddress,
    /// What it is for.
    pub kind: DeviceKind,
    /// PCI class: 24 bits, base class, sub-class, programming interface.
    pub class: u32,
    /// PCI vendor.
    pub vendor: Option<u16>,
    /// PCI device number of the vendor.
    pub device: Option<u16>,
    /// The NUMA node that it hangs on; `None` when the kernel does not say.
    pub node: Option<NodeId>,
    /// The online CPUs that are near it: all of them when the kernel does not say.
    pub cpus: CpuSet,
    /// Of an SR-IOV virtual function, the physical one.
    pub physical: Option<PciAddress>,
    /// Name of the driver.
    pub driver: Option<String>,
    /// Network interfaces.
    pub interfaces: Vec<String>,
    /// Paths below `/dev`.
    pub dev_nodes: Vec<String>,
    /// The NUMA node that its own memory makes up.
    pub memory_node: Option<NodeId>,
}

/// What a device is for, from its PCI class (PCI Code and ID Assignment Specification, "Class Codes").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    /// Base class 2, and InfiniBand.
    Network,
    /// Base class 1: disks and their controllers.
    Storage,
    /// Base classes 3 (display), 11 (coprocessors) and 18 (accelerators).
    Accelerator,
    /// Sub-class 0502: memory behind CXL.
    Memory,
    /// Anything else.
    Other,
}

impl DeviceKind {
    /// Every kind.
    pub const ALL: [DeviceKind; 5] = [
        DeviceKind::Network,
        DeviceKind::Storage,
        DeviceKind::Accelerator,
        DeviceKind::Memory,
        DeviceKind::Other,
    ];

    /// The kind of a 24-bit class.
    pub fn of_class(class: u32) -> DeviceKind {
        match (class >> 16, class >> 8) {
            (0x02, _) | (_, 0x0c06) => DeviceKind::Network,
            (0x01, _) => DeviceKind::Storage,
            // Intel's data streaming and analytics accelerators call themselves system peripherals (0880).
            (0x03 | 0x0b | 0x12, _) | (_, 0x0880) => DeviceKind::Accelerator,
            (_, 0x0502) => DeviceKind::Memory,
            _ => DeviceKind::Other,
        }
    }

    /// The name as it stands in messages and files.
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Network => "network",
            DeviceKind::Storage => "storage",
            DeviceKind::Accelerator => "accelerator",
            DeviceKind::Memory => "memory",
            DeviceKind::Other => "other",
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// As [`crate::Topology::device`], for callers that keep the devices of a machine only.
pub fn find_device<'a>(devices: &'a [Device], name: &str) -> Option<&'a Device> {
    let mut devices = devices.iter();
    if let Ok(address) = name.parse::<PciAddress>() {
        return devices.find(|device| device.address == address);
    }
    if let Some(node) = name.strip_prefix("/dev/") {
        return devices.find(|device| device.dev_nodes.iter().any(|own| own == node));
    }
    devices.find(|device| device.interfaces.iter().any(|own| own == name))
}
