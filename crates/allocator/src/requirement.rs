//! Whether what was required holds on the CPUs that were picked. In: the ledger, a request, CPUs. Out: the first requirement that does not hold.
//!
//! Views and the picker search so that it does; nothing is offered before it was looked at once more, on the CPUs themselves.

use std::fmt;

use bayplan_topology::Level;
use bayplan_types::{CoreKind, CpuPriority, CpuSet};

use crate::ledger::Ledger;
use crate::pool::Pools;
use crate::request::Request;
use crate::view::{around, cpus_of_kind, cpus_of_priority, without_owners};
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

    /// Those of these CPUs that could meet it if no container owned any.
    pub(crate) fn eligible(self, pools: &Pools, cpus: &CpuSet) -> CpuSet {
        match self {
            Requirement::Isolated => cpus.intersection(&pools.ownable_isolated()),
            Requirement::Kind(kind) => match cpus_of_kind(pools, kind) {
                Some(of_kind) => cpus.intersection(&of_kind),
                None => cpus.clone(),
            },
            Requirement::Priority(priority) => {
                cpus.intersection(&cpus_of_priority(pools, priority))
            }
            Requirement::WholeCores | Requirement::OwnCores | Requirement::IdleSiblings => {
                let cores = pools.cores.iter();
                let whole = cores.filter(|core| core.threads.iter().all(|it| cpus.contains(*it)));
                whole.flat_map(|core| core.threads.iter().copied()).collect()
            }
            Requirement::OnePerCore => crate::view::one_per_core(pools, cpus),
            Requirement::Apart(_) | Requirement::Within(_) => cpus.clone(),
        }
    }
}

/// Those of these CPUs that could meet all of it if no container owned any. One thread of each core is chosen of what the others leave.
pub(crate) fn eligible_under(pools: &Pools, required: &[Requirement], cpus: &CpuSet) -> CpuSet {
    let (last, first): (Vec<Requirement>, Vec<Requirement>) =
        required.iter().partition(|it| **it == Requirement::OnePerCore);
    let all = first.into_iter().chain(last);
    all.fold(cpus.clone(), |eligible, it| it.eligible(pools, &eligible))
}

/// The CPUs of the machine that an exclusive container with these requirements could have on an empty machine.
pub(crate) fn eligible_on_machine(pools: &Pools, wishes: &CpuWishes) -> CpuSet {
    let required: Vec<Requirement> = Requirement::all(wishes).collect();
    let all = match required.contains(&Requirement::Isolated) {
        true => pools.ownable_isolated(),
        false => pools.allocatable(),
    };
    eligible_under(pools, &required, &all)
}

/// CPUs that a container is about to own.
pub(crate) struct Picked<'a> {
    /// All of them.
    pub(crate) exclusive: &'a CpuSet,
    /// Those of them that it has already: they were right when they were picked.
    pub(crate) kept: &'a CpuSet,
    /// The siblings that are to stay idle.
    pub(crate) idle: &'a CpuSet,
}

/// Whether everything that is required of the CPUs holds on these.
///
/// # Errors
/// The first requirement that does not hold.
pub(crate) fn check_picked(
    ledger: &Ledger,
    request: &Request,
    picked: &Picked<'_>,
) -> Result<(), Requirement> {
    let mut required = Requirement::all(&request.wishes.cpus);
    required.find(|it| !it.holds(ledger, picked)).map_or(Ok(()), Err)
}

impl Requirement {
    fn holds(self, ledger: &Ledger, picked: &Picked<'_>) -> bool {
        let pools = ledger.pools();
        let Picked { exclusive, kept, idle } = *picked;
        let new = exclusive.difference(kept);
        let cores = || around(pools, Level::Core, exclusive);
        match self {
            Requirement::Isolated | Requirement::Kind(_) | Requirement::Priority(_) => {
                self.eligible(pools, &new) == new
            }
            Requirement::Apart(level) => new.is_subset(&without_owners(ledger, level)),
            Requirement::WholeCores => cores() == *exclusive,
            Requirement::OnePerCore => {
                crate::view::one_per_core(pools, exclusive).len() == exclusive.len()
            }
            Requirement::OwnCores => {
                let others = around(pools, Level::Core, &new).difference(exclusive);
                others.iter().all(|cpu| ledger.owner_of(cpu).is_none())
            }
            Requirement::IdleSiblings => {
                around(pools, Level::Core, &new).is_subset(&exclusive.union(idle))
            }
            Requirement::Within(level) => is_within(pools, exclusive, level),
        }
    }
}

/// Whether all of the CPUs lie in one domain of the level. A machine that has none, as with a kernel without NUMA, is one.
pub(crate) fn is_within(pools: &Pools, cpus: &CpuSet, level: Level) -> bool {
    let mut domains = pools.domains.iter().filter(|(it, _)| *it == level).peekable();
    domains.peek().is_none() || domains.any(|(_, domain)| cpus.is_subset(domain))
}
