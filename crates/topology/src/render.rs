//! The topology for people: one line per object, cores of a kind on one line, oddities below.

use std::fmt::Write as _;

use bayplan_types::{Bytes, CpuSet, NodeId, NodeSet};

use crate::fold::{count_and_list, fold_numbers, plural};
use crate::topology::{Level, NumaNode, Object, Topology};

/// Oddities beyond this number are counted, not listed; the JSON form has them all.
const ODDITIES_SHOWN: usize = 20;

/// With more NUMA nodes than this, rows of distances help nobody; the JSON form has them.
const DISTANCES_SHOWN: usize = 16;

/// The machine as an indented tree. An object that is its parent's only child and has the same CPUs stands on its parent's line.
/// Long lists of CPUs with a constant step are in the kernel's grouped form: `0-110:1/2` is every second CPU.
pub fn render_tree(topology: &Topology) -> String {
    let mut lines = Lines { topology, text: String::new(), nodes_shown: NodeSet::new() };
    lines.machine();
    lines.children(topology.root(), 1);
    lines.nodes_beside_the_tree();
    lines.oddities();
    lines.text
}

struct Lines<'a> {
    topology: &'a Topology,
    text: String,
    nodes_shown: NodeSet,
}

impl<'a> Lines<'a> {
    fn line(&mut self, depth: usize, line: &str) {
        let indent = "  ".repeat(depth);
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{indent}{line}");
    }

    fn machine(&mut self) {
        let topology = self.topology;
        let mut line = format!("Machine: {}", count_and_list(topology.cpus()));
        let _ = write!(line, ", {}", plural(topology.cores().len(), "core"));
        // One node of unknown size makes the sum unknown.
        let sizes: Option<Vec<Bytes>> = topology.nodes().iter().map(|node| node.memory).collect();
        if let Some(sizes) = sizes.filter(|sizes| !sizes.is_empty()) {
            let _ = write!(line, ", {}", sizes.into_iter().sum::<Bytes>());
        }
        self.line(0, &line);
        for (name, cpus) in [("isolated", topology.isolated()), ("offline", topology.offline())] {
            if !cpus.is_empty() {
                self.line(1, &format!("{name}: {}", count_and_list(cpus)));
            }
        }
    }

    fn children(&mut self, object: &'a Object, depth: usize) {
        let topology = self.topology;
        let children = object.children.iter().map(|idx| topology.object(*idx));
        let (cores, others): (Vec<&Object>, Vec<&Object>) =
            children.partition(|child| child.level == Level::Core);
        self.cores(&cores, depth);
        for child in others {
            self.object(child, depth);
        }
    }

    /// Cores with the same number of threads share a line.
    fn cores(&mut self, cores: &[&Object], depth: usize) {
        let mut kinds: Vec<usize> = cores.iter().map(|core| core.cpus.len()).collect();
        kinds.sort_unstable_by(|a, b| b.cmp(a));
        kinds.dedup();
        for threads in kinds {
            let alike = || cores.iter().filter(|core| core.cpus.len() == threads);
            let ids = fold_numbers(alike().map(|core| core.id).collect());
            let cpus: CpuSet = alike().flat_map(|core| core.cpus.iter()).collect();
            let noun = if alike().count() == 1 { "core" } else { "cores" };
            let each = if threads > 1 { format!(" of {threads} threads") } else { String::new() };
            self.line(depth, &format!("{noun} {ids}{each}, {}", count_and_list(&cpus)));
        }
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
        let memory = node.map(|node| self.memory(node)).unwrap_or_default();
        self.line(depth, &format!("{names}: {}{memory}", count_and_list(&object.cpus)));
        if let Some(node) = node {
            self.nodes_shown.insert(node.id);
            self.nodes_near(node, depth + 1);
        }
        self.children(innermost, depth + 1);
    }

    fn only_child_with_the_same_cpus(&self, object: &Object) -> Option<&'a Object> {
        let [only] = object.children.as_slice() else { return None };
        let only = self.topology.object(*only);
        (only.level != Level::Core && only.cpus == object.cpus).then_some(only)
    }

    /// The nodes of memory alone that hang on `node`.
    fn nodes_near(&mut self, node: &NumaNode, depth: usize) {
        for memory in self.topology.nodes().iter().filter(|other| other.near == Some(node.id)) {
            self.nodes_shown.insert(memory.id);
            self.line(depth, &format!("NumaNode {}: no CPUs{}", memory.id, self.memory(memory)));
        }
    }

    /// Size and distances of a node, as an ending for its line.
    fn memory(&self, node: &NumaNode) -> String {
        let nodes = self.topology.nodes();
        let mut text = match node.memory {
            Some(bytes) => format!(", {bytes}"),
            None => ", memory of unknown size".to_owned(),
        };
        if (2..=DISTANCES_SHOWN).contains(&nodes.len()) {
            let row = nodes.iter().map(|to| match self.topology.distance(node.id, to.id) {
                Some(distance) => distance.to_string(),
                None => "-".to_owned(),
            });
            let _ = write!(text, ", distances {}", row.collect::<Vec<_>>().join(" "));
        }
        text
    }

    /// Nodes that do not nest with the other objects, and nodes that hang on nobody.
    fn nodes_beside_the_tree(&mut self) {
        for node in self.topology.nodes().iter().filter(|node| node.near.is_none()) {
            if self.nodes_shown.contains(node.id) {
                continue;
            }
            let cpus = match node.cpus.is_empty() {
                true => "no CPUs".to_owned(),
                false => count_and_list(&node.cpus),
            };
            let memory = self.memory(node);
            self.line(1, &format!("beside the tree: NumaNode {}: {cpus}{memory}", node.id));
            self.nodes_near(node, 2);
        }
    }

    fn oddities(&mut self) {
        let oddities = self.topology.oddities();
        if oddities.is_empty() {
            return;
        }
        self.line(0, "Odd:");
        for oddity in oddities.iter().take(ODDITIES_SHOWN) {
            self.line(1, &oddity.to_string());
        }
        if let Some(more) = oddities.len().checked_sub(ODDITIES_SHOWN).filter(|more| *more > 0) {
            self.line(1, &format!("and {more} more"));
        }
    }
}
