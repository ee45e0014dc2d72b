//! Automation of the project: `cargo xtask setup`, `test`, `fuzz`, `deny`, `nightly`, `lab`, `reenact`, `tidy`, `shape` and `package`.

#![allow(clippy::print_stdout, reason = "printing is what a command line is for")]

mod arm64;
mod axe;
mod built;
mod cache;
mod chart;
mod fuzz;
mod image;
mod lab;
mod links;
mod modules;
mod nightly;
mod package;
mod page_commands;
mod program;
mod reenact;
mod setup;
mod shape;
mod suites;
mod test;
mod tidy;
mod tool;
mod units;
mod words;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, ensure};

use crate::tool::Tool;

const CARGO_DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };

const HELP: &str = "\
cargo xtask setup        install what the tests need: Debian packages, and kernels for virtual machines
cargo xtask test         every test of the workspace that this machine can run, quick ones first, then guest tests in virtual machines with the newer
                         kernel, and some of them under systemd with the older one; a table says what was left out and what it needs, and how long
                         each part, test program and guest test took. As root with setup before; with CI=true nothing may be left out
cargo xtask tidy         check the layers, that the pure crates stay pure and modules do not import each other in cycles, the checksums of the
                         protocol files, the systemd units, links between pages, commands of this project in pages, how long the first
                         pages are, and words for persons in comments, texts and names of functions
cargo xtask shape [DIR]  lines, repeated lines, modules and cycles of each crate, and the largest file, function and struct; of another checkout in DIR
cargo xtask deny         check licences, sources and bans of all dependencies with cargo-deny
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let Some(of) = asks_for_help(&args) {
        print!("{}", help(of));
        return ExitCode::SUCCESS;
    }
    let done = match args.as_slice() {
        ["setup"] => lab::prepare().map(Some),
        ["test"] => test::run().map(Some),
        ["tidy"] => tidy::run().map(Some),
        ["shape"] => shape::run(None).map(Some),
        ["shape", project] => shape::run(Some(project)).map(Some),
        ["chart"] => chart::run().map(Some),
        ["image"] => image::run(None).map(Some),
        ["image", program] => image::run(Some(program)).map(Some),
        ["package"] => package::run().map(Some),
        ["arm64", args @ ..] => arm64::run(args),
        ["deny"] => deny().map(Some),
        ["fuzz", args @ ..] => fuzz::run(args),
        ["nightly", wanted @ ..] => nightly::run(wanted).map(Some),
        ["reenact", args @ ..] => reenact::run(args),
        // In a guest of the lab, with programs that are there.
        ["reenact-with", programs, args @ ..] => reenact::run_with(programs, args),
        // As the first process of a namespace, for one measurement.
        ["reenact-inside", task] => reenact::inside(task).map(Some),
        ["lab", args @ ..] => lab::run(args),
        _ => Ok(None),
    };
    match done {
        Ok(Some(())) => ExitCode::SUCCESS,
        Ok(None) => {
            print!("{}", help(None));
            ExitCode::from(64)
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether help is wanted and no work, and with which command: `Some(None)` is with all.
fn asks_for_help<'a>(args: &[&'a str]) -> Option<Option<&'a str>> {
    let own = args.split(|arg| *arg == "--").next().unwrap_or_default();
    let (flags, words): (Vec<&str>, Vec<&str>) =
        own.iter().partition(|arg| matches!(**arg, "help" | "--help" | "-h"));
    (!flags.is_empty()).then(|| words.first().copied())
}

/// What one command is and takes, or all of them.
fn help(of: Option<&str>) -> String {
    let sections = [HELP, fuzz::HELP, nightly::HELP, package::HELP, lab::HELP].concat()
        + &[arm64::HELP, chart::HELP, image::HELP, reenact::HELP].concat();
    let mut is_wanted = false;
    let wanted = sections.lines().filter(|line| {
        if let Some(command) = line.strip_prefix("cargo xtask ") {
            is_wanted = command.split(' ').next() == of;
        }
        is_wanted
    });
    let text: String = wanted.flat_map(|line| [line, "\n"]).collect();
    if text.is_empty() { sections } else { text }
}

/// Without advisories: their database is a repository of git, which is not to be had where only packages are.
fn deny() -> anyhow::Result<()> {
    run_program(&mut CARGO_DENY.install()?)?;
    let mut command = Command::new(CARGO_DENY.program()?);
    command.args(["--workspace", "--all-features", "check", "bans", "licenses", "sources"]);
    run_program(command.current_dir(workspace()))
}

fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

fn workspace() -> PathBuf {
    // Two levels below it.
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().skip(2).take(1).collect()
}

/// Says what is run, runs it with our standard streams, and fails when it fails.
fn run_program(command: &mut Command) -> anyhow::Result<()> {
    let words: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
    let line = format!("{} {}", command.get_program().to_string_lossy(), words.join(" "));
    println!("xtask: {line}");
    let status = command.status().with_context(|| format!("cannot run {line}"))?;
    ensure!(status.success(), "{line}: {status}");
    Ok(())
}

/// Removes what a directory holds, or makes it.
fn make_empty(dir: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", dir.display()));
        }
        _ => {}
    }
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_of_the_command_that_is_asked_about_and_never_does_its_work() {
        for (line, command) in [
            ("help", Some(None)),
            ("--help", Some(None)),
            ("help lab", Some(Some("lab"))),
            ("lab run --help", Some(Some("lab"))),
            ("lab run -- --help", None),
            ("test", None),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(asks_for_help(&words), command, "{line}");
        }
        let all = help(None);
        for command in ["setup", "test", "nightly", "lab", "arm64", "reenact"] {
            let its = help(Some(command));
            assert!(its.starts_with(&format!("cargo xtask {command}")), "{its}");
            assert!(all.contains(&its) && its.len() < all.len(), "{its}");
        }
        assert_eq!(help(Some("nothing")), all);
    }
}
