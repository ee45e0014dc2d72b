//! Invariants over random machines and histories.

mod generated;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bayplan_topology::{derive, parse_machine};
use bayplan_types::{Bytes, CpuId, CpuSet, MilliCpu};
use proptest::prelude::*;

use self::generated::{Op, any_group_op, any_machine, any_op, uneven_machine};
use super::{machine, nodes_with_cpus, request, split_policy, wish};
use crate::place::near_room;
use crate::policy::pools;
use crate::search::{Question, Search, Standing};
use crate::*;

fn restarted(ledger: &Ledger) -> Ledger {
    let mut again = Ledger::new(Arc::new(ledger.pools().clone()));
    for (id, allocation) in ledger.allocations() {
        again.adopt(id, allocation.clone()).unwrap();
    }
    again
}

/// Narrows until no container can do with fewer nodes; that ends, and no other is touched.
fn narrow_all(
    ledger: &mut Ledger,
    requests: &BTreeMap<ContainerId, Request>,
) -> Result<(), TestCaseError> {
    let mut plan = plan_narrowing(ledger, |id| requests.get(&id).cloned());
    while let Some(first) = plan.first().cloned() {
        let before = ledger.clone();
        ledger.narrow(&first).unwrap();
        prop_assert!(first.to.is_subset(&first.from) && first.to != first.from);
        let wanted = &requests[&first.container];
        let (now, then) = (ledger.allocation(first.container), before.allocation(first.container));
        let (now, then) = (now.unwrap(), then.unwrap());
        let set_aside: Bytes = now.charges.iter().map(|(_, bytes)| *bytes).sum();
        prop_assert_eq!(set_aside, wanted.memory);
        let lacking = |held: &Allocation| -> Bytes {
            held.huge_pages_lacking(wanted).into_iter().map(|(_, bytes)| bytes).sum()
        };
        prop_assert!(lacking(now) <= lacking(then));
        for (id, held) in ledger.allocations().filter(|(id, _)| *id != first.container) {
            prop_assert_eq!(before.allocation(id), Some(held));
        }
        prop_assert!(ledger.narrow(&first).is_err());
        plan = plan_narrowing(ledger, |id| requests.get(&id).cloned());
        prop_assert!(plan.iter().all(|next| next.container != first.container));
    }
    Ok(())
}

/// Exclusive CPUs given must not starve a shared container: each pool keeps shared CPUs for what is requested on it, unless shared requests alone
/// were already more than the pool has.
fn check_room(ledger: &Ledger, before: &Ledger) -> Result<(), TestCaseError> {
    for pool in ledger.pools().iter() {
        let room = |ledger: &Ledger| MilliCpu::from_cpus(ledger.shared_cpus(pool.id).len());
        let has_grown = ledger.shared_requests(pool.id) > before.shared_requests(pool.id);
        let shrank = room(ledger) < room(before);
        if shrank && !has_grown {
            prop_assert!(ledger.shared_requests(pool.id) <= room(ledger), "pool {}", pool.name);
        }
    }
    Ok(())
}

/// A pool of which it was not worked out which containers would have to move would not have won.
fn check_skipped(ledger: &Ledger, wanted: &Request, offer: &Offer) -> Result<(), TestCaseError> {
    let near = near_room(ledger, wanted);
    let question = Question::new(ledger, near.as_ref().unwrap_or(wanted));
    let search = Search::new(&question);
    let won = offer.considered().iter().filter_map(|row| row.outcome.as_ref().ok()).max();
    for row in offer.considered() {
        if row.outcome != Err(Rejection::NotWorthMoves) {
            continue;
        }
        let pool = ledger.pools().get(row.pool).unwrap();
        let Ok(Standing::Short(short)) = search.score(pool, 0) else {
            prop_assert!(false, "{} is not short", pool.name);
            continue;
        };
        if let Ok(candidate) = search.score_with_room(pool, &short) {
            prop_assert!(candidate.score <= short.at_best, "{}", pool.name);
            // One with CPUs that broke a requirement, once they were picked, was compared again under a narrower view.
            let is_unfit = search.allocation(pool, &candidate).is_err();
            prop_assert!(is_unfit || Some(&candidate.score) < won, "{}", pool.name);
        }
    }
    Ok(())
}

/// A ledger and what the containers in it asked for.
struct Played {
    ledger: Ledger,
    requests: BTreeMap<ContainerId, Request>,
    /// Groups that are made of components: these decide their CPUs from then on.
    composed: BTreeSet<ContainerId>,
    /// Places that containers had before they were resized.
    places: Vec<Previous>,
}

impl Played {
    fn step(&mut self, step: u64, op: Op) -> Result<(), TestCaseError> {
        let named = |which: usize| self.requests.keys().nth(which % self.requests.len()).copied();
        match op {
            Op::Create { .. } => self.create(step, op)?,
            Op::Release(which) if !self.requests.is_empty() => {
                let id = named(which).unwrap();
                let is_needed = self.ledger.members_of(id).next().is_some();
                prop_assert_eq!(self.ledger.release(id).is_none(), is_needed);
                if !is_needed {
                    self.requests.remove(&id);
                    prop_assert!(self.ledger.release(id).is_none());
                }
            }
            Op::Resize { which, exclusive, shared } if !self.requests.is_empty() => {
                let id = named(which).unwrap();
                let part = self.ledger.allocation(id).unwrap().terms.part;
                if part != Part::Group {
                    let mut wanted = request(id.0, exclusive, shared);
                    wanted.wishes.pod.part = part;
                    self.resize(wanted)?;
                }
            }
            Op::Group { cpus, exactly, wishes } => {
                self.make_group(step, (cpus, exactly), &wishes)?;
            }
            Op::GroupSize { which, cpus } => self.resize_group(which, cpus)?,
            Op::Join { which, own, gib, wishes } => self.join(step, (which, own, gib), &wishes)?,
            Op::Compose { which, sizes, wishes } => self.compose(which, &sizes, &wishes)?,
            Op::Restart => {
                let again = restarted(&self.ledger);
                prop_assert_eq!(again.holdings(), self.ledger.holdings());
                self.ledger = again;
            }
            Op::Narrow => narrow_all(&mut self.ledger, &self.requests)?,
            _ => {}
        }
        Ok(())
    }

    fn make_group(
        &mut self,
        step: u64,
        (cpus, exactly): (usize, Option<u64>),
        wishes: &[&str],
    ) -> Result<(), TestCaseError> {
        let mut wanted = request(step, cpus, None);
        wishes.iter().for_each(|word| wish(&mut wanted, word));
        wanted.wishes.preserve = Preserve::default();
        wanted.memory = Bytes::ZERO;
        wanted.memory_limit = None;
        wanted.huge_pages.clear();
        wanted.is_reserved = false;
        wanted.owner = Owner { pod: 1000 + step, namespace: 1000 + step };
        wanted.wishes.pod = PodWishes { part: Part::Group, ..PodWishes::default() };
        if let Some(mask) = exactly {
            let known = self.ledger.pools().cpus();
            let of_mask = known.iter().filter(|cpu| mask & 1 << (cpu.0 % 64) != 0);
            wanted.wishes.cpus.exactly = of_mask.take(cpus).collect();
        }
        let exactly = wanted.wishes.cpus.exactly.clone();
        let Ok(offer) = offer(&self.ledger, &wanted) else { return Ok(()) };
        let given = offer.allocation().exclusive.clone();
        prop_assert!(exactly.is_empty() && given.len() == cpus || given == exactly);
        self.ledger.commit(offer).unwrap();
        self.requests.insert(wanted.id, wanted);
        Ok(())
    }

    fn nth_group(&self, which: usize) -> Option<ContainerId> {
        let groups: Vec<ContainerId> = self.ledger.groups().map(|(id, _)| id).collect();
        groups.get(which % groups.len().max(1)).copied()
    }

    /// Nothing but the group and what shares its CPUs is another then, beside sharers that made way.
    fn resize_group(&mut self, which: usize, cpus: usize) -> Result<(), TestCaseError> {
        let Some(id) = self.nth_group(which) else { return Ok(()) };
        let mut wanted = self.requests[&id].clone();
        if !wanted.wishes.cpus.exactly.is_empty() {
            return Ok(());
        }
        wanted.demand = Demand::new(cpus, None);
        let before = self.ledger.clone();
        let (had, kept) = (before.group_cpus(id), before.holdings().clone());
        let given: usize = before.members_of(id).map(|(_, it)| it.exclusive.len()).sum();
        let is_shared = before.members_of(id).any(|(_, it)| it.exclusive.is_empty());
        match self.ledger.resize_group(&wanted) {
            Ok(_) => {
                let has = self.ledger.group_cpus(id);
                prop_assert_eq!(has.len(), cpus.max(given + usize::from(is_shared)));
                let (kept, gone) = (has.intersection(&had), had.difference(&has));
                // What shrinks beside members with CPUs of their own may have to keep away from these.
                let is_all =
                    if has.len() < had.len() { given > 0 || kept == has } else { gone.is_empty() };
                // Without the wish, isolated CPUs are given back.
                prop_assert!(is_all || !had.is_disjoint(before.pools().isolated()));
            }
            Err(_) => prop_assert_eq!(self.ledger.holdings(), &kept),
        }
        for (other, it) in before.allocations().filter(|(other, _)| *other != id) {
            let now = self.ledger.allocation(other).unwrap();
            prop_assert_eq!(&now.exclusive, &it.exclusive);
            prop_assert!(it.mems.is_subset(&now.mems));
        }
        Ok(())
    }

    /// Components keep what they can, have as many as they are to have, and have none in common; the group can have what they have together.
    fn compose(
        &mut self,
        which: usize,
        sizes: &[usize],
        wishes: &[&str],
    ) -> Result<(), TestCaseError> {
        let Some(id) = self.nth_group(which) else { return Ok(()) };
        let has_insiders = self.ledger.members_of(id).any(|(_, it)| !it.exclusive.is_empty());
        let is_list = !self.requests[&id].wishes.cpus.exactly.is_empty();
        if has_insiders || is_list && !self.composed.contains(&id) {
            return Ok(());
        }
        let mut left = self.ledger.group_cpus(id);
        let mut components = Vec::new();
        for (at, size) in (0..).zip(sizes) {
            let mut part = request(u64::MAX - at, *size, None);
            wishes.iter().for_each(|word| wish(&mut part, word));
            part.wishes.preserve = Preserve::default();
            (part.memory, part.memory_limit, part.is_reserved) = (Bytes::ZERO, None, false);
            part.huge_pages.clear();
            part.wishes.pod = PodWishes { part: Part::Group, ..PodWishes::default() };
            let has: CpuSet = left.iter().take(*size + 1).collect();
            left.subtract(&has);
            components.push(Component { request: part, has });
        }
        let before = self.ledger.holdings().clone();
        let composed = self.ledger.compose(id, &components);
        prop_assert_eq!(self.ledger.holdings(), &before);
        let Ok(composed) = composed else { return Ok(()) };
        let mut all = CpuSet::new();
        for (cpus, size) in composed.iter().zip(sizes) {
            prop_assert_eq!(cpus.len(), *size);
            prop_assert!(cpus.is_disjoint(&all));
            all.union_with(cpus);
        }
        let mut wanted = self.requests[&id].clone();
        wanted.demand = Demand::new(all.len(), None);
        wanted.wishes.cpus = CpuWishes { exactly: all.clone(), ..CpuWishes::default() };
        if all.len() != self.ledger.group_cpus(id).len()
            && self.ledger.resize_group(&wanted).is_ok()
        {
            prop_assert_eq!(self.ledger.group_cpus(id), all);
            self.requests.insert(id, wanted);
            self.composed.insert(id);
        }
        Ok(())
    }

    fn join(
        &mut self,
        step: u64,
        (which, own, gib): (usize, usize, u64),
        wishes: &[&str],
    ) -> Result<(), TestCaseError> {
        let Some(group) = self.nth_group(which) else { return Ok(()) };
        let mut wanted = request(step, own, None);
        wishes.iter().for_each(|word| wish(&mut wanted, word));
        wanted.memory = Bytes::gib(gib);
        wanted.is_reserved = false;
        let part = if own == 0 { Part::Member(group) } else { Part::Inside(group) };
        wanted.wishes.pod = PodWishes { part, ..PodWishes::default() };
        let before = self.ledger.clone();
        let all = before.group_cpus(group);
        let Ok(offer) = offer(&self.ledger, &wanted) else { return Ok(()) };
        prop_assert_eq!(offer.allocation().exclusive.len(), own);
        prop_assert!(offer.moves().is_empty());
        self.ledger.commit(offer).unwrap();
        let held = self.ledger.allocation(wanted.id).unwrap();
        prop_assert!(self.ledger.cpus_of(held).is_subset(&all));
        prop_assert_eq!(self.ledger.group_cpus(group), all);
        prop_assert_eq!(self.ledger.free(), before.free());
        self.requests.insert(wanted.id, wanted);
        Ok(())
    }

    fn create(&mut self, step: u64, op: Op) -> Result<(), TestCaseError> {
        let Op::Create { exclusive, shared, gib, limit, reserved, wishes } = op else {
            return Ok(());
        };
        let ledger = &mut self.ledger;
        let mut wanted = request(step, exclusive, shared);
        wanted.memory = Bytes::gib(gib);
        wanted.memory_limit = limit.map(Bytes::gib);
        wanted.is_reserved = reserved;
        wanted.owner.pod = step / 3;
        wishes.iter().for_each(|word| wish(&mut wanted, word));
        prop_assert_eq!(offer(ledger, &wanted), offer(ledger, &wanted));
        if let Ok(offer) = offer(ledger, &wanted) {
            check_skipped(ledger, &wanted, &offer)?;
            let allocation = offer.allocation().clone();
            ledger.commit(offer).unwrap();
            if !allocation.is_reserved && !wanted.wishes.preserve.cpus {
                prop_assert_eq!(allocation.exclusive.len(), exclusive);
            }
            self.requests.insert(wanted.id, wanted);
        } else {
            // Only memory or exclusive CPUs can be lacking: a shared part always fits somewhere.
            prop_assert!(exclusive > 0 || gib > 0 || !wishes.is_empty());
        }
        Ok(())
    }

    fn resize(&mut self, mut wanted: Request) -> Result<(), TestCaseError> {
        let ledger = &mut self.ledger;
        let held = ledger.release(wanted.id).unwrap();
        for earlier in &self.places {
            check_earlier_place(ledger, &wanted, earlier)?;
        }
        let previous = Previous { pool: held.pool, exclusive: held.exclusive.clone() };
        self.places.push(previous.clone());
        wanted.previous = Some(previous);
        let part = wanted.wishes.pod.part;
        match offer(ledger, &wanted) {
            Ok(offer) if part.group().is_some() => {
                ledger.commit(offer).unwrap();
                self.requests.insert(wanted.id, wanted);
            }
            Ok(offer) => {
                let now = offer.allocation().exclusive.clone();
                prop_assert_eq!(now.len(), wanted.demand.exclusive());
                // Without the wish, isolated CPUs are given back.
                let pools = ledger.pools();
                let held = pools.ownable(&held.exclusive).intersection(&pools.allocatable());
                prop_assert!(now.is_subset(&held) || held.is_subset(&now));
                ledger.commit(offer).unwrap();
                self.requests.insert(wanted.id, wanted);
            }
            Err(_) => ledger.adopt(wanted.id, held).unwrap(),
        }
        Ok(())
    }
}

/// Others may have been placed on the CPUs of an earlier place since: they keep a CPU whatever is asked, and all that they need where only spare ones are.
fn check_earlier_place(
    ledger: &Ledger,
    wanted: &Request,
    earlier: &Previous,
) -> Result<(), TestCaseError> {
    let spare = spare_cpus(ledger, wanted, &earlier.exclusive);
    prop_assert!(spare.is_subset(&earlier.exclusive));
    for exclusive in [&earlier.exclusive, &spare] {
        let previous = Some(Previous { pool: earlier.pool, exclusive: exclusive.clone() });
        let mut after = ledger.clone();
        // That all are as they should be is looked at by `commit`.
        if let Ok(offer) = offer(ledger, &Request { previous, ..wanted.clone() }) {
            after.commit(offer).unwrap();
        }
    }
    for pool in ledger.pools().iter() {
        let load = ledger.loads()[pool.id.index()];
        let left = ledger.shared_cpus(pool.id).difference(&spare).len();
        let has_lost = left < ledger.shared_cpus(pool.id).len();
        prop_assert!(!has_lost || left >= load.cpus_kept(pool), "{}", pool.name);
    }
    Ok(())
}

/// Where a NUMA node is said to have CPUs left, so many exclusive ones of one node are given, also if only whole cores are.
fn check_zones(ledger: &Ledger) -> Result<(), TestCaseError> {
    for only_whole_cores in [false, true] {
        let zones = zones(ledger, &nodes_with_cpus(ledger.pools()), only_whole_cores);
        for zone in &zones {
            let Amount { capacity, allocatable, available } = zone.cpu;
            prop_assert!(available <= allocatable && allocatable <= capacity, "{zone:?}");
        }
        let cpus = zones.iter().map(|zone| zone.cpu.available.whole_cpus()).max().unwrap_or(0);
        if cpus > 0 {
            let mut wanted = request(u64::MAX, cpus, None);
            wish(&mut wanted, "within:Numa");
            wanted.wishes.cpus.only_whole_cores = only_whole_cores;
            let offered = offer(ledger, &wanted);
            prop_assert!(offered.is_ok(), "{cpus} CPUs, {only_whole_cores}: {zones:?}");
        }
    }
    Ok(())
}

/// Those that only share have the CPUs of all others of their pool that do.
fn check_shared(ledger: &Ledger) -> Result<(), TestCaseError> {
    let mut of_pools = BTreeMap::new();
    for (id, held) in ledger.allocations().filter(|(_, it)| it.only_shares()) {
        let cpus = ledger.cpus_of(held);
        let of_pool = of_pools.entry(held.pool).or_insert_with(|| cpus.clone());
        prop_assert_eq!(&*of_pool, &cpus, "{}", id);
    }
    Ok(())
}

fn check_history(line: &str, reserved: &str, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let ledger = machine(line, reserved).unwrap();
    let initial = ledger.holdings().clone();
    let (requests, composed) = (BTreeMap::new(), BTreeSet::new());
    let mut played = Played { ledger, requests, composed, places: Vec::new() };
    for (step, op) in (0..).zip(ops) {
        let before = played.ledger.clone();
        played.step(step, op)?;
        prop_assert_eq!(check_ledger(&played.ledger), Vec::<String>::new());
        check_room(&played.ledger, &before)?;
        check_shared(&played.ledger)?;
    }
    check_zones(&played.ledger)?;
    // Groups go after their members.
    for id in played.requests.keys().chain(played.requests.keys()) {
        played.ledger.release(*id);
    }
    prop_assert_eq!(played.ledger.holdings(), &initial);
    Ok(())
}

/// The same containers under other names, in the opposite order, get the same places.
#[track_caller]
fn check_names_decide_nothing(line: &str, reserved: &str, demands: &[(usize, Option<u64>)]) {
    let places = |renamed: fn(u64) -> u64| {
        let mut ledger = machine(line, reserved).unwrap();
        let mut places = Vec::new();
        for (id, (exclusive, shared)) in (0..).zip(demands) {
            if let Ok(offer) = offer(&ledger, &request(renamed(id), *exclusive, *shared)) {
                places.push(offer.allocation().clone());
                ledger.commit(offer).unwrap();
            }
        }
        (places, ledger.free().clone())
    };
    assert_eq!(places(|id| id), places(|id| 1000 - id), "{line} {demands:?}");
}

#[test]
fn names_of_equal_shared_containers_in_two_pools_do_not_decide_which_moves() {
    let mixed = (2, Some(1746));
    let demands = [(2, None), mixed, mixed, (1, None), (1, None)];
    check_names_decide_nothing("pack:2 die:2 numa:1 l3:1 core:3 pu:2 mem:8", "0", &demands);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_history_on_large_and_uneven_machines_keeps_every_invariant(
        (line, reserved) in uneven_machine(),
        ops in prop::collection::vec(any_op(150), 1..25),
    ) {
        check_history(&line, &reserved, ops)?;
    }
}

/// As many machines and histories as are usual, or as PROPTEST_CASES asks for where that is more.
fn cases(usual: u32) -> u32 {
    ProptestConfig::default().cases.max(usual)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(2500)))]

    #[test]
    fn any_history_on_any_machine_keeps_every_invariant(
        (line, reserved) in any_machine(),
        ops in prop::collection::vec(any_op(8), 1..40),
    ) {
        check_history(&line, &reserved, ops)?;
    }

    #[test]
    fn any_history_with_groups_keeps_every_invariant(
        (line, reserved) in any_machine(),
        ops in prop::collection::vec(any_group_op(8), 1..40),
    ) {
        check_history(&line, &reserved, ops)?;
    }

    #[test]
    fn what_is_claimed_is_as_if_the_kernel_had_it_in_a_partition(
        (line, reserved) in any_machine(),
        claimed in any::<u64>(),
    ) {
        let claimed: CpuSet = (0..64).filter(|cpu| claimed & 1 << cpu != 0).map(CpuId).collect();
        let reserved = reserved.parse().unwrap();
        let (line, policy) = split_policy(&line);
        let mut snapshot = parse_machine(line).unwrap();
        let Ok(base) = pools(&derive(&snapshot).unwrap(), policy, &reserved) else { return Ok(()) };
        snapshot.partitioned = Some(claimed.clone());
        // Elsewhere shared containers have to run somewhere.
        if let Ok(expected) = pools(&derive(&snapshot).unwrap(), policy, &reserved) {
            prop_assert_eq!(base.with_claimed(&claimed), expected);
        }
    }

    #[test]
    fn a_larger_machine_never_refuses_what_a_smaller_one_took(
        (pack, numa, core, pu, more) in (1u32..3, 1u32..3, 1u32..5, 1u32..3, 1u32..3),
        ops in prop::collection::vec((0usize..6, prop::option::of(0u64..2000), any::<prop::sample::Index>(), any::<bool>()), 1..25),
    ) {
        let line = |pack| format!("pack:{pack} numa:{numa} core:{core} pu:{pu}");
        let mut small = machine(&line(pack), "").unwrap();
        let mut large = machine(&line(pack + more), "").unwrap();
        let mut live = Vec::new();
        for (id, (exclusive, shared, which, leaves)) in (0..).zip(ops) {
            let wanted = request(id, exclusive, shared);
            if let Ok(taken) = offer(&small, &wanted) {
                small.commit(taken).unwrap();
                let on_large = offer(&large, &wanted);
                prop_assert!(on_large.is_ok(), "{}: {:?}", wanted.demand, on_large);
                large.commit(on_large.unwrap()).unwrap();
                live.push(wanted.id);
            }
            if leaves && !live.is_empty() {
                let id = live.swap_remove(which.index(live.len()));
                small.release(id).unwrap();
                large.release(id).unwrap();
            }
        }
    }

    #[test]
    fn equal_containers_in_another_order_get_the_same_places(
        (line, reserved) in any_machine(),
        demands in prop::collection::vec((0usize..5, prop::option::of(0u64..2000)), 1..12),
    ) {
        check_names_decide_nothing(&line, &reserved, &demands);
    }

    #[test]
    fn pools_form_a_tree_of_disjoint_children((line, reserved) in any_machine()) {
        let ledger = machine(&line, &reserved).unwrap();
        for pool in ledger.pools().iter() {
            let mut seen = CpuSet::new();
            for child in pool.children.iter().filter_map(|id| ledger.pools().get(*id)) {
                prop_assert!(child.cpus.is_subset(&pool.cpus) && child.cpus != pool.cpus);
                prop_assert!(child.cpus.is_disjoint(&seen));
                seen.union_with(&child.cpus);
            }
        }
        let names: BTreeSet<_> =
            ledger.pools().iter().map(|pool| &pool.name).collect();
        prop_assert_eq!(names.len(), ledger.pools().iter().count());
    }
}
