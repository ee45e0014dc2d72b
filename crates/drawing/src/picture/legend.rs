//! The legend: an entry per thing that occurs in the picture and does not explain itself.

use bayplan_types::{CoreKind, CpuClass, CpuPriority, CpuSet};

use crate::picture::block::{Block, Section};
use crate::picture::cells::Cells;
use crate::picture::seating::{Group, Seating};
use crate::picture::style::{Bar, CoreLook, CpuLook, Hatch, Style};
use crate::picture::text::{Font, Paragraph};
use bayplan_topology::Topology;
use bayplan_types::fold::count_and_list;

const ENTRY_GAP: usize = 7;
/// Containers of a pool beyond this number are counted, not listed.
const GUESTS_SHOWN: usize = 12;

/// Containers with exclusive CPUs, containers that share some, and what the marks mean: each in rows of its own.
pub(crate) fn legend_block(topology: &Topology, seating: &Seating, cells: &Cells<'_>) -> Block {
    let mut groups: Vec<&Group> = seating.groups().iter().collect();
    // By letter: they were given out by lowest CPU.
    groups.sort_by_key(|group| group.fill);
    let (pools, owners): (Vec<&Group>, Vec<&Group>) =
        groups.into_iter().partition(|group| group.seat.class == CpuClass::Shared);
    let entries =
        |groups: &[&Group]| groups.iter().map(|group| entry_of_group(group, cells)).collect();
    let mut legend = Block::new(Style::Legend, "");
    legend.push(Section::of_chips(entries(&owners), ENTRY_GAP));
    legend.push(Section::of_chips(entries(&pools), ENTRY_GAP));
    let mut marks = cores(topology, cells);
    let explained = owners.iter().any(|group| group.seat.class == CpuClass::Isolated);
    marks.extend(marks_of_cpus(topology, cells, explained));
    legend.push(Section::of_chips(marks, ENTRY_GAP));
    legend
}

/// What stands for a core.
fn cores(topology: &Topology, cells: &Cells<'_>) -> Vec<Block> {
    let core = |look: CoreLook, text: &str| {
        let mut icon = Block::new(Style::Core(look), "");
        let cpu = cells.blank_cpu(CpuLook::default(), String::new());
        icon.push(Section::of_boxes(vec![cpu], 0));
        entry(icon, Paragraph::of_name(Font::Plain, text))
    };
    let kinds = topology.core_kinds().iter().map(|(kind, _)| match kind {
        CoreKind::Performance => core(CoreLook::Performance, "performance core"),
        CoreKind::Efficient => core(CoreLook::Efficient, "efficient core"),
    });
    match topology.core_kinds() {
        [] => vec![core(CoreLook::Plain, "a core and its CPUs")],
        _ => kinds.collect(),
    }
}

/// What else shows on CPUs.
fn marks_of_cpus(topology: &Topology, cells: &Cells<'_>, is_explained: bool) -> Vec<Block> {
    let hatched = |hatch| CpuLook { hatch: Some(hatch), ..CpuLook::default() };
    let barred = |bar| CpuLook { bar: Some(bar), ..CpuLook::default() };
    let only_partitioned = topology.partitioned().difference(topology.isolated());
    let of_priority = |priority| topology.cpus_of_priority(priority);
    let is_marked_low = |cpu| topology.core_kind(cpu) != Some(CoreKind::Efficient);
    let low: CpuSet =
        of_priority(CpuPriority::Low).iter().filter(|cpu| is_marked_low(*cpu)).collect();
    let is_isolated_unexplained = !topology.isolated().is_empty() && !is_explained;
    let marks = [
        (is_isolated_unexplained, hatched(Hatch::Isolated), "isolated"),
        (!only_partitioned.is_empty(), hatched(Hatch::Partitioned), "in an isolated partition"),
        (!of_priority(CpuPriority::High).is_empty(), barred(Bar::High), "high priority"),
        (!low.is_empty(), barred(Bar::Low), "low priority"),
    ];
    let occurring = marks.into_iter().filter(|(occurs, ..)| *occurs);
    let entries = occurring.map(|(_, look, text)| {
        entry(cells.blank_cpu(look, String::new()), Paragraph::of_name(Font::Plain, text))
    });
    entries.collect()
}

fn entry(icon: Block, text: Paragraph) -> Block {
    let mut entry = Block::new(Style::Invisible, "");
    entry.icon = Some(Box::new(icon));
    entry.texts.push(text);
    entry
}

fn entry_of_group(group: &Group, cells: &Cells<'_>) -> Block {
    let seat = &group.seat;
    let hatch = match seat.class {
        CpuClass::Isolated => Some(Hatch::Isolated),
        CpuClass::Reserved => Some(Hatch::Reserved),
        CpuClass::Exclusive | CpuClass::Shared => None,
    };
    let look = CpuLook { fill: group.fill, hatch, bar: None };
    let mut icon = cells.blank_cpu(look, String::new());
    icon.texts.push(Paragraph::of_name(Font::Plain, &group.letter));
    let class = seat.class.name();
    let name = match (seat.class, seat.label.as_str()) {
        (_, "") => class.to_owned(),
        (CpuClass::Exclusive, label) => label.to_owned(),
        (_, label) => format!("{class}, {label}"),
    };
    let mut entry = entry(icon, Paragraph::of_words(Font::Plain, &name));
    entry.texts.push(Paragraph::of_list(Font::Small, &count_and_list(&group.cpus)));
    let mut guests: Vec<String> = seat.guests.iter().take(GUESTS_SHOWN).cloned().collect();
    let more = seat.guests.len().checked_sub(GUESTS_SHOWN).filter(|more| *more > 0);
    guests.extend(more.map(|more| format!("and {more} more")));
    entry.texts.push(Paragraph::of_facts(Font::Small, &guests));
    entry
}
