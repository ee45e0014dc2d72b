//! `bayplan journal`. In: the files of the history. Out: a line per entry, newest last.

use std::time::Duration;

use bayplan_node::history::{Entry, Kind, Place};
use bayplan_workload::annotations::matches_glob;
use jiff::Timestamp;

use crate::args::{JournalOptions, Moment, Output};
use crate::node_config::NodeConfig;
use crate::past::Past;
use crate::stdout::stream;
use crate::visible::{visible_cell, visible_json};

/// How often `--follow` looks for more.
const POLL: Duration = Duration::from_millis(300);
/// A column grows up to this width; a longer text pushes its own line only.
const WIDTH_MAX: usize = 48;

/// Prints what happened.
pub(crate) fn run(config: &NodeConfig, options: &JournalOptions) -> anyhow::Result<()> {
    let mut past = match &options.control {
        Some(socket) => Past::of_daemon(socket)?,
        None => Past::open(config, &options.past)?,
    };
    let filter = Filter::new(options, Timestamp::now());
    let mut columns = Columns::default();
    let mut entries = past.read(options.follow)?;
    entries.retain(|entry| filter.shows(entry));
    let skipped = options.last.map_or(0, |last| entries.len().saturating_sub(last));
    entries.drain(..skipped);
    write(&entries, options.output.output, &mut columns)?;
    if options.follow {
        loop {
            std::thread::sleep(POLL);
            let mut entries = past.read(true)?;
            entries.retain(|entry| filter.shows(entry));
            write(&entries, options.output.output, &mut columns)?;
        }
    }
    if let Some(damage) = past.render_damage() {
        errln!("bayplan: {damage}");
    }
    Ok(())
}

fn write(entries: &[Entry], output: Output, columns: &mut Columns) -> anyhow::Result<()> {
    match output {
        Output::Text => stream(columns.render(entries).as_bytes()),
        Output::Json => {
            let mut lines = String::new();
            for entry in entries {
                lines.push_str(&visible_json(&serde_json::to_string(entry)?));
                lines.push('\n');
            }
            stream(lines.as_bytes())
        }
    }
}

/// What is asked for.
struct Filter<'o> {
    options: &'o JournalOptions,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl<'o> Filter<'o> {
    fn new(options: &'o JournalOptions, now: Timestamp) -> Filter<'o> {
        let at = |moment: Option<Moment>| moment.map(|moment| moment.before(now));
        Filter { options, since: at(options.since), until: at(options.until) }
    }

    fn shows(&self, entry: &Entry) -> bool {
        let Filter { options, since, until } = self;
        let is_kind = match options.kind.is_empty() {
            true => !entry.kind.is_bookkeeping(),
            false => options.kind.iter().any(|kind| kind == entry.kind.name()),
        };
        is_kind
            && self.is_named(entry)
            && since.is_none_or(|since| entry.at >= since)
            && until.is_none_or(|until| entry.at <= until)
    }

    /// Whether it tells of a container that was asked for, as the one to which it happened or the one for which it was proposed.
    fn is_named(&self, entry: &Entry) -> bool {
        let JournalOptions { namespace, pod, container, .. } = self.options;
        let patterns = [namespace, pod, container].map(Option::as_deref);
        let matches = |name: &String| {
            let mut parts = name.split('/');
            patterns.iter().all(|pattern| {
                let part = parts.next().unwrap_or_default();
                pattern.is_none_or(|pattern| matches_glob(pattern, part))
            })
        };
        patterns == [None; 3] || entry.names().iter().any(matches)
    }
}

/// The lines of a table that may go on: a column never becomes narrower.
#[derive(Default)]
pub(crate) struct Columns {
    widths: [usize; 5],
    has_header: bool,
}

const HEADER: [&str; 6] = ["TIME (UTC)", "WHAT", "CONTAINER", "CPUS", "MEMS", "WHY"];

impl Columns {
    /// A line per entry, and before the first the names of the columns.
    pub(crate) fn render(&mut self, entries: &[Entry]) -> String {
        let header = (!self.has_header).then(|| HEADER.map(str::to_owned));
        self.has_header = true;
        let rows: Vec<[String; 6]> = header
            .into_iter()
            .chain(entries.iter().map(row))
            .map(|row| row.map(|cell| visible_cell(&cell)))
            .collect();
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count().min(WIDTH_MAX));
            }
        }
        let mut text = String::new();
        for row in &rows {
            let mut line = String::new();
            for (index, cell) in row.iter().enumerate() {
                let width = self.widths.get(index).copied().unwrap_or(0);
                line.push_str(&format!("{cell:width$}  "));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn row(entry: &Entry) -> [String; 6] {
    let places = [entry.before.as_ref(), entry.after.as_ref()];
    let cells = [
        entry.at.strftime("%F %T").to_string(),
        entry.kind.name().replace('_', " "),
        entry.who.as_ref().map_or_else(
            || "-".to_owned(),
            |who| match who.attempt {
                0 => who.full_name(),
                attempt => format!("{}#{attempt}", who.full_name()),
            },
        ),
        change(places.map(|place| place.map(render_cpus))),
        change(places.map(|place| place.map(|place| place.mems.clone()))),
        render_why(entry),
    ];
    // Names and reasons come from elsewhere, and must not steer a terminal.
    cells.map(|cell| cell.chars().map(plain).collect())
}

fn plain(character: char) -> char {
    if character.is_control() { '\u{fffd}' } else { character }
}

/// What was and what is, where they differ.
fn change([before, after]: [Option<String>; 2]) -> String {
    match (before.filter(|it| !it.is_empty()), after.filter(|it| !it.is_empty())) {
        (Some(before), Some(after)) if before != after => format!("{before} -> {after}"),
        (_, Some(is)) | (Some(is), None) => is,
        (None, None) => "-".to_owned(),
    }
}

/// `own 1-2`, `0-7` for a container that shares, `own 1 of 0-7` for one that does both.
fn render_cpus(place: &Place) -> String {
    match (place.own.as_str(), place.cpus.as_str()) {
        ("", cpus) => cpus.to_owned(),
        (own, cpus) if cpus.is_empty() || own == cpus => format!("own {own}"),
        (own, cpus) => format!("own {own} of {cpus}"),
    }
}

fn render_why(entry: &Entry) -> String {
    let mut parts = Vec::new();
    if let Some(node) = &entry.node {
        parts.push(format!("bayplan {}, {} containers", node.version, node.live.len()));
    }
    if let Some(machine) = &entry.machine {
        parts.push(format!("CPUs {} of a machine {}", machine.cpus, machine.fingerprint));
    }
    let qos = entry.who.as_ref().and_then(|who| who.qos.as_deref());
    match (entry.asked.is_empty(), qos) {
        (false, Some(qos)) => parts.push(format!("{qos}, {}", entry.asked)),
        (false, None) => parts.push(entry.asked.clone()),
        (true, _) => {}
    }
    if !entry.why.is_empty() {
        parts.push(entry.why.strip_prefix("refused: ").unwrap_or(&entry.why).to_owned());
    }
    if let Some(place) = entry.after.as_ref().filter(|it| it.is_in_group()) {
        parts.push(format!("group {}", place.group));
    }
    if let Some(evidence) = entry.proposal.as_ref().map(|it| it.render_evidence()) {
        // The first line names the victim, and the reason what is worst.
        let more = evidence.lines().skip(1).map(str::trim).filter(|it| !entry.why.ends_with(it));
        parts.extend(more.map(str::to_owned));
    }
    let said = matches!(
        entry.kind,
        Kind::Placed | Kind::Refused | Kind::Adopted | Kind::Resized | Kind::Annotated
    );
    let warnings = entry.warnings.iter().filter(|_| said);
    parts.extend(warnings.map(|warning| format!("warning: {warning}")));
    parts.join("; ")
}

#[cfg(test)]
mod tests;
