//! Machines in JSON, format `bayplan-bench-machine/1`. In: the file. Out: the facts that the kernel of that machine would give, and its
//! reserved CPUs.
//!
//! Numbers of cores, L3s, NUMA nodes and sockets are those of the machine, numbers of dies those of a socket. What contradicts
//! itself is refused, because a figure that was measured on a misread machine is worth nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use bayplan_topology::{CacheFacts, CacheKind, CpuFacts, NodeFacts, Snapshot};
use bayplan_types::{Bytes, CoreId, CpuId, CpuSet, DieId, NodeId, NodeSet, PackageId};
use serde::Deserialize;

use crate::json_file::{FileError, FileErrors, parse_json};

/// The format that is read.
pub(crate) const MACHINE_FORMAT: &str = "bayplan-bench-machine/1";

/// The largest CPU and NUMA node of Linux (`CONFIG_NR_CPUS` and `MAX_NUMNODES` at their largest).
const CPU_MAX: u32 = 8_191;
const NODE_MAX: u32 = 1_023;
/// The largest number of anything else.
const NUMBER_MAX: u32 = 65_535;
/// `LOCAL_DISTANCE` of the kernel, and the largest that fits its table.
const DISTANCES: std::ops::RangeInclusive<i64> = 10..=255;

/// A machine as its file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MachineFile {
    /// What traces call it.
    pub(crate) name: String,
    /// Its hardware.
    pub(crate) snapshot: Snapshot,
    /// CPUs for system pods.
    pub(crate) reserved: CpuSet,
}

#[derive(Deserialize)]
struct RawMachine {
    name: String,
    ncpus: Option<i64>,
    smt: Option<i64>,
    #[serde(default)]
    reserved_cpus: String,
    numa: Vec<RawNode>,
    cpus: Vec<RawCpu>,
}

#[derive(Deserialize)]
struct RawNode {
    id: i64,
    mem_bytes: i64,
    distance: Vec<i64>,
    cpus: String,
}

#[derive(Deserialize)]
struct RawCpu {
    cpu: i64,
    core: i64,
    l3: i64,
    numa: i64,
    die: i64,
    socket: i64,
}

/// Kinds of domains, outermost first as far as that can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Socket,
    Die,
    Numa,
    L3,
    Core,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Socket => "socket",
            Kind::Die => "die",
            Kind::Numa => "NUMA node",
            Kind::L3 => "L3",
            Kind::Core => "core",
        })
    }
}

#[derive(Clone, Copy)]
struct Cpu {
    id: u32,
    core: u32,
    l3: u32,
    numa: u32,
    die: u32,
    socket: u32,
}

impl Cpu {
    /// In the order of their kinds.
    fn domains(self) -> [Domain; 5] {
        [
            (Kind::Socket, 0, self.socket),
            (Kind::Die, self.socket, self.die),
            (Kind::Numa, 0, self.numa),
            (Kind::L3, 0, self.l3),
            (Kind::Core, 0, self.core),
        ]
    }
}

/// Its kind, of a die its socket, its number.
type Domain = (Kind, u32, u32);
/// The CPUs of every domain.
type Domains = BTreeMap<Domain, CpuSet>;

/// Reads a machine; `path` is for messages only.
///
/// # Errors
/// [`FileErrors`] with every contradiction.
pub(crate) fn parse_machine_file(path: &Path, bytes: &[u8]) -> Result<MachineFile, FileErrors> {
    let raw: RawMachine = parse_json(path, bytes, MACHINE_FORMAT)?;
    let mut mistakes = Mistakes::default();
    let cpus = check_cpus(&raw, &mut mistakes);
    let mut domains = Domains::new();
    for cpu in &cpus {
        for domain in cpu.domains() {
            domains.entry(domain).or_default().insert(CpuId(cpu.id));
        }
    }
    check_counts(&raw, &cpus, &domains, &mut mistakes);
    check_nesting(&cpus, &mut mistakes);
    let nodes = check_nodes(&raw, &domains, &mut mistakes);
    let all: CpuSet = cpus.iter().map(|cpu| CpuId(cpu.id)).collect();
    let reserved = mistakes.list("reserved_cpus", &raw.reserved_cpus);
    let missing = reserved.difference(&all);
    if !missing.is_empty() {
        mistakes.add("reserved_cpus", format!("names CPUs {missing}, which are not in `cpus`"));
    }
    FileErrors::check(path, mistakes.0)?;
    let snapshot = snapshot(&cpus, &domains, nodes, all);
    Ok(MachineFile { name: raw.name, snapshot, reserved })
}

#[derive(Default)]
struct Mistakes(Vec<FileError>);

impl Mistakes {
    fn add(&mut self, place: impl fmt::Display, message: impl Into<String>) {
        self.0.push(FileError { place: format!(" {place}:"), message: message.into() });
    }

    fn list(&mut self, place: &str, text: &str) -> CpuSet {
        text.parse().unwrap_or_else(|error| {
            self.add(place, format!("`{text}` is no CPU list such as `0-3,8`: {error}"));
            CpuSet::new()
        })
    }
}

fn number(value: i64, max: u32) -> Option<u32> {
    u32::try_from(value).ok().filter(|value| *value <= max)
}

fn check_cpus(raw: &RawMachine, mistakes: &mut Mistakes) -> Vec<Cpu> {
    let mut seen = BTreeSet::new();
    let mut cpus = Vec::with_capacity(raw.cpus.len());
    for (index, it) in raw.cpus.iter().enumerate() {
        let place = format!("cpus[{index}]");
        let mut field = |name: &str, value: i64, max: u32| {
            if number(value, max).is_none() {
                mistakes.add(&place, format!("`{name}` is {value}, expected 0 to {max}"));
            }
            number(value, max)
        };
        let fields = (
            field("cpu", it.cpu, CPU_MAX),
            field("core", it.core, NUMBER_MAX),
            field("l3", it.l3, NUMBER_MAX),
            field("numa", it.numa, NODE_MAX),
            field("die", it.die, NUMBER_MAX),
            field("socket", it.socket, NUMBER_MAX),
        );
        let (Some(id), Some(core), Some(l3), Some(numa), Some(die), Some(socket)) = fields else {
            continue;
        };
        if !seen.insert(id) {
            mistakes.add(place, format!("duplicate CPU {id}"));
            continue;
        }
        cpus.push(Cpu { id, core, l3, numa, die, socket });
    }
    if raw.cpus.is_empty() {
        mistakes.add("cpus", "is empty, expected one entry per CPU");
    }
    cpus
}

/// What the file says twice must be the same twice.
fn check_counts(raw: &RawMachine, cpus: &[Cpu], domains: &Domains, mistakes: &mut Mistakes) {
    let is = |said: i64, counted: usize| i64::try_from(counted) == Ok(said);
    if let Some(ncpus) = raw.ncpus.filter(|said| !is(*said, raw.cpus.len())) {
        let message = format!("is {ncpus}, expected {}, the length of `cpus`", raw.cpus.len());
        mistakes.add("ncpus", message);
    }
    let cores = domains.iter().filter(|((kind, ..), _)| *kind == Kind::Core);
    let threads = cores.map(|(_, cpus)| cpus.len()).max().unwrap_or(0);
    if let Some(smt) = raw.smt.filter(|said| !cpus.is_empty() && !is(*said, threads)) {
        let message = format!("is {smt}, expected {threads}, the CPUs of the largest core");
        mistakes.add("smt", message);
    }
}

/// A core lies in one domain of each other kind; of the others, any two are disjoint or one inside the other.
fn check_nesting(cpus: &[Cpu], mistakes: &mut Mistakes) {
    const KINDS: usize = 5;
    for inner in 0..KINDS {
        for outer in 0..inner {
            let pairs: BTreeSet<(Domain, Domain)> = cpus
                .iter()
                .filter_map(|cpu| {
                    let domains = cpu.domains();
                    Some((*domains.get(inner)?, *domains.get(outer)?))
                })
                .collect();
            check_pairs(&pairs, mistakes);
        }
    }
}

/// Two domains that share CPUs overlap without one being inside the other if each of them shares CPUs with another one, too.
fn check_pairs(pairs: &BTreeSet<(Domain, Domain)>, mistakes: &mut Mistakes) {
    let mut partners: BTreeMap<Domain, Vec<Domain>> = BTreeMap::new();
    for (inner, outer) in pairs {
        partners.entry(*inner).or_default().push(*outer);
        partners.entry(*outer).or_default().push(*inner);
    }
    let is_split = |domain: &Domain| partners.get(domain).is_some_and(|others| others.len() > 1);
    for (domain, others) in partners.iter().filter(|(domain, _)| is_split(domain)) {
        match domain {
            (Kind::Core, ..) => {
                let names: Vec<String> = others.iter().copied().map(name).collect();
                let message = format!("is in {}, expected one of them", names.join(" and in "));
                mistakes.add(name(*domain), message);
            }
            // Every pair once, at its inner kind.
            (kind, ..) => {
                let is_outer = |(other, ..): &Domain| *other < *kind;
                for other in others.iter().filter(|other| is_outer(other) && is_split(other)) {
                    let message =
                        format!("overlaps {}, and neither is inside the other", name(*other));
                    mistakes.add(name(*domain), message);
                }
            }
        }
    }
}

fn name((kind, socket, id): Domain) -> String {
    match kind {
        Kind::Die => format!("die {id} of socket {socket}"),
        _ => format!("{kind} {id}"),
    }
}

fn check_nodes(raw: &RawMachine, domains: &Domains, mistakes: &mut Mistakes) -> Vec<NodeFacts> {
    let mut nodes: Vec<NodeFacts> = Vec::new();
    for (index, it) in raw.numa.iter().enumerate() {
        let place = format!("numa[{index}]");
        let Some(id) = number(it.id, NODE_MAX).map(NodeId) else {
            let message = format!("`id` is {}, expected 0 to {NODE_MAX}", it.id);
            mistakes.add(place, message);
            continue;
        };
        if nodes.last().is_some_and(|before| before.id >= id) {
            mistakes
                .add(&place, format!("`id` is {id}, expected more than that of the one before"));
        }
        let memory = u64::try_from(it.mem_bytes).ok();
        if memory.is_none() {
            let message = format!("`mem_bytes` is {}, expected 0 or more", it.mem_bytes);
            mistakes.add(&place, message);
        }
        let cpus = mistakes.list(&format!("{place}.cpus"), &it.cpus);
        let said = domains.get(&(Kind::Numa, 0, id.0)).cloned().unwrap_or_default();
        if cpus != said {
            let message =
                format!("node {id} has CPUs `{cpus}`, but in the list of all CPUs it has `{said}`");
            mistakes.add(&place, message);
        }
        check_distances(&place, index, it, raw.numa.len(), mistakes);
        nodes.push(NodeFacts {
            cpus: Some(cpus),
            mem_total: memory.map(Bytes),
            distances: it.distance.iter().filter_map(|it| u32::try_from(*it).ok()).collect(),
            ..NodeFacts::new(id)
        });
    }
    let known: BTreeSet<u32> = nodes.iter().map(|node| node.id.0).collect();
    for (kind, _, id) in domains.keys() {
        if *kind == Kind::Numa && !known.contains(id) {
            mistakes.add("cpus", format!("some are in NUMA node {id}, which is not in `numa`"));
        }
    }
    nodes
}

fn check_distances(
    place: &str,
    index: usize,
    node: &RawNode,
    nodes: usize,
    mistakes: &mut Mistakes,
) {
    if node.distance.len() != nodes {
        let message = format!("`distance` has {}, expected {nodes} numbers", node.distance.len());
        mistakes.add(place, message);
    }
    for (to, distance) in node.distance.iter().enumerate() {
        let local = *DISTANCES.start();
        let (is_right, expected) = match to == index {
            true => (*distance == local, format!("{local}, the distance to itself")),
            false => (DISTANCES.contains(distance), format!("{local} to {}", DISTANCES.end())),
        };
        if !is_right {
            mistakes.add(
                format!("{place}.distance[{to}]"),
                format!("is {distance}, expected {expected}"),
            );
        }
    }
}

fn snapshot(cpus: &[Cpu], domains: &Domains, nodes: Vec<NodeFacts>, all: CpuSet) -> Snapshot {
    let members = |domain: Domain| domains.get(&domain).cloned();
    let facts = |cpu: &Cpu| CpuFacts {
        package_id: Some(PackageId(cpu.socket)),
        die_id: Some(DieId(cpu.die)),
        core_id: Some(CoreId(cpu.core)),
        thread_siblings: members((Kind::Core, 0, cpu.core)),
        caches: vec![CacheFacts {
            level: Some(3),
            kind: Some(CacheKind::Unified),
            shared_cpus: members((Kind::L3, 0, cpu.l3)),
            size: None,
            id: Some(cpu.l3),
        }],
        ..CpuFacts::new(CpuId(cpu.id))
    };
    let online_nodes: NodeSet = nodes.iter().map(|node| node.id).collect();
    Snapshot {
        cpus: cpus.iter().map(facts).collect(),
        present: Some(all.clone()),
        possible: Some(all.clone()),
        online: Some(all),
        online_nodes: Some(online_nodes).filter(|nodes| !nodes.is_empty()),
        nodes,
        ..Snapshot::default()
    }
}

#[cfg(test)]
mod tests;
