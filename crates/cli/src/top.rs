//! `bayplan top`. In: the daemon's status, what its probes have counted, and the counters of the containers' cgroups. Out: on a terminal a
//! screen that is drawn every few seconds, elsewhere a table.
//!
//! The counters of cgroups are read here and not by the daemon, which has nothing to do while no page or screen is open (`reader.rs`). What is
//! shown of them is one table (`columns.rs`), and of the node a line (`node.rs`). The screen is a value that keys change (`model.rs`), drawn
//! by `draw.rs`, with the terminal and the daemon at its edge (`screen.rs`).

mod columns;
mod draw;
mod model;
mod node;
mod rates;
mod reader;
mod screen;

use std::io::{self, IsTerminal as _};
use std::time::Instant;

use bayplan_daemon::{AuditView, ControlError, query_control};
use bayplan_node::status::Status;
use tokio::runtime::Runtime;

use crate::args::{Output, TopOptions};
use crate::control::control_socket;
use crate::node_config::NodeConfig;
use crate::visible::visible_json;

use columns::render;
use reader::{Reader, Reading};

/// Shows which container uses how much CPU, until it is interrupted.
pub(crate) fn run(config: &NodeConfig, options: &TopOptions) -> anyhow::Result<()> {
    let socket = control_socket(config, &options.control)?;
    let mut reader = Reader::new(config.usable()?.host_root.clone());
    if is_live(options) {
        return screen::run(options, &socket, reader);
    }
    let tokio = Runtime::new()?;
    let ask = || -> Result<(Status, AuditView), ControlError> {
        tokio.block_on(async {
            let status = query_control(&socket, "/api/v1/status").await?;
            Ok((status, query_control(&socket, "/api/v1/audit").await?))
        })
    };
    let mut read = |(status, audit): (Status, AuditView)| {
        let mut reading = reader.read(&status, &audit, Instant::now());
        options.sort.sort(&mut reading.containers);
        reading
    };
    // Rates need two.
    let _first = read(ask()?);
    loop {
        std::thread::sleep(options.delay);
        print(&read(ask()?), options)?;
        if options.once {
            return Ok(());
        }
    }
}

/// Whether there is a terminal that can be drawn on.
fn is_live(options: &TopOptions) -> bool {
    let is_text = !options.once && options.output.output == Output::Text;
    let is_dumb = std::env::var_os("TERM").is_none_or(|it| it.is_empty() || it == "dumb");
    is_text && !is_dumb && io::stdout().is_terminal() && io::stdin().is_terminal()
}

fn print(reading: &Reading, options: &TopOptions) -> anyhow::Result<()> {
    if options.output.output == Output::Json {
        let containers = reading.containers.iter().take(options.number.unwrap_or(usize::MAX));
        let shown = Reading {
            containers: containers.cloned().collect(),
            unread: reading.unread.clone(),
            ..*reading
        };
        return sayln!("{}", visible_json(&serde_json::to_string(&shown)?));
    }
    let width = terminal_size::terminal_size();
    let width = width.map_or(usize::MAX, |(width, _)| usize::from(width.0));
    let rows = options.number.unwrap_or(usize::MAX);
    let text = render(reading, rows, options.sort, width);
    let end = if options.once { "" } else { "\n" };
    say!("{text}{end}")
}
