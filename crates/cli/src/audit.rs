//! `bayplan audit`.

use std::collections::BTreeMap;

use anyhow::bail;
use bayplan_daemon::{AuditView, ContainerAudit, query_control};

use crate::args::{AuditOptions, Output};
use crate::control::control_socket;
use crate::node_config::NodeConfig;
use crate::text::{render_table, table};
use crate::visible::print_json;
use crate::visible::visible;

/// Lines of intruders that are shown to people, most time first.
const INTRUDERS_MAX: usize = 30;

/// Asks the daemon what its probes have counted.
pub(crate) fn run(config: &NodeConfig, options: &AuditOptions) -> anyhow::Result<()> {
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
        Output::Json => print_json(&view)?,
        Output::Text if options.name.is_some() => out!("{}", render_details(&view))?,
        Output::Text => out!("{}", render(&view))?,
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
    visible(&render_containers(view))
}

fn render_containers(view: &AuditView) -> String {
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
        text.push_str("  has no exclusive CPUs to intrude on\n");
        return text;
    }
    let taken = container.recent.as_ref().zip(recent_seconds);
    let taken = taken.map_or(String::new(), |(recent, seconds)| {
        format!(": {} of the last {seconds:.0} s were taken", millis(recent.taken_seconds))
    });
    text.push_str(&format!("  owns CPUs {}{taken}\n", container.owned));
    let mut rows = table(&["  CPU", "TASK", "NAME", "LAST MINUTE", "IN ALL", "TIMES"]);
    if container.intruders.is_empty() {
        text.push_str("  nothing else has run there\n");
        return text;
    }
    let shown = container.intruders.len().min(INTRUDERS_MAX);
    let (shown, more) = container.intruders.split_at(shown);
    for intruder in shown {
        rows.add_row([
            format!("  {}", intruder.cpu),
            intruder.who.clone(),
            if intruder.name.is_empty() { "-".to_owned() } else { plain(&intruder.name) },
            millis(intruder.recent_seconds),
            millis(intruder.seconds),
            intruder.times.to_string(),
        ]);
    }
    if !more.is_empty() {
        rows.add_row([
            "  -".to_owned(),
            format!("{} more, see -o json", more.len()),
            "-".to_owned(),
            millis(more.iter().map(|it| it.recent_seconds).sum()),
            millis(more.iter().map(|it| it.seconds).sum()),
            more.iter().map(|it| it.times).sum::<u64>().to_string(),
        ]);
    }
    text.push_str(&render_table(&rows));
    text
}

/// What does not count, and what would mend it.
fn render_probes(view: &AuditView) -> String {
    if view.probes.is_empty() {
        return "Nothing is counted: `probes` is off in the configuration, or the daemon has just been started\n".to_owned();
    }
    // What the machine does not have is no news for a reader of one container; `bayplan check` lists it.
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

#[cfg(test)]
mod tests {
    use bayplan_daemon::IntruderView;
    use expect_test::{Expect, expect};

    use super::*;

    /// A container from which these took CPU: kind, name, milliseconds in all. A tenth of it was in the last minute.
    fn audit(intruders: &[(&str, &str, f64)]) -> String {
        let view = |(who, name, millis): &(&str, &str, f64)| IntruderView {
            cpu: 1,
            who: (*who).to_owned(),
            name: (*name).to_owned(),
            seconds: millis / 1e3,
            times: 2,
            recent_seconds: millis / 1e4,
        };
        let container = ContainerAudit {
            namespace: "default".to_owned(),
            pod: "pod".to_owned(),
            container: "owner".to_owned(),
            owned: "1".to_owned(),
            cpu_seconds: 1.0,
            run_delay_seconds: 0.5,
            runs: 3,
            preempted_by: BTreeMap::new(),
            migrations: BTreeMap::new(),
            events: BTreeMap::new(),
            events_counted_share: None,
            recent: None,
            intruders: intruders.iter().map(view).collect(),
        };
        let text = render_container(&container, None);
        text.split_once("owns CPUs ").unwrap().1.to_owned()
    }

    #[track_caller]
    fn check(intruders: &[(&str, &str, f64)], expected: Expect) {
        expected.assert_eq(&audit(intruders));
    }

    #[test]
    fn an_intruder_without_a_name_is_in_the_table() {
        check(
            &[
                ("kernel thread", "kworker/1:0", 120.0),
                ("process of cgroup 3", "\u{1b}[2J", 40.0),
                ("other processes, not named", "", 30.0),
            ],
            expect![[r#"
                1
                   CPU  TASK                        NAME         LAST MINUTE  IN ALL    TIMES
                   1    kernel thread               kworker/1:0  12.0 ms      120.0 ms  2
                   1    process of cgroup 3         �[2J         4.0 ms       40.0 ms   2
                   1    other processes, not named  -            3.0 ms       30.0 ms   2
            "#]],
        );
        check(
            &[],
            expect![[r#"
                1
                  nothing else has run there
            "#]],
        );
    }

    #[test]
    fn the_lines_sum_up_to_all_that_was_taken() {
        let mut all = vec![("kernel thread", "rcu", 1.0); INTRUDERS_MAX];
        all.extend([("kernel thread", "late", 20.0), ("other processes, not named", "", 30.0)]);
        let text = audit(&all);
        assert_eq!(text.lines().count(), 2 + INTRUDERS_MAX + 1);
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last.join(" "), "- 2 more, see -o json - 5.0 ms 50.0 ms 4");
    }
}
