//! Files of other systems. In: the tree of a document. Out: what it is, if it is not meant for bayplan at all.
//!
//! Problem: a custom resource of another plugin, or kubelet's configuration, is a mapping like ours, and would be told as thirty unknown
//! keys. Approach: such a file is recognised by its `kind` and `apiVersion`, by the name of a ConfigMap, or by keys that only one system
//! has, and is one mistake that names it and the page with the counterparts of its keys.

use super::table::keys_of;
use crate::yaml::{Node, Position, Value};

/// The page that lists the counterparts.
const PAGE: &str = "docs/migrating.md";

/// What a document is known by.
enum Sign {
    /// The Kubernetes kind, below an API group that begins so.
    Kind(&'static str, &'static [&'static str]),
    /// A ConfigMap with a name or keys that begin so.
    ConfigMap(&'static [&'static str]),
    /// At least two of these keys stand at the top, none of which is ours.
    Keys(&'static [&'static str]),
}

/// A sign, and what has it.
struct Foreign {
    sign: Sign,
    what: &'static str,
}

/// In the order in which they are tried.
const FOREIGN: [Foreign; 14] = [
    Foreign {
        sign: Sign::Kind(
            "config.nri",
            &["BalloonsPolicy", "TopologyAwarePolicy", "TemplatePolicy"],
        ),
        what: "a custom resource of nri-plugins",
    },
    Foreign { sign: Sign::Kind("kubelet.config.k8s.io", &[]), what: "kubelet's configuration" },
    Foreign {
        sign: Sign::Kind("slo.koordinator.sh", &[]),
        what: "a custom resource of Koordinator",
    },
    Foreign {
        sign: Sign::Kind("config.koordinator.sh", &[]),
        what: "a custom resource of Koordinator",
    },
    Foreign {
        sign: Sign::Kind("power.intel.com", &[]),
        what: "a custom resource of Kubernetes Power Manager",
    },
    Foreign { sign: Sign::Kind("cmk.intel.com", &[]), what: "a custom resource of CMK" },
    Foreign { sign: Sign::Kind("intel.com", &[]), what: "a custom resource of CMK" },
    Foreign {
        sign: Sign::ConfigMap(&["cri-resmgr-config"]),
        what: "the ConfigMap of CRI Resource Manager",
    },
    Foreign {
        sign: Sign::ConfigMap(&[
            "slo-controller-config",
            "resource-threshold-config",
            "resource-qos-config",
            "cpu-burst-config",
            "colocation-config",
            "system-config",
            "host-application-config",
        ]),
        what: "the ConfigMap of Koordinator's controller",
    },
    Foreign { sign: Sign::ConfigMap(&["cmk-config"]), what: "the ConfigMap of CMK" },
    Foreign {
        sign: Sign::Keys(&[
            "cpuManagerPolicy",
            "cpuManagerPolicyOptions",
            "memoryManagerPolicy",
            "reservedSystemCPUs",
            "kubeReserved",
            "systemReserved",
            "cgroupDriver",
            "evictionHard",
            "featureGates",
            "clusterDNS",
            "reservedMemory",
        ]),
        what: "kubelet's configuration",
    },
    Foreign {
        sign: Sign::Keys(&[
            "balloonTypes",
            "reservedResources",
            "availableResources",
            "pinCPU",
            "pinMemory",
            "instrumentation",
            "agent",
            "control",
            "idleCPUClass",
            "allocatorTopologyBalancing",
        ]),
        what: "the configuration of an nri-plugins policy",
    },
    Foreign {
        sign: Sign::Keys(&[
            "policy",
            "rdt",
            "blockio",
            "cpu",
            "dump",
            "logger",
            "instrumentation",
            "resource-manager",
            "sockets",
        ]),
        what: "the configuration of CRI Resource Manager",
    },
    Foreign {
        sign: Sign::Keys(&["exclusive", "shared", "infra", "exclusive-non-isolcpus"]),
        what: "the pools of CMK",
    },
];

/// The one mistake of a document that is another system's.
pub(super) fn foreign(root: &Node) -> Option<(Position, String)> {
    let Value::Map(entries) = &root.value else { return None };
    let found = FOREIGN.iter().find(|it| has_sign(entries, &it.sign));
    let kind = scalar(entries, "kind");
    let what = match (found, kind, scalar(entries, "apiVersion")) {
        (Some(found), Some(kind), _) => format!("{} (kind {kind})", found.what),
        (Some(found), None, _) => found.what.to_owned(),
        // Any other object of Kubernetes.
        (None, Some(kind), Some(version)) => format!("an object of Kubernetes ({version} {kind})"),
        _ => return None,
    };
    let at = entries.first().map_or(root.at, |(at, ..)| *at);
    let message = format!(
        "this is {what}, which bayplan does not read; `bayplan import` makes a configuration of it, and {PAGE} says what becomes of its keys"
    );
    Some((at, message))
}

type Entries = [(Position, String, Node)];

fn has_sign(entries: &Entries, sign: &Sign) -> bool {
    match sign {
        Sign::Kind(group, kinds) => {
            let version = scalar(entries, "apiVersion").unwrap_or_default();
            let kind = scalar(entries, "kind").unwrap_or_default();
            let is_group = version.split('/').next() == Some(group) && version.contains('/');
            is_group && !kind.is_empty() || kinds.contains(&kind)
        }
        Sign::ConfigMap(names) => {
            let begins = |text: &str| names.iter().any(|name| text.starts_with(name));
            let keys = |of| value(entries, of).map(keys).unwrap_or_default();
            let name = value(entries, "metadata").and_then(|it| match &it.value {
                Value::Map(entries) => scalar(entries, "name"),
                _ => None,
            });
            scalar(entries, "kind") == Some("ConfigMap")
                && (name.is_some_and(begins) || keys("data").into_iter().any(begins))
        }
        Sign::Keys(names) => {
            let is_theirs = |(_, key, value): &&(Position, String, Node)| {
                names.contains(&key.as_str()) && !is_ours(key, value)
            };
            let theirs = entries.iter().filter(is_theirs).count();
            let named = entries.iter().filter(|(_, key, _)| names.contains(&key.as_str())).count();
            // A mistake in a file of ours does not make it another system's.
            let is_known = |key: &str| keys_of("").any(|it| it.is_called(key));
            let has_ours =
                entries.iter().any(|(_, key, value)| is_known(key) && is_ours(key, value));
            theirs > 0 && named > 1 && !has_ours
        }
    }
}

/// Whether a key that other systems have, too, is in the form that it has with us, or in one that no other system has.
fn is_ours(key: &str, value: &Node) -> bool {
    let is_map = matches!(value.value, Value::Map(_));
    match key {
        // A word with us, a mapping in CRI Resource Manager and nri-plugins.
        "policy" | "log" => !is_map,
        "cpu" => !keys(value).contains(&"classes"),
        // Mappings in CMK; with us they stand below `cpuClasses`.
        "exclusive" | "shared" => !is_map,
        _ => keys_of("").any(|it| it.is_called(key)),
    }
}

fn value<'a>(entries: &'a Entries, name: &str) -> Option<&'a Node> {
    entries.iter().find(|(_, key, _)| key == name).map(|(.., value)| value)
}

fn scalar<'a>(entries: &'a Entries, name: &str) -> Option<&'a str> {
    match &value(entries, name)?.value {
        Value::Scalar(text) => Some(text),
        _ => None,
    }
}

fn keys(node: &Node) -> Vec<&str> {
    match &node.value {
        Value::Map(entries) => entries.iter().map(|(_, key, _)| key.as_str()).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::{Expect, expect};

    use crate::ConfigFile;

    fn check(text: &str, expected: Expect) {
        let said = match ConfigFile::parse(Path::new("f"), text) {
            Ok(_) => "ours".to_owned(),
            Err(errors) => errors.to_string().replace(
                "which bayplan does not read; `bayplan import` makes a configuration of it, and docs/migrating.md says what becomes of its keys",
                "..",
            ),
        };
        expected.assert_eq(&said);
    }

    #[test]
    fn a_file_of_another_system_is_one_mistake_that_names_it() {
        for (text, expected) in [
            (
                "apiVersion: config.nri/v1alpha1\nkind: BalloonsPolicy\nmetadata: {name: default}\nspec: {balloonTypes: []}\n",
                expect![
                    "f:1:1: this is a custom resource of nri-plugins (kind BalloonsPolicy), .."
                ],
            ),
            (
                "{\"kind\": \"TopologyAwarePolicy\", \"spec\": {}}",
                expect![
                    "f:1:2: this is a custom resource of nri-plugins (kind TopologyAwarePolicy), .."
                ],
            ),
            (
                "---\nkind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\ncpuManagerPolicy: static\n",
                expect!["f:2:1: this is kubelet's configuration (kind KubeletConfiguration), .."],
            ),
            (
                "cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n",
                expect!["f:1:1: this is kubelet's configuration, .."],
            ),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cri-resmgr-config.default\ndata:\n  policy: |+\n    Active: balloons\n",
                expect![
                    "f:1:1: this is the ConfigMap of CRI Resource Manager (kind ConfigMap), .."
                ],
            ),
            (
                "policy:\n  Active: topology-aware\n  ReservedResources:\n    CPU: 750m\nlogger:\n  Debug: policy\n",
                expect!["f:1:1: this is the configuration of CRI Resource Manager, .."],
            ),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn so_is_one_of_the_systems_around_a_scheduler() {
        for (text, expected) in [
            (
                "apiVersion: slo.koordinator.sh/v1alpha1\nkind: NodeSLO\nspec: {}\n",
                expect!["f:1:1: this is a custom resource of Koordinator (kind NodeSLO), .."],
            ),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: slo-controller-config}\n",
                expect![
                    "f:1:1: this is the ConfigMap of Koordinator's controller (kind ConfigMap), .."
                ],
            ),
            (
                "apiVersion: power.intel.com/v1\nkind: PowerProfile\nspec: {max: 3700}\n",
                expect![
                    "f:1:1: this is a custom resource of Kubernetes Power Manager (kind PowerProfile), .."
                ],
            ),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cmk-config-node1}\n",
                expect!["f:1:1: this is the ConfigMap of CMK (kind ConfigMap), .."],
            ),
            (
                "exclusive: {0: {}}\nshared: {0: {}}\ninfra: {0: {}}\n",
                expect!["f:1:1: this is the pools of CMK, .."],
            ),
            (
                "reservedResources: {cpu: 1}\npinCPU: true\nballoonTypes: []\n",
                expect!["f:1:1: this is the configuration of an nri-plugins policy, .."],
            ),
            (
                "apiVersion: apps/v1\nkind: DaemonSet\n",
                expect!["f:1:1: this is an object of Kubernetes (apps/v1 DaemonSet), .."],
            ),
            (
                "apiVersion: v1\nkind: List\n---\napiVersion: config.nri/v1alpha1\nkind: BalloonsPolicy\n",
                expect!["f:1:1: this is an object of Kubernetes (v1 List), .."],
            ),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn our_own_file_is_ours_with_mistakes_too() {
        check("policy: one-shared-pool\ncpu: {liftQuota: false}\n", expect!["ours"]);
        check("cpu: {burstPercent: 5}\n", expect!["ours"]);
        for (text, first) in [
            ("policy: topology-aware\ncpu: {burst: 5}\n", "f:2:7: unknown key `cpu.burst`"),
            ("exclusive: fast\nshared: slow\n", "f:1:1: `exclusive` stands below `cpuClasses:`"),
            ("rdt: {}\nblockio: {}\nsocket: /a\n", "f:1:1: unknown key `rdt`"),
        ] {
            let said = ConfigFile::parse(Path::new("f"), text).unwrap_err().to_string();
            assert!(said.starts_with(first), "{text}: {said}");
        }
        check(
            "shared: 1\nlog: info\n",
            expect![[r#"
                f:1:1: `shared` stands below `cpuClasses:`, not here"#]],
        );
    }
}
