//! Devices as people tell them apart, at the NUMA node that they hang on.
//!
//! Virtual functions are counted on their physical one. Several equal devices without a name of their own, such as the copy engines
//! of a processor, are told as one with their number, and so are all devices that are for nothing in particular.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_types::NodeId;

use bayplan_topology::PciAddress;
use bayplan_topology::Topology;
use bayplan_topology::{Device, DeviceKind};
use bayplan_types::fold::{name_cpus, plural};

/// From this many equal devices without a name on, they are counted.
const EQUAL_MIN: usize = 3;
/// Of devices that are counted, so many addresses are listed to a pointer.
const ADDRESSES_MAX: usize = 16;

/// One device, or several that are told as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) kind: DeviceKind,
    pub(crate) name: String,
    /// What it is, and how many virtual functions it has.
    pub(crate) facts: Vec<String>,
    /// Everything else, shown on request.
    pub(crate) more: String,
}

/// The devices of a machine, by node.
pub(crate) struct Devices<'a> {
    by_node: BTreeMap<Option<NodeId>, Vec<&'a Device>>,
    /// Virtual functions, by the address of the physical one.
    functions: BTreeMap<PciAddress, usize>,
}

impl<'a> Devices<'a> {
    pub(crate) fn new(topology: &'a Topology) -> Devices<'a> {
        let devices = topology.devices();
        let addresses: BTreeSet<PciAddress> = devices.iter().map(|device| device.address).collect();
        let mut by_node: BTreeMap<_, Vec<&Device>> = BTreeMap::new();
        let mut functions: BTreeMap<PciAddress, usize> = BTreeMap::new();
        for device in devices {
            match device.physical.filter(|physical| addresses.contains(physical)) {
                Some(physical) => *functions.entry(physical).or_default() += 1,
                None => by_node.entry(device.node).or_default().push(device),
            }
        }
        Devices { by_node, functions }
    }

    /// How many there are, without virtual functions of others.
    pub(crate) fn count(&self) -> usize {
        self.by_node.values().map(Vec::len).sum()
    }

    /// The devices of a node, or those of no node; by kind and address.
    pub(crate) fn of_node(&self, node: Option<NodeId>) -> Vec<Told> {
        let devices = self.by_node.get(&node).map(Vec::as_slice).unwrap_or_default();
        let mut groups: BTreeMap<_, Vec<&Device>> = BTreeMap::new();
        for device in devices {
            groups.entry(likeness(device)).or_default().push(device);
        }
        let mut kept: Vec<(DeviceKind, PciAddress, Told)> = Vec::new();
        for ((kind, likeness), group) in groups {
            let Some(first) = group.first() else { continue };
            let is_counted = kind == DeviceKind::Other || group.len() >= EQUAL_MIN;
            match likeness {
                Some(likeness) if is_counted && group.len() > 1 => {
                    kept.push((kind, first.address, self.counted(kind, likeness, &group)));
                }
                _ => kept.extend(group.iter().map(|one| (kind, one.address, self.device(one)))),
            }
        }
        kept.sort_by_key(|(kind, address, _)| (*kind, *address));
        kept.into_iter().map(|(_, _, told)| told).collect()
    }

    fn device(&self, device: &Device) -> Told {
        let name = name(device).unwrap_or_else(|| device.address.to_string());
        let what = device.kind.name();
        let functions = self.functions.get(&device.address).copied().unwrap_or(0);
        let mut more = format!("{what} {}", device.address);
        if let (Some(vendor), Some(device)) = (device.vendor, device.device) {
            more.push_str(&format!(", {vendor:04x}:{device:04x}"));
        }
        if let Some(driver) = &device.driver {
            more.push_str(&format!(", driver {driver}"));
        }
        more.push_str(&format!(", near {}", name_cpus(&device.cpus)));
        let facts = [Some(what.to_owned()), functions_text(functions)];
        Told { kind: device.kind, name, facts: facts.into_iter().flatten().collect(), more }
    }

    fn counted(&self, kind: DeviceKind, likeness: Likeness<'_>, group: &[&Device]) -> Told {
        let name = match likeness {
            Likeness::Other => plural(group.len(), "other"),
            Likeness::Model(Some(vendor), Some(device), _) => {
                format!("{} \u{d7} {vendor:04x}:{device:04x}", group.len())
            }
            Likeness::Model(..) => plural(group.len(), "device"),
        };
        let driver = match likeness {
            Likeness::Model(_, _, driver) => driver,
            Likeness::Other => None,
        };
        let what = if kind == DeviceKind::Other { "devices" } else { kind.name() };
        let functions = group.iter().filter_map(|one| self.functions.get(&one.address)).sum();
        let addresses = group.iter().take(ADDRESSES_MAX).map(|one| one.address.to_string());
        let mut more = addresses.collect::<Vec<_>>().join(", ");
        if let Some(rest) = group.len().checked_sub(ADDRESSES_MAX).filter(|rest| *rest > 0) {
            more.push_str(&format!(" and {rest} more"));
        }
        let facts = [Some(what.to_owned()), driver.map(str::to_owned), functions_text(functions)];
        Told { kind, name, facts: facts.into_iter().flatten().collect(), more }
    }
}

/// What makes devices without a name equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness<'a> {
    Model(Option<u16>, Option<u16>, Option<&'a str>),
    Other,
}

/// `None` in the second place for a device with a name, which stands for itself.
fn likeness(device: &Device) -> (DeviceKind, Option<Likeness<'_>>) {
    let likeness = match device.kind {
        DeviceKind::Other => Some(Likeness::Other),
        _ if name(device).is_some() => None,
        _ => Some(Likeness::Model(device.vendor, device.device, device.driver.as_deref())),
    };
    (device.kind, likeness)
}

/// What people call it: its network interfaces, or its paths below `/dev`.
fn name(device: &Device) -> Option<String> {
    let names = if device.interfaces.is_empty() { &device.dev_nodes } else { &device.interfaces };
    (!names.is_empty()).then(|| names.join(", "))
}

fn functions_text(functions: usize) -> Option<String> {
    (functions > 0).then(|| plural(functions, "VF"))
}
