//! `bayplan status`.

use std::path::{Path, PathBuf};

use bayplan_daemon::config::read_config;
use bayplan_daemon::query_control;
use bayplan_daemon::status::Status;

use crate::args::{ControlOptions, Output, StatusOptions};
use crate::{render_table, table};

/// Asks the daemon and prints who has which CPUs.
pub(crate) fn run(config: Option<&Path>, options: &StatusOptions) -> anyhow::Result<()> {
    let socket = control_socket(config, &options.control)?;
    let asked = query_control::<Status>(&socket, "/v1/status");
    let status = tokio::runtime::Runtime::new()?.block_on(asked)?;
    match options.output.output {
        Output::Text => print!("{}", render(&status)),
        Output::Json => println!("{}", serde_json::to_string_pretty(&status)?),
    }
    Ok(())
}

pub(crate) fn control_socket(
    config: Option<&Path>,
    options: &ControlOptions,
) -> anyhow::Result<PathBuf> {
    match &options.control {
        Some(socket) => Ok(socket.clone()),
        None => Ok(read_config(config)?.control_socket),
    }
}

/// Two tables: CPUs by class, and containers; and who could do with fewer memory nodes.
pub(crate) fn render(status: &Status) -> String {
    let mut classes = table(&["CLASS", "CPUS"]);
    let cpus = &status.cpus;
    for (class, cpus) in [
        ("exclusive", &cpus.exclusive),
        ("shared", &cpus.shared),
        ("reserved", &cpus.reserved),
        ("isolated", &cpus.isolated),
    ] {
        classes.add_row([class, dash(cpus)]);
    }
    let mut containers =
        table(&["CONTAINER", "QOS", "ASKED", "POOL", "EXCLUSIVE", "CPUS", "MEMS", "PHASE"]);
    for container in &status.containers {
        containers.add_row([
            container.full_name().as_str(),
            container.qos.as_deref().unwrap_or("?"),
            &container.asked,
            &container.pool,
            dash(&container.exclusive),
            container.cpus_text(),
            dash(container.mems_text()),
            &container.phase,
        ]);
    }
    let mut text = render_table(&classes);
    text.push('\n');
    match status.containers.is_empty() {
        true => text.push_str("no containers\n"),
        false => text.push_str(&render_table(&containers)),
    }
    for container in &status.containers {
        if let Some(narrowing) = container.narrowing_text() {
            text.push_str(&format!("{} {narrowing}\n", container.full_name()));
        }
    }
    text
}

fn dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}
