//! What schedulers may count on in each NUMA node, as JSON. In: the machine, how requests are read, and what the state has left. Out: [`ZonesView`].
//!
//! A pod of whole CPUs that a scheduler sends here because of these figures is not refused for lack of CPUs or memory. Devices are those of kubelet's device plugins.

use bayplan_allocator::{Amount, Zone};
use bayplan_node::NodeZones;
use bayplan_node::groups::{Capacity, GroupType, Inside, Size};
use bayplan_node::mode::Mode;
use bayplan_topology::{NumaNode, Topology};
use bayplan_types::{Bytes, CpuSet, MilliCpu, NodeId};
use bayplan_workload::Inventory;
use serde::Serialize;

use crate::config::{Config, TopologyPolicy};
use crate::zone_cpus::{CoreView, OwnerView, cores_on, owners, withheld};
use crate::zone_devices::{DeviceCount, devices_on};

const FORMAT: &str = "bayplan-zones/1";

/// Format `bayplan-zones/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ZonesView {
    format: &'static str,
    /// Counts changes since the daemon started.
    change: u64,
    /// What a pod can rely on, in kubelet's words for `topologyManagerPolicy`.
    policy: &'static str,
    /// `container` or `pod`, as kubelet's `topologyManagerScope`.
    scope: &'static str,
    /// One for each NUMA node; on a machine without any, one with all CPUs.
    zones: Vec<ZoneView>,
    /// Pods with exclusive CPUs that Bayplan has chosen.
    owners: Vec<OwnerView>,
    /// CPUs that no scheduler can give to a pod, beside those of owners and those that a scheduler has given.
    withheld_cpus: String,
    groups: Vec<GroupView>,
    /// Types of groups with a bound of their members.
    group_types: Vec<GroupTypeView>,
    /// CPU classes that a container can have, configured or built in.
    cpu_classes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct GroupTypeView {
    name: String,
    /// The most slots, pods or containers of all its groups.
    members_max: usize,
    /// Members have slots of a list.
    has_slots: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct ZoneView {
    /// The kernel's number.
    node: u32,
    cpu_milli: AmountView,
    /// Bytes without huge pages; absent where the kernel does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<AmountView>,
    huge_pages: Vec<HugePagesView>,
    /// Of plugins that say on which NUMA node a device is.
    devices: Vec<DevicesView>,
    /// To each NUMA node, as ACPI's SLIT has it (10: local).
    distances: Vec<DistanceView>,
    cpus: String,
    shared_cpus: String,
    reserved_cpus: String,
    isolated_cpus: String,
    cores: Vec<CoreView>,
    /// The most CPUs without an exclusive container below one L3.
    largest_l3_hole: usize,
}

/// What there is, what of that pods can have, and what of that a new pod can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct AmountView {
    capacity: u64,
    allocatable: u64,
    available: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct HugePagesView {
    size_bytes: u64,
    bytes: AmountView,
}

/// One extended resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct DevicesView {
    resource: String,
    devices: AmountView,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct DistanceView {
    node: u32,
    distance: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct GroupView {
    name: String,
    cpus: String,
    shared_cpus: String,
}

fn view<T: Copy>(amount: Amount<T>, number: fn(T) -> u64) -> AmountView {
    let Amount { capacity, allocatable, available } = amount;
    let [capacity, allocatable, available] = [capacity, allocatable, available].map(number);
    AmountView { capacity, allocatable, available }
}

/// The nodes of a machine with their CPUs, as [`Look::Zones`] wants them.
pub(crate) fn nodes_of(topology: &Topology) -> Vec<(NodeId, CpuSet)> {
    let nodes = topology.nodes().iter().map(|node| (node.id, node.cpus.clone()));
    let nodes: Vec<_> = nodes.collect();
    if nodes.is_empty() { vec![(NodeId(0), topology.cpus().clone())] } else { nodes }
}

/// The bound of the members of a type, if it has one.
fn members_max(it: &GroupType, cpus: usize) -> Option<usize> {
    if let (Size::List(slots), Inside::Slots) = (&it.size, it.inside) {
        return Some(slots.len());
    }
    let groups = it.at_most(cpus)?;
    let Capacity { pods, containers, .. } = it.capacity;
    pods.into_iter().chain(containers).min()?.checked_mul(groups)
}

fn group_types(types: &[GroupType], cpus: usize) -> Vec<GroupTypeView> {
    let view = |it: &GroupType| {
        Some(GroupTypeView {
            name: it.name.clone(),
            members_max: members_max(it, cpus)?,
            has_slots: it.inside == Inside::Slots,
        })
    };
    types.iter().filter_map(view).collect()
}

/// The figures of a machine in this state.
pub(crate) fn zones_view(
    topology: &Topology,
    config: &Config,
    state: &NodeZones,
    inventory: &Inventory,
    change: u64,
) -> ZonesView {
    let requests = &config.requests;
    let is_memory_known = state.zones.iter().all(|zone| zone.memory.is_some());
    let policy = match requests.policy {
        _ if state.mode != Mode::Placing => "none",
        // Without figures for memory, schedulers would find no room for any pod.
        _ if !is_memory_known => "none",
        TopologyPolicy::None => "none",
        TopologyPolicy::BestEffort => "best-effort",
        TopologyPolicy::Restricted => "restricted",
        TopologyPolicy::SingleNumaNode => "single-numa-node",
    };
    let nodes = nodes_of(topology);
    let zones = nodes.iter().zip(&state.zones);
    let zones = zones.map(|((_, cpus), zone)| ZoneView {
        devices: devices_on(inventory, zone.node).into_iter().map(devices_view).collect(),
        ..zone_view(topology, state, cpus, zone)
    });
    let groups = state.groups.iter().map(|it| GroupView {
        name: it.name.clone(),
        cpus: it.cpus.clone(),
        shared_cpus: it.shared_cpus.clone(),
    });
    ZonesView {
        format: FORMAT,
        change,
        policy,
        scope: if requests.is_for_pods { "pod" } else { "container" },
        zones: zones.collect(),
        owners: owners(state),
        withheld_cpus: withheld(topology, state).to_string(),
        groups: groups.collect(),
        group_types: group_types(&config.groups, allocatable_cpus(state)),
        cpu_classes: config.cpu_classes.names(),
    }
}

fn devices_view(DeviceCount { resource, all, free }: DeviceCount) -> DevicesView {
    let [all, free] = [all, free].map(|it| u64::try_from(it).unwrap_or(u64::MAX));
    DevicesView {
        resource,
        devices: AmountView { capacity: all, allocatable: all, available: free },
    }
}

fn allocatable_cpus(state: &NodeZones) -> usize {
    state.zones.iter().map(|zone| zone.cpu.allocatable.whole_cpus()).sum()
}

fn zone_view(topology: &Topology, state: &NodeZones, cpus: &CpuSet, zone: &Zone) -> ZoneView {
    let bytes = |Bytes(bytes)| bytes;
    let huge_pages = zone.huge_pages.iter();
    let huge_pages = huge_pages
        .map(|(size, amount)| HugePagesView { size_bytes: size.0, bytes: view(*amount, bytes) });
    let distance = |to: &NumaNode| {
        let distance = topology.distance(zone.node, to.id)?;
        Some(DistanceView { node: to.id.0, distance })
    };
    let part = |set: &CpuSet| set.intersection(cpus).to_string();
    let hole = largest_hole(topology, &state.shared.intersection(cpus));
    ZoneView {
        node: zone.node.0,
        cpu_milli: view(zone.cpu, |MilliCpu(milli)| milli),
        memory_bytes: zone.memory.map(|amount| view(amount, bytes)),
        huge_pages: huge_pages.collect(),
        devices: Vec::new(),
        distances: topology.nodes().iter().filter_map(distance).collect(),
        cpus: cpus.to_string(),
        shared_cpus: part(&state.shared),
        reserved_cpus: part(&state.reserved),
        isolated_cpus: part(&state.isolated),
        cores: cores_on(topology, cpus),
        largest_l3_hole: hole.min(zone.cpu.available.whole_cpus()),
    }
}

/// The most of these CPUs below one L3; all of them on a machine without.
fn largest_hole(topology: &Topology, free: &CpuSet) -> usize {
    let caches = topology.caches().iter().filter(|it| it.level == 3);
    caches.map(|it| it.cpus.intersection(free).len()).max().unwrap_or_else(|| free.len())
}

#[cfg(test)]
mod tests {
    use bayplan_node::groups::Most;
    use bayplan_topology::{derive, parse_machine};
    use expect_test::{Expect, expect};

    use super::*;
    use crate::config::Requests;
    use crate::test_support::{make, new_container, state_by};

    /// A line for each zone, with a container of so many CPUs on the machine.
    fn check(line: &str, requests: Requests, cpus: i64, expected: Expect) {
        let topology = derive(&parse_machine(line).unwrap()).unwrap();
        let config = Config { requests, ..Config::default() };
        let mut node = state_by(line, config.rules());
        make(&mut node, 1, new_container("p", "c", 0, cpus));
        let zones = node.zones(&nodes_of(&topology));
        let view = zones_view(&topology, &config, &zones, &Inventory::default(), 7);
        let mut text = format!("{} {} {}\n", view.policy, view.scope, view.change);
        for zone in &view.zones {
            text.push_str(&format!("{}\n", serde_json::to_string(zone).unwrap()));
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn zones_have_what_is_left() {
        let single = Requests {
            policy: TopologyPolicy::SingleNumaNode,
            is_for_pods: true,
            ..Requests::default()
        };
        check(
            "numa:2 core:4 pu:2 mem:8 huge:2M=4",
            single,
            3,
            expect![[r#"
                single-numa-node pod 7
                {"node":0,"cpu_milli":{"capacity":8000,"allocatable":8000,"available":5000},"memory_bytes":{"capacity":8581545984,"allocatable":8581545984,"available":8581545984},"huge_pages":[{"size_bytes":2097152,"bytes":{"capacity":8388608,"allocatable":8388608,"available":8388608}}],"devices":[],"distances":[{"node":0,"distance":10},{"node":1,"distance":12}],"cpus":"0-3,8-11","shared_cpus":"0,3,8,10-11","reserved_cpus":"","isolated_cpus":"","cores":[{"core":0,"package":0,"cpus":"0,8"},{"core":1,"package":0,"cpus":"1,9"},{"core":2,"package":0,"cpus":"2,10"},{"core":3,"package":0,"cpus":"3,11"}],"largest_l3_hole":5}
                {"node":1,"cpu_milli":{"capacity":8000,"allocatable":8000,"available":8000},"memory_bytes":{"capacity":8581545984,"allocatable":8581545984,"available":8581545984},"huge_pages":[{"size_bytes":2097152,"bytes":{"capacity":8388608,"allocatable":8388608,"available":8388608}}],"devices":[],"distances":[{"node":0,"distance":12},{"node":1,"distance":10}],"cpus":"4-7,12-15","shared_cpus":"4-7,12-15","reserved_cpus":"","isolated_cpus":"","cores":[{"core":4,"package":0,"cpus":"4,12"},{"core":5,"package":0,"cpus":"5,13"},{"core":6,"package":0,"cpus":"6,14"},{"core":7,"package":0,"cpus":"7,15"}],"largest_l3_hole":8}
            "#]],
        );
        let whole = Requests { only_whole_cores: true, ..Requests::default() };
        check(
            "numa:1 core:4 pu:2 mem:8",
            whole,
            2,
            expect![[r#"
                best-effort container 7
                {"node":0,"cpu_milli":{"capacity":8000,"allocatable":8000,"available":4000},"memory_bytes":{"capacity":8589934592,"allocatable":8589934592,"available":8589934592},"huge_pages":[],"devices":[],"distances":[{"node":0,"distance":10}],"cpus":"0-7","shared_cpus":"0,2-4,6-7","reserved_cpus":"","isolated_cpus":"","cores":[{"core":0,"package":0,"cpus":"0,4"},{"core":1,"package":0,"cpus":"1,5"},{"core":2,"package":0,"cpus":"2,6"},{"core":3,"package":0,"cpus":"3,7"}],"largest_l3_hole":4}
            "#]],
        );
    }

    #[test]
    fn members_are_bound_by_groups_and_by_both_capacities() {
        let check = |max: Most, pods: Option<usize>, containers: Option<usize>, expected| {
            let mut it = GroupType::new("g");
            it.instances.max = max;
            it.capacity = Capacity { pods, containers };
            assert_eq!(members_max(&it, 8), expected, "{it:?}");
        };
        check(Most::Count(2), Some(3), None, Some(6));
        check(Most::Count(2), Some(3), Some(2), Some(4));
        check(Most::Count(2), None, None, None);
        check(Most::Unlimited, Some(1), None, None);
        check(Most::Unlimited, Some(3), None, None);
    }
}
