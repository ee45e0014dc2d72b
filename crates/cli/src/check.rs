//! `bayplan check`.

use std::process::ExitCode;

use bayplan_daemon::check::{Finding, Severity, check_node};
use bayplan_daemon::config::{ConfigErrors, ConfigFile};

use crate::args::{Output, OutputOptions};
use crate::node_config::NodeConfig;
use crate::text::{has_colour, render_table, table};
use crate::visible::print_json;

/// Prints what was found; fails when something would not work.
pub(crate) fn run(config: &NodeConfig, options: &OutputOptions) -> anyhow::Result<ExitCode> {
    let usable = config.usable()?;
    let read = ConfigFile::read_usable(config.path())?;
    let mut findings = read.problem.as_ref().map(broken).unwrap_or_default();
    findings.extend(tokio::runtime::Runtime::new()?.block_on(check_node(usable)));
    match options.output {
        Output::Text => out!("{}", render(&findings, has_colour()))?,
        Output::Json => print_json(&findings)?,
    }
    let has_failed = findings.iter().any(|finding| finding.severity == Severity::Failure);
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Every mistake of the file. What can be understood of it is checked all the same.
fn broken(problem: &anyhow::Error) -> Vec<Finding> {
    let failure =
        |message| Finding { check: "configuration", severity: Severity::Failure, message };
    match problem.downcast_ref::<ConfigErrors>() {
        Some(errors) => errors.to_string().lines().map(|it| failure(it.to_owned())).collect(),
        None => vec![failure(format!("{problem:#}"))],
    }
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
