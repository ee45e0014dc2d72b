//! Machines that nobody has to own. In: one line of text. Out: the [`Snapshot`] that a real machine of that shape would give.
//!
//! CPUs are numbered as Linux does on Intel: the first thread of every core, package by package, then the second threads.

use std::fmt;

use bayplan_types::{Bytes, CoreId, CpuId, CpuSet, DieId, NodeId, NodeSet, PackageId};

use crate::snapshot::{CacheFacts, CacheKind, CpuFacts, NodeFacts, Snapshot};

/// What [`parse_machine`] understands, for `--help`.
pub const SYNTHETIC_HELP: &str = "\
A synthetic machine is one line of words: levels from the outside in, each with its count per parent, then options.

  pack:N   packages                    numa:N   NUMA nodes (left out: a kernel without NUMA)
  die:N    dies of a package           l3:N     level 3 caches (left out: none)
  core:N   cores                       pu:N     CPUs (hardware threads) per core

  `numa` and `l3` stand in either order: `numa:1 l3:4` is four L3s in a node, `l3:1 numa:4` is four nodes under one L3.

  mem:SIZE       memory per NUMA node, in GiB or with a suffix G or M (default 16)
  isolated:LIST  CPUs outside the scheduler's load balancing, such as 2-3,8
  offline:LIST   CPUs that are switched off

Example:  pack:2 die:1 numa:2 l3:1 core:14 pu:2 mem:64 isolated:2-3
Presets:  xeon-8480  xeon-8480-snc4  epyc-9654  one-cpu  (options may follow)";

const EXAMPLE: &str = "pack:2 numa:1 l3:1 core:8 pu:2";
/// `CONFIG_NR_CPUS` of the largest kernels that distributions ship.
const CPUS_MAX: u32 = 8192;
/// `MAX_NUMNODES` with the largest `CONFIG_NODES_SHIFT`.
const NODES_MAX: u32 = 1024;

const PRESETS: [(&str, &str); 4] = [
    ("xeon-8480", "pack:2 numa:1 l3:1 core:56 pu:2"),
    ("xeon-8480-snc4", "pack:2 l3:1 numa:4 core:14 pu:2"),
    ("epyc-9654", "pack:2 numa:1 l3:12 core:8 pu:2"),
    ("one-cpu", "pack:1 numa:1 l3:1 core:1 pu:1"),
];

/// Distances as most machines with two packages give them.
const DISTANCE_LOCAL: u32 = 10;
const DISTANCE_IN_PACKAGE: u32 = 12;
const DISTANCE_ACROSS: u32 = 21;

/// Why a line is not a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntheticError {
    /// There is no word in the line.
    #[error(
        "the machine is empty; expected words such as `{EXAMPLE}`, or a preset such as xeon-8480"
    )]
    Empty,
    /// A word that is not understood, or not where it stands.
    #[error("`{word}`: expected {expected}; an example is `{EXAMPLE}`")]
    Word {
        /// The word.
        word: String,
        /// What was expected in its place.
        expected: String,
    },
    /// An option names CPUs that the machine has not.
    #[error("`{word}`: this machine has CPUs 0-{last}, not {missing}")]
    NoSuchCpu {
        /// The option.
        word: String,
        /// The CPUs that do not exist.
        missing: Box<CpuSet>,
        /// The highest CPU that exists.
        last: u32,
    },
    /// More than Linux can have.
    #[error("the machine has more than {limit} {what}; make one of the counts smaller")]
    TooLarge {
        /// CPUs or NUMA nodes.
        what: &'static str,
        /// The limit.
        limit: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pack,
    Die,
    Numa,
    L3,
    Core,
    Pu,
}

impl Kind {
    const ALL: [Kind; 6] = [Kind::Pack, Kind::Die, Kind::Numa, Kind::L3, Kind::Core, Kind::Pu];

    fn name(self) -> &'static str {
        match self {
            Kind::Pack => "pack",
            Kind::Die => "die",
            Kind::Numa => "numa",
            Kind::L3 => "l3",
            Kind::Core => "core",
            Kind::Pu => "pu",
        }
    }

    /// Levels that must not stand outside of this one.
    fn must_not_follow(self) -> &'static [Kind] {
        match self {
            Kind::Pack => &[Kind::Die, Kind::Core, Kind::Pu],
            Kind::Die | Kind::Numa | Kind::L3 => &[Kind::Core, Kind::Pu],
            Kind::Core => &[Kind::Pu],
            Kind::Pu => &[],
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The line, understood word by word.
#[derive(Debug)]
struct Words {
    levels: Vec<(Kind, u32)>,
    memory: Option<Bytes>,
    isolated: Option<(String, CpuSet)>,
    offline: Option<(String, CpuSet)>,
}

/// The snapshot of the machine that `spec` describes; see [`SYNTHETIC_HELP`].
///
/// # Errors
/// [`SyntheticError`] names the word that is wrong and what was expected.
pub fn parse_machine(spec: &str) -> Result<Snapshot, SyntheticError> {
    let words = parse_words(spec)?;
    let shape = Shape::new(&words.levels)?;
    let last = shape.cpu_count() - 1;
    let all = CpuSet::first_n(shape.cpu_count());
    let known = |option: &Option<(String, CpuSet)>| match option {
        None => Ok(CpuSet::new()),
        Some((_, cpus)) if cpus.is_subset(&all) => Ok(cpus.clone()),
        Some((word, cpus)) => {
            let missing = Box::new(cpus.difference(&all));
            Err(SyntheticError::NoSuchCpu { word: word.clone(), missing, last })
        }
    };
    let (isolated, offline) = (known(&words.isolated)?, known(&words.offline)?);
    let online = all.difference(&offline);
    let nodes = shape.nodes(&online, words.memory.unwrap_or(Bytes::gib(16)));
    Ok(Snapshot {
        cpus: all.iter().map(|cpu| shape.cpu(cpu, &online)).collect(),
        online_nodes: shape.per_numa.map(|_| nodes.iter().map(|n| n.id).collect::<NodeSet>()),
        nodes,
        present: Some(all.clone()),
        possible: Some(all),
        online: Some(online),
        isolated: Some(isolated),
        ..Snapshot::default()
    })
}

fn wrong(word: &str, expected: impl Into<String>) -> SyntheticError {
    SyntheticError::Word { word: word.to_owned(), expected: expected.into() }
}

fn parse_words(spec: &str) -> Result<Words, SyntheticError> {
    let mut line: Vec<&str> = spec.split_whitespace().collect();
    let first = *line.first().ok_or(SyntheticError::Empty)?;
    if let Some((_, preset)) = PRESETS.iter().find(|(name, _)| *name == first) {
        line.splice(..1, preset.split_whitespace());
    }
    let mut words = Words { levels: Vec::new(), memory: None, isolated: None, offline: None };
    for word in line {
        let Some((key, value)) = word.split_once(':') else {
            return Err(wrong(word, expected_word()));
        };
        match key {
            "mem" => set_once(&mut words.memory, word, parse_memory(word, value)?)?,
            "isolated" => {
                set_once(&mut words.isolated, word, (word.to_owned(), parse_list(word, value)?))?;
            }
            "offline" => {
                set_once(&mut words.offline, word, (word.to_owned(), parse_list(word, value)?))?;
            }
            _ => words.levels.push(parse_level(word, key, value, &words.levels)?),
        }
    }
    if words.levels.is_empty() {
        return Err(wrong(spec.trim(), "at least one level, such as core:8"));
    }
    let has_numa = words.levels.iter().any(|(kind, _)| *kind == Kind::Numa);
    if words.memory.is_some() && !has_numa {
        return Err(wrong("mem", "a level numa:N as well, because memory belongs to NUMA nodes"));
    }
    Ok(words)
}

fn expected_word() -> String {
    let presets: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
    let levels = "a level (pack, die, numa, l3, core, pu) with a count";
    format!(
        "{levels}, or mem:, isolated:, offline:, or as the first word one of the presets {}",
        presets.join(", ")
    )
}

fn set_once<T>(slot: &mut Option<T>, word: &str, value: T) -> Result<(), SyntheticError> {
    match slot.replace(value) {
        Some(_) => Err(wrong(word, "this option only once")),
        None => Ok(()),
    }
}

fn parse_level(
    word: &str,
    key: &str,
    value: &str,
    before: &[(Kind, u32)],
) -> Result<(Kind, u32), SyntheticError> {
    let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == key) else {
        return Err(wrong(word, expected_word()));
    };
    let count = match value.parse::<u32>() {
        Ok(count) if (1..=CPUS_MAX).contains(&count) => count,
        _ => return Err(wrong(word, format!("{kind}: with a count from 1 to {CPUS_MAX}"))),
    };
    if before.iter().any(|(other, _)| *other == kind) {
        return Err(wrong(word, "each level only once"));
    }
    let outer = before.iter().find(|(other, _)| kind.must_not_follow().contains(other));
    if let Some((outer, _)) = outer {
        return Err(wrong(word, format!("{kind} to stand before {outer}")));
    }
    Ok((kind, count))
}

fn parse_memory(word: &str, value: &str) -> Result<Bytes, SyntheticError> {
    let (number, shift) = match value.strip_suffix('M') {
        Some(number) => (number, 20),
        None => (value.strip_suffix('G').unwrap_or(value), 30),
    };
    let number = number.parse::<u64>().ok().filter(|number| *number <= u64::MAX >> shift);
    let bytes = number.map(|number| Bytes(number << shift));
    bytes.ok_or_else(|| wrong(word, "mem: with a number of GiB, or one with a suffix G or M"))
}

fn parse_list(word: &str, value: &str) -> Result<CpuSet, SyntheticError> {
    value.parse().map_err(|error| wrong(word, format!("a list of CPUs such as 2-3,8 ({error})")))
}

/// The counts, multiplied out. Everything is counted in cores, because threads are numbered last.
#[derive(Debug)]
struct Shape {
    cores: u32,
    threads: u32,
    per_pack: u32,
    per_die: Option<u32>,
    per_numa: Option<u32>,
    per_l3: Option<u32>,
}

impl Shape {
    fn new(levels: &[(Kind, u32)]) -> Result<Shape, SyntheticError> {
        let too_large = SyntheticError::TooLarge { what: "CPUs", limit: CPUS_MAX };
        let mut threads = 1;
        let mut cores = 1_u32;
        // Cores in one object of each level.
        let mut cores_in: Vec<(Kind, u32)> = Vec::new();
        for (kind, count) in levels.iter().rev() {
            if *kind == Kind::Pu {
                threads = *count;
                continue;
            }
            cores_in.push((*kind, cores));
            let product = cores.checked_mul(*count);
            cores = product.filter(|n| *n <= CPUS_MAX).ok_or_else(|| too_large.clone())?;
        }
        if cores.checked_mul(threads).is_none_or(|cpus| cpus > CPUS_MAX) {
            return Err(too_large);
        }
        let of = |kind| cores_in.iter().find(|(other, _)| *other == kind).map(|(_, cores)| *cores);
        let shape = Shape {
            cores,
            threads,
            per_pack: of(Kind::Pack).unwrap_or(cores),
            per_die: of(Kind::Die),
            per_numa: of(Kind::Numa),
            per_l3: of(Kind::L3),
        };
        if shape.per_numa.is_some_and(|per_numa| cores / per_numa > NODES_MAX) {
            return Err(SyntheticError::TooLarge { what: "NUMA nodes", limit: NODES_MAX });
        }
        Ok(shape)
    }

    fn cpu_count(&self) -> u32 {
        self.cores * self.threads
    }

    /// Every thread of `count` cores from core `first` on.
    fn cpus_of(&self, first: u32, count: u32) -> CpuSet {
        let threads = 0..self.threads;
        threads
            .flat_map(|t| (first..first + count).map(move |c| CpuId(t * self.cores + c)))
            .collect()
    }

    /// What Linux shows: an offline CPU has a directory, but no `topology` and no `cache`, and is in nobody's lists.
    fn cpu(&self, cpu: CpuId, online: &CpuSet) -> CpuFacts {
        if !online.contains(cpu) {
            return CpuFacts { online: Some(false), ..CpuFacts::new(cpu) };
        }
        let core = cpu.0 % self.cores;
        let in_pack = core % self.per_pack;
        let l3 = self.per_l3.map(|per_l3| CacheFacts {
            level: Some(3),
            kind: Some(CacheKind::Unified),
            shared_cpus: Some(self.cpus_of(core - core % per_l3, per_l3).intersection(online)),
            size: None,
            id: Some(core / per_l3),
        });
        CpuFacts {
            id: cpu,
            online: Some(true),
            package_id: Some(PackageId(core / self.per_pack)),
            die_id: self.per_die.map(|per_die| DieId(in_pack / per_die)),
            core_id: Some(CoreId(in_pack)),
            cluster_cpus: None,
            thread_siblings: Some(self.cpus_of(core, 1).intersection(online)),
            capacity: None,
            caches: l3.into_iter().collect(),
        }
    }

    fn nodes(&self, online: &CpuSet, memory: Bytes) -> Vec<NodeFacts> {
        let Some(per_numa) = self.per_numa else { return Vec::new() };
        let package = |node: u32| node * per_numa / self.per_pack;
        let count = self.cores / per_numa;
        let distance = |from: u32, to: u32| match () {
            () if from == to => DISTANCE_LOCAL,
            () if package(from) == package(to) => DISTANCE_IN_PACKAGE,
            () => DISTANCE_ACROSS,
        };
        let nodes = (0..count).map(|node| NodeFacts {
            cpus: Some(self.cpus_of(node * per_numa, per_numa).intersection(online)),
            mem_total: Some(memory),
            distances: (0..count).map(|other| distance(node, other)).collect(),
            ..NodeFacts::new(NodeId(node))
        });
        nodes.collect()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(specs: &[&str], expected: Expect) {
        let errors = specs.iter().map(|spec| match parse_machine(spec) {
            Ok(_) => format!("{spec}\n    accepted\n"),
            Err(error) => format!("{spec}\n    {error}\n"),
        });
        expected.assert_eq(&errors.collect::<String>());
    }

    #[test]
    fn a_wrong_word_is_named_with_what_was_expected() {
        check(
            &[
                "",
                "sockets:2",
                "8",
                "core:0",
                "core:x",
                "core:4 core:4",
                "pu:2 core:4",
                "core:4 numa:2",
                "mem:4",
                "core:4 mem:4",
                "numa:1 core:4 mem:4T",
                "numa:1 core:4 mem:1 mem:2",
                "core:4 offline:3-1",
                "core:4 isolated:4-5,9",
                "pack:128 core:128",
                "pack:8192 core:8192 pu:8192",
                "numa:2048",
                "core:4 xeon-8480",
            ],
            expect![[r#"

                    the machine is empty; expected words such as `pack:2 numa:1 l3:1 core:8 pu:2`, or a preset such as xeon-8480
                sockets:2
                    `sockets:2`: expected a level (pack, die, numa, l3, core, pu) with a count, or mem:, isolated:, offline:, or as the first word one of the presets xeon-8480, xeon-8480-snc4, epyc-9654, one-cpu; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                8
                    `8`: expected a level (pack, die, numa, l3, core, pu) with a count, or mem:, isolated:, offline:, or as the first word one of the presets xeon-8480, xeon-8480-snc4, epyc-9654, one-cpu; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:0
                    `core:0`: expected core: with a count from 1 to 8192; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:x
                    `core:x`: expected core: with a count from 1 to 8192; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:4 core:4
                    `core:4`: expected each level only once; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                pu:2 core:4
                    `core:4`: expected core to stand before pu; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:4 numa:2
                    `numa:2`: expected numa to stand before core; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                mem:4
                    `mem:4`: expected at least one level, such as core:8; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:4 mem:4
                    `mem`: expected a level numa:N as well, because memory belongs to NUMA nodes; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                numa:1 core:4 mem:4T
                    `mem:4T`: expected mem: with a number of GiB, or one with a suffix G or M; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                numa:1 core:4 mem:1 mem:2
                    `mem:2`: expected this option only once; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:4 offline:3-1
                    `offline:3-1`: expected a list of CPUs such as 2-3,8 (`3-1` is not a number or a range such as 0-3); an example is `pack:2 numa:1 l3:1 core:8 pu:2`
                core:4 isolated:4-5,9
                    `isolated:4-5,9`: this machine has CPUs 0-3, not 4-5,9
                pack:128 core:128
                    the machine has more than 8192 CPUs; make one of the counts smaller
                pack:8192 core:8192 pu:8192
                    the machine has more than 8192 CPUs; make one of the counts smaller
                numa:2048
                    the machine has more than 1024 NUMA nodes; make one of the counts smaller
                core:4 xeon-8480
                    `xeon-8480`: expected a level (pack, die, numa, l3, core, pu) with a count, or mem:, isolated:, offline:, or as the first word one of the presets xeon-8480, xeon-8480-snc4, epyc-9654, one-cpu; an example is `pack:2 numa:1 l3:1 core:8 pu:2`
            "#]],
        );
    }

    #[test]
    fn help_shows_machines_that_exist() {
        let (_, example) = SYNTHETIC_HELP.split_once("Example:").unwrap();
        let (example, presets) = example.split_once("Presets:").unwrap();
        assert!(parse_machine(example).is_ok());
        let (presets, _) = presets.split_once('(').unwrap();
        assert!(presets.split_whitespace().eq(PRESETS.iter().map(|(name, _)| *name)));
        for (preset, _) in PRESETS {
            assert!(parse_machine(&format!("{preset} mem:128G")).is_ok());
        }
        assert!(parse_machine(EXAMPLE).is_ok());
    }

    #[test]
    fn cpus_are_numbered_first_threads_first() {
        let snapshot = parse_machine("pack:2 die:2 numa:1 l3:1 core:2 pu:2 mem:512M").unwrap();
        let cpu = |at: usize| {
            let cpu = &snapshot.cpus[at];
            let l3 = &cpu.caches[0];
            format!(
                "{} package {} die {} core {} siblings {} l3 {} of {}",
                cpu.id,
                cpu.package_id.unwrap(),
                cpu.die_id.unwrap(),
                cpu.core_id.unwrap(),
                cpu.thread_siblings.as_ref().unwrap(),
                l3.id.unwrap(),
                l3.shared_cpus.as_ref().unwrap(),
            )
        };
        assert_eq!(cpu(6), "6 package 1 die 1 core 2 siblings 6,14 l3 3 of 6-7,14-15");
        assert_eq!(cpu(14), "14 package 1 die 1 core 2 siblings 6,14 l3 3 of 6-7,14-15");
        assert_eq!(snapshot.nodes[1].mem_total, Some(Bytes(512 << 20)));
        assert_eq!(snapshot.nodes[1].distances, [12, 10, 21, 21]);
    }
}
