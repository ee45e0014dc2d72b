//! Which CPUs a request may take. In: the ledger, a request with wishes about CPUs. Out: views, the one that meets all wishes first.
//!
//! A wish that is only preferred is dropped when it cannot be met, the least important first: priority, then standing apart, then the core
//! kind, then isolation. One thread of each core is given up after all of these. What is required stays in every view.

use std::borrow::Cow;
use std::cmp::Reverse;

use bayplan_topology::Level;
use bayplan_types::{CoreKind, CpuId, CpuPriority, CpuSet, NodeSet};
use smallvec::{SmallVec, smallvec};

use crate::budget::{Budgets, Supply, Unit, Units};
use crate::counted::Counted;
use crate::domain::{around, cpus_of_kind, cpus_of_priority, has_priorities};
use crate::ledger::Ledger;
use crate::pool::{CoreIdx, Pool, Pools};
use crate::request::Request;
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
    /// Of the CPUs, those that are further threads of a core, where one of each is wished; beyond what the picker counts.
    pub(crate) doubled: usize,
    /// NUMA nodes that give as many as each other, and all of it. Empty: any.
    pub(crate) each: NodeSet,
}

impl<'a> View<'a> {
    fn new(
        pools: &Pools,
        takeable: Cow<'a, Counted>,
        wishes: &CpuWishes,
        missing: usize,
    ) -> View<'a> {
        if wishes.only_whole_cores {
            return View::of_whole_cores(pools, takeable, missing);
        }
        match (wishes.is_spread(), wishes.siblings == Siblings::Idle) {
            (false, true) => View::of_cores(pools, takeable, missing, None),
            (is_spread, is_idle) => {
                let units = Units {
                    unit: if is_spread { Unit::Thread } else { Unit::Cpu },
                    only_whole: wishes.siblings != Siblings::Pair,
                    cpus: if is_idle { pools.width } else { 1 },
                };
                View::with_units(takeable, units, missing)
            }
        }
    }

    fn with_units(takeable: Cow<'a, Counted>, units: Units, count: usize) -> View<'a> {
        let each = NodeSet::new();
        View { takeable, is_isolated: false, wishes_met: 0, units, count, doubled: 0, each }
    }

    /// Leaves siblings idle: takes whole cores, `cores` of them or as few as possible, of which as many threads are used as are missing. So that
    /// each of them gives as many, cores with fewer threads than others are left out.
    fn of_cores(
        pools: &Pools,
        takeable: Cow<'a, Counted>,
        missing: usize,
        cores: Option<usize>,
    ) -> View<'a> {
        let units = Units { unit: Unit::Core, only_whole: true, cpus: pools.width };
        let mut view = View::with_units(takeable, units, missing);
        let width = |cpu: CpuId| pools.core_of(cpu).map_or(0, |(_, core)| core.threads.len());
        let widest = view.takeable.cpus().iter().map(width).max().unwrap_or(1);
        let narrow: CpuSet =
            view.takeable.cpus().iter().filter(|cpu| width(*cpu) < widest).collect();
        if !narrow.is_empty() {
            view.takeable.to_mut().remove_all(pools, &narrow);
        }
        view.count = cores.unwrap_or(missing.div_ceil(widest));
        view.doubled = cores.map_or(0, |cores| missing.saturating_sub(cores));
        view
    }

    /// All threads of each core that is taken.
    fn of_whole_cores(pools: &Pools, takeable: Cow<'a, Counted>, missing: usize) -> View<'a> {
        let cores = pools.cores.iter().enumerate();
        let whole = cores.filter(|(at, core)| takeable.in_core(CoreIdx(*at)) == core.threads.len());
        let mut widths: SmallVec<[usize; 4]> = whole.map(|(_, core)| core.threads.len()).collect();
        widths.sort_unstable();
        widths.dedup();
        match widths.as_slice() {
            [width] if missing.is_multiple_of(*width) => {
                let units = Units { unit: Unit::Core, only_whole: true, cpus: *width };
                View::with_units(takeable, units, missing / width)
            }
            _ => {
                let units = Units { unit: Unit::Whole, only_whole: true, cpus: 1 };
                View::with_units(takeable, units, missing)
            }
        }
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

/// Every view for `missing` CPUs, best first; never none. `kept` stays out of all of them; `free` are the shared CPUs without it.
pub(crate) fn views<'a>(
    ledger: &'a Ledger,
    request: &Request,
    kept: &CpuSet,
    missing: usize,
    free: &Counted,
) -> SmallVec<[View<'a>; 1]> {
    let (pools, wishes) = (ledger.pools(), &request.wishes.cpus);
    let is_spread = wishes.is_spread();
    let is_idle = wishes.siblings == Siblings::Idle && !wishes.only_whole_cores;
    let may_mix = is_idle && has_several_widths(pools);
    let may_double = is_spread && wishes.packing == Packing::Spread;
    let listed = list_wishes(ledger, wishes);
    let (required, preferred): (Vec<&Wish>, Vec<&Wish>) =
        listed.iter().partition(|wish| wish.strictness == Strictness::Required);
    if listed.is_empty() && kept.is_empty() && !may_double && !may_mix {
        return smallvec![View::new(pools, Cow::Borrowed(ledger.open()), wishes, missing)];
    }
    let restricted = |met: usize| {
        let restrictions = required.iter().chain(preferred.iter().take(met));
        let is_isolated = restrictions.clone().any(|wish| wish.is_isolated);
        let base = if is_isolated { ledger.open_isolated() } else { ledger.open().cpus() };
        let mut cpus = base.difference(kept);
        restrictions.for_each(|wish| cpus.intersect_with(&wish.cpus));
        (met, is_isolated, cpus)
    };
    let sets = || (0..=preferred.len()).rev().map(restricted);
    // A container that grows has one thread of each of its cores already.
    let beside = if is_spread { around(pools, Level::Core, kept) } else { CpuSet::new() };
    let view = |(met, is_isolated, cpus): (usize, bool, CpuSet)| {
        let takeable = Cow::Owned(Counted::new(pools, &cpus.difference(&beside)));
        View { is_isolated, wishes_met: met, ..View::new(pools, takeable, wishes, missing) }
    };
    let mut views: SmallVec<[View<'a>; 1]> = sets().map(view).collect();
    if may_double {
        let primary = views.clone();
        for ((wishes_met, is_isolated, cpus), first) in sets().zip(&primary) {
            let takeable = Counted::new(pools, &cpus);
            let doubled = doubled_views(ledger, request, takeable, (missing, free, first));
            views.extend(doubled.into_iter().map(|it| View { is_isolated, wishes_met, ..it }));
        }
    }
    if may_mix {
        for (wishes_met, is_isolated, cpus) in sets() {
            let mixed = (0..pools.width).map(|idle| {
                let units = Units { unit: Unit::Whole, only_whole: true, cpus: 1 };
                let takeable = Cow::Owned(Counted::new(pools, &cpus));
                View::with_units(takeable, units, missing + idle)
            });
            let doubled = if is_spread { missing } else { 0 };
            views.extend(mixed.map(|it| View { is_isolated, wishes_met, doubled, ..it }));
        }
    }
    views
}

/// Whether some cores have fewer threads than others.
fn has_several_widths(pools: &Pools) -> bool {
    pools.cores.iter().any(|core| core.threads.len() != pools.width)
}

/// Takes further threads of cores, where the cores run out; `first` takes one thread of each.
fn doubled_views<'a>(
    ledger: &Ledger,
    request: &Request,
    takeable: Counted,
    (missing, free, first): (usize, &Counted, &View<'a>),
) -> Vec<View<'a>> {
    let (pools, siblings) = (ledger.pools(), request.wishes.cpus.siblings);
    if siblings != Siblings::Idle {
        let only_whole = siblings != Siblings::Pair;
        let units = Units { unit: Unit::Spread, only_whole, cpus: 1 };
        return vec![View::with_units(Cow::Owned(takeable), units, missing)];
    }
    // As many cores as some pool has, and as few as it takes.
    let supply = first.supply(pools, free);
    let budgets = Budgets::new(&supply, ledger.loads());
    let shared = request.demand.shared();
    let fewest = missing.div_ceil(pools.width.max(1));
    let most = |pool: &Pool| budgets.takeable_by(&supply, ledger.loads(), pool.id, shared);
    let mut cores: Vec<usize> = pools.iter().map(most).chain([fewest]).collect();
    cores.retain(|cores| *cores >= fewest && *cores < missing);
    cores.sort_unstable_by_key(|cores| Reverse(*cores));
    cores.dedup();
    let view = |cores| View::of_cores(pools, Cow::Owned(takeable.clone()), missing, Some(cores));
    cores.into_iter().map(view).collect()
}

/// Whether each wish that some CPUs meet is met by others, too, in a ledger without their owner.
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
    if let Some((kind, strictness)) = core_kind(wishes) {
        cpus_of_kind(pools, kind).into_iter().for_each(|cpus| add(cpus, strictness, false));
    }
    if let Some((level, strictness)) = wishes.apart {
        add(without_owners(ledger, level), strictness, false);
    }
    if let Some((priority, strictness)) = wishes.priority {
        let cpus = cpus_of_priority(pools, priority);
        // A preference that nothing can meet is none.
        if strictness == Strictness::Required || has_priorities(pools) {
            add(cpus, strictness, false);
        }
    }
    listed
}

/// The wish about the kind of cores. On a machine with several kinds, exclusive CPUs are of the faster one unless something else is wished;
/// efficient cores are of low priority, so that is something else.
fn core_kind(wishes: &CpuWishes) -> Option<(CoreKind, Strictness)> {
    let is_low = matches!(wishes.priority, Some((CpuPriority::Low, _)));
    let faster = (CoreKind::Performance, Strictness::Preferred);
    wishes.core_kind.or((!is_low).then_some(faster))
}

/// CPUs of those domains of a level in which no CPU is owned.
pub(crate) fn without_owners(ledger: &Ledger, level: Level) -> CpuSet {
    let pools = ledger.pools();
    let mut owned = pools.allocatable().difference(ledger.free());
    owned.union_with(&pools.ownable_isolated().difference(ledger.open_isolated()));
    pools.cpus().difference(&around(pools, level, &owned))
}
