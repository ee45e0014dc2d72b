//! What a node can do, in the form of Node Feature Discovery, and the labels that NFD itself makes of that. In: the daemon's answer to `GET /api/v1/features`.
//! Out: labels of `feature.node.kubernetes.io/`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// Names with values.
pub(crate) type Attributes = BTreeMap<String, String>;

/// The prefix of NFD's labels.
pub(crate) const LABELS: &str = "feature.node.kubernetes.io/";
/// Flags of nearly every processor, of which NFD makes no labels.
const COMMON: [&str; 25] = [
    "AVX10", "BMI1", "BMI2", "CLMUL", "CMOV", "CX16", "ERMS", "F16C", "HTT", "LZCNT", "MMX",
    "MMXEXT", "NX", "POPCNT", "RDRAND", "RDSEED", "RDTSCP", "SGX", "SGXLC", "SSE", "SSE2", "SSE3",
    "SSE4", "SSE42", "SSSE3",
];
/// Options of the kernel of which NFD makes labels.
const OPTIONS: [&str; 4] = ["NO_HZ", "NO_HZ_IDLE", "NO_HZ_FULL", "PREEMPT"];
/// Classes of PCI devices of which NFD makes labels: display, co-processors, accelerators.
const PCI_CLASSES: [&str; 4] = ["03", "0b40", "0b80", "12"];
/// Characters of a label's name or value.
const NAME_MAX: usize = 63;

/// Labels for the Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeatureLabels {
    /// Those that NFD makes too, and Bayplan's own.
    pub(crate) of_features: Attributes,
    /// What rules say.
    pub(crate) of_rules: Attributes,
}

/// By domain, such as `cpu.cpuid`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct FeatureSet {
    pub(crate) flags: BTreeMap<String, BTreeSet<String>>,
    pub(crate) attributes: BTreeMap<String, Attributes>,
    pub(crate) instances: BTreeMap<String, Vec<Attributes>>,
}

impl FeatureSet {
    fn flags(&self, domain: &str) -> impl Iterator<Item = &String> {
        self.flags.get(domain).into_iter().flatten()
    }

    pub(crate) fn attributes(&self, domain: &str) -> impl Iterator<Item = (&String, &String)> {
        self.attributes.get(domain).into_iter().flatten()
    }

    fn is_true(&self, domain: &str, name: &str) -> bool {
        self.attributes(domain).any(|(key, value)| key == name && value == "true")
    }

    fn instances(&self, domain: &str) -> impl Iterator<Item = &Attributes> {
        self.instances.get(domain).into_iter().flatten()
    }
}

/// The labels that NFD makes without rules, and Bayplan's own features.
pub(crate) fn feature_labels(features: &FeatureSet) -> Attributes {
    let mut labels = Attributes::new();
    let mut say = |name: String, value: &str| {
        if name.len() <= NAME_MAX && is_label_value(value) {
            labels.insert(format!("{LABELS}{name}"), value.to_owned());
        }
    };
    for flag in features.flags("cpu.cpuid").filter(|it| !COMMON.contains(&it.as_str())) {
        say(format!("cpu-cpuid.{flag}"), "true");
    }
    for flag in features.flags("cpu.rdt") {
        say(format!("cpu-rdt.{flag}"), "true");
    }
    for (domain, prefix) in [
        ("cpu.cstate", "cpu-cstate."),
        ("cpu.model", "cpu-model."),
        ("cpu.pstate", "cpu-pstate."),
        ("kernel.version", "kernel-version."),
        ("system.osrelease", "system-os_release."),
    ] {
        features.attributes(domain).for_each(|(name, value)| say(format!("{prefix}{name}"), value));
    }
    for (domain, name, label) in [
        ("cpu.sst", "bf.enabled", "cpu-power.sst_bf.enabled"),
        ("memory.numa", "is_numa", "memory-numa"),
        ("memory.swap", "enabled", "memory-swap"),
        ("kernel.selinux", "enabled", "kernel-selinux.enabled"),
    ] {
        if features.is_true(domain, name) {
            say(label.to_owned(), "true");
        }
    }
    let threads = features.attributes("cpu.topology");
    for (name, value) in threads.filter(|(it, _)| *it == "hardware_multithreading") {
        say(format!("cpu-{name}"), value);
    }
    let options = features.attributes("kernel.config");
    for (option, value) in options.filter(|(it, _)| OPTIONS.contains(&it.as_str())) {
        say(format!("kernel-config.{option}"), if value == "y" { "true" } else { value });
    }
    device_names(features).into_iter().for_each(|name| say(name, "true"));
    labels.extend(own_labels(features));
    labels
}

/// Labels of things that are there or not.
fn device_names(features: &FeatureSet) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let number = |it: &Attributes, name: &str| it.get(name).is_some_and(|it| it != "0");
    for it in features.instances("network.device") {
        let has = [("sriov_totalvfs", "capable"), ("sriov_numvfs", "configured")];
        let has = has.into_iter().filter(|(file, _)| number(it, file));
        names.extend(has.map(|(_, word)| format!("network-sriov.{word}")));
    }
    for it in features.instances("pci.device") {
        let (Some(class), Some(vendor)) = (it.get("class"), it.get("vendor")) else { continue };
        if PCI_CLASSES.iter().any(|known| class.starts_with(known)) {
            names.insert(format!("pci-{class}_{vendor}.present"));
            if number(it, "sriov_totalvfs") {
                names.insert(format!("pci-{class}_{vendor}.sriov.capable"));
            }
        }
    }
    if features.instances("memory.nv").next().is_some() {
        names.insert("memory-nv.present".to_owned());
    }
    if features.instances("storage.block").any(|it| !number(it, "rotational")) {
        names.insert("storage-nonrotationaldisk".to_owned());
    }
    names
}

/// Features with a prefix of their own are labels as they are.
pub(crate) fn own_labels(features: &FeatureSet) -> impl Iterator<Item = (String, String)> {
    let own = features.attributes("local.feature");
    own.filter(|(_, value)| is_label_value(value))
        .map(|(name, value)| (name.clone(), value.clone()))
}

/// Letters and digits at both ends, `-_.` between; or nothing.
pub(crate) fn is_label_value(value: &str) -> bool {
    let is_end = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    value.len() <= NAME_MAX
        && is_end(value.chars().next())
        && is_end(value.chars().next_back())
        && value.chars().all(is_inner)
}

/// The same, but not nothing: the last part of the name of a label or resource.
pub(crate) fn is_last_name(name: &str) -> bool {
    !name.is_empty() && is_label_value(name)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn labels_have_the_names_of_nfd() {
        let features: FeatureSet = serde_json::from_str(
            r#"{"flags": {"cpu.cpuid": ["AVX512BW", "SSE4"], "cpu.rdt": ["RDTL3CA"], "kernel.loadedmodule": ["kvm"]},
                "attributes": {"cpu.model": {"vendor_id": "Intel", "id": "143"}, "cpu.pstate": {"turbo": "true", "scaling_governor": "powersave"},
                    "cpu.cstate": {"enabled": "false"}, "cpu.topology": {"hardware_multithreading": "true", "socket_count": "2"},
                    "kernel.config": {"NO_HZ": "y", "X86": "y"}, "kernel.version": {"full": "6.12.1+odd/", "major": "6"},
                    "memory.numa": {"is_numa": "true"}, "local.feature": {"bayplan.dev/l3-groups": "4"}},
                "instances": {"network.device": [{"name": "a", "sriov_totalvfs": "8", "sriov_numvfs": "0"}],
                    "pci.device": [{"class": "0300", "vendor": "10de", "sriov_totalvfs": "16"}, {"class": "0200", "vendor": "8086"}],
                    "storage.block": [{"name": "sda", "rotational": "1"}]}}"#,
        )
        .unwrap();
        let labels = feature_labels(&features);
        let lines: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        expect![[r#"
            bayplan.dev/l3-groups=4
            feature.node.kubernetes.io/cpu-cpuid.AVX512BW=true
            feature.node.kubernetes.io/cpu-cstate.enabled=false
            feature.node.kubernetes.io/cpu-hardware_multithreading=true
            feature.node.kubernetes.io/cpu-model.id=143
            feature.node.kubernetes.io/cpu-model.vendor_id=Intel
            feature.node.kubernetes.io/cpu-pstate.scaling_governor=powersave
            feature.node.kubernetes.io/cpu-pstate.turbo=true
            feature.node.kubernetes.io/cpu-rdt.RDTL3CA=true
            feature.node.kubernetes.io/kernel-config.NO_HZ=true
            feature.node.kubernetes.io/kernel-version.major=6
            feature.node.kubernetes.io/memory-numa=true
            feature.node.kubernetes.io/network-sriov.capable=true
            feature.node.kubernetes.io/pci-0300_10de.present=true
            feature.node.kubernetes.io/pci-0300_10de.sriov.capable=true"#]]
        .assert_eq(&lines.join("\n"));
        assert_eq!(feature_labels(&FeatureSet::default()), Attributes::new());
    }
}
