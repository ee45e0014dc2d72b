//! Whether what was required holds on the CPUs that were picked. In: the ledger, a request, CPUs. Out: the first requirement that does not hold.
//!
//! Views and the picker search so that it does; nothing is offered before it was looked at once more, on the CPUs themselves.

use bayplan_topology::Level;
use bayplan_types::CpuSet;

use crate::domain::{around, cpus_of_kind, cpus_of_priority, is_within, one_per_core};
use crate::ledger::Ledger;
use crate::pool::Pools;
use crate::request::Request;
use crate::requirement::Requirement;
use crate::view::without_owners;
use crate::wishes::CpuWishes;

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
            Requirement::OnePerCore => one_per_core(pools, cpus),
            Requirement::Apart(_) | Requirement::Within(_) => cpus.clone(),
        }
    }

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
            Requirement::OnePerCore => one_per_core(pools, exclusive).len() == exclusive.len(),
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
