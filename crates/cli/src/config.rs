//! `bayplan config`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use bayplan_daemon::check::{
    Finding, Severity, check_machine, check_topology, read_checked_machine,
};
use bayplan_daemon::config::{
    CONFIG_PATH, ConfigError, ConfigErrors, ConfigFile, Settings, check_config_on,
    read_config_file, schema,
};
use bayplan_daemon::{ConfigDiff, Position, post_control};
use bayplan_topology::derive;
use serde::Serialize;

use crate::args::{
    CheckConfigOptions, ConfigCommand, ConfigForm, ControlOptions, DiffConfigOptions, Output,
    ShowConfigOptions,
};
use crate::control::control_socket;
use crate::exit_code::EXIT_USAGE;
use crate::explain::encode;
use crate::machine::named_machine;
use crate::node_config::NodeConfig;
use crate::stdout::print_bytes;
use crate::text::{render_table, table};
use crate::visible::print_json;

/// Runs a sub-command; `config` is what `--config` names.
pub(crate) fn run(config: &NodeConfig, command: &ConfigCommand) -> anyhow::Result<ExitCode> {
    match command {
        ConfigCommand::Schema => print_json(&schema())?,
        #[cfg(feature = "cluster")]
        ConfigCommand::Crds => out!("{}", crate::agent::crds()?)?,
        ConfigCommand::Show(options) => show(config, options)?,
        ConfigCommand::Check(options) => return check(config, options),
        ConfigCommand::Diff(options) => diff(config, options)?,
        ConfigCommand::Reload(options) => {
            let socket = control_socket(config, &options.control)?;
            let ordered = post_control(&socket, "/api/v1/config/reload", String::new());
            let done = tokio::runtime::Runtime::new()?.block_on(ordered)?;
            print_diff(&done, options.output.output, DID)?;
        }
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

fn show(config: &NodeConfig, options: &ShowConfigOptions) -> anyhow::Result<()> {
    let settings = read_config_file(config.path())?.settings();
    match options.output {
        ConfigForm::Yaml => print_bytes(settings.to_string().as_bytes())?,
        ConfigForm::Json => {
            let shown = Shown {
                format: "bayplan-config/1",
                file: existing(config.path()),
                settings: &settings,
            };
            print_json(&shown)?;
        }
    }
    Ok(())
}

/// The file that is read.
fn existing(path: Option<&Path>) -> Option<PathBuf> {
    let usual = Path::new(CONFIG_PATH);
    path.or(usual.exists().then_some(usual)).map(Path::to_owned)
}

/// What was found; format `bayplan-config-check/1`.
#[derive(Debug, Serialize)]
struct Checked {
    format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    /// The file cannot be used because of these.
    mistakes: Vec<Mistake>,
    /// The machine that it was held against.
    machine: String,
    /// It can, but on this machine not to the full.
    warnings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct Mistake {
    #[serde(flatten)]
    at: Position,
    message: String,
}

fn check(config: &NodeConfig, options: &CheckConfigOptions) -> anyhow::Result<ExitCode> {
    let path = options.file.as_deref().or(config.path());
    let mut checked = Checked {
        format: "bayplan-config-check/1",
        file: existing(path),
        mistakes: Vec::new(),
        machine: options.machine.clone().unwrap_or_else(|| "this machine".to_owned()),
        warnings: Vec::new(),
    };
    match check_file(path, options.machine.as_deref()) {
        Ok(findings) => {
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
        Output::Text => out!("{}", render(&checked))?,
        Output::Json => print_json(&checked)?,
    }
    let is_good = checked.mistakes.is_empty();
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(EXIT_USAGE) })
}

/// As `bayplan run` checks it on this machine, or on another one; what is a warning to it is found.
fn check_file(path: Option<&Path>, machine: Option<&str>) -> anyhow::Result<Vec<Finding>> {
    let file = read_config_file(path)?;
    let shown = path.unwrap_or(Path::new(CONFIG_PATH));
    if let Some(machine) = machine {
        let topology = derive(&named_machine(machine)?.snapshot)?;
        check_config_on(&file, shown, &topology)?;
        return Ok(check_topology(&file.config, &topology));
    }
    match read_checked_machine(&file.config) {
        Ok((topology, _)) => check_config_on(&file, shown, &topology)?,
        Err(error) if file.config.host_root != Path::new("/") => {
            let message = format!("`hostRoot`: {error:#}");
            let error = ConfigError { at: file.place("hostRoot"), message };
            ConfigErrors::none_of(shown, vec![error])?;
        }
        // Where none is named there may be no machine; the findings say why.
        Err(_) => {}
    }
    Ok(check_machine(&file.config))
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
            "warning: {}, on {}: {}\n",
            warning.check,
            checked.machine,
            warning.in_words()
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

fn diff(config: &NodeConfig, options: &DiffConfigOptions) -> anyhow::Result<()> {
    let usual = config.path().unwrap_or(Path::new(CONFIG_PATH));
    let file = options.file.as_deref().unwrap_or(usual);
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    // Mistakes are told here, as by every other command.
    ConfigFile::parse(file, &text)?;
    let found = ask_diff(config, &options.control, file, text)?;
    print_diff(&found, options.output.output, WOULD)
}

/// What the daemon would do with the text of a configuration, as tables.
///
/// # Errors
/// There is no daemon, or it refuses the text.
pub(crate) fn diff_text(
    config: &NodeConfig,
    control: &ControlOptions,
    name: &Path,
    text: String,
) -> anyhow::Result<()> {
    print_diff(&ask_diff(config, control, name, text)?, Output::Text, WOULD)
}

fn ask_diff(
    config: &NodeConfig,
    control: &ControlOptions,
    name: &Path,
    text: String,
) -> anyhow::Result<ConfigDiff> {
    let socket = control_socket(config, control)?;
    let path = format!("/api/v1/config/diff?name={}", encode(&name.to_string_lossy()));
    Ok(tokio::runtime::Runtime::new()?.block_on(post_control(&socket, &path, text))?)
}

/// Before, after, and that no container moves.
pub(crate) type Words = [&'static str; 3];

pub(crate) const WOULD: Words = ["IS", "WOULD BE", "no container would move"];
const DID: Words = ["WAS", "IS", "no container has moved"];

fn print_diff(diff: &ConfigDiff, output: Output, words: Words) -> anyhow::Result<()> {
    match output {
        Output::Text => out!("{}", render_diff(diff, words))?,
        Output::Json => print_json(diff)?,
    }
    Ok(())
}

/// Keys and containers as tables.
pub(crate) fn render_diff(diff: &ConfigDiff, [from, to, nothing]: Words) -> String {
    if diff.changes.is_empty() {
        return "nothing changes\n".to_owned();
    }
    let mut keys = table(&["KEY", from, to, ""]);
    for change in &diff.changes {
        let restart = if change.needs_restart { "after a restart" } else { "" };
        let (from, to) = (change.from.to_string(), change.to.to_string());
        keys.add_row([change.key.as_str(), &from, &to, restart]);
    }
    let mut text = render_table(&keys);
    text.push('\n');
    if diff.moves.is_empty() {
        return format!("{text}{nothing}\n");
    }
    let mut places = table(&["CONTAINER", "OWN CPUS", "CPUS", "MEMS"]);
    for it in &diff.moves {
        let own = arrow(&it.exclusive_from, &it.exclusive_to);
        let cpus = arrow(&it.cpus_from, &it.cpus_to);
        places.add_row([it.container.clone(), own, cpus, arrow(&it.mems_from, &it.mems_to)]);
    }
    text.push_str(&render_table(&places));
    text
}

/// From one list to another, or the one that stays.
fn arrow(from: &str, to: &str) -> String {
    let dash = |list: &str| if list.is_empty() { "-".to_owned() } else { list.to_owned() };
    match from == to {
        true => dash(to),
        false => format!("{} -> {}", dash(from), dash(to)),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(diff: &str, expected: Expect) {
        let diff = format!(r#"{{"format": "bayplan-config-diff/1", {diff}}}"#);
        let diff = serde_json::from_str(&diff).unwrap();
        // With the margin, which would be lost where all lines begin with a blank.
        let shown = render_diff(&diff, WOULD);
        expected.assert_eq(&shown.lines().map(|line| format!("|{line}\n")).collect::<String>());
    }

    /// `run` ended there, and a check found no mistake.
    #[test]
    fn a_root_without_a_machine_is_a_mistake() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.yaml");
        std::fs::write(&path, format!("log: info\nhostRoot: {}/none\n", dir.path().display()))
            .unwrap();
        let error = check_file(Some(&path), None).unwrap_err().to_string();
        assert!(error.contains("c.yaml:2:11: `hostRoot`: "), "{error}");
        assert!(check_file(Some(&path), Some("core:4")).is_ok());
    }

    #[test]
    fn keys_and_moves_are_tables() {
        check(
            r#""changes": [], "moves": []"#,
            expect![[r#"
                |nothing changes
            "#]],
        );
        check(
            r#""changes": [{"key": "socket", "from": "/a", "to": "/b", "needs_restart": true}], "moves": []"#,
            expect![[r#"
                | KEY     IS    WOULD BE
                | socket  "/a"  "/b"      after a restart
                |
                |no container would move
            "#]],
        );
        check(
            r#""changes": [{"key": "reservedCpus", "from": "", "to": "0", "needs_restart": false}], "moves": [
                {"container": "n/p/a", "exclusive_from": "0-1", "exclusive_to": "2-3", "cpus_from": "0-1", "cpus_to": "2-3",
                 "mems_from": "0", "mems_to": "0"},
                {"container": "n/p/b", "exclusive_from": "", "exclusive_to": "", "cpus_from": "0-3", "cpus_to": "1-3",
                 "mems_from": "", "mems_to": ""}]"#,
            expect![[r#"
                | KEY           IS  WOULD BE
                | reservedCpus  ""  "0"
                |
                | CONTAINER  OWN CPUS    CPUS        MEMS
                | n/p/a      0-1 -> 2-3  0-1 -> 2-3  0
                | n/p/b      -           0-3 -> 1-3  -
            "#]],
        );
    }
}
