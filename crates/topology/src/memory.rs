//! What the memory of a NUMA node is made of. In: devices, bandwidths, tiers and zones as the kernel shows them. Out: a kind per node
//! and how it is known.
//!
//! A node with CPUs has DRAM, unless all its memory came as a device. For one without, the first rule that says something counts:
//!
//! 1. It came as a device: persistent memory, a CXL region, or memory set aside by the firmware (HBM, unless it is slow).
//! 2. Its bandwidth: well above that of the node near it is HBM, below it is slow memory.
//! 3. Its memory tier: a faster one is HBM, a slower one is slow memory (`Documentation/ABI/testing/sysfs-kernel-mm-memory-tiers`).
//! 4. It has movable memory alone, as hotplugged memory has: slow memory.
//! 5. It is more than twice as large as the node near it: slow memory, because HBM never is.
//!
//! Slow memory is CXL where the machine has CXL memory devices, else persistent memory.

use bayplan_types::{MemoryKind, NodeId};

use crate::device::DeviceKind;
use crate::snapshot::{DaxOrigin, NodeFacts, Oddity, Snapshot};
use crate::topology::{KindEvidence, MemorySpeed, NumaNode};

/// HBM beside DRAM has at least twice its bandwidth; firmware figures differ by some percent between equal nodes.
const HBM_PERCENT_MIN: u64 = 125;
const SLOW_PERCENT_MAX: u64 = 90;

/// How the memory of a node compares with that of the node near it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compared {
    Faster,
    Alike,
    Slower,
}

/// The speed as its nearest CPUs see it.
pub(crate) fn speed(facts: &NodeFacts) -> MemorySpeed {
    // Class 1 is about CPUs alone.
    let by_class = |class| facts.accesses.iter().find(|access| access.class == class);
    let access = by_class(1).or_else(|| by_class(0));
    MemorySpeed {
        bandwidth: access.and_then(|access| access.read_bandwidth).filter(|mbps| *mbps > 0),
        latency: access.and_then(|access| access.read_latency).filter(|ns| *ns > 0),
    }
}

/// Fills in the kinds of the nodes' memory.
pub(crate) fn set_kinds(snapshot: &Snapshot, nodes: &mut [NumaNode], oddities: &mut Vec<Oddity>) {
    let slow = slow_kind(snapshot);
    let known: Vec<NumaNode> = nodes.to_vec();
    // Ordinary nodes, too, have no CPU left when theirs are offline.
    let has_offline = snapshot.present != snapshot.online;
    let is_device = |node: &NumaNode| node.is_movable_only && origin(snapshot, node.id).is_some();
    for node in nodes.iter_mut().filter(|node| node.cpus.is_empty() || is_device(node)) {
        let near = node.near.and_then(|near| known.iter().find(|other| other.id == near));
        (node.kind, node.evidence) = kind_of(snapshot, node, near, slow);
        if node.evidence == KindEvidence::Nothing && node.has_memory() && !has_offline {
            let found = "memory without CPUs, and nothing tells its kind";
            let path = format!("/sys/devices/system/node/node{}", node.id);
            oddities.push(Oddity::new(path, found, node.kind.name()));
        }
    }
}

fn kind_of(
    snapshot: &Snapshot,
    node: &NumaNode,
    near: Option<&NumaNode>,
    slow: MemoryKind,
) -> (MemoryKind, KindEvidence) {
    let by_bandwidth = near.and_then(|near| compare_bandwidths(node, near));
    match origin(snapshot, node.id) {
        Some(DaxOrigin::Pmem) => return (MemoryKind::Pmem, KindEvidence::Device),
        Some(DaxOrigin::Cxl) => return (MemoryKind::Cxl, KindEvidence::Device),
        Some(DaxOrigin::SpecialPurpose) if by_bandwidth != Some(Compared::Slower) => {
            return (MemoryKind::Hbm, KindEvidence::Device);
        }
        _ => {}
    }
    let kind = |compared| match compared {
        Compared::Faster => MemoryKind::Hbm,
        Compared::Alike => MemoryKind::Dram,
        Compared::Slower => slow,
    };
    let by_tier = near.and_then(|near| compare_tiers(node, near));
    match (by_bandwidth, by_tier) {
        (Some(compared), _) => (kind(compared), KindEvidence::Bandwidth),
        (None, Some(compared)) => (kind(compared), KindEvidence::Tier),
        (None, None) if node.is_movable_only => (slow, KindEvidence::MovableOnly),
        (None, None) if is_larger(node, near) => (slow, KindEvidence::Size),
        (None, None) => (MemoryKind::Dram, KindEvidence::Nothing),
    }
}

fn is_larger(node: &NumaNode, near: Option<&NumaNode>) -> bool {
    let sizes = near.and_then(|near| Some((node.memory?, near.memory?)));
    sizes.is_some_and(|(own, other)| own.0 / 2 > other.0)
}

fn origin(snapshot: &Snapshot, node: NodeId) -> Option<DaxOrigin> {
    let origins = snapshot.dax.iter().filter(|dax| dax.node == Some(node)).map(|dax| dax.origin);
    origins.min()
}

fn compare_bandwidths(node: &NumaNode, near: &NumaNode) -> Option<Compared> {
    let (own, other) = (node.speed.bandwidth?, near.speed.bandwidth?);
    let percent = u64::from(own) * 100 / u64::from(other);
    Some(match percent {
        HBM_PERCENT_MIN.. => Compared::Faster,
        0..=SLOW_PERCENT_MAX => Compared::Slower,
        _ => Compared::Alike,
    })
}

/// One tier for all says nothing: a kernel without the firmware's figures puts everything that was there at boot into it.
fn compare_tiers(node: &NumaNode, near: &NumaNode) -> Option<Compared> {
    match node.tier?.cmp(&near.tier?) {
        std::cmp::Ordering::Less => Some(Compared::Faster),
        std::cmp::Ordering::Greater => Some(Compared::Slower),
        std::cmp::Ordering::Equal => None,
    }
}

fn slow_kind(snapshot: &Snapshot) -> MemoryKind {
    let has_cxl = snapshot.dax.iter().any(|dax| dax.origin == DaxOrigin::Cxl)
        || snapshot
            .devices
            .iter()
            .any(|device| DeviceKind::of_class(device.class) == DeviceKind::Memory);
    if has_cxl { MemoryKind::Cxl } else { MemoryKind::Pmem }
}
