//! What this node can do, in the form of Node Feature Discovery: flags, attributes and instances by domain. In: the machine, what was read of CPUs and kernel, and
//! what can be set. Out: [`FeaturesView`].
//!
//! Names of domains and features are those of NFD 0.18, so that its rules say here what they say there; `local.feature` are Bayplan's own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bayplan_enforcement::power::PowerOffer;
use bayplan_host::kernel::DiskKernel;
use bayplan_host::{FeatureFacts, read_features, read_power};
use bayplan_topology::{Level, Topology};
use bayplan_types::{CpuPriority, CpuSet, MemoryKind, SpeedSelect};
use serde::Serialize;

use crate::cpuid_names::cpuid_names;

const FORMAT: &str = "bayplan-features/1";
/// The prefix of Bayplan's own.
const OWN: &str = "bayplan.dev/";

type Attributes = BTreeMap<String, String>;

/// Format `bayplan-features/1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct FeaturesView {
    format: &'static str,
    /// Names by domain.
    flags: BTreeMap<&'static str, BTreeSet<String>>,
    /// Names and values by domain.
    attributes: BTreeMap<&'static str, Attributes>,
    /// Things of one kind, each with names and values, by domain.
    instances: BTreeMap<&'static str, Vec<Attributes>>,
    processor: Processor,
}

/// The processor in the words of the kernel, which differ from those of NFD.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Processor {
    /// `model name` in `/proc/cpuinfo`; absent on Arm.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// `vendor_id` in `/proc/cpuinfo`; absent on Arm.
    #[serde(skip_serializing_if = "Option::is_none")]
    vendor: Option<String>,
    /// A core has several threads.
    has_threads: bool,
    /// Absent without the driver intel_pstate.
    #[serde(skip_serializing_if = "Option::is_none")]
    has_turbo: Option<bool>,
    /// The mask of all parts of an L3 cache in hexadecimal digits; absent without cache allocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    l3_mask: Option<String>,
}

fn processor(topology: &Topology, facts: &FeatureFacts) -> Processor {
    let caches = topology.kernel().resctrl.iter().flat_map(|it| &it.caches);
    let mask = caches.filter(|it| it.name == "L3" || it.name == "L3CODE").find_map(|it| it.mask);
    Processor {
        model: facts.cpu_model.get("model name").cloned(),
        vendor: facts.cpu_model.get("vendor_id").cloned(),
        has_threads: threads(topology) > 1,
        has_turbo: facts.turbo,
        l3_mask: mask.map(|it| format!("{it:x}")),
    }
}

/// Everything that is known.
fn features(topology: &Topology, facts: &FeatureFacts, power: &PowerOffer) -> FeaturesView {
    let modules = facts.modules.iter().cloned().collect();
    FeaturesView {
        format: FORMAT,
        flags: BTreeMap::from([
            ("cpu.cpuid", cpuid_names(facts)),
            ("cpu.rdt", rdt_flags(facts)),
            ("kernel.loadedmodule", modules),
        ]),
        attributes: BTreeMap::from([
            ("cpu.model", cpu_model(facts)),
            ("cpu.pstate", pstate(facts)),
            ("cpu.cstate", one("enabled", facts.cstate_max.map(|it| it > 0))),
            ("cpu.sst", one("bf.enabled", has_base_frequencies(topology, power).then_some(true))),
            ("cpu.topology", cpu_topology(topology)),
            ("kernel.config", facts.config.clone().into_iter().collect()),
            ("kernel.selinux", one("enabled", facts.has_selinux.then_some(true))),
            ("kernel.version", kernel_version(&facts.release)),
            ("memory.numa", memory_numa(topology)),
            ("memory.swap", one("enabled", Some(facts.has_swap))),
            ("memory.hugepages", huge_pages(topology)),
            ("system.osrelease", os_release(facts)),
            ("local.feature", own(topology, facts, power)),
        ]),
        instances: BTreeMap::from([
            ("network.device", interfaces(facts)),
            ("pci.device", pci_devices(topology, facts)),
            ("memory.nv", persistent_memory(topology)),
            ("storage.block", disks(facts)),
        ]),
        processor: processor(topology, facts),
    }
}

fn one(name: &str, value: Option<bool>) -> Attributes {
    value.map(|it| (name.to_owned(), it.to_string())).into_iter().collect()
}

fn named<T: ToString>(pairs: impl IntoIterator<Item = (&'static str, T)>) -> Attributes {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect()
}

fn rdt_flags(facts: &FeatureFacts) -> BTreeSet<String> {
    const NAMES: [(&str, &str); 6] = [
        ("cqm", "RDTMON"),
        ("cqm_occup_llc", "RDTCMT"),
        ("cqm_mbm_total", "RDTMBM"),
        ("cat_l3", "RDTL3CA"),
        ("cat_l2", "RDTL2CA"),
        ("mba", "RDTMBA"),
    ];
    let has = |flag: &str| facts.cpu_flags.iter().any(|it| it == flag);
    NAMES.iter().filter(|(flag, _)| has(flag)).map(|(_, name)| (*name).to_owned()).collect()
}

fn cpu_model(facts: &FeatureFacts) -> Attributes {
    let vendor = |text: &str| match text {
        "GenuineIntel" => "Intel".to_owned(),
        "AuthenticAMD" => "AMD".to_owned(),
        other => other.to_owned(),
    };
    let value = |key: &str| facts.cpu_model.get(key).cloned();
    let pairs = [
        ("vendor_id", value("vendor_id").map(|it| vendor(&it))),
        ("family", value("cpu family")),
        ("id", value("model")),
    ];
    named(pairs.into_iter().filter_map(|(name, value)| Some((name, value?))))
}

/// Of the driver intel_pstate alone; without it, or while it is off, nothing.
fn pstate(facts: &FeatureFacts) -> Attributes {
    let Some(status) = facts.pstate.as_deref().filter(|it| *it != "off") else {
        return Attributes::new();
    };
    let governor = facts.governor.clone().filter(|_| status == "active");
    let pairs = [
        ("status", Some(status.to_owned())),
        ("turbo", facts.turbo.map(|it| it.to_string())),
        ("scaling_governor", governor),
    ];
    named(pairs.into_iter().filter_map(|(name, value)| Some((name, value?))))
}

/// Speed Select Base Frequency: some CPUs have a higher guaranteed frequency than others.
fn has_base_frequencies(topology: &Topology, power: &PowerOffer) -> bool {
    match topology.kernel().told_speed_select() {
        Some(facts) => facts.has_base_frequency_on(),
        None => power.has_speed_select && !topology.cpus_of_priority(CpuPriority::High).is_empty(),
    }
}

/// Whether Speed Select says so.
fn tells(topology: &Topology, is_on: fn(&SpeedSelect) -> bool) -> bool {
    topology.kernel().told_speed_select().is_some_and(is_on)
}

fn objects(topology: &Topology, level: Level) -> usize {
    topology.objects().iter().filter(|it| it.level == level).count()
}

fn threads(topology: &Topology) -> usize {
    topology.cores().iter().map(CpuSet::len).max().unwrap_or(1)
}

fn cpu_topology(topology: &Topology) -> Attributes {
    let packages = objects(topology, Level::Package).max(1);
    named([
        ("hardware_multithreading", (threads(topology) > 1).to_string()),
        ("socket_count", packages.to_string()),
    ])
}

fn kernel_version(release: &str) -> Attributes {
    // As a label's value can have it.
    let full = release.replace(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c), "_");
    let full = full.trim_matches(['-', '_', '.']);
    let number = |part: Option<&str>| {
        let part = part.unwrap_or_default();
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part.get(..end).unwrap_or_default().to_owned()
    };
    let mut parts = release.split('.');
    let [major, minor, revision] = [(); 3].map(|()| number(parts.next()));
    let pairs =
        [("full", full.to_owned()), ("major", major), ("minor", minor), ("revision", revision)];
    named(pairs.into_iter().filter(|(_, value)| !value.is_empty()))
}

fn memory_numa(topology: &Topology) -> Attributes {
    let count = topology.nodes().len();
    named([("is_numa", (count > 1).to_string()), ("node_count", count.to_string())])
}

fn huge_pages(topology: &Topology) -> Attributes {
    let mut totals = BTreeMap::<u64, u64>::new();
    for pages in topology.nodes().iter().flat_map(|node| &node.huge_pages) {
        *totals.entry(pages.size.0).or_default() += pages.total;
    }
    let name = |size: u64| match size {
        size if size.is_multiple_of(1 << 30) => format!("hugepages-{}Gi", size >> 30),
        size if size.is_multiple_of(1 << 20) => format!("hugepages-{}Mi", size >> 20),
        size => format!("hugepages-{}Ki", size >> 10),
    };
    let is_enabled = totals.values().any(|it| *it > 0);
    let sizes = totals.into_iter().map(|(size, total)| (name(size), total.to_string()));
    sizes.chain([("enabled".to_owned(), is_enabled.to_string())]).collect()
}

fn os_release(facts: &FeatureFacts) -> Attributes {
    let mut found: Attributes = facts
        .os
        .iter()
        .filter(|(key, _)| *key == "ID" || *key == "VERSION_ID")
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if let Some(version) = facts.os.get("VERSION_ID") {
        let mut parts = version.split('.');
        let parts = [("VERSION_ID.major", parts.next()), ("VERSION_ID.minor", parts.next())];
        found.extend(named(parts.into_iter().filter_map(|(name, value)| Some((name, value?)))));
    }
    found
}

fn interfaces(facts: &FeatureFacts) -> Vec<Attributes> {
    let attributes = facts.interfaces.iter().map(|it| {
        named([
            ("name", it.name.clone()),
            ("sriov_totalvfs", it.functions_max.to_string()),
            ("sriov_numvfs", it.functions.to_string()),
        ])
    });
    attributes.collect()
}

fn pci_devices(topology: &Topology, facts: &FeatureFacts) -> Vec<Attributes> {
    let hex = |number: u16| format!("{number:04x}");
    let devices = topology.devices().iter().map(|it| {
        let functions = facts.virtual_functions.get(&it.address.to_string());
        let pairs = [
            ("class", Some(format!("{:04x}", it.class >> 8))),
            ("vendor", it.vendor.map(hex)),
            ("device", it.device.map(hex)),
            ("sriov_totalvfs", functions.map(u32::to_string)),
        ];
        named(pairs.into_iter().filter_map(|(name, value)| Some((name, value?))))
    });
    devices.collect()
}

fn persistent_memory(topology: &Topology) -> Vec<Attributes> {
    let nodes = topology.nodes().iter().filter(|node| node.kind == MemoryKind::Pmem);
    nodes.map(|node| named([("name", format!("node{}", node.id.0))])).collect()
}

fn disks(facts: &FeatureFacts) -> Vec<Attributes> {
    let disks = facts.disks.iter();
    disks
        .map(|(name, rotates)| {
            named([("name", name.clone()), ("rotational", u8::from(*rotates).to_string())])
        })
        .collect()
}

/// What NFD does not know: shapes, and what Bayplan can set on this machine.
fn own(topology: &Topology, facts: &FeatureFacts, power: &PowerOffer) -> Attributes {
    let kernel = topology.kernel();
    let resctrl = kernel.resctrl.clone().unwrap_or_default();
    let has_cache = |name: &str| resctrl.caches.iter().any(|it| it.name == name);
    let last = topology.caches().iter().map(|it| it.level).max().unwrap_or(0);
    let shared: Vec<_> = topology.caches().iter().filter(|it| it.level == last).collect();
    let packages = objects(topology, Level::Package).max(1);
    let nodes = topology.nodes().iter().filter(|node| !node.cpus.is_empty()).count();
    let mut found = named([
        ("packages", packages),
        ("numa-nodes", nodes),
        ("numa-nodes-per-package", nodes / packages),
        ("cores", topology.cores().len()),
        ("threads-per-core", threads(topology)),
        ("l3-groups", if last >= 3 { shared.len() } else { 0 }),
        ("isolated-cpus", topology.isolated().len()),
        ("nohz-full-cpus", topology.nohz_full().len()),
    ]);
    let size = shared.iter().filter_map(|it| it.size).map(|it| it.0 >> 20).min();
    found.extend(size.filter(|_| last >= 3).map(|it| ("l3-size-mib".to_owned(), it.to_string())));
    let groups = resctrl.caches.iter().filter_map(|it| it.groups).min();
    found.extend(groups.map(|it| ("resctrl-groups".to_owned(), it.to_string())));
    let has_kind = |kind| topology.nodes().iter().any(|node| node.kind == kind);
    let has_preferences = power.policies.iter().any(|it| !it.preferences.is_empty());
    let abilities = [
        ("snc", nodes > packages),
        ("hybrid-cores", topology.core_kinds().len() > 1),
        ("memory-hbm", has_kind(MemoryKind::Hbm)),
        ("memory-pmem", has_kind(MemoryKind::Pmem)),
        ("memory-cxl", has_kind(MemoryKind::Cxl)),
        ("l2cat", has_cache("L2") || has_cache("L2CODE")),
        ("l3cat", has_cache("L3") || has_cache("L3CODE")),
        ("l3cdp", has_cache("L3CODE")),
        ("mba", !resctrl.bandwidths.is_empty()),
        ("cache-monitoring", resctrl.monitoring.is_some()),
        ("energy-preferences", has_preferences),
        ("cpu-frequency", !power.policies.is_empty()),
        ("uncore-frequency", !power.uncores.is_empty()),
        ("speed-select", power.has_speed_select),
        ("speed-select-core-power", tells(topology, SpeedSelect::divides_power)),
        ("speed-select-turbo-frequency", tells(topology, SpeedSelect::has_turbo_frequency_on)),
        ("psi", kernel.has_psi),
        ("btf", kernel.has_btf),
        ("cgroup-v2", kernel.controllers.is_some()),
        ("sriov", facts.interfaces.iter().any(|it| it.functions_max > 0)),
    ];
    found.extend(named(abilities.into_iter().filter(|(_, has)| *has)));
    found.into_iter().map(|(name, value)| (format!("{OWN}{name}"), value)).collect()
}

/// What this machine can do, as its files say it now; `None`: the root cannot be opened.
pub(crate) fn read_view(root: &Path, topology: &Topology) -> Option<FeaturesView> {
    let mut kernel = DiskKernel::open(root).ok()?;
    let facts = read_features(root, &mut kernel);
    Some(features(topology, &facts, &read_power(&mut kernel)))
}

#[cfg(test)]
mod tests {
    use bayplan_host::InterfaceFacts;
    use bayplan_topology::{derive, parse_machine};
    use expect_test::{Expect, expect};

    use super::*;

    /// Everything that a machine has, a line for each domain.
    fn check(line: &str, facts: &FeatureFacts, expected: Expect) {
        let topology = derive(&parse_machine(line).unwrap()).unwrap();
        let view = features(&topology, facts, &PowerOffer::default());
        let mut text = String::new();
        for (domain, names) in view.flags.iter().filter(|(_, it)| !it.is_empty()) {
            text.push_str(&format!("{domain}: {names:?}\n"));
        }
        for (domain, names) in view.attributes.iter().filter(|(_, it)| !it.is_empty()) {
            text.push_str(&format!("{domain}: {names:?}\n"));
        }
        for (domain, found) in view.instances.iter().filter(|(_, it)| !it.is_empty()) {
            text.push_str(&format!("{domain}: {} first {:?}\n", found.len(), found[0]));
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn features_have_the_names_of_nfd() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        let pairs = |all: &[(&str, &str)]| {
            all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let facts = FeatureFacts {
            cpu_flags: words("fma avx512bw avx512_vnni sse4_1 cat_l3 mba tdx_guest nonstop_tsc"),
            cpu_model: pairs(&[
                ("vendor_id", "GenuineIntel"),
                ("cpu family", "6"),
                ("model", "143"),
            ]),
            pstate: Some("active".into()),
            turbo: Some(true),
            governor: Some("powersave".into()),
            cstate_max: Some(0),
            release: "6.12.1-1-amd64+odd".into(),
            config: pairs(&[("NO_HZ", "y")]),
            os: pairs(&[("ID", "debian"), ("VERSION_ID", "13.1"), ("NAME", "x")]),
            interfaces: vec![InterfaceFacts {
                name: "eth0".into(),
                functions_max: 8,
                functions: 0,
            }],
            disks: vec![("nvme0n1".into(), false)],
            ..FeatureFacts::default()
        };
        check(
            "xeon-8480-snc4",
            &facts,
            expect![[r#"
                cpu.cpuid: {"AVX512BW", "AVX512VNNI", "FMA3", "SSE4", "TDX_GUEST"}
                cpu.rdt: {"RDTL3CA", "RDTMBA"}
                cpu.cstate: {"enabled": "false"}
                cpu.model: {"family": "6", "id": "143", "vendor_id": "Intel"}
                cpu.pstate: {"scaling_governor": "powersave", "status": "active", "turbo": "true"}
                cpu.topology: {"hardware_multithreading": "true", "socket_count": "2"}
                kernel.config: {"NO_HZ": "y"}
                kernel.version: {"full": "6.12.1-1-amd64_odd", "major": "6", "minor": "12", "revision": "1"}
                local.feature: {"bayplan.dev/cores": "112", "bayplan.dev/isolated-cpus": "0", "bayplan.dev/l3-groups": "2", "bayplan.dev/l3-size-mib": "105", "bayplan.dev/nohz-full-cpus": "0", "bayplan.dev/numa-nodes": "8", "bayplan.dev/numa-nodes-per-package": "4", "bayplan.dev/packages": "2", "bayplan.dev/snc": "true", "bayplan.dev/sriov": "true", "bayplan.dev/threads-per-core": "2"}
                memory.hugepages: {"enabled": "false"}
                memory.numa: {"is_numa": "true", "node_count": "8"}
                memory.swap: {"enabled": "false"}
                system.osrelease: {"ID": "debian", "VERSION_ID": "13.1", "VERSION_ID.major": "13", "VERSION_ID.minor": "1"}
                network.device: 1 first {"name": "eth0", "sriov_numvfs": "0", "sriov_totalvfs": "8"}
                storage.block: 1 first {"name": "nvme0n1", "rotational": "0"}
            "#]],
        );
        let passive = FeatureFacts {
            pstate: Some("passive".into()),
            governor: Some("schedutil".into()),
            ..FeatureFacts::default()
        };
        assert_eq!(pstate(&passive).into_keys().collect::<Vec<_>>(), ["status"]);
        let other = FeatureFacts { turbo: Some(true), pstate: None, ..passive };
        assert_eq!(pstate(&other), Attributes::new());
        check(
            "one-cpu",
            &FeatureFacts::default(),
            expect![[r#"
            cpu.topology: {"hardware_multithreading": "false", "socket_count": "1"}
            local.feature: {"bayplan.dev/cores": "1", "bayplan.dev/isolated-cpus": "0", "bayplan.dev/l3-groups": "1", "bayplan.dev/l3-size-mib": "32", "bayplan.dev/nohz-full-cpus": "0", "bayplan.dev/numa-nodes": "1", "bayplan.dev/numa-nodes-per-package": "1", "bayplan.dev/packages": "1", "bayplan.dev/threads-per-core": "1"}
            memory.hugepages: {"enabled": "false"}
            memory.numa: {"is_numa": "false", "node_count": "1"}
            memory.swap: {"enabled": "false"}
        "#]],
        );
    }
}
