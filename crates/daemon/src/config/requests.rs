//! The section `requests`: what holds for containers whose pods say nothing themselves. In: a mapping. Out: [`RequestRules`], and every
//! mistake.
//!
//! Kubelet's options and those of nri-plugins have the meaning that they have there, in the spelling of this file or in theirs. What they
//! ask for is either done, or refused with a reason: an option that does nothing would be believed.

use bayplan_allocator::{Packing, Strictness, Within};
use bayplan_cri::annotations::{BURST, FLAG, PRIORITY, SIBLINGS};
use bayplan_cri::translate::RequestRules;
use bayplan_topology::Level;

use super::{ConfigError, Field, known_keys};
use crate::yaml::{Node, Position, Value};

/// One key.
struct Key {
    name: &'static str,
    set: fn(&mut Draft, &Field<'_>) -> Result<(), ConfigError>,
}

/// The rules so far, and what can only be judged when all keys are known.
#[derive(Default)]
struct Draft {
    rules: RequestRules,
    /// Options that are on, and where.
    on: Vec<(&'static str, Position)>,
}

impl Draft {
    fn is_on(&self, name: &str) -> Option<Position> {
        self.on.iter().find(|(on, _)| *on == name).map(|(_, at)| *at)
    }

    /// An option of yes or no; true if yes.
    fn option(&mut self, name: &'static str, field: &Field<'_>) -> Result<bool, ConfigError> {
        let is_on = field.word(FLAG)?;
        if is_on {
            self.on.push((name, field.value.at));
        }
        Ok(is_on)
    }
}

const FULL: &str = "fullPcpusOnly";
const ACROSS_NUMA: &str = "distributeCpusAcrossNuma";
const ACROSS_CORES: &str = "distributeCpusAcrossCores";
const UNCORE: &str = "preferAlignCpusByUncoreCache";
const BY_SOCKET: &str = "alignBySocket";
const SINGLE_NODE: &str = "topologyManagerPolicy: single-numa-node";
const RESTRICTED: &str = "topologyManagerPolicy: restricted";

/// What kubelet refuses to have together.
const EXCLUSIONS: [(&str, &str); 5] = [
    (FULL, ACROSS_CORES),
    (ACROSS_NUMA, ACROSS_CORES),
    (UNCORE, ACROSS_CORES),
    (UNCORE, ACROSS_NUMA),
    (BY_SOCKET, SINGLE_NODE),
];

/// In the order of the documentation.
const KEYS: [Key; 15] = [
    Key {
        name: "preferSharedCpus",
        set: |draft, field| put(&mut draft.rules.prefer_shared_cpus, field.word(FLAG)?),
    },
    Key {
        name: "preferIsolatedCpus",
        set: |draft, field| put(&mut draft.rules.prefer_isolated_cpus, field.word(FLAG)?),
    },
    Key {
        name: "siblings",
        set: |draft, field| put(&mut draft.rules.wishes.cpus.siblings, field.word(SIBLINGS)?),
    },
    Key {
        name: "defaultCpuPriority",
        set: |draft, field| {
            let priority = field.word(PRIORITY)?;
            let wish = priority.map(|priority| (priority, Strictness::Preferred));
            put(&mut draft.rules.wishes.cpus.priority, wish)
        },
    },
    Key {
        name: "unlimitedBurstable",
        set: |draft, field| put(&mut draft.rules.wishes.place.burst_level, field.word(BURST)?),
    },
    Key {
        name: "colocatePods",
        set: |draft, field| put(&mut draft.rules.colocate_pods, field.word(FLAG)?),
    },
    Key {
        name: "colocateNamespaces",
        set: |draft, field| put(&mut draft.rules.colocate_namespaces, field.word(FLAG)?),
    },
    Key {
        name: FULL,
        set: |draft, field| {
            let is_on = draft.option(FULL, field)?;
            put(&mut draft.rules.wishes.cpus.only_whole_cores, is_on)
        },
    },
    Key {
        name: ACROSS_NUMA,
        set: |draft, field| {
            let is_on = draft.option(ACROSS_NUMA, field)?;
            put(&mut draft.rules.wishes.cpus.is_even, is_on)
        },
    },
    Key {
        name: ACROSS_CORES,
        set: |draft, field| {
            let is_on = draft.option(ACROSS_CORES, field)?;
            let packing = if is_on { Packing::Spread } else { Packing::Packed };
            put(&mut draft.rules.wishes.cpus.packing, packing)
        },
    },
    Key {
        name: UNCORE,
        set: |draft, field| {
            let is_on = draft.option(UNCORE, field)?;
            always(is_on, field, "the tightest domain is always preferred, L3s too; leave it out")
        },
    },
    Key { name: BY_SOCKET, set: |draft, field| draft.option(BY_SOCKET, field).map(|_| ()) },
    Key {
        name: "strictCpuReservation",
        set: |_, field| {
            let why = "reserved CPUs are always kept from all others; reserve fewer instead";
            always(field.word(FLAG)?, field, why)
        },
    },
    Key { name: "topologyManagerPolicy", set: set_policy },
    Key { name: "topologyManagerScope", set: set_scope },
];

fn put<T>(place: &mut T, value: T) -> Result<(), ConfigError> {
    *place = value;
    Ok(())
}

fn always(is_on: bool, field: &Field<'_>, why: &str) -> Result<(), ConfigError> {
    match is_on {
        true => Ok(()),
        false => Err(refusal(field.value.at, field.key, "false", why)),
    }
}

fn refusal(at: Position, key: &str, value: &str, why: &str) -> ConfigError {
    ConfigError { at, message: format!("`{key}` cannot be {value}: {why}") }
}

fn set_policy(draft: &mut Draft, field: &Field<'_>) -> Result<(), ConfigError> {
    // Fewest NUMA nodes first is the order of every score, which is kubelet's best-effort and more than its none.
    let (name, within) = field.word(&[
        ("none", (None, None)),
        ("best-effort", (None, None)),
        ("restricted", (Some(RESTRICTED), Some(Within::FewestNodes))),
        ("single-numa-node", (Some(SINGLE_NODE), Some(Within::One(Level::NumaNode)))),
    ])?;
    draft.on.extend(name.map(|name| (name, field.value.at)));
    put(&mut draft.rules.wishes.cpus.within, within)
}

fn set_scope(draft: &mut Draft, field: &Field<'_>) -> Result<(), ConfigError> {
    let is_one = field.word(&[("container", false), ("pod", true)])?;
    put(&mut draft.rules.wishes.pod.is_one, is_one)
}

/// Reads the section.
pub(super) fn set(rules: &mut RequestRules, section: &Node) -> Vec<ConfigError> {
    let entries = match &section.value {
        Value::Null => return Vec::new(),
        Value::Map(entries) => entries,
        Value::Scalar(_) | Value::List(_) => {
            let message = "`requests` is no mapping, expected lines such as `siblings: pair`";
            return vec![ConfigError { at: section.at, message: message.to_owned() }];
        }
    };
    let mut draft = Draft { rules: rules.clone(), ..Draft::default() };
    let (mut errors, mut seen) = (Vec::new(), Vec::new());
    for (at, name, value) in entries {
        let Some(key) = KEYS.iter().find(|key| plain(key.name) == plain(name)) else {
            errors.push(ConfigError { at: *at, message: unknown(name) });
            continue;
        };
        if seen.contains(&key.name) {
            let message = format!("`requests.{}` stands twice", key.name);
            errors.push(ConfigError { at: *at, message });
        }
        seen.push(key.name);
        let full = format!("requests.{}", key.name);
        let field = Field { key: &full, value };
        errors.extend((key.set)(&mut draft, &field).err());
    }
    errors.extend(judge(&mut draft));
    *rules = draft.rules;
    errors
}

/// What needs several keys at once.
fn judge(draft: &mut Draft) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    for (one, other) in EXCLUSIONS {
        if let (Some(first), Some(second)) = (draft.is_on(one), draft.is_on(other)) {
            let message = format!(
                "`requests.{one}` and `requests.{other}` exclude each other; take one of them"
            );
            errors.push(ConfigError { at: first.max(second), message });
        }
    }
    // Kubelet's align-by-socket: the hint is the package, not the NUMA nodes.
    if draft.is_on(RESTRICTED).is_some() && draft.is_on(BY_SOCKET).is_some() {
        draft.rules.wishes.cpus.within = Some(Within::One(Level::Package));
    }
    errors
}

/// So that `full-pcpus-only`, `fullPCPUsOnly` and `fullPcpusOnly` are one.
fn plain(name: &str) -> String {
    name.chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect()
}

fn unknown(name: &str) -> String {
    if plain(name) == "reservedpoolnamespaces" {
        return format!(
            "`requests.{name}` is called `reservedNamespaces`, and is no part of `requests`"
        );
    }
    let known: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
    format!("unknown key `requests.{name}`; {}", known_keys(name, &known))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::yaml::parse_yaml;

    /// Which lines differ from the defaults, or the mistakes.
    fn check(text: &str, expected: Expect) {
        let mut rules = RequestRules::default();
        let errors = set(&mut rules, &parse_yaml(text).unwrap());
        let usual = format!("{:?}", RequestRules::default());
        let usual: Vec<&str> = usual.split(&[',', '{', '}']).collect();
        let rules = format!("{rules:?}");
        let changed = rules.split(&[',', '{', '}']).filter(|part| !usual.contains(part));
        let mut lines: Vec<String> = changed.map(|part| part.trim().to_owned()).collect();
        lines.extend(
            errors.iter().map(|it| format!("{}:{}: {}", it.at.line, it.at.column, it.message)),
        );
        expected.assert_eq(&lines.join("\n"));
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
            within: Some(FewestNodes)
            is_one: true"#]],
        );
        check(
            "topologyManagerPolicy: restricted\nalign-by-socket: true\n",
            expect!["within: Some(One(Package))"],
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
            expect![[r#"
            packing: Spread
            only_whole_cores: true
            2:31: `requests.fullPcpusOnly` and `requests.distributeCpusAcrossCores` exclude each other; take one of them"#]],
        );
        check(
            "preferAlignCpusByUncoreCache: true\ndistributeCpusAcrossCores: true\ndistributeCpusAcrossNuma: true\n",
            expect![[r#"
                packing: Spread
                is_even: true
                3:27: `requests.distributeCpusAcrossNuma` and `requests.distributeCpusAcrossCores` exclude each other; take one of them
                2:28: `requests.preferAlignCpusByUncoreCache` and `requests.distributeCpusAcrossCores` exclude each other; take one of them
                3:27: `requests.preferAlignCpusByUncoreCache` and `requests.distributeCpusAcrossNuma` exclude each other; take one of them"#]],
        );
        check(
            "alignBySocket: true\ntopologyManagerPolicy: single-numa-node\n",
            expect![[r#"
                within: Some(One(NumaNode))
                2:24: `requests.alignBySocket` and `requests.topologyManagerPolicy: single-numa-node` exclude each other; take one of them"#]],
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
                1:23: `requests.strictCpuReservation` cannot be false: reserved CPUs are always kept from all others; reserve fewer instead
                2:31: `requests.preferAlignCpusByUncoreCache` cannot be false: the tightest domain is always preferred, L3s too; leave it out"#]],
        );
        check(
            "topologyManagerPolicy: restricted\ntopologyManagerScope: node\n",
            expect![[r#"
                within: Some(FewestNodes)
                2:23: `requests.topologyManagerScope` is `node`, expected one of container, pod"#]],
        );
    }

    #[test]
    fn every_mistake_is_listed() {
        check(
            "siblings: brothers\nreservedPoolNamespaces: [a]\ncolocate: true\npreferSharedCpus: [true]\npreferSharedCPUs: true",
            expect![[r#"
                prefer_shared_cpus: true
                1:11: `requests.siblings` is `brothers`, expected one of pair, shared, idle
                2:1: `requests.reservedPoolNamespaces` is called `reservedNamespaces`, and is no part of `requests`
                3:1: unknown key `requests.colocate`; did you mean `colocatePods`? known are preferSharedCpus, preferIsolatedCpus, siblings, defaultCpuPriority, unlimitedBurstable, colocatePods, colocateNamespaces, fullPcpusOnly, distributeCpusAcrossNuma, distributeCpusAcrossCores, preferAlignCpusByUncoreCache, alignBySocket, strictCpuReservation, topologyManagerPolicy, topologyManagerScope
                4:19: `requests.preferSharedCpus` is a list, expected one of true, false
                5:1: `requests.preferSharedCpus` stands twice"#]],
        );
        check(
            "- a\n",
            expect!["1:1: `requests` is no mapping, expected lines such as `siblings: pair`"],
        );
    }
}
