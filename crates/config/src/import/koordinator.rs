//! Koordinator's strategies for nodes: `NodeSLO`, and the ConfigMap that they are made of. Labels and annotations of pods count without a configuration.

use super::document::{Document, entries, items, scalar, text_of};
use super::nri_plugins::is_true;
use super::output::{Item, Step, Yaml};
use super::report::Fate;
use super::walk::Does::{Call, Holds, Lost};
use super::walk::{Place, Rule, Walk, path};
use crate::yaml::Node;

const STRATEGIES: &[Rule] = &[
    ("resourceUsedThresholdWithBE", Call(thresholds)),
    ("resourceQOSStrategy", Call(qos)),
    ("cpuBurstStrategy", Call(cpu_burst)),
    ("systemStrategy", Lost(SYSTEM)),
    ("hostApplications", Lost("processes outside pods are not placed")),
    ("extensions", Lost("strategies of other agents")),
];

const SYSTEM: &str = "settings of the whole machine's memory are left to sysctl";

/// `NodeSLO`.
pub(super) fn node_slo(walk: &mut Walk<'_>, document: &Document) {
    walk.document(STRATEGIES, document);
}

/// `slo-controller-config`: each key holds a strategy for all nodes, and others for nodes that a label selects.
pub(super) fn controller(walk: &mut Walk<'_>, document: &Document) {
    const NODES: &str = "for nodes that a label selects; import their NodeSLO";
    const CONTROLLER: &[Rule] = &[
        ("resource-threshold-config.clusterStrategy", Call(thresholds)),
        ("resource-threshold-config.nodeStrategies", Lost(NODES)),
        ("resource-qos-config.clusterStrategy", Call(qos)),
        ("resource-qos-config.nodeStrategies", Lost(NODES)),
        ("cpu-burst-config.clusterStrategy", Call(cpu_burst)),
        ("cpu-burst-config.nodeStrategies", Lost(NODES)),
        ("system-config", Lost(SYSTEM)),
        (
            "colocation-config",
            Holds("stays: Koordinator's controller goes on publishing batch resources"),
        ),
        ("host-application-config", Lost("processes outside pods are not placed")),
        ("cpu-normalization-config", Lost("CPU time of nodes is not scaled")),
        (
            "resource-amplification-config",
            Holds("stays: the agent reads the ratio of CPUs from the Node's annotation"),
        ),
    ];
    walk.document(CONTROLLER, document);
}

/// Suppression of best-effort pods: `bestEffort` has the same rule as koordlet's suppression by quota.
fn thresholds(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    let is_on = is_true(node, "enable");
    if is_on && scalar(node, "cpuSuppressThresholdPercent").is_none() {
        walk.put(path(NODE_PERCENT), Yaml::text("65"), "Koordinator's default.");
    }
    for (_, key, value) in entries(node) {
        let below = place.below(key);
        match key.as_str() {
            _ if !is_on => walk.note(&below, value, Fate::holds("not enabled")),
            "enable" => walk.note(&below, value, Fate::Taken(NODE_PERCENT.to_owned())),
            "cpuSuppressThresholdPercent" => {
                walk.take(&below, value, path(NODE_PERCENT), Yaml::of(value));
            }
            "cpuSuppressMinPercent" => {
                let least =
                    if text_of(value) == Some("0") { Yaml::text("1") } else { Yaml::of(value) };
                walk.take(&below, value, path("bestEffort.floorPercent"), least);
            }
            "cpuSuppressPolicy" => walk.note(&below, value, suppress_policy(value)),
            key if key.starts_with("memoryEvict") || key.starts_with("cpuEvict") => {
                walk.note(&below, value, Fate::lost("no pod is evicted for a threshold"));
            }
            _ => walk.note(&below, value, Fate::lost("no threshold that is known here")),
        }
    }
}

const NODE_PERCENT: &str = "bestEffort.nodePercent";

fn suppress_policy(node: &Node) -> Fate {
    match text_of(node) {
        Some("cfsQuota") => Fate::holds("BestEffort containers have a limit of CPU time together"),
        _ => Fate::lost(
            "BestEffort containers have a limit of CPU time together, and not fewer CPUs",
        ),
    }
}

/// `cpu.idle` is what Linux has for classes below others; the rest is Anolis OS's.
fn cpu_qos(walk: &mut Walk<'_>, place: &Place, node: &Node, qos: &str) {
    for (_, key, value) in entries(node) {
        let below = place.below(key);
        let is_best_effort = qos == "BestEffort";
        match (key.as_str(), text_of(value)) {
            ("enable", _) => {
                walk.note(&below, value, Fate::holds("its keys count one by one"));
            }
            ("schedIdle", Some("1")) if is_best_effort => {
                walk.take(&below, value, path("bestEffort.idle"), Yaml::text("true"));
            }
            ("schedIdle", Some("0")) => walk.note(&below, value, Fate::holds("0 is the default")),
            ("groupIdentity", Some("-1")) if is_best_effort => walk.note(
                &below,
                value,
                Fate::lost("needs Anolis OS; `bestEffort.idle` comes near it on other kernels"),
            ),
            _ => walk.note(
                &below,
                value,
                Fate::lost("needs Anolis OS; CPU weights are those of requests"),
            ),
        }
    }
}

/// Classes of Koordinator, and the QoS class that their pods mostly have.
const CLASSES: [(&str, &str); 3] =
    [("lsrClass", "Guaranteed"), ("lsClass", "Burstable"), ("beClass", "BestEffort")];

fn qos(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    for (_, key, class) in entries(node) {
        let below = place.below(key);
        let Some((_, qos)) = CLASSES.iter().find(|(known, _)| known == key) else {
            walk.note(&below, class, Fate::lost("only LSR, LS and BE have a counterpart"));
            continue;
        };
        for (_, key, part) in entries(class) {
            let below = below.below(key);
            let is_on = is_true(part, "enable");
            match key.as_str() {
                _ if !is_on => walk.note(&below, part, Fate::holds("not enabled")),
                "memoryQOS" => memory(walk, &below, part, qos),
                "resctrlQOS" => resctrl(walk, &below, part, qos),
                "blkioQOS" => block_io(walk, &below, part, qos),
                "cpuQOS" => cpu_qos(walk, &below, part, qos),
                _ => walk.note(&below, part, Fate::lost("the network is not shared out")),
            }
        }
    }
}

/// Percentages count for all containers here.
fn memory(walk: &mut Walk<'_>, place: &Place, node: &Node, qos: &str) {
    for (_, key, value) in entries(node) {
        let below = place.below(key);
        let is_zero = text_of(value) == Some("0");
        let ours = match key.as_str() {
            "minLimitPercent" => Some("memory.minPercent"),
            "lowLimitPercent" => Some("memory.lowPercent"),
            "throttlingPercent" => Some("memory.highPercent"),
            _ => None,
        };
        match ours {
            _ if key == "enable" => walk.note(&below, value, Fate::Taken("memory".to_owned())),
            Some(ours) if qos == "Burstable" => {
                walk.take(&below, value, path(ours), Yaml::of(value))
            }
            _ if is_zero => walk.note(&below, value, Fate::holds("zero is the default")),
            Some(_) => walk.note(
                &below,
                value,
                Fate::lost("percentages of memory count for all containers; those of LS are taken"),
            ),
            None => walk.note(&below, value, Fate::lost("needs Anolis OS")),
        }
    }
}

/// A range of the cache that begins at its low end, and a part of the memory bandwidth.
fn resctrl(walk: &mut Walk<'_>, place: &Place, node: &Node, qos: &str) {
    let class = path(&format!("resctrl.partitions.koordinator.classes.{qos}"));
    let to = |key: &str| {
        let mut to = class.clone();
        to.push(Step::Key(key.to_owned()));
        to
    };
    let is_low = scalar(node, "catRangeStartPercent").is_none_or(|it| it == "0");
    for (_, key, value) in entries(node) {
        let below = place.below(key);
        let percent = format!("{}%", text_of(value).unwrap_or_default());
        match key.as_str() {
            "enable" => walk.note(&below, value, Fate::Taken("resctrl.partitions".to_owned())),
            "catRangeEndPercent" if is_low => {
                walk.take(&below, value, to("l3Allocation"), Yaml::text(percent));
            }
            "catRangeStartPercent" if is_low => {
                walk.note(&below, value, Fate::holds("a part of the cache begins at its low end"));
            }
            "catRangeEndPercent" | "catRangeStartPercent" => walk.note(
                &below,
                value,
                Fate::lost("a part of the cache that does not begin at its low end: write its bits to the class"),
            ),
            "mbaPercent" => walk.take(&below, value, to("mbAllocation"), Yaml::texts([percent])),
            _ => walk.note(&below, value, Fate::lost("no key of resctrlQOS that is known here")),
        }
    }
    if walk.out.get(&class).is_some() {
        let partition = "Classes named like QoS classes are for all of that QoS class.";
        walk.put(
            path("resctrl.partitions.koordinator.l3Allocation"),
            Yaml::text("100%"),
            partition,
        );
        walk.put(
            path("resctrl.partitions.koordinator.mbAllocation"),
            Yaml::texts(["100%".to_owned()]),
            partition,
        );
    }
}

/// Limits of disks by their names.
fn block_io(walk: &mut Walk<'_>, place: &Place, node: &Node, qos: &str) {
    const LIMITS: [(&str, &str); 4] = [
        ("readBPS", "ThrottleReadBps"),
        ("writeBPS", "ThrottleWriteBps"),
        ("readIOPS", "ThrottleReadIOPS"),
        ("writeIOPS", "ThrottleWriteIOPS"),
    ];
    let blocks = entries(node).iter().find(|(_, key, _)| key == "blocks").map(|(.., it)| it);
    let mut rules = Vec::new();
    for (idx, block) in blocks.map_or(&[][..], items).iter().enumerate() {
        let place = place.below("blocks").item(idx);
        let name = scalar(block, "name").unwrap_or_default();
        if scalar(block, "type").is_some_and(|it| it != "device") || name.is_empty() {
            walk.note(&place, block, Fate::lost("only disks by name can be limited, no volumes"));
            continue;
        }
        let config = entries(block).iter().find(|(_, key, _)| key == "ioCfg").map(|(.., it)| it);
        let limits = LIMITS.iter().filter_map(|(theirs, ours)| {
            let text = scalar(config?, theirs)?;
            (text != "0").then(|| ((*ours).to_owned(), Yaml::text(text)))
        });
        let disk = format!("/dev/{}", name.trim_start_matches("/dev/"));
        let devices = ("Devices".to_owned(), Yaml::texts([disk]));
        rules.push(Yaml::map([devices].into_iter().chain(limits)));
        walk.note(&place, block, Fate::Taken(format!("blockIo.classes.{qos}")));
    }
    if !rules.is_empty() {
        let to = path(&format!("blockIo.classes.{qos}"));
        walk.put(to, Yaml::List(rules.into_iter().map(Item::from).collect()), &place.key);
    }
}

/// The kernel's own burst; koordlet's raising of quotas has no counterpart.
fn cpu_burst(walk: &mut Walk<'_>, place: &Place, node: &Node) {
    let policy = scalar(node, "policy").unwrap_or("none").to_owned();
    let bursts = ["cpuBurstOnly", "auto"].contains(&policy.as_str());
    for (_, key, value) in entries(node) {
        let below = place.below(key);
        match key.as_str() {
            "policy" if policy == "none" => {
                walk.note(&below, value, Fate::holds("no limit is raised unless the file says so"));
            }
            "policy" if bursts => {
                walk.note(&below, value, Fate::Taken("cpu.burstPercent".to_owned()))
            }
            "cpuBurstPercent" if bursts => {
                let percent = text_of(value).and_then(|it| it.parse::<u64>().ok()).unwrap_or(100);
                // The kernel refuses a burst above the quota.
                walk.take(
                    &below,
                    value,
                    path("cpu.burstPercent"),
                    Yaml::text(percent.min(100).to_string()),
                );
            }
            "cpuBurstPercent" => walk.note(&below, value, Fate::holds("not enabled")),
            _ => walk.note(
                &below,
                value,
                Fate::lost("limits of CPU time are not raised by what is used"),
            ),
        }
    }
}
