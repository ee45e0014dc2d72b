//! Figures of one or more runs, for people and for programs. In: [`Quality`] and durations. Out: a table, or JSON of format
//! `bayplan-simulation/1`, which has no durations, so that the same question gets the same answer.

use serde::Serialize;

use crate::simulate::quality::{Quality, Share};
use crate::simulate::times::{Times, render_times};
use crate::text::{render_table, table};
use crate::visible::to_visible_json;

/// The format that is written.
pub(crate) const SUMMARY_FORMAT: &str = "bayplan-simulation/1";

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The configuration file, if one was named.
    pub(crate) config: Option<String>,
    /// CPUs for system pods.
    pub(crate) reserved: String,
    pub(crate) quality: Quality,
    /// From each question to its answer, without counting others' updates.
    pub(crate) times: Times,
}

/// What was replayed where.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub(crate) machine: String,
    pub(crate) cpus: usize,
    pub(crate) trace: String,
    pub(crate) events: usize,
    /// At least one.
    pub(crate) runs: Vec<Run>,
}

#[derive(Serialize)]
struct SummaryForm<'a> {
    format: &'static str,
    machine: &'a str,
    cpus: usize,
    trace: &'a str,
    events: usize,
    runs: Vec<RunForm<'a>>,
}

/// The figures of a run for programs.
#[derive(Serialize)]
pub(crate) struct RunForm<'a> {
    config: Option<&'a str>,
    reserved_cpus: &'a str,
    creates: usize,
    placed: usize,
    refused: usize,
    refused_although_free: usize,
    exclusive_placed: usize,
    exclusive_miscounted: usize,
    overlaps: usize,
    l3_fit_percent: Option<f64>,
    l3_feasible: usize,
    numa_fit_percent: Option<f64>,
    numa_feasible: usize,
    package_fit_percent: Option<f64>,
    package_feasible: usize,
    numa_span_ratio: Option<f64>,
    split_core_percent: Option<f64>,
    shared_cores_mean: Option<f64>,
    shared_cores_max: usize,
    half_owned_cores_mean: Option<f64>,
    frag_numa_percent: Option<f64>,
    frag_whole_core_percent: Option<f64>,
    updates_per_event: Option<f64>,
    moved: usize,
    sharers_in_one_numa_percent: Option<f64>,
    end_free: usize,
    end_largest_in_one_numa: usize,
    end_largest_in_one_numa_whole_cores: usize,
}

impl<'a> RunForm<'a> {
    pub(crate) fn new(run: &'a Run) -> RunForm<'a> {
        let it = &run.quality;
        let percent = |ratio: Option<f64>| rounded(ratio.map(|ratio| 100.0 * ratio), 1);
        let share = |share: Share| rounded(share.percent(), 1);
        RunForm {
            config: run.config.as_deref(),
            reserved_cpus: &run.reserved,
            creates: it.creates,
            placed: it.placed,
            refused: it.refused,
            refused_although_free: it.refused_feasible,
            exclusive_placed: it.exclusive,
            exclusive_miscounted: it.miscounted,
            overlaps: it.overlaps,
            l3_fit_percent: share(it.in_l3),
            l3_feasible: it.in_l3.of,
            numa_fit_percent: share(it.in_node),
            numa_feasible: it.in_node.of,
            package_fit_percent: share(it.in_package),
            package_feasible: it.in_package.of,
            numa_span_ratio: rounded(it.nodes_spanned.ratio(), 3),
            split_core_percent: share(it.split),
            shared_cores_mean: rounded(it.shared_cores.value(), 2),
            shared_cores_max: it.shared_cores_max,
            half_owned_cores_mean: rounded(it.half_owned_cores.value(), 2),
            frag_numa_percent: percent(it.hole.value()),
            frag_whole_core_percent: percent(it.whole_hole.value()),
            updates_per_event: rounded(it.updates.value(), 2),
            moved: it.moved,
            sharers_in_one_numa_percent: share(it.sharer_in_node),
            end_free: it.free_at_end,
            end_largest_in_one_numa: it.hole_at_end,
            end_largest_in_one_numa_whole_cores: it.whole_hole_at_end,
        }
    }
}

/// Through a text, because only that rounds what is really there.
fn rounded(value: Option<f64>, digits: usize) -> Option<f64> {
    format!("{:.digits$}", value?).parse().ok()
}

/// For programs.
///
/// # Errors
/// None is known: texts and numbers can always be written as JSON.
pub(crate) fn render_json(summary: &Summary) -> serde_json::Result<String> {
    let form = SummaryForm {
        format: SUMMARY_FORMAT,
        machine: &summary.machine,
        cpus: summary.cpus,
        trace: &summary.trace,
        events: summary.events,
        runs: summary.runs.iter().map(RunForm::new).collect(),
    };
    to_visible_json(&form)
}

/// For people: a column per run.
pub(crate) fn render_text(summary: &Summary) -> String {
    let Summary { machine, cpus, trace, events, runs } = summary;
    let mut text = format!("{trace} on {machine}: {events} events, {cpus} CPUs\n\n");
    let columns: Vec<Vec<(&str, String)>> = runs.iter().map(rows).collect();
    let mut lines = match runs.as_slice() {
        [_] => table(&[]),
        _ => {
            let names = runs.iter().map(|run| run.config.as_deref().unwrap_or("-"));
            table(&std::iter::once("").chain(names).collect::<Vec<_>>())
        }
    };
    for (index, (label, _)) in columns.first().into_iter().flatten().enumerate() {
        let cells = columns.iter().filter_map(|column| column.get(index));
        let cells = cells.map(|(_, value)| value.clone());
        lines.add_row(std::iter::once((*label).to_owned()).chain(cells));
    }
    text.push_str(&render_table(&lines));
    text
}

fn rows(run: &Run) -> Vec<(&'static str, String)> {
    let times = &run.times;
    let mut rows = figures(run);
    rows.extend([
        ("CPU time to read requests: mean, median, p99, max", render_times(&times.requests)),
        ("CPU time to place exclusive ones", render_times(&times.exclusive)),
        ("CPU time to place shared ones", render_times(&times.sharing)),
        ("CPU time to release", render_times(&times.releases)),
    ]);
    rows
}

/// What does not depend on the computer that it runs on, each with its name.
pub(crate) fn figures(run: &Run) -> Vec<(&'static str, String)> {
    let it = &run.quality;
    let number = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    let percent = |ratio: Option<f64>| match ratio {
        Some(ratio) => format!("{:.1} %", 100.0 * ratio),
        None => "-".to_owned(),
    };
    let share = |share: Share| match share.percent() {
        Some(percent) => format!("{percent:.1} % of {}", share.of),
        None => "-".to_owned(),
    };
    vec![
        ("reserved CPUs", if run.reserved.is_empty() { "none" } else { &run.reserved }.to_owned()),
        ("creates", it.creates.to_string()),
        (". placed", it.placed.to_string()),
        (". refused", it.refused.to_string()),
        (". refused, although enough CPUs had no holder", it.refused_feasible.to_string()),
        ("exclusive containers (Guaranteed, whole CPUs)", it.exclusive.to_string()),
        (". with another number of CPUs than requested", it.miscounted.to_string()),
        (". with CPUs that had a holder", it.overlaps.to_string()),
        (". in one L3, where one had room", share(it.in_l3)),
        (". in one NUMA node, where one had room", share(it.in_node)),
        (". in one package, where one had room", share(it.in_package)),
        (". NUMA nodes over the fewest possible", number(it.nodes_spanned.ratio(), 3)),
        (". with half a core, where whole ones would have done", share(it.split)),
        ("cores of two holders, mean", number(it.shared_cores.value(), 2)),
        ("cores half owned, mean", number(it.half_owned_cores.value(), 2)),
        ("largest hole in a NUMA node, over the ideal", percent(it.hole.value())),
        (". in whole cores", percent(it.whole_hole.value())),
        ("other containers rewritten per event", number(it.updates.value(), 2)),
        ("containers moved to other exclusive CPUs", it.moved.to_string()),
    ]
}
