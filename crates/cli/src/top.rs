//! `bayplan top`. In: the daemon's status, what its probes have counted, and the counters of the containers' cgroups. Out: a table every few seconds.
//!
//! The counters of cgroups are read here and not by the daemon, which has nothing to do while nobody looks (`reader.rs`). What is shown of them is one table
//! (`columns.rs`), and of the node a line (`node.rs`).

mod columns;
mod keys;
mod node;
mod reader;

use std::io::{self, IsTerminal as _};
use std::time::Instant;

use bayplan_daemon::{AuditView, ControlError, query_control};
use bayplan_node::status::Status;
use tokio::runtime::Runtime;

use crate::args::{Output, TopOptions};
use crate::node_config::NodeConfig;
use crate::status::control_socket;

pub(crate) use columns::Sort;
use columns::render;
use keys::Keys;
use reader::{Reader, Reading};

/// Rows of a terminal that are not for containers: title, node, header, what could not be read, and the cursor.
const OTHER_ROWS: usize = 5;
/// Cursor home, and everything after it erased (ECMA-48, CUP and ED).
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

/// Prints which container uses how much CPU, until it is interrupted, or `q` is pressed.
pub(crate) fn run(config: &NodeConfig, options: &TopOptions) -> anyhow::Result<()> {
    let socket = control_socket(config, &options.control)?;
    let mut reader = Reader::new(config.usable()?.host_root.clone());
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
    let mut keys = is_live.then(|| tokio.block_on(async { Keys::open() })).flatten();
    let first = read(ask()?);
    if is_live {
        print(&first, options, is_live)?;
    }
    loop {
        match &mut keys {
            Some(keys) => {
                if tokio.block_on(keys.end_within(options.delay)) {
                    return Ok(());
                }
            }
            None => std::thread::sleep(options.delay),
        }
        match ask() {
            Ok(told) => print(&read(told), options, is_live)?,
            // It may be starting again.
            Err(error) if is_live => {
                let error = anyhow::Error::new(error);
                sayln!("{CLEAR}{error:#}")?;
            }
            Err(error) => return Err(error.into()),
        }
        if options.once {
            return Ok(());
        }
    }
}

fn print(reading: &Reading, options: &TopOptions, is_live: bool) -> anyhow::Result<()> {
    if options.output.output == Output::Json {
        let containers = reading.containers.iter().take(options.number.unwrap_or(usize::MAX));
        let shown = Reading {
            containers: containers.cloned().collect(),
            unread: reading.unread.clone(),
            ..*reading
        };
        return sayln!("{}", serde_json::to_string(&shown)?);
    }
    let size = terminal_size::terminal_size();
    let height = size
        .filter(|_| is_live)
        .map(|(_, height)| usize::from(height.0).saturating_sub(OTHER_ROWS));
    let rows = options.number.unwrap_or(usize::MAX).min(height.unwrap_or(usize::MAX));
    let width = size.map_or(usize::MAX, |(width, _)| usize::from(width.0));
    let text = render(reading, rows, options.sort, width);
    let clear = if is_live { CLEAR } else { "" };
    let end = if is_live || options.once { "" } else { "\n" };
    say!("{clear}{text}{end}")
}
