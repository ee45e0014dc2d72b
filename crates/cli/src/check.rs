//! `bayplan check`.

use std::cmp::Reverse;
use std::process::ExitCode;

use bayplan_daemon::check::{Finding, Severity, check_node};
use bayplan_daemon::config::{ConfigErrors, read_usable_config};

use crate::args::{Output, OutputOptions};
use crate::node_config::NodeConfig;
use crate::text::{has_colour, paint, render_table, table};
use crate::visible::print_json;

/// Prints what was found; fails when something would not work.
pub(crate) fn run(config: &NodeConfig, options: &OutputOptions) -> anyhow::Result<ExitCode> {
    let usable = config.usable()?;
    let read = read_usable_config(config.path())?;
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
    let remedy = "correct the file; `bayplan config check` names line and column, `bayplan config show` every key";
    let failure = |message| Finding::failure("configuration", message, remedy);
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
        let word = paint(word, colour, has_colour);
        table.add_row([word.as_str(), finding.check, &finding.message]);
    }
    render_table(&table) + &render_remedies(findings)
}

/// What mends findings, each remedy once, those of failures first.
fn render_remedies(findings: &[Finding]) -> String {
    let mut wrong: Vec<&Finding> = findings.iter().collect();
    wrong.sort_by_key(|it| Reverse(it.severity));
    let mut told = Vec::new();
    let mut rows = table(&[]);
    for found in wrong {
        let check = found.check;
        if let Some(remedy) = found.remedy().filter(|it| !told.contains(&(check, *it))) {
            told.push((check, remedy));
            rows.add_row([check, remedy]);
        }
    }
    if told.is_empty() { String::new() } else { format!("\nWhat helps:\n{}", render_table(&rows)) }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn each_remedy_is_told_once_those_of_failures_first() {
        let findings = [
            Finding::ok("machine", "8 CPUs"),
            Finding::warning("reserved", "9 is offline", "reserve others"),
            Finding::failure("runtime", "no process listens", "start it"),
            Finding::failure("runtime", "nor here", "start it"),
        ];
        expect![[r#"
             ok       machine   8 CPUs
             warning  reserved  9 is offline
             FAILURE  runtime   no process listens
             FAILURE  runtime   nor here

            What helps:
             runtime   start it
             reserved  reserve others
        "#]]
        .assert_eq(&render(&findings, false));
        assert_eq!(render(&findings[..1], false), " ok  machine  8 CPUs\n");
        // Colours reach the terminal.
        let coloured = " \u{1b}[1;32mok\u{1b}[0m  machine  8 CPUs\n";
        assert_eq!(render(&findings[..1], true), coloured);
    }
}
