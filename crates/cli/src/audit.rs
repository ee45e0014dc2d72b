//! `bayplan audit`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::bail;
use bayplan_daemon::{AuditView, ContainerAudit, query_control};

use crate::args::{AuditOptions, Output};
use crate::status::control_socket;
use crate::{render_table, table};

/// Lines of intruders that are shown to people, most time first.
const INTRUDERS_MAX: usize = 30;

/// Asks the daemon what its probes have counted.
pub(crate) fn run(config: Option<&Path>, options: &AuditOptions) -> anyhow::Result<()> {
    let socket = control_socket(config, &options.control)?;
    let asked = query_control::<AuditView>(&socket, "/api/v1/audit");
    let mut view = tokio::runtime::Runtime::new()?.block_on(asked)?;
    if let Some(name) = &options.name {
        view.containers.retain(|container| container.is_called(name));
        if view.containers.is_empty() && !view.probes.is_empty() {
            bail!(
                "no container that is watched is called `{name}`; `bayplan audit` lists them. One that has just come is there after some seconds"
            );
        }
    }
    match options.output.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&view)?),
        Output::Text if options.name.is_some() => print!("{}", render_details(&view)),
        Output::Text => print!("{}", render(&view)),
    }
    Ok(())
}

/// A line per container, and what does not count.
pub(crate) fn render(view: &AuditView) -> String {
    let mut text = render_probes(view);
    if view.probes.is_empty() {
        return text;
    }
    let mut rows = table(&[
        "CONTAINER",
        "OWNS",
        "CPUS USED",
        "WAITING",
        "DELAY P99",
        "PREEMPTED/s",
        "MOVES/s",
        "TAKEN",
    ]);
    for container in &view.containers {
        let owned = if container.owned.is_empty() { "-" } else { &container.owned };
        let mut row = vec![container.full_name(), owned.to_owned()];
        match &container.recent {
            Some(recent) => row.extend([
                format!("{:.2}", recent.cpus),
                format!("{:.2}", recent.waiting),
                delay(recent.run_delay_p99_seconds, recent.has_runs),
                format!("{:.1}", recent.preempted),
                format!("{:.1}", recent.migrations),
                match container.owned.is_empty() {
                    true => "-".to_owned(),
                    false => millis(recent.taken_seconds),
                },
            ]),
            None => row.extend(std::iter::repeat_n("-".to_owned(), 6)),
        }
        rows.add_row(row);
    }
    text.push_str(&render_table(&rows));
    if let Some(seconds) = view.recent_seconds {
        text.push_str(&format!(
            "\nOver the last {seconds:.0} s. WAITING: tasks that could have run and had no CPU; DELAY P99: 99 of 100 runs began after at most \
             this;\nTAKEN: time that others ran on CPUs that the container owns (`bayplan audit CONTAINER` names them).\n"
        ));
    }
    text
}

/// Everything about containers.
fn render_details(view: &AuditView) -> String {
    let mut text = render_probes(view);
    for container in &view.containers {
        text.push_str(&render_container(container, view.recent_seconds));
    }
    text
}

fn render_container(container: &ContainerAudit, recent_seconds: Option<f64>) -> String {
    let mut text = format!("{}\n", container.full_name());
    let counts = |counts: &BTreeMap<String, u64>| {
        let some: Vec<String> = counts
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(what, count)| format!("{what} {count}"))
            .collect();
        if some.is_empty() { "none".to_owned() } else { some.join(", ") }
    };
    let mut facts = table(&[]);
    facts.add_row(["  on CPUs", &format!("{:.3} s", container.cpu_seconds)]);
    facts.add_row(["  waited for CPUs", &format!("{:.3} s", container.run_delay_seconds)]);
    facts.add_row(["  preempted by", &counts(&container.preempted_by)]);
    facts.add_row(["  moved within", &counts(&container.migrations)]);
    if let Some(recent) = &container.recent {
        let p50 = delay(recent.run_delay_p50_seconds, recent.has_runs);
        let p99 = delay(recent.run_delay_p99_seconds, recent.has_runs);
        facts.add_row([
            "  run-queue delay",
            &format!("half at most {p50}, 99 of 100 at most {p99}"),
        ]);
    }
    text.push_str(&render_table(&facts));
    if container.owned.is_empty() {
        text.push_str("  owns no CPUs, so nobody can intrude on them\n");
        return text;
    }
    let taken = container.recent.as_ref().zip(recent_seconds);
    let taken = taken.map_or(String::new(), |(recent, seconds)| {
        format!(": {} of the last {seconds:.0} s were taken", millis(recent.taken_seconds))
    });
    text.push_str(&format!("  owns CPUs {}{taken}\n", container.owned));
    let mut rows = table(&["  CPU", "WHO", "NAME", "LAST MINUTE", "IN ALL", "TIMES"]);
    for intruder in container.intruders.iter().take(INTRUDERS_MAX) {
        rows.add_row([
            format!("  {}", intruder.cpu),
            intruder.who.clone(),
            if intruder.name.is_empty() { "-".to_owned() } else { plain(&intruder.name) },
            millis(intruder.recent_seconds),
            millis(intruder.seconds),
            intruder.times.to_string(),
        ]);
    }
    if container.intruders.is_empty() {
        text.push_str("  nobody else has run there\n");
    } else {
        text.push_str(&render_table(&rows));
    }
    let more = container.intruders.len().saturating_sub(INTRUDERS_MAX);
    if more > 0 {
        text.push_str(&format!("  and {more} more, see -o json\n"));
    }
    text
}

/// What does not count, and what would mend it.
fn render_probes(view: &AuditView) -> String {
    if view.probes.is_empty() {
        return "Nothing is counted: `probes` is off in the configuration, or the daemon has just been started\n".to_owned();
    }
    let refused = view.probes.iter().filter(|probe| probe.state == "refused");
    let line = |probe: &bayplan_daemon::ProbeView| {
        let [reason, remedy] =
            [&probe.reason, &probe.remedy].map(|text| text.as_deref().unwrap_or("?"));
        format!("not counted: {} ({}). {reason}; {remedy}\n", probe.name, probe.counts)
    };
    refused.map(line).collect()
}

/// Any process can give itself a name, which must not steer a terminal.
fn plain(name: &str) -> String {
    name.chars().map(|it| if it.is_control() { '\u{fffd}' } else { it }).collect()
}

fn millis(seconds: f64) -> String {
    format!("{:.1} ms", seconds * 1e3)
}

/// An upper bound out of a bucket. Of runs of which none is told, the last bucket has no end.
pub(crate) fn delay(seconds: Option<f64>, has_runs: bool) -> String {
    match seconds {
        None if has_runs => "> 134 ms".to_owned(),
        None => "-".to_owned(),
        Some(seconds) if seconds < 1e-3 => format!("{:.0} us", seconds * 1e6),
        Some(seconds) => format!("{:.1} ms", seconds * 1e3),
    }
}
