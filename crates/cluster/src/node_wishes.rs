//! What the Node object is to have of Bayplan. In: the parts that are published, the Node as it is, and the daemon's answers. Out: labels, annotations, taints
//! and extended resources, all of them: what is not among them any more is taken away.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};

use crate::feature_set::{Attributes, FeatureLabels, is_last_name};
use crate::node_topology::ZoneReport;
use crate::object::NodeObject;
use crate::part::{Part, Parts};

/// Given by kubelet's `registerWithTaints`, taken away when the daemon is ready and everything else is written.
pub(crate) const NOT_READY: &str = "bayplan.dev/not-ready";
const DRAINING: &str = "bayplan.dev/draining";
/// The master of Node Feature Discovery annotates the Nodes that it labels.
const NFD: &str = "nfd.node.kubernetes.io/";
const CMK: &str = "cmk";
/// Of keys that are no other program's.
const PREFIX: &str = "bayplan.dev/";
/// Keys of taints outside of `bayplan.dev/` that are the agent's, so that they are found when they are not wanted any more.
const OWN_TAINTS: &str = "bayplan.dev/own-taints";
/// Kubelet refuses no pod for these: they say what the scheduler may send.
const NO_SCHEDULE: &str = "NoSchedule";
/// Pools of CMK by the name of the group type, and their resources.
const CMK_POOLS: [(&str, &str); 2] = [
    ("exclusive", "cmk.intel.com/exclusive-cores"),
    ("exclusive-non-isolcpus", "cmk.intel.com/exclusive-non-isolcpus-cores"),
];

/// The daemon as far as the Node object shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DaemonView<'a> {
    pub(crate) report: &'a ZoneReport,
    pub(crate) is_placing: bool,
    /// Labels of features and profiles; `None`: not known yet.
    pub(crate) features: Option<&'a FeatureLabels>,
}

/// Everything of the Node object that is the agent's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeWishes {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// Labels of features and profiles; `None`: as they are.
    pub(crate) features: Option<BTreeMap<String, String>>,
    /// Extended resources.
    pub(crate) capacity: BTreeMap<String, String>,
    /// By key, with the effect NoSchedule: the value, or `None` for one that is to go. Others stay.
    pub(crate) taints: BTreeMap<String, Option<String>>,
}

/// What is wanted of this Node.
pub(crate) fn node_wishes(node: &NodeObject, parts: &Parts, daemon: &DaemonView<'_>) -> NodeWishes {
    let mut wishes = nothing(node);
    let has = |part: Part| parts.contains(&part);
    if has(Part::Taints) {
        let draining = (!daemon.is_placing).then(|| "true".to_owned());
        wishes.taints.insert(DRAINING.to_owned(), draining);
    }
    if has(Part::Cmk) {
        add_cmk(&mut wishes, node, daemon.report);
    }
    if has(Part::PowerClasses) {
        let cpus = allocatable_cpus(daemon.report).to_string();
        let names = daemon.report.cpu_classes.iter().filter(|it| is_short_name(it));
        let resources = names.map(|it| (format!("power.intel.com/{it}"), cpus.clone()));
        wishes.capacity.extend(resources);
    }
    if has(Part::Groups) {
        let types = daemon.report.group_types.iter().filter(|it| is_short_name(&it.name));
        let resource = |name: &str| format!("bayplan.dev/group-{name}");
        let resources = types.map(|it| (resource(&it.name), it.members_max.to_string()));
        wishes.capacity.extend(resources);
    }
    let has_nfd = node.annotations.keys().any(|it| it.starts_with(NFD));
    wishes.features = daemon.features.map(|it| {
        let mut labels = it.of_rules.clone();
        // NFD makes labels of the same names.
        if !has_nfd {
            labels.extend(it.of_features.clone());
        }
        labels
    });
    wishes.annotations.extend(own_taints(node, &wishes));
    wishes
}

/// Nothing of Bayplan on this Node: what `bayplan agent --withdraw` leaves.
pub(crate) fn no_wishes(node: &NodeObject) -> NodeWishes {
    let mut wishes = nothing(node);
    wishes.taints.insert(NOT_READY.to_owned(), None);
    wishes.features = Some(Attributes::new());
    // Until the taints that it lists are gone.
    wishes.annotations.extend(own_taints(node, &wishes));
    wishes
}

/// Without wishes, but with the taints that may be there of earlier ones.
fn nothing(node: &NodeObject) -> NodeWishes {
    let keys = listed_taints(node).chain([DRAINING]).map(|key| (key.to_owned(), None));
    NodeWishes { taints: keys.collect(), ..NodeWishes::default() }
}

/// Foreign keys of taints that the Node's annotation lists as the agent's.
fn listed_taints(node: &NodeObject) -> impl Iterator<Item = &str> {
    let listed = node.annotations.get(OWN_TAINTS).map(String::as_str).unwrap_or_default();
    listed.split(',').filter(|it| !it.is_empty())
}

/// Whether a taint of this key is found again when it is not wanted any more.
pub(crate) fn can_be_found(node: &NodeObject, key: &str) -> bool {
    key.starts_with(PREFIX) || listed_taints(node).any(|it| it == key)
}

/// The annotation that lists foreign keys of taints that are the agent's, wanted or still there.
fn own_taints(node: &NodeObject, wishes: &NodeWishes) -> Option<(String, String)> {
    let is_there = |key: &str| node.taints.iter().any(|it| is_taint(it, key));
    let foreign = wishes.taints.iter().filter(|(key, _)| !key.starts_with(PREFIX));
    let listed = foreign.filter(|(key, value)| value.is_some() || is_there(key));
    let keys: BTreeSet<&str> = listed.map(|(key, _)| key.as_str()).collect();
    let text = keys.into_iter().collect::<Vec<_>>().join(",");
    (!text.is_empty()).then(|| (OWN_TAINTS.to_owned(), text))
}

/// CMK's label, taint and resources, where the configuration has its pools: groups with slots.
fn add_cmk(wishes: &mut NodeWishes, node: &NodeObject, report: &ZoneReport) {
    let slots = |pool: &str| report.group_types.iter().find(|it| it.has_slots && it.name == pool);
    let resources = CMK_POOLS.iter().filter_map(|(pool, resource)| Some((*resource, slots(pool)?)));
    let resources: Vec<_> =
        resources.map(|(name, it)| (name.to_owned(), it.members_max.to_string())).collect();
    if resources.is_empty() {
        return;
    }
    wishes.labels.insert("cmk.intel.com/cmk-node".to_owned(), "true".to_owned());
    // A taint that is there and not listed is another program's, and stays.
    if can_be_found(node, CMK) || !node.taints.iter().any(|it| is_taint(it, CMK)) {
        wishes.taints.insert(CMK.to_owned(), Some("true".to_owned()));
    }
    wishes.capacity.extend(resources);
}

/// Whole CPUs that containers can have for their own.
fn allocatable_cpus(report: &ZoneReport) -> u64 {
    report.zones.iter().map(|zone| zone.cpu_milli.allocatable / 1000).sum()
}

/// Whether a name can be the last part of a resource's, which has at most 63 characters with its prefix.
fn is_short_name(name: &str) -> bool {
    name.len() <= 50 && is_last_name(name)
}

/// Whether it is the taint of this key with the effect NoSchedule.
pub(crate) fn is_taint(taint: &Json, key: &str) -> bool {
    taint["key"] == key && taint["effect"] == NO_SCHEDULE
}

/// A taint as an object.
pub(crate) fn taint(key: &str, value: &str) -> Json {
    json!({ "key": key, "value": value, "effect": NO_SCHEDULE })
}
