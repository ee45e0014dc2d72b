//! The topology for people: one line per object, equal siblings and cores of a kind on one line, oddities below.

mod facts;
mod lines;

use std::fmt::Write as _;

use bayplan_types::{Bytes, CoreKind, CpuSet, MemoryKind, NodeId, NodeSet};

use bayplan_topology::{KindEvidence, Level, NumaNode, Object, Topology};
use bayplan_types::fold::{count_and_list, fold_numbers, plural};
use lines::Lines;

/// From this many equal siblings on, they share a line.
const SIBLINGS_FOLDED: usize = 3;

/// The machine as an indented tree of at most 100 columns. An object that is its parent's only child and has the same CPUs stands on its
/// parent's line. Long lists of CPUs with a constant step are in the kernel's grouped form: `0-110:1/2` is every second CPU.
pub fn render_tree(topology: &Topology) -> String {
    let mut tree = Tree { topology, lines: Lines::default(), nodes_shown: NodeSet::new() };
    tree.machine();
    facts::machine(topology, &mut tree.lines);
    tree.children(topology.root(), 1);
    tree.nodes_beside_the_tree();
    facts::devices(topology, None, 1, &mut tree.lines);
    facts::distances(topology, &mut tree.lines);
    facts::oddities(topology, &mut tree.lines);
    tree.lines.into_text()
}

struct Tree<'a> {
    topology: &'a Topology,
    lines: Lines,
    nodes_shown: NodeSet,
}

impl<'a> Tree<'a> {
    fn machine(&mut self) {
        let topology = self.topology;
        let mut line = format!("Machine: {}", count_and_list(topology.cpus()));
        // Writing to a String cannot fail.
        let _ = write!(line, ", {}", plural(topology.cores().len(), "core"));
        for kind in MemoryKind::ALL {
            let of_kind = topology.nodes().iter().filter(|node| node.kind == kind);
            // One node of unknown size makes the sum unknown.
            let sizes: Option<Vec<Bytes>> = of_kind.map(|node| node.memory).collect();
            if let Some(sizes) = sizes.filter(|sizes| !sizes.is_empty()) {
                let _ = write!(line, ", {}{}", sizes.into_iter().sum::<Bytes>(), suffix(kind));
            }
        }
        self.lines.add(0, &line);
    }

    fn children(&mut self, object: &'a Object, depth: usize) {
        let topology = self.topology;
        let children = object.children.iter().map(|idx| topology.object(*idx));
        let (cores, others): (Vec<&Object>, Vec<&Object>) =
            children.partition(|child| child.level == Level::Core);
        self.cores(&cores, depth);
        let shapes: Vec<Option<Shape>> = others.iter().map(|other| self.shape(other)).collect();
        let mut rest: &[&Object] = &others;
        let mut shapes: &[Option<Shape>] = &shapes;
        while let ([first, ..], [shape, ..]) = (rest, shapes) {
            let alike = shapes.iter().take_while(|other| shape.is_some() && *other == shape);
            let (count, folded) = match (alike.count(), shape) {
                (count, Some(shape)) if count >= SIBLINGS_FOLDED => (count, Some(shape)),
                _ => (1, None),
            };
            match folded {
                Some(shape) => self.alike(rest.get(..count).unwrap_or_default(), shape, depth),
                None => self.object(first, depth),
            }
            rest = rest.get(count..).unwrap_or_default();
            shapes = shapes.get(count..).unwrap_or_default();
        }
    }

    /// Cores with the same number of threads and of the same kind share a line.
    fn cores(&mut self, cores: &[&Object], depth: usize) {
        let kind_of = |core: &Object| {
            let kind = core.cpus.first().and_then(|cpu| self.topology.core_kind(cpu));
            (std::cmp::Reverse(core.cpus.len()), kind)
        };
        let mut kinds: Vec<_> = cores.iter().map(|core| kind_of(core)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut lines = Vec::new();
        for wanted in kinds {
            let alike = || cores.iter().filter(|core| kind_of(core) == wanted);
            let ids = fold_numbers(alike().map(|core| core.id).collect());
            let cpus: CpuSet = alike().flat_map(|core| core.cpus.iter()).collect();
            let (std::cmp::Reverse(threads), kind) = wanted;
            let noun = if alike().count() == 1 { "core" } else { "cores" };
            let each = if threads > 1 { format!(" of {threads} threads") } else { String::new() };
            let kind = adjective(kind);
            lines.push(format!("{kind}{noun} {ids}{each}, {}", count_and_list(&cpus)));
        }
        lines.iter().for_each(|line| self.lines.add(depth, line));
    }

    /// Several objects of one shape.
    fn alike(&mut self, objects: &[&Object], shape: &Shape, depth: usize) {
        let ids = fold_numbers(objects.iter().map(|object| object.id).collect());
        let cpus: CpuSet = objects.iter().flat_map(|object| object.cpus.iter()).collect();
        let (count, level) = (objects.len(), shape.level);
        let size = shape.size.map(|size| format!("{size}, ")).unwrap_or_default();
        let each = plural(shape.cores, &format!("{}core", adjective(shape.kind)));
        let threads = match shape.cpus / shape.cores.max(1) {
            0 | 1 => String::new(),
            threads => format!(" of {threads} threads"),
        };
        let list = count_and_list(&cpus);
        self.lines.add(depth, &format!("{count} x {level} {ids} ({size}{each}{threads}): {list}"));
    }

    fn object(&mut self, object: &'a Object, depth: usize) {
        let mut joined = vec![object];
        let mut innermost = object;
        while let Some(only) = self.only_child_with_the_same_cpus(innermost) {
            joined.push(only);
            innermost = only;
        }
        let names = joined.iter().map(|object| format!("{} {}", object.level, object.id));
        let names = names.collect::<Vec<_>>().join(" / ");
        let node = joined.iter().find(|object| object.level == Level::NumaNode);
        let node = node.and_then(|object| self.topology.node(NodeId(object.id)));
        let mut line = format!("{names}: {}", count_and_list(&object.cpus));
        line.push_str(&node.map(memory).unwrap_or_default());
        for cache in joined.iter().filter_map(|object| Some((object.level, self.size(object)?))) {
            let _ = write!(line, ", {} of {}", cache.0, cache.1);
        }
        self.lines.add(depth, &line);
        if let Some(node) = node {
            self.node(node, depth + 1);
        }
        self.children(innermost, depth + 1);
    }

    fn only_child_with_the_same_cpus(&self, object: &Object) -> Option<&'a Object> {
        let [only] = object.children.as_slice() else { return None };
        let only = self.topology.object(*only);
        (only.level != Level::Core && only.cpus == object.cpus).then_some(only)
    }

    fn size(&self, object: &Object) -> Option<Bytes> {
        let level = match object.level {
            Level::L3 => 3,
            Level::L2 => 2,
            _ => return None,
        };
        let caches = self.topology.caches();
        caches.iter().find(|cache| cache.level == level && cache.cpus == object.cpus)?.size
    }

    /// What belongs to a node beside its CPUs.
    fn node(&mut self, node: &NumaNode, depth: usize) {
        self.nodes_shown.insert(node.id);
        facts::memory_details(node, depth, &mut self.lines);
        facts::devices(self.topology, Some(node.id), depth, &mut self.lines);
        for near in self.topology.nodes().iter().filter(|other| other.near == Some(node.id)) {
            self.nodes_shown.insert(near.id);
            self.lines.add(depth, &format!("NumaNode {}: no CPUs{}", near.id, memory(near)));
            facts::memory_details(near, depth + 1, &mut self.lines);
            facts::devices(self.topology, Some(near.id), depth + 1, &mut self.lines);
        }
    }

    /// Nodes that do not nest with the other objects, and nodes that hang on no other node.
    fn nodes_beside_the_tree(&mut self) {
        for node in self.topology.nodes().iter().filter(|node| node.near.is_none()) {
            if self.nodes_shown.contains(node.id) {
                continue;
            }
            let cpus = match node.cpus.is_empty() {
                true => "no CPUs".to_owned(),
                false => count_and_list(&node.cpus),
            };
            let memory = memory(node);
            self.lines.add(1, &format!("beside the tree: NumaNode {}: {cpus}{memory}", node.id));
            self.node(node, 2);
        }
    }

    /// What an object looks like from outside; `None` for one that deserves lines of its own.
    fn shape(&self, object: &Object) -> Option<Shape> {
        if !matches!(object.level, Level::L3 | Level::Cluster | Level::L2) {
            return None;
        }
        let children = object.children.iter().map(|idx| self.topology.object(*idx));
        let mut inside = Vec::new();
        for child in children.filter(|child| child.level != Level::Core) {
            inside.push(self.shape(child)?);
        }
        let cores = || {
            let leads = |cpu| self.topology.core_of(cpu).filter(|core| core.first() == Some(cpu));
            object.cpus.iter().filter_map(leads)
        };
        let kind = object.cpus.first().and_then(|cpu| self.topology.core_kind(cpu));
        let is_of_kind =
            |core: &CpuSet| core.first().and_then(|cpu| self.topology.core_kind(cpu)) == kind;
        let mut threads = cores().map(CpuSet::len);
        let first = threads.next();
        let is_even = threads.all(|count| Some(count) == first) && cores().all(is_of_kind);
        is_even.then(|| Shape {
            level: object.level,
            cores: cores().count(),
            cpus: object.cpus.len(),
            size: self.size(object),
            kind,
            inside,
        })
    }
}

/// What makes two objects alike.
#[derive(PartialEq, Eq)]
struct Shape {
    level: Level,
    cores: usize,
    cpus: usize,
    size: Option<Bytes>,
    kind: Option<CoreKind>,
    inside: Vec<Shape>,
}

fn adjective(kind: Option<CoreKind>) -> &'static str {
    match kind {
        Some(CoreKind::Performance) => "performance ",
        Some(CoreKind::Efficient) => "efficient ",
        None => "",
    }
}

/// Nothing for ordinary memory.
fn suffix(kind: MemoryKind) -> String {
    match kind {
        MemoryKind::Dram => String::new(),
        other => format!(" {other}"),
    }
}

/// Size and kind of a node's memory, as an ending for its line.
fn memory(node: &NumaNode) -> String {
    let is_known = node.evidence != KindEvidence::Nothing || !node.has_memory();
    let kind = match is_known {
        true => suffix(node.kind),
        false => " of unknown kind".to_owned(),
    };
    match node.memory {
        Some(bytes) => format!(", {bytes}{kind}"),
        None => format!(", memory of unknown size{kind}"),
    }
}
