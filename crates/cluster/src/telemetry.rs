//! Tests of the files in `deploy` that other programs read of Bayplan's metrics: their names stay, and each series has its source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value as Json;

/// Series for schedulers. Policies of users have these names, so none goes away.
const STABLE: [&str; 8] = [
    "node_bayplan_cpu_pressure_permille",
    "node_bayplan_free_exclusive_cpus",
    "node_bayplan_health",
    "node_bayplan_memory_pressure_permille",
    "node_bayplan_memory_traffic_megabytes",
    "node_bayplan_power_watts",
    "node_bayplan_suffering_containers",
    "node_bayplan_throttled_permille",
];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn documents(path: &str) -> Vec<Json> {
    serde_yaml::from_multiple(&read(path)).unwrap()
}

/// Expressions by what they record.
fn recorded() -> BTreeMap<String, String> {
    let file = documents("deploy/prometheus/bayplan.scheduling.rules.yaml").remove(0);
    let rules = file["groups"][0]["rules"].as_array().unwrap().clone();
    let text = |rule: &Json, key: &str| rule[key].as_str().unwrap().to_owned();
    rules.iter().map(|rule| (text(rule, "record"), text(rule, "expr"))).collect()
}

/// Names of metrics that the daemon has, from the page that its tests keep.
fn documented() -> BTreeSet<String> {
    let page = read("docs/metrics.md");
    let names = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    names.map(str::to_owned).collect()
}

fn check_sources(expression: &str) {
    let (known, mut count) = (documented(), 0);
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    for word in words.filter(|it| it.starts_with("bayplan_")) {
        let name = word.strip_suffix("_bucket").unwrap_or(word);
        assert!(known.contains(name), "docs/metrics.md has no {name}, in {expression}");
        count += 1;
    }
    assert!(count > 0, "{expression}");
}

#[test]
fn series_for_schedulers_are_stable_whole_numbers_with_a_source() {
    let recorded = recorded();
    assert!(recorded.keys().eq(&STABLE.map(str::to_owned)), "{:?}", recorded.keys());
    for (name, expression) in recorded {
        assert!(expression.trim().starts_with("round("), "{name} is no whole number");
        check_sources(&expression);
    }
}

#[test]
fn policies_have_every_action_and_known_metrics() {
    let mut actions = BTreeSet::new();
    for policy in documents("deploy/tas/policies.yaml") {
        for (action, strategy) in policy["spec"]["strategies"].as_object().unwrap() {
            actions.insert(action.clone());
            for rule in strategy["rules"].as_array().unwrap() {
                let name = format!("node_{}", rule["metricname"].as_str().unwrap());
                assert!(STABLE.contains(&name.as_str()), "{name}");
            }
        }
    }
    let expected = ["deschedule", "dontschedule", "labeling", "scheduleonmetric"];
    assert!(actions.iter().eq(&expected), "{actions:?}");
}

#[test]
fn objectives_ask_for_known_metrics() {
    for profile in documents("deploy/ido/kpi-profiles.yaml") {
        check_sources(profile["spec"]["query"].as_str().unwrap());
    }
}
