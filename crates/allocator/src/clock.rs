//! Clock domains: CPUs that share power and heat, so that wide vector code on one of them lowers the frequency of the others. In: a pool, the containers with such code, a strategy. Out: how
//! good the pool is for one more of them.

use bayplan_topology::Level;
use bayplan_types::CpuSet;

use crate::allocation::Allocation;
use crate::id::ContainerId;
use crate::ledger::Ledger;
use crate::pool::{Pool, Pools};
use crate::wishes::{ClockStrategy, ClockWish, PlaceWishes};

impl Pools {
    /// The packages, and one domain for CPUs of no known package.
    pub fn clock_domains(&self) -> Vec<CpuSet> {
        let packages = self.domains.iter().filter(|(level, _)| *level == Level::Package);
        let mut domains: Vec<CpuSet> = packages.map(|(_, cpus)| cpus.clone()).collect();
        let mut rest = self.cpus();
        domains.iter().for_each(|domain| rest.subtract(domain));
        domains.extend(Some(rest).filter(|rest| !rest.is_empty()));
        domains
    }
}

impl Ledger {
    /// How many of these containers have CPUs in each clock domain, in the order of [`Pools::clock_domains`]. One that shares CPUs of several counts in each.
    pub fn clock_counts(&self, containers: &[ContainerId]) -> Vec<usize> {
        let cpus = |held: &Allocation| match held.exclusive.is_empty() {
            true => self.cpus_of(held),
            false => held.exclusive.clone(),
        };
        let held = containers.iter().filter_map(|id| self.allocation(*id));
        let held: Vec<CpuSet> = held.map(cpus).collect();
        let domains = self.pools().clock_domains().into_iter();
        domains.map(|domain| held.iter().filter(|cpus| cpus.intersects(&domain)).count()).collect()
    }
}

/// Greater is better: spread, fewer others in the fullest domain that the pool lies in; squeezed, more of them in the emptiest. 0 where nothing is wished.
pub(crate) fn clock(ledger: &Ledger, pool: &Pool, wishes: &PlaceWishes) -> i64 {
    let Some(ClockWish { strategy, others }) = &wishes.clock else { return 0 };
    let domains = ledger.pools().clock_domains();
    let counts = domains.iter().zip(ledger.clock_counts(others));
    let here = counts.filter(|(domain, _)| domain.intersects(&pool.cpus)).map(|(_, count)| count);
    let count = match strategy {
        ClockStrategy::Spread => here.max(),
        ClockStrategy::Squeeze => here.min(),
    };
    let count = i64::try_from(count.unwrap_or_default()).unwrap_or(i64::MAX);
    if *strategy == ClockStrategy::Spread { -count } else { count }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bayplan_topology::{derive, parse_machine};
    use bayplan_types::MilliCpu;
    use proptest::prelude::*;

    use super::*;
    use crate::policy::{Policy, pools};
    use crate::{Demand, Request, offer};

    /// A ledger in which these pools hold a container each that uses wide vectors, numbered from 1, and one that does not use them.
    fn ledger(machine: &str, users: &[&str]) -> Ledger {
        let topology = derive(&parse_machine(machine).unwrap()).unwrap();
        let pools = Arc::new(pools(&topology, Policy::default(), &CpuSet::new()).unwrap());
        let mut ledger = Ledger::new(pools);
        for (id, name) in (1..).zip(users) {
            let pool = ledger.pools().named(name).unwrap();
            let (shared, mems) = (Some(MilliCpu(100)), pool.nodes.clone());
            let held = Allocation { shared, mems, ..Allocation::new(pool.id) };
            ledger.adopt(ContainerId(id), held).unwrap();
        }
        ledger
    }

    fn request(milli: u64, strategy: Option<ClockStrategy>, others: usize) -> Request {
        let others = (1..).take(others).map(ContainerId).collect();
        let mut request = Request::new(ContainerId(0), Demand::new(0, Some(MilliCpu(milli))));
        request.wishes.place.clock = strategy.map(|strategy| ClockWish { strategy, others });
        request
    }

    /// Where a container that asks for so many milli-CPU goes, without a strategy, spread, squeezed.
    #[track_caller]
    fn check(machine: &str, users: &[&str], milli: u64, expected: [&str; 3]) {
        let ledger = ledger(machine, users);
        let place = |strategy| {
            let offered = offer(&ledger, &request(milli, strategy, users.len())).unwrap();
            ledger.pools().get(offered.allocation().pool).unwrap().name.clone()
        };
        let strategies = [None, Some(ClockStrategy::Spread), Some(ClockStrategy::Squeeze)];
        assert_eq!(strategies.map(place), expected);
    }

    const FOUR_NODES: &str = "pack:2 numa:2 core:4 pu:1 mem:8";

    #[test]
    fn one_more_goes_where_fewest_are_or_where_most_are() {
        check(FOUR_NODES, &[], 500, ["numa 0", "numa 0", "numa 0"]);
        // The other node of the package has most room, and the same clock.
        check(FOUR_NODES, &["numa 0"], 500, ["numa 1", "numa 2", "numa 1"]);
        check(FOUR_NODES, &["numa 0", "numa 1", "numa 2"], 500, ["numa 3", "numa 3", "numa 0"]);
        check(FOUR_NODES, &["numa 2", "numa 3"], 500, ["numa 0", "numa 0", "numa 2"]);
        // One that shares CPUs of both packages is in both.
        check(FOUR_NODES, &["machine", "numa 2"], 500, ["numa 0", "numa 0", "numa 3"]);
    }

    #[test]
    fn one_that_needs_both_packages_has_both() {
        check(FOUR_NODES, &["numa 0"], 9000, ["machine", "machine", "machine"]);
    }

    #[test]
    fn there_is_no_choice_in_one_package() {
        check("numa:2 core:4 pu:1 mem:8", &["numa 1"], 500, ["numa 0", "numa 0", "numa 0"]);
    }

    #[test]
    fn room_goes_before_the_clock() {
        let mut full = ledger(FOUR_NODES, &["numa 0"]);
        for (id, name) in [(8, "numa 2"), (9, "numa 3")] {
            let pool = full.pools().named(name).unwrap();
            let (shared, mems) = (Some(MilliCpu(3900)), pool.nodes.clone());
            let held = Allocation { shared, mems, ..Allocation::new(pool.id) };
            full.adopt(ContainerId(id), held).unwrap();
        }
        let offered = offer(&full, &request(500, Some(ClockStrategy::Spread), 1)).unwrap();
        assert_eq!(full.pools().get(offered.allocation().pool).unwrap().name, "numa 1");
    }

    proptest! {
        /// On random machines, wherever they are: a place that is spread has no more of them in its domains than one that is squeezed, and where there are no others a
        /// strategy changes nothing.
        #[test]
        fn spread_is_never_fuller_than_squeezed(
            packages in 1_usize..4,
            nodes in 1_usize..3,
            users in prop::collection::vec(0_usize..12, 0..8),
            milli in 1_u64..3000,
        ) {
            let machine = format!("pack:{packages} numa:{nodes} core:4 pu:1 mem:8");
            let names: Vec<String> =
                users.iter().map(|it| format!("numa {}", it % (packages * nodes))).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let ledger = ledger(&machine, &names);
            let all: Vec<ContainerId> = (1..).take(names.len()).map(ContainerId).collect();
            let place = |strategy, others| {
                let offered = offer(&ledger, &request(milli, strategy, others)).unwrap();
                offered.allocation().pool
            };
            let fullest = |pool| {
                let cpus = &ledger.pools().get(pool).unwrap().cpus;
                let domains = ledger.pools().clock_domains();
                let counts = domains.iter().zip(ledger.clock_counts(&all));
                counts.filter(|(it, _)| it.intersects(cpus)).map(|(_, count)| count).max()
            };
            let (spread, squeeze) = (Some(ClockStrategy::Spread), Some(ClockStrategy::Squeeze));
            prop_assert!(fullest(place(spread, names.len())) <= fullest(place(squeeze, names.len())));
            for strategy in [spread, squeeze] {
                prop_assert_eq!(place(strategy, 0), place(None, 0));
            }
        }
    }
}
