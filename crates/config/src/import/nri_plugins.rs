//! nri-plugins: what its policies have in common, and the topology-aware one.

use super::classes::{
    block_io, cpu_classes, rdt, scheduling_classes, scheduling_of_namespaces, scheduling_of_qos,
    use_class,
};
use super::document::{Document, entries, items, text_of};
use super::machine::{make_available, reserve};
use super::output::Yaml;
use super::report::Fate;
use super::walk::Does::{Call, Convert, Holds, Judge, Lost, Take};
use super::walk::{Place, Rule, Walk, path};
use crate::yaml::{Node, Value};

/// Keys of every policy, below `spec`.
pub(super) const COMMON: &[Rule] = &[
    ("reservedResources.cpu", Call(reserve)),
    ("reservedResources.memory", Lost("memory of system pods is not set aside")),
    ("availableResources.cpu", Call(make_available)),
    ("availableResources.memory", Lost("memory is not kept from containers")),
    ("reservedPoolNamespaces", Call(reserve_namespaces)),
    ("reservedNamespaces", Call(reserve_namespaces)),
    ("cpuClasses", Call(cpu_classes)),
    ("turboDomain", Convert("cpuClasses.turboDomain", turbo_domain)),
    ("schedulingClasses", Call(scheduling_classes)),
    ("namespaceSchedulingClasses", Call(scheduling_of_namespaces)),
    ("podQoSSchedulingClasses", Call(scheduling_of_qos)),
    (
        "controllableInterrupts",
        Lost("`isolation.interrupts` is about all interrupts that can be moved"),
    ),
    ("control.rdt", Call(rdt)),
    ("control.blockio.enable", Holds("classes of block I/O count where they are defined")),
    (
        "control.blockio.usePodQoSAsDefaultClass",
        Holds("a class named like a QoS class is for all of that QoS class"),
    ),
    ("control.blockio.classes", Call(block_io)),
    ("control.cpu.classes", Call(cpu_classes)),
    ("log.debug", Convert("log", log_filter)),
    ("log.source", Holds("lines of the log name their module")),
    ("log.klog", Lost("libraries of Kubernetes are not used")),
    ("instrumentation.httpEndpoint", Convert("metricsAddress", metrics_address)),
    ("instrumentation.prometheusExport", Judge(prometheus)),
    ("instrumentation.metrics", Holds("all metrics are served")),
    ("instrumentation.reportPeriod", Holds("metrics are made when they are asked for")),
    ("instrumentation.samplingRatePerMillion", Lost(TRACING)),
    ("instrumentation.tracingCollector", Lost(TRACING)),
    ("instrumentation.metricsExporter", Lost("metrics are scraped, not sent")),
    ("instrumentation.logExporter", Lost("the log goes to the journal of systemd")),
    ("agent.nodeResourceTopology", Holds("`bayplan agent --publish node-topology` does it")),
    ("agent.podResourceAPI", Holds("devices are read from the container's own request")),
];

const TRACING: &str =
    "no traces are recorded; `bayplan explain` and `bayplan journal` have each decision";

/// Keys of the topology-aware policy, here and in CRI Resource Manager.
pub(super) const TOPOLOGY_AWARE: &[Rule] = &[
    ("pinCPU", Take("requests.pinCpu")),
    ("pinMemory", Take("requests.pinMemory")),
    ("preferIsolatedCPUs", Take("requests.preferIsolatedCpus")),
    ("preferSharedCPUs", Take("requests.preferSharedCpus")),
    ("colocatePods", Take("requests.colocatePods")),
    ("colocateNamespaces", Take("requests.colocateNamespaces")),
    ("defaultCPUPriority", Take("requests.defaultCpuPriority")),
    ("unlimitedBurstable", Convert("requests.unlimitedBurstable", burst_level)),
    ("sharedPoolCPUClass", Call(shared_class)),
    (
        "reservedPoolCPUClass",
        Call(|walk, place, node| use_class(walk, place, node, path("cpuClasses.reserved"))),
    ),
    (
        "defaultExclusiveCPUClass",
        Call(|walk, place, node| use_class(walk, place, node, path("cpuClasses.exclusive"))),
    ),
    (
        "idleCPUClass",
        Call(|walk, place, node| use_class(walk, place, node, path("cpuClasses.idle"))),
    ),
    ("fakeHints", Lost("hints come from the machine")),
];

/// `TopologyAwarePolicy`, or `TemplatePolicy`, which has the common keys only.
pub(super) fn topology_aware(walk: &mut Walk<'_>, document: &Document) {
    let document = classes_first(document);
    let rules: Vec<Rule> = COMMON.iter().chain(TOPOLOGY_AWARE).copied().collect();
    walk.document(&rules, &document);
    defaults(walk, "nri-plugins");
    walk.put(
        path("requests.unlimitedBurstable"),
        Yaml::text("package"),
        "The default of nri-plugins.",
    );
}

/// What the topology-aware policy does where its configuration says nothing.
pub(super) fn defaults(walk: &mut Walk<'_>, system: &str) {
    walk.put(path("policy"), Yaml::text("topology-aware"), "The policy that was active.");
    walk.put(
        path("requests.preferIsolatedCpus"),
        Yaml::text("true"),
        &format!(
            "The default of {system}: a Guaranteed container with one CPU gets an isolated one."
        ),
    );
}

/// The same document with its classes first, so that names of classes can be looked up.
pub(super) fn classes_first(document: &Document) -> Document {
    let mut document = document.clone();
    if let Value::Map(entries) = &mut document.root.value {
        let is_class = |key: &str| {
            ["cpuclasses", "control", "cpu", "loadclasses", "schedulingclasses"]
                .contains(&key.to_ascii_lowercase().as_str())
        };
        entries.sort_by_key(|(_, key, _)| !is_class(key));
    }
    document
}

/// Namespaces beside `kube-system`, which is always among them.
pub(super) fn reserve_namespaces(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    let names = items(node).iter().filter_map(text_of);
    let names = ["kube-system"].into_iter().chain(names).map(Yaml::text);
    walk.add(place, node, path("reservedNamespaces"), names.collect());
}

/// Reserved CPUs have the shared ones' class unless they have one of their own.
fn shared_class(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    use_class(walk, place, node, path("cpuClasses.shared"));
}

/// `socket` is an older word for a package.
pub(super) fn burst_level(node: &Node) -> Result<Yaml, String> {
    match text_of(node).unwrap_or_default() {
        "socket" => Ok(Yaml::text("package")),
        level @ ("system" | "package" | "die" | "numa" | "l3cache") => Ok(Yaml::text(level)),
        other => Err(format!("`{other}` is no level over which containers burst")),
    }
}

fn turbo_domain(node: &Node) -> Result<Yaml, String> {
    match text_of(node).unwrap_or_default() {
        "system" => Ok(Yaml::text("machine")),
        "package" | "" => Ok(Yaml::text("package")),
        other => Err(format!("`{other}` is no part of a machine in which classes share turbo")),
    }
}

/// Names of the other system's log sources mean nothing here: any of them makes the daemon's own lines more.
pub(super) fn log_filter(node: &Node) -> Result<Yaml, String> {
    let names: Vec<&str> = match &node.value {
        Value::Scalar(text) => text.split(',').map(str::trim).collect(),
        _ => items(node).iter().filter_map(text_of).collect(),
    };
    match names.iter().any(|name| !name.is_empty()) {
        true => Ok(Yaml::text("bayplan_daemon=debug,info")),
        false => Ok(Yaml::text("info")),
    }
}

/// `:8891`, `host:port` or `http://host:port`.
pub(super) fn metrics_address(node: &Node) -> Result<Yaml, String> {
    let text = text_of(node).unwrap_or_default();
    let address = text.trim_start_matches("http://").trim_end_matches('/');
    let (host, port) = address.rsplit_once(':').ok_or_else(|| format!("`{text}` has no port"))?;
    let host = match host {
        "" => "0.0.0.0",
        "localhost" => "127.0.0.1",
        host => host,
    };
    let address = format!("{host}:{port}");
    match address.parse::<std::net::SocketAddr>() {
        Ok(_) => Ok(Yaml::text(address)),
        Err(_) => {
            Err(format!("`{text}` names no address and port; write them to `metricsAddress`"))
        }
    }
}

/// Whether metrics are served.
pub(super) fn prometheus(node: &Node) -> Fate {
    match text_of(node) {
        Some("false") => Fate::lost("`metricsAddress: off` serves none"),
        _ => Fate::holds("metrics are served at `metricsAddress`"),
    }
}

/// The text of a flag; other values count as false.
pub(super) fn is_true(node: &Node, key: &str) -> bool {
    let found = entries(node).iter().find(|(_, known, _)| known.eq_ignore_ascii_case(key));
    found.and_then(|(.., value)| text_of(value)) == Some("true")
}
