//! What the memory of a NUMA node is made of. In: devices, bandwidths, tiers and zones as the kernel shows them. Out: a kind per node
//! and how it is known.
//!
//! A node with CPUs has DRAM, unless all its memory came as a device. For one without, the first rule that says something counts:
//!
//! 0. A GPU's driver names it: the GPU's own.
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
    let is_device = |node: &NumaNode| {
        node.is_movable_only
            && (is_of_gpu(snapshot, node.id) || origin(snapshot, node.id).is_some())
    };
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
    if is_of_gpu(snapshot, node.id) {
        return (MemoryKind::Gpu, KindEvidence::Device);
    }
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

fn is_of_gpu(snapshot: &Snapshot, node: NodeId) -> bool {
    snapshot.devices.iter().any(|device| device.memory_node == Some(node))
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

#[cfg(test)]
mod tests {
    use bayplan_types::Bytes;

    use super::*;
    use crate::snapshot::{AccessFacts, DaxFacts, DeviceFacts, TierFacts};
    use crate::{derive, parse_machine};

    /// A node with CPUs, and one without that `change` describes: what that is made of, and what told it.
    #[track_caller]
    fn check(change: impl FnOnce(&mut Snapshot), kind: MemoryKind, evidence: KindEvidence) {
        let mut snapshot = parse_machine("numa:1 core:2 mem:16").unwrap();
        let memory = NodeFacts {
            cpus: Some(Default::default()),
            mem_total: Some(Bytes::gib(16)),
            distances: vec![17, 10],
            ..NodeFacts::new(NodeId(1))
        };
        snapshot.nodes[0].distances = vec![10, 17];
        snapshot.nodes.push(memory);
        snapshot.online_nodes = Some("0-1".parse().unwrap());
        snapshot.normal_memory = None;
        change(&mut snapshot);
        let topology = derive(&snapshot).unwrap();
        let node = topology.node(NodeId(1)).unwrap();
        assert_eq!((node.kind, node.evidence, node.near), (kind, evidence, Some(NodeId(0))));
        let is_odd = !topology.oddities().is_empty();
        assert_eq!(is_odd, evidence == KindEvidence::Nothing, "{:?}", topology.oddities());
    }

    fn dax(origin: DaxOrigin) -> DaxFacts {
        DaxFacts { name: "dax0.0".to_owned(), node: Some(NodeId(1)), origin }
    }

    fn set_bandwidths(snapshot: &mut Snapshot, [near, far]: [u32; 2]) {
        for (node, bandwidth) in snapshot.nodes.iter_mut().zip([near, far]) {
            let read_bandwidth = Some(bandwidth);
            node.accesses = vec![AccessFacts { read_bandwidth, ..AccessFacts::default() }];
        }
    }

    fn set_tiers(snapshot: &mut Snapshot, tiers: [u32; 2]) {
        let facts = (0..)
            .zip(tiers)
            .map(|(node, tier)| TierFacts { tier, nodes: [NodeId(node)].into_iter().collect() });
        snapshot.tiers = facts.collect();
    }

    #[test]
    fn a_device_tells_most() {
        use KindEvidence::{Bandwidth, Device};
        check(|it| it.dax.push(dax(DaxOrigin::Pmem)), MemoryKind::Pmem, Device);
        check(|it| it.dax.push(dax(DaxOrigin::Cxl)), MemoryKind::Cxl, Device);
        check(|it| it.dax.push(dax(DaxOrigin::SpecialPurpose)), MemoryKind::Hbm, Device);
        let slow_special = |it: &mut Snapshot| {
            it.dax.push(dax(DaxOrigin::SpecialPurpose));
            set_bandwidths(it, [100, 50]);
        };
        check(slow_special, MemoryKind::Pmem, Bandwidth);
    }

    #[test]
    fn the_driver_of_a_gpu_names_its_memory() {
        let gpu = |it: &mut Snapshot| {
            it.normal_memory = Some("0".parse().unwrap());
            let mut device = DeviceFacts::new("3b:00.0".parse().unwrap(), 0x03_0200);
            device.memory_node = Some(NodeId(1));
            it.devices.push(device);
        };
        check(gpu, MemoryKind::Gpu, KindEvidence::Device);
    }

    #[test]
    fn bandwidth_tells_more_than_tiers() {
        use KindEvidence::{Bandwidth, Tier};
        for (bandwidths, kind) in [
            ([100, 400], MemoryKind::Hbm),
            ([100, 110], MemoryKind::Dram),
            ([100, 95], MemoryKind::Dram),
            ([100, 90], MemoryKind::Pmem),
        ] {
            let set = |it: &mut Snapshot| {
                set_bandwidths(it, bandwidths);
                set_tiers(it, [4, 3]);
            };
            check(set, kind, Bandwidth);
        }
        check(|it| set_tiers(it, [4, 3]), MemoryKind::Hbm, Tier);
        check(|it| set_tiers(it, [4, 22]), MemoryKind::Pmem, Tier);
        check(|it| set_tiers(it, [4, 4]), MemoryKind::Dram, KindEvidence::Nothing);
    }

    #[test]
    fn movable_or_large_memory_is_slow() {
        let movable = |it: &mut Snapshot| it.normal_memory = Some("0".parse().unwrap());
        check(movable, MemoryKind::Pmem, KindEvidence::MovableOnly);
        let large = |it: &mut Snapshot| it.nodes[1].mem_total = Some(Bytes::gib(64));
        check(large, MemoryKind::Pmem, KindEvidence::Size);
        let with_cxl = |it: &mut Snapshot| {
            large(it);
            it.devices.push(DeviceFacts::new("3b:00.0".parse().unwrap(), 0x05_0210));
        };
        check(with_cxl, MemoryKind::Cxl, KindEvidence::Size);
        check(|_| {}, MemoryKind::Dram, KindEvidence::Nothing);
    }

    #[test]
    fn the_firmware_tells_which_cpus_reach_memory_best() {
        let mut snapshot = parse_machine("pack:2 numa:1 core:2 mem:16 cxl:16/machine").unwrap();
        // By distance it is equally near to both.
        snapshot.nodes[2].distances = vec![14, 14, 10];
        snapshot.nodes[0].distances[2] = 14;
        snapshot.nodes[1].distances[2] = 14;
        for access in &mut snapshot.nodes[2].accesses {
            access.initiators = "1".parse().unwrap();
        }
        let topology = derive(&snapshot).unwrap();
        assert_eq!(topology.node(NodeId(2)).unwrap().near, Some(NodeId(1)));
    }
}
