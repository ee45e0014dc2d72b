//! The machine as a graph for Graphviz. In: a [`Topology`]. Out: a text that `dot` reads.
//!
//! Objects are clusters in clusters. Cores of a kind are one node, and so are equal L3s and smaller objects side by side, because a
//! graph with a node per core shows nothing. Memory and devices are nodes of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use bayplan_types::{Bytes, CoreKind, CpuSet, NodeId};

use crate::picture::devices::Devices;
use crate::picture::machine::children_without_only_die;
use crate::picture::memory::size_and_kind;
use crate::picture::page::headline;
use crate::picture::style::{Style, style_of};
use crate::picture::text::printable;
use bayplan_topology::{Level, NumaNode, Object, ObjectIdx, Topology};
use bayplan_types::fold::{count_and_list, fold_numbers, plural};

/// From this many equal siblings on, they are one cluster.
const SIBLINGS_FOLDED: usize = 3;
/// A longer list of CPUs would be wider than everything else.
const LIST_CHARS_MAX: usize = 80;
/// With more nodes that have CPUs, edges with distances are a thicket.
const DISTANCES_SHOWN: usize = 8;

/// The machine as a Graphviz graph: a cluster per object, memory and devices as nodes, distances between NUMA nodes on dashed edges.
pub fn render_dot(topology: &Topology) -> String {
    let mut graph = Graph {
        topology,
        devices: Devices::new(topology),
        text: String::new(),
        depth: 1,
        nodes: 0,
    };
    graph.text.push_str("graph bayplan {\n");
    graph.line(
        "graph [fontname=\"sans-serif\", fontsize=11, labeljust=l, rankdir=LR, compound=true];",
    );
    graph.line(
        "node [fontname=\"sans-serif\", fontsize=10, shape=box, style=filled, fillcolor=white];",
    );
    graph.line("edge [fontname=\"sans-serif\", fontsize=9];");
    graph.line(&format!("label={};", quoted(&[headline(topology).join(", ")])));
    graph.line("labelloc=t;");
    graph.object(topology.root(), Place::Known);
    graph.distances();
    graph.text.push_str("}\n");
    graph.text
}

struct Graph<'a> {
    topology: &'a Topology,
    devices: Devices<'a>,
    text: String,
    depth: usize,
    /// How many nodes of the graph have a number for a name.
    nodes: usize,
}

impl<'a> Graph<'a> {
    fn line(&mut self, line: &str) {
        let indent = "  ".repeat(self.depth);
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{indent}{line}");
    }

    /// A node of the graph, and its name.
    fn node(&mut self, lines: &[String], look: &str) -> String {
        let name = format!("n{}", self.nodes);
        self.nodes += 1;
        self.line(&format!("{name} [label={}{look}];", quoted(lines)));
        name
    }

    fn object(&mut self, object: &'a Object, place: Place) {
        self.folded(&[object], place);
    }

    /// Equal objects as one cluster.
    fn folded(&mut self, equal: &[&'a Object], place: Place) {
        let Some(first) = equal.first() else { return };
        self.line(&format!("subgraph cluster_{} {{", first.idx.0));
        self.depth += 1;
        let mut label = vec![self.name(equal, place)];
        if place == Place::Known {
            let cpus: CpuSet = equal.iter().flat_map(|object| object.cpus.iter()).collect();
            label.push(cpus_text(&cpus));
        }
        self.line(&format!("label={};", quoted(&label)));
        self.line(&format!("style=filled; fillcolor=\"{}\";", style_of(first.level).color()));
        match first.level {
            Level::NumaNode => {
                let node = self.topology.node(NodeId(first.id));
                node.into_iter().for_each(|node| self.memories(node, &[]));
            }
            Level::Machine => self.of_the_machine(),
            _ => {}
        }
        self.inside(first, if equal.len() > 1 { Place::Example } else { place });
        self.depth -= 1;
        self.line("}");
    }

    /// `12 \u{d7} L3 0-11, 32 MiB each`.
    fn name(&self, equal: &[&Object], place: Place) -> String {
        let Some(first) = equal.first() else { return String::new() };
        let mut name = match equal.len() {
            1 => first.level.to_string(),
            count => format!("{count} \u{d7} {}", first.level),
        };
        // Numbers of clusters and level 2 caches say nothing: mostly the lowest CPU.
        let has_number = !matches!(first.level, Level::Machine | Level::Cluster | Level::L2);
        if place == Place::Known && has_number {
            let ids = fold_numbers(equal.iter().map(|object| object.id).collect());
            let _ = write!(name, " {ids}");
        }
        if let Some(size) = cache_size(self.topology, first) {
            let each = if equal.len() > 1 { " each" } else { "" };
            let _ = write!(name, ", {size}{each}");
        }
        name
    }

    fn inside(&mut self, object: &'a Object, place: Place) {
        let topology = self.topology;
        let mut in_cores = object.cpus.clone();
        let mut groups: Vec<(Form, Vec<&Object>)> = Vec::new();
        let children = children_without_only_die(topology, object).into_iter();
        for child in children.filter(|child| child.level != Level::Core) {
            in_cores.subtract(&child.cpus);
            let form = Form::new(topology, child);
            match groups.iter_mut().find(|(known, _)| *known == form) {
                Some((_, group)) => group.push(child),
                None => groups.push((form, vec![child])),
            }
        }
        self.cores(&in_cores, place);
        for (form, group) in groups {
            if group.len() >= SIBLINGS_FOLDED && !form.has_places {
                self.folded(&group, place);
            } else {
                group.iter().for_each(|object| self.object(object, place));
            }
        }
    }

    /// Cores with the same number of threads and of the same kind, as one node.
    fn cores(&mut self, cpus: &CpuSet, place: Place) {
        for ((kind, threads), cores) in kinds_of_cores(self.topology, cpus) {
            let all: CpuSet = cores.iter().flat_map(CpuSet::iter).collect();
            let kind = kind.map(|kind| format!("{} ", kind.name().to_lowercase()));
            let noun = format!("{}core", kind.unwrap_or_default());
            let of = if threads > 1 { format!(" of {threads} threads") } else { String::new() };
            let mut lines = vec![format!("{}{of}", plural(cores.len(), &noun))];
            lines.extend((place == Place::Known).then(|| cpus_text(&all)));
            self.node(&lines, "");
        }
    }

    /// The memory of a node, and that of the nodes near it.
    fn memories(&mut self, node: &NumaNode, more: &[String]) {
        let topology = self.topology;
        self.memory(node, more);
        for other in topology.nodes().iter().filter(|other| other.near == Some(node.id)) {
            self.memory(other, &[format!("near NumaNode {}", node.id)]);
            let distance =
                topology.distance(node.id, other.id).map(|distance| distance.to_string());
            let label = quoted(&[distance.unwrap_or_default()]);
            self.line(&format!("m{} -- m{} [label={label}];", node.id, other.id));
        }
    }

    fn memory(&mut self, node: &NumaNode, more: &[String]) {
        let mut lines = vec![format!("NumaNode {}", node.id), size_and_kind(node)];
        lines.extend(more.iter().cloned());
        let look = format!("shape=cylinder, fillcolor=\"{}\"", Style::Memory(node.kind).color());
        self.line(&format!("m{} [label={}, {look}];", node.id, quoted(&lines)));
        self.devices(Some(node.id), &format!("m{}", node.id));
    }

    fn devices(&mut self, node: Option<NodeId>, at: &str) {
        for told in self.devices.of_node(node) {
            let lines = [told.name, told.facts.join(", ")];
            let color = Style::Device(told.kind).color();
            let name = self.node(&lines, &format!(", shape=component, fillcolor=\"{color}\""));
            if !at.is_empty() {
                self.line(&format!("{at} -- {name};"));
            }
        }
    }

    /// What is in no object below: devices of no node, and nodes that do not nest or hang on no other node.
    fn of_the_machine(&mut self) {
        let topology = self.topology;
        self.devices(None, "");
        let is_nested = |node: &NumaNode| {
            let mut objects = topology.objects().iter();
            objects.any(|object| object.level == Level::NumaNode && object.id == node.id.0)
        };
        for node in topology.nodes().iter().filter(|node| node.near.is_none() && !is_nested(node)) {
            let cpus =
                if node.cpus.is_empty() { "no CPUs".to_owned() } else { cpus_text(&node.cpus) };
            self.memories(node, &[cpus]);
        }
        if !topology.offline().is_empty() {
            let lines = ["offline".to_owned(), cpus_text(topology.offline())];
            self.node(&lines, ", style=dashed");
        }
    }

    /// Between the nodes of a package each distance has an edge; between two packages one edge is enough where all are equal.
    fn distances(&mut self) {
        let nodes = self.topology.nodes().iter().filter(|node| !node.cpus.is_empty());
        if nodes.clone().count() > DISTANCES_SHOWN {
            return;
        }
        let mut groups: BTreeMap<_, Vec<&NumaNode>> = BTreeMap::new();
        for node in nodes {
            let package = self.package_around(node);
            // A node in no package is a group of its own.
            let key = package.map_or((None, Some(node.id)), |package| (Some(package), None));
            groups.entry(key).or_default().push(node);
        }
        let groups: Vec<_> =
            groups.into_iter().map(|((package, _), nodes)| (package, nodes)).collect();
        for (at, (package, nodes)) in groups.iter().enumerate() {
            for (at, one) in nodes.iter().enumerate() {
                nodes.iter().skip(at + 1).for_each(|other| self.distance(one, other, ""));
            }
            for (other_package, others) in groups.iter().skip(at + 1) {
                let packages = package.zip(*other_package);
                self.distances_across(nodes, others, packages);
            }
        }
    }

    fn distances_across(
        &mut self,
        nodes: &[&NumaNode],
        others: &[&NumaNode],
        packages: Option<(ObjectIdx, ObjectIdx)>,
    ) {
        let pairs = || nodes.iter().flat_map(|one| others.iter().map(move |other| (*one, *other)));
        let texts: BTreeSet<_> =
            pairs().map(|(one, other)| self.distance_text(one, other)).collect();
        match (packages, pairs().next()) {
            (Some((tail, head)), Some((one, other))) if texts.len() == 1 => {
                let clusters = format!(", ltail=cluster_{}, lhead=cluster_{}", tail.0, head.0);
                self.distance(one, other, &clusters);
            }
            _ => pairs().for_each(|(one, other)| self.distance(one, other, "")),
        }
    }

    /// The package that the node's box is in. One that stands beside the tree is in none, whatever its CPUs.
    fn package_around(&self, node: &NumaNode) -> Option<ObjectIdx> {
        let mut objects = self.topology.objects().iter();
        let is_it = |object: &&Object| object.level == Level::NumaNode && object.id == node.id.0;
        let mut object = objects.find(is_it)?;
        while object.level != Level::Package {
            object = self.topology.object(object.parent?);
        }
        Some(object.idx)
    }

    /// `21`; `21/31` where it is farther there than back.
    fn distance_text(&self, one: &NumaNode, other: &NumaNode) -> Option<String> {
        let there = self.topology.distance(one.id, other.id);
        let back = self.topology.distance(other.id, one.id);
        match there.zip(back) {
            Some((there, back)) if there != back => Some(format!("{there}/{back}")),
            _ => there.or(back).map(|distance| distance.to_string()),
        }
    }

    fn distance(&mut self, one: &NumaNode, other: &NumaNode, clusters: &str) {
        let Some(text) = self.distance_text(one, other) else { return };
        let (from, to, label) = (one.id, other.id, quoted(&[text]));
        self.line(&format!("m{from} -- m{to} [style=dashed, label={label}{clusters}];"));
    }
}

/// Whether a cluster stands for itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Known,
    /// Inside of a cluster that stands for several, so that numbers would be those of the first one.
    Example,
}

/// What makes siblings equal.
#[derive(PartialEq, Eq)]
struct Form {
    level: Level,
    size: Option<Bytes>,
    /// Kinds of cores with their numbers.
    cores: Vec<(CoreForm, usize)>,
    inside: Vec<Form>,
    /// Holds something that is somewhere and not just one of several.
    has_places: bool,
}

/// Kind and number of threads.
type CoreForm = (Option<CoreKind>, usize);

impl Form {
    fn new(topology: &Topology, object: &Object) -> Form {
        let children = children_without_only_die(topology, object).into_iter();
        let inside = children.filter(|child| child.level != Level::Core);
        let inside: Vec<Form> = inside.map(|child| Form::new(topology, child)).collect();
        let cores = kinds_of_cores(topology, &object.cpus);
        Form {
            level: object.level,
            size: cache_size(topology, object),
            cores: cores.into_iter().map(|(form, cores)| (form, cores.len())).collect(),
            has_places: object.level <= Level::NumaNode
                || inside.iter().any(|form| form.has_places),
            inside,
        }
    }
}

/// The cores that have some of these CPUs, by kind and number of threads.
fn kinds_of_cores(topology: &Topology, cpus: &CpuSet) -> BTreeMap<CoreForm, Vec<CpuSet>> {
    let mut kinds: BTreeMap<CoreForm, Vec<CpuSet>> = BTreeMap::new();
    for cpu in cpus.iter() {
        let Some(core) = topology.core_of(cpu).map(|core| core.intersection(cpus)) else {
            continue;
        };
        if core.first() == Some(cpu) {
            kinds.entry((topology.core_kind(cpu), core.len())).or_default().push(core);
        }
    }
    kinds
}

fn cache_size(topology: &Topology, object: &Object) -> Option<Bytes> {
    let level = match object.level {
        Level::L3 => 3,
        Level::L2 => 2,
        _ => return None,
    };
    let mut caches = topology.caches().iter().filter(|cache| cache.level == level);
    caches.find(|cache| cache.cpus == object.cpus)?.size
}

/// Number and list; the number alone where the list would be very long.
fn cpus_text(cpus: &CpuSet) -> String {
    let text = count_and_list(cpus);
    if text.len() <= LIST_CHARS_MAX { text } else { plural(cpus.len(), "CPU") }
}

/// Lines as one quoted string. Graphviz reads escapes and, in labels, the entities of HTML.
fn quoted(lines: &[String]) -> String {
    let mut text = "\"".to_owned();
    for (at, line) in lines.iter().enumerate() {
        if at > 0 {
            text.push_str("\\n");
        }
        for c in line.chars().map(printable) {
            match c {
                '"' | '\\' => text.extend(['\\', c]),
                '&' => text.push_str("&amp;"),
                _ => text.push(c),
            }
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests;
