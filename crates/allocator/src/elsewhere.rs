//! Where else a container could share CPUs. In: a ledger, the container, the CPUs that it is to leave. Out: a pool, or what would be left of its CPU time.
//!
//! As in `home.rs` the ledger does not change: its place stays set aside for it, and a caller that asks again later is told when others need the room
//! elsewhere.
//!
//! Guarantees: nothing is changed; the same input gives the same pool; none of its CPUs are to be left, and what is asked for there fits.

use std::cmp::Reverse;

use bayplan_types::{CpuSet, MilliCpu};

use crate::allocation::Allocation;
use crate::id::ContainerId;
use crate::ledger::Ledger;
use crate::pool::{Pool, PoolId};

impl Allocation {
    /// It can share CPUs of other NUMA nodes than those of its place: nothing binds it to these.
    pub fn may_share_elsewhere(&self) -> bool {
        let terms = &self.terms;
        let is_bound = terms.is_immovable || terms.is_memory_bound || terms.is_place_bound;
        let is_free = !is_bound && !terms.preserve.cpus && !self.is_reserved;
        is_free && self.exclusive.is_empty() && self.shared.is_some()
    }
}

/// A container that shares CPUs of this pool and not of its own, of which the ledger does not know.
pub type Guest = (ContainerId, PoolId);

impl Ledger {
    /// The pool to which a container that shares could go, away from `leave`, beside these other guests: one of no more NUMA nodes than its own has,
    /// the one nearest to its memory, and of these the one that has most CPU time left by what is asked for. `None` where no pool has room, or it is
    /// not to go.
    pub fn elsewhere(&self, id: ContainerId, leave: &CpuSet, guests: &[Guest]) -> Option<PoolId> {
        let (pools, held) = (self.pools(), self.allocation(id)?);
        let own = pools.get(held.pool)?;
        let distance = |pool: &Pool| {
            let to = |node| pool.nodes.iter().map(|it| pools.distance(it, node)).min();
            held.mems.iter().filter_map(to).max()
        };
        let others = pools.iter().filter(|pool| {
            let is_away = pool.is_shared && !pool.cpus.intersects(leave);
            let has_cpus = !self.shared_cpus(pool.id).is_empty();
            is_away && has_cpus && pool.nodes.len() <= own.nodes.len() && pool.id != own.id
        });
        let roomy = others.filter_map(|pool| {
            let left = self.left_elsewhere(id, pool.id, guests)?;
            Some((distance(pool), Reverse(left), pool.id))
        });
        roomy.min().filter(|_| held.may_share_elsewhere()).map(|(.., pool)| pool)
    }

    /// CPU time, in milli-CPU, that is left where it is scarcest when a container shares the CPUs of another pool beside these other guests: there, and in the
    /// pools around it that do not hold its own. `None` where that is too little.
    pub fn left_elsewhere(&self, id: ContainerId, pool: PoolId, guests: &[Guest]) -> Option<u64> {
        let pools = self.pools();
        let home = |id| pools.get(self.allocation(id)?.pool);
        let asked = |id| self.allocation(id).and_then(|held| held.shared).unwrap_or_default();
        let own = home(id)?;
        let left_in = |pool: &Pool| {
            // A container in its own place there is among the requests.
            let is_new = |(id, at): &&Guest| {
                let is_in = |it: &Pool| it.cpus.is_subset(&pool.cpus);
                pools.get(*at).is_some_and(is_in) && !home(*id).is_some_and(is_in)
            };
            let theirs = guests.iter().filter(|it| it.0 != id && is_new(it));
            let theirs: u64 = theirs.map(|(id, _)| asked(*id).0).sum();
            let time = MilliCpu::from_cpus(self.shared_cpus(pool.id).len());
            time.0.checked_sub(self.shared_requests(pool.id).0 + theirs + asked(id).0)
        };
        let around = pools.chain(pool).filter(|pool| !own.cpus.is_subset(&pool.cpus));
        around.map(left_in).min().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bayplan_topology::{derive, parse_machine};

    use super::*;
    use crate::policy::{Policy, pools};
    use crate::{Demand, PoolId, Request, offer};

    /// Four nodes of four CPUs in two packages. Each row places a container that asks for so many milli-CPU in the pool of this name.
    fn ledger(placed: &[(&str, u64)], terms: impl Fn(&mut Allocation)) -> Ledger {
        let topology = derive(&parse_machine("pack:2 numa:2 core:4 pu:1 mem:8").unwrap()).unwrap();
        let mut ledger =
            Ledger::new(Arc::new(pools(&topology, Policy::default(), &CpuSet::new()).unwrap()));
        for (id, (pool, milli)) in (0..).zip(placed) {
            let pool = ledger.pools().named(pool).unwrap();
            let (shared, mems) = (Some(MilliCpu(*milli)), pool.nodes.clone());
            let mut held = Allocation { shared, mems, ..Allocation::new(pool.id) };
            terms(&mut held);
            ledger.adopt(ContainerId(id), held).unwrap();
        }
        ledger
    }

    /// Where the first goes when it is to leave CPUs.
    #[track_caller]
    fn check(placed: &[(&str, u64)], leave: &str, expected: &str) {
        check_terms(placed, leave, |_| {}, expected);
    }

    #[track_caller]
    fn check_terms(
        placed: &[(&str, u64)],
        leave: &str,
        terms: impl Fn(&mut Allocation),
        expected: &str,
    ) {
        let ledger = ledger(placed, terms);
        let found = ledger.elsewhere(ContainerId(0), &leave.parse().unwrap(), &[]);
        let found = found.and_then(|it| ledger.pools().get(it));
        assert_eq!(found.map_or_else(String::new, |it| it.cpus.to_string()), expected);
    }

    /// The first goes away from node 0; those of the names are guests of pools already.
    #[track_caller]
    fn check_guests(placed: &[(&str, u64)], guests: &[(u64, &str)], expected: &str) {
        let ledger = ledger(placed, |_| {});
        let pool = |name: &str| ledger.pools().named(name).unwrap().id;
        let guests: Vec<Guest> =
            guests.iter().map(|(id, name)| (ContainerId(*id), pool(name))).collect();
        let found = ledger.elsewhere(ContainerId(0), &"0-3".parse().unwrap(), &guests);
        let found = found.and_then(|it| ledger.pools().get(it));
        assert_eq!(found.map_or_else(String::new, |it| it.cpus.to_string()), expected);
    }

    #[test]
    fn a_second_guest_goes_where_the_first_leaves_it_room() {
        let placed = [("numa 0", 2000), ("numa 0", 1500), ("numa 0", 500)];
        check_guests(&placed, &[(1, "numa 1")], "4-7");
        check_guests(&placed, &[(1, "numa 1"), (2, "numa 1")], "4-7");
        let placed = [("numa 0", 2000), ("numa 0", 3000)];
        check_guests(&placed, &[(1, "numa 1")], "8-11");
        // Not beside itself, where it is already.
        check_guests(&[("numa 0", 3000)], &[(0, "numa 1")], "4-7");
    }

    #[test]
    fn a_guest_from_the_same_package_is_counted_there_once() {
        let placed = [("numa 0", 1000), ("numa 0", 2000), ("package 0", 5000)];
        check_guests(&placed, &[(1, "numa 1")], "4-7");
    }

    /// The node has room, and the package around it has not.
    #[test]
    fn a_guest_goes_where_the_pools_around_have_room_too() {
        let placed = [("numa 0", 3000), ("package 1", 5000), ("numa 3", 1000)];
        let leave = "0-7".parse().unwrap();
        let ledger = ledger(&placed, |_| {});
        let numa2 = ledger.pools().named("numa 2").unwrap().id;
        assert_eq!(ledger.left_elsewhere(ContainerId(0), numa2, &[]), None);
        assert_eq!(ledger.elsewhere(ContainerId(0), &leave, &[]), None);
    }

    #[test]
    fn the_nearest_pool_with_room_is_taken_and_of_those_the_one_with_most() {
        check(&[("numa 0", 500)], "0-3", "4-7");
        check(&[("numa 0", 500)], "0-7", "8-11");
        check(&[("numa 0", 500), ("numa 2", 100)], "0-7", "12-15");
        check(&[("numa 0", 500), ("numa 1", 3600)], "0-3", "8-11");
        check(&[("package 0", 500)], "0-3", "4-7");
    }

    #[test]
    fn without_room_no_container_moves() {
        check(&[("numa 0", 500)], "0-15", "");
        check(&[("numa 0", 3000), ("numa 1", 2000), ("package 1", 6000)], "0-3", "");
        check(&[("numa 0", 4000)], "4-15", "");
    }

    #[test]
    fn a_container_bound_to_a_place_does_not_leave_it() {
        let place = [("numa 0", 500)];
        check_terms(&place, "0-3", |it| it.terms.is_immovable = true, "");
        check_terms(&place, "0-3", |it| it.terms.is_memory_bound = true, "");
        check_terms(&place, "0-3", |it| it.terms.is_place_bound = true, "");
        check_terms(&place, "0-3", |it| it.terms.preserve.cpus = true, "");
    }

    #[test]
    fn an_exclusive_container_does_not_share_in_another_pool() {
        let topology = derive(&parse_machine("numa:2 core:4 pu:1").unwrap()).unwrap();
        let mut ledger =
            Ledger::new(Arc::new(pools(&topology, Policy::default(), &CpuSet::new()).unwrap()));
        let request = Request::new(ContainerId(0), Demand::new(1, Some(MilliCpu(500))));
        let offered = offer(&ledger, &request).unwrap();
        assert_ne!(offered.allocation().pool, PoolId::MACHINE);
        ledger.commit(offered).unwrap();
        assert_eq!(ledger.elsewhere(ContainerId(0), &"0-3".parse().unwrap(), &[]), None);
    }
}
