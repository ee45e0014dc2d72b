//! NUMA nodes. In: the facts about nodes and the online CPUs. Out: nodes with disjoint CPU sets, a place for those without CPUs,
//! and the distances.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bayplan_types::{Bytes, CpuSet, NodeId, NodeSet};

use crate::memory::{set_kinds, speed};
use crate::snapshot::{NodeFacts, Oddity, Snapshot};
use crate::topology::NumaNode;
use bayplan_types::fold::name_cpus;

const NODE_DIR: &str = "/sys/devices/system/node";
/// The largest node number that is believed, twice what Linux allows (`CONFIG_NODES_SHIFT`): there is a distance from every node to every
/// other one.
const NODE_MAX: u32 = 2_047;
/// The ACPI SLIT keeps 0 to 9 for itself.
const DISTANCE_MIN: u32 = 10;

/// What is known about NUMA.
#[derive(Debug, Default)]
pub(crate) struct Numa {
    /// By number.
    pub(crate) nodes: Vec<NumaNode>,
    /// A row per node with a column per node.
    pub(crate) distances: Vec<Option<u32>>,
}

/// Makes sense of the node directories.
pub(crate) fn derive_numa(
    snapshot: &Snapshot,
    online: &CpuSet,
    oddities: &mut Vec<Oddity>,
) -> Numa {
    let facts = by_number(snapshot, oddities);
    if facts.is_empty() {
        return Numa::default();
    }
    let mut nodes = derive_nodes(&facts, online, oddities);
    check_sizes(snapshot, &mut nodes, oddities);
    set_zones_and_tiers(snapshot, &mut nodes);
    let distances = derive_distances(&facts, snapshot.online_nodes.as_ref(), oddities);
    hang_nodes_without_cpus(&facts, &mut nodes, &distances, oddities);
    set_kinds(snapshot, &mut nodes, oddities);
    Numa { nodes, distances }
}

fn by_number<'a>(
    snapshot: &'a Snapshot,
    oddities: &mut Vec<Oddity>,
) -> BTreeMap<NodeId, &'a NodeFacts> {
    let mut facts = BTreeMap::new();
    for node in &snapshot.nodes {
        if node.id.0 > NODE_MAX {
            let path = format!("{NODE_DIR}/node{}", node.id);
            let found = format!("a number above {NODE_MAX}");
            oddities.push(Oddity::new(path, found, "there is no such node"));
        } else if let Entry::Vacant(entry) = facts.entry(node.id) {
            entry.insert(node);
        } else {
            let path = format!("{NODE_DIR}/node{}", node.id);
            oddities.push(Oddity::new(path, "the node is there twice", "what the first one says"));
        }
    }
    if let Some(online) = &snapshot.online_nodes {
        let dirs: NodeSet = facts.keys().copied().collect();
        let missing = online.difference(&dirs);
        if !missing.is_empty() {
            let found = format!("names nodes without a directory: {missing}");
            oddities.push(Oddity::new(format!("{NODE_DIR}/online"), found, "not there"));
        }
        let extra = dirs.difference(online);
        if !extra.is_empty() {
            let found = format!("leaves out nodes with a directory: {extra}");
            oddities.push(Oddity::new(format!("{NODE_DIR}/online"), found, "there"));
        }
    }
    facts
}

/// A CPU has one node. Where two nodes name it, as with `numa=fake`, which cuts the memory of a node into pieces that all claim
/// its CPUs, the lower one has it and the other becomes a node of memory alone.
fn derive_nodes(
    facts: &BTreeMap<NodeId, &NodeFacts>,
    online: &CpuSet,
    oddities: &mut Vec<Oddity>,
) -> Vec<NumaNode> {
    let mut taken = CpuSet::new();
    let mut nodes = Vec::with_capacity(facts.len());
    for (id, facts) in facts {
        let path = format!("{NODE_DIR}/node{id}/cpulist");
        if facts.cpus.is_none() {
            oddities.push(Oddity::new(path.as_str(), "no list of CPUs", "the node has no CPUs"));
        }
        let mut cpus = facts.cpus.clone().unwrap_or_default().intersection(online);
        let twice = cpus.intersection(&taken);
        if !twice.is_empty() {
            let found = format!("names {}, as a lower node does", name_cpus(&twice));
            oddities.push(Oddity::new(path, found, "in the lower node only"));
        }
        cpus.subtract(&taken);
        taken.union_with(&cpus);
        if facts.mem_total.is_none() {
            let path = format!("{NODE_DIR}/node{id}/meminfo");
            oddities.push(Oddity::new(path, "no MemTotal", "memory of unknown size"));
        }
        nodes.push(NumaNode {
            cpus,
            memory: facts.mem_total,
            speed: speed(facts),
            side_caches: facts.side_caches.clone(),
            huge_pages: facts.huge_pages.clone(),
            ..NumaNode::new(*id)
        });
    }
    let homeless = online.difference(&taken);
    if !homeless.is_empty() {
        let found = format!("{} in no node", name_cpus(&homeless));
        let path = format!("{NODE_DIR}/node*/cpulist");
        oddities.push(Oddity::new(path, found, "the memory of their package is nearest to them"));
    }
    nodes
}

/// Some virtual machines tell the size at boot for a node and the size after memory was plugged in for the machine. A node that is taken
/// for smaller than it is would refuse containers that fit.
fn check_sizes(snapshot: &Snapshot, nodes: &mut [NumaNode], oddities: &mut Vec<Oddity>) {
    let sizes: Option<Vec<Bytes>> = nodes.iter().map(|node| node.memory).collect();
    let (Some(machine), Some(sizes)) = (snapshot.mem_total, sizes) else { return };
    let sum: Bytes = sizes.into_iter().sum();
    // A part of the memory of each node may not be counted, never a tenth.
    if nodes.is_empty() || sum >= Bytes(machine.0 / 10 * 9) {
        return;
    }
    let found = format!("MemTotal of all nodes is {sum}, of /proc/meminfo {machine}");
    let path = format!("{NODE_DIR}/node*/meminfo");
    oddities.push(Oddity::new(path, found, "memory of unknown size"));
    nodes.iter_mut().for_each(|node| node.memory = None);
}

fn set_zones_and_tiers(snapshot: &Snapshot, nodes: &mut [NumaNode]) {
    for node in nodes {
        let is_normal = snapshot.normal_memory.as_ref().map(|normal| normal.contains(node.id));
        node.is_movable_only = is_normal == Some(false) && node.has_memory();
        let tiers = snapshot.tiers.iter().filter(|tier| tier.nodes.contains(node.id));
        node.tier = tiers.map(|tier| tier.tier).min();
    }
}

/// `distance` has one column per online node.
fn derive_distances(
    facts: &BTreeMap<NodeId, &NodeFacts>,
    online: Option<&NodeSet>,
    oddities: &mut Vec<Oddity>,
) -> Vec<Option<u32>> {
    let ids: Vec<NodeId> = facts.keys().copied().collect();
    let columns: Vec<NodeId> = match online {
        Some(online) if !online.is_empty() => online.iter().collect(),
        _ => ids.clone(),
    };
    let mut distances = vec![None; ids.len() * ids.len()];
    for (row, (id, facts)) in distances.chunks_mut(ids.len()).zip(facts) {
        let read = &facts.distances;
        let path = format!("{NODE_DIR}/node{id}/distance");
        if read.len() != columns.len() {
            if !read.is_empty() || ids.len() > 1 {
                let found = format!("numbers expected: {}, found: {}", columns.len(), read.len());
                oddities.push(Oddity::new(path, found, "not known"));
            }
            continue;
        }
        let odd: Vec<String> =
            read.iter().filter(|d| **d < DISTANCE_MIN).map(ToString::to_string).collect();
        if !odd.is_empty() {
            let found = format!("distances below {DISTANCE_MIN}: {}", odd.join(" "));
            oddities.push(Oddity::new(path, found, "not known"));
        }
        for (column, distance) in columns.iter().zip(read) {
            if let Ok(position) = ids.binary_search(column)
                && let Some(slot) = row.get_mut(position)
            {
                *slot = (*distance >= DISTANCE_MIN).then_some(*distance);
            }
        }
    }
    distances
}

/// Memory without CPUs (HBM, PMEM, CXL) belongs to the node with CPUs that reaches it best, as the firmware says; else to the one from
/// which it is nearest; of equals, to the lowest.
fn hang_nodes_without_cpus(
    facts: &BTreeMap<NodeId, &NodeFacts>,
    nodes: &mut [NumaNode],
    distances: &[Option<u32>],
    oddities: &mut Vec<Oddity>,
) {
    let count = nodes.len();
    let with_cpus: Vec<(usize, NodeId)> = nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| !node.cpus.is_empty())
        .map(|(position, node)| (position, node.id))
        .collect();
    let distance = |from: usize, to: usize| distances.get(from * count + to).copied().flatten();
    for (memory, node) in nodes.iter_mut().enumerate().filter(|(_, node)| node.cpus.is_empty()) {
        let best = facts.get(&node.id).map(|facts| initiators(facts)).unwrap_or_default();
        let measured = with_cpus.iter().filter_map(|(position, id)| {
            let there = distance(*position, memory).or(distance(memory, *position));
            let is_best = best.contains(*id);
            (is_best || there.is_some()).then_some((!is_best, there.unwrap_or(u32::MAX), *id))
        });
        node.near = match measured.min() {
            Some((_, _, id)) => Some(id),
            None => {
                let lowest = with_cpus.first().map(|(_, id)| *id);
                let assumed = match lowest {
                    Some(id) => format!("it is near node {id}"),
                    None => "it is near no node with CPUs".to_owned(),
                };
                let path = format!("{NODE_DIR}/node{}/distance", node.id);
                let found = "a node without CPUs and without a distance to one that has some";
                oddities.push(Oddity::new(path, found, assumed));
                lowest
            }
        };
    }
}

/// The nodes that reach the memory best, as the firmware says.
fn initiators(facts: &NodeFacts) -> NodeSet {
    let mut classes: Vec<_> = facts.accesses.iter().collect();
    // Class 1 is about CPUs alone.
    classes.sort_by_key(|access| std::cmp::Reverse(access.class));
    let named = classes.into_iter().find(|access| !access.initiators.is_empty());
    named.map(|access| access.initiators.clone()).unwrap_or_default()
}
