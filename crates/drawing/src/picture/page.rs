//! The sheet: a headline, the machine and its legend.

use std::collections::BTreeSet;

use bayplan_types::{Bytes, CpuSet, MemoryKind};

use crate::picture::block::{Block, Section};
use crate::picture::legend::legend_block;
use crate::picture::machine::Machine;
use crate::picture::seating::Seating;
use crate::picture::style::Style;
use crate::picture::text::{Font, Paragraph};
use bayplan_topology::{Level, NumaNode, Topology};
use bayplan_types::fold::plural;

/// More NUMA nodes than this have no table of distances: it would be larger than the machine.
const NODES_MAX: usize = 16;
/// Room between numbers.
const NUMBER_GAP: usize = 4;

/// Everything that stands on the sheet; `title` may be empty.
pub(crate) fn page_block(topology: &Topology, title: &str, seating: &Seating) -> Block {
    let machine = Machine::new(topology, seating);
    let facts = headline(topology);
    let hover = match title {
        "" => facts.join(", "),
        title => format!("{title}: {}", facts.join(", ")),
    };
    let mut page = Block::new(Style::Page, hover);
    if !title.is_empty() {
        page.texts.push(Paragraph::of_words(Font::Name, title));
    }
    let headline = Paragraph::of_facts(Font::Headline, &facts);
    page.at_least.width = headline.width_max() + 2 * Style::Page.padding();
    page.texts.push(headline);
    page.texts.push(Paragraph::of_facts(Font::Plain, &details(topology, machine.devices_told())));
    page.push(Section::of_boxes(vec![machine.block()], 0));
    page.push(Section::of_strips(distances(topology).into_iter().collect(), 0));
    page.push(Section::of_strips(vec![legend_block(topology, seating, machine.cells())], 0));
    page
}

/// A table of the kernel's distances, from the node of a row to that of a column; `None` for a machine with one node, and where the kernel
/// does not say.
fn distances(topology: &Topology) -> Option<Block> {
    let nodes = topology.nodes();
    let is_known = nodes.iter().any(|from| topology.distance(from.id, from.id).is_some());
    if nodes.len() < 2 || nodes.len() > NODES_MAX || !is_known {
        return None;
    }
    let cell = |text: String| {
        let mut cell = Block::new(Style::Invisible, "");
        cell.texts.push(Paragraph::of_name(Font::Small, &text));
        cell
    };
    let mut cells = vec![cell("from to".to_owned())];
    cells.extend(nodes.iter().map(|to| cell(format!("node {}", to.id))));
    for from in nodes {
        cells.push(cell(format!("node {}", from.id)));
        let distance = |to: &NumaNode| topology.distance(from.id, to.id);
        let text = |to| distance(to).map_or_else(|| "-".to_owned(), |it| it.to_string());
        cells.extend(nodes.iter().map(|to| cell(text(to))));
    }
    let mut block = Block::new(Style::Invisible, "distances between NUMA nodes");
    block.texts.push(Paragraph::of_words(Font::Plain, "Distances between NUMA nodes"));
    let columns = Some(nodes.len() + 1);
    block.push(Section { columns, ..Section::of_chips(cells, NUMBER_GAP) });
    Some(block)
}

/// `224 CPUs, 112 cores, 2 packages, 128 GiB`.
pub(crate) fn headline(topology: &Topology) -> Vec<String> {
    let packages = count(topology, Level::Package);
    let mut facts =
        vec![plural(topology.cpus().len(), "CPU"), plural(topology.cores().len(), "core")];
    facts.extend((packages > 0).then(|| plural(packages, "package")));
    // One node of unknown size makes the sum unknown.
    let sizes: Option<Vec<Bytes>> = topology.nodes().iter().map(|node| node.memory).collect();
    let sizes = sizes.filter(|sizes| !sizes.is_empty());
    facts.extend(sizes.map(|sizes| sizes.into_iter().sum::<Bytes>().to_string()));
    facts
}

fn count(topology: &Topology, level: Level) -> usize {
    topology.objects().iter().filter(|object| object.level == level).count()
}

/// What else can be counted.
fn details(topology: &Topology, devices: usize) -> Vec<String> {
    let mut facts = Vec::new();
    for (kind, cpus) in topology.core_kinds() {
        let of_kind = |core: &&CpuSet| core.first().is_some_and(|cpu| cpus.contains(cpu));
        let cores = topology.cores().iter().filter(of_kind).count();
        facts.push(plural(cores, &format!("{} core", kind.name().to_lowercase())));
    }
    facts.extend(threads(topology));
    let nodes = topology.nodes();
    facts.extend((!nodes.is_empty()).then(|| plural(nodes.len(), "NUMA node")));
    let kinds: BTreeSet<MemoryKind> = nodes.iter().map(|node| node.kind).collect();
    for kind in kinds.iter().filter(|_| kinds.len() > 1) {
        let of_kind = nodes.iter().filter(|node| node.kind == *kind);
        let sizes: Option<Bytes> = of_kind.map(|node| node.memory).sum();
        facts.extend(sizes.map(|size| format!("{size} {kind}")));
    }
    let l3s = count(topology, Level::L3);
    facts.extend((l3s > 0).then(|| plural(l3s, "L3")));
    facts.extend((devices > 0).then(|| plural(devices, "device")));
    facts
}

/// `2 threads per core`, where all cores have as many.
fn threads(topology: &Topology) -> Option<String> {
    let mut counts = topology.cores().iter().map(CpuSet::len);
    let first = counts.next()?;
    counts.all(|count| count == first).then(|| format!("{} per core", plural(first, "thread")))
}
