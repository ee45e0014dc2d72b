//! The machine as boxes in boxes, for pages that lay them out themselves. In: a [`Topology`]. Out: an [`Outline`], which serialises to
//! JSON.
//!
//! A sheet of paper has one size, so [`crate::render_svg`] gives every box its place. A page is as wide as its window, and the browser
//! places boxes itself; it needs to be told what is inside what. Both leave out what would only repeat the box around it.

use std::collections::BTreeSet;

use bayplan_topology::{Level, NumaNode, Object, Topology};
use bayplan_types::{CpuId, CpuPriority, CpuSet, NodeId};
use serde::Serialize;

use crate::picture::devices::Devices;
use crate::picture::machine::children_without_only_die;
use crate::picture::memory::{memory_hover, size_and_kind};
use crate::picture::page::headline;

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outline {
    /// Counts in words, such as `224 CPUs`, `2 packages`.
    pub facts: Vec<String>,
    /// The machine itself, with everything inside.
    pub machine: OutlineBox,
    /// CPUs that are offline, a list.
    pub offline: String,
    /// What else is known of single CPUs; CPUs without such marks are absent.
    pub marks: Vec<OutlineMark>,
    /// The kernel's distances between NUMA nodes.
    pub distances: Distances,
}

/// An object and what is inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutlineBox {
    /// `machine`, `package`, `die`, `numanode`, `l3`, `cluster` or `l2`.
    pub level: String,
    /// For people: `Package 0`.
    pub name: String,
    /// Sizes and other facts, such as `32 MiB`.
    pub facts: Vec<String>,
    /// Its CPUs, a list.
    pub cpus: String,
    /// Memory of the NUMA node itself, and of nodes without CPUs that are near it.
    pub memories: Vec<OutlineMemory>,
    /// Devices that belong to this NUMA node; of the machine, those of no node.
    pub devices: Vec<OutlineDevice>,
    /// Objects inside, in the order of their CPUs.
    pub boxes: Vec<OutlineBox>,
    /// Cores that are in no box inside.
    pub cores: Vec<OutlineCore>,
}

/// A NUMA node's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutlineMemory {
    /// The kernel's number of the node.
    pub node: u32,
    /// `dram`, `hbm`, `pmem` and so on.
    pub kind: String,
    /// Size and kind.
    pub text: String,
    /// All that is known of it, in one line.
    pub details: String,
}

/// A device, or several equal ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutlineDevice {
    /// Its name.
    pub name: String,
    /// What it is.
    pub facts: Vec<String>,
    /// Address and driver, in one line.
    pub details: String,
}

/// A core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutlineCore {
    /// `performance` or `efficient`; absent where all cores are alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its threads, by the kernel's numbers.
    pub cpus: Vec<u32>,
}

/// Something that is known of some CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutlineMark {
    /// `isolated`, `partitioned`, `nohz_full`, `high priority` or `low priority`.
    pub name: &'static str,
    /// These CPUs, a list.
    pub cpus: String,
}

/// A table of distances; row and column are the nodes in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Distances {
    /// The kernel's numbers of the nodes.
    pub nodes: Vec<u32>,
    /// From each to each; absent where the kernel does not say.
    pub rows: Vec<Vec<Option<u32>>>,
}

/// The outline of a machine.
pub fn outline(topology: &Topology) -> Outline {
    let nested = topology.objects().iter().filter(|object| object.level == Level::NumaNode);
    let outliner = Outliner {
        topology,
        devices: Devices::new(topology),
        nested: nested.map(|object| NodeId(object.id)).collect(),
    };
    Outline {
        facts: headline(topology),
        machine: outliner.machine(),
        offline: topology.offline().to_string(),
        marks: marks(topology),
        distances: distances(topology),
    }
}

struct Outliner<'a> {
    topology: &'a Topology,
    devices: Devices<'a>,
    /// Nodes that are objects of the tree.
    nested: BTreeSet<NodeId>,
}

impl Outliner<'_> {
    fn machine(&self) -> OutlineBox {
        let root = self.topology.root();
        let beside = self.topology.nodes().iter();
        let beside = beside.filter(|node| node.near.is_none() && !self.nested.contains(&node.id));
        let beside: Vec<&NumaNode> = beside.collect();
        let mut devices = self.devices_of(None);
        devices.extend(beside.iter().flat_map(|node| self.devices_of(Some(node.id))));
        let memories = beside.iter().flat_map(|node| self.memories(node.id)).collect();
        OutlineBox { name: "Machine".to_owned(), memories, devices, ..self.fill(root) }
    }

    fn object(&self, object: &Object) -> OutlineBox {
        let inside = self.fill(object);
        let name = match object.level {
            // Their numbers say nothing: mostly the lowest CPU.
            Level::L2 | Level::Cluster => object.level.to_string(),
            level => format!("{level} {}", object.id),
        };
        let facts = self.cache_size(object).into_iter().collect();
        match object.level {
            Level::NumaNode => {
                let id = NodeId(object.id);
                let mut devices = self.devices_of(Some(id));
                let near = self.topology.nodes().iter().filter(|it| it.near == Some(id));
                devices.extend(near.flat_map(|it| self.devices_of(Some(it.id))));
                OutlineBox { name, memories: self.memories(id), devices, ..inside }
            }
            _ => OutlineBox { name, facts, ..inside },
        }
    }

    fn fill(&self, object: &Object) -> OutlineBox {
        let mut rest = object.cpus.clone();
        let mut boxes = Vec::new();
        for child in children_without_only_die(self.topology, object) {
            if child.level != Level::Core {
                rest.subtract(&child.cpus);
                boxes.push(self.object(child));
            }
        }
        OutlineBox {
            level: object.level.name().to_lowercase(),
            cpus: object.cpus.to_string(),
            boxes,
            cores: self.cores(&rest),
            ..OutlineBox::default()
        }
    }

    /// These CPUs as cores, by lowest CPU.
    fn cores(&self, cpus: &CpuSet) -> Vec<OutlineCore> {
        let cores: &[CpuSet] = if cpus.is_empty() { &[] } else { self.topology.cores() };
        let mut inside: Vec<CpuSet> = cores.iter().map(|core| core.intersection(cpus)).collect();
        inside.retain(|core| !core.is_empty());
        inside.sort_by_key(CpuSet::first);
        let kind = |cpu: CpuId| Some(self.topology.core_kind(cpu)?.name().to_lowercase());
        let core = |core: CpuSet| OutlineCore {
            kind: core.first().and_then(kind),
            cpus: core.iter().map(|cpu| cpu.0).collect(),
        };
        inside.into_iter().map(core).collect()
    }

    fn cache_size(&self, object: &Object) -> Option<String> {
        let level = match object.level {
            Level::L3 => 3,
            Level::L2 => 2,
            _ => return None,
        };
        let caches = self.topology.caches().iter();
        let mut own = caches.filter(|cache| cache.level == level && cache.cpus == object.cpus);
        Some(own.next()?.size?.to_string())
    }

    /// The memory of a node, and that of the nodes near it.
    fn memories(&self, id: NodeId) -> Vec<OutlineMemory> {
        let nodes = self.topology.nodes().iter();
        let nodes = nodes.filter(|node| node.id == id || node.near == Some(id));
        let memory = |node: &NumaNode| OutlineMemory {
            node: node.id.0,
            kind: node.kind.name().to_lowercase(),
            text: size_and_kind(node),
            details: memory_hover(node),
        };
        nodes.map(memory).collect()
    }

    fn devices_of(&self, node: Option<NodeId>) -> Vec<OutlineDevice> {
        let told = self.devices.of_node(node).into_iter();
        told.map(|it| OutlineDevice { name: it.name, facts: it.facts, details: it.more }).collect()
    }
}

fn marks(topology: &Topology) -> Vec<OutlineMark> {
    let of_priority = |priority| topology.cpus_of_priority(priority);
    let marks = [
        ("isolated", topology.isolated().clone()),
        ("partitioned", topology.partitioned().clone()),
        ("nohz_full", topology.nohz_full().clone()),
        ("high priority", of_priority(CpuPriority::High)),
        ("low priority", of_priority(CpuPriority::Low)),
    ];
    let there = marks.into_iter().filter(|(_, cpus)| !cpus.is_empty());
    there.map(|(name, cpus)| OutlineMark { name, cpus: cpus.to_string() }).collect()
}

fn distances(topology: &Topology) -> Distances {
    let nodes = topology.nodes();
    let row = |from: &NumaNode| nodes.iter().map(|to| topology.distance(from.id, to.id)).collect();
    Distances {
        nodes: nodes.iter().map(|node| node.id.0).collect(),
        rows: nodes.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use bayplan_topology::{derive, parse_machine};
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn of(spec: &str) -> (Topology, Outline) {
        let topology = derive(&parse_machine(spec).unwrap()).unwrap();
        let outline = outline(&topology);
        (topology, outline)
    }

    fn render(of: &OutlineBox, depth: usize, text: &mut String) {
        let memories: Vec<&str> = of.memories.iter().map(|it| it.text.as_str()).collect();
        let devices: Vec<&str> = of.devices.iter().map(|it| it.name.as_str()).collect();
        let cores: Vec<String> = of.cores.iter().map(|it| format!("{:?}", it.cpus)).collect();
        let parts = [&of.facts.join(" "), &memories.join(", "), &devices.join(", ")];
        let parts: Vec<&str> = parts.into_iter().map(String::as_str).collect();
        let parts = parts.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join("; ");
        let line =
            format!("{}{} ({}) {parts} {}", "  ".repeat(depth), of.name, of.cpus, cores.concat());
        let _ = writeln!(text, "{}", line.trim_end());
        of.boxes.iter().for_each(|it| render(it, depth + 1, text));
    }

    fn check(spec: &str, expected: Expect) {
        let mut text = String::new();
        render(&of(spec).1.machine, 0, &mut text);
        expected.assert_eq(&text);
    }

    #[test]
    fn what_is_inside_what() {
        check(
            "pack:2 numa:1 l3:2 core:2 pu:2 mem:16",
            expect![[r#"
            Machine (0-15)
              Package 0 (0-3,8-11)
                NumaNode 0 (0-3,8-11) 16 GiB Dram
                  L3 0 (0-1,8-9) 32 MiB [0, 8][1, 9]
                  L3 1 (2-3,10-11) 32 MiB [2, 10][3, 11]
              Package 1 (4-7,12-15)
                NumaNode 1 (4-7,12-15) 16 GiB Dram
                  L3 2 (4-5,12-13) 32 MiB [4, 12][5, 13]
                  L3 3 (6-7,14-15) 32 MiB [6, 14][7, 15]
        "#]],
        );
        check(
            "pack:1 numa:2 core:2 hbm:4 nic:1",
            expect![[r#"
            Machine (0-3)
              Package 0 (0-3)
                NumaNode 0 (0-1) 16 GiB Dram, 4 GiB Hbm; enp16s0f0 [0][1]
                NumaNode 1 (2-3) 16 GiB Dram, 4 GiB Hbm [2][3]
        "#]],
        );
    }

    fn cpus_of(of: &OutlineBox, cpus: &mut Vec<u32>) {
        cpus.extend(of.cores.iter().flat_map(|core| &core.cpus));
        of.boxes.iter().for_each(|it| cpus_of(it, cpus));
    }

    proptest! {
        #[test]
        fn every_online_cpu_is_in_it_once(
            pack in 1_usize..3, numa in 1_usize..3, l3 in 1_usize..3, core in 1_usize..4, pu in 1_usize..3,
            offline in 1_u32..4,
        ) {
            let count = pack * numa * l3 * core * pu;
            let off = if count > 4 { format!(" offline:{offline}") } else { String::new() };
            let (topology, outline) = of(&format!("pack:{pack} numa:{numa} l3:{l3} core:{core} pu:{pu}{off}"));
            let mut cpus = Vec::new();
            cpus_of(&outline.machine, &mut cpus);
            cpus.sort_unstable();
            let online: Vec<u32> = topology.cpus().iter().map(|cpu| cpu.0).collect();
            prop_assert_eq!(cpus, online);
        }
    }
}
