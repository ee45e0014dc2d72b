//! Kinds of cores, frequencies and priorities. In: what the kernel says of kinds, capacities and frequency policies. Out: which CPUs
//! are large or small, and which the hardware treats better or worse than others.
//!
//! Priorities, per package, the first rule that tells CPUs apart: classes of service of Speed Select (SST-TF, SST-CP; `speed_select.rs`); with several base frequencies (Intel SST-BF shows as such) the
//! lowest ones are low and the others high; with several energy performance preferences the worst ones are low and the others high.
//! Efficient cores are always low.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_types::{CoreKind, CpuId, CpuSet, SpeedSelect};

use crate::caches::Facts;
use crate::snapshot::{Oddity, PolicyFacts, Snapshot};
use crate::speed_select::priorities_of_classes;
use crate::topology::{FrequencyPolicy, index_cpus};
use bayplan_types::fold::name_cpus;

/// The online CPUs of each kind of core; empty where all are alike.
pub(crate) fn derive_kinds(
    snapshot: &Snapshot,
    facts: &Facts<'_>,
    online: &CpuSet,
    oddities: &mut Vec<Oddity>,
) -> Vec<(CoreKind, CpuSet)> {
    let mut small = CpuSet::new();
    let mut large = CpuSet::new();
    for kind in &snapshot.kinds {
        let cpus = kind.cpus.intersection(online);
        if kind.name == "cpu_core" {
            large.union_with(&cpus);
        } else {
            small.union_with(&cpus);
        }
    }
    let both = large.intersection(&small);
    if !both.is_empty() {
        let found = format!("{} of two kinds", name_cpus(&both));
        oddities.push(Oddity::new("/sys/devices/cpu_*/cpus", found, "they are large"));
        small.subtract(&both);
    }
    if small.is_empty() || large.is_empty() {
        (large, small) = by_capacity(facts);
    }
    if small.is_empty() || large.is_empty() {
        return Vec::new();
    }
    let rest = online.difference(&large).difference(&small);
    if !rest.is_empty() {
        let found = format!("{} of no kind", name_cpus(&rest));
        oddities.push(Oddity::new("/sys/devices/cpu_*/cpus", found, "they are large"));
        large.union_with(&rest);
    }
    vec![(CoreKind::Performance, large), (CoreKind::Efficient, small)]
}

/// The fastest CPUs, and all others, where the kernel gives capacities.
fn by_capacity(facts: &Facts<'_>) -> (CpuSet, CpuSet) {
    let capacities = || facts.iter().filter_map(|(cpu, facts)| Some((*cpu, facts.capacity?)));
    let most = capacities().map(|(_, capacity)| capacity).max();
    let (large, small): (Vec<_>, Vec<_>) =
        capacities().partition(|(_, capacity)| Some(*capacity) == most);
    let set = |cpus: Vec<(CpuId, u32)>| cpus.into_iter().map(|(cpu, _)| cpu).collect();
    (set(large), set(small))
}

/// The frequency policies that have an online CPU, by number.
pub(crate) fn derive_policies(facts: &[PolicyFacts], online: &CpuSet) -> Vec<FrequencyPolicy> {
    let policies = facts.iter().map(|facts| FrequencyPolicy {
        id: facts.id,
        cpus: match &facts.cpus {
            Some(cpus) => cpus.intersection(online),
            None => Some(CpuId(facts.id)).filter(|cpu| online.contains(*cpu)).into_iter().collect(),
        },
        base: facts.base,
        min: facts.min,
        max: facts.max,
        preference: facts.preference.clone(),
    });
    let mut policies: Vec<FrequencyPolicy> =
        policies.filter(|policy| !policy.cpus.is_empty()).collect();
    policies.sort_by_key(|policy| policy.id);
    policies
}

/// CPUs that are treated better than others, and CPUs that are treated worse.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Priorities {
    pub(crate) high: CpuSet,
    pub(crate) low: CpuSet,
}

/// The priorities in each of the packages; without packages, in the machine.
pub(crate) fn derive_priorities(
    packages: &[CpuSet],
    policies: &[FrequencyPolicy],
    kinds: &[(CoreKind, CpuSet)],
    speed_select: Option<&SpeedSelect>,
) -> Priorities {
    let mut all = Priorities::default();
    for (package, inside) in packages.iter().zip(policies_inside(packages, policies)) {
        let by_class = speed_select.and_then(|facts| priorities_of_classes(facts, package));
        let by_class = by_class.map(|(high, low)| Priorities { high, low });
        let by_base = worst_and_others(&inside, |policy| {
            // The most is the worst.
            policy.base.map(|base| u64::MAX - base.0)
        });
        let by_policy =
            || by_base.or_else(|| worst_and_others(&inside, FrequencyPolicy::preference_rank));
        let Priorities { high, low } = by_class.or_else(by_policy).unwrap_or_default();
        all.high.union_with(&high);
        all.low.union_with(&low);
    }
    for (_, cpus) in kinds.iter().filter(|(kind, _)| *kind == CoreKind::Efficient) {
        all.low.union_with(cpus);
    }
    all.high.subtract(&all.low);
    all
}

/// A policy, and those of its CPUs that are in one package.
type Inside<'a> = (&'a FrequencyPolicy, CpuSet);

/// Per package, the policies of its CPUs.
fn policies_inside<'a>(
    packages: &[CpuSet],
    policies: &'a [FrequencyPolicy],
) -> Vec<Vec<Inside<'a>>> {
    let package_at = index_cpus(packages.iter().enumerate());
    let mut inside: Vec<Vec<Inside<'a>>> = vec![Vec::new(); packages.len()];
    for policy in policies {
        let mut by_package: BTreeMap<usize, CpuSet> = BTreeMap::new();
        for cpu in policy.cpus.iter() {
            if let Some(package) = package_at.get(cpu.0 as usize).copied().flatten() {
                by_package.entry(package).or_default().insert(cpu);
            }
        }
        for (package, cpus) in by_package {
            inside
                .get_mut(package)
                .into_iter()
                .for_each(|inside| inside.push((policy, cpus.clone())));
        }
    }
    inside
}

/// The CPUs of the highest rank are low, all others with a rank are high; nothing, where all have the same rank.
fn worst_and_others(
    inside: &[Inside<'_>],
    rank: impl Fn(&FrequencyPolicy) -> Option<u64>,
) -> Option<Priorities> {
    let ranked: Vec<(u64, &CpuSet)> =
        inside.iter().filter_map(|(policy, cpus)| Some((rank(policy)?, cpus))).collect();
    let ranks: BTreeSet<u64> = ranked.iter().map(|(rank, _)| *rank).collect();
    let worst = *ranks.last().filter(|_| ranks.len() > 1)?;
    let mut priorities = Priorities::default();
    for (rank, cpus) in &ranked {
        let side = if *rank == worst { &mut priorities.low } else { &mut priorities.high };
        side.union_with(cpus);
    }
    Some(priorities)
}

/// The packages' CPU sets, for [`derive_priorities`].
pub(crate) fn packages_of(facts: &Facts<'_>) -> Vec<CpuSet> {
    let mut packages: BTreeMap<_, CpuSet> = BTreeMap::new();
    for (cpu, facts) in facts {
        packages.entry(facts.package_id).or_default().insert(*cpu);
    }
    packages.into_values().collect()
}

#[cfg(test)]
mod tests {
    use bayplan_types::{CoreKind, CpuPriority, Khz};

    use crate::snapshot::{KindFacts, PolicyFacts, Snapshot};
    use crate::{derive, parse_machine};

    /// Derives a machine after `change`; high and low CPUs, performance and efficient CPUs.
    #[track_caller]
    fn check(spec: &str, change: impl FnOnce(&mut Snapshot), priorities: [&str; 2], kinds: &str) {
        let mut snapshot = parse_machine(spec).unwrap();
        change(&mut snapshot);
        let topology = derive(&snapshot).unwrap();
        let of = |priority| topology.cpus_of_priority(priority).to_string();
        assert_eq!([of(CpuPriority::High), of(CpuPriority::Low)], priorities);
        let kind = |(kind, cpus): &(CoreKind, _)| format!("{kind} {cpus}");
        let found: Vec<String> = topology.core_kinds().iter().map(kind).collect();
        assert_eq!(found.join(", "), kinds);
        for cpu in topology.cpus().iter() {
            let priority = topology.priority(cpu);
            assert!(topology.cpus_of_priority(priority).contains(cpu));
        }
    }

    fn policies(of: &[(u32, Option<u64>, Option<&str>)]) -> impl FnOnce(&mut Snapshot) {
        let policies: Vec<PolicyFacts> = of
            .iter()
            .map(|(id, base, preference)| PolicyFacts {
                id: *id,
                base: base.map(Khz),
                preference: preference.map(str::to_owned),
                ..PolicyFacts::default()
            })
            .collect();
        |snapshot| snapshot.policies = policies
    }

    #[test]
    fn the_lowest_base_frequency_of_a_package_is_low_and_the_others_are_high() {
        check("pack:2 core:4 fast:1-2", |_| {}, ["1-2", "0,3"], "");
        check("pack:2 core:2 fast:0-3", |_| {}, ["", ""], "");
        let three = [(0, Some(1), None), (1, Some(2), None), (2, Some(3), None), (3, None, None)];
        check("core:4", policies(&three), ["1-2", "0"], "");
    }

    #[test]
    fn the_worst_energy_preference_is_low_unless_base_frequencies_tell() {
        let words = [
            (0, None, Some("performance")),
            (1, None, Some("balance_power")),
            (2, None, Some("power")),
        ];
        check("core:4", policies(&words), ["0-1", "2"], "");
        let numbers = [(0, None, Some("0")), (1, None, Some("128")), (2, None, Some("default"))];
        check("core:4", policies(&numbers), ["0", "1-2"], "");
        let nonsense = [(0, None, Some("fast")), (1, None, Some("999")), (2, None, Some("power"))];
        check("core:4", policies(&nonsense), ["", ""], "");
        let both = [(0, Some(2), Some("power")), (1, Some(1), Some("performance"))];
        check("core:2", policies(&both), ["0", "1"], "");
    }

    #[test]
    fn efficient_cores_are_low() {
        check("core:2 pu:2 ecore:4", |_| {}, ["", "4-7"], "Performance 0-3, Efficient 4-7");
    }

    #[test]
    fn kinds_that_contradict_each_other_are_large() {
        let lie = |snapshot: &mut Snapshot| {
            let kind = |name: &str, cpus: &str| KindFacts {
                name: name.to_owned(),
                cpus: cpus.parse().unwrap(),
            };
            snapshot.kinds = vec![kind("cpu_core", "0-1"), kind("cpu_lowpower", "1-2,9")];
        };
        check("core:4", lie, ["", "2"], "Performance 0-1,3, Efficient 2");
        let one = |snapshot: &mut Snapshot| {
            snapshot.kinds =
                vec![KindFacts { name: "cpu_core".to_owned(), cpus: "0-3".parse().unwrap() }];
        };
        check("core:4", one, ["", ""], "");
    }

    #[test]
    fn capacities_tell_kinds_where_nothing_else_does() {
        let give = |snapshot: &mut Snapshot| {
            for (cpu, capacity) in snapshot.cpus.iter_mut().zip([1024, 1024, 500, 300]) {
                cpu.capacity = Some(capacity);
            }
        };
        check("core:4", give, ["", "2-3"], "Performance 0-1, Efficient 2-3");
    }
}
