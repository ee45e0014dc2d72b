//! NUMA nodes and their memory.

use bayplan_types::{Bytes, CpuSet, MemoryKind, NodeId, NodeSet};

use super::limits::{NODES_MAX, SyntheticError};
use super::shape::{Shape, too_many};
use super::words::{Per, Words};
use crate::snapshot::{AccessFacts, DaxFacts, DaxOrigin, HugePages, NodeFacts, TierFacts};

/// Distances as most machines with two packages give them.
const DISTANCE_LOCAL: u32 = 10;
const DISTANCE_IN_PACKAGE: u32 = 12;
const DISTANCE_ACROSS: u32 = 21;

/// Everything about memory.
pub(super) struct Memory {
    pub(super) nodes: Vec<NodeFacts>,
    pub(super) normal: Option<NodeSet>,
    pub(super) tiers: Vec<TierFacts>,
    pub(super) dax: Vec<DaxFacts>,
}

/// One node before it has a row of distances.
struct Node {
    kind: MemoryKind,
    /// The package around it, and the node with CPUs that it is nearest to, itself for one with CPUs.
    pack: Option<u32>,
    near: Option<NodeId>,
    cpus: CpuSet,
    size: Bytes,
}

/// Distance from a near and from a far node, read bandwidth in MB/s, latency in ns, tier.
fn figures(kind: MemoryKind) -> (u32, u32, u32, u32, u32) {
    match kind {
        MemoryKind::Dram => (DISTANCE_LOCAL, DISTANCE_ACROSS, 200_000, 100, 4),
        MemoryKind::Hbm => (13, 23, 800_000, 120, 3),
        MemoryKind::Pmem => (17, 28, 30_000, 300, 22),
        MemoryKind::Cxl => (14, 24, 50_000, 220, 5),
        // GH200: on the other end of NVLink.
        MemoryKind::Gpu => (80, 120, 400_000, 600, 4),
    }
}

/// The nodes with CPUs, then those without: HBM, PMEM, CXL.
pub(super) fn nodes(
    words: &Words,
    shape: &Shape,
    online: &CpuSet,
) -> Result<Memory, SyntheticError> {
    let mut nodes: Vec<Node> = shape
        .nodes()
        .map(|(numa, pack, cpus)| Node {
            kind: MemoryKind::Dram,
            pack: Some(pack),
            near: Some(NodeId(numa)),
            cpus: cpus.intersection(online),
            size: words.memory.unwrap_or(Bytes::gib(16)),
        })
        .collect();
    let with_cpus = nodes.len();
    for (kind, asked) in
        [(MemoryKind::Hbm, words.hbm), (MemoryKind::Pmem, words.pmem), (MemoryKind::Cxl, words.cxl)]
    {
        let Some((size, per)) = asked else { continue };
        for near in holders(per, nodes.get(..with_cpus).unwrap_or_default()) {
            nodes.push(Node { kind, size, cpus: CpuSet::new(), ..near });
        }
    }
    too_many(nodes.len(), "NUMA nodes", NODES_MAX)?;
    let is_tiered = nodes.len() > with_cpus;
    let ids = || (0..).map(NodeId).zip(&nodes);
    let of_kind = |kind| ids().filter(move |(_, node)| node.kind == kind).map(|(id, _)| id);
    let is_movable = |kind: MemoryKind| kind.is_slow() && !words.is_online_kernel;
    let tiers = MemoryKind::ALL.into_iter().filter_map(|kind| {
        let nodes: NodeSet = of_kind(kind).collect();
        let (.., tier) = figures(kind);
        (is_tiered && !nodes.is_empty()).then_some(TierFacts { tier, nodes })
    });
    let mut tiers: Vec<TierFacts> = tiers.collect();
    tiers.sort_by_key(|tier| tier.tier);
    let normal = ids().filter(|(_, node)| !is_movable(node.kind)).map(|(id, _)| id).collect();
    Ok(Memory {
        nodes: ids().map(|(id, node)| facts(id, node, &nodes, words, is_tiered)).collect(),
        normal: (!nodes.is_empty()).then_some(normal),
        tiers,
        dax: dax(of_kind(MemoryKind::Pmem), of_kind(MemoryKind::Cxl)),
    })
}

/// For each that is to have a node without CPUs: where that is.
fn holders(per: Per, with_cpus: &[Node]) -> Vec<Node> {
    let mut holders: Vec<Node> = Vec::new();
    for node in with_cpus {
        let is_new = match per {
            Per::Numa => true,
            Per::Pack => holders.last().is_none_or(|last| last.pack != node.pack),
            Per::Machine => holders.is_empty(),
        };
        if is_new {
            let pack = node.pack.filter(|_| per != Per::Machine);
            // Of memory that belongs to a whole package, the first node is as near as the others.
            holders.push(Node { pack, near: node.near, cpus: CpuSet::new(), ..*node });
        }
    }
    holders
}

fn facts(id: NodeId, node: &Node, all: &[Node], words: &Words, is_tiered: bool) -> NodeFacts {
    let others = (0..).map(NodeId).zip(all);
    let distances = others.map(|(other_id, other)| {
        let is_local = id == other_id;
        let (near, far, ..) = figures(node.kind.max(other.kind));
        match () {
            () if is_local => DISTANCE_LOCAL,
            () if node.kind == MemoryKind::Dram && other.kind == MemoryKind::Dram => {
                if node.pack == other.pack { DISTANCE_IN_PACKAGE } else { DISTANCE_ACROSS }
            }
            () if node.near == other.near => near,
            () => far,
        }
    });
    let (_, _, bandwidth, latency, _) = figures(node.kind);
    let access = |class| AccessFacts {
        class,
        initiators: node.near.into_iter().collect(),
        read_bandwidth: Some(bandwidth),
        write_bandwidth: Some(bandwidth),
        read_latency: Some(latency),
        write_latency: Some(latency),
    };
    let huge_pages = words.huge_pages.iter().map(|(size, total)| HugePages {
        size: *size,
        total: *total,
        free: *total,
    });
    NodeFacts {
        cpus: Some(node.cpus.clone()),
        mem_total: Some(node.size),
        distances: distances.collect(),
        huge_pages: huge_pages.collect(),
        accesses: if is_tiered { vec![access(0), access(1)] } else { Vec::new() },
        ..NodeFacts::new(id)
    }
}

fn dax(pmem: impl Iterator<Item = NodeId>, cxl: impl Iterator<Item = NodeId>) -> Vec<DaxFacts> {
    let pmem = pmem.map(|node| (node, DaxOrigin::Pmem));
    let devices = pmem.chain(cxl.map(|node| (node, DaxOrigin::Cxl)));
    let named = devices.enumerate().map(|(number, (node, origin))| DaxFacts {
        name: format!("dax{number}.0"),
        node: Some(node),
        origin,
    });
    named.collect()
}
