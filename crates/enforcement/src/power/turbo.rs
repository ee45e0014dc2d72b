//! Which classes may use turbo where they share it. In: classes with their priorities, their CPUs, where containers may run. Out: classes and CPUs, of
//! which those that yield stay at or below the base frequency.
//!
//! Cores of a package share power and heat: the fewer of them are above the base frequency, the higher these go. So in each domain only classes with
//! the highest priority among those that containers run in have turbo.

use std::collections::BTreeMap;

use bayplan_types::CpuSet;

use super::class::PowerClass;

/// Where classes compete for turbo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TurboDomain {
    /// In each package by itself.
    #[default]
    Package,
    /// In the whole machine.
    Machine,
}

/// Where classes compete for turbo on this machine.
#[derive(Clone, Copy, Debug)]
pub struct TurboShared<'a> {
    /// Which parts of it.
    pub domain: TurboDomain,
    /// The CPUs of each package. CPUs of no package are a domain of their own.
    pub packages: &'a [CpuSet],
    /// CPUs on which containers may run: a class without any of them in a domain takes turbo from no other there.
    pub active: &'a CpuSet,
}

/// Classes and their CPUs after each domain was given to its highest priority. Of a class that yields in some domains, the CPUs there have a class of
/// their own, with `without turbo` behind the name.
pub fn arbitrate_turbo(
    mut classes: BTreeMap<String, PowerClass>,
    mut assigned: BTreeMap<String, CpuSet>,
    shared: TurboShared<'_>,
) -> (BTreeMap<String, PowerClass>, BTreeMap<String, CpuSet>) {
    if classes.values().all(|it| it.turbo_priority == 0) {
        return (classes, assigned);
    }
    for domain in domains(&assigned, shared) {
        for name in yielding(&classes, &assigned, shared.active, &domain) {
            let (Some(class), Some(cpus)) = (classes.get(&name), assigned.get_mut(&name)) else {
                continue;
            };
            let here = cpus.intersection(&domain);
            cpus.subtract(&here);
            let yields = format!("{name} without turbo");
            let class = PowerClass { turbo: Some(false), ..class.clone() };
            classes.insert(yields.clone(), class);
            assigned.entry(yields).or_default().union_with(&here);
        }
    }
    assigned.retain(|_, cpus| !cpus.is_empty());
    (classes, assigned)
}

/// Disjoint, and together all CPUs that have a class.
fn domains(assigned: &BTreeMap<String, CpuSet>, shared: TurboShared<'_>) -> Vec<CpuSet> {
    let mut rest = CpuSet::new();
    assigned.values().for_each(|cpus| rest.union_with(cpus));
    let mut domains = match shared.domain {
        TurboDomain::Package => shared.packages.to_vec(),
        TurboDomain::Machine => Vec::new(),
    };
    domains.iter().for_each(|domain| rest.subtract(domain));
    domains.push(rest);
    domains
}

/// Classes with CPUs in the domain and less priority than one in which containers run there.
fn yielding(
    classes: &BTreeMap<String, PowerClass>,
    assigned: &BTreeMap<String, CpuSet>,
    active: &CpuSet,
    domain: &CpuSet,
) -> Vec<String> {
    let here = assigned.iter().filter_map(|(name, cpus)| {
        let class = classes.get(name).filter(|it| it.turbo != Some(false))?;
        Some((name, class.turbo_priority, cpus.intersection(domain)))
    });
    let here: Vec<_> = here.filter(|(.., cpus)| !cpus.is_empty()).collect();
    let competing = here.iter().filter(|(.., cpus)| cpus.intersects(active));
    let highest = competing.map(|(_, priority, _)| *priority).max().unwrap_or_default();
    let yielding = here.iter().filter(|(_, priority, _)| *priority < highest);
    yielding.map(|(name, ..)| (*name).clone()).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// Rows: name, priority, whether it has turbo, its CPUs. Without packages, classes compete in the machine.
    fn check(
        rows: &[(&str, u32, Option<bool>, &str)],
        active: &str,
        packages: &[&str],
        expected: Expect,
    ) {
        let cpus = |text: &str| text.parse::<CpuSet>().unwrap();
        let class =
            |turbo_priority, turbo| PowerClass { turbo_priority, turbo, ..PowerClass::default() };
        let classes = rows
            .iter()
            .map(|(name, priority, turbo, _)| ((*name).to_owned(), class(*priority, *turbo)));
        let assigned = rows.iter().map(|(name, .., text)| ((*name).to_owned(), cpus(text)));
        let packages: Vec<CpuSet> = packages.iter().map(|it| cpus(it)).collect();
        let domain = match packages.is_empty() {
            true => TurboDomain::Machine,
            false => TurboDomain::Package,
        };
        let shared = TurboShared { domain, packages: &packages, active: &cpus(active) };
        let (classes, assigned) = arbitrate_turbo(classes.collect(), assigned.collect(), shared);
        let shown = |(name, cpus): (&String, &CpuSet)| {
            let turbo = classes[name].turbo.map_or("as it was", |it| if it { "on" } else { "off" });
            format!("{name}: {cpus}, turbo {turbo}\n")
        };
        expected.assert_eq(&assigned.iter().map(shown).collect::<String>());
    }

    #[test]
    fn the_highest_priority_that_containers_run_in_has_the_turbo_of_its_domain() {
        let rows = [
            ("database", 10, None, "2-3"),
            ("rest", 0, None, "0-1,4-7"),
            ("web", 5, Some(true), "8-9"),
        ];
        check(
            &rows,
            "0-9",
            &["0-3", "4-15"],
            expect![[r#"
                database: 2-3, turbo as it was
                rest without turbo: 0-1,4-7, turbo off
                web: 8-9, turbo on
            "#]],
        );
        check(
            &rows,
            "0-9",
            &[],
            expect![[r#"
                database: 2-3, turbo as it was
                rest without turbo: 0-1,4-7, turbo off
                web without turbo: 8-9, turbo off
            "#]],
        );
    }

    #[test]
    fn a_class_in_which_no_container_runs_takes_turbo_from_no_other() {
        check(
            &[("idle", 10, None, "2-3"), ("rest", 0, None, "0-1")],
            "0-1",
            &["0-3"],
            expect![[r#"
                idle: 2-3, turbo as it was
                rest: 0-1, turbo as it was
            "#]],
        );
    }

    #[test]
    fn a_class_without_turbo_does_not_compete_for_it() {
        check(
            &[("saves", 10, Some(false), "2-3"), ("rest", 1, None, "0-1"), ("low", 0, None, "4")],
            "0-4",
            &["0-4"],
            expect![[r#"
                low without turbo: 4, turbo off
                rest: 0-1, turbo as it was
                saves: 2-3, turbo off
            "#]],
        );
    }

    /// Firmware of some virtual machines and of Arm names no packages.
    #[test]
    fn cpus_of_no_package_are_a_domain_of_their_own() {
        check(
            &[("first", 1, None, "0,4"), ("rest", 0, None, "1-3,5-7")],
            "4-7",
            &["0-3"],
            expect![[r#"
                first: 0,4, turbo as it was
                rest: 1-3, turbo as it was
                rest without turbo: 5-7, turbo off
            "#]],
        );
    }

    #[test]
    fn equal_priorities_all_have_turbo() {
        check(
            &[("a", 0, None, "0-1"), ("b", 0, Some(true), "2-3")],
            "0-3",
            &["0-3"],
            expect![[r#"
                a: 0-1, turbo as it was
                b: 2-3, turbo on
            "#]],
        );
    }
}
