//! The sheet: a headline, the machine and its legend.

use std::collections::BTreeSet;

use bayplan_types::{Bytes, CpuSet, MemoryKind};

use crate::picture::block::{Block, Section};
use crate::picture::legend::legend_block;
use crate::picture::machine::Machine;
use crate::picture::seating::Seating;
use crate::picture::style::Style;
use crate::picture::text::{Font, Paragraph};
use bayplan_topology::{Level, Topology};
use bayplan_types::fold::plural;

/// Everything that stands on the sheet.
pub(crate) fn page_block(topology: &Topology, seating: &Seating) -> Block {
    let machine = Machine::new(topology, seating);
    let facts = headline(topology);
    let mut page = Block::new(Style::Page, facts.join(", "));
    let headline = Paragraph::of_facts(Font::Headline, &facts);
    page.at_least.width = headline.width_max() + 2 * Style::Page.padding();
    page.texts.push(headline);
    page.texts.push(Paragraph::of_facts(Font::Plain, &details(topology, machine.devices_told())));
    page.push(Section::of_boxes(vec![machine.block()], 0));
    page.push(Section::of_strips(vec![legend_block(topology, seating, machine.cells())], 0));
    page
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
