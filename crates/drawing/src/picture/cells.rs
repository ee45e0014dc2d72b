//! Cores as cells, with their CPUs side by side.
//!
//! All cells of a machine have the same room for a CPU, so that cores of different packages look alike. With very many CPUs a CPU
//! is a square without a number, and the numbers of all the cores stand above them as a list.

use std::collections::BTreeMap;

use bayplan_types::{CoreKind, CpuClass, CpuId, CpuPriority, CpuSet};

use crate::picture::block::{Block, Growth, Section, Size};
use crate::picture::seating::Seating;
use crate::picture::style::{Bar, CoreLook, CpuLook, Fill, Hatch, Style};
use crate::picture::text::{Font, Paragraph, width};
use bayplan_topology::{Cache, Topology};
use bayplan_types::fold::{name_cpus, plural};

/// Up to so many CPUs the numbers are as large as other texts.
const CPUS_PLAIN_MAX: usize = 512;
/// Beyond so many CPUs there are no numbers: on a sheet of paper they could not be read.
const CPUS_NUMBERED_MAX: usize = 1536;
/// More threads than this stand in two rows.
const THREADS_PER_ROW: usize = 4;
/// Room beside a CPU's number, and the side of a CPU without one.
const NUMBER_MARGIN: usize = 2;
const SQUARE: usize = 6;

/// How cores and CPUs of one machine are drawn.
pub(crate) struct Cells<'a> {
    topology: &'a Topology,
    seating: &'a Seating,
    /// `None`: CPUs have no numbers.
    font: Option<Font>,
    cpu_size: Size,
    /// Caches that belong to one core, by its lowest CPU.
    caches: BTreeMap<CpuId, Vec<&'a Cache>>,
}

impl<'a> Cells<'a> {
    pub(crate) fn new(topology: &'a Topology, seating: &'a Seating) -> Cells<'a> {
        let cpus = topology.cpus().len();
        let font = match () {
            () if cpus <= CPUS_PLAIN_MAX => Some(Font::Plain),
            () if cpus <= CPUS_NUMBERED_MAX => Some(Font::Tiny),
            () => None,
        };
        let mut caches: BTreeMap<CpuId, Vec<&Cache>> = BTreeMap::new();
        for cache in topology.caches().iter().filter(|cache| cache.level < 3) {
            let core = cache.cpus.first().and_then(|cpu| topology.core_of(cpu));
            let own = core.filter(|core| cache.cpus.is_subset(core)).and_then(CpuSet::first);
            own.into_iter().for_each(|first| caches.entry(first).or_default().push(cache));
        }
        let mut cells = Cells { topology, seating, font, cpu_size: Size::default(), caches };
        cells.cpu_size = cells.size_of_a_cpu();
        cells
    }

    fn size_of_a_cpu(&self) -> Size {
        let Some(font) = self.font else { return Size { width: SQUARE, height: SQUARE } };
        let digits = self.topology.cpus().last().map_or(1, |cpu| cpu.to_string().len());
        let number = width(&"0".repeat(digits), font);
        let letters = self.seating.groups().iter().map(|group| width(&group.letter, font));
        let widest = letters.max().unwrap_or(0).max(number);
        let lines = if self.seating.is_empty() { 1 } else { 2 };
        Size {
            width: widest + 2 * NUMBER_MARGIN,
            height: lines * font.line_height() + NUMBER_MARGIN,
        }
    }

    /// Whether every CPU has its number on it.
    pub(crate) fn are_numbered(&self) -> bool {
        self.font.is_some()
    }

    /// The cores, each with its number if it has one.
    pub(crate) fn cores(&self, cores: &[(Option<u32>, CpuSet)], gap: usize) -> Section {
        Section::of_cells(cores.iter().map(|(id, cpus)| self.core(*id, cpus)).collect(), gap)
    }

    fn core(&self, id: Option<u32>, cpus: &CpuSet) -> Block {
        let look = match cpus.first().and_then(|cpu| self.topology.core_kind(cpu)) {
            None => CoreLook::Plain,
            Some(CoreKind::Performance) => CoreLook::Performance,
            Some(CoreKind::Efficient) => CoreLook::Efficient,
        };
        let mut block = Block::new(Style::Core(look), self.hover_of_core(id, cpus));
        let rows = cpus.len().div_ceil(THREADS_PER_ROW).max(1);
        block.push(Section {
            blocks: cpus.iter().map(|cpu| self.cpu(cpu)).collect(),
            gap: 0,
            columns: Some(cpus.len().div_ceil(rows)),
            growth: Growth::Any,
        });
        block
    }

    fn hover_of_core(&self, id: Option<u32>, cpus: &CpuSet) -> String {
        let name = id.map_or_else(|| "Core".to_owned(), |id| format!("Core {id}"));
        let mut text = format!("{name}: {}", name_cpus(cpus));
        let first = cpus.first();
        if let Some(kind) = first.and_then(|cpu| self.topology.core_kind(cpu)) {
            text.push_str(&format!(", {kind}"));
        }
        let caches = first.and_then(|cpu| self.caches.get(&cpu)).into_iter().flatten();
        for (level, size) in caches.filter_map(|cache| Some((cache.level, cache.size?))) {
            text.push_str(&format!(", L{level} {size}"));
        }
        text
    }

    fn cpu(&self, cpu: CpuId) -> Block {
        let mut block = self.blank_cpu(self.look(cpu), self.hover_of_cpu(cpu));
        let group = self.seating.group_of(cpu);
        if let Some(font) = self.font {
            block.texts.push(Paragraph::of_name(font, &cpu.to_string()));
            let letter = group.map(|group| group.letter.as_str()).unwrap_or_default();
            block.texts.push(Paragraph::of_name(font, letter));
        }
        block
    }

    /// A CPU without a number, as it stands in the legend, too.
    pub(crate) fn blank_cpu(&self, look: CpuLook, hover: String) -> Block {
        let mut block = Block::new(Style::Cpu(look), hover);
        block.at_least = self.cpu_size;
        block.is_centered = true;
        block
    }

    fn look(&self, cpu: CpuId) -> CpuLook {
        let topology = self.topology;
        let group = self.seating.group_of(cpu);
        let fill = group.map_or(Fill::Empty, |group| group.fill);
        let is_isolated = topology.isolated().contains(cpu)
            || group.is_some_and(|group| group.seat.class == CpuClass::Isolated);
        // That a small core is slow is its nature, and its outline tells it.
        let is_efficient = topology.core_kind(cpu) == Some(CoreKind::Efficient);
        CpuLook {
            fill,
            hatch: match () {
                () if is_isolated => Some(Hatch::Isolated),
                () if topology.partitioned().contains(cpu) => Some(Hatch::Partitioned),
                () if fill == Fill::Reserved => Some(Hatch::Reserved),
                () => None,
            },
            bar: match topology.priority(cpu) {
                CpuPriority::High => Some(Bar::High),
                CpuPriority::Low if !is_efficient => Some(Bar::Low),
                CpuPriority::Low | CpuPriority::Normal => None,
            },
        }
    }

    /// Empty for a CPU of which nothing is to be said beyond its core.
    fn hover_of_cpu(&self, cpu: CpuId) -> String {
        let topology = self.topology;
        let mut facts = Vec::new();
        if let Some(group) = self.seating.group_of(cpu) {
            facts.push(group.seat.class.name().to_owned());
            facts.extend(Some(group.seat.label.clone()).filter(|label| !label.is_empty()));
            if !group.seat.guests.is_empty() {
                facts.push(plural(group.seat.guests.len(), "container"));
            }
        }
        let marks = [
            (topology.isolated(), "isolated"),
            (topology.partitioned(), "in an isolated partition"),
            (topology.nohz_full(), "nohz_full"),
        ];
        facts.extend(
            marks
                .into_iter()
                .filter(|(cpus, _)| cpus.contains(cpu))
                .map(|(_, name)| name.to_owned()),
        );
        match topology.priority(cpu) {
            CpuPriority::High => facts.push("high priority".to_owned()),
            CpuPriority::Low => facts.push("low priority".to_owned()),
            CpuPriority::Normal => {}
        }
        facts.dedup();
        if facts.is_empty() { String::new() } else { format!("CPU {cpu}: {}", facts.join(", ")) }
    }
}
