//! `bayplan check`.

use std::path::Path;
use std::process::ExitCode;

use bayplan_daemon::check::{Finding, Severity, check_node};
use bayplan_daemon::config::read_config;

use crate::args::{Output, OutputOptions};
use crate::{has_colour, render_table, table};

/// Prints what was found; fails when something would not work.
pub(crate) fn run(config: Option<&Path>, options: &OutputOptions) -> anyhow::Result<ExitCode> {
    let config = read_config(config)?;
    let findings = tokio::runtime::Runtime::new()?.block_on(check_node(&config));
    match options.output {
        Output::Text => print!("{}", render(&findings, has_colour())),
        Output::Json => println!("{}", serde_json::to_string_pretty(&findings)?),
    }
    let has_failed = findings.iter().any(|finding| finding.severity == Severity::Failure);
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn render(findings: &[Finding], has_colour: bool) -> String {
    let mut table = table(&[]);
    for finding in findings {
        let (word, colour) = match finding.severity {
            Severity::Ok => ("ok", "32"),
            Severity::Warning => ("warning", "33"),
            Severity::Failure => ("FAILURE", "31"),
        };
        let word = match has_colour {
            true => format!("\u{1b}[{colour}m{word}\u{1b}[0m"),
            false => word.to_owned(),
        };
        table.add_row([word.as_str(), finding.check, &finding.message]);
    }
    render_table(&table)
}
