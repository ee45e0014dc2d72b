//! Automation of the project: `cargo xtask setup`, `cargo xtask test`, `cargo xtask tidy`.

#![allow(clippy::print_stdout, reason = "printing is what a command line is for")]

mod setup;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, ensure};

const HELP: &str = "\
cargo xtask setup    install what the tests need: Debian packages, and a kernel for the virtual machine
cargo xtask test     setup, then every test of the workspace
cargo xtask tidy     check the layers, that the pure crates stay pure, and the checksums of the protocol files
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["setup"] => setup::run(),
        ["test"] => setup::run().and_then(|()| test()),
        ["tidy"] => tidy::run(),
        _ => {
            print!("{HELP}");
            return if args == ["help"] { ExitCode::SUCCESS } else { ExitCode::from(64) };
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn test() -> anyhow::Result<()> {
    run_program(
        Command::new(cargo()).args(["test", "--workspace", "--locked"]).current_dir(workspace()),
    )
}

fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
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
