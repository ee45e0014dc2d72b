//! The section `requests`: what holds for containers of pods that say nothing themselves.
//!
//! Kubelet's options and those of nri-plugins have the meaning that they have there, in the spelling of this file or in theirs. What they
//! ask for is either done, or refused with a reason: an option that does nothing would be believed.

use bayplan_allocator::{Packing, Preserve, Siblings, Strictness, Wishes, Within};
use bayplan_topology::Level;
use bayplan_types::CpuPriority;
use bayplan_workload::RequestRules;
use bayplan_workload::annotations::{Condition, Words};
use serde_json::{Value as Json, json};

use super::Config;
use super::groups::read_conditions;
use super::kind::{Field, Tree, scalars};
use super::read::ConfigError;
use super::settings::{Settings, Source};
use bayplan_config::yaml::{Position, Value};

/// The options as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Shared CPUs only.
    pub prefer_shared_cpus: bool,
    /// Containers of Burstable pods have the QoS class that their own resources make.
    pub qos_per_container: bool,
    /// A container that gets a single CPU of its own prefers an isolated one.
    pub prefer_isolated_cpus: bool,
    /// What becomes of the other threads of a core of which only some are owned.
    pub siblings: Siblings,
    /// Exclusive CPUs of this priority, if there are any.
    pub priority: Option<CpuPriority>,
    /// Where containers without a CPU limit run.
    pub burst_level: Option<Level>,
    /// Containers of a pod want to be near each other.
    pub colocate_pods: bool,
    /// Containers of a namespace want to be near each other.
    pub colocate_namespaces: bool,
    /// Exclusive CPUs are whole cores.
    pub only_whole_cores: bool,
    /// As many CPUs of every NUMA node.
    pub across_numa: bool,
    /// One thread per core.
    pub across_cores: bool,
    /// [`TopologyPolicy::Restricted`] is about packages.
    pub by_socket: bool,
    /// How strictly NUMA nodes bound a request.
    pub policy: TopologyPolicy,
    /// The policy is about whole pods.
    pub is_for_pods: bool,
    /// CPUs and memory nodes of containers stay as the runtime made them.
    pub preserve: Preserve,
    /// The same for containers for which one of these holds.
    pub preserved: Vec<Condition>,
    /// Exclusive CPUs as equal parts of several NUMA nodes, and on the one with most room.
    pub numa_strategy: (bool, bool),
    /// Other threads of cores of Koordinator's LSE pods are used.
    pub lse_uses_siblings: bool,
}

/// Kubelet's `topologyManagerPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopologyPolicy {
    /// As the next: fewest NUMA nodes first is the order of every score.
    None,
    /// The fewest NUMA nodes that there is room in.
    #[default]
    BestEffort,
    /// No more NUMA nodes than on an empty machine.
    Restricted,
    /// One NUMA node.
    SingleNumaNode,
}

pub(super) const POLICIES: &Words<TopologyPolicy> = &[
    ("none", TopologyPolicy::None),
    ("best-effort", TopologyPolicy::BestEffort),
    ("restricted", TopologyPolicy::Restricted),
    ("single-numa-node", TopologyPolicy::SingleNumaNode),
];

/// Whether something is set; what is kept is whether it is left alone.
pub(super) const PINS: &Words<bool> = &[("true", false), ("false", true)];

pub(super) const SCOPES: &Words<bool> = &[("container", false), ("pod", true)];

impl Requests {
    /// What they mean, together with the namespaces of reserved CPUs.
    pub fn rules(&self, reserved_namespaces: &[String]) -> RequestRules {
        let mut wishes = Wishes::default();
        wishes.cpus.siblings = self.siblings;
        wishes.cpus.priority = self.priority.map(|priority| (priority, Strictness::Preferred));
        wishes.cpus.only_whole_cores = self.only_whole_cores;
        wishes.cpus.is_even = self.across_numa || self.numa_strategy.0;
        wishes.place.is_balanced = self.numa_strategy.1;
        wishes.cpus.packing = if self.across_cores { Packing::Spread } else { Packing::Packed };
        wishes.cpus.within = match (self.policy, self.by_socket) {
            (TopologyPolicy::None | TopologyPolicy::BestEffort, _) => None,
            // Kubelet's align-by-socket: packages are to be few, not NUMA nodes.
            (TopologyPolicy::Restricted, true) => Some(Within::Fewest(Level::Package)),
            (TopologyPolicy::Restricted, false) => Some(Within::Fewest(Level::NumaNode)),
            (TopologyPolicy::SingleNumaNode, _) => Some(Within::One(Level::NumaNode)),
        };
        wishes.place.burst_level = self.burst_level;
        wishes.pod.is_one = self.is_for_pods;
        RequestRules {
            reserved_namespaces: reserved_namespaces.to_vec(),
            prefer_shared_cpus: self.prefer_shared_cpus,
            has_own_qos: self.qos_per_container,
            prefer_isolated_cpus: self.prefer_isolated_cpus,
            colocate_pods: self.colocate_pods,
            colocate_namespaces: self.colocate_namespaces,
            wishes,
            preserve: self.preserve,
            preserved: self.preserved.clone(),
            lse_uses_siblings: self.lse_uses_siblings,
            ..RequestRules::default()
        }
    }
}

/// A key of `requests`, and one of its words.
type Said = (&'static str, &'static str);

const FULL: Said = ("fullPcpusOnly", "true");
const ACROSS_NUMA: Said = ("distributeCpusAcrossNuma", "true");
const ACROSS_CORES: Said = ("distributeCpusAcrossCores", "true");
const UNCORE: Said = ("preferAlignCpusByUncoreCache", "true");
const BY_SOCKET: Said = ("alignBySocket", "true");
const SINGLE_NODE: Said = ("topologyManagerPolicy", "single-numa-node");

/// What kubelet refuses to have together.
const EXCLUSIONS: [(Said, Said); 5] = [
    (FULL, ACROSS_CORES),
    (ACROSS_NUMA, ACROSS_CORES),
    (UNCORE, ACROSS_CORES),
    (UNCORE, ACROSS_NUMA),
    (BY_SOCKET, SINGLE_NODE),
];

/// What the file must not say together, where the later stands. Of defaults nothing is said.
pub(super) fn exclusions(settings: &Settings) -> Vec<(Position, String)> {
    let stands = |(key, word): Said| {
        let setting = settings.iter().find(|it| it.key.strip_prefix("requests.") == Some(key))?;
        let Source::File(at) = setting.source else { return None };
        scalars(word).contains(&setting.value).then_some(at)
    };
    let mut found = Vec::new();
    for (one, other) in EXCLUSIONS {
        if let (Some(first), Some(second)) = (stands(one), stands(other)) {
            let message = format!(
                "{} and {} exclude each other; take one of them",
                render_said(one),
                render_said(other)
            );
            found.push((first.max(second), message));
        }
    }
    found
}

fn render_said((key, word): Said) -> String {
    match word {
        "true" => format!("`requests.{key}`"),
        _ => format!("`requests.{key}: {word}`"),
    }
}

/// The same in the words of JSON Schema.
pub(super) fn exclusion_schema() -> Json {
    let excludes = |((one, this), (other, that)): (Said, Said)| {
        json!({ "not": {
            "type": "object",
            "required": [one, other],
            "properties": { one: { "enum": scalars(this) }, other: { "enum": scalars(that) } },
        }})
    };
    EXCLUSIONS.into_iter().map(excludes).collect()
}

/// `requests.preserve`.
pub(super) struct Preserved;

impl Tree for Preserved {
    fn expected(&self) -> String {
        "a list of expressions such as {key: namespace, operator: In, values: [infra]}".to_owned()
    }

    fn read(&self, config: &mut Config, field: &Field<'_>) -> Vec<ConfigError> {
        if matches!(field.value.value, Value::Null) {
            return Vec::new();
        }
        match read_conditions(field) {
            Ok(read) => {
                config.requests.preserved = read;
                Vec::new()
            }
            Err(errors) => errors,
        }
    }

    fn shown(&self, config: &mut Config) -> Json {
        config.requests.preserved.iter().map(Condition::to_value).collect()
    }

    fn schema(&self) -> Json {
        json!({ "type": ["array", "null"], "items": { "type": "object" } })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::{Expect, expect};

    use super::*;
    use crate::config::parse_config;

    /// Which lines differ from the defaults, or the mistakes. The text stands below `requests:`.
    fn check(text: &str, expected: Expect) {
        let text: String = text.lines().map(|line| format!("  {line}\n")).collect();
        let lines = match parse_config(Path::new("f"), &format!("requests:\n{text}")) {
            Ok(config) => {
                let usual = format!("{:?}", RequestRules::default());
                let usual: Vec<&str> = usual.split(&[',', '{', '}']).collect();
                let rules = format!("{:?}", config.requests.rules(&[]));
                let changed = rules.split(&[',', '{', '}']).filter(|part| !usual.contains(part));
                changed.map(str::trim).collect::<Vec<_>>().join("\n")
            }
            Err(errors) => errors.to_string(),
        };
        expected.assert_eq(&lines);
    }

    #[test]
    fn options_are_understood_in_either_spelling() {
        check("", expect![""]);
        check(
            "preferSharedCPUs: true\npreferIsolatedCpus: true\nsiblings: idle\ndefaultCPUPriority: high\nunlimitedBurstable: l3cache\n\
             colocatePods: true\ncolocateNamespaces: true\n",
            expect![[r#"
                prefer_shared_cpus: true
                prefer_isolated_cpus: true
                colocate_pods: true
                colocate_namespaces: true
                siblings: Idle
                priority: Some((High
                Preferred))
                burst_level: Some(L3)"#]],
        );
        check(
            "full-pcpus-only: \"true\"\ndistribute-cpus-across-numa: true\n",
            expect![[r#"
            only_whole_cores: true
            is_even: true"#]],
        );
        check("distributeCpusAcrossCores: true\n", expect!["packing: Spread"]);
        check(
            "topologyManagerPolicy: single-numa-node\ntopologyManagerScope: container\n",
            expect!["within: Some(One(NumaNode))"],
        );
        check(
            "topologyManagerPolicy: restricted\ntopologyManagerScope: pod\n",
            expect![[r#"
                within: Some(Fewest(NumaNode))
                is_one: true"#]],
        );
        check(
            "topologyManagerPolicy: restricted\nalign-by-socket: true\n",
            expect!["within: Some(Fewest(Package))"],
        );
        check(
            "preferAlignCpusByUncoreCache: true\nstrict-cpu-reservation: true\nalignBySocket: true",
            expect![""],
        );
    }

    #[test]
    fn what_excludes_each_other_is_named() {
        check(
            "full-pcpus-only: true\ndistribute-cpus-across-cores: true\n",
            expect![
                "f:3:33: `requests.fullPcpusOnly` and `requests.distributeCpusAcrossCores` exclude each other; take one of them"
            ],
        );
        check(
            "preferAlignCpusByUncoreCache: true\ndistributeCpusAcrossCores: true\ndistributeCpusAcrossNuma: true\n",
            expect![[r#"
                f:3:30: `requests.preferAlignCpusByUncoreCache` and `requests.distributeCpusAcrossCores` exclude each other; take one of them
                f:4:29: `requests.distributeCpusAcrossNuma` and `requests.distributeCpusAcrossCores` exclude each other; take one of them
                f:4:29: `requests.preferAlignCpusByUncoreCache` and `requests.distributeCpusAcrossNuma` exclude each other; take one of them"#]],
        );
        check(
            "alignBySocket: true\ntopologyManagerPolicy: single-numa-node\n",
            expect![
                "f:3:26: `requests.alignBySocket` and `requests.topologyManagerPolicy: single-numa-node` exclude each other; take one of them"
            ],
        );
        check(
            "fullPcpusOnly: true\ndistributeCpusAcrossCores: false\n",
            expect!["only_whole_cores: true"],
        );
    }

    #[test]
    fn what_does_nothing_is_refused() {
        check(
            "strictCpuReservation: false\npreferAlignCpusByUncoreCache: false\n",
            expect![[r#"
                f:2:25: `requests.strictCpuReservation` cannot be false: reserved CPUs are always kept from all others; reserve fewer instead
                f:3:33: `requests.preferAlignCpusByUncoreCache` cannot be false: the tightest domain is always preferred, L3s too; leave it out"#]],
        );
        check(
            "topologyManagerPolicy: restricted\ntopologyManagerScope: node\n",
            expect![
                "f:3:25: `requests.topologyManagerScope` is `node`, expected one of container, pod"
            ],
        );
    }

    #[test]
    fn every_mistake_is_listed() {
        check(
            "siblings: brothers\nreservedPoolNamespaces: [a]\ncolocate: true\npreferSharedCpus: [true]\npreferSharedCPUs: true",
            expect![[r#"
                f:2:13: `requests.siblings` is `brothers`, expected one of pair, shared, idle
                f:3:3: `requests.reservedPoolNamespaces` is called `reservedNamespaces`, and is no part of `requests`
                f:4:3: unknown key `requests.colocate`; did you mean `colocatePods`? known are preferSharedCpus, qosPerContainer, preferIsolatedCpus, siblings, defaultCpuPriority, unlimitedBurstable, pinCpu, pinMemory, preserve, numaStrategy, lseIdleSiblings, colocatePods, colocateNamespaces, fullPcpusOnly, distributeCpusAcrossNuma, distributeCpusAcrossCores, preferAlignCpusByUncoreCache, alignBySocket, strictCpuReservation, topologyManagerPolicy, topologyManagerScope
                f:5:21: `requests.preferSharedCpus` is a list, expected one of true, false
                f:6:3: duplicate key `requests.preferSharedCpus`"#]],
        );
        check(
            "- a\n",
            expect![
                "f:2:3: `requests` is not a mapping, expected lines of `key: value`; known are preferSharedCpus, qosPerContainer, preferIsolatedCpus, siblings, defaultCpuPriority, unlimitedBurstable, pinCpu, pinMemory, preserve, numaStrategy, lseIdleSiblings, colocatePods, colocateNamespaces, fullPcpusOnly, distributeCpusAcrossNuma, distributeCpusAcrossCores, preferAlignCpusByUncoreCache, alignBySocket, strictCpuReservation, topologyManagerPolicy, topologyManagerScope"
            ],
        );
    }
}
