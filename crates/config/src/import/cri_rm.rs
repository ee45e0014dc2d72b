//! CRI Resource Manager: its configuration file, the data of its ConfigMaps, its first form of lines `flag = value`, and its `Adjustment`.
//!
//! Only the policy that is active counts; sections of the others need no key. Where no policy is named, as in the first releases of nri-plugins, it is the one that
//! has a section of its own.

use super::balloons::{self, for_each_type};
use super::classes::{block_io, cpu_classes, rdt};
use super::document::{Document, entries, find, scalar, text_of};
use super::machine::{make_available, reserve};
use super::nri_plugins::{
    TOPOLOGY_AWARE, defaults, log_filter, metrics_address, prometheus, reserve_namespaces,
};
use super::output::{Step, Yaml};
use super::pools;
use super::report::Fate;
use super::walk::Does::{Call, Convert, Holds, Judge, Lost};
use super::walk::{Place, Rule, Walk, path};
use crate::yaml::Node;

const RULES: &[Rule] = &[
    ("policy.Active", Judge(active)),
    ("policy.AvailableResources.CPU", Call(make_available)),
    ("policy.AvailableResources.Memory", Lost("memory is not kept from containers")),
    ("policy.ReservedResources.CPU", Call(reserve)),
    ("policy.ReservedResources.Memory", Lost("memory of system pods is not set aside")),
    ("rdt", Call(rdt)),
    ("blockio.Classes", Call(block_io)),
    ("resource-manager.blockio.Classes", Call(default_block_io)),
    ("resource-manager.control", Call(controllers)),
    ("cpu.classes", Call(cpu_classes)),
    ("logger.Debug", Convert("log", log_filter)),
    ("logger.Source", Holds("lines of the log name their module")),
    ("logger.Klog", Lost("libraries of Kubernetes are not used")),
    ("instrumentation.HTTPEndpoint", Convert("metricsAddress", metrics_address)),
    ("instrumentation.PrometheusExport", Judge(prometheus)),
    ("instrumentation.Sampling", Lost(TRACING)),
    ("instrumentation.JaegerCollector", Lost(TRACING)),
    ("instrumentation.JaegerAgent", Lost(TRACING)),
    ("instrumentation.ReportPeriod", Holds("metrics are made when they are asked for")),
    ("dump", Lost(DUMP)),
];

const PAGES: &str = "the kernel moves idle memory: `memory.reclaim` with `memory.demotion`";
const CONTROLLERS: &str =
    "whatever this machine can do is done; `bayplan check` says what it cannot";
const TRACING: &str =
    "no traces are recorded; `bayplan explain` and `bayplan journal` have each decision";
const DUMP: &str = "messages are not dumped; `bayplan journal` has what was decided";

/// A policy that has a section.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    TopologyAware,
    Balloons,
    Pods,
    Dynamic,
    StaticPools,
    /// `static`, `static-plus`: as kubelet.
    Static,
    None,
}

/// Names, and what they are; `memtier` is an older one.
const POLICIES: [(&str, Policy); 11] = [
    ("topology-aware", Policy::TopologyAware),
    ("memtier", Policy::TopologyAware),
    ("balloons", Policy::Balloons),
    ("podpools", Policy::Pods),
    ("dynamic-pools", Policy::Dynamic),
    ("static-pools", Policy::StaticPools),
    ("static", Policy::Static),
    ("static-plus", Policy::Static),
    ("none", Policy::None),
    ("null", Policy::None),
    ("", Policy::None),
];

fn policy_named(name: &str) -> Option<Policy> {
    POLICIES.iter().find(|(known, _)| *known == name).map(|(_, policy)| *policy)
}

/// A configuration file, or what is below `data` of a ConfigMap.
pub(super) fn file(walk: &mut Walk<'_>, document: &Document) {
    let root = &document.root;
    let place = Place { key: document.prefix.to_owned(), to: Vec::new() };
    let policy = find(root, "policy");
    let chosen = match policy.and_then(|it| scalar(it, "Active")) {
        Some(name) => policy_named(name).unwrap_or(Policy::TopologyAware),
        None => policy.map_or(Policy::None, inferred),
    };
    // Classes first: groups and pools name them.
    let is_first =
        |key: &str| ["cpu", "rdt", "blockio"].contains(&key.to_ascii_lowercase().as_str());
    let mut ordered: Vec<_> = entries(root).to_vec();
    ordered.sort_by_key(|(_, key, _)| !is_first(key));
    let ordered = Node { at: root.at, value: crate::yaml::Value::Map(ordered) };
    // Pools of CMK say more exactly which CPUs are reserved.
    if let (Policy::StaticPools, Some(policy)) = (chosen, policy) {
        section(walk, &place.below("policy"), policy, chosen);
    }
    walk.keys(&rules_without_sections(), &place, &ordered);
    if let Some(policy) = policy {
        if chosen != Policy::StaticPools {
            section(walk, &place.below("policy"), policy, chosen);
        }
        other_sections(walk, &place.below("policy"), policy, chosen);
        finish(walk, chosen);
    }
}

/// The rules of a file; its policies' sections are walked by [`section`].
fn rules_without_sections() -> Vec<Rule> {
    const SECTIONS: &[Rule] = &[
        ("policy.topology-aware", Call(|_, _, _| {})),
        ("policy.memtier", Call(|_, _, _| {})),
        ("policy.balloons", Call(|_, _, _| {})),
        ("policy.podpools", Call(|_, _, _| {})),
        ("policy.dynamic-pools", Call(|_, _, _| {})),
        ("policy.static-pools", Call(|_, _, _| {})),
        ("policy.static", Call(|_, _, _| {})),
        ("policy.static-plus", Call(|_, _, _| {})),
    ];
    let last = ("policy.dump", Lost(DUMP));
    RULES.iter().chain(SECTIONS).copied().chain([last]).collect()
}

/// The policy that has the only section, or the topology-aware one.
fn inferred(policy: &Node) -> Policy {
    let has = |name: &str| find(policy, name).is_some();
    if has("balloons") && !has("topology-aware") {
        return Policy::Balloons;
    }
    if has("podpools") && !has("topology-aware") {
        return Policy::Pods;
    }
    Policy::TopologyAware
}

fn active(node: &Node) -> Fate {
    let name = text_of(node).unwrap_or_default();
    match policy_named(name) {
        Some(Policy::TopologyAware | Policy::Static) => Fate::Taken("policy".to_owned()),
        Some(Policy::None) => {
            Fate::lost("`bayplan restore` lets all calls pass; a file cannot say so")
        }
        Some(_) => Fate::Taken("groups".to_owned()),
        None => Fate::Lost(format!("no policy `{name}` is known")),
    }
}

/// The section of the active policy.
fn section(walk: &mut Walk<'_>, place: &Place, policy: &Node, chosen: Policy) {
    let namespaces: Rule = ("reservedPoolNamespaces", Call(reserve_namespaces));
    for (_, name, node) in entries(policy) {
        if policy_named(&name.to_ascii_lowercase()) != Some(chosen) {
            continue;
        }
        let place = place.below(name);
        match chosen {
            Policy::TopologyAware => {
                let rules: Vec<Rule> = TOPOLOGY_AWARE.iter().copied().chain([namespaces]).collect();
                walk.keys(&rules, &place, node);
            }
            Policy::Balloons => {
                walk.keys(balloons::BALLOONS, &place, node);
                for_each_type(walk, node);
            }
            Policy::Pods => {
                walk.keys(pools::POD_POOLS, &place, node);
                for_each_type(walk, node);
            }
            Policy::Dynamic => {
                walk.keys(pools::DYNAMIC_POOLS, &place, node);
                for_each_type(walk, node);
            }
            Policy::StaticPools => walk.keys(pools::STATIC_POOLS, &place, node),
            Policy::Static | Policy::None => walk.keys(STATIC, &place, node),
        }
    }
}

const STATIC: &[Rule] = &[(
    "RelaxedIsolation",
    Holds("isolated CPUs are preferred, and others taken where there are none"),
)];

/// Sections of policies that are not active.
fn other_sections(walk: &mut Walk<'_>, place: &Place, policy: &Node, chosen: Policy) {
    for (_, name, node) in entries(policy) {
        let Some(other) = policy_named(&name.to_ascii_lowercase()) else { continue };
        if other != chosen {
            walk.note(&place.below(name), node, Fate::holds("another policy is active"));
        }
    }
}

/// What the active policy does where the file says nothing.
fn finish(walk: &mut Walk<'_>, chosen: Policy) {
    match chosen {
        Policy::TopologyAware | Policy::Static => defaults(walk, "CRI Resource Manager"),
        Policy::None => {}
        _ => walk.put(
            path("policy"),
            Yaml::text("topology-aware"),
            "For containers that no group takes.",
        ),
    }
}

/// Controllers that were switched on or off; what they control has sections of its own, but for pages.
fn controllers(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    if entries(node).is_empty() {
        walk.note(place, node, Fate::holds(CONTROLLERS));
    }
    for (_, name, value) in entries(node) {
        let fate = match name.eq_ignore_ascii_case("page-migration") {
            true => Fate::lost(PAGES),
            false => Fate::holds(CONTROLLERS),
        };
        walk.note(&place.below(name), value, fate);
    }
}

/// Classes of block I/O by QoS class: the class gets that name, too.
fn default_block_io(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    const QOS: [&str; 3] = ["Guaranteed", "Burstable", "BestEffort"];
    let named = |name: &str| entries(node).iter().any(|(_, key, _)| key == name);
    for (_, qos, class) in entries(node) {
        let below = place.below(qos);
        let name = text_of(class).unwrap_or_default();
        let of = |name: &str| {
            let mut to = path("blockIo.classes");
            to.push(Step::Key(name.to_owned()));
            to
        };
        let Some(rules) = walk.out.get(&of(name)).cloned() else {
            walk.note(&below, class, Fate::Lost(format!("no class `{name}` is defined")));
            continue;
        };
        let all = QOS.iter().filter(|it| !named(it));
        let wanted: Vec<&str> = match qos.as_str() {
            "*" => all.copied().collect(),
            qos => QOS.iter().filter(|it| **it == qos).copied().collect(),
        };
        if wanted.is_empty() {
            walk.note(&below, class, Fate::lost("no QoS class of Kubernetes"));
        }
        for qos in wanted {
            walk.take(&below, class, of(qos), rules.clone());
        }
    }
}

/// The first form of the configuration.
pub(super) fn flags(walk: &mut Walk<'_>, document: &Document) {
    const FLAGS: &[Rule] = &[
        ("policy", Judge(active)),
        ("reserved-resources", Call(reserved_flag)),
        ("available-resources", Call(available_flag)),
        ("logger-debug", Convert("log", log_filter)),
        ("dump", Lost(DUMP)),
    ];
    walk.document(FLAGS, document);
    let named = scalar(&document.root, "policy").and_then(policy_named);
    if let Some(policy) = named {
        finish(walk, policy);
    }
}

/// `cpu=1000m` or `cpu=cpuset:0-1`.
fn reserved_flag(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    reserve(walk, place, &cpu_of(node));
}

/// `cpu=cpuset:0-15`.
fn available_flag(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    make_available(walk, place, &cpu_of(node));
}

/// What is behind `cpu=`.
fn cpu_of(node: &Node) -> Node {
    let text = text_of(node).unwrap_or_default();
    let amount = text.split(',').find_map(|it| it.trim().strip_prefix("cpu="));
    let value = crate::yaml::Value::Scalar(amount.unwrap_or(text).to_owned());
    Node { at: node.at, value }
}

/// Overrides for single containers of single nodes.
pub(super) fn adjustment(walk: &mut Walk<'_>, document: &Document) {
    const ADJUSTMENT: &[Rule] = &[
        ("scope", Lost("containers say it themselves, by annotation")),
        ("resources", Lost("resources are those of the pod; it can be resized in place")),
        ("toptierLimit", Lost("needs a patched kernel")),
        ("classes.rdt", Lost("annotation `bayplan.dev/rdtclass` of the pod")),
        ("classes.blockio", Lost("annotation `bayplan.dev/blockioclass` of the pod")),
    ];
    walk.document(ADJUSTMENT, document);
}
