//! The machine as boxes in boxes. In: a [`Topology`]. Out: a [`Block`] in which every object, core, CPU, node and device has one.
//!
//! The order of nesting is that of the tree, whatever it is. Objects that would only repeat the box around them are left out: the
//! one die of a package.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_types::{CpuSet, NodeId};

use crate::picture::block::{Block, Section};
use crate::picture::cells::Cells;
use crate::picture::devices::Devices;
use crate::picture::memory::{memory_hover, memory_texts};
use crate::picture::seating::Seating;
use crate::picture::style::{Style, style_of};
use crate::picture::text::{Font, Paragraph, width};
use bayplan_topology::{Cache, Level, NumaNode, Object, Topology};
use bayplan_types::fold::{count_and_list, name_cpus, plural};

/// Room between boxes, and between cores.
const BOX_GAP: usize = 5;
const CORE_GAP: usize = 2;
/// Longer lists of CPUs are left to the numbers on the cores.
const LIST_CHARS_MAX: usize = 80;

/// What is looked up while the boxes are made.
pub(crate) struct Machine<'a> {
    topology: &'a Topology,
    cells: Cells<'a>,
    devices: Devices<'a>,
    /// Caches that are objects, by level and lowest CPU.
    caches: BTreeMap<(u32, u32), &'a Cache>,
    /// Nodes that are objects of the tree.
    nested: BTreeSet<NodeId>,
    /// The highest number of each level.
    last_ids: BTreeMap<Level, u32>,
    /// What the widest text about a node's memory needs.
    memory_width: usize,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(topology: &'a Topology, seating: &'a Seating) -> Machine<'a> {
        let caches = topology.caches().iter().filter_map(|cache| {
            let first = cache.cpus.first()?;
            Some(((cache.level, first.0), cache))
        });
        let mut last_ids: BTreeMap<Level, u32> = BTreeMap::new();
        for object in topology.objects() {
            let last = last_ids.entry(object.level).or_default();
            *last = object.id.max(*last);
        }
        let nested = topology.objects().iter().filter(|object| object.level == Level::NumaNode);
        let mut machine = Machine {
            topology,
            cells: Cells::new(topology, seating),
            devices: Devices::new(topology),
            caches: caches.collect(),
            nested: nested.map(|object| NodeId(object.id)).collect(),
            last_ids,
            memory_width: 0,
        };
        let texts = topology.nodes().iter().flat_map(|node| machine.memory_texts(node));
        machine.memory_width = texts.map(|text| text.width_min()).max().unwrap_or(0);
        machine
    }

    pub(crate) fn cells(&self) -> &Cells<'a> {
        &self.cells
    }

    /// How many devices there are, without virtual functions.
    pub(crate) fn devices_told(&self) -> usize {
        self.devices.count()
    }

    /// The box of the whole machine.
    pub(crate) fn block(&self) -> Block {
        let root = self.topology.root();
        let mut block = Block::new(Style::Machine, format!("Machine: {}", name_cpus(&root.cpus)));
        self.fill(&mut block, root);
        block.push(Section::of_strips(self.nodes_beside(), BOX_GAP));
        block.push(self.devices(None));
        block.push(Section::of_strips(self.offline().into_iter().collect(), BOX_GAP));
        block
    }

    fn object(&self, object: &'a Object) -> Block {
        let name = format!("{} {}", object.level, object.id);
        let hover = format!("{name}: {}", count_and_list(&object.cpus));
        let mut block = Block::new(style_of(object.level), hover);
        block.at_least.width = self.name_width(object.level);
        match object.level {
            Level::NumaNode => self.node(&mut block, NodeId(object.id)),
            Level::L3 => block.texts.push(self.cache_name(&name, 3, object, Font::Plain)),
            // Their numbers say nothing: mostly the lowest CPU.
            Level::L2 => block.texts.push(self.cache_name("L2", 2, object, Font::Small)),
            Level::Cluster => block.texts.push(Paragraph::of_words(Font::Small, "cluster")),
            _ => block.texts.push(Paragraph::of_name(Font::Name, &name)),
        }
        if object.level == Level::Package && self.is_listed(object) {
            block.texts.push(self.cpu_list(&object.cpus));
        }
        self.fill(&mut block, object);
        if object.level == Level::NumaNode {
            block.push(self.devices(Some(NodeId(object.id))));
        }
        block
    }

    /// The cores, the frames and the boxes of an object.
    fn fill(&self, block: &mut Block, object: &'a Object) {
        let mut cores = Vec::new();
        let mut frames = Vec::new();
        let mut boxes = Vec::new();
        let mut rest = object.cpus.clone();
        for child in children_without_only_die(self.topology, object) {
            rest.subtract(&child.cpus);
            match child.level {
                Level::Core => cores.push((Some(child.id), child.cpus.clone())),
                Level::Cluster | Level::L2 => frames.push(self.object(child)),
                _ => boxes.push(self.object(child)),
            }
        }
        cores.extend(self.cores_of(&rest).map(|core| (None, core)));
        cores.sort_by_key(|(_, cpus)| cpus.first());
        let in_cores: CpuSet = cores.iter().flat_map(|(_, cpus)| cpus.iter()).collect();
        let is_listed = self.is_listed(object) && in_cores == object.cpus;
        if !self.cells.are_numbered() && !is_listed && !in_cores.is_empty() {
            let mut list = Block::new(Style::Invisible, "");
            list.texts.push(Paragraph::of_list(Font::Tiny, &name_cpus(&in_cores)));
            block.push(Section::of_strips(vec![list], 0));
        }
        block.push(self.cells.cores(&cores, CORE_GAP));
        block.push(Section::of_boxes(frames, CORE_GAP + 1));
        block.push(Section::of_boxes(boxes, BOX_GAP));
    }

    /// What the longest name of a level needs, so that boxes with equal contents stand in equal grids.
    fn name_width(&self, level: Level) -> usize {
        let font = match level {
            Level::Drawer | Level::Book | Level::Package | Level::Die => Font::Name,
            Level::L3 => Font::Plain,
            _ => return 0,
        };
        let last = self.last_ids.get(&level).map_or(0, |id| *id).to_string();
        let name = format!("{level} {}", "0".repeat(last.len()));
        width(&name, font) + 2 * style_of(level).padding()
    }

    /// Whether the box itself says which CPUs it has: NUMA nodes do, packages where there are none.
    fn is_listed(&self, object: &Object) -> bool {
        match object.level {
            Level::NumaNode => true,
            Level::Package => self.nested.is_empty(),
            _ => false,
        }
    }

    /// CPUs that are in no object below, as cores: some cores have no place in the tree.
    fn cores_of(&self, cpus: &CpuSet) -> impl Iterator<Item = CpuSet> {
        let cores: &[CpuSet] = if cpus.is_empty() { &[] } else { self.topology.cores() };
        let inside = cores.iter().map(|core| core.intersection(cpus));
        inside.filter(|core| !core.is_empty())
    }

    /// Name and size.
    fn cache_name(&self, name: &str, level: u32, object: &Object, font: Font) -> Paragraph {
        let first = object.cpus.first().map_or(0, |cpu| cpu.0);
        let cache = self.caches.get(&(level, first)).filter(|cache| cache.cpus == object.cpus);
        let size = cache.and_then(|cache| cache.size).map(|size| size.to_string());
        Paragraph::of_parts(font, [name.to_owned()].into_iter().chain(size))
    }

    /// The memory of a node, and that of the nodes near it.
    fn node(&self, block: &mut Block, id: NodeId) {
        let Some(node) = self.topology.node(id) else { return };
        let mut memories = vec![self.memory(node)];
        memories.extend(self.near(id));
        block.push(Section::of_strips(memories, CORE_GAP + 1));
    }

    fn near(&self, id: NodeId) -> impl Iterator<Item = Block> {
        let nodes = self.topology.nodes().iter().filter(move |other| other.near == Some(id));
        nodes.map(|node| self.memory(node))
    }

    /// A node's memory. The devices of a node without a box of its own stand in it, too.
    fn memory(&self, node: &NumaNode) -> Block {
        let style = Style::Memory(node.kind);
        let mut block = Block::new(style, memory_hover(node));
        block.texts = self.memory_texts(node);
        block.at_least.width = self.memory_width + 2 * style.padding();
        if !self.nested.contains(&node.id) {
            block.push(self.devices(Some(node.id)));
        }
        block
    }

    fn memory_texts(&self, node: &NumaNode) -> Vec<Paragraph> {
        let mut texts = memory_texts(node);
        texts.push(self.cpu_list(&node.cpus));
        if !node.cpus.is_empty() && !self.nested.contains(&node.id) {
            texts.push(Paragraph::of_words(Font::Small, "across other boxes"));
        }
        texts
    }

    /// Nodes that do not nest with the other objects, and nodes that hang on no other node.
    fn nodes_beside(&self) -> Vec<Block> {
        let nodes = self.topology.nodes().iter();
        let beside = nodes.filter(|node| node.near.is_none() && !self.nested.contains(&node.id));
        beside.flat_map(|node| [self.memory(node)].into_iter().chain(self.near(node.id))).collect()
    }

    fn devices(&self, node: Option<NodeId>) -> Section {
        let blocks = self.devices.of_node(node).into_iter().map(|told| {
            let mut block = Block::new(Style::Device(told.kind), told.more);
            block.texts.push(Paragraph::of_words(Font::Plain, &told.name));
            block.texts.push(Paragraph::of_parts(Font::Small, told.facts));
            block
        });
        Section::of_chips(blocks.collect(), CORE_GAP + 1)
    }

    fn offline(&self) -> Option<Block> {
        let offline = self.topology.offline();
        let text = format!("offline: {}", name_cpus(offline));
        let mut block = Block::new(Style::Offline, plural(offline.len(), "CPU"));
        block.texts.push(Paragraph::of_list(Font::Plain, &text));
        (!offline.is_empty()).then_some(block)
    }

    fn cpu_list(&self, cpus: &CpuSet) -> Paragraph {
        let list = name_cpus(cpus);
        let is_too_long = list.len() > LIST_CHARS_MAX && self.cells.are_numbered();
        let text = match () {
            () if cpus.is_empty() => "no CPUs".to_owned(),
            () if is_too_long => plural(cpus.len(), "CPU"),
            () => list,
        };
        Paragraph::of_list(Font::Small, &text)
    }
}

/// The objects directly inside, with those of the one die of a package in its place.
pub(crate) fn children_without_only_die<'a>(
    topology: &'a Topology,
    object: &Object,
) -> Vec<&'a Object> {
    let children = object.children.iter().map(|idx| topology.object(*idx));
    let children: Vec<&Object> = children.collect();
    match children.as_slice() {
        [die] if die.level == Level::Die && die.cpus == object.cpus => {
            children_without_only_die(topology, die)
        }
        _ => children,
    }
}
