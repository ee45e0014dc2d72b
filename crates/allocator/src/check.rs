//! Lists every breach of the ledger's invariants. In: a ledger. Out: one sentence per breach, none when all is well.

use bayplan_types::{Bytes, CpuClass, CpuSet, MilliCpu};

use crate::budget::Load;
use crate::counted::Counted;
use crate::domain::around;
use crate::ledger::Ledger;
use crate::pool::{Huge, Pool};
use crate::wishes::Part;

/// Every breach of the invariants that stand on [`Ledger`], recomputed from the allocations alone.
pub fn check_ledger(ledger: &Ledger) -> Vec<String> {
    let mut breaches = Vec::new();
    check_exclusive(ledger, &mut breaches);
    check_containers(ledger, &mut breaches);
    check_groups(ledger, &mut breaches);
    check_classes(ledger, &mut breaches);
    check_loads(ledger, &mut breaches);
    check_memory(ledger, &mut breaches);
    breaches
}

fn check_exclusive(ledger: &Ledger, breaches: &mut Vec<String>) {
    let allocatable = ledger.pools().allocatable();
    let may_own = allocatable.union(&ledger.pools().ownable_isolated());
    let mut seen = CpuSet::new();
    for (id, allocation) in ledger.allocations() {
        let exclusive = &allocation.owned();
        let twice = exclusive.intersection(&seen);
        if !twice.is_empty() {
            breaches.push(format!("{id} and another container both own CPUs {twice}"));
        }
        if !exclusive.is_subset(&may_own) {
            let outside = exclusive.difference(&may_own);
            breaches.push(format!("{id} owns CPUs {outside}, which are not to be handed out"));
        }
        let pool = ledger.pools().get(allocation.pool);
        let is_in = |pool: &Pool| allocation.shared.is_some() || exclusive.is_subset(&pool.cpus);
        if !pool.is_some_and(is_in) {
            breaches.push(format!("{id} owns CPUs {exclusive} outside its pool"));
        }
        seen.union_with(exclusive);
    }
    let expected = allocatable.difference(&seen);
    if *ledger.free() != expected {
        breaches.push(format!("shared CPUs are {}, should be {expected}", ledger.free()));
    }
    let recounted = Counted::new(ledger.pools(), ledger.free());
    if *ledger.counted() != recounted {
        breaches.push("shared CPUs are counted wrong".to_owned());
    }
    check_open(ledger, &seen, breaches);
    if expected.is_empty() && ledger.pools().reserved().is_empty() {
        breaches.push("no shared CPU is left on the machine".to_owned());
    }
}

/// What new requests may own: neither owned nor closed.
fn check_open(ledger: &Ledger, owned: &CpuSet, breaches: &mut Vec<String>) {
    let mut kept_out = owned.clone();
    for (_, allocation) in ledger.allocations() {
        if let Some(level) = allocation.terms.closes {
            kept_out.union_with(&around(ledger.pools(), level, &allocation.exclusive));
        }
    }
    let open = ledger.free().difference(&kept_out);
    if *ledger.open() != Counted::new(ledger.pools(), &open) {
        let actual = ledger.open().cpus();
        breaches.push(format!("CPUs open to new containers are {actual}, should be {open}"));
    }
    let isolated = ledger.pools().ownable_isolated().difference(&kept_out);
    if *ledger.open_isolated() != isolated {
        let actual = ledger.open_isolated();
        breaches.push(format!(
            "isolated CPUs open to new containers are {actual}, should be {isolated}"
        ));
    }
}

fn check_containers(ledger: &Ledger, breaches: &mut Vec<String>) {
    for (id, allocation) in ledger.allocations() {
        let cpus = ledger.cpus_of(allocation);
        // Members of a group may have all of its CPUs.
        if cpus.is_empty() && !allocation.is_group() {
            breaches.push(format!("{id} has no CPU to run on"));
        }
        if allocation.shared.is_some() && cpus.is_subset(&allocation.exclusive) {
            breaches.push(format!("{id} has no CPU for its shared part"));
        }
        if allocation.mems.is_empty() && !ledger.pools().nodes.is_empty() {
            breaches.push(format!("{id} has no memory node"));
        }
    }
}

/// Members have a group, and groups have only what members can have of them.
fn check_groups(ledger: &Ledger, breaches: &mut Vec<String>) {
    for (id, held) in ledger.allocations() {
        let part = held.terms.part;
        if let Some(group) = part.group().filter(|group| ledger.group(*group).is_none()) {
            breaches.push(format!("{id} belongs to the group {group}, which is not there"));
        }
        if matches!(part, Part::Member(_)) && (!held.owned().is_empty() || held.shared.is_some()) {
            breaches.push(format!("{id} shares the CPUs of its group and has others, too"));
        }
        if matches!(part, Part::Inside(_)) && (held.exclusive.is_empty() || held.shared.is_some()) {
            breaches.push(format!("{id} has no exclusive CPUs in its group, or shares others"));
        }
        if held.is_group() && (held.shared.is_some() || held.set_aside().next().is_some()) {
            breaches.push(format!("the group {id} holds more than CPUs"));
        }
    }
}

fn check_classes(ledger: &Ledger, breaches: &mut Vec<String>) {
    let count: usize = CpuClass::ALL.iter().map(|class| ledger.cpus_in_class(*class)).sum();
    let cpus = ledger.pools().cpus();
    if count != cpus.len() || cpus.iter().any(|cpu| ledger.class_of(cpu).is_none()) {
        breaches.push(format!("{count} CPUs have a class, the machine has {}", cpus.len()));
    }
}

fn check_loads(ledger: &Ledger, breaches: &mut Vec<String>) {
    for pool in ledger.pools().iter() {
        let mut expected = Load::default();
        for (_, allocation) in ledger.allocations().filter(|(_, a)| !a.is_reserved) {
            let is_inside = ledger.pools().chain(allocation.pool).any(|outer| outer.id == pool.id);
            if let Some(milli) = allocation.shared.filter(|_| is_inside) {
                expected.add(milli);
            }
        }
        let actual = ledger.loads().get(pool.id.index()).copied().unwrap_or_default();
        if actual != expected {
            breaches.push(format!("pool `{}` counts {actual:?}, holds {expected:?}", pool.name));
        }
        let mut home = ledger.allocations().filter(|(_, it)| it.pool == pool.id && !it.is_reserved);
        if !pool.is_shared && home.any(|(_, it)| it.shared.is_some()) {
            breaches.push(format!("pool `{}` has shared containers, and is not shared", pool.name));
        }
        let is_dry = ledger.shared_cpus(pool.id).is_empty() && !pool.has_refuge;
        if expected.milli > MilliCpu::ZERO && is_dry {
            breaches.push(format!("pool `{}` has requests and no shared CPU", pool.name));
        }
    }
}

fn check_memory(ledger: &Ledger, breaches: &mut Vec<String>) {
    for node in &ledger.pools().nodes {
        let held = |is_expected: bool| -> Bytes {
            let of_kind =
                ledger.allocations().filter(|(_, it)| it.terms.memory_is_expected == is_expected);
            let charges = of_kind.flat_map(|(_, allocation)| &allocation.charges);
            charges.filter(|(id, _)| *id == node.id).map(|(_, bytes)| *bytes).sum()
        };
        let actual = ledger.memory_charged(node.id);
        let likely = ledger.charged().expected_on(ledger.pools(), node.id);
        for (actual, expected) in [(actual, held(false)), (likely, held(true))] {
            if actual != expected {
                breaches.push(format!("node {} counts {actual}, holds {expected}", node.id));
            }
        }
        if node.memory.is_some_and(|capacity| actual > capacity) {
            breaches.push(format!("node {} has {actual} set aside, more than it has", node.id));
        }
    }
    for Huge { node, size, capacity } in &ledger.pools().huge {
        let charges = ledger.allocations().flat_map(|(_, allocation)| &allocation.huge_charges);
        let here = charges.filter(|charge| charge.node == *node && charge.size == *size);
        let expected: Bytes = here.map(|charge| charge.bytes).sum();
        let actual = ledger.charged().huge_on(ledger.pools(), *node, *size);
        if actual != expected || actual > *capacity {
            breaches.push(format!(
                "node {node} counts {actual} in huge pages of {size}, holds {expected}, has {capacity}"
            ));
        }
    }
}
