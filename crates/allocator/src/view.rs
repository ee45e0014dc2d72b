//! Which CPUs a request may take. In: the ledger, a request with wishes about CPUs. Out: views, the one that meets all wishes first.
//!
//! A wish that is only preferred is dropped when it cannot be met, the least important first: priority, then standing apart, then the core
//! kind, then isolation. What is required stays in every view.

use std::borrow::Cow;

use bayplan_topology::Level;
use bayplan_types::{CoreKind, CpuId, CpuPriority, CpuSet, NodeSet};
use smallvec::{SmallVec, smallvec};

use crate::budget::{Supply, Unit, Units};
use crate::counted::Counted;
use crate::ledger::Ledger;
use crate::pool::Pools;
use crate::wishes::{CpuWishes, Packing, Siblings, Strictness};

/// CPUs that may be taken, and how.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    takeable: Cow<'a, Counted>,
    /// What is taken is not taken from the shared CPUs.
    is_isolated: bool,
    /// Preferred wishes that it meets.
    pub(crate) wishes_met: usize,
    units: Units,
    /// Units to take.
    pub(crate) count: usize,
    /// NUMA nodes that give as many as each other, and all of it. Empty: any.
    pub(crate) each: NodeSet,
}

impl<'a> View<'a> {
    /// Whoever leaves siblings idle takes whole cores, of which he uses as many threads as he wants; so that each of them gives as many,
    /// cores with fewer threads than others are left out.
    fn new(
        pools: &Pools,
        takeable: Cow<'a, Counted>,
        wishes: &CpuWishes,
        missing: usize,
    ) -> View<'a> {
        let is_idle = wishes.siblings == Siblings::Idle;
        let mut view = View {
            takeable,
            is_isolated: false,
            wishes_met: 0,
            units: Units {
                unit: match (wishes.packing, is_idle) {
                    (Packing::Spread, _) => Unit::Thread,
                    (Packing::Packed, true) => Unit::Core,
                    (Packing::Packed, false) => Unit::Cpu,
                },
                only_whole: wishes.siblings != Siblings::Pair,
                cpus: if is_idle { pools.width } else { 1 },
            },
            count: missing,
            each: NodeSet::new(),
        };
        if is_idle && wishes.packing == Packing::Packed {
            let width = |cpu: CpuId| pools.core_of(cpu).map_or(0, |(_, core)| core.threads.len());
            let widest = view.takeable.cpus().iter().map(width).max().unwrap_or(1);
            let narrow: CpuSet =
                view.takeable.cpus().iter().filter(|cpu| width(*cpu) < widest).collect();
            if !narrow.is_empty() {
                view.takeable.to_mut().remove_all(pools, &narrow);
            }
            view.count = missing.div_ceil(widest);
        }
        view
    }

    /// The same with CPUs in each of these NUMA nodes, which is one wish more.
    pub(crate) fn near_each(&self, each: NodeSet) -> View<'a> {
        View { each, wishes_met: self.wishes_met + 1, ..self.clone() }
    }

    /// What there is; `free` are the shared CPUs.
    pub(crate) fn supply<'s>(&'s self, pools: &'s Pools, free: &'s Counted) -> Supply<'s> {
        let shared = (!self.is_isolated).then_some(free);
        Supply { pools, shared, takeable: &self.takeable, units: self.units }
    }
}

/// A set of CPUs that a wish is about.
struct Wish {
    cpus: CpuSet,
    strictness: Strictness,
    is_isolated: bool,
}

/// Every view for `missing` CPUs, best first; never none. `kept` stays out of all of them.
pub(crate) fn views<'a>(
    ledger: &'a Ledger,
    wishes: &CpuWishes,
    kept: &CpuSet,
    missing: usize,
) -> SmallVec<[View<'a>; 1]> {
    let pools = ledger.pools();
    let listed = list_wishes(ledger, wishes);
    let (required, preferred): (Vec<&Wish>, Vec<&Wish>) =
        listed.iter().partition(|wish| wish.strictness == Strictness::Required);
    if listed.is_empty() && kept.is_empty() {
        return smallvec![View::new(pools, Cow::Borrowed(ledger.open()), wishes, missing)];
    }
    let view = |met: usize| {
        let restrictions = required.iter().chain(preferred.iter().take(met));
        let is_isolated = restrictions.clone().any(|wish| wish.is_isolated);
        let base = if is_isolated { ledger.open_isolated() } else { ledger.open().cpus() };
        let mut cpus = base.difference(kept);
        restrictions.for_each(|wish| cpus.intersect_with(&wish.cpus));
        let takeable = Cow::Owned(Counted::new(pools, &cpus));
        View { is_isolated, wishes_met: met, ..View::new(pools, takeable, wishes, missing) }
    };
    (0..=preferred.len()).rev().map(view).collect()
}

/// Whether each wish that some CPUs meet is met by others, too, in a ledger without whoever owns them.
pub(crate) fn keeps_wishes(
    ledger: &Ledger,
    wishes: &CpuWishes,
    from: &CpuSet,
    to: &CpuSet,
) -> bool {
    let is_kept = |wish: &Wish| !from.is_subset(&wish.cpus) || to.is_subset(&wish.cpus);
    list_wishes(ledger, wishes).iter().all(is_kept)
}

/// The wishes, the most important first.
fn list_wishes(ledger: &Ledger, wishes: &CpuWishes) -> Vec<Wish> {
    let pools = ledger.pools();
    let mut listed = Vec::new();
    let mut add = |cpus: CpuSet, strictness, is_isolated| {
        listed.push(Wish { cpus, strictness, is_isolated });
    };
    if let Some(strictness) = wishes.isolated {
        add(pools.ownable_isolated(), strictness, true);
    }
    // On a machine with several kinds of cores, exclusive CPUs are of the faster kind unless something else is wished.
    let (kind, strictness) =
        wishes.core_kind.unwrap_or((CoreKind::Performance, Strictness::Preferred));
    if let Some((_, cpus)) = pools.kinds.iter().find(|(it, _)| *it == kind) {
        add(cpus.clone(), strictness, false);
    } else if wishes.core_kind.is_some() && kind == CoreKind::Efficient {
        add(CpuSet::new(), strictness, false);
    }
    if let Some((level, strictness)) = wishes.apart {
        add(without_owners(ledger, level), strictness, false);
    }
    if let Some((priority, strictness)) = wishes.priority
        && let Some(cpus) = cpus_of_priority(pools, priority)
    {
        add(cpus, strictness, false);
    }
    listed
}

/// `None` on a machine where all CPUs have the same priority.
fn cpus_of_priority(pools: &Pools, priority: CpuPriority) -> Option<CpuSet> {
    let mut cpus = pools.cpus();
    match priority {
        _ if pools.high_priority.is_empty() && pools.low_priority.is_empty() => return None,
        CpuPriority::High => cpus.intersect_with(&pools.high_priority),
        CpuPriority::Low => cpus.intersect_with(&pools.low_priority),
        CpuPriority::Normal => {
            cpus.subtract(&pools.high_priority);
            cpus.subtract(&pools.low_priority);
        }
    }
    Some(cpus)
}

/// CPUs of those domains of a level in which nobody owns CPUs.
fn without_owners(ledger: &Ledger, level: Level) -> CpuSet {
    let pools = ledger.pools();
    let mut owned = pools.allocatable().difference(ledger.free());
    owned.union_with(&pools.ownable_isolated().difference(ledger.open_isolated()));
    pools.cpus().difference(&around(pools, level, &owned))
}

/// The domains of a level that hold some of these CPUs, as one set; at least the CPUs themselves.
pub(crate) fn around(pools: &Pools, level: Level, cpus: &CpuSet) -> CpuSet {
    let mut around = cpus.clone();
    if level == Level::Core {
        let cores = cpus.iter().filter_map(|cpu| pools.core_of(cpu));
        around.extend(cores.flat_map(|(_, core)| core.threads.iter().copied()));
    } else {
        let domains = pools.domains.iter().filter(|(it, _)| *it == level);
        domains
            .filter(|(_, domain)| domain.intersects(cpus))
            .for_each(|(_, domain)| around.union_with(domain));
    }
    around
}

/// One thread of each core, the lowest.
pub(crate) fn one_per_core(pools: &Pools, cpus: &CpuSet) -> CpuSet {
    let is_first = |cpu: &CpuId| match pools.core_of(*cpu) {
        Some((_, core)) => core.threads.iter().find(|thread| cpus.contains(**thread)) == Some(cpu),
        None => true,
    };
    cpus.iter().filter(is_first).collect()
}
