//! Completion in shells. In: the words that have been typed. Out: candidates, among them the containers that the daemon has and the machines that have names.
//!
//! `bayplan completions SHELL` prints a script that calls this program with [`VARIABLE`] set. The daemon is asked on the socket of this node's configuration;
//! without an answer within [`PATIENCE`] there are no names of containers.

use std::ffi::OsStr;
use std::time::Duration;

use bayplan_daemon::query_control;
use bayplan_node::status::{ContainerStatus, Status};
use bayplan_topology::preset_names;
use clap::{Arg, Command, CommandFactory as _};
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _,
};
use clap_complete::env::{CompleteEnv, Shells};

use crate::args::Args;
use crate::node_config::{self, NodeConfig};

/// Says in which shell's form candidates are wanted.
const VARIABLE: &str = "BAYPLAN_COMPLETE";
/// Longer than this a shell does not wait gladly.
const PATIENCE: Duration = Duration::from_secs(1);
/// Commands that take a container.
const ABOUT_CONTAINERS: [&str; 3] = ["why", "explain", "audit"];
/// Commands that take a machine.
const ABOUT_MACHINES: [&str; 4] = ["topology", "simulate", "replay", "demo"];

/// Completes and ends the process where a shell asks for that.
pub(crate) fn complete_and_exit() {
    CompleteEnv::with_factory(command).var(VARIABLE).bin("bayplan").complete();
}

/// The script of a shell that has this program complete.
///
/// # Errors
/// There is no such shell.
pub(crate) fn script(shell: &str) -> anyhow::Result<Vec<u8>> {
    let completer = Shells::builtins();
    let completer = completer.completer(shell);
    let completer = completer.ok_or_else(|| anyhow::anyhow!("no completion for `{shell}`"))?;
    let mut text = Vec::new();
    completer.write_registration(VARIABLE, "bayplan", "bayplan", "bayplan", &mut text)?;
    if shell == "zsh" {
        // From a directory of functions the script is run at the first completion, which it has to answer, too.
        text.extend(b"\nif [ \"$funcstack[1]\" = \"_bayplan\" ]; then _clap_dynamic_completer_bayplan; fi\n");
    }
    Ok(text)
}

/// The command line with what is known only when it is typed.
fn command() -> Command {
    let with = |command: Command, names: &[&'static str], change: fn(Command) -> Command| {
        names.iter().fold(command, |all, name| all.mut_subcommand(name, change))
    };
    let named = |it: Command| it.mut_arg("name", |it| it.add(ArgValueCandidates::new(containers)));
    let on_machine = |it: Command| it.mut_arg("machine", with_presets);
    with(with(Args::command(), &ABOUT_CONTAINERS, named), &ABOUT_MACHINES, on_machine)
}

fn with_presets(machine: Arg) -> Arg {
    machine.add(ArgValueCompleter::new(machines))
}

/// Full names.
fn containers() -> Vec<CompletionCandidate> {
    let status = ask_status();
    let names = status.iter().flat_map(|it| &it.containers).map(ContainerStatus::full_name);
    names.map(CompletionCandidate::new).collect()
}

fn ask_status() -> Option<Status> {
    let config = NodeConfig::new(None, std::env::var_os(node_config::VARIABLE));
    let socket = config.usable().ok()?.control_socket.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async {
        let asked = query_control::<Status>(&socket, "/api/v1/status");
        tokio::time::timeout(PATIENCE, asked).await.ok()?.ok()
    })
}

/// Machines that have names, and files.
fn machines(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed_text = typed.to_string_lossy();
    let presets = preset_names().filter(|name| name.starts_with(&*typed_text));
    let presets = presets.map(CompletionCandidate::new);
    presets.chain(PathCompleter::file().complete(typed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(words: &[&str]) -> Vec<String> {
        let words: Vec<_> = words.iter().map(Into::into).collect();
        let last = words.len() - 1;
        let found = clap_complete::engine::complete(&mut command(), words, last, None).unwrap();
        found.iter().map(|it| it.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn commands_and_machines_are_completed() {
        assert_eq!(completed(&["bayplan", "wh"]), ["why"]);
        assert_eq!(completed(&["bayplan", "topology", "--machine", "grace"]), ["grace"]);
        let epyc = completed(&["bayplan", "demo", "--machine", "epyc"]);
        assert_eq!(epyc, ["epyc-9654", "epyc-7763-nps4"]);
        // Without a daemon.
        assert!(completed(&["bayplan", "why", "web"]).is_empty());
    }

    #[test]
    fn every_shell_has_a_script() {
        for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
            let text = String::from_utf8(script(shell).unwrap()).unwrap();
            assert!(text.contains(VARIABLE) && text.contains("bayplan"), "{shell}: {text}");
        }
        assert!(script("zsh").unwrap().starts_with(b"#compdef bayplan"));
        assert!(script("csh").is_err());
    }
}
