//! Which CPUs of a machine are for what, as a configuration says it. In: lists, an amount, a machine. Out: the CPUs for system pods, the machine as far as
//! containers may use it, and what of that cannot be.
//!
//! Guarantees: the same machine and the same words give the same CPUs. While CPUs come and go those of an amount stay the same as far as they are there ([`Division::settled`]); a start
//! takes the lowest that no container has to itself.

use std::borrow::Cow;

use bayplan_topology::Topology;
use bayplan_types::{CpuSet, MilliCpu};

use super::{Policy, PoolsError};

/// CPUs for system pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// These.
    List(CpuSet),
    /// As many as hold this CPU time: whole cores in the order of their lowest CPU, and threads of one more for the rest.
    Amount(MilliCpu),
}

/// How a machine is divided, and which CPUs of it are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// How pools come to be.
    pub policy: Policy,
    /// CPUs for system pods.
    pub reserved: Reserved,
    /// CPUs that containers may use at all, those for system pods included; empty: every one.
    pub available: CpuSet,
}

impl Division {
    /// All of the machine, with these CPUs for system pods.
    pub fn with_reserved(policy: Policy, reserved: CpuSet) -> Division {
        Division { policy, reserved: Reserved::List(reserved), available: CpuSet::new() }
    }

    /// The CPUs for system pods on a machine.
    pub fn reserved_on(&self, topology: &Topology) -> CpuSet {
        match &self.reserved {
            Reserved::List(cpus) => cpus.clone(),
            Reserved::Amount(amount) => self.lowest(topology, amount.cpus_needed(), &CpuSet::new()),
        }
    }

    /// The same with the CPUs of an amount chosen: of the `preferred` ones, as far as they are there, before others.
    pub fn settled(&self, topology: &Topology, preferred: &CpuSet) -> Division {
        let Reserved::Amount(amount) = self.reserved else { return self.clone() };
        let reserved = self.lowest(topology, amount.cpus_needed(), preferred);
        Division { reserved: Reserved::List(reserved), ..self.clone() }
    }

    /// The CPUs chosen for an amount, which a later choice prefers; empty for a list. Pools may reserve fewer of them, where containers would have none.
    pub fn chosen(&self, topology: &Topology, preferred: &CpuSet) -> CpuSet {
        match self.reserved {
            Reserved::Amount(_) => self.settled(topology, preferred).reserved_on(topology),
            Reserved::List(_) => CpuSet::new(),
        }
    }

    /// How many CPUs of an amount are not there.
    pub fn lacking(&self, topology: &Topology) -> usize {
        match self.reserved {
            Reserved::List(_) => 0,
            Reserved::Amount(wanted) => {
                wanted.cpus_needed().saturating_sub(self.reserved_on(topology).len())
            }
        }
    }

    /// So many of the CPUs that are neither isolated nor kept from containers, these first.
    fn lowest(&self, topology: &Topology, count: usize, first: &CpuSet) -> CpuSet {
        let machine = self.machine(topology);
        let kept_out = topology.isolated().union(&machine.withheld());
        let mut cores: Vec<&CpuSet> = topology.cores().iter().collect();
        cores.sort_by_key(|core| core.first());
        let cpus = cores.into_iter().flat_map(|core| core.iter());
        let (mut cpus, others): (Vec<_>, Vec<_>) =
            cpus.filter(|cpu| !kept_out.contains(*cpu)).partition(|cpu| first.contains(*cpu));
        cpus.extend(others);
        cpus.into_iter().take(count).collect()
    }

    /// The machine as far as containers may use it.
    pub fn machine<'a>(&self, topology: &'a Topology) -> Cow<'a, Topology> {
        match self.available.is_empty() {
            true => Cow::Borrowed(topology),
            false => Cow::Owned(topology.with_pods_on(&self.available)),
        }
    }

    /// What the machine has to have for it, beside what [`super::pools`] asks for.
    ///
    /// # Errors
    /// [`PoolsError`]: the amount is more than there is, those CPUs included that are offline just now, or no CPU that is available is left for containers.
    pub fn check(&self, topology: &Topology) -> Result<(), PoolsError> {
        let reserved = self.reserved_on(topology);
        let mut offline = topology.offline().difference(topology.isolated());
        if !self.available.is_empty() {
            offline.intersect_with(&self.available);
        }
        if let Reserved::Amount(wanted) = self.reserved
            && self.lacking(topology) > offline.len()
        {
            return Err(PoolsError::TooFewToReserve { wanted, there: Box::new(reserved) });
        }
        if self.available.is_empty() {
            return Ok(());
        }
        let outside = reserved.difference(&self.available);
        if !outside.is_empty() {
            let (outside, available) = (Box::new(outside), Box::new(self.available.clone()));
            return Err(PoolsError::ReservedNotAvailable { outside, available });
        }
        let there = topology.cpus().union(topology.offline());
        if self.available.is_disjoint(&there) {
            return Err(PoolsError::NothingAvailable {
                available: Box::new(self.available.clone()),
            });
        }
        let left = self.available.intersection(&there).difference(&reserved);
        match left.is_subset(topology.isolated()) {
            true => Err(PoolsError::NothingLeft {
                online: Box::new(self.available.intersection(topology.cpus())),
                reserved: Box::new(reserved),
                isolated: Box::new(topology.isolated().clone()),
            }),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bayplan_topology::{derive, parse_machine};
    use expect_test::{Expect, expect};

    use super::*;
    use crate::policy::surviving_pools;

    fn check(line: &str, reserved: Reserved, available: &str, expected: Expect) {
        let topology = derive(&parse_machine(line).unwrap()).unwrap();
        let available = available.parse().unwrap();
        let division = Division { policy: Policy::default(), reserved, available };
        let reserved = division.reserved_on(&topology);
        let pools = surviving_pools(&division.machine(&topology), division.policy, &reserved);
        let found = match division.check(&topology) {
            Ok(()) => format!("reserved {reserved}, containers {}", pools.allocatable()),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&found);
    }

    #[test]
    fn an_amount_is_whole_cores_and_threads_of_one_more() {
        let line = "pack:2 numa:1 core:4 pu:2";
        let amount = |milli| Reserved::Amount(MilliCpu(milli));
        check(line, amount(750), "", expect!["reserved 0, containers 1-15"]);
        check(line, amount(2000), "", expect!["reserved 0,8, containers 1-7,9-15"]);
        check(line, amount(2250), "", expect!["reserved 0-1,8, containers 2-7,9-15"]);
        check(line, amount(750), "5-9", expect!["reserved 8, containers 5-7,9"]);
        check(line, amount(16_000), "", expect!["reserved 0-15, containers 15"]);
        check(
            line,
            amount(99_000),
            "",
            expect!["99 CPUs are to be reserved; 0-15 are there for it"],
        );
        check(
            line,
            amount(5000),
            "5-9",
            expect!["no CPU is left for containers: all of 5-9 are reserved (5-9) or isolated ()"],
        );
    }

    /// Reserved CPUs that go offline are replaced, and those that replace them stay reserved when they are back.
    #[test]
    fn an_amount_stays_where_it_is_while_cpus_come_and_go() {
        let division = Division {
            policy: Policy::default(),
            reserved: Reserved::Amount(MilliCpu(2000)),
            available: CpuSet::new(),
        };
        let mut reserved = CpuSet::new();
        let mut told = Vec::new();
        for offline in ["", " offline:0", "", " offline:1-3,5-7", ""] {
            let line = format!("pack:1 numa:1 core:4 pu:2{offline}");
            let topology = derive(&parse_machine(&line).unwrap()).unwrap();
            reserved = division.settled(&topology, &reserved).reserved_on(&topology);
            told.push(reserved.to_string());
        }
        expect!["0,4 | 1,4 | 1,4 | 0,4 | 0,4"].assert_eq(&told.join(" | "));
    }

    #[test]
    fn cpus_of_an_amount_may_be_offline_just_now() {
        let amount = |milli| Reserved::Amount(MilliCpu(milli));
        let line = "pack:1 numa:1 core:4 pu:1 offline:1-3";
        check(line, amount(2000), "", expect!["reserved 0, containers 0"]);
        check(line, amount(5000), "", expect!["5 CPUs are to be reserved; 0 are there for it"]);
        check(line, amount(3000), "0-1", expect!["3 CPUs are to be reserved; 0 are there for it"]);
    }

    #[test]
    fn only_available_cpus_are_used() {
        let line = "pack:2 numa:1 core:4 pu:2";
        let list = |cpus: &str| Reserved::List(cpus.parse().unwrap());
        check(line, list("0"), "0-3,8-11", expect!["reserved 0, containers 1-3,8-11"]);
        check(line, list(""), "4-7", expect!["reserved , containers 4-7"]);
        check(
            line,
            list("0"),
            "4-7",
            expect!["reserved CPUs 0 are not among the available ones (4-7)"],
        );
        check(
            line,
            list("4-7"),
            "4-7",
            expect!["no CPU is left for containers: all of 4-7 are reserved (4-7) or isolated ()"],
        );
        check(
            line,
            list(""),
            "99",
            expect!["the machine has none of 99, so no CPU is left for containers"],
        );
    }
}
