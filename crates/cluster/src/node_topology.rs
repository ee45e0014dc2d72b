//! The object that NUMA-aware schedulers read, `NodeResourceTopology` (`topology.node.k8s.io/v1alpha2`). In: what the daemon says of each NUMA node, and the
//! fingerprint of the node's pods. Out: the object as JSON.
//!
//! Rules of its readers (scheduler-plugins, `pkg/noderesourcetopology`): a zone counts if its type is `Node` and its name `node-ID`; an ID of 64 or more makes
//! the scheduler panic; CPU time, memory or huge pages that no zone lists make pods that ask for them unschedulable, so each is listed in every zone, as 0
//! where there is none; new figures are taken only together with a fingerprint of the pods that they are about.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value as Json, json};
use twox_hash::XxHash64;

use crate::object::NodeObject;

/// IDs that readers have room for.
const ID_MAX: u32 = 63;
/// The attribute with the fingerprint of the pods that the figures are about.
pub(crate) const FINGERPRINT: &str = "nodeTopologyPodsFingerprint";
/// NUMA nodes that readers assume unless they are told.
const NODES_ASSUMED: usize = 8;

/// The daemon's answer to `GET /api/v1/zones`, `bayplan-zones/1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ZoneReport {
    pub(crate) change: u64,
    /// A value of kubelet's `topologyManagerPolicy`.
    pub(crate) policy: String,
    /// A value of kubelet's `topologyManagerScope`.
    pub(crate) scope: String,
    pub(crate) zones: Vec<Zone>,
    /// Pods with exclusive CPUs that Bayplan has chosen.
    pub(crate) owners: Vec<Owner>,
    /// CPUs that no scheduler can give to a pod, beside those of owners and those that a scheduler has given.
    pub(crate) withheld_cpus: String,
    pub(crate) groups: Vec<Group>,
    pub(crate) group_types: Vec<GroupType>,
    pub(crate) cpu_classes: Vec<String>,
}

/// One NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Zone {
    pub(crate) node: u32,
    pub(crate) cpus: String,
    pub(crate) cores: Vec<Core>,
    /// Thousandths of CPUs.
    pub(crate) cpu_milli: Amount,
    memory_bytes: Option<Amount>,
    huge_pages: Vec<HugePages>,
    devices: Vec<Devices>,
    distances: Vec<Distance>,
    pub(crate) shared_cpus: String,
    reserved_cpus: String,
    isolated_cpus: String,
    largest_l3_hole: usize,
}

/// A core, or the part of it that is in one NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Core {
    /// Counts all cores of the machine.
    pub(crate) core: u32,
    pub(crate) package: u32,
    pub(crate) cpus: String,
}

/// A pod with exclusive CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Owner {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) cpus: String,
}

/// What there is, what of that pods can have, and what of that a new pod can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Amount {
    capacity: u64,
    pub(crate) allocatable: u64,
    available: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
struct HugePages {
    size_bytes: u64,
    bytes: Amount,
}

/// Devices of one extended resource.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Devices {
    resource: String,
    devices: Amount,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
struct Distance {
    node: u32,
    /// As in ACPI's SLIT.
    distance: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Group {
    name: String,
    cpus: String,
}

/// A type of groups with a bound of its members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct GroupType {
    pub(crate) name: String,
    pub(crate) members_max: u64,
    pub(crate) has_slots: bool,
}

impl ZoneReport {
    /// Sets CPU time aside in every zone, because it is not known which one a pod will have.
    pub(crate) fn set_aside(&mut self, cpu_milli: u64) {
        for zone in &mut self.zones {
            let available = &mut zone.cpu_milli.available;
            *available = available.saturating_sub(cpu_milli);
        }
    }

    /// Extended resources that a zone lists.
    pub(crate) fn extended(&self) -> BTreeSet<&str> {
        let zones = self.zones.iter().filter(|zone| zone.node <= ID_MAX);
        zones.flat_map(|zone| &zone.devices).map(|it| it.resource.as_str()).collect()
    }
}

/// The object of this node; it goes away with the Node object. `fingerprint`: of the pods that [`crate::exclusive_pods`] counts.
pub(crate) fn node_topology(
    node: &NodeObject,
    report: &ZoneReport,
    fingerprint: &str,
    annotations: &BTreeMap<&'static str, String>,
) -> Json {
    let NodeObject { name, uid, .. } = node;
    let zones: Vec<&Zone> = report.zones.iter().filter(|zone| zone.node <= ID_MAX).collect();
    let sizes = zones.iter().flat_map(|zone| zone.huge_pages.iter().map(|it| it.size_bytes));
    let sizes: BTreeSet<u64> = sizes.collect();
    let mut attributes = vec![
        attribute("topologyManagerPolicy", &report.policy),
        attribute("topologyManagerScope", &report.scope),
        attribute(FINGERPRINT, fingerprint),
        attribute("nodeTopologyPodsFingerprintMethod", "with-exclusive-resources"),
    ];
    if zones.len() > NODES_ASSUMED {
        attributes.push(attribute("topologyManagerMaxNUMANodes", &zones.len().to_string()));
    }
    let groups = report.groups.iter();
    attributes
        .extend(groups.map(|it| attribute(&format!("bayplan.dev/group/{}", it.name), &it.cpus)));
    json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": name,
            "annotations": annotations,
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": name, "uid": uid }],
        },
        "attributes": attributes,
        "zones": zones.iter().map(|zone| render_zone(zone, &sizes)).collect::<Vec<_>>(),
    })
}

fn attribute(name: &str, value: &str) -> Json {
    json!({ "name": name, "value": value })
}

fn render_zone(zone: &Zone, sizes: &BTreeSet<u64>) -> Json {
    let cost = |it: &Distance| json!({ "name": format!("node-{}", it.node), "value": it.distance });
    let costs: Vec<Json> = zone.distances.iter().filter(|it| it.node <= ID_MAX).map(cost).collect();
    let mut resources = vec![
        resource("cpu", zone.cpu_milli, milli),
        resource("memory", zone.memory_bytes.unwrap_or_default(), plain),
    ];
    resources.extend(sizes.iter().map(|size| {
        let pages = zone.huge_pages.iter().find(|it| it.size_bytes == *size);
        let amount = pages.map(|it| it.bytes).unwrap_or_default();
        resource(&format!("hugepages-{}", binary(*size)), amount, plain)
    }));
    let devices = zone.devices.iter();
    resources.extend(devices.map(|it| resource(&it.resource, it.devices, plain)));
    let hole = zone.largest_l3_hole.to_string();
    let attributes = [
        ("shared cpuset", &zone.shared_cpus),
        ("reserved cpuset", &zone.reserved_cpus),
        ("isolated cpuset", &zone.isolated_cpus),
        ("bayplan.dev/largest-l3-hole", &hole),
    ];
    let attributes = attributes.iter().filter(|(_, value)| !value.is_empty());
    json!({
        "name": format!("node-{}", zone.node),
        "type": "Node",
        "costs": costs,
        "attributes": attributes.map(|(name, value)| attribute(name, value)).collect::<Vec<_>>(),
        "resources": resources,
    })
}

fn resource(name: &str, amount: Amount, quantity: fn(u64) -> String) -> Json {
    let Amount { capacity, allocatable, available } = amount;
    json!({
        "name": name,
        "capacity": quantity(capacity),
        "allocatable": quantity(allocatable),
        "available": quantity(available),
    })
}

/// A Kubernetes quantity of thousandths.
fn milli(amount: u64) -> String {
    if amount.is_multiple_of(1000) { (amount / 1000).to_string() } else { format!("{amount}m") }
}

fn plain(amount: u64) -> String {
    amount.to_string()
}

/// With the largest binary suffix that leaves a whole number, as Kubernetes names huge pages.
fn binary(bytes: u64) -> String {
    let suffixes = ["", "Ki", "Mi", "Gi"];
    let fits = |power: &usize| bytes.is_multiple_of(1 << (10 * power));
    let power = (0..suffixes.len()).rev().find(fits).unwrap_or(0);
    format!("{}{}", bytes >> (10 * power), suffixes.get(power).copied().unwrap_or_default())
}

/// The fingerprint of a set of pods (namespace, name), in any order: `podfingerprint` v001 of the Topology Aware Scheduling working group. Each pod is
/// hashed by xxHash64 of its name seeded with that of its namespace; the sorted hashes, little-endian one after the other, are hashed again.
pub(crate) fn fingerprint<'a>(pods: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let hash = |(namespace, name): (&str, &str)| {
        XxHash64::oneshot(XxHash64::oneshot(0, namespace.as_bytes()), name.as_bytes())
    };
    let mut hashes: Vec<u64> = pods.into_iter().map(hash).collect();
    hashes.sort_unstable();
    let bytes: Vec<u8> = hashes.into_iter().flat_map(u64::to_le_bytes).collect();
    format!("pfp0v001{:016x}", XxHash64::oneshot(0, &bytes))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    const REPORT: &str = r#"{"policy": "best-effort", "scope": "pod", "change": 3, "groups": [{"name": "web[0]", "cpus": "2-3"}], "zones": [
        {"node": 0, "cpu_milli": {"capacity": 4000, "allocatable": 3000, "available": 1500},
         "memory_bytes": {"capacity": 1024, "allocatable": 1024, "available": 512}, "shared_cpus": "1", "largest_l3_hole": 1,
         "huge_pages": [{"size_bytes": 2097152, "bytes": {"capacity": 4194304, "allocatable": 4194304, "available": 0}}],
         "devices": [{"resource": "example.com/nic", "devices": {"capacity": 8, "allocatable": 8, "available": 5}}],
         "distances": [{"node": 0, "distance": 10}, {"node": 64, "distance": 40}]},
        {"node": 1, "cpu_milli": {"capacity": 0, "allocatable": 0, "available": 0}},
        {"node": 64, "cpu_milli": {"capacity": 1000, "allocatable": 1000, "available": 1000}}]}"#;

    fn object() -> Json {
        let report: ZoneReport = serde_json::from_str(REPORT).unwrap();
        let node = NodeObject { name: "worker".into(), uid: "u".into(), ..NodeObject::default() };
        node_topology(&node, &report, "pfp0v001", &BTreeMap::from([("a/b", "c".to_owned())]))
    }

    #[test]
    fn the_object_lists_every_resource_in_every_zone_and_no_id_above_63() {
        let object = object();
        let mut lines = Vec::new();
        for zone in object["zones"].as_array().unwrap() {
            lines.push(format!("{} {} costs {}", zone["name"], zone["type"], zone["costs"]));
            for it in zone["resources"].as_array().unwrap() {
                lines.push(format!(
                    "  {} {}/{}/{}",
                    it["name"], it["available"], it["allocatable"], it["capacity"]
                ));
            }
            lines.push(format!("  {}", zone["attributes"]));
        }
        lines.push(object["attributes"].to_string());
        lines.push(object["metadata"].to_string());
        expect![[r#"
            "node-0" "Node" costs [{"name":"node-0","value":10}]
              "cpu" "1500m"/"3"/"4"
              "memory" "512"/"1024"/"1024"
              "hugepages-2Mi" "0"/"4194304"/"4194304"
              "example.com/nic" "5"/"8"/"8"
              [{"name":"shared cpuset","value":"1"},{"name":"bayplan.dev/largest-l3-hole","value":"1"}]
            "node-1" "Node" costs []
              "cpu" "0"/"0"/"0"
              "memory" "0"/"0"/"0"
              "hugepages-2Mi" "0"/"0"/"0"
              [{"name":"bayplan.dev/largest-l3-hole","value":"0"}]
            [{"name":"topologyManagerPolicy","value":"best-effort"},{"name":"topologyManagerScope","value":"pod"},{"name":"nodeTopologyPodsFingerprint","value":"pfp0v001"},{"name":"nodeTopologyPodsFingerprintMethod","value":"with-exclusive-resources"},{"name":"bayplan.dev/group/web[0]","value":"2-3"}]
            {"annotations":{"a/b":"c"},"name":"worker","ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"worker","uid":"u"}]}"#]].assert_eq(&lines.join("\n"));
    }

    #[test]
    fn names_of_huge_pages_are_those_of_kubernetes() {
        for (bytes, name) in
            [(64 << 10, "64Ki"), (2 << 20, "2Mi"), (1 << 30, "1Gi"), (16 << 30, "16Gi")]
        {
            assert_eq!(binary(bytes), name);
        }
    }

    #[test]
    fn the_fingerprint_is_that_of_the_schedulers_library() {
        assert_eq!(fingerprint([]), "pfp0v001ef46db3751d8e999");
        let pods = [("default", "a"), ("default", "b"), ("kube-system", "a")];
        let turned = [pods[2], pods[0], pods[1]];
        assert_eq!(fingerprint(pods), fingerprint(turned));
        assert_ne!(fingerprint(pods), fingerprint([pods[0], pods[1]]));
    }
}
