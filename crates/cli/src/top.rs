//! `bayplan top`. In: the daemon's status, what its probes have counted, and the counters of the containers' cgroups. Out: a table every few seconds.
//!
//! The counters of cgroups are read here and not by the daemon, which has nothing to do while nobody looks (`reader.rs`). What is shown of them is one table
//! (`columns.rs`), and of the node a line (`node.rs`).

mod columns;
mod node;
mod reader;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Instant;

use bayplan_daemon::config::read_config;
use bayplan_daemon::status::Status;
use bayplan_daemon::{AuditView, ControlError, query_control};
use tokio::runtime::Runtime;

use crate::args::{Output, TopOptions};
use crate::status::control_socket;

pub(crate) use columns::Sort;
use columns::render;
use reader::{Reader, Reading};

/// Rows of a terminal that are not for containers: title, node, header, what could not be read, and the cursor.
const OTHER_ROWS: usize = 5;
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
    let ask = || -> Result<(Status, AuditView), ControlError> {
        tokio.block_on(async {
            let status = query_control(&socket, "/api/v1/status").await?;
            Ok((status, query_control(&socket, "/api/v1/audit").await?))
        })
    };
    let is_live =
        !options.once && options.output.output == Output::Text && io::stdout().is_terminal();
    let mut read = |(status, audit): (Status, AuditView)| {
        let mut reading = reader.read(&status, &audit, Instant::now());
        options.sort.sort(&mut reading.containers);
        reading
    };
    let first = read(ask()?);
    if is_live {
        print(&first, options, is_live)?;
    }
    loop {
        std::thread::sleep(options.delay);
        match ask() {
            Ok(told) => print(&read(told), options, is_live)?,
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
