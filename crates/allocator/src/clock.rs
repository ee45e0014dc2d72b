//! Clock domains: CPUs that share power and heat, so that wide vector code on one of them lowers the frequency of the others. In: a pool, the containers with such code, a strategy. Out: how
//! good the pool is for one more of them.

use std::cmp::Reverse;

use bayplan_topology::Level;
use bayplan_types::CpuSet;

use crate::allocation::Allocation;
use crate::id::ContainerId;
use crate::ledger::Ledger;
use crate::pool::{Pool, Pools};
use crate::wishes::{ClockStrategy, ClockWish, PlaceWishes};

impl ClockStrategy {
    /// How many fewer of the `others` share the clock in the best domain than in those that these CPUs lie in; where containers are squeezed, how many more. And that domain, the first of equals.
    /// `others` are counts by domain. 0 where there is none that is better.
    pub fn gain(self, domains: &[CpuSet], others: &[usize], cpus: &CpuSet) -> (usize, CpuSet) {
        let all = || domains.iter().zip(others.iter().copied());
        let here = all().filter(|(domain, _)| domain.intersects(cpus)).map(|(_, count)| count);
        let (gain, best) = match self {
            ClockStrategy::Spread => {
                let best = all().min_by_key(|(_, count)| *count);
                let fewest = best.map_or(0, |(_, count)| count);
                (here.max().unwrap_or(fewest).saturating_sub(fewest), best)
            }
            ClockStrategy::Squeeze => {
                let best = all().min_by_key(|(_, count)| Reverse(*count));
                let most = best.map_or(0, |(_, count)| count);
                (most - here.min().unwrap_or(most).min(most), best)
            }
        };
        (gain, best.map(|(domain, _)| domain.clone()).unwrap_or_default())
    }
}

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

    /// What a container on these CPUs gains, spread and squeezed, with so many others in each of three domains of two CPUs.
    #[track_caller]
    fn check_gain(others: [usize; 3], cpus: &str, expected: [(usize, &str); 2]) {
        let domains: Vec<CpuSet> = ["0-1", "2-3", "4-5"].map(|it| it.parse().unwrap()).into();
        let strategies = [ClockStrategy::Spread, ClockStrategy::Squeeze];
        let found = strategies.map(|it| it.gain(&domains, &others, &cpus.parse().unwrap()));
        assert_eq!(
            found.map(|(gain, best)| (gain, best.to_string())),
            expected.map(|(gain, best)| (gain, best.to_owned()))
        );
    }

    #[test]
    fn one_gains_where_fewer_or_more_others_are() {
        check_gain([0, 0, 0], "0-1", [(0, "0-1"), (0, "0-1")]);
        check_gain([2, 1, 0], "0-1", [(2, "4-5"), (0, "0-1")]);
        check_gain([2, 1, 0], "4-5", [(0, "4-5"), (2, "0-1")]);
        check_gain([1, 1, 1], "2-3", [(0, "0-1"), (0, "0-1")]);
        // One of several domains has the clock of the fullest.
        check_gain([2, 0, 3], "0-3", [(2, "2-3"), (3, "4-5")]);
        check_gain([1, 1, 1], "6", [(0, "0-1"), (0, "0-1")]);
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
        /// Containers that go one after the other where they gain come to rest: spread, counts differ by one at most; squeezed, all are together.
        #[test]
        fn moves_come_to_an_end(
            places in prop::collection::vec(0_usize..4, 1..10),
            is_spread in prop::bool::ANY,
        ) {
            let domains: Vec<CpuSet> =
                (0..4).map(|it| format!("{it}").parse().unwrap()).collect();
            let strategy = if is_spread { ClockStrategy::Spread } else { ClockStrategy::Squeeze };
            let mut places = places;
            let counts = |places: &[usize]| -> Vec<usize> {
                (0..4).map(|it| places.iter().filter(|place| **place == it).count()).collect()
            };
            let mut moves = 0;
            while let Some((one, to)) = (0..places.len()).find_map(|one| {
                let mut others = counts(&places);
                others[places[one]] -= 1;
                let (gain, best) = strategy.gain(&domains, &others, &domains[places[one]]);
                (gain > 0).then(|| (one, domains.iter().position(|it| *it == best).unwrap()))
            }) {
                places[one] = to;
                moves += 1;
                prop_assert!(moves <= 2 * places.len(), "{places:?}");
            }
            let counts = counts(&places);
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            match is_spread {
                true => prop_assert!(most - least <= 1, "{counts:?}"),
                false => prop_assert_eq!(*most, places.len()),
            }
        }

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
