//! How it was and how it would have been, for people and for programs. In: both sides, judged. Out: a table, or JSON of format
//! `bayplan-replay/1`.

use bayplan_node::history::Place;
use serde::Serialize;

use crate::replay::played::{Arrival, Played};
use crate::replay::story::Fate;
use crate::simulate::summary::{Run, RunForm, figures};
use crate::text::{render_table, table};
use crate::visible::to_visible_json;

/// The format that is written.
const REPLAY_FORMAT: &str = "bayplan-replay/1";
/// Containers that are listed for people.
const LISTED_MAX: usize = 40;

/// A history, replayed.
#[derive(Debug)]
pub(crate) struct Report {
    /// Nothing was to be different.
    pub(crate) is_as_it_was: bool,
    /// As it was, and as it would have been.
    pub(crate) runs: [Run; 2],
    pub(crate) played: Played,
}

impl Report {
    /// Containers that would be elsewhere, or nowhere, or somewhere at all.
    pub(crate) fn elsewhere(&self) -> Vec<&Arrival> {
        self.played.arrivals.iter().filter(|arrival| is_elsewhere(arrival)).collect()
    }
}

/// Which shared CPUs a container runs on follows from what others own.
fn is_elsewhere(arrival: &Arrival) -> bool {
    match (&arrival.was, &arrival.would) {
        (Fate::Placed(was), Fate::Placed(would)) => {
            (&was.own, &was.pool, &was.mems) != (&would.own, &would.pool, &would.mems)
        }
        (Fate::Refused(_), Fate::Refused(_)) => false,
        _ => true,
    }
}

/// For people.
pub(crate) fn render_text(report: &Report) -> String {
    let Report { runs, played, .. } = report;
    let (from, until) = (played.from.strftime("%F %T"), played.until.strftime("%F %T"));
    let cpus = played.recorded.1.cpus().len();
    let mut text = format!("{from} to {until} UTC: {} entries, {cpus} CPUs\n\n", played.entries);
    let names = runs.iter().map(|run| run.config.as_deref().unwrap_or("-"));
    let mut lines = table(&std::iter::once("").chain(names).collect::<Vec<_>>());
    let [was, would] = runs;
    for ((label, was), (_, would)) in figures(was).into_iter().zip(figures(would)) {
        // What no history tells.
        if (was.as_str(), would.as_str()) != ("-", "-") {
            lines.add_row([label.to_owned(), was, would]);
        }
    }
    text.push_str(&render_table(&lines));
    text.push_str(&render_elsewhere(report));
    text.push_str(&render_limits(report));
    text
}

fn render_elsewhere(report: &Report) -> String {
    let (elsewhere, all) = (report.elsewhere(), report.played.arrivals.len());
    let told = match (elsewhere.len(), report.is_as_it_was) {
        (0, true) => format!("\nall {all} decisions are as they were\n"),
        (0, false) => format!("\nall {all} decisions would have been the same\n"),
        (count, true) => format!("\n{count} of {all} decisions are not as they were:\n\n"),
        (count, false) => format!("\n{count} of {all} decisions would have been different:\n\n"),
    };
    let mut rows = table(&["TIME (UTC)", "CONTAINER", "WAS", "WOULD HAVE BEEN"]);
    for arrival in elsewhere.iter().take(LISTED_MAX) {
        let at = arrival.at.strftime("%F %T").to_string();
        rows.add_row([at, arrival.name.clone(), place(&arrival.was), place(&arrival.would)]);
    }
    let mut text = told;
    if !elsewhere.is_empty() {
        text.push_str(&render_table(&rows));
    }
    if elsewhere.len() > LISTED_MAX {
        let more = elsewhere.len() - LISTED_MAX;
        text.push_str(&format!("and {more} more; -o json has them all\n"));
    }
    text
}

/// What the replay does not know.
fn render_limits(report: &Report) -> String {
    let Played { skipped, machines, failures, arrivals, refused_changes, .. } = &report.played;
    let saved = |it: &&Arrival| matches!((&it.was, &it.would), (Fate::Refused(_), Fate::Placed(_)));
    let saved = arrivals.iter().filter(saved).count();
    let mut notes = Vec::new();
    if *failures > 0 {
        notes.push(format!(
            "{failures} writes failed or were for a runtime that did not answer; what followed from that is not replayed"
        ));
    }
    if *machines > 0 {
        notes.push(format!(
            "changes of the machine: {machines}; figures are over that of the beginning"
        ));
    }
    notes.extend(refused_changes.iter().map(|refused| {
        let (at, lacking) = (refused.at.strftime("%F %T"), refused.lacking.join("; "));
        format!("{at}: the change of `groups` would have been refused: {lacking}; the earlier types hold until the next start")
    }));
    if saved > 0 {
        notes.push(format!(
            "{saved} were refused and would have had a place; they keep it, because nothing says when they would have ended"
        ));
    }
    if *skipped > 0 {
        notes.push(format!(
            "{skipped} entries before the first complete snapshot of the node are skipped"
        ));
    }
    if notes.is_empty() {
        return String::new();
    }
    format!("\n{}\n", notes.join("\n"))
}

fn place(fate: &Fate) -> String {
    match fate {
        Fate::Refused(_) => "refused".to_owned(),
        Fate::Placed(Place { pool, own, cpus, mems, .. }) => {
            let cpus = match own.as_str() {
                "" => format!("shares {cpus}"),
                own => format!("own {own}"),
            };
            format!("{cpus} in {pool}, memory {mems}")
        }
    }
}

#[derive(Serialize)]
struct ReplayForm<'a> {
    format: &'static str,
    from: String,
    until: String,
    entries: usize,
    decisions: usize,
    machine_changes: usize,
    failures: usize,
    entries_skipped: usize,
    /// Changes of `groups` that would have been refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes_refused: Vec<RefusedChangeForm<'a>>,
    /// As it was, and as it would have been.
    runs: Vec<RunForm<'a>>,
    elsewhere: Vec<ElsewhereForm<'a>>,
}

#[derive(Serialize)]
struct RefusedChangeForm<'a> {
    at: String,
    why: &'a [String],
}

#[derive(Serialize)]
struct ElsewhereForm<'a> {
    at: String,
    container: &'a str,
    was: FateForm<'a>,
    would_have_been: FateForm<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum FateForm<'a> {
    Placed(&'a Place),
    Refused(&'a str),
}

impl<'a> From<&'a Fate> for FateForm<'a> {
    fn from(fate: &'a Fate) -> FateForm<'a> {
        match fate {
            Fate::Placed(place) => FateForm::Placed(place),
            Fate::Refused(why) => FateForm::Refused(why),
        }
    }
}

/// For programs.
///
/// # Errors
/// None is known: texts and numbers can always be written as JSON.
pub(crate) fn render_json(report: &Report) -> serde_json::Result<String> {
    let played = &report.played;
    let elsewhere = report.elsewhere().into_iter().map(|arrival| ElsewhereForm {
        at: arrival.at.to_string(),
        container: &arrival.name,
        was: (&arrival.was).into(),
        would_have_been: (&arrival.would).into(),
    });
    let refused = played.refused_changes.iter();
    let form = ReplayForm {
        format: REPLAY_FORMAT,
        from: played.from.to_string(),
        until: played.until.to_string(),
        entries: played.entries,
        decisions: played.arrivals.len(),
        machine_changes: played.machines,
        failures: played.failures,
        entries_skipped: played.skipped,
        changes_refused: refused
            .map(|it| RefusedChangeForm { at: it.at.to_string(), why: &it.lacking })
            .collect(),
        runs: report.runs.iter().map(RunForm::new).collect(),
        elsewhere: elsewhere.collect(),
    };
    to_visible_json(&form)
}
