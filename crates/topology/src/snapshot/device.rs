//! Facts about devices.

use std::fmt;
use std::str::FromStr;

use bayplan_types::{CpuSet, NodeId};

/// Domain, bus, device and function of a PCI device: `0000:3b:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Segment; 32 bits, because some bridges make up segments beyond 16.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, 0 to 31.
    pub device: u8,
    /// Function, 0 to 7.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

/// The text is not a PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a PCI address; expected something like 0000:3b:00.0 or 3b:00.0")]
pub struct PciAddressError(String);

impl FromStr for PciAddress {
    type Err = PciAddressError;

    /// With the domain or without, which is domain 0.
    fn from_str(text: &str) -> Result<PciAddress, PciAddressError> {
        let wrong = || PciAddressError(text.chars().take(60).collect());
        let hex = |word: &str, digits: usize| {
            let is_plain = word.len() <= digits && word.bytes().all(|b| b.is_ascii_hexdigit());
            u32::from_str_radix(word, 16).ok().filter(|_| is_plain).ok_or_else(wrong)
        };
        let byte = |number: u32| u8::try_from(number).map_err(|_| wrong());
        let (before, slot) = text.rsplit_once(':').ok_or_else(wrong)?;
        let (domain, bus) = before.split_once(':').unwrap_or(("0", before));
        let (device, function) = slot.split_once('.').ok_or_else(wrong)?;
        let address = PciAddress {
            domain: hex(domain, 8)?,
            bus: byte(hex(bus, 2)?)?,
            device: byte(hex(device, 2)?)?,
            function: byte(hex(function, 1)?)?,
        };
        let exists = address.device < 32 && address.function < 8;
        exists.then_some(address).ok_or_else(wrong)
    }
}

/// Facts about one PCI function (`Documentation/ABI/testing/sysfs-bus-pci`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// The name of the directory.
    pub address: PciAddress,
    /// `class`: 24 bits, base class, sub-class, programming interface.
    pub class: u32,
    /// `vendor`.
    pub vendor: Option<u16>,
    /// `device`.
    pub device: Option<u16>,
    /// `numa_node`; `None` also where the kernel says -1, "not known".
    pub node: Option<NodeId>,
    /// `local_cpulist`.
    pub local_cpus: Option<CpuSet>,
    /// `physfn`: of an SR-IOV virtual function, the physical one.
    pub physical: Option<PciAddress>,
    /// `driver`.
    pub driver: Option<String>,
    /// `net/*`: network interfaces.
    pub interfaces: Vec<String>,
    /// Paths below `/dev` that belong to it, such as `nvme0n1` or `dri/renderD128`.
    pub dev_nodes: Vec<String>,
    /// Of a GPU: the NUMA node that its own memory makes up (`/proc/driver/nvidia/gpus/ADDRESS/numa_status`).
    pub memory_node: Option<NodeId>,
}

impl DeviceFacts {
    /// A function of which only address and class are known.
    pub fn new(address: PciAddress, class: u32) -> DeviceFacts {
        DeviceFacts {
            address,
            class,
            vendor: None,
            device: None,
            node: None,
            local_cpus: None,
            physical: None,
            driver: None,
            interfaces: Vec::new(),
            dev_nodes: Vec::new(),
            memory_node: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_and_people_write_them() {
        for (text, shown) in [
            ("0000:3b:00.0", Some("0000:3b:00.0")),
            ("3b:1f.7", Some("0000:3b:1f.7")),
            ("10000:e1:00.0", Some("10000:e1:00.0")),
            ("ABCD:EF:01.2", Some("abcd:ef:01.2")),
            ("0000:3b:20.0", None),
            ("0000:3b:00.8", None),
            ("0000:3b:00", None),
            ("3b", None),
            ("+1:00:00.0", None),
            ("0:0:0:0.0", None),
            ("", None),
        ] {
            let address = text.parse::<PciAddress>().ok().map(|address| address.to_string());
            assert_eq!(address.as_deref(), shown, "{text}");
        }
    }
}
