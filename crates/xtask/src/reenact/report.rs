//! What was measured, summed up: spreads, the control pair, and where Bayplan is behind. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::configuration::{CONFIGURATIONS, Configuration};
use super::machine::Machine;
use super::scenario::{Metric, SCENARIOS, Scenario, placement};
use super::statistics::Spread;

/// Below it quartiles say nothing, and nothing is compared.
const ROUNDS_MIN: usize = 3;

/// What one measurement has given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Figures by the key of their metric; `background` also where no table has it.
    pub(crate) values: BTreeMap<String, f64>,
    /// The CPUs on which the kernel lets each pod's container run, by the pod's name.
    pub(crate) cpus: BTreeMap<String, String>,
}

/// A measurement with its place in the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Outcome {
    pub(crate) round: usize,
    pub(crate) scenario: &'static str,
    pub(crate) configuration: &'static str,
    /// Load average just before.
    pub(crate) load: String,
    #[serde(flatten)]
    pub(crate) measured: Measured,
}

/// A measurement that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Failed {
    pub(crate) round: usize,
    pub(crate) scenario: &'static str,
    pub(crate) configuration: &'static str,
    pub(crate) reason: String,
}

/// A whole run; also the form of `-o json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) date: String,
    pub(crate) command: String,
    pub(crate) machine: Machine,
    pub(crate) versions: BTreeMap<String, String>,
    pub(crate) rounds: usize,
    pub(crate) left_out: BTreeMap<String, String>,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) failed: Vec<Failed>,
    pub(crate) summary: Vec<Summary>,
    /// What the control pair says about the run's noise.
    pub(crate) control: Vec<String>,
    /// Figures in which Bayplan is behind kubelet's static CPU manager.
    pub(crate) behind: Vec<String>,
}

/// The spread of one figure under one configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) scenario: &'static str,
    pub(crate) configuration: &'static str,
    pub(crate) metric: String,
    pub(crate) unit: &'static str,
    pub(crate) is_cost: bool,
    pub(crate) spread: Spread,
}

impl Report {
    /// Fills what follows from the outcomes.
    pub(crate) fn sum_up(&mut self) {
        self.summary = summarise(&self.outcomes);
        if self.summary.iter().all(|it| it.spread.count < ROUNDS_MIN) {
            let few = format!("too few rounds to compare anything: {ROUNDS_MIN} are the least");
            self.control = vec![few];
            return;
        }
        self.control = self.compare_control();
        self.behind = self.find_behind();
    }

    /// The spread of a figure, if it was measured.
    pub(crate) fn spread(
        &self,
        scenario: &Scenario,
        configuration: Configuration,
        metric: &Metric,
    ) -> Option<&Spread> {
        let is_it = |it: &&Summary| {
            it.scenario == scenario.name
                && it.configuration == configuration.name()
                && it.metric == metric.key
        };
        self.summary.iter().find(is_it).map(|it| &it.spread)
    }

    /// Scenarios of which something was measured.
    pub(crate) fn scenarios(&self) -> impl Iterator<Item = &'static Scenario> {
        let is_measured = |it: &&Scenario| self.outcomes.iter().any(|one| one.scenario == it.name);
        SCENARIOS.iter().filter(is_measured)
    }

    /// Configurations under which something of a scenario was measured, in the order of tables.
    pub(crate) fn configurations(&self, scenario: &Scenario) -> Vec<Configuration> {
        let is_measured = |it: &Configuration| {
            let mut outcomes = self.outcomes.iter();
            outcomes.any(|one| one.scenario == scenario.name && one.configuration == it.name())
        };
        CONFIGURATIONS.into_iter().filter(is_measured).collect()
    }

    /// Whether identical configurations come out equal.
    fn compare_control(&self) -> Vec<String> {
        let (mut equal, mut all, mut lines) = (0, 0, Vec::new());
        for (scenario, metric) in self.figures() {
            let first = self.spread(scenario, Configuration::NoPinning, &metric);
            let second = self.spread(scenario, Configuration::Control, &metric);
            let (Some(first), Some(second)) = (first, second) else { continue };
            all += 1;
            if first.overlaps(second) {
                equal += 1;
                continue;
            }
            lines.push(format!(
                "{}, {}: {} and {} {}",
                scenario.name,
                metric.title,
                range(first),
                range(second),
                metric.unit
            ));
        }
        if all > 0 {
            let head = "control pair of identical configurations: interquartile ranges overlap in";
            lines.insert(0, format!("{head} {equal} of {all} figures"));
        }
        lines
    }

    fn find_behind(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (scenario, metric) in self.figures() {
            let Some(fixed) = self.spread(scenario, Configuration::Static, &metric) else {
                continue;
            };
            for configuration in CONFIGURATIONS.into_iter().filter(|it| it.is_bayplan()) {
                let Some(ours) = self.spread(scenario, configuration, &metric) else { continue };
                let is_worse = (ours.median > fixed.median) == metric.is_cost;
                if is_worse && !ours.overlaps(fixed) {
                    lines.push(format!(
                        "{}, {}: {} {}, static {} {}",
                        scenario.name,
                        metric.title,
                        configuration.name(),
                        range(ours),
                        range(fixed),
                        metric.unit
                    ));
                }
            }
        }
        lines
    }

    fn figures(&self) -> impl Iterator<Item = (&'static Scenario, Metric)> {
        self.scenarios().flat_map(|it| it.metrics().into_iter().map(move |metric| (it, metric)))
    }
}

fn summarise(outcomes: &[Outcome]) -> Vec<Summary> {
    let mut summary = Vec::new();
    for scenario in &SCENARIOS {
        for configuration in CONFIGURATIONS.map(Configuration::name) {
            for metric in scenario.metrics().into_iter().chain(placement()) {
                let outcomes = outcomes
                    .iter()
                    .filter(|it| it.scenario == scenario.name && it.configuration == configuration);
                let figures: Vec<f64> = outcomes
                    .filter_map(|it| it.measured.values.get(&metric.key).copied())
                    .collect();
                let Some(spread) = Spread::of(&figures) else { continue };
                let Metric { key, unit, is_cost, .. } = metric;
                let scenario = scenario.name;
                summary.push(Summary {
                    scenario,
                    configuration,
                    metric: key,
                    unit,
                    is_cost,
                    spread,
                });
            }
        }
    }
    summary
}

/// `1.2 (1.1-1.3)`: the median and both quartiles.
pub(crate) fn range(spread: &Spread) -> String {
    let Spread { median, lower, upper, .. } = spread;
    format!("{} ({}-{})", figure(*median), figure(*lower), figure(*upper))
}

/// Three significant digits, or all before the point.
pub(crate) fn figure(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size == 0.0 => "0".to_owned(),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reenact::test_support::report;

    #[test]
    fn a_control_pair_that_differs_is_told() {
        let same: &[f64] = &[1.0, 1.1, 1.2];
        let head = "control pair of identical configurations: interquartile ranges overlap in";
        let equal = report(&[
            (Configuration::NoPinning, same),
            (Configuration::Control, &[1.15, 1.2, 1.0]),
        ]);
        assert_eq!(equal.control, [format!("{head} 2 of 2 figures")]);
        let differs =
            report(&[(Configuration::NoPinning, same), (Configuration::Control, &[1.5, 1.6, 1.7])]);
        let expected = [
            format!("{head} 0 of 2 figures"),
            "alone, matrix: 1.10 (1.05-1.15) and 1.60 (1.55-1.65) ms".to_owned(),
            "alone, memcpy: 2.20 (2.10-2.30) and 3.20 (3.10-3.30) ms".to_owned(),
        ];
        assert_eq!(differs.control, expected);
    }

    #[test]
    fn bayplan_is_behind_only_where_the_ranges_are_apart() {
        let fixed: (Configuration, &[f64]) = (Configuration::Static, &[1.0, 1.1, 1.2]);
        let behind = |times: &[f64]| report(&[fixed, (Configuration::Proxy, times)]).behind;
        assert_eq!(behind(&[1.12, 1.15, 1.2]), [""; 0]);
        assert_eq!(behind(&[0.5, 0.6, 0.7]), [""; 0]);
        assert_eq!(
            behind(&[1.5, 1.6, 1.7])[0],
            "alone, matrix: bayplan 1.60 (1.55-1.65), static 1.10 (1.05-1.15) ms"
        );
    }

    #[test]
    fn two_rounds_are_too_few_to_compare() {
        let times: &[f64] = &[1.0, 1.1];
        let report = report(&[(Configuration::Static, times), (Configuration::Proxy, &[5.0, 6.0])]);
        assert_eq!(report.control, ["too few rounds to compare anything: 3 are the least"]);
        assert_eq!(report.behind, [""; 0]);
    }

    #[test]
    fn figures_have_three_digits() {
        let texts = [1234.5, 123.4, 12.34, 1.234, 0.1234, 0.0].map(figure);
        assert_eq!(texts, ["1234", "123", "12.3", "1.23", "0.123", "0"]);
    }
}
