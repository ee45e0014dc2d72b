//! The memory of CPUs. In: the tree, and the NUMA nodes. Out: the memory nodes of every object, and for CPUs without memory of their own the nodes that stand in.
//!
//! A CPU's own memory is that of its NUMA node. Where that has none that can be used, the nearest nodes that have some stand in, all of those that are equally near. CPUs in no
//! node, or of a node from which no distance is known, have what their package has, or the narrowest object around them that has some.

use std::collections::BTreeMap;

use bayplan_types::{CpuSet, MemoryKind, NodeSet};

use crate::numa::Numa;
use crate::topology::{NumaNode, Object, StandIn, index_cpus};

/// Sets the memory nodes of the objects: those to which their CPUs belong, what hangs on these, and what stands in for them. `allowed` are the nodes that containers may use;
/// `None`: all.
pub(crate) fn set_mems(
    objects: &mut [Object],
    online: &CpuSet,
    numa: &Numa,
    allowed: Option<&NodeSet>,
) -> Vec<StandIn> {
    add_own(objects, numa);
    let usable = usable(&numa.nodes, allowed);
    if usable.is_empty() {
        return Vec::new();
    }
    let mut stand_ins: BTreeMap<NodeSet, CpuSet> = BTreeMap::new();
    let mut placed = CpuSet::new();
    for (at, node) in numa.nodes.iter().enumerate().filter(|(_, node)| !node.cpus.is_empty()) {
        let nearest = match usable.contains(node.id) {
            true => Some(NodeSet::from_iter([node.id])),
            false => nearest(numa, at, &usable),
        };
        let Some(mems) = nearest else { continue };
        placed.union_with(&node.cpus);
        if !usable.contains(node.id) {
            stand_ins.entry(mems).or_default().union_with(&node.cpus);
        }
    }
    for cpu in online.difference(&placed).iter() {
        let around = objects.iter().filter(|object| object.cpus.contains(cpu));
        let known = around.filter(|object| object.mems.intersects(&usable));
        let narrowest = known.min_by_key(|object| object.cpus.len());
        let mems = narrowest.map_or(usable.clone(), |object| object.mems.intersection(&usable));
        stand_ins.entry(mems).or_default().insert(cpu);
    }
    let stand_ins: Vec<StandIn> =
        stand_ins.into_iter().map(|(mems, cpus)| StandIn { cpus, mems }).collect();
    for object in objects {
        for it in stand_ins.iter().filter(|it| it.cpus.intersects(&object.cpus)) {
            object.mems.union_with(&it.mems);
        }
    }
    stand_ins
}

/// Nodes that can stand in: DRAM, or where that is nowhere allowed any other memory of the machine's own.
fn usable(nodes: &[NumaNode], allowed: Option<&NodeSet>) -> NodeSet {
    let of = |is_kind: fn(MemoryKind) -> bool| -> NodeSet {
        let usable = nodes.iter().filter(|node| {
            let is_allowed = allowed.is_none_or(|allowed| allowed.contains(node.id));
            node.has_memory() && is_allowed && is_kind(node.kind)
        });
        usable.map(|node| node.id).collect()
    };
    let dram = of(|kind| kind == MemoryKind::Dram);
    if dram.is_empty() { of(|kind| !kind.is_of_device()) } else { dram }
}

/// The usable nodes at the least distance from the node at this position; `None` where no distance is known.
fn nearest(numa: &Numa, from: usize, usable: &NodeSet) -> Option<NodeSet> {
    let count = numa.nodes.len();
    let distance =
        |from: usize, to: usize| numa.distances.get(from * count + to).copied().flatten();
    let measured = numa.nodes.iter().enumerate().filter(|(_, node)| usable.contains(node.id));
    let measured: Vec<(u32, _)> = measured
        .filter_map(|(to, node)| Some((distance(from, to).or(distance(to, from))?, node.id)))
        .collect();
    let least = measured.iter().map(|(distance, _)| *distance).min()?;
    Some(measured.iter().filter(|(distance, _)| *distance == least).map(|(_, id)| *id).collect())
}

/// An object has the memory of the nodes to which its CPUs belong, and what hangs on those nodes.
fn add_own(objects: &mut [Object], numa: &Numa) {
    let position = |id| numa.nodes.binary_search_by_key(&id, |node| node.id).ok();
    let mut mems = vec![NodeSet::new(); numa.nodes.len()];
    for (at, node) in numa.nodes.iter().enumerate().filter(|(_, node)| node.has_memory()) {
        let owner = if node.cpus.is_empty() { node.near.and_then(position) } else { Some(at) };
        if let Some(mems) = owner.and_then(|owner| mems.get_mut(owner)) {
            mems.insert(node.id);
        }
    }
    let node_at = index_cpus(numa.nodes.iter().enumerate().map(|(at, node)| (at, &node.cpus)));
    for object in objects {
        let mut last = None;
        for cpu in object.cpus.iter() {
            let node = node_at.get(cpu.0 as usize).copied().flatten();
            // Neighbours mostly belong to the same node.
            if node != last
                && let Some(mems) = node.and_then(|node| mems.get(node))
            {
                object.mems.union_with(mems);
            }
            last = node;
        }
    }
}

#[cfg(test)]
mod tests {
    use bayplan_types::{Bytes, NodeId};

    use crate::{Snapshot, check_topology, derive, parse_machine};

    /// Two packages of two nodes of two CPUs.
    fn machine(change: impl FnOnce(&mut Snapshot)) -> Snapshot {
        let mut snapshot = parse_machine("pack:2 numa:2 core:2 mem:16").unwrap();
        for (node, row) in snapshot.nodes.iter_mut().zip([
            [10, 12, 32, 32],
            [12, 10, 32, 32],
            [32, 32, 10, 12],
            [32, 32, 12, 10],
        ]) {
            node.distances = row.to_vec();
        }
        change(&mut snapshot);
        snapshot
    }

    /// What stands in for the memory of which CPUs, and the memory nodes of the objects with these CPUs.
    #[track_caller]
    fn check(change: impl FnOnce(&mut Snapshot), expected: &[(&str, &str)]) {
        let topology = derive(&machine(change)).unwrap();
        let found = topology.stand_ins().iter();
        let found: Vec<_> = found.map(|it| (it.cpus.to_string(), it.mems.to_string())).collect();
        let expected: Vec<_> =
            expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        assert_eq!(found, expected);
        for it in topology.stand_ins() {
            for object in topology.objects().iter().filter(|it2| it2.cpus.intersects(&it.cpus)) {
                assert!(it.mems.is_subset(&object.mems), "{object:?}");
            }
        }
        assert_eq!(check_topology(&topology), [""; 0]);
    }

    fn without_memory(snapshot: &mut Snapshot, nodes: &[usize]) {
        nodes.iter().for_each(|node| snapshot.nodes[*node].mem_total = Some(Bytes::ZERO));
    }

    #[test]
    fn the_nearest_memory_stands_in_for_what_a_node_lacks() {
        check(|_| {}, &[]);
        check(|it| without_memory(it, &[1, 3]), &[("2-3", "0"), ("6-7", "2")]);
        check(|it| without_memory(it, &[3]), &[("6-7", "2")]);
        // Equally near ones stand in together.
        check(|it| without_memory(it, &[2, 3]), &[("4-7", "0-1")]);
        check(|it| without_memory(it, &[0, 1, 3]), &[("0-3,6-7", "2")]);
        // The other direction's distance is as good.
        let one_way = |it: &mut Snapshot| {
            without_memory(it, &[3]);
            it.nodes[3].distances.clear();
        };
        check(one_way, &[("6-7", "2")]);
    }

    #[test]
    fn without_distances_the_package_tells() {
        let unknown = |it: &mut Snapshot| {
            without_memory(it, &[3]);
            it.nodes.iter_mut().for_each(|node| node.distances.clear());
        };
        check(unknown, &[("6-7", "2")]);
        let homeless = |it: &mut Snapshot| it.nodes[3].cpus = Some("7".parse().unwrap());
        check(homeless, &[("6", "2-3")]);
        let nowhere = |it: &mut Snapshot| {
            it.nodes.truncate(2);
            it.online_nodes = Some("0-1".parse().unwrap());
            it.nodes.iter_mut().for_each(|node| node.distances.truncate(2));
        };
        check(nowhere, &[("4-7", "0-1")]);
    }

    #[test]
    fn memory_that_containers_may_not_use_is_stood_in_for() {
        check(|it| it.pods_mems = Some("0,2".parse().unwrap()), &[("2-3", "0"), ("6-7", "2")]);
        // Nothing is allowed that the machine has: a kernel that says so is not believed.
        check(|it| it.pods_mems = Some("9".parse().unwrap()), &[]);
    }

    #[test]
    fn the_memory_of_a_gpu_stands_in_for_nothing() {
        let gpu = |it: &mut Snapshot| {
            without_memory(it, &[3]);
            let mut node = it.nodes[2].clone();
            node.id = NodeId(4);
            node.cpus = Some(Default::default());
            node.distances = vec![40, 40, 11, 11, 10];
            it.nodes.iter_mut().for_each(|node| node.distances.push(40));
            it.nodes[3].distances[4] = 11;
            it.nodes.push(node);
            it.online_nodes = Some("0-4".parse().unwrap());
            let mut device = crate::DeviceFacts::new("01:00.0".parse().unwrap(), 0x03_0200);
            device.memory_node = Some(NodeId(4));
            it.devices.push(device);
        };
        check(gpu, &[("6-7", "2")]);
    }
}
