//! The cores of a machine that is to be cut into CMK's pools, how it is to be cut, and why it cannot be.

use bayplan_topology::{Level, Topology};
use bayplan_types::{CpuId, CpuPriority, CpuSet};

/// In which order cores are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Package after package.
    #[default]
    Packed,
    /// One of each package in turn.
    Spread,
}

/// How a machine is to be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// Cores of the pool `exclusive`.
    pub exclusive: usize,
    /// Cores of the pool `shared`.
    pub shared: usize,
    /// The order for `exclusive`.
    pub exclusive_mode: Mode,
    /// The order for `shared`.
    pub shared_mode: Mode,
    /// CPUs on cores that are the pool `exclusive-non-isolcpus`; only where others are isolated.
    pub not_isolated: Option<CpuSet>,
}

/// Why a machine cannot be cut so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DivideError {
    /// Fewer isolated cores than both pools need.
    #[error(
        "{isolated} cores are isolated, {wanted} are needed for exclusive and shared; change isolcpus, or ask for fewer"
    )]
    NotEnoughIsolated {
        /// Whole cores that are isolated.
        isolated: usize,
        /// Cores of both pools.
        wanted: usize,
    },
    /// Fewer cores than a pool needs.
    #[error("{wanted} cores requested for {pool}, only {free} available")]
    NotEnough {
        /// The pool.
        pool: &'static str,
        /// Cores that it is to have.
        wanted: usize,
        /// Cores that are left.
        free: usize,
    },
    /// No core is left for the pool `infra`.
    #[error("no core is left for infra; ask for fewer exclusive or shared cores")]
    NoInfra,
    /// A core of `exclusive-non-isolcpus` that cannot be in it.
    #[error("CPUs {cpus} cannot be in exclusive-non-isolcpus: {why}")]
    NotThere {
        /// The CPUs.
        cpus: String,
        /// The reason.
        why: &'static str,
    },
    /// Base frequency and core power both say which cores are the best.
    #[error(
        "base frequency (SST-BF) and core power (SST-CP) are both on, and both say which cores are for exclusive; turn one of them off"
    )]
    BaseFrequencyAndCorePower,
    /// The kernel tells no preference of a core, or one that has no rank; the lowest CPU of the core.
    #[error(
        "with core power (SST-CP) the energy performance preference of a core says its pool, and that of CPU {0} is not known; set one that the kernel takes, such as balance_performance"
    )]
    Preference(CpuId),
    /// They are no two or three.
    #[error(
        "with core power (SST-CP) there must be two or three energy performance preferences among cores, one for each pool; there are: {0}"
    )]
    Preferences(String),
    /// Another number of cores has a preference than a pool is to have.
    #[error(
        "with core power (SST-CP) cores of {pool} are all those with the energy performance preference {preference}: {found} have it, {wanted} are requested; ask for as many, or change preferences"
    )]
    PreferenceCount {
        /// The pool, or both.
        pool: &'static str,
        /// The preference.
        preference: String,
        /// Cores that have it.
        found: usize,
        /// Cores that are asked for.
        wanted: usize,
    },
}

/// A physical core.
#[derive(Clone)]
pub(super) struct Core {
    pub(super) socket: u32,
    pub(super) cpus: CpuSet,
    pub(super) is_isolated: bool,
    /// All of its CPUs have a higher base frequency than others.
    pub(super) is_fast: bool,
}

/// Which cores each pool gets.
pub(super) struct Parts {
    pub(super) exclusive: Vec<Core>,
    pub(super) shared: Vec<Core>,
    pub(super) infra: Vec<Core>,
    /// In no pool: isolated, and not needed.
    pub(super) spare: Vec<Core>,
}

/// All cores by package, each with its lowest CPU first.
pub(super) fn cores(topology: &Topology, isolated: &CpuSet) -> Vec<Core> {
    let packages: Vec<(u32, &CpuSet)> = topology
        .objects()
        .iter()
        .filter(|object| object.level == Level::Package)
        .map(|object| (object.id, &object.cpus))
        .collect();
    let socket = |core: &CpuSet| {
        let found = packages.iter().find(|(_, cpus)| core.is_subset(cpus));
        found.map_or(0, |(id, _)| *id)
    };
    let cores = topology.cores().iter().map(|cpus| Core {
        socket: socket(cpus),
        cpus: cpus.clone(),
        is_isolated: cpus.is_subset(isolated),
        is_fast: cpus.iter().all(|cpu| topology.priority(cpu) == CpuPriority::High),
    });
    let mut cores: Vec<Core> = cores.collect();
    cores.sort_by_key(|core| (core.socket, core.cpus.first()));
    cores
}
