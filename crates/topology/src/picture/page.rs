//! The sheet: a headline, the machine, and a legend of what occurs in it.

use std::collections::BTreeSet;

use bayplan_types::{Bytes, CoreKind, CpuClass, CpuPriority, CpuSet, MemoryKind};

use crate::fold::{count_and_list, plural};
use crate::picture::block::{Block, Section};
use crate::picture::cells::Cells;
use crate::picture::machine::Machine;
use crate::picture::seating::{Group, Seating};
use crate::picture::style::{Bar, CoreLook, CpuLook, Hatch, Style};
use crate::picture::text::{Font, Paragraph};
use crate::topology::{Level, Topology};

const LEGEND_GAP: usize = 6;
/// Containers of a pool beyond this number are counted, not listed.
const GUESTS_SHOWN: usize = 24;

/// Everything that stands on the sheet.
pub(crate) fn page_block(topology: &Topology, seating: &Seating) -> Block {
    let machine = Machine::new(topology, seating);
    let mut page = Block::new(Style::Page, "");
    let headline = Paragraph::of_facts(Font::Headline, &headline(topology));
    page.at_least.width = headline.width_max() + 2 * Style::Page.padding();
    page.texts.push(headline);
    page.texts.push(Paragraph::of_facts(Font::Plain, &details(topology)));
    page.push(Section::of_boxes(vec![machine.block()], 0));
    let entries = legend(topology, seating, machine.cells());
    let mut legend = Block::new(Style::Legend, "");
    legend.push(Section::of_chips(entries, LEGEND_GAP));
    page.push(Section::of_strips(vec![legend], 0));
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
fn details(topology: &Topology) -> Vec<String> {
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
    let devices = topology.devices().iter().filter(|device| device.physical.is_none()).count();
    facts.extend((devices > 0).then(|| plural(devices, "device")));
    facts
}

/// `2 threads per core`, where all cores have as many.
fn threads(topology: &Topology) -> Option<String> {
    let mut counts = topology.cores().iter().map(CpuSet::len);
    let first = counts.next()?;
    counts.all(|count| count == first).then(|| format!("{} per core", plural(first, "thread")))
}

/// An entry per thing that occurs and does not explain itself.
fn legend(topology: &Topology, seating: &Seating, cells: &Cells<'_>) -> Vec<Block> {
    let mut groups: Vec<&Group> = seating.groups().iter().collect();
    // By letter: they were given out by lowest CPU.
    groups.sort_by_key(|group| group.fill);
    let mut entries: Vec<Block> = groups.iter().map(|group| entry_of_group(group, cells)).collect();
    let plain = CpuLook::default();
    let cpu = |look: CpuLook, text: &str| entry(cells.blank_cpu(look, String::new()), text);
    let core = |look: CoreLook, text: &str| {
        let mut icon = Block::new(Style::Core(look), "");
        icon.push(Section::of_boxes(vec![cells.blank_cpu(plain, String::new())], 0));
        entry(icon, text)
    };
    for (kind, _) in topology.core_kinds() {
        entries.push(match kind {
            CoreKind::Performance => core(CoreLook::Performance, "performance core"),
            CoreKind::Efficient => core(CoreLook::Efficient, "efficient core"),
        });
    }
    if topology.core_kinds().is_empty() {
        entries.push(core(CoreLook::Plain, "a core and its CPUs"));
    }
    let isolated = CpuLook { hatch: Some(Hatch::Isolated), ..plain };
    let partitioned = CpuLook { hatch: Some(Hatch::Partitioned), ..plain };
    let (high, low) =
        (CpuLook { bar: Some(Bar::High), ..plain }, CpuLook { bar: Some(Bar::Low), ..plain });
    let is_marked_low = |cpu| topology.core_kind(cpu) != Some(CoreKind::Efficient);
    let has_low = topology.cpus_of_priority(CpuPriority::Low).iter().any(is_marked_low);
    let has_high = !topology.cpus_of_priority(CpuPriority::High).is_empty();
    let only_partitioned = topology.partitioned().difference(topology.isolated());
    let explained = groups.iter().any(|group| group.seat.class == CpuClass::Isolated);
    let marks = [
        (!topology.isolated().is_empty() && !explained, isolated, "isolated"),
        (!only_partitioned.is_empty(), partitioned, "in an isolated partition"),
        (has_high, high, "high priority"),
        (has_low, low, "low priority"),
    ];
    entries.extend(
        marks.iter().filter(|(occurs, ..)| *occurs).map(|(_, look, text)| cpu(*look, text)),
    );
    entries
}

fn entry(icon: Block, text: &str) -> Block {
    let mut entry = Block::new(Style::Invisible, "");
    entry.icon = Some(Box::new(icon));
    entry.texts.push(Paragraph::of_words(Font::Plain, text));
    entry
}

fn entry_of_group(group: &Group, cells: &Cells<'_>) -> Block {
    let seat = &group.seat;
    let hatch = (seat.class == CpuClass::Isolated).then_some(Hatch::Isolated);
    let look = CpuLook { fill: group.fill, hatch, bar: None };
    let mut icon = cells.blank_cpu(look, String::new());
    icon.texts.push(Paragraph::of_words(Font::Plain, &group.letter));
    let class = seat.class.name();
    let name = match (seat.class, seat.label.as_str()) {
        (_, "") => class.to_owned(),
        (CpuClass::Exclusive, label) => label.to_owned(),
        (_, label) => format!("{class}, {label}"),
    };
    let mut entry = entry(icon, &name);
    entry.texts.push(Paragraph::of_list(Font::Small, &count_and_list(&group.cpus)));
    let mut guests: Vec<String> = seat.guests.iter().take(GUESTS_SHOWN).cloned().collect();
    let more = seat.guests.len().checked_sub(GUESTS_SHOWN).filter(|more| *more > 0);
    guests.extend(more.map(|more| format!("and {more} more")));
    entry.texts.push(Paragraph::of_facts(Font::Small, &guests));
    entry
}
