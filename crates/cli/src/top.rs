//! `bayplan top`. In: the daemon's status, and the counters of the containers' cgroups. Out: a table every few seconds.
//!
//! The counters are read here and not by the daemon, which has nothing to do while nobody looks. Each container's files are opened once.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bayplan_daemon::config::read_config;
use bayplan_daemon::mode::Mode;
use bayplan_daemon::query_control;
use bayplan_daemon::status::{ContainerStatus, Status};
use bayplan_host::{CpuFiles, CpuStat};
use jiff::Timestamp;
use serde::Serialize;
use tokio::runtime::Runtime;

use crate::args::{Output, TopOptions};
use crate::status::control_socket;
use crate::{render_table, table};

/// Rows of a terminal that are not for containers: title, header, what could not be read, and the cursor.
const OTHER_ROWS: usize = 4;
/// Cursor home, and everything after it erased (ECMA-48, CUP and ED).
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

/// Prints who uses how much CPU, until it is interrupted.
pub(crate) fn run(config: Option<&Path>, options: &TopOptions) -> anyhow::Result<()> {
    match watch(config, options) {
        // Whoever read has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        other => other,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|it| it.kind() == io::ErrorKind::BrokenPipe)
}

fn watch(config: Option<&Path>, options: &TopOptions) -> anyhow::Result<()> {
    let socket = control_socket(config, &options.control)?;
    let mut reader = Reader::new(read_config(config)?.host_root);
    let tokio = Runtime::new()?;
    let ask = || tokio.block_on(query_control::<Status>(&socket, "/api/v1/status"));
    let is_live =
        !options.once && options.output.output == Output::Text && io::stdout().is_terminal();
    let first = reader.read(&ask()?, Instant::now());
    if is_live {
        print(&first, options, is_live)?;
    }
    loop {
        std::thread::sleep(options.delay);
        match ask() {
            Ok(status) => print(&reader.read(&status, Instant::now()), options, is_live)?,
            // It may be starting again.
            Err(error) if is_live => {
                let error = anyhow::Error::new(error);
                writeln!(io::stdout(), "{CLEAR}{error:#}")?;
            }
            Err(error) => return Err(error.into()),
        }
        if options.once {
            return Ok(());
        }
    }
}

/// One reading; format `bayplan-top/1`.
#[derive(Debug, Serialize)]
struct Reading {
    format: &'static str,
    at: Timestamp,
    mode: Mode,
    containers: Vec<Row>,
    /// Why the first of those that could not be read could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    unread: Option<String>,
}

/// One container.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    container: String,
    class: String,
    cpus: String,
    /// CPUs that it used on average since the last reading.
    cpu_usage: Option<f64>,
    /// Share of the periods in which it was stopped; `None` without a limit, too.
    throttled: Option<f64>,
}

/// Keeps what is open, and the last counters.
struct Reader {
    root: PathBuf,
    /// By the runtime's id.
    open: BTreeMap<String, Open>,
}

struct Open {
    files: CpuFiles,
    last: Option<(Instant, CpuStat)>,
}

impl Reader {
    fn new(root: PathBuf) -> Reader {
        Reader { root, open: BTreeMap::new() }
    }

    fn read(&mut self, status: &Status, now: Instant) -> Reading {
        let is_there = |id: &String| status.containers.iter().any(|it| it.id.as_ref() == Some(id));
        self.open.retain(|id, _| is_there(id));
        let mut unread = None;
        let mut containers = Vec::new();
        for container in &status.containers {
            let (cpu_usage, throttled) = self.usage(container, now).unwrap_or_else(|error| {
                unread.get_or_insert(format!("{error:#}"));
                (None, None)
            });
            containers.push(Row {
                container: container.full_name(),
                class: container.class.clone(),
                cpus: container.cpus_text().to_owned(),
                cpu_usage,
                throttled,
            });
        }
        containers.sort_by(|a, b| {
            let usage = |row: &Row| row.cpu_usage.unwrap_or(-1.0);
            usage(b).total_cmp(&usage(a)).then_with(|| a.container.cmp(&b.container))
        });
        let format = "bayplan-top/1";
        Reading { format, at: Timestamp::now(), mode: status.mode, containers, unread }
    }

    /// Usage and throttling since the last reading, as far as they are known.
    fn usage(
        &mut self,
        container: &ContainerStatus,
        now: Instant,
    ) -> anyhow::Result<(Option<f64>, Option<f64>)> {
        let Some(id) = &container.id else { return Ok((None, None)) };
        if !self.open.contains_key(id) {
            let opened = CpuFiles::open(&self.root, &container.cgroup_parent, id)?;
            let Some(files) = opened else { return Ok((None, None)) };
            self.open.insert(id.clone(), Open { files, last: None });
        }
        let Some(open) = self.open.get_mut(id) else { return Ok((None, None)) };
        let Some(stat) = open.files.read()? else { return Ok((None, None)) };
        let last = open.last.replace((now, stat));
        Ok(last.map_or((None, None), |(then, before)| {
            rates(&before, &stat, now.saturating_duration_since(then))
        }))
    }
}

/// CPUs used, and the share of periods in which it was stopped. Counters that went back say nothing.
fn rates(before: &CpuStat, after: &CpuStat, elapsed: Duration) -> (Option<f64>, Option<f64>) {
    let used = after.usage_usec.checked_sub(before.usage_usec).map(Duration::from_micros);
    let usage = used.map(|used| used.as_secs_f64() / elapsed.as_secs_f64());
    let periods = after.nr_periods.checked_sub(before.nr_periods).map(Duration::from_micros);
    let stopped = after.nr_throttled.checked_sub(before.nr_throttled).map(Duration::from_micros);
    let throttled = match (periods, stopped) {
        (Some(periods), Some(stopped)) if !periods.is_zero() => {
            Some(stopped.div_duration_f64(periods))
        }
        _ => None,
    };
    (usage.filter(|usage| usage.is_finite()), throttled)
}

fn print(reading: &Reading, options: &TopOptions, is_live: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if options.output.output == Output::Json {
        let containers = reading.containers.iter().take(options.number.unwrap_or(usize::MAX));
        let shown = Reading {
            containers: containers.cloned().collect(),
            unread: reading.unread.clone(),
            ..*reading
        };
        writeln!(out, "{}", serde_json::to_string(&shown)?)?;
        return Ok(());
    }
    let size = terminal_size::terminal_size().filter(|_| is_live);
    let height = size.map(|(_, height)| usize::from(height.0).saturating_sub(OTHER_ROWS));
    let rows = options.number.unwrap_or(usize::MAX).min(height.unwrap_or(usize::MAX));
    let width = size.map_or(usize::MAX, |(width, _)| usize::from(width.0));
    let text = render(reading, rows);
    if is_live {
        write!(out, "{CLEAR}")?;
    }
    for line in text.lines() {
        let line: String = line.chars().take(width).collect();
        writeln!(out, "{line}")?;
    }
    if !is_live && !options.once {
        writeln!(out)?;
    }
    out.flush()?;
    Ok(())
}

/// A title, and so many rows.
fn render(reading: &Reading, rows: usize) -> String {
    let count = reading.containers.len();
    let known = || reading.containers.iter().filter_map(|row| row.cpu_usage);
    let use_of_all = match known().next() {
        Some(_) => format!("use {:.2} CPUs", known().sum::<f64>()),
        None => "of unknown usage".to_owned(),
    };
    let mut text =
        format!("{count} containers {use_of_all}; {}; {:.0}\n", reading.mode.name(), reading.at);
    let mut lines = table(&["CONTAINER", "CLASS", "CPU", "THROTTLED", "CPUS"]);
    for row in reading.containers.iter().take(rows) {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        lines.add_row([
            row.container.clone(),
            row.class.clone(),
            or_dash(row.cpu_usage.map(|usage| format!("{usage:.2}"))),
            or_dash(row.throttled.map(|share| format!("{:.0}%", share * 100.0))),
            row.cpus.clone(),
        ]);
    }
    text.push_str(&render_table(&lines));
    if let Some(unread) = &reading.unread {
        text.push_str(&format!("not all could be read: {unread}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(before: [u64; 3], after: [u64; 3], seconds: u64, expected: Expect) {
        let stat = |[usage_usec, nr_periods, nr_throttled]: [u64; 3]| CpuStat {
            usage_usec,
            nr_periods,
            nr_throttled,
        };
        let rates = rates(&stat(before), &stat(after), Duration::from_secs(seconds));
        expected.assert_eq(&format!("{rates:?}"));
    }

    #[test]
    fn rates_are_of_what_came_since_and_absent_where_nothing_is_known() {
        check([1_000_000, 10, 5], [4_000_000, 30, 10], 2, expect!["(Some(1.5), Some(0.25))"]);
        check([0, 0, 0], [500_000, 0, 0], 2, expect!["(Some(0.25), None)"]);
        check([5, 7, 7], [4, 6, 6], 2, expect!["(None, None)"]);
        check([0, 0, 0], [1, 1, 1], 0, expect!["(None, Some(1.0))"]);
    }

    #[test]
    fn those_that_use_most_come_first() {
        let row = |name: &str, cpu_usage, throttled| Row {
            container: name.to_owned(),
            class: "shared".to_owned(),
            cpus: "0-3".to_owned(),
            cpu_usage,
            throttled,
        };
        let reading = Reading {
            format: "",
            at: Timestamp::UNIX_EPOCH,
            mode: Mode::Placing,
            containers: vec![
                row("n/p/busy", Some(1.504), Some(0.25)),
                row("n/p/idle", Some(0.0), None),
                row("n/p/new", None, None),
            ],
            unread: Some("cannot read /a: denied".to_owned()),
        };
        expect![[r#"
            3 containers use 1.50 CPUs; placing; 1970-01-01T00:00:00Z
             CONTAINER  CLASS   CPU   THROTTLED  CPUS
             n/p/busy   shared  1.50  25%        0-3
             n/p/idle   shared  0.00  -          0-3
            not all could be read: cannot read /a: denied
        "#]]
        .assert_eq(&render(&reading, 2));
        let nothing = Reading { containers: vec![row("n/p/new", None, None)], ..reading };
        assert!(render(&nothing, 1).starts_with("1 containers of unknown usage; placing"));
    }
}
