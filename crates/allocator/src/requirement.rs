//! What exclusive CPUs have to be. In: wishes. Out: those that have to be met, with their names.

use std::fmt;

use bayplan_topology::Level;
use bayplan_types::{CoreKind, CpuPriority};

use crate::wishes::{CpuWishes, Packing, Siblings, Strictness, Within};

/// Something that exclusive CPUs have to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Isolated by the kernel.
    Isolated,
    /// On cores of this kind.
    Kind(CoreKind),
    /// Of this priority.
    Priority(CpuPriority),
    /// In domains of this level in which no other container owns CPUs.
    Apart(Level),
    /// All threads of each core.
    WholeCores,
    /// One thread of each core.
    OnePerCore,
    /// On cores of which no other container owns a thread.
    OwnCores,
    /// The other threads of their cores run nothing.
    IdleSiblings,
    /// In one domain of this level.
    Within(Level),
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Requirement::Isolated => f.write_str("isolated by the kernel"),
            Requirement::Kind(kind) => write!(f, "on {} cores", kind.name().to_lowercase()),
            Requirement::Priority(priority) => {
                write!(f, "of {} priority", priority.name().to_lowercase())
            }
            Requirement::Apart(level) => {
                write!(f, "without other exclusive containers in the same {}", name_of(*level))
            }
            Requirement::WholeCores => f.write_str("in whole cores"),
            Requirement::OnePerCore => f.write_str("on a core each"),
            Requirement::OwnCores => f.write_str("on cores without other exclusive containers"),
            Requirement::IdleSiblings => f.write_str("with idle siblings"),
            Requirement::Within(level) => write!(f, "within one {}", name_of(*level)),
        }
    }
}

/// The level in words.
fn name_of(level: Level) -> String {
    match level {
        Level::NumaNode => "NUMA node".to_owned(),
        Level::L3 => "L3".to_owned(),
        other => other.name().to_lowercase(),
    }
}

impl Requirement {
    /// What a request for exclusive CPUs requires of them.
    pub(crate) fn all(wishes: &CpuWishes) -> impl Iterator<Item = Requirement> + use<> {
        let is_required = |strictness: Strictness| strictness == Strictness::Required;
        let isolated = wishes.isolated.filter(|it| is_required(*it));
        let kind = wishes.core_kind.filter(|(_, it)| is_required(*it));
        let priority = wishes.priority.filter(|(_, it)| is_required(*it));
        let apart = wishes.apart.filter(|(_, it)| is_required(*it));
        let is_one_each = wishes.packing == Packing::OnePerCore && !wishes.only_whole_cores;
        let listed = [
            isolated.map(|_| Requirement::Isolated),
            kind.map(|(kind, _)| Requirement::Kind(kind)),
            priority.map(|(priority, _)| Requirement::Priority(priority)),
            apart.map(|(level, _)| Requirement::Apart(level)),
            wishes.only_whole_cores.then_some(Requirement::WholeCores),
            is_one_each.then_some(Requirement::OnePerCore),
            match wishes.siblings {
                Siblings::Pair => None,
                Siblings::Shared => Some(Requirement::OwnCores),
                Siblings::Idle => Some(Requirement::IdleSiblings),
            },
            match wishes.within {
                Some(Within::One(level)) => Some(Requirement::Within(level)),
                _ => None,
            },
        ];
        listed.into_iter().flatten()
    }
}
