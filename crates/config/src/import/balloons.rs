//! Balloon types, of nri-plugins and of CRI Resource Manager, to groups.
//!
//! A balloon type is a group with `size: requests`. The type `default` takes every container that no other type takes; the type `reserved` is no group: its
//! containers run on the reserved CPUs.

use super::classes::{is_class, scheduling_of_type, use_class};
use super::composites;
use super::document::{Document, find, items, scalar, text_of};
use super::nri_plugins::{COMMON, classes_first, is_true, reserve_namespaces};
use super::output::{Step, Yaml};
use super::report::Fate;
use super::walk::Does::{Call, Convert, Holds, Judge, Lost, Take};
use super::walk::{Place, Rule, Walk, path};
use crate::yaml::Node;

/// Keys of the policy beside the common ones, here and in CRI Resource Manager.
pub(super) const BALLOONS: &[Rule] = &[
    ("pinCPU", Take("requests.pinCpu")),
    ("pinMemory", Take("requests.pinMemory")),
    (
        "idleCPUClass",
        Call(|walk, place, node| use_class(walk, place, node, path("cpuClasses.idle"))),
    ),
    ("reservedPoolNamespaces", Call(reserve_namespaces)),
    ("allocatorTopologyBalancing", Judge(for_all_types)),
    ("preferSpreadOnPhysicalCores", Judge(for_all_types)),
    ("showContainersInNrt", Lost("the zones that the agent publishes have no containers")),
    ("preserve.matchExpressions", Take("requests.preserve")),
    ("loadClasses", Call(load_classes)),
    ("balloonTypes", Call(types)),
];

/// Keys of a type.
const TYPE: &[Rule] = &[
    ("name", Take("name")),
    ("namespaces", Take("members.namespaces")),
    ("matchExpressions", Take("members.match")),
    ("groupBy", Take("instances.by")),
    ("minBalloons", Take("instances.min")),
    ("maxBalloons", Convert("instances.max", unlimited)),
    ("preferNewBalloons", Take("instances.preferNew")),
    ("preferSpreadingPods", Take("instances.spreadPods")),
    ("preferPerNamespaceBalloon", Take("instances.perNamespace")),
    ("minCPUs", Take("size.requests.min")),
    ("maxCPUs", Convert("size.requests.max", unlimited)),
    ("allocatorPriority", Convert("priority", priority)),
    ("preferSpreadOnPhysicalCores", Convert("cpus.packing", spread)),
    ("hideHyperthreads", Take("cpus.hideHyperthreads")),
    ("allocatorTopologyBalancing", Take("cpus.balance")),
    ("preferIsolCpus", Convert("cpus.isolated", isolated)),
    ("preferCoreType", Take("cpus.coreType")),
    ("preferCloseToDevices", Take("cpus.near")),
    // With the devices that other types are near: see `far`.
    ("preferFarFromDevices", Call(|_, _, _| ())),
    ("cpuClass", Call(type_class)),
    ("memoryTypes", Take("memoryTypes")),
    ("pinMemory", Take("pinMemory")),
    ("shareIdleCPUsInSame", Convert("shareIdle", share_idle)),
    ("loads", Take("loads")),
    // With what the other types say: see `types`.
    ("components", Call(|_, _, _| ())),
    ("componentCreation", Convert("componentCreation", creation)),
    ("schedulingClass", Call(scheduling_of_type)),
    ("showContainersInNrt", Lost("the zones that the agent publishes have no containers")),
    ("irqClaim", Lost("`isolation.interrupts` is about all interrupts that can be moved")),
    ("irqMode", Lost("`isolation.interrupts` is about all interrupts that can be moved")),
];

/// Keys of the type `reserved`.
const RESERVED: &[Rule] = &[
    ("name", Holds("its containers run on the reserved CPUs")),
    ("namespaces", Call(reserve_namespaces)),
    (
        "cpuClass",
        Call(|walk, place, node| use_class(walk, place, node, path("cpuClasses.reserved"))),
    ),
    ("minCPUs", Lost(RESERVED_SIZE)),
    ("maxCPUs", Lost(RESERVED_SIZE)),
    ("shareIdleCPUsInSame", Lost(RESERVED_SIZE)),
];

/// Keys of a type with components: these choose the CPUs.
const COMPOSITE: &[Rule] = &[
    ("loads", Lost(OF_COMPONENTS)),
    ("preferCloseToDevices", Lost(OF_COMPONENTS)),
    ("preferFarFromDevices", Lost(OF_COMPONENTS)),
];

const OF_COMPONENTS: &str = "its components choose the CPUs: say it of their types";
const RESERVED_SIZE: &str = "the reserved CPUs are those of `reservedCpus`";
const NO_GROUP: &str =
    "the type `reserved` is no group: its containers run on the CPUs of `reservedCpus`";

/// `BalloonsPolicy`.
pub(super) fn nri_plugins(walk: &mut Walk<'_>, document: &Document) {
    let document = classes_first(document);
    let rules: Vec<Rule> = BALLOONS.iter().chain(COMMON).copied().collect();
    let place = Place { key: document.prefix.to_owned(), to: Vec::new() };
    walk.keys(&rules, &place, &document.root);
    for_each_type(walk, &document.root);
}

/// Keys of the whole policy that are keys of each group here.
pub(super) fn for_each_type(walk: &mut Walk<'_>, policy: &Node) {
    for idx in 0..walk.list_len("groups") {
        let mut put = |key: &str, value: &str, theirs: &str| {
            let mut to = vec![Step::Key("groups".to_owned()), Step::Index(idx)];
            to.extend(path(key));
            walk.put(to, Yaml::text(value), &format!("{theirs}, of the whole policy"));
        };
        if is_true(policy, "allocatorTopologyBalancing") {
            put("cpus.balance", "true", "allocatorTopologyBalancing");
        }
        if is_true(policy, "preferSpreadOnPhysicalCores") {
            put("cpus.packing", "spread", "preferSpreadOnPhysicalCores");
        }
    }
}

/// What [`for_each_type`] does with a key.
pub(super) fn for_all_types(_: &Node) -> Fate {
    Fate::Taken("groups".to_owned())
}

/// All types; `default` is the last group, as it takes what no other takes.
fn types(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    let named = |item: &Node, name: &str| scalar(item, "name") == Some(name);
    let mut types: Vec<(usize, &Node)> = items(node).iter().enumerate().collect();
    types.sort_by_key(|(_, item)| named(item, "default"));
    for (idx, item) in types {
        let place = place.item(idx);
        if named(item, "reserved") {
            let others = TYPE.iter().map(|(key, _)| (*key, Lost(NO_GROUP)));
            let rules: Vec<Rule> = RESERVED.iter().copied().chain(others).collect();
            walk.keys(&rules, &place, item);
            continue;
        }
        let group = vec![Step::Key("groups".to_owned()), Step::Index(walk.list_len("groups"))];
        let place = place.writing(group);
        let own = if composites::components(item).is_empty() { &[] } else { COMPOSITE };
        let rules: Vec<Rule> = own.iter().chain(TYPE).copied().collect();
        walk.keys(&rules, &place, item);
        if let Some(theirs) = find(item, "components") {
            let names = Yaml::texts(composites::flat(items(node), item));
            walk.take(&place.below("components"), theirs, place.target("components"), names);
        }
        if own.is_empty() {
            far(walk, &place, items(node), item);
        }
        if named(item, "default") {
            let why = "The type `default` takes what no other type takes.";
            walk.put(place.target("members.all"), Yaml::text("true"), why);
            let why = "There is one balloon of the type `default`.";
            walk.put(place.target("instances.min"), Yaml::text("1"), why);
            walk.put(place.target("instances.max"), Yaml::text("1"), why);
        }
    }
}

/// A type is far from what it says, and then from what other types are near and it is not, as balloons have it.
fn far(walk: &mut Walk<'_>, place: &Place, types: &[Node], item: &Node) {
    let near = devices(item, "preferCloseToDevices");
    let mut far = devices(item, "preferFarFromDevices");
    let own = far.len();
    let others = types.iter().filter(|it| composites::components(it).is_empty());
    for device in others.flat_map(|it| devices(it, "preferCloseToDevices")) {
        if !near.contains(&device) && !far.contains(&device) {
            far.push(device);
        }
    }
    let (is_more, to) = (far.len() > own, place.target("cpus.far"));
    match find(item, "preferFarFromDevices") {
        Some(theirs) => {
            let texts = Yaml::texts(far);
            walk.take(&place.below("preferFarFromDevices"), theirs, to, texts);
        }
        None if is_more => walk.put(to, Yaml::texts(far), "Other types are near these."),
        None => {}
    }
}

fn devices(item: &Node, key: &str) -> Vec<String> {
    let listed = find(item, key).map(items).unwrap_or_default();
    listed.iter().filter_map(text_of).map(str::to_owned).collect()
}

/// A maximum of zero is none.
pub(super) fn unlimited(node: &Node) -> Result<Yaml, String> {
    match text_of(node) {
        Some("0") => Ok(Yaml::text("unlimited")),
        _ => Ok(Yaml::of(node)),
    }
}

/// A word, or its number in CRI Resource Manager.
pub(super) fn priority(node: &Node) -> Result<Yaml, String> {
    match text_of(node).unwrap_or_default().to_ascii_lowercase().as_str() {
        "high" | "0" => Ok(Yaml::text("high")),
        "normal" | "1" => Ok(Yaml::text("normal")),
        "low" | "2" => Ok(Yaml::text("low")),
        "none" | "3" => Ok(Yaml::text("none")),
        other => Err(format!("`{other}` is no priority")),
    }
}

fn spread(node: &Node) -> Result<Yaml, String> {
    let is_spread = text_of(node) == Some("true");
    Ok(Yaml::text(if is_spread { "spread" } else { "packed" }))
}

fn isolated(node: &Node) -> Result<Yaml, String> {
    let is_preferred = text_of(node) == Some("true");
    Ok(Yaml::text(if is_preferred { "prefer" } else { "no" }))
}

fn share_idle(node: &Node) -> Result<Yaml, String> {
    match text_of(node).unwrap_or_default() {
        level @ ("package" | "die" | "numa" | "core") => Ok(Yaml::text(level)),
        "system" => Ok(Yaml::text("machine")),
        "socket" => Ok(Yaml::text("package")),
        "thread" => Ok(Yaml::text("core")),
        "l2cache" => Ok(Yaml::text("l2")),
        "l3cache" => Ok(Yaml::text("l3")),
        other => {
            Err(format!("idle CPUs are not shared by `{other}`: a wider or a narrower domain"))
        }
    }
}

fn creation(node: &Node) -> Result<Yaml, String> {
    match text_of(node).unwrap_or_default() {
        "balance-balloons" => Ok(Yaml::text("balance")),
        "all" | "" => Ok(Yaml::text("all")),
        other => Err(format!("`{other}` is no way to create components")),
    }
}

/// The CPU class of a group.
pub(super) fn type_class(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    let name = text_of(node).unwrap_or_default().to_owned();
    match is_class(walk, &name) {
        true => walk.take(place, node, place.target("cpuClass"), Yaml::text(name)),
        false => {
            let why = format!("no class `{name}` is defined, so these CPUs stay as they are");
            walk.note(place, node, Fate::Lost(why));
        }
    }
}

fn load_classes(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    for (idx, item) in items(node).iter().enumerate() {
        let load =
            vec![Step::Key("groupLoads".to_owned()), Step::Index(walk.list_len("groupLoads"))];
        let place = place.item(idx).writing(load);
        const LOAD: &[Rule] = &[
            ("name", Take("name")),
            ("level", Convert("level", load_level)),
            ("overloadsLevelInBalloon", Take("overloadsInGroup")),
        ];
        walk.keys(LOAD, &place, item);
    }
}

fn load_level(node: &Node) -> Result<Yaml, String> {
    match text_of(node).unwrap_or_default() {
        "core" => Ok(Yaml::text("core")),
        "l2cache" | "l2" => Ok(Yaml::text("l2")),
        other => Err(format!("`{other}` is no level that a load is on")),
    }
}
