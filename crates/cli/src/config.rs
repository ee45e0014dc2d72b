//! `bayplan config`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bayplan_daemon::Position;
use bayplan_daemon::check::{Finding, Severity, check_machine};
use bayplan_daemon::config::{CONFIG_PATH, ConfigErrors, ConfigFile, Settings, schema};
use serde::Serialize;

use crate::EXIT_USAGE;
use crate::args::{CheckConfigOptions, ConfigCommand, ConfigForm, Output, ShowConfigOptions};

/// Runs a sub-command; `config` is what `--config` names.
pub(crate) fn run(config: Option<&Path>, command: &ConfigCommand) -> anyhow::Result<ExitCode> {
    match command {
        ConfigCommand::Schema => println!("{}", serde_json::to_string_pretty(&schema())?),
        ConfigCommand::Show(options) => show(config, options)?,
        ConfigCommand::Check(options) => return check(config, options),
    }
    Ok(ExitCode::SUCCESS)
}

/// Every key; format `bayplan-config/1`.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    format: &'static str,
    /// The file; absent if there is none, and all is by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    settings: &'a Settings,
}

fn show(config: Option<&Path>, options: &ShowConfigOptions) -> anyhow::Result<()> {
    let settings = ConfigFile::read(config)?.settings();
    match options.output {
        ConfigForm::Yaml => print!("{settings}"),
        ConfigForm::Json => {
            let shown =
                Shown { format: "bayplan-config/1", file: existing(config), settings: &settings };
            println!("{}", serde_json::to_string_pretty(&shown)?);
        }
    }
    Ok(())
}

/// The file that is read.
fn existing(config: Option<&Path>) -> Option<PathBuf> {
    let usual = Path::new(CONFIG_PATH);
    config.or(usual.exists().then_some(usual)).map(Path::to_owned)
}

/// What was found; format `bayplan-config-check/1`.
#[derive(Debug, Serialize)]
struct Checked {
    format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    /// The file cannot be used because of these.
    mistakes: Vec<Mistake>,
    /// It can, but not on this machine, or not to the full.
    warnings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct Mistake {
    #[serde(flatten)]
    at: Position,
    message: String,
}

fn check(config: Option<&Path>, options: &CheckConfigOptions) -> anyhow::Result<ExitCode> {
    let path = options.file.as_deref().or(config);
    let mut checked = Checked {
        format: "bayplan-config-check/1",
        file: existing(path),
        mistakes: Vec::new(),
        warnings: Vec::new(),
    };
    match ConfigFile::read(path) {
        Ok(file) => {
            let findings = check_machine(&file.config);
            checked.warnings =
                findings.into_iter().filter(|it| it.severity != Severity::Ok).collect();
        }
        Err(error) => {
            let mistakes = error.downcast::<ConfigErrors>()?.errors.into_iter();
            let mistake = mistakes.map(|it| Mistake { at: it.at, message: it.message });
            checked.mistakes = mistake.collect();
        }
    }
    match options.output.output {
        Output::Text => print!("{}", render(&checked)),
        Output::Json => println!("{}", serde_json::to_string_pretty(&checked)?),
    }
    let is_good = checked.mistakes.is_empty();
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(EXIT_USAGE) })
}

fn render(checked: &Checked) -> String {
    let name = match &checked.file {
        Some(file) => file.display().to_string(),
        None => format!("no {CONFIG_PATH}"),
    };
    let mut text = String::new();
    for Mistake { at, message } in &checked.mistakes {
        text.push_str(&format!("{name}:{}:{}: {message}\n", at.line, at.column));
    }
    for warning in &checked.warnings {
        text.push_str(&format!(
            "warning: {}, on this machine: {}\n",
            warning.check, warning.message
        ));
    }
    text.push_str(&match (checked.mistakes.len(), &checked.file) {
        (0, Some(_)) => format!("{name}: no mistakes\n"),
        (0, None) => format!("{name}, so every key has its default\n"),
        (1, _) => "1 mistake\n".to_owned(),
        (n, _) => format!("{n} mistakes\n"),
    });
    text
}
