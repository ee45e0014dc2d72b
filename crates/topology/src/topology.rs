//! The tree of hardware objects and its queries.
//!
//! Objects nest by inclusion of their CPU sets, as in hwloc, so a NUMA node may lie inside an L3 or an L3 inside a NUMA node.
//! Guarantees, listed by [`crate::check_topology`]: children lie inside their parent and are disjoint; every online CPU is in
//! exactly one core and in at most one NUMA node; NUMA nodes without CPUs hang on one that has some.

use std::fmt;

use bayplan_types::{Bytes, CpuId, CpuSet, NodeId, NodeSet};

use crate::fingerprint::fingerprint;
use crate::snapshot::Oddity;

/// Distance of a NUMA node to itself (`LOCAL_DISTANCE` of the kernel; the ACPI SLIT prescribes it).
const LOCAL_DISTANCE: u32 = 10;

/// Kind of a hardware object. The order is that of objects with equal CPU sets, outermost first; objects that differ nest by
/// their CPU sets alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Everything.
    Machine,
    /// A physical package (socket).
    Package,
    /// A die of a package.
    Die,
    /// CPUs that share a memory controller.
    NumaNode,
    /// CPUs that share a level 3 cache.
    L3,
    /// CPUs that are threads of one core.
    Core,
}

impl Level {
    /// Every level, outermost first.
    pub const ALL: [Level; 6] =
        [Level::Machine, Level::Package, Level::Die, Level::NumaNode, Level::L3, Level::Core];

    /// The name as it stands in messages and files.
    pub fn name(self) -> &'static str {
        match self {
            Level::Machine => "Machine",
            Level::Package => "Package",
            Level::Die => "Die",
            Level::NumaNode => "NumaNode",
            Level::L3 => "L3",
            Level::Core => "Core",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Dense position of an object in [`Topology::objects`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectIdx(pub u32);

impl ObjectIdx {
    /// The machine.
    pub const ROOT: ObjectIdx = ObjectIdx(0);

    /// The position as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One hardware object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its own position.
    pub idx: ObjectIdx,
    /// What it is.
    pub level: Level,
    /// The kernel's number, 0 for the machine. Dies and cores are numbered per package, the others per machine. An L3 or a core
    /// without a number has that of its lowest CPU.
    pub id: u32,
    /// The object directly around it; `None` for the machine alone.
    pub parent: Option<ObjectIdx>,
    /// The objects directly inside it, by lowest CPU.
    pub children: Vec<ObjectIdx>,
    /// Its online CPUs, never empty.
    pub cpus: CpuSet,
    /// NUMA nodes with memory whose CPUs are among its own, and the CPU-less ones that hang on those.
    pub mems: NodeSet,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// The kernel's number.
    pub id: NodeId,
    /// Its online CPUs; empty for a node of memory alone.
    pub cpus: CpuSet,
    /// How much memory it has; `None` when the kernel does not say.
    pub memory: Option<Bytes>,
    /// For a node without CPUs: the nearest one that has some.
    pub near: Option<NodeId>,
}

impl NumaNode {
    /// Whether it can be named in `cpuset.mems`. A node whose size is unknown counts.
    pub fn has_memory(&self) -> bool {
        self.memory != Some(Bytes::ZERO)
    }
}

/// The hardware of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    objects: Vec<Object>,
    isolated: CpuSet,
    offline: CpuSet,
    cores: Vec<CpuSet>,
    /// Position in `cores`, by CPU number.
    core_at: Vec<Option<usize>>,
    nodes: Vec<NumaNode>,
    /// Node of each CPU, by CPU number.
    node_at: Vec<Option<NodeId>>,
    /// `nodes.len()` rows of as many columns.
    distances: Vec<Option<u32>>,
    oddities: Vec<Oddity>,
}

/// What a topology is made of, before its indexes are built.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// At least the machine, at position 0.
    pub(crate) objects: Vec<Object>,
    pub(crate) isolated: CpuSet,
    pub(crate) offline: CpuSet,
    pub(crate) cores: Vec<CpuSet>,
    pub(crate) nodes: Vec<NumaNode>,
    pub(crate) distances: Vec<Option<u32>>,
    pub(crate) oddities: Vec<Oddity>,
}

impl Topology {
    pub(crate) fn new(parts: Parts) -> Topology {
        let Parts { objects, isolated, offline, cores, nodes, distances, oddities } = parts;
        let core_at = index_cpus(cores.iter().enumerate());
        let node_at = index_cpus(nodes.iter().map(|node| (node.id, &node.cpus)));
        Topology { objects, isolated, offline, cores, core_at, nodes, node_at, distances, oddities }
    }

    /// Every object: parents before children, siblings by lowest CPU; the position is the [`ObjectIdx`].
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// The machine.
    pub fn root(&self) -> &Object {
        self.object(ObjectIdx::ROOT)
    }

    /// The object at `idx`.
    ///
    /// # Panics
    /// When `idx` comes from another topology that has more objects.
    pub fn object(&self, idx: ObjectIdx) -> &Object {
        &self.objects[idx.index()]
    }

    /// Every online CPU.
    pub fn cpus(&self) -> &CpuSet {
        &self.root().cpus
    }

    /// Online CPUs outside the scheduler's load balancing. They are ordinary members of the tree.
    pub fn isolated(&self) -> &CpuSet {
        &self.isolated
    }

    /// CPUs that the machine has but that do not run.
    pub fn offline(&self) -> &CpuSet {
        &self.offline
    }

    /// The online CPUs of each core, by lowest CPU. Each online CPU is in exactly one.
    pub fn cores(&self) -> &[CpuSet] {
        &self.cores
    }

    /// The core that `cpu` is a thread of; `None` for a CPU that is not online.
    pub fn core_of(&self, cpu: CpuId) -> Option<&CpuSet> {
        let position = *self.core_at.get(cpu.0 as usize)?;
        self.cores.get(position?)
    }

    /// Every NUMA node, by number; empty on a kernel without NUMA.
    pub fn nodes(&self) -> &[NumaNode] {
        &self.nodes
    }

    /// The NUMA node with this number.
    pub fn node(&self, id: NodeId) -> Option<&NumaNode> {
        self.nodes.get(self.node_position(id)?)
    }

    /// The NUMA node that `cpu` belongs to.
    pub fn node_of(&self, cpu: CpuId) -> Option<NodeId> {
        *self.node_at.get(cpu.0 as usize)?
    }

    /// The NUMA nodes that these CPUs belong to, with or without memory.
    pub fn nodes_of(&self, cpus: &CpuSet) -> NodeSet {
        self.nodes.iter().filter(|node| node.cpus.intersects(cpus)).map(|node| node.id).collect()
    }

    /// How far the memory of `to` is from the CPUs of `from`: 10 is local. `None` when the kernel does not say.
    pub fn distance(&self, from: NodeId, to: NodeId) -> Option<u32> {
        let (row, column) = (self.node_position(from)?, self.node_position(to)?);
        let read = *self.distances.get(row * self.nodes.len() + column)?;
        read.or((from == to).then_some(LOCAL_DISTANCE))
    }

    /// Everything that was missing, broken or contradictory, and what was assumed.
    pub fn oddities(&self) -> &[Oddity] {
        &self.oddities
    }

    /// A number that is the same for the same CPUs, NUMA nodes and nesting, in every version of bayplan and on every machine.
    /// Amounts of memory, distances and isolation do not count.
    pub fn fingerprint(&self) -> u64 {
        fingerprint(self)
    }

    fn node_position(&self, id: NodeId) -> Option<usize> {
        self.nodes.binary_search_by_key(&id, |node| node.id).ok()
    }
}

/// What each CPU belongs to, by CPU number; the first owner counts.
fn index_cpus<'a, T: Copy>(owners: impl Iterator<Item = (T, &'a CpuSet)>) -> Vec<Option<T>> {
    let mut owner_at: Vec<Option<T>> = Vec::new();
    for (owner, cpus) in owners {
        let len = cpus.last().map_or(0, |cpu| cpu.0 as usize + 1);
        if owner_at.len() < len {
            owner_at.resize(len, None);
        }
        for cpu in cpus.iter() {
            if let Some(slot) = owner_at.get_mut(cpu.0 as usize) {
                *slot = slot.or(Some(owner));
            }
        }
    }
    owner_at
}
