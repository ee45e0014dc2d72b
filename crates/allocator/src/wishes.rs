//! What a container wishes beyond an amount of CPU and memory. The default of every type here is what a container without
//! annotations gets.

use bayplan_topology::Level;
use bayplan_types::{Bytes, CoreKind, CpuPriority, CpuSet, MemoryKind, MilliCpu, NodeSet};

use crate::id::ContainerId;

/// Whether something may be left unfulfilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// A pool where it can be had wins against one where it cannot.
    Preferred,
    /// A pool where it cannot be had is rejected.
    Required,
}

/// The pod and the namespace of a container. Numbers that the caller chooses; equal numbers are the same pod and the same namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The pod.
    pub pod: u64,
    /// Its namespace.
    pub namespace: u64,
}

/// What becomes of the other threads of a core of which a container owns only some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Siblings {
    /// Another container that owns an odd number of CPUs may own them, one of the same pod or namespace first; until then they are shared.
    #[default]
    Pair,
    /// They stay shared: no other container ever owns a part of the core.
    Shared,
    /// Nothing runs there.
    Idle,
}

/// How exclusive CPUs lie on cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packing {
    /// Whole cores first, all threads of a core.
    #[default]
    Packed,
    /// One thread of each core, and a second one only where the cores run out; the other threads go the way of [`Siblings`].
    Spread,
    /// One thread of each core, or no place.
    OnePerCore,
}

/// How far exclusive CPUs may lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// In one domain of this level.
    One(Level),
    /// In no more domains of this level than would be needed if no other container were there.
    Fewest(Level),
}

/// Wishes about exclusive CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuWishes {
    /// Other threads of its cores.
    pub siblings: Siblings,
    /// All threads of a core, or one.
    pub packing: Packing,
    /// Of each core all threads or none, or no place; goes before [`CpuWishes::packing`].
    pub only_whole_cores: bool,
    /// No other container owns CPUs in the same core, L3 or NUMA node.
    pub apart: Option<(Level, Strictness)>,
    /// CPUs that the kernel keeps out of load balancing.
    pub isolated: Option<Strictness>,
    /// Performance or efficient cores.
    pub core_kind: Option<(CoreKind, Strictness)>,
    /// CPUs of this priority.
    pub priority: Option<(CpuPriority, Strictness)>,
    /// CPUs that it rather does not have, the most important set first.
    pub avoids: Vec<CpuSet>,
    /// Rejects places where the CPUs would lie farther apart.
    pub within: Option<Within>,
    /// The same number of CPUs on each of the NUMA nodes, where one node cannot hold them.
    pub is_even: bool,
    /// Runs on one thread of each core that it has.
    pub hides_hyperthreads: bool,
    /// For a group: its members also run on CPUs of these domains around it on which no other container runs.
    pub shares_idle: Option<Level>,
    /// These CPUs and no others, for a group that is a list of CPUs or a slot of one. Empty: placement chooses.
    pub exactly: CpuSet,
}

impl CpuWishes {
    /// Whether one thread of each core is wished.
    pub(crate) fn is_spread(&self) -> bool {
        self.packing != Packing::Packed && !self.only_whole_cores
    }

    /// Whether any of them has to be met: without CPUs of its own, none can be.
    pub fn has_requirement(&self) -> bool {
        let strictness = [
            self.apart.map(|(_, it)| it),
            self.isolated,
            self.core_kind.map(|(_, it)| it),
            self.priority.map(|(_, it)| it),
        ];
        self.only_whole_cores
            || self.packing == Packing::OnePerCore
            || self.within.is_some()
            || strictness.contains(&Some(Strictness::Required))
    }
}

/// Wishes about memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryWishes {
    /// Kinds that it may have; empty is every kind of the machine's own memory but HBM.
    pub kinds: Vec<MemoryKind>,
    /// Rejects places where the NUMA nodes of its CPUs, with the CPU-less ones that hang on them, cannot hold the memory.
    pub is_bound: bool,
    /// How far its cold start is.
    pub cold_start: ColdStart,
}

impl MemoryWishes {
    /// Whether the kinds that it may have are known to hold this one, however it starts.
    pub(crate) fn may_have(&self, kind: MemoryKind) -> bool {
        match self.kinds.is_empty() {
            true => kind != MemoryKind::Hbm && !kind.is_of_device(),
            false => self.kinds.contains(&kind),
        }
    }
}

/// A container may start on slow memory and get the memory of its CPUs later: what it reads once while it starts stays away from the fast
/// memory for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColdStart {
    /// It has no such start.
    #[default]
    No,
    /// It has slow memory only, of the kinds that it may have.
    Cold,
    /// It has the same slow memory, which is what is set aside for it, and that of its CPUs.
    Over,
}

/// A device, a mount or anything else that has a place in the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Near {
    /// What it is, for people.
    pub name: String,
    /// CPUs that are near it.
    pub cpus: CpuSet,
    /// NUMA nodes that are near it.
    pub nodes: NodeSet,
    /// Whether CPUs elsewhere will do.
    pub strictness: Strictness,
}

/// Where containers that lower the frequency around them go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockStrategy {
    /// Each domain has few of them.
    Spread,
    /// Few domains have any.
    Squeeze,
}

/// A container that lowers the frequency around it, and the others of that kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockWish {
    /// Away from the others, or near them.
    pub strategy: ClockStrategy,
    /// The others; those that hold nothing do not count.
    pub others: Vec<ContainerId>,
}

/// Wishes about the place in the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceWishes {
    /// Devices and mounts.
    pub near: Vec<Near>,
    /// Where they hang on different NUMA nodes: as many exclusive CPUs near each of them, instead of all in one place.
    pub is_near_each: bool,
    /// A new one with CPUs of its own is on the NUMA node with most room, where no device says more.
    pub is_balanced: bool,
    /// Containers to be near (above zero) or far from (below zero), -1000 to 1000.
    pub affinity: Vec<(ContainerId, i32)>,
    /// Without a CPU limit: bursts over a domain of this level.
    pub burst_level: Option<Level>,
    /// Without CPUs of its own: it lowers the frequency of the CPUs around its own, as these others do.
    pub clock: Option<ClockWish>,
}

/// How an entry of the ledger has exclusive CPUs together with others: one entry holds the set, and the others run on it or have some of it of their own. The holder
/// is a container of the same pod, or a group. Where a container that holds goes, the oldest of the others holds the set from then on, so that it lives as long as the
/// last of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// Its CPUs are its own.
    #[default]
    Alone,
    /// Its CPUs are its pod's, and others of the pod may run on them.
    Holder,
    /// It runs on the CPUs that a container of its pod holds as [`Part::Holder`]; where none does, on the machine's shared CPUs.
    Joined,
    /// It is no container but a group, with members that run on its CPUs.
    Group,
    /// It runs on the CPUs that this group holds.
    Member(ContainerId),
    /// It has CPUs of its own out of those of this group, which has them back when it goes.
    Inside(ContainerId),
}

impl Part {
    /// The group that a member belongs to.
    pub fn group(self) -> Option<ContainerId> {
        match self {
            Part::Member(group) | Part::Inside(group) => Some(group),
            Part::Alone | Part::Holder | Part::Joined | Part::Group => None,
        }
    }

    /// Whether it runs on exclusive CPUs that another entry of the ledger holds.
    pub fn runs_on_others(self) -> bool {
        matches!(self, Part::Joined | Part::Member(_))
    }
}

/// The other containers of the pod. Nothing is wished where nothing is known of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodWishes {
    /// Those that are placed; rather near them.
    pub mates: Vec<ContainerId>,
    /// CPU time of those that are still to come; rather where there is room for them, too.
    pub rest: MilliCpu,
    /// Their memory.
    pub rest_memory: Bytes,
    /// They come for sure, so a place without room for them may be rejected.
    pub is_rest_sure: bool,
    /// What [`CpuWishes::within`] says holds for all exclusive CPUs of the pod together.
    pub is_one: bool,
    /// Whether its exclusive CPUs are its pod's.
    pub part: Part,
}

/// What bayplan leaves alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// `cpuset.cpus` stays as the runtime made it.
    pub cpus: bool,
    /// `cpuset.mems` stays as the runtime made it.
    pub memory: bool,
}

/// All wishes of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// About exclusive CPUs.
    pub cpus: CpuWishes,
    /// About memory.
    pub memory: MemoryWishes,
    /// About the place.
    pub place: PlaceWishes,
    /// About the rest of the pod.
    pub pod: PodWishes,
    /// What bayplan leaves alone.
    pub preserve: Preserve,
    /// CPUs that another system has chosen for its pod. They are taken in the ledger ([`Pools::with_claimed`](crate::Pools::with_claimed)), and it
    /// holds no others. Empty: none were chosen.
    pub claimed: CpuSet,
    /// It is never moved once it runs.
    pub is_immovable: bool,
}

impl Wishes {
    /// Its CPUs are not for placement to choose.
    pub fn has_no_choice(&self) -> bool {
        self.preserve.cpus || !self.claimed.is_empty()
    }
}
