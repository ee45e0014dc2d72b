//! Keys of `requests` that kubelet refuses together. In: every key with its value. Out: mistakes, or the same as JSON Schema.

use serde_json::{Value as Json, json};

use super::kind::scalars;
use super::settings::{Settings, Source};
use crate::yaml::Position;

/// A key of `requests`, and one of its words.
type Said = (&'static str, &'static str);

const FULL: Said = ("fullPcpusOnly", "true");
const ACROSS_NUMA: Said = ("distributeCpusAcrossNuma", "true");
const ACROSS_CORES: Said = ("distributeCpusAcrossCores", "true");
const UNCORE: Said = ("preferAlignCpusByUncoreCache", "true");
const BY_SOCKET: Said = ("alignBySocket", "true");
/// In the words of Bayplan and of Koordinator.
const EVENLY: [Said; 2] =
    [("numaStrategy", "distribute-evenly"), ("numaStrategy", "DistributeEvenly")];
const ROOMIEST: [Said; 2] =
    [("numaStrategy", "least-allocated"), ("numaStrategy", "LeastAllocated")];
const SINGLE_NODE: Said = ("topologyManagerPolicy", "single-numa-node");

/// What kubelet refuses to have together, and the same said by a strategy.
const EXCLUSIONS: [(Said, Said); 9] = [
    (FULL, ACROSS_CORES),
    (ACROSS_NUMA, ACROSS_CORES),
    (UNCORE, ACROSS_CORES),
    (UNCORE, ACROSS_NUMA),
    (BY_SOCKET, SINGLE_NODE),
    (EVENLY[0], ACROSS_CORES),
    (EVENLY[1], ACROSS_CORES),
    (ROOMIEST[0], ACROSS_NUMA),
    (ROOMIEST[1], ACROSS_NUMA),
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::{Expect, expect};

    use crate::parse_config;
    use bayplan_workload::RequestRules;

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
    fn a_numa_strategy_goes_round_no_exclusion() {
        check(
            "numaStrategy: DistributeEvenly\ndistributeCpusAcrossCores: true\n",
            expect![
                "f:3:30: `requests.numaStrategy: distribute-evenly` and `requests.distributeCpusAcrossCores` exclude each other; take one of them"
            ],
        );
        check(
            "numaStrategy: distribute-evenly\ndistributeCpusAcrossCores: true\n",
            expect![
                "f:3:30: `requests.numaStrategy: distribute-evenly` and `requests.distributeCpusAcrossCores` exclude each other; take one of them"
            ],
        );
        check(
            "distributeCpusAcrossNuma: true\nnumaStrategy: least-allocated\n",
            expect![
                "f:3:17: `requests.numaStrategy: least-allocated` and `requests.distributeCpusAcrossNuma` exclude each other; take one of them"
            ],
        );
        check(
            "distributeCpusAcrossNuma: true\nnumaStrategy: LeastAllocated\n",
            expect![
                "f:3:17: `requests.numaStrategy: least-allocated` and `requests.distributeCpusAcrossNuma` exclude each other; take one of them"
            ],
        );
        check(
            "numaStrategy: distribute-evenly\ndistributeCpusAcrossNuma: true\n",
            expect!["is_even: true"],
        );
    }

    #[test]
    fn every_mistake_is_listed() {
        check(
            "siblings: brothers\nreservedPoolNamespaces: [a]\ncolocate: true\npreferSharedCpus: [true]\npreferSharedCPUs: true",
            expect![[r#"
                f:2:13: `requests.siblings` is `brothers`, expected one of pair, shared, idle
                f:3:3: `requests.reservedPoolNamespaces` is called `reservedNamespaces`, and is no part of `requests`
                f:4:3: unknown key `requests.colocate`; did you mean `colocatePods`? known are preferSharedCpus, qosPerContainer, preferIsolatedCpus, siblings, defaultCpuPriority, unlimitedBurstable, pinCpu, pinMemory, preserve, numaStrategy, lseIdleSiblings, amplificationPercent, colocatePods, colocateNamespaces, fullPcpusOnly, distributeCpusAcrossNuma, distributeCpusAcrossCores, preferAlignCpusByUncoreCache, alignBySocket, strictCpuReservation, topologyManagerPolicy, topologyManagerScope
                f:5:21: `requests.preferSharedCpus` is a list, expected one of true, false
                f:6:3: duplicate key `requests.preferSharedCpus`"#]],
        );
        check(
            "- a\n",
            expect![
                "f:2:3: `requests` is not a mapping, expected lines of `key: value`; known are preferSharedCpus, qosPerContainer, preferIsolatedCpus, siblings, defaultCpuPriority, unlimitedBurstable, pinCpu, pinMemory, preserve, numaStrategy, lseIdleSiblings, amplificationPercent, colocatePods, colocateNamespaces, fullPcpusOnly, distributeCpusAcrossNuma, distributeCpusAcrossCores, preferAlignCpusByUncoreCache, alignBySocket, strictCpuReservation, topologyManagerPolicy, topologyManagerScope"
            ],
        );
    }
}
