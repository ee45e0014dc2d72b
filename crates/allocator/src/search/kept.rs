//! CPUs that a container had before and has again: those that one which is placed anew keeps, and those that the shared containers around them can do
//! without. In: a ledger and a request. Out: a set of CPUs.

use bayplan_topology::Level;
use bayplan_types::{CpuId, CpuSet, MilliCpu};

use crate::counted::Counted;
use crate::domain::around;
use crate::ledger::Ledger;
use crate::pick::choose::choose;
use crate::pool::Pool;
use crate::request::Request;

/// Of the CPUs that a container which is placed anew holds, those it keeps: all of them, or as many as it still asks for, whole cores
/// first. Where it asks for more, other threads of its own cores come first, unless it is to avoid them.
pub(super) fn kept_cpus(ledger: &Ledger, request: &Request) -> CpuSet {
    let Some(previous) = &request.previous else { return CpuSet::new() };
    let pools = ledger.pools();
    let wanted = request.demand.exclusive();
    let open = match request.wishes.cpus.isolated {
        Some(_) => &ledger.open().cpus().union(ledger.open_isolated()),
        None => ledger.open().cpus(),
    };
    let mut held = pools.ownable(&previous.exclusive).intersection(open);
    leave_one_to_sharers(ledger, &mut held);
    if held.len() > wanted {
        return choose(pools, &held, wanted, request.wishes.cpus.is_spread());
    }
    // CPUs of one container are all isolated or none.
    let isolated = pools.ownable_isolated();
    let can_be_isolated = held.union(ledger.open_isolated()).intersection_len(&isolated) >= wanted;
    if held.intersects(&isolated) && !can_be_isolated {
        held.subtract(&isolated);
    }
    if !request.wishes.cpus.is_spread() {
        let mut siblings = around(pools, Level::Core, &held).difference(&held).intersection(open);
        request.wishes.cpus.avoids.iter().for_each(|avoided| siblings.subtract(avoided));
        let mut free = ledger.counted().clone();
        free.remove_all(pools, &held);
        let missing = wanted - held.len();
        held.union_with(&take_spare(ledger, request, &mut free, &siblings, missing));
    }
    held
}

/// A container that held these CPUs a moment ago had left each pool with sharers a CPU. One that held them earlier, or in another ledger, may not: the sharers
/// have been placed on them since.
fn leave_one_to_sharers(ledger: &Ledger, held: &mut CpuSet) {
    let needs_a_cpu = |pool: &&Pool| {
        let load = ledger.loads().get(pool.id.index()).copied().unwrap_or_default();
        load.needs_a_cpu(pool)
    };
    for pool in ledger.pools().iter().filter(needs_a_cpu) {
        let shared = pool.cpus.intersection(ledger.free());
        if let Some(last) = shared.last().filter(|_| shared.is_subset(held)) {
            held.remove(last);
        }
    }
}

/// Of CPUs that a container held some time ago, those that it can have back: without another owner, and the shared containers around them can do without.
#[must_use]
pub fn spare_cpus(ledger: &Ledger, request: &Request, cpus: &CpuSet) -> CpuSet {
    let mut free = ledger.counted().clone();
    take_spare(ledger, request, &mut free, &ledger.pools().ownable(cpus), cpus.len())
}

/// Takes up to `count` of these CPUs away, as far as they are open and the sharers around them can do without them.
pub(super) fn take_spare(
    ledger: &Ledger,
    request: &Request,
    free: &mut Counted,
    cpus: &CpuSet,
    count: usize,
) -> CpuSet {
    let open = ledger.open().cpus().union(ledger.open_isolated());
    let mut taken = CpuSet::new();
    for cpu in cpus.intersection(&open).iter() {
        if taken.len() < count && is_spare(ledger, free, cpu, request.demand.shared()) {
            taken.insert(cpu);
            free.remove_all(ledger.pools(), &CpuSet::from(cpu));
        }
    }
    taken
}

/// Whether the sharers around a CPU can do without it, one more of them included.
fn is_spare(ledger: &Ledger, free: &Counted, cpu: CpuId, shared: Option<MilliCpu>) -> bool {
    let pools = ledger.pools();
    let Some((_, core)) = pools.core_of(cpu) else { return false };
    let is_isolated = pools.isolated().contains(cpu);
    is_isolated
        || pools.chain(core.pool).all(|pool| {
            let mut load = ledger.loads().get(pool.id.index()).copied().unwrap_or_default();
            if let Some(milli) = shared {
                load.add(milli);
            }
            free.in_pool(pool.id).cpus > load.cpus_kept(pool)
        })
}
