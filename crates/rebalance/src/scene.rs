//! Which containers run where, as the rebalancer needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bayplan_allocator::ContainerId;
use bayplan_topology::Topology;
use bayplan_types::{CpuClass, CpuId, CpuSet, NodeSet, QosClass};

use crate::knob::Knob;

/// The node at the end of a round.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The machine.
    pub topology: Arc<Topology>,
    /// Every container that bayplan placed.
    pub residents: BTreeMap<ContainerId, Resident>,
    /// CPUs without an owner.
    pub shared: CpuSet,
    /// Share of the last round, 0 to 1, in which a CPU had nothing to do, whatever it works for otherwise; without CPUs of which that is not known.
    pub idle: BTreeMap<CpuId, f64>,
    /// Containers on or for which something is turned that does not stand and cannot be taken back: nothing of them is usual.
    pub touched: BTreeSet<ContainerId>,
    /// Of exclusive containers, what takes most of their CPUs' time and is no container; without those of which nothing is known.
    pub intruders: BTreeMap<ContainerId, Intruder>,
    /// Proposals in force that may not be any more, by number: a container that they touch is not to be acted on, or there is no strategy for what they are for.
    pub disallowed: BTreeSet<u64>,
    /// Containers with files that another program changes again and again: they are not to be acted on for now.
    pub contested: BTreeSet<ContainerId>,
    /// Containers that use wide vectors and may go to another clock domain; none where there is no strategy for them.
    pub clocks: BTreeMap<ContainerId, ClockPlace>,
    /// Why nothing is to be changed now.
    pub unrest: Option<Unrest>,
}

/// A task or an interrupt outside of containers, on CPUs that a container owns.
#[derive(Clone, Debug, PartialEq)]
pub struct Intruder {
    /// Of the task or the interrupt, as `bayplan audit` names it.
    pub name: String,
    /// CPUs that it keeps busy there.
    pub cpus: f64,
}

/// What the strategy for containers with wide vectors says of the place of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockPlace {
    /// All CPUs but those of the best clock domain.
    pub leave: CpuSet,
    /// That domain is better than its own place, wherever it runs now.
    pub is_better_away: bool,
}

/// One container.
#[derive(Clone, Debug, PartialEq)]
pub struct Resident {
    /// `namespace/pod/container`.
    pub name: String,
    /// What it is an instance of.
    pub workload: Workload,
    /// Its pod's QoS class; `None` where it is not known.
    pub qos: Option<QosClass>,
    /// Class of its CPUs.
    pub class: CpuClass,
    /// All CPUs that it may run on.
    pub cpus: CpuSet,
    /// Those of them that it owns.
    pub exclusive: CpuSet,
    /// NUMA nodes of its memory; empty where that is not bayplan's to say.
    pub mems: NodeSet,
    /// Since when it is where it is, on the clock of the rounds.
    pub since: Duration,
    /// How far one may go for its sake, and with it.
    pub mode: Mode,
    /// Knobs that exist for it, on this machine and with its owner's consent, and that are not turned as far as they go.
    pub knobs: BTreeSet<Knob>,
}

/// What containers are instances of. A baseline belongs to it, and outlives each of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workload {
    /// The pod's namespace.
    pub namespace: String,
    /// What made the pod, as far as its labels or its name tell.
    pub owner: String,
    /// The container's name.
    pub container: String,
    /// Its image.
    pub image: String,
}

/// How far to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Nothing is concluded from its samples, and nothing is done with it.
    Off,
    /// What would be done is said.
    Observe,
    /// It is done.
    Act,
}

/// Why nothing is to be changed for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unrest {
    /// An operator paused the rebalancer.
    Paused,
    /// Everything was given back.
    Restored,
    /// Containers are being created.
    Creating,
    /// Another program has changed what was written for containers.
    Drift,
    /// The daemon itself is late.
    Overload,
}
