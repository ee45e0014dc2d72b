//! `bayplan check`.

use std::cmp::Reverse;
use std::process::ExitCode;

use bayplan_daemon::check::{Finding, Severity, check_node};
use bayplan_daemon::config::{ConfigErrors, read_usable_config};

use crate::args::{Output, OutputOptions};
use crate::node_config::NodeConfig;
use crate::text::{has_colour, render_table, table};
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
    let failure = |message| Finding::new("configuration", Severity::Failure, message);
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
    render_table(&table) + &render_remedies(findings)
}

/// What mends each kind of finding that is not as it should be, the failures first.
fn render_remedies(findings: &[Finding]) -> String {
    let mut wrong: Vec<&Finding> = findings.iter().filter(|it| it.remedy.is_some()).collect();
    wrong.sort_by_key(|it| Reverse(it.severity));
    let mut told = Vec::new();
    let mut rows = table(&[]);
    for Finding { check, remedy, .. } in wrong {
        if let Some(remedy) = remedy.filter(|_| !told.contains(check)) {
            told.push(*check);
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
    fn each_kind_of_trouble_has_a_remedy_once() {
        let finding =
            |check, severity, message: &str| Finding::new(check, severity, message.to_owned());
        let findings = [
            finding("machine", Severity::Ok, "8 CPUs"),
            finding("reserved", Severity::Warning, "no CPUs are reserved"),
            finding("runtime", Severity::Failure, "no process listens"),
            finding("runtime", Severity::Failure, "nor here"),
        ];
        expect![[r#"
             ok       machine   8 CPUs
             warning  reserved  no CPUs are reserved
             FAILURE  runtime   no process listens
             FAILURE  runtime   nor here

            What helps:
             runtime   start the runtime, or correct runtimeSocket
             reserved  set reservedCpus to CPUs that are online, not isolated and allowed to pods, as kubelet's reservedSystemCPUs
        "#]].assert_eq(&render(&findings, false));
        assert_eq!(render(&findings[..1], false), " ok  machine  8 CPUs\n");
    }
}
