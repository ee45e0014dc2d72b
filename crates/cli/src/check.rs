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
    let failure = |message| {
        Finding::new("configuration", Severity::Failure, message).with_remedy(
            "correct the file; `bayplan config check` names line and column, `bayplan config show` every key",
        )
    };
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

/// What mends findings of which the message does not say it, each remedy once, those of failures first.
fn render_remedies(findings: &[Finding]) -> String {
    let mut wrong: Vec<&Finding> = findings.iter().filter(|it| it.remedy.is_some()).collect();
    wrong.sort_by_key(|it| Reverse(it.severity));
    let mut told = Vec::new();
    let mut rows = table(&[]);
    for Finding { check, remedy, .. } in wrong {
        if let Some(remedy) = remedy.filter(|it| !told.contains(&(*check, *it))) {
            told.push((*check, remedy));
            rows.add_row([*check, remedy]);
        }
    }
    if told.is_empty() { String::new() } else { format!("\nWhat helps:\n{}", render_table(&rows)) }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn each_remedy_is_told_once_and_findings_without_one_have_none() {
        let finding =
            |check, severity, message: &str| Finding::new(check, severity, message.to_owned());
        let findings = [
            finding("machine", Severity::Ok, "8 CPUs"),
            finding("reserved", Severity::Warning, "no CPUs are reserved; set reservedCpus"),
            finding("reserved", Severity::Warning, "9 is offline").with_remedy("reserve others"),
            finding("runtime", Severity::Failure, "no process listens").with_remedy("start it"),
            finding("runtime", Severity::Failure, "nor here").with_remedy("start it"),
        ];
        expect![[r#"
             ok       machine   8 CPUs
             warning  reserved  no CPUs are reserved; set reservedCpus
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
