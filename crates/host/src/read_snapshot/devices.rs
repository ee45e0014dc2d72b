//! PCI functions and what belongs to them.
//!
//! Files: `Documentation/ABI/testing/sysfs-bus-pci`, `Documentation/ABI/testing/sysfs-class-net`; the names of device nodes are those that the
//! kernel proposes in `uevent`.

use std::collections::BTreeMap;

use bayplan_topology::{DeviceFacts, PciAddress, Snapshot};
use bayplan_types::NodeId;

use super::dirs::dir;
use super::text;
use crate::kernel_files::Entry;
use crate::kernel_fs::{Dir, KernelFs};

const PCI_DIR: &str = "sys/bus/pci/devices";
const CLASS_DIR: &str = "sys/class";
/// Classes with members that are device nodes that containers ask for.
const CLASSES: [&str; 7] =
    ["accel", "block", "drm", "habanalabs", "infiniband_verbs", "nvme", "uio"];
/// Where the driver tells of each GPU.
pub(crate) const NVIDIA_DIR: &str = "proc/driver/nvidia/gpus";

/// Reads every PCI function that may matter for placement.
pub(super) fn read(fs: &mut KernelFs, snapshot: &mut Snapshot) {
    let Some(pci) = dir(fs, PCI_DIR) else { return };
    let mut found: BTreeMap<PciAddress, DeviceFacts> = BTreeMap::new();
    for name in fs.names(&pci.path, |name| name.parse::<PciAddress>().is_ok()) {
        let Ok(address) = name.parse() else { continue };
        if let Some(facts) = read_function(fs, &name, address) {
            found.insert(address, facts);
        }
    }
    for class in CLASSES {
        read_class(fs, class, &mut found);
    }
    read_nvidia(fs, &mut found);
    snapshot.devices = found.into_values().collect();
}

/// Bridges, and peripherals that no driver cares for, are no devices to place a container near.
fn is_furniture(class: u32, driver: Option<&str>) -> bool {
    match class >> 16 {
        0x06 => true,
        0x05 => class >> 8 != 0x0502,
        0x08 | 0x0c | 0x11 | 0xff => driver.is_none(),
        _ => false,
    }
}

fn read_function(fs: &mut KernelFs, name: &str, address: PciAddress) -> Option<DeviceFacts> {
    let path = format!("{PCI_DIR}/{name}");
    fs.link(&path);
    let dir = dir(fs, &path)?;
    let class = fs.parsed(&dir, "class", text::hex::<u32>)?;
    if class >> 16 == 0x06 {
        return None;
    }
    let driver = fs.link_name(&format!("{}/driver", dir.path));
    if is_furniture(class, driver.as_deref()) {
        return None;
    }
    let physical = fs.link_name(&format!("{}/physfn", dir.path));
    let node = fs.parsed(&dir, "numa_node", text::number_or_unknown).flatten().map(NodeId);
    let mut dev_nodes = Vec::new();
    if driver.as_deref() == Some("vfio-pci")
        && let Some(group) = fs.link_name(&format!("{}/iommu_group", dir.path))
    {
        dev_nodes.push(format!("vfio/{group}"));
    }
    Some(DeviceFacts {
        vendor: fs.parsed(&dir, "vendor", text::hex),
        device: fs.parsed(&dir, "device", text::hex),
        node,
        local_cpus: fs.value(&dir, "local_cpulist"),
        physical: physical.and_then(|name| name.parse().ok()),
        driver,
        interfaces: read_interfaces(fs, &dir),
        dev_nodes,
        ..DeviceFacts::new(address, class)
    })
}

/// The names of network interfaces; virtio has them one directory deeper.
fn read_interfaces(fs: &mut KernelFs, device: &Dir) -> Vec<String> {
    let mut parents = vec![device.path.clone()];
    let is_virtio = |name: &str| name.starts_with("virtio");
    parents.extend(
        fs.names(&device.path, is_virtio).into_iter().map(|name| format!("{}/{name}", device.path)),
    );
    let mut interfaces = Vec::new();
    for parent in parents {
        let path = format!("{parent}/net");
        let Some(net) = dir(fs, &path) else { continue };
        for name in fs.unrecorded(|fs| fs.names(&net.path, |_| true)) {
            fs.record(format!("{path}/{}", without_hardware_address(&name)), Entry::Dir);
            interfaces.push(name);
        }
    }
    interfaces
}

/// Interfaces without a better name are called after their hardware address: `enx001122334455`.
fn without_hardware_address(name: &str) -> String {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_hexdigit()).len();
    match name.get(..name.len().saturating_sub(12)) {
        Some(word) if digits >= 12 => format!("{word}000000000000"),
        _ => name.to_owned(),
    }
}

/// Device nodes of a class, each at the PCI function that its link passes through last.
fn read_class(fs: &mut KernelFs, class: &str, found: &mut BTreeMap<PciAddress, DeviceFacts>) {
    let path = format!("{CLASS_DIR}/{class}");
    for name in fs.names(&path, |_| true) {
        let link = format!("{path}/{name}");
        let Some(target) = fs.unrecorded(|fs| fs.link(&link)) else { continue };
        let functions = target.split('/').filter_map(|name| name.parse::<PciAddress>().ok());
        let Some(device) = { functions }.next_back().and_then(|address| found.get_mut(&address))
        else {
            continue;
        };
        fs.record(link.clone(), Entry::Link(target));
        let Some(dir) = dir(fs, &link) else { continue };
        let node = fs.line(&dir, "uevent", |line| Some(line.strip_prefix("DEVNAME=")?.to_owned()));
        if let Some(node) = node.filter(|node| !device.dev_nodes.contains(node)) {
            device.dev_nodes.push(node);
        }
    }
}

/// NVIDIA's driver has no class of its own; it tells which `/dev/nvidiaN` is which function in `/proc`.
fn read_nvidia(fs: &mut KernelFs, found: &mut BTreeMap<PciAddress, DeviceFacts>) {
    for name in fs.names(NVIDIA_DIR, |name| name.parse::<PciAddress>().is_ok()) {
        let Some(device) = name.parse().ok().and_then(|address| found.get_mut(&address)) else {
            continue;
        };
        let Some(dir) = dir(fs, &format!("{NVIDIA_DIR}/{name}")) else { continue };
        let minor = fs.line(&dir, "information", |line| {
            line.strip_prefix("Device Minor:")?.trim().parse::<u32>().ok()
        });
        device.dev_nodes.extend(minor.map(|minor| format!("nvidia{minor}")));
        // `-1`: its memory is no node. The file exists on machines that can show it as one.
        device.memory_node = fs
            .line(&dir, "numa_status", |line| line.strip_prefix("Node:")?.trim().parse().ok())
            .map(NodeId);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_are_taken_out_of_names() {
        for (name, shown) in [
            ("enx0011223344ff", "enx000000000000"),
            ("eth0", "eth0"),
            ("enp59s0f0v12", "enp59s0f0v12"),
            ("001122334455", "000000000000"),
        ] {
            assert_eq!(without_hardware_address(name), shown);
        }
    }
}
