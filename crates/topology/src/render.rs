//! The topology for people: one line per object, cores of a kind on one line, oddities below.

use std::fmt::Write as _;

use bayplan_types::{Bytes, CpuSet, NodeId, NodeSet};

use crate::topology::{Level, NumaNode, Object, Topology};

/// Oddities beyond this number are counted, not listed; the JSON form has them all.
const ODDITIES_SHOWN: usize = 20;

/// From this many equal steps on, ranges are written in the kernel's grouped form.
const STEPS_FOLDED: usize = 4;

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
        if !topology.nodes().is_empty() {
            let known: Bytes = topology.nodes().iter().filter_map(|node| node.memory).sum();
            let _ = write!(line, ", {known}");
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
        if nodes.len() > 1 {
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

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// `28 CPUs 0-13,112-125`.
pub(crate) fn count_and_list(cpus: &CpuSet) -> String {
    format!("{} {}", plural(cpus.len(), "CPU"), fold(cpus))
}

fn fold(cpus: &CpuSet) -> String {
    fold_ranges(&cpus.ranges().map(|(first, last)| (first.0, last.0)).collect::<Vec<_>>())
}

/// Core numbers may be any numbers, so they do not go through a set.
fn fold_numbers(mut numbers: Vec<u32>) -> String {
    numbers.sort_unstable();
    numbers.dedup();
    let ranges = numbers.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    fold_ranges(&ranges.filter_map(|run| Some((*run.first()?, *run.last()?))).collect::<Vec<_>>())
}

/// The kernel's list form, with many equal steps in its grouped form (`bitmap_parselist` in `lib/bitmap-str.c`):
/// `0,2,4,6` is `0-6:1/2`. The set type reads both.
fn fold_ranges(ranges: &[(u32, u32)]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut rest = ranges;
    while let [head, tail @ ..] = rest {
        let (first, last) = *head;
        let step = tail.first().map_or(0, |next| next.0 - first);
        let mut end = *head;
        let run = tail.iter().take_while(|next| {
            let is_next = next.0 - end.0 == step && next.1 - next.0 == last - first;
            if is_next {
                end = **next;
            }
            is_next
        });
        let steps = 1 + run.count();
        if steps >= STEPS_FOLDED {
            parts.push(format!("{first}-{}:{}/{step}", end.1, last - first + 1));
            rest = rest.get(steps..).unwrap_or_default();
            continue;
        }
        parts.push(if first == last { first.to_string() } else { format!("{first}-{last}") });
        rest = tail;
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use bayplan_types::CpuId;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_steps_fold_and_few_steps_do_not() {
        for (list, folded) in [
            ("", ""),
            ("0-3", "0-3"),
            ("0,56", "0,56"),
            ("0,2,4", "0,2,4"),
            ("0,2,4,6", "0-6:1/2"),
            ("1,3,5,7,100", "1-7:1/2,100"),
            ("0-1,8-9,16-17,24-25,40", "0-25:2/8,40"),
            ("0-13,112-125", "0-13,112-125"),
        ] {
            assert_eq!(fold(&list.parse().unwrap()), folded, "{list}");
        }
    }

    proptest! {
        #[test]
        fn a_folded_text_is_the_same_set(members in prop::collection::btree_set(0_u32..200, 0..60)) {
            let cpus: CpuSet = members.into_iter().map(CpuId).collect();
            prop_assert_eq!(fold(&cpus).parse::<CpuSet>().unwrap(), cpus);
        }
    }
}
