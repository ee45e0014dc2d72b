//! The tree of hardware objects and its queries.
//!
//! Objects nest by inclusion of their CPU sets, as in hwloc, so a NUMA node may lie inside an L3 or an L3 inside a NUMA node.
//! Guarantees, listed by [`crate::check_topology`]: children lie inside their parent and are disjoint; every online CPU is in
//! exactly one core and in at most one NUMA node; NUMA nodes without CPUs hang on one that has some.

use std::fmt;

use bayplan_types::{
    Bytes, CoreKind, CpuId, CpuPriority, CpuSet, Khz, MemoryKind, NodeId, NodeSet,
};

use crate::device::{Device, find_device};
use crate::snapshot::{HugePages, KernelFacts, Oddity};

/// Distance of a NUMA node to itself (`LOCAL_DISTANCE` of the kernel; the ACPI SLIT prescribes it).
const LOCAL_DISTANCE: u32 = 10;

/// Kind of a hardware object. The order is that of objects with equal CPU sets, outermost first; objects that differ nest by
/// their CPU sets alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Everything.
    Machine,
    /// Books that stand closer together than others (s390).
    Drawer,
    /// Packages of one board (s390).
    Book,
    /// A physical package (socket).
    Package,
    /// A die of a package.
    Die,
    /// CPUs that share a memory controller.
    NumaNode,
    /// CPUs that share a level 3 cache.
    L3,
    /// Cores that stand closer to each other than the L3 says, as the kernel's `cluster_cpus` has them.
    Cluster,
    /// Cores that share a level 2 cache. One that belongs to a single core is no object; [`Topology::caches`] has it.
    L2,
    /// CPUs that are threads of one core.
    Core,
}

impl Level {
    /// Every level, outermost first.
    pub const ALL: [Level; 10] = [
        Level::Machine,
        Level::Drawer,
        Level::Book,
        Level::Package,
        Level::Die,
        Level::NumaNode,
        Level::L3,
        Level::Cluster,
        Level::L2,
        Level::Core,
    ];

    /// The name as it stands in messages and files.
    pub fn name(self) -> &'static str {
        match self {
            Level::Machine => "Machine",
            Level::Drawer => "Drawer",
            Level::Book => "Book",
            Level::Package => "Package",
            Level::Die => "Die",
            Level::NumaNode => "NumaNode",
            Level::L3 => "L3",
            Level::Cluster => "Cluster",
            Level::L2 => "L2",
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
    /// The kernel's number, 0 for the machine. Dies and cores are numbered per package, the others per machine. A cluster, a cache or
    /// a core has the number of its lowest CPU if it has none of its own, or if its own was not read.
    pub id: u32,
    /// The object directly around it; `None` for the machine alone.
    pub parent: Option<ObjectIdx>,
    /// The objects directly inside it, by lowest CPU.
    pub children: Vec<ObjectIdx>,
    /// Its online CPUs, never empty.
    pub cpus: CpuSet,
    /// NUMA nodes with memory and CPUs that are among its own, the CPU-less ones that hang on those, and what stands in for nodes without memory.
    pub mems: NodeSet,
}

/// Memory for CPUs that have none of their own: they are in no NUMA node, or theirs has no memory that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandIn {
    /// These CPUs.
    pub cpus: CpuSet,
    /// The nearest nodes with memory, all that are equally near.
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
    /// What its memory is made of.
    pub kind: MemoryKind,
    /// How that is known.
    pub evidence: KindEvidence,
    /// The kernel puts nothing of its own there, so that the memory can be unplugged.
    pub is_movable_only: bool,
    /// For a node without CPUs: the nearest one that has some.
    pub near: Option<NodeId>,
    /// Its memory tier; lower is faster.
    pub tier: Option<u32>,
    /// How fast the CPUs nearest to it reach it.
    pub speed: MemorySpeed,
    /// Memory in front of it that works as its cache, such as DRAM before PMEM or HBM before DRAM.
    pub side_caches: Vec<Bytes>,
    /// Huge pages, by size.
    pub huge_pages: Vec<HugePages>,
}

impl NumaNode {
    /// A node of which nothing is known.
    pub(crate) fn new(id: NodeId) -> NumaNode {
        NumaNode {
            id,
            cpus: CpuSet::new(),
            memory: None,
            kind: MemoryKind::default(),
            evidence: KindEvidence::default(),
            is_movable_only: false,
            near: None,
            tier: None,
            speed: MemorySpeed::default(),
            side_caches: Vec::new(),
            huge_pages: Vec::new(),
        }
    }

    /// Whether it can be named in `cpuset.mems`. A node of unknown size counts.
    pub fn has_memory(&self) -> bool {
        self.memory != Some(Bytes::ZERO)
    }
}

/// What the kind of a node's memory was told by, from the most certain to the least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KindEvidence {
    /// It came as a device of that kind.
    Device,
    /// CPUs are in the node: DRAM.
    #[default]
    Cpus,
    /// Its bandwidth, compared with that of the node near it.
    Bandwidth,
    /// Its memory tier, compared with that of the node near it.
    Tier,
    /// The kernel keeps it movable, as it does with memory that was plugged in.
    MovableOnly,
    /// It is much larger than the node near it.
    Size,
    /// Nothing but the lack of CPUs.
    Nothing,
}

impl KindEvidence {
    /// The name as it stands in files.
    pub fn name(self) -> &'static str {
        match self {
            KindEvidence::Device => "device",
            KindEvidence::Cpus => "cpus",
            KindEvidence::Bandwidth => "bandwidth",
            KindEvidence::Tier => "tier",
            KindEvidence::MovableOnly => "movable only",
            KindEvidence::Size => "size",
            KindEvidence::Nothing => "nothing",
        }
    }
}

/// What the firmware says of the way from CPUs to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySpeed {
    /// Read bandwidth in MB/s.
    pub bandwidth: Option<u32>,
    /// Read latency in ns.
    pub latency: Option<u32>,
}

/// One cache that holds data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// 1 for the one next to the core.
    pub level: u32,
    /// The kernel's number, per level; where it gives none, the lowest CPU.
    pub id: u32,
    /// How much it holds; `None` when the kernel does not say.
    pub size: Option<Bytes>,
    /// The online CPUs that share it.
    pub cpus: CpuSet,
}

/// CPUs that have their frequency set together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrequencyPolicy {
    /// The kernel's number.
    pub id: u32,
    /// Its online CPUs.
    pub cpus: CpuSet,
    /// What the CPUs keep up under any load, if the driver says.
    pub base: Option<Khz>,
    /// The lowest frequency of the hardware.
    pub min: Option<Khz>,
    /// The highest one.
    pub max: Option<Khz>,
    /// The energy performance preference: a word or a number from 0 (performance) to 255.
    pub preference: Option<String>,
}

impl FrequencyPolicy {
    /// 0 for performance to 255 for saving power, as in the processor's register
    /// (`Documentation/admin-guide/pm/intel_pstate.rst`, "Energy vs Performance Hints"); `None`: there is no preference, or another word.
    pub fn preference_rank(&self) -> Option<u64> {
        match self.preference.as_deref()? {
            "performance" => Some(0),
            "balance_performance" | "default" => Some(128),
            "balance_power" => Some(192),
            "power" => Some(255),
            number => number.parse().ok().filter(|number| *number <= 255),
        }
    }
}

/// The hardware of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    parts: Parts,
    /// Position in `cores`, by CPU number.
    core_at: Vec<Option<usize>>,
    /// Node of each CPU, by CPU number.
    node_at: Vec<Option<NodeId>>,
}

/// What a topology is made of, before its indexes are built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// At least the machine, at position 0.
    pub(crate) objects: Vec<Object>,
    pub(crate) isolated: CpuSet,
    pub(crate) nohz_full: CpuSet,
    pub(crate) partitioned: CpuSet,
    pub(crate) offline: CpuSet,
    pub(crate) allowed_cpus: Option<CpuSet>,
    pub(crate) allowed_mems: Option<NodeSet>,
    pub(crate) pods_cpus: Option<CpuSet>,
    pub(crate) pods_mems: Option<NodeSet>,
    pub(crate) stand_ins: Vec<StandIn>,
    pub(crate) cores: Vec<CpuSet>,
    pub(crate) caches: Vec<Cache>,
    /// Empty where all cores are alike.
    pub(crate) kinds: Vec<(CoreKind, CpuSet)>,
    pub(crate) policies: Vec<FrequencyPolicy>,
    pub(crate) high_priority: CpuSet,
    pub(crate) low_priority: CpuSet,
    pub(crate) nodes: Vec<NumaNode>,
    /// `nodes.len()` rows of as many columns.
    pub(crate) distances: Vec<Option<u32>>,
    pub(crate) devices: Vec<Device>,
    pub(crate) kernel: KernelFacts,
    pub(crate) oddities: Vec<Oddity>,
}

impl Topology {
    pub(crate) fn new(parts: Parts) -> Topology {
        let core_at = index_cpus(parts.cores.iter().enumerate());
        let node_at = index_cpus(parts.nodes.iter().map(|node| (node.id, &node.cpus)));
        Topology { parts, core_at, node_at }
    }

    /// Every object: parents before children, siblings by lowest CPU; the position is the [`ObjectIdx`].
    pub fn objects(&self) -> &[Object] {
        &self.parts.objects
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
        &self.parts.objects[idx.index()]
    }

    /// Every online CPU.
    pub fn cpus(&self) -> &CpuSet {
        &self.root().cpus
    }

    /// Online CPUs outside the scheduler's load balancing. They are ordinary members of the tree.
    pub fn isolated(&self) -> &CpuSet {
        &self.parts.isolated
    }

    /// Online CPUs that run without a timer tick while they have one task.
    pub fn nohz_full(&self) -> &CpuSet {
        &self.parts.nohz_full
    }

    /// Online CPUs that another program has taken for an isolated cpuset partition. Nothing else can run there.
    pub fn partitioned(&self) -> &CpuSet {
        &self.parts.partitioned
    }

    /// The CPUs that our own cgroup may use; `None` where it says nothing. Containers are in other cgroups, so the tree has all CPUs.
    pub fn allowed_cpus(&self) -> Option<&CpuSet> {
        self.parts.allowed_cpus.as_ref()
    }

    /// The memory nodes that our own cgroup may use; `None` where it says nothing.
    pub fn allowed_mems(&self) -> Option<&NodeSet> {
        self.parts.allowed_mems.as_ref()
    }

    /// The online CPUs that containers may use at most, because the groups around their pods allow no others; `None`: all. The tree has all CPUs.
    pub fn pods_cpus(&self) -> Option<&CpuSet> {
        self.parts.pods_cpus.as_ref()
    }

    /// The memory nodes that containers may use at most; `None`: all.
    pub fn pods_mems(&self) -> Option<&NodeSet> {
        self.parts.pods_mems.as_ref()
    }

    /// Online CPUs that containers may not use, whatever their cpuset says.
    pub fn withheld(&self) -> CpuSet {
        self.pods_cpus().map(|allowed| self.cpus().difference(allowed)).unwrap_or_default()
    }

    /// The same where containers may use these CPUs at most.
    pub fn with_pods_on(&self, available: &CpuSet) -> Topology {
        let mut topology = self.clone();
        let all = self.pods_cpus().unwrap_or(self.cpus());
        topology.parts.pods_cpus = Some(all.intersection(available));
        topology
    }

    /// Whether containers may use the memory of this node.
    pub fn may_hold_pods(&self, node: &NumaNode) -> bool {
        node.has_memory() && self.pods_mems().is_none_or(|allowed| allowed.contains(node.id))
    }

    /// CPUs without memory of their own, and the memory nodes that stand in for it.
    pub fn stand_ins(&self) -> &[StandIn] {
        &self.parts.stand_ins
    }

    /// CPUs that the machine has but that do not run.
    pub fn offline(&self) -> &CpuSet {
        &self.parts.offline
    }

    /// The online CPUs of each core, by lowest CPU. Each online CPU is in exactly one.
    pub fn cores(&self) -> &[CpuSet] {
        &self.parts.cores
    }

    /// The core that `cpu` is a thread of; `None` for a CPU that is not online.
    pub fn core_of(&self, cpu: CpuId) -> Option<&CpuSet> {
        let position = *self.core_at.get(cpu.0 as usize)?;
        self.parts.cores.get(position?)
    }

    /// Every cache that holds data, by level and lowest CPU.
    pub fn caches(&self) -> &[Cache] {
        &self.parts.caches
    }

    /// The kind of core that `cpu` is a thread of; `None` where all cores are alike.
    pub fn core_kind(&self, cpu: CpuId) -> Option<CoreKind> {
        self.parts.kinds.iter().find(|(_, cpus)| cpus.contains(cpu)).map(|(kind, _)| *kind)
    }

    /// The online CPUs of each kind of core; empty where all cores are alike.
    pub fn core_kinds(&self) -> &[(CoreKind, CpuSet)] {
        &self.parts.kinds
    }

    /// CPUs that have their frequency set together, by number; empty where the kernel does not set it.
    pub fn policies(&self) -> &[FrequencyPolicy] {
        &self.parts.policies
    }

    /// How well the hardware treats `cpu`.
    pub fn priority(&self, cpu: CpuId) -> CpuPriority {
        match () {
            () if self.parts.low_priority.contains(cpu) => CpuPriority::Low,
            () if self.parts.high_priority.contains(cpu) => CpuPriority::High,
            () => CpuPriority::Normal,
        }
    }

    /// The online CPUs of a priority.
    pub fn cpus_of_priority(&self, priority: CpuPriority) -> CpuSet {
        match priority {
            CpuPriority::High => self.parts.high_priority.clone(),
            CpuPriority::Low => self.parts.low_priority.clone(),
            CpuPriority::Normal => self
                .cpus()
                .difference(&self.parts.high_priority)
                .difference(&self.parts.low_priority),
        }
    }

    /// Every device, by address: PCI functions without bridges and other furniture.
    pub fn devices(&self) -> &[Device] {
        &self.parts.devices
    }

    /// The device that a name stands for: a PCI address, a path below `/dev`, or a network interface.
    pub fn device(&self, name: &str) -> Option<&Device> {
        find_device(self.devices(), name)
    }

    /// What the kernel can do.
    pub fn kernel(&self) -> &KernelFacts {
        &self.parts.kernel
    }

    /// Every NUMA node, by number; empty on a kernel without NUMA.
    pub fn nodes(&self) -> &[NumaNode] {
        &self.parts.nodes
    }

    /// The NUMA node with this number.
    pub fn node(&self, id: NodeId) -> Option<&NumaNode> {
        self.parts.nodes.get(self.node_position(id)?)
    }

    /// The NUMA node that `cpu` belongs to.
    pub fn node_of(&self, cpu: CpuId) -> Option<NodeId> {
        *self.node_at.get(cpu.0 as usize)?
    }

    /// The NUMA nodes that these CPUs belong to, with or without memory.
    pub fn nodes_of(&self, cpus: &CpuSet) -> NodeSet {
        self.nodes().iter().filter(|node| node.cpus.intersects(cpus)).map(|node| node.id).collect()
    }

    /// How far the memory of `to` is from the CPUs of `from`: 10 is local. `None` when the kernel does not say.
    pub fn distance(&self, from: NodeId, to: NodeId) -> Option<u32> {
        let (row, column) = (self.node_position(from)?, self.node_position(to)?);
        let read = *self.parts.distances.get(row * self.nodes().len() + column)?;
        read.or((from == to).then_some(LOCAL_DISTANCE))
    }

    /// Everything that was missing, broken or contradictory, and what was assumed.
    pub fn oddities(&self) -> &[Oddity] {
        &self.parts.oddities
    }

    fn node_position(&self, id: NodeId) -> Option<usize> {
        self.nodes().binary_search_by_key(&id, |node| node.id).ok()
    }
}

/// What each CPU belongs to, by CPU number; the first owner counts.
pub fn index_cpus<'a, T: Copy>(owners: impl Iterator<Item = (T, &'a CpuSet)>) -> Vec<Option<T>> {
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
