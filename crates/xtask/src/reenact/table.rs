//! A report as text: tables in the form of the seeds, in Markdown. Pure.

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

use super::configuration::Configuration;
use super::report::{Report, figure, range};
use super::scenario::{
    BACKGROUND, CPU_USE, Form, MEMORY_AT_HAND, Metric, Play, SCENARIOS, Scenario, placement,
};
use super::statistics::Spread;

/// The whole report.
pub(crate) fn render(report: &Report) -> String {
    let mut text = format!("{}\n{}\n", report.date, report.machine);
    let versions: Vec<String> =
        report.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    text.push_str(&format!("{}\n{}\n", versions.join(", "), report.command));
    text.push_str(&format!("rounds: {}; medians, and quartiles in brackets\n", report.rounds));
    for scenario in report.scenarios() {
        text.push_str(&format!("\n{}: {}\n\n", scenario.seed, scenario.title));
        text.push_str(&render_scenario(report, scenario));
        for remark in scenario.remarks(&report.machine) {
            text.push_str(&format!("\n{remark}\n"));
        }
    }
    if let Some(table) = by_class(report) {
        text.push_str(&format!("\nCRI Resource Manager, technology guide: redis by QoS class under Bayplan (table 11)\n\n{table}\n"));
    }
    if let Some(table) = by_deployment(report) {
        text.push_str(&format!("\nResource orchestration, technology guide: chains of services in the form of its text (sections 9.2 and 9.3)\n\n{table}\n"));
    }
    text.push_str(&format!(
        "\nwhere the measured container runs, by the kernel\n\n{}\n",
        placements(report)
    ));
    text.push('\n');
    let failed = report.failed.iter().map(|it| {
        let (scenario, configuration, round) = (it.scenario, it.configuration, it.round);
        format!("failed: {scenario}, {configuration}, round {round}: {}", it.reason)
    });
    let left = report.left_out.iter().map(|(what, reason)| format!("left out: {what}: {reason}"));
    let behind = report.behind.iter().map(|it| format!("behind the static CPU manager: {it}"));
    let lines = report.control.iter().cloned().chain(behind).chain(failed).chain(left);
    lines.for_each(|line| text.push_str(&format!("{line}\n")));
    text
}

fn render_scenario(report: &Report, scenario: &Scenario) -> String {
    let metrics = scenario.metrics();
    let configurations = report.configurations(scenario);
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    match scenario.form {
        Form::Factors => {
            let mut head = vec!["redis latency".to_owned()];
            head.extend(metrics.iter().map(|it| it.title.clone()));
            table.set_header(head);
            for configuration in configurations {
                let cell = |metric: &Metric| factor(report, scenario, configuration, metric);
                let title = configuration.title().to_owned();
                table.add_row(std::iter::once(title).chain(metrics.iter().map(cell)));
            }
        }
        Form::Boxes => {
            table.set_header([
                "normalised execution time",
                "configuration",
                "median",
                "quartiles",
                "best",
                "worst",
            ]);
            for metric in &metrics {
                add_boxes(&mut table, report, scenario, metric);
            }
        }
        Form::Figures => {
            let head = configurations.iter().map(|it| it.title().to_owned());
            table.set_header(std::iter::once(String::new()).chain(head));
            for metric in &metrics {
                let cell = |it: &Configuration| told(report.spread(scenario, *it, metric));
                let title = format!("{}, {}", metric.title, metric.unit);
                table.add_row(std::iter::once(title).chain(configurations.iter().map(cell)));
            }
        }
        Form::Values => {
            let head = metrics.iter().map(|it| format!("{}, {}", it.title, it.unit));
            table.set_header(std::iter::once(String::new()).chain(head));
            for configuration in configurations {
                let cell = |it: &Metric| told(report.spread(scenario, configuration, it));
                let title = configuration.title().to_owned();
                table.add_row(std::iter::once(title).chain(metrics.iter().map(cell)));
            }
        }
    }
    format!("{table}\n")
}

fn told(spread: Option<&Spread>) -> String {
    spread.map_or_else(|| "-".to_owned(), range)
}

/// In multiples of the lowest median of the same operation.
fn factor(
    report: &Report,
    scenario: &Scenario,
    configuration: Configuration,
    metric: &Metric,
) -> String {
    let Some(spread) = report.spread(scenario, configuration, metric) else {
        return "-".to_owned();
    };
    if metric.key == BACKGROUND {
        return format!("{} {}", range(spread), metric.unit);
    }
    let operation = metric.key.split('_').next().unwrap_or_default();
    let base = scenario.metrics().into_iter().find(|it| it.key == format!("{operation}_p50"));
    let lowest = base.and_then(|base| {
        let medians = report.configurations(scenario).into_iter();
        let medians = medians.filter_map(|it| Some(report.spread(scenario, it, &base)?.median));
        medians.min_by(f64::total_cmp)
    });
    match lowest.filter(|it| *it > 0.0) {
        Some(lowest) => format!("{:.1} x, {} ms", spread.median / lowest, range(spread)),
        None => range(spread),
    }
}

/// A row per configuration, in multiples of the best run of the figure.
fn add_boxes(table: &mut Table, report: &Report, scenario: &Scenario, metric: &Metric) {
    let Some(best) = best_run(report, scenario, metric) else { return };
    for configuration in report.configurations(scenario) {
        let Some(spread) = report.spread(scenario, configuration, metric) else { continue };
        let part = |value: f64| figure(value / best);
        table.add_row([
            metric.title.clone(),
            configuration.title().to_owned(),
            part(spread.median),
            format!("{}-{}", part(spread.lower), part(spread.upper)),
            part(spread.min),
            part(spread.max),
        ]);
    }
}

/// The least that one run of any configuration has taken.
pub(crate) fn best_run(report: &Report, scenario: &Scenario, metric: &Metric) -> Option<f64> {
    let all = report.configurations(scenario).into_iter();
    let all = all.filter_map(|it| Some(report.spread(scenario, it, metric)?.min));
    all.min_by(f64::total_cmp).filter(|it| *it > 0.0)
}

/// A row per scenario and configuration.
fn placements(report: &Report) -> Table {
    let metrics = placement();
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    let head = ["scenario", "configuration"].map(str::to_owned).into_iter();
    table.set_header(head.chain(metrics.iter().map(|it| it.title.clone())));
    for scenario in report.scenarios() {
        for configuration in report.configurations(scenario) {
            let cell = |it: &Metric| told(report.spread(scenario, configuration, it));
            let head = [scenario.name.to_owned(), configuration.title().to_owned()];
            table.add_row(head.into_iter().chain(metrics.iter().map(cell)));
        }
    }
    table
}

/// The seed's last table: what the class of the measured pod makes of the best case.
fn by_class(report: &Report) -> Option<Table> {
    let rows = [
        ("redis-guaranteed", "benchmark Guaranteed, background Burstable"),
        ("redis-burstable", "benchmark Burstable, background Burstable"),
        ("redis-besteffort", "benchmark BestEffort, background BestEffort"),
    ];
    let bayplan = Configuration::Proxy;
    let redis = SCENARIOS.iter().find(|it| matches!(it.play, Play::Redis { .. }))?;
    let mut metrics: Vec<Metric> = redis.metrics();
    metrics.retain(|it| it.key != BACKGROUND);
    let median = |name: &str, metric: &Metric| {
        Some(report.spread(Scenario::by_name(name)?, bayplan, metric)?.median)
    };
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    let mut head = vec!["redis latency".to_owned()];
    head.extend(metrics.iter().map(|it| it.title.clone()));
    table.set_header(head);
    for (name, title) in rows {
        let mut cells = vec![title.to_owned()];
        for metric in &metrics {
            let operation = metric.key.split('_').next()?;
            let base = metrics.iter().find(|it| it.key == format!("{operation}_p50"))?;
            let lowest = median("redis-guaranteed", base).filter(|it| *it > 0.0)?;
            cells.push(format!("{:.1} x", median(name, metric)? / lowest));
        }
        table.add_row(cells);
    }
    Some(table)
}

/// The seed's configurations one after the other: what instances for NUMA nodes, and then groups, make of throughput, CPU use and local memory. The second is its
/// base.
fn by_deployment(report: &Report) -> Option<Table> {
    let (plain, bayplan) = (Configuration::NoPinning, Configuration::Proxy);
    let rows = [
        ("chain-spread", plain, "one instance, kubelet defaults"),
        ("chain-namespaces", plain, "an instance per NUMA node, kubelet defaults"),
        (
            "chain-namespaces",
            bayplan,
            "an instance per NUMA node, Bayplan with groups by namespace",
        ),
    ];
    let metrics = Scenario::by_name("chain-namespaces")?.metrics();
    let metrics =
        ["rps", CPU_USE, MEMORY_AT_HAND].map(|key| metrics.iter().find(|it| it.key == key));
    let median = |name: &str, configuration, metric: &Metric| {
        Some(report.spread(Scenario::by_name(name)?, configuration, metric)?.median)
    };
    let [rate, cpu_use, memory] = metrics;
    let base = median("chain-namespaces", plain, rate?).filter(|it| *it > 0.0)?;
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["", "throughput", "CPU use", "memory on the node where it is used"]);
    for (name, configuration, title) in rows {
        let Some(throughput) = median(name, configuration, rate?) else { continue };
        let percent = |metric: &Metric| {
            let told = median(name, configuration, metric);
            told.map_or_else(|| "-".to_owned(), |it| format!("{} %", figure(it)))
        };
        let factor = format!("{:.2} x", throughput / base);
        table.add_row([title.to_owned(), factor, percent(cpu_use?), percent(memory?)]);
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reenact::report::{Measured, Outcome};
    use crate::reenact::test_support::report;

    #[test]
    fn box_plots_are_told_in_multiples_of_the_best_run() {
        let report = report(&[
            (Configuration::NoPinning, &[2.0, 3.0, 4.0]),
            (Configuration::Proxy, &[1.0, 1.1, 1.2]),
        ]);
        let text = render(&report);
        let cells = |row: &str| -> Vec<String> {
            row.split('|').map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect()
        };
        let rows: Vec<Vec<String>> =
            text.lines().filter(|it| it.starts_with('|')).map(cells).collect();
        assert_eq!(rows[2], ["matrix", "kubelet defaults", "3.00", "2.50-3.50", "2.00", "4.00"]);
        assert_eq!(rows[3], ["matrix", "Bayplan (CRI proxy)", "1.10", "1.05-1.15", "1.00", "1.20"]);
        assert!(text.contains("A Processor, CPUs 2"), "{text}");
    }

    #[test]
    fn latencies_are_multiples_of_the_lowest_median_of_their_operation() {
        let mut report = report(&[]);
        for (configuration, times) in [("default", [2.0, 8.0]), ("bayplan", [0.5, 1.0])] {
            let [p50, p99] = times;
            let values = [("get_p50", p50), ("get_p99", p99), ("get_p999", 9.0)];
            let values = values.map(|(key, value)| (key.to_owned(), value)).into();
            let measured = Measured { values, ..Default::default() };
            let (round, scenario, load) = (1, "redis-guaranteed", String::new());
            report.outcomes.push(Outcome { round, scenario, configuration, load, measured });
        }
        report.sum_up();
        let text = render(&report);
        assert!(text.contains("4.0 x, 2.00 (2.00-2.00) ms"), "{text}");
        assert!(text.contains("2.0 x, 1.00 (1.00-1.00) ms"), "{text}");
        // SET was not measured, and is not made up.
        assert!(text.contains("| -"), "{text}");
    }

    #[test]
    fn deployments_are_told_in_multiples_of_instances_without_groups() {
        let mut report = report(&[]);
        let cases = [
            ("chain-spread", "default", [500.0, 30.0, 48.0]),
            ("chain-namespaces", "default", [1000.0, 35.0, 46.0]),
            ("chain-namespaces", "bayplan", [2060.0, 75.0, 81.0]),
        ];
        for (scenario, configuration, values) in cases {
            let values =
                ["rps", CPU_USE, MEMORY_AT_HAND].map(str::to_owned).into_iter().zip(values);
            let measured = Measured { values: values.collect(), ..Default::default() };
            let (round, load) = (1, String::new());
            report.outcomes.push(Outcome { round, scenario, configuration, load, measured });
        }
        report.sum_up();
        let table = by_deployment(&report).unwrap().to_string();
        for (row, cells) in table.lines().skip(2).zip([
            ["0.50 x", "30.0 %", "48.0 %"],
            ["1.00 x", "35.0 %", "46.0 %"],
            ["2.06 x", "75.0 %", "81.0 %"],
        ]) {
            assert!(cells.iter().all(|it| row.contains(it)), "{row}");
        }
        report.outcomes.retain(|it| it.scenario == "chain-spread");
        report.sum_up();
        assert!(by_deployment(&report).is_none());
    }
}
