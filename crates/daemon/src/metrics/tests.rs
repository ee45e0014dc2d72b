//! `docs/metrics.md` is what is exported: names, types, labels and helps, also of what this machine does not have.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_workload::runtime::RuntimeError;

use super::*;
use crate::finding::Finding;
use crate::observer::tests::everything;
use crate::prober::tests::told_with_events;
use crate::test_support::state;

/// Labels of which the values cannot be listed.
const OPEN_LABELS: [&str; 15] = [
    "namespace",
    "pod",
    "container",
    "cpu",
    "zone",
    "package",
    "uncore",
    "cache_class",
    "le",
    "version",
    "file",
    "method",
    "code",
    "event",
    "group_type",
];

/// A section of the page, and what has its metrics.
type Section = (&'static str, fn(&Metrics) -> &Registry);
const SECTIONS: [Section; 3] = [
    ("## Of the node", |it| &it.registry),
    ("## Of containers", |it| &it.by_container),
    ("## Of the process", |it| &it.process),
];

/// Everything has happened once.
fn exported() -> Metrics {
    let health = Arc::default();
    let metrics =
        Metrics::new(told_with_events(&[10])).with_readings(everything()).with_health(&health);
    metrics.show(&state("pack:1 numa:1 core:2 pu:1 mem:1"), 1);
    metrics.groups.set("web", [1, 2, 3]);
    metrics.call_ended("/runtime.v1.RuntimeService/Version", 0);
    for by in [Author::Runtime, Author::Systemd, Author::Others] {
        let of_file = OfFile { file: "cpu.max".to_owned(), by: by.name() };
        metrics.file_drifts.get_or_create(&of_file).inc();
    }
    let checks = ["kubelet-cpu", "kubelet-memory", "pinner", "claims", "cgroups", "cgroup-driver"];
    metrics.show_findings(&checks.map(|check| Finding::ok(check, "fine")));
    metrics.update_ended(None::<&RuntimeError>);
    metrics.nri.answered("CreateContainer", Duration::ZERO, true);
    metrics
}

/// A metric as samples tell it.
#[derive(Default)]
struct Told {
    help: String,
    kind: String,
    labels: BTreeMap<String, BTreeSet<String>>,
}

/// In the order in which they are exported.
fn read(registry: &Registry) -> Vec<(String, Told)> {
    let mut text = String::new();
    encode_registry(&mut text, registry).unwrap();
    let text = plain_text(&text);
    let mut metrics: Vec<(String, Told)> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words.as_slice() {
            ["#", "HELP", name, help] => {
                let help = help.trim_end_matches('.').to_owned();
                metrics.push(((*name).to_owned(), Told { help, ..Told::default() }));
            }
            ["#", "TYPE", _, kind] => metrics.last_mut().unwrap().1.kind = (*kind).to_owned(),
            _ => {
                let labels = line.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
                let Some((labels, _)) = labels else { continue };
                for pair in labels.split(',') {
                    let (key, value) = pair.split_once('=').unwrap();
                    let told = &mut metrics.last_mut().unwrap().1;
                    let values = told.labels.entry(key.to_owned()).or_default();
                    values.insert(value.trim_matches('"').to_owned());
                }
            }
        }
    }
    metrics
}

/// Keys, and values where they can be listed; the three that name a container go without saying.
fn render_labels(labels: &BTreeMap<String, BTreeSet<String>>) -> String {
    let is_told = |key: &str| !["namespace", "pod", "container", "le"].contains(&key);
    let told = labels.iter().filter(|(key, _)| is_told(key)).map(|(key, values)| match OPEN_LABELS
        .contains(&&**key)
    {
        true => format!("`{key}`"),
        false => {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            format!("`{key}`: {}", values.join(", "))
        }
    });
    told.collect::<Vec<_>>().join("; ")
}

/// The cell of a table that only people can write: by the name in the row's first, its last.
fn last_cells(section: &str) -> BTreeMap<&str, &str> {
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    rows.filter_map(|row| Some((row.split_once('`')?.0, row.rsplit_once(" | ")?.1))).collect()
}

fn render_table(registry: &Registry, section: &str) -> String {
    let absent = last_cells(section);
    let mut table =
        "| Metric | Type | Labels | Meaning | Absent |\n|---|---|---|---|---|\n".to_owned();
    for (name, told) in read(registry) {
        let Told { help, kind, labels } = told;
        let labels = render_labels(&labels);
        let absent = absent.get(&*name).copied().unwrap_or("never");
        table.push_str(&format!("| `{name}` | {kind} | {labels} | {help} | {absent} |\n"));
    }
    table
}

fn render_failures() -> String {
    let rows = FAILURES.map(|(kind, meaning)| format!("| `{kind}` | {meaning} |\n"));
    format!("| `kind` | What has happened |\n|---|---|\n{}", rows.concat())
}

/// The page with the first table after this heading replaced by what `render` makes of it.
fn with_table(page: &str, heading: &str, render: impl FnOnce(&str) -> String) -> String {
    let (before, rest) = page.split_once(heading).unwrap_or_else(|| panic!("no {heading:?}"));
    let begin = rest.find("\n| ").unwrap_or_else(|| panic!("no table after {heading:?}")) + 1;
    let end = rest[begin..].find("\n\n").map_or(rest.len(), |length| begin + length + 1);
    let table = render(&rest[begin..end]);
    format!("{before}{heading}{}{table}{}", &rest[..begin], &rest[end..])
}

#[test]
fn the_page_lists_what_is_exported() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = std::fs::read_to_string(path).unwrap();
    let metrics = exported();
    let mut expected = page.clone();
    for (heading, registry) in SECTIONS {
        expected = with_table(&expected, heading, |old| render_table(registry(&metrics), old));
    }
    expected = with_table(&expected, "## Failures", |_| render_failures());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, expected).unwrap();
    } else {
        let message = "run with UPDATE_EXPECT=1 to rewrite docs/metrics.md, then say when new ones are absent";
        assert_eq!(page, expected, "{message}");
    }
}

#[test]
fn names_say_the_unit_and_helps_say_something() {
    let metrics = exported();
    for (_, registry) in SECTIONS {
        for (name, Told { help, kind, .. }) in read(registry(&metrics)) {
            assert!(help.len() > 10, "{name}: {help}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
            assert!(!name.contains("_ms") && !name.contains("_usec"), "{name}");
        }
    }
}

#[test]
fn only_metrics_of_containers_have_names_that_users_choose() {
    let metrics = exported();
    for (heading, registry) in SECTIONS {
        for (name, Told { labels, .. }) in read(registry(&metrics)) {
            let has_name = labels.contains_key("pod");
            assert_eq!(has_name, heading == "## Of containers", "{name}");
        }
    }
}

#[test]
fn a_budget_and_loans_that_have_ended_are_shown_as_none() {
    let metrics = Metrics::new(Sightings::default());
    let shown = || {
        let page = metrics.render(false);
        let of = |name: &str| {
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap().to_owned()
        };
        [of("bayplan_best_effort_budget_cpus"), of("bayplan_lent_cpus")]
    };
    metrics.rebalancing.show_best_effort(Some(bayplan_types::MilliCpu(1500)), 2);
    assert_eq!(shown(), ["1.5", "2"]);
    metrics.rebalancing.show_best_effort(None, 0);
    assert_eq!(shown(), ["0.0", "0"]);
}
