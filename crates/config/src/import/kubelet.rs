//! `KubeletConfiguration`: its CPU, memory and topology managers. All other keys stay kubelet's.

use super::document::{Document, find, scalar, text_of};
use super::machine::parse_milli;
use super::output::Yaml;
use super::report::Fate;
use super::walk::Does::{Call, Convert, Holds, Judge, Lost, Take};
use super::walk::{Place, Rule, Walk, path};
use crate::yaml::Node;

/// What is said of keys without a rule.
const STAYS: &str = "stays in kubelet's configuration";

const RULES: &[Rule] = &[
    ("apiVersion", Holds(STAYS)),
    ("kind", Holds(STAYS)),
    ("cpuManagerPolicy", Judge(cpu_manager)),
    ("cpuManagerPolicyOptions.full-pcpus-only", Take("requests.fullPcpusOnly")),
    (
        "cpuManagerPolicyOptions.distribute-cpus-across-numa",
        Take("requests.distributeCpusAcrossNuma"),
    ),
    (
        "cpuManagerPolicyOptions.distribute-cpus-across-cores",
        Take("requests.distributeCpusAcrossCores"),
    ),
    ("cpuManagerPolicyOptions.align-by-socket", Take("requests.alignBySocket")),
    ("cpuManagerPolicyOptions.strict-cpu-reservation", Judge(strict_reservation)),
    (
        "cpuManagerPolicyOptions.prefer-align-cpus-by-uncorecache",
        Holds("the tightest domain is preferred, caches too"),
    ),
    ("cpuManagerReconcilePeriod", Holds("CPU sets are watched")),
    ("reservedSystemCPUs", Take("reservedCpus")),
    ("topologyManagerPolicy", Take("requests.topologyManagerPolicy")),
    ("topologyManagerScope", Take("requests.topologyManagerScope")),
    (
        "topologyManagerPolicyOptions.prefer-closest-numa-nodes",
        Holds("nodes that are near each other are preferred"),
    ),
    (
        "topologyManagerPolicyOptions.max-allowable-numa-nodes",
        Holds("any number of NUMA nodes is allowed"),
    ),
    ("memoryManagerPolicy", Judge(memory_manager)),
    (
        "reservedMemory",
        Lost("memory nodes are chosen by what is free in them; nothing is set aside in each"),
    ),
    ("containerRuntimeEndpoint", Convert("runtimeSocket", socket)),
    ("imageServiceEndpoint", Convert("imageSocket", socket)),
    ("featureGates.MemoryQoS", Call(memory_qos)),
    (
        "featureGates.DisableCPUQuotaWithExclusiveCPUs",
        Convert("cpu.liftQuota", |node| Ok(Yaml::of(node))),
    ),
    ("kubeReserved", Holds(STAYS)),
    ("systemReserved", Holds(STAYS)),
];

/// `KubeletConfiguration`.
pub(super) fn kubelet(walk: &mut Walk<'_>, document: &Document) {
    let root = &document.root;
    let gates = find(root, "featureGates").and_then(|it| scalar(it, "MemoryQoS"));
    let has_memory_qos = gates == Some("true");
    let throttling: &[Rule] = match has_memory_qos {
        true => &[("memoryThrottlingFactor", Call(throttling))],
        false => &[],
    };
    let rules: Vec<Rule> = RULES.iter().chain(throttling).copied().collect();
    walk.with_rest(STAYS, |walk| walk.document(&rules, document));
    if has_memory_qos {
        let why = "Kubelet's default of memoryThrottlingFactor.";
        walk.put(path("memory.highPercent"), Yaml::text("90"), why);
    }
    if scalar(root, "cpuManagerPolicy") == Some("static")
        && find(root, "reservedSystemCPUs").is_none()
    {
        reserve_amounts(walk, root);
    }
}

/// Kubelet's static policy keeps as many CPUs, the lowest cores first, as system and Kubernetes daemons have reserved.
fn reserve_amounts(walk: &mut Walk<'_>, root: &Node) {
    let amount = |key| find(root, key).and_then(|it| scalar(it, "cpu"));
    let amounts = [amount("kubeReserved"), amount("systemReserved")];
    let milli: Option<u64> = amounts.iter().flatten().map(|text| parse_milli(text)).sum();
    let why = "kubeReserved.cpu and systemReserved.cpu: the lowest cores, as the static CPU manager takes them";
    match milli {
        Some(0) => {}
        Some(milli) => walk.put(path("reservedCpus"), Yaml::text(format!("{milli}m")), why),
        None => {
            let why = "an amount that is no number of CPUs";
            walk.note_text("kubeReserved, systemReserved", "cpu", Fate::lost(why));
        }
    }
}

fn cpu_manager(node: &Node) -> Fate {
    match text_of(node) {
        Some("static") => {
            Fate::holds("Guaranteed containers own whole CPUs; kubelet's own policy has to be none")
        }
        _ => Fate::holds(
            "as needed; `requests.preferSharedCpus: true` keeps containers from owning CPUs",
        ),
    }
}

fn strict_reservation(node: &Node) -> Fate {
    match text_of(node) {
        Some("false") => Fate::lost("other pods never run on reserved CPUs"),
        _ => Fate::holds("other pods never run on reserved CPUs"),
    }
}

fn memory_manager(node: &Node) -> Fate {
    match text_of(node) {
        Some("Static") => {
            Fate::holds("memory nodes follow CPUs and devices; kubelet's own policy has to be None")
        }
        _ => Fate::holds("as needed"),
    }
}

/// A socket as a path. Bayplan's own is no runtime.
fn socket(node: &Node) -> Result<Yaml, String> {
    let text = text_of(node).unwrap_or_default();
    let path = text.strip_prefix("unix://").unwrap_or(text);
    match path {
        _ if !path.starts_with('/') => Err(format!("`{text}` is no Unix socket")),
        "/run/bayplan/bayplan.sock" => Err("bayplan's own socket".to_owned()),
        _ => Ok(Yaml::text(path)),
    }
}

/// Whether memory is protected and slowed.
fn memory_qos(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    if text_of(node) != Some("true") {
        walk.note(place, node, Fate::holds("as needed"));
        return;
    }
    walk.take(place, node, path("memory.minPercent"), Yaml::text("100"));
}

/// A part of one, which counts with `MemoryQoS` only.
fn throttling(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    let percent = text_of(node).and_then(|text| text.parse::<f64>().ok());
    let percent = percent.filter(|it| (0.0..=1.0).contains(it)).map(|it| (it * 100.0).round());
    match percent {
        Some(percent) => {
            walk.take(place, node, path("memory.highPercent"), Yaml::text(percent.to_string()));
        }
        None => walk.note(place, node, Fate::lost("no number from 0 to 1")),
    }
}
