//! The order of measurements. Pure.

use std::collections::BTreeMap;

use super::configuration::{CONFIGURATIONS, Configuration, Given};
use super::machine::Machine;
use super::scenario::{SCENARIOS, Scenario};

/// One measurement that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// From 1.
    pub(crate) round: usize,
    pub(crate) scenario: &'static Scenario,
    pub(crate) configuration: Configuration,
}

/// What is wanted; nothing named is everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) scenarios: Vec<&'static Scenario>,
    pub(crate) configurations: Vec<Configuration>,
    pub(crate) rounds: usize,
    pub(crate) given: Given,
}

/// Measurements, and what is left out with its reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) steps: Vec<Step>,
    /// By `scenario`, `configuration`, or `scenario, configuration`.
    pub(crate) left_out: BTreeMap<String, String>,
}

/// All configurations of a scenario follow each other, so that what else the machine does falls on all of them; which one is first changes from round to
/// round.
pub(crate) fn schedule(wanted: &Wanted, machine: &Machine) -> Schedule {
    let mut left_out = BTreeMap::new();
    let is_wanted = |it: &&Scenario| {
        wanted.scenarios.is_empty() || wanted.scenarios.iter().any(|name| name.name == it.name)
    };
    let mut scenarios: Vec<&'static Scenario> = SCENARIOS.iter().filter(is_wanted).collect();
    scenarios.retain(|it| match it.left_out(machine) {
        Some(reason) => left_out.insert(it.name.to_owned(), reason.to_owned()).is_some(),
        None => true,
    });
    let is_wanted =
        |it: &Configuration| wanted.configurations.is_empty() || wanted.configurations.contains(it);
    let mut configurations: Vec<Configuration> =
        CONFIGURATIONS.into_iter().filter(is_wanted).collect();
    configurations.retain(|it| match it.left_out(machine, &wanted.given) {
        Some(reason) => left_out.insert(it.name().to_owned(), reason.to_owned()).is_some(),
        None => true,
    });
    let mut steps = Vec::new();
    for round in 1..=wanted.rounds {
        for scenario in &scenarios {
            let mut chosen = configurations.clone();
            chosen.retain(|it| match scenario.leaves_out(*it) {
                Some(reason) => {
                    left_out.insert(format!("{}, {}", scenario.name, it.name()), reason.to_owned());
                    false
                }
                None => true,
            });
            if !chosen.is_empty() {
                let first = (round - 1) % chosen.len();
                chosen.rotate_left(first);
            }
            let step = |configuration| Step { round, scenario, configuration };
            steps.extend(chosen.into_iter().map(step));
        }
    }
    Schedule { steps, left_out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reenact::test_support::machine;

    #[test]
    fn configurations_alternate_and_take_turns_in_being_first() {
        let wanted = Wanted {
            scenarios: vec![Scenario::by_name("alone").unwrap()],
            configurations: vec![Configuration::NoPinning, Configuration::Proxy],
            rounds: 3,
            given: Given::default(),
        };
        let planned = schedule(&wanted, &machine(2, 1, 1));
        let names: Vec<(usize, &str)> =
            planned.steps.iter().map(|it| (it.round, it.configuration.name())).collect();
        let expected = [
            (1, "default"),
            (1, "bayplan"),
            (2, "bayplan"),
            (2, "default"),
            (3, "default"),
            (3, "bayplan"),
        ];
        assert_eq!(names, expected);
        assert!(planned.left_out.is_empty());
    }

    #[test]
    fn what_is_left_out_is_told_and_not_planned() {
        let planned = schedule(&Wanted { rounds: 1, ..Wanted::default() }, &machine(2, 1, 1));
        let left: Vec<&str> = planned.left_out.keys().map(String::as_str).collect();
        let expected = [
            "chain-namespaces",
            "chain-spread",
            "nginx-lsr",
            "plugin",
            "proxy",
            "redis-besteffort, static",
            "redis-burstable, static",
            "redis-far",
            "redis-near",
            "static-full-cores",
            "static-topology",
        ];
        assert_eq!(left, expected);
        assert!(planned.steps.iter().all(|it| it.scenario.name != "nginx-lsr"));
        // Eleven scenarios with five configurations, but for two of static.
        assert_eq!(planned.steps.len(), 11 * 5 - 2);
    }
}
