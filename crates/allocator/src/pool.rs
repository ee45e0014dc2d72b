//! Pools: the domains of a machine in which a container can be placed.
//!
//! A pool is an object of the hardware tree that differs from its parent in its CPUs. Pools form one tree, so the CPUs of two
//! pools are either disjoint or one inside the other.

use std::cmp::Reverse;
use std::ops::Range;

use bayplan_topology::{Level, StandIn};
use bayplan_types::{Bytes, CoreKind, CpuId, CpuSet, MemoryKind, NodeId, NodeSet};

use crate::wishes::MemoryWishes;

/// Dense position of a pool; parents come before children, siblings in the order of their lowest CPU. The machine is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u32);

impl PoolId {
    /// The pool that holds the whole machine.
    pub const MACHINE: PoolId = PoolId(0);

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// One domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its position.
    pub id: PoolId,
    /// Unique on the machine, such as `numa 3` or `package 1 die 0`; what `explain` and the journal use.
    pub name: String,
    /// What kind of hardware object it is; of several objects with the same CPUs, the outermost.
    pub level: Level,
    /// The pool around it.
    pub parent: Option<PoolId>,
    /// The pools directly inside it.
    pub children: Vec<PoolId>,
    /// Every online CPU of the domain, whatever its class.
    pub cpus: CpuSet,
    /// NUMA nodes that its CPUs belong to.
    pub nodes: NodeSet,
    /// NUMA nodes with memory in it: those of its CPUs, and those without CPUs that are nearest to them.
    pub memory: NodeSet,
    /// Lies strictly inside one NUMA node.
    pub(crate) is_inside_node: bool,
    /// Containers share its CPUs. Never inside one NUMA node: that would be too narrow.
    pub is_shared: bool,
    /// The machine, when it has reserved CPUs: containers that share it and request nothing run on them when all other CPUs are owned.
    pub(crate) has_refuge: bool,
    /// Largest distance between two of its NUMA nodes (10 when there is one or none).
    pub distance: u32,
    /// Those cores, of [`Pools`], that are in it and in no pool inside it.
    pub(crate) cores: Range<usize>,
    /// The outermost pools inside it that have one NUMA node; empty for a pool that has one itself.
    pub(crate) node_pools: Vec<PoolId>,
    /// The widest pool of one NUMA node around it; itself where it has several.
    pub(crate) node: PoolId,
    /// How many of its CPUs are neither reserved nor isolated.
    pub(crate) allocatable: usize,
    /// Objects inside it that have the same CPUs and so are no pools of their own, outermost first.
    pub(crate) merged: Vec<(Level, String)>,
}

impl Pool {
    /// Whether it is an object of the level, or has the same CPUs as one.
    pub(crate) fn is(&self, level: Level) -> bool {
        self.level == level || self.merged.iter().any(|(merged, _)| *merged == level)
    }
}

/// Dense position of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CoreIdx(pub(crate) usize);

impl CoreIdx {
    pub(crate) fn index(self) -> usize {
        self.0
    }
}

/// One core, or the part of it that lies in one of the narrowest pools: some hypervisors report an L3 for each thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Core {
    pub(crate) threads: Vec<CpuId>,
    /// The narrowest pool around it.
    pub(crate) pool: PoolId,
}

/// Memory of one NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) kind: MemoryKind,
    /// Only what can be moved lies there: not all that the kernel needs for a container.
    pub(crate) is_movable_only: bool,
    /// What containers can have: huge pages are not counted. `None`: the kernel does not say; such a node is never full.
    pub(crate) memory: Option<Bytes>,
    /// Every node with memory, nearest first (itself at the head), nodes with CPUs before CPU-less ones at equal distance.
    pub(crate) nearest: Vec<(u32, NodeId)>,
}

impl Node {
    /// Whether a container with these wishes can start with it alone.
    pub(crate) fn is_for_cold_start(&self, wishes: &MemoryWishes) -> bool {
        self.kind.is_slow() && wishes.may_have(self.kind) && !self.is_movable_only
    }

    pub(crate) fn capacity(&self) -> Bytes {
        self.memory.unwrap_or(Bytes(u64::MAX))
    }
}

/// Huge pages of one size on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Huge {
    pub(crate) node: NodeId,
    pub(crate) size: Bytes,
    /// All pages together.
    pub(crate) capacity: Bytes,
}

/// Every pool of a machine, and what of the machine the allocator needs beside them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pools {
    pub(crate) pools: Vec<Pool>,
    /// Every core, those of one narrowest pool next to each other: those with most threads first, because the others fill what is left,
    /// and the core of the lowest CPU last among its like, because the kernel and many daemons prefer CPU 0.
    pub(crate) cores: Vec<Core>,
    /// Position in `cores` by CPU number.
    pub(crate) core_of: Vec<Option<CoreIdx>>,
    /// Most threads that a core has.
    pub(crate) width: usize,
    pub(crate) nodes: Vec<Node>,
    /// CPUs of each NUMA node and package.
    pub(crate) counted_domains: Vec<(Level, CpuSet)>,
    /// How many of these are neither reserved nor isolated, most first.
    pub(crate) domain_cpus: Vec<(Level, usize)>,
    /// By node and size.
    pub(crate) huge: Vec<Huge>,
    pub(crate) reserved: CpuSet,
    pub(crate) isolated: CpuSet,
    /// Those of the isolated CPUs that belong to a cpuset partition of others, that are claimed, or that the groups around all pods do not allow.
    pub(crate) partitioned: CpuSet,
    /// CPUs by core kind, on a machine that has several kinds.
    pub(crate) kinds: Vec<(CoreKind, CpuSet)>,
    pub(crate) high_priority: CpuSet,
    pub(crate) low_priority: CpuSet,
    /// Every package, die, NUMA node and L3 with its CPUs, also those that are no pools.
    pub(crate) domains: Vec<(Level, CpuSet)>,
    /// CPUs without memory of their own, and the memory nodes that stand in for it.
    pub(crate) stand_ins: Vec<StandIn>,
}

impl Pools {
    /// The same where these CPUs are taken: no container owns or shares them, as those of a cpuset partition. Reserved ones stay reserved, and where
    /// none is reserved, one stays shared: shared containers have to run somewhere.
    pub fn with_claimed(&self, claimed: &CpuSet) -> Pools {
        let allocatable = self.allocatable();
        let mut taken = claimed.intersection(&self.cpus()).difference(&self.reserved);
        if self.reserved.is_empty()
            && allocatable.is_subset(&taken)
            && let Some(cpu) = allocatable.last()
        {
            taken.remove(cpu);
        }
        let mut pools = self.clone();
        pools.isolated.union_with(&taken);
        pools.partitioned.union_with(&taken);
        pools.count_allocatable();
        pools
    }

    /// Whether containers can share the CPUs of one domain of this level, and of no more.
    pub fn shares_level(&self, level: Level) -> bool {
        self.pools.iter().any(|pool| pool.is_shared && pool.is(level))
    }

    /// Counts CPUs that are neither reserved nor isolated.
    pub(crate) fn count_allocatable(&mut self) {
        let kept = self.reserved.union(&self.isolated);
        for pool in &mut self.pools {
            pool.allocatable = pool.cpus.difference(&kept).len();
        }
        let domains = self.counted_domains.iter();
        let left = domains.map(|(level, cpus)| (*level, cpus.difference(&kept).len()));
        self.domain_cpus = left.filter(|(_, cpus)| *cpus > 0).collect();
        self.domain_cpus.sort_by_key(|(_, cpus)| Reverse(*cpus));
    }

    /// Every pool, parents before children.
    pub fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter()
    }

    /// The pool at `id`; `None` for an id of another machine.
    pub fn get(&self, id: PoolId) -> Option<&Pool> {
        self.pools.get(id.index())
    }

    /// The pool of this name, or the one that the hardware object of this name was merged into because it has the same CPUs.
    pub fn named(&self, name: &str) -> Option<&Pool> {
        let is_named = |pool: &&Pool| {
            pool.name == name || pool.merged.iter().any(|(_, merged)| merged == name)
        };
        self.pools.iter().find(is_named)
    }

    /// The name under which a container that is placed in `id` is best remembered. While half of a machine is offline, the machine and its one NUMA
    /// node are the same pool; a container that was placed there was placed on the node, and is not to spread when the rest returns.
    pub fn lasting_name(&self, id: PoolId) -> Option<&str> {
        let pool = self.get(id)?;
        let node = pool.merged.iter().find(|(level, _)| *level == Level::NumaNode);
        Some(node.map_or(&pool.name, |(_, name)| name))
    }

    /// Every CPU of the machine.
    pub fn cpus(&self) -> CpuSet {
        self.pools.first().map(|pool| pool.cpus.clone()).unwrap_or_default()
    }

    /// CPUs usable by processes that Bayplan does not manage: all but those in a cpuset partition of another program.
    pub fn unplaced_cpus(&self) -> CpuSet {
        self.cpus().difference(&self.partitioned)
    }

    /// Every NUMA node with memory of the machine's own.
    pub fn memory_nodes(&self) -> NodeSet {
        self.own_nodes().map(|node| node.id).collect()
    }

    /// Nodes with memory that is not that of a device.
    fn own_nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| !node.kind.is_of_device())
    }

    /// NUMA nodes with memory of this kind.
    pub fn memory_of_kind(&self, kind: MemoryKind) -> NodeSet {
        self.nodes.iter().filter(|node| node.kind == kind).map(|node| node.id).collect()
    }

    /// All memory of the machine, huge pages included; `None` where that of some node is unknown.
    pub fn memory(&self) -> Option<Bytes> {
        let huge = self.huge.iter().map(|huge| Some(huge.capacity));
        let all: Option<Bytes> = self.own_nodes().map(|node| node.memory).chain(huge).sum();
        all.filter(|memory| *memory > Bytes::ZERO)
    }

    /// CPUs kept for system pods.
    pub fn reserved(&self) -> &CpuSet {
        &self.reserved
    }

    /// CPUs that the kernel keeps out of load balancing. They are in no shared pool and are owned only by containers that wish it; those in a cpuset
    /// partition of another program by none.
    pub fn isolated(&self) -> &CpuSet {
        &self.isolated
    }

    /// Of these CPUs, those that one container may own: isolated ones only when all are, because a container that did not wish for isolated CPUs is
    /// not to run where the kernel does not spread its threads.
    pub fn ownable(&self, cpus: &CpuSet) -> CpuSet {
        let isolated = self.ownable_isolated();
        match !cpus.is_empty() && cpus.is_subset(&isolated) {
            true => cpus.clone(),
            false => cpus.intersection(&self.allocatable()),
        }
    }

    /// Isolated CPUs that containers may own.
    pub(crate) fn ownable_isolated(&self) -> CpuSet {
        self.isolated.difference(&self.partitioned)
    }

    /// Threads of the core that has most.
    pub fn threads_max(&self) -> usize {
        self.cores.iter().map(|core| core.threads.len()).max().unwrap_or(1)
    }

    /// The narrowest pool that has all of these CPUs; the machine for those that it does not have.
    pub(crate) fn around(&self, cpus: &CpuSet) -> PoolId {
        let around = self.pools.iter().filter(|pool| cpus.is_subset(&pool.cpus));
        around.min_by_key(|pool| pool.cpus.len()).map_or(PoolId::MACHINE, |pool| pool.id)
    }

    /// CPUs that are neither reserved nor isolated.
    pub fn allocatable(&self) -> CpuSet {
        let mut cpus = self.cpus();
        cpus.subtract(&self.reserved);
        cpus.subtract(&self.isolated);
        cpus
    }

    /// `id`, its parent, its parent's parent, up to the machine.
    pub fn chain(&self, id: PoolId) -> impl Iterator<Item = &Pool> {
        std::iter::successors(self.get(id), |pool| pool.parent.and_then(|parent| self.get(parent)))
    }

    /// Domains of the level, NUMA nodes or packages, that so many CPUs need on an empty machine; all of them for more than the machine has.
    pub(crate) fn fewest(&self, level: Level, cpus: usize) -> usize {
        let sizes = self.domain_cpus.iter().filter(|(it, _)| *it == level).map(|(_, size)| *size);
        fewest_for(cpus, sizes)
    }

    /// As [`Pools::fewest`], where only CPUs of `eligible` are taken.
    pub(crate) fn fewest_of(&self, level: Level, eligible: &CpuSet, cpus: usize) -> usize {
        let domains = self.counted_domains.iter().filter(|(it, _)| *it == level);
        let mut sizes: Vec<usize> =
            domains.map(|(_, domain)| domain.intersection(eligible).len()).collect();
        sizes.retain(|size| *size > 0);
        sizes.sort_unstable_by_key(|size| Reverse(*size));
        fewest_for(cpus, sizes.into_iter())
    }

    /// Whether whole cores of this machine have so many threads together.
    pub(crate) fn adds_up(&self, threads: usize) -> bool {
        let is_uniform = self.cores.iter().all(|core| core.threads.len() == self.width);
        if is_uniform {
            return threads.is_multiple_of(self.width);
        }
        let mut sums = vec![false; threads + 1];
        sums.iter_mut().take(1).for_each(|none| *none = true);
        for width in self.cores.iter().map(|core| core.threads.len()) {
            for sum in (width..=threads).rev() {
                let is_reached = sums.get(sum - width).copied().unwrap_or(false);
                sums.iter_mut().skip(sum).take(1).for_each(|it| *it |= is_reached);
            }
        }
        sums.last().copied().unwrap_or(false)
    }

    /// Domains of the level that lie in these CPUs as a whole.
    pub(crate) fn count_whole(&self, level: Level, cpus: &CpuSet) -> usize {
        self.domains.iter().filter(|(it, domain)| *it == level && domain.is_subset(cpus)).count()
    }

    /// Domains of the level in which these CPUs lie. NUMA nodes that are no domains, because they cross others, count, too.
    pub(crate) fn count(&self, level: Level, cpus: &CpuSet) -> usize {
        let lies_in = |(it, domain): &&(Level, CpuSet)| *it == level && domain.intersects(cpus);
        match level {
            Level::NumaNode => self.nodes_of(cpus).len(),
            _ => self.domains.iter().filter(lies_in).count(),
        }
    }

    /// NUMA nodes of these CPUs.
    pub fn nodes_of(&self, cpus: &CpuSet) -> NodeSet {
        // The narrowest pools know one node each; only a pool that straddles nodes has to be searched further.
        let mut nodes = NodeSet::new();
        for pool in self.pools.iter().filter(|pool| pool.nodes.len() == 1) {
            if pool.cpus.intersects(cpus) {
                nodes.union_with(&pool.nodes);
            }
        }
        nodes
    }

    /// CPUs of these NUMA nodes.
    pub fn cpus_of_nodes(&self, nodes: &NodeSet) -> CpuSet {
        let mut cpus = CpuSet::new();
        for pool in &self.pools {
            if !pool.nodes.is_empty() && pool.nodes.is_subset(nodes) {
                cpus.union_with(&pool.cpus);
            }
        }
        cpus
    }

    /// The NUMA nodes of these CPUs, and the memory nodes that stand in for those of them without memory.
    pub fn near_memory(&self, cpus: &CpuSet) -> NodeSet {
        self.with_stand_ins(self.nodes_of(cpus), cpus)
    }

    /// NUMA nodes of these CPUs, with what stands in for memory that these CPUs lack.
    pub(crate) fn with_stand_ins(&self, mut nodes: NodeSet, cpus: &CpuSet) -> NodeSet {
        for it in self.stand_ins.iter().filter(|it| it.cpus.intersects(cpus)) {
            nodes.union_with(&it.mems);
        }
        nodes
    }

    /// These NUMA nodes, and those without CPUs that hang on them.
    pub(crate) fn memory_of(&self, nodes: &NodeSet) -> NodeSet {
        let mut memory = NodeSet::new();
        for pool in self.pools.iter().filter(|pool| pool.nodes.is_subset(nodes)) {
            memory.union_with(&pool.memory);
        }
        memory
    }

    pub(crate) fn core_of(&self, cpu: CpuId) -> Option<(CoreIdx, &Core)> {
        let idx = (*self.core_of.get(cpu.0 as usize)?)?;
        Some((idx, self.cores.get(idx.index())?))
    }

    /// The cores that are in `pool` and in no pool inside it.
    pub(crate) fn own_cores(&self, pool: &Pool) -> impl Iterator<Item = (CoreIdx, &Core)> {
        let cores = self.cores.get(pool.cores.clone()).unwrap_or_default();
        cores.iter().enumerate().map(|(at, core)| (CoreIdx(pool.cores.start + at), core))
    }

    /// The same as sets of CPUs.
    pub(crate) fn own_core_sets(&self, pool: &Pool) -> impl Iterator<Item = CpuSet> {
        self.own_cores(pool).map(|(_, core)| core.threads.iter().copied().collect())
    }

    /// Distance between two NUMA nodes as the kernel gives it (10 is local); the largest there is when the kernel does not say.
    pub(crate) fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        let near =
            self.node(from).and_then(|(_, node)| node.nearest.iter().find(|(_, id)| *id == to));
        near.map_or(u32::MAX, |(distance, _)| *distance)
    }

    /// Huge pages of one size on one node.
    pub(crate) fn huge(&self, node: NodeId, size: Bytes) -> Option<(usize, &Huge)> {
        self.huge.iter().enumerate().find(|(_, huge)| huge.node == node && huge.size == size)
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<(usize, &Node)> {
        // Mostly they are numbered without holes.
        let index = usize::try_from(id.0).ok()?;
        let there = self.nodes.get(index).filter(|node| node.id == id).map(|node| (index, node));
        there.or_else(|| self.nodes.iter().enumerate().find(|(_, node)| node.id == id))
    }
}

/// How many of these sizes, the largest first, make so many CPUs; at least one.
fn fewest_for(cpus: usize, sizes: impl Iterator<Item = usize>) -> usize {
    let mut held = 0;
    let is_short = |size: &usize| {
        let before = held;
        held += size;
        before < cpus
    };
    sizes.take_while(is_short).count().max(1)
}
