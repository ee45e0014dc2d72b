//! The invariants of a [`Topology`], for tests and for `bayplan check`.

use bayplan_types::{CpuSet, NodeSet};

use crate::topology::{Level, Object, ObjectIdx, Topology};

/// Every breach of an invariant, in words; empty for a sound topology.
pub fn check_topology(topology: &Topology) -> Vec<String> {
    let mut breaches = Vec::new();
    check_root(topology, &mut breaches);
    for (position, object) in topology.objects().iter().enumerate() {
        check_object(topology, position, object, &mut breaches);
    }
    check_cores(topology, &mut breaches);
    check_nodes(topology, &mut breaches);
    let online = topology.cpus();
    if !topology.isolated().is_subset(online) {
        breaches.push(format!("isolated CPUs {} are not all online", topology.isolated()));
    }
    if topology.offline().intersects(online) {
        breaches.push(format!("CPUs {} are offline and online", topology.offline()));
    }
    breaches
}

fn check_root(topology: &Topology, breaches: &mut Vec<String>) {
    let root = topology.root();
    if root.level != Level::Machine || root.parent.is_some() {
        breaches.push("the first object is not the machine".to_owned());
    }
    let belongs: NodeSet = topology
        .nodes()
        .iter()
        .filter(|node| {
            let stands_in = topology.stand_ins().iter().any(|it| it.mems.contains(node.id));
            node.has_memory() && (!node.cpus.is_empty() || node.near.is_some() || stands_in)
        })
        .map(|node| node.id)
        .collect();
    if root.mems != belongs {
        breaches.push(format!("the machine has memory nodes {}, not {belongs}", root.mems));
    }
}

fn describe(object: &Object) -> String {
    format!("{} {} ({})", object.level, object.id, object.cpus)
}

fn check_object(topology: &Topology, at: usize, object: &Object, breaches: &mut Vec<String>) {
    let name = describe(object);
    if object.idx.index() != at {
        breaches.push(format!("{name} is at {at} but says {}", object.idx.0));
    }
    if object.cpus.is_empty() {
        breaches.push(format!("{name} has no CPU"));
    }
    match object.parent.map(|idx| (idx, topology.objects().get(idx.index()))) {
        None if at != 0 => breaches.push(format!("{name} has no parent")),
        None => {}
        Some((_, None)) => breaches.push(format!("{name} has a parent that does not exist")),
        Some((idx, Some(parent))) => check_parent(object, idx, parent, breaches),
    }
    let mut inside = CpuSet::new();
    for idx in &object.children {
        let Some(child) = topology.objects().get(idx.index()) else {
            breaches.push(format!("{name} has a child that does not exist"));
            continue;
        };
        if child.parent != Some(object.idx) {
            breaches.push(format!("{} does not know its parent {name}", describe(child)));
        }
        if child.cpus.intersects(&inside) {
            breaches.push(format!("{} overlaps a sibling", describe(child)));
        }
        if child.cpus.first() < inside.first() {
            breaches.push(format!("{} stands after a sibling with higher CPUs", describe(child)));
        }
        inside.union_with(&child.cpus);
    }
}

fn check_parent(object: &Object, idx: ObjectIdx, parent: &Object, breaches: &mut Vec<String>) {
    let (name, outer) = (describe(object), describe(parent));
    if idx >= object.idx {
        breaches.push(format!("{name} stands before its parent {outer}"));
    }
    if !parent.children.contains(&object.idx) {
        breaches.push(format!("{outer} does not know its child {name}"));
    }
    if !object.cpus.is_subset(&parent.cpus) {
        breaches.push(format!("{name} is not inside its parent {outer}"));
    }
    if object.cpus == parent.cpus && object.level <= parent.level {
        breaches.push(format!("{name} is inside {outer}, which has the same CPUs"));
    }
    if !object.mems.is_subset(&parent.mems) {
        breaches.push(format!("{name} has memory nodes that {outer} has not"));
    }
}

fn check_cores(topology: &Topology, breaches: &mut Vec<String>) {
    let mut seen = CpuSet::new();
    for core in topology.cores() {
        if core.intersects(&seen) {
            breaches.push(format!("CPUs {} are in two cores", core.intersection(&seen)));
        }
        if core.is_empty() || core.first() < seen.first() {
            breaches.push(format!("core {core} is empty or out of order"));
        }
        seen.union_with(core);
        for cpu in core.iter().filter(|cpu| topology.core_of(*cpu) != Some(core)) {
            breaches.push(format!("CPU {cpu} does not know its core {core}"));
        }
    }
    if seen != *topology.cpus() {
        breaches.push(format!("the cores have CPUs {seen}, online are {}", topology.cpus()));
    }
    let objects = topology.objects().iter();
    for object in objects.filter(|object| object.level == Level::Core) {
        let core = object.cpus.first().and_then(|cpu| topology.core_of(cpu));
        if core != Some(&object.cpus) {
            breaches.push(format!("{} is not in the list of cores", describe(object)));
        }
    }
}

fn check_nodes(topology: &Topology, breaches: &mut Vec<String>) {
    let mut seen = CpuSet::new();
    let mut last = None;
    for node in topology.nodes() {
        let id = node.id;
        if last >= Some(id) {
            breaches.push(format!("NumaNode {id} is out of order"));
        }
        last = Some(id);
        if node.cpus.intersects(&seen) {
            breaches.push(format!("NumaNode {id} shares CPUs with another node"));
        }
        seen.union_with(&node.cpus);
        if !node.cpus.is_subset(topology.cpus()) {
            breaches.push(format!("NumaNode {id} has CPUs that are not online"));
        }
        for cpu in node.cpus.iter().filter(|cpu| topology.node_of(*cpu) != Some(id)) {
            breaches.push(format!("CPU {cpu} does not know its NumaNode {id}"));
        }
        let near = node.near.map(|near| topology.node(near));
        match near {
            Some(_) if !node.cpus.is_empty() => {
                breaches.push(format!("NumaNode {id} has CPUs and hangs on another node"));
            }
            Some(near) if near.is_none_or(|near| near.cpus.is_empty()) => {
                breaches.push(format!("NumaNode {id} hangs on a node without CPUs"));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{NumaNode, Parts};
    use bayplan_types::{Bytes, NodeId};

    fn object(idx: u32, level: Level, parent: Option<u32>, children: &[u32], cpus: &str) -> Object {
        Object {
            idx: ObjectIdx(idx),
            level,
            id: 0,
            parent: parent.map(ObjectIdx),
            children: children.iter().copied().map(ObjectIdx).collect(),
            cpus: cpus.parse().unwrap(),
            mems: NodeSet::new(),
        }
    }

    fn check(objects: Vec<Object>, cores: &[&str], nodes: Vec<NumaNode>, breaches: &[&str]) {
        let topology = Topology::new(Parts {
            objects,
            cores: cores.iter().map(|core| core.parse().unwrap()).collect(),
            nodes,
            ..Parts::default()
        });
        assert_eq!(check_topology(&topology), breaches);
    }

    #[test]
    fn each_breach_is_named() {
        let machine = |children: &[u32]| object(0, Level::Machine, None, children, "0-1");
        check(vec![machine(&[])], &["0", "1"], vec![], &[]);
        check(vec![machine(&[])], &["0"], vec![], &["the cores have CPUs 0, online are 0-1"]);
        check(
            vec![machine(&[1, 2]), object(1, Level::L3, Some(0), &[], "0-1"), {
                object(2, Level::L3, Some(0), &[], "1-2")
            }],
            &["0", "1"],
            vec![],
            &[
                "L3 0 (1-2) overlaps a sibling",
                "L3 0 (1-2) is not inside its parent Machine 0 (0-1)",
            ],
        );
        check(
            vec![machine(&[])],
            &["0-1"],
            vec![NumaNode {
                memory: Some(Bytes::ZERO),
                near: Some(NodeId(0)),
                ..NumaNode::new(NodeId(1))
            }],
            &["NumaNode 1 hangs on a node without CPUs"],
        );
    }
}
