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

/// Classes and their CPUs after each of `domains` (disjoint) was given to its highest priority. `active` are CPUs on which containers may run: a class without
/// any of them in a domain takes turbo from no other there. Of a class that yields in some domains, the CPUs there have a class of their own, with
/// `without turbo` behind the name.
pub fn arbitrate_turbo(
    classes: &BTreeMap<String, PowerClass>,
    assigned: &BTreeMap<String, CpuSet>,
    active: &CpuSet,
    domains: &[CpuSet],
) -> (BTreeMap<String, PowerClass>, BTreeMap<String, CpuSet>) {
    let (mut kept, mut given) = (classes.clone(), assigned.clone());
    for domain in domains {
        let here = |cpus: &CpuSet| cpus.intersection(domain);
        let competes = |(name, cpus): &(&String, &CpuSet)| {
            let class = classes.get(*name)?;
            (class.turbo != Some(false) && here(cpus).intersects(active))
                .then_some(class.turbo_priority)
        };
        let highest = assigned.iter().filter_map(|it| competes(&it)).max().unwrap_or_default();
        for (name, cpus) in assigned {
            let Some(class) = classes.get(name) else { continue };
            let cpus = here(cpus);
            if class.turbo_priority >= highest || class.turbo == Some(false) || cpus.is_empty() {
                continue;
            }
            let yields = format!("{name} without turbo");
            kept.insert(yields.clone(), PowerClass { turbo: Some(false), ..class.clone() });
            given.entry(yields).or_default().union_with(&cpus);
            if let Some(rest) = given.get_mut(name) {
                rest.subtract(&cpus);
            }
        }
    }
    given.retain(|_, cpus| !cpus.is_empty());
    (kept, given)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// Rows: name, priority, whether it has turbo, its CPUs.
    fn check(
        rows: &[(&str, u32, Option<bool>, &str)],
        active: &str,
        domains: &[&str],
        expected: Expect,
    ) {
        let cpus = |text: &str| text.parse::<CpuSet>().unwrap();
        let class =
            |turbo_priority, turbo| PowerClass { turbo_priority, turbo, ..PowerClass::default() };
        let classes = rows
            .iter()
            .map(|(name, priority, turbo, _)| ((*name).to_owned(), class(*priority, *turbo)));
        let assigned = rows.iter().map(|(name, .., text)| ((*name).to_owned(), cpus(text)));
        let domains: Vec<CpuSet> = domains.iter().map(|it| cpus(it)).collect();
        let (classes, assigned) =
            arbitrate_turbo(&classes.collect(), &assigned.collect(), &cpus(active), &domains);
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
            &["0-15"],
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
