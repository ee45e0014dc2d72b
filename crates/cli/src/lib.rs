//! The command line of bayplan: arguments in, text and exit codes out. One file per sub-command.

#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod stdout;

#[cfg(feature = "cluster")]
mod agent;
mod annotations;
mod args;
mod audit;
mod bench;
mod check;
mod cmk;
mod complete;
mod config;
mod control;
mod demo;
#[cfg(feature = "cluster")]
#[cfg(test)]
mod documents;
mod exit_code;
mod explain;
#[cfg(feature = "cluster")]
mod foreign;
mod import;
mod journal;
mod json_file;
mod machine;
mod machine_file;
mod map;
mod mode;
mod node_config;
mod past;
mod plan;
mod rebalance;
mod replay;
mod run;
mod seats;
mod simulate;
mod snapshot;
mod status;
mod text;
mod time_summary;
mod top;
mod topology;
mod visible;
#[cfg(feature = "cluster")]
mod webhook;
mod why;

use std::process::ExitCode;

use anyhow::Context as _;
use bayplan_host::disk::Disks;
use bayplan_node::mode::Mode;
use clap::{CommandFactory as _, Parser as _};

use crate::args::{Args, Command};
use crate::exit_code::EXIT_USAGE;
use crate::node_config::NodeConfig;
use crate::stdout::Closed;
use crate::visible::visible;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    main_on(Disks::default())
}

/// The same with other disks under the state directory of `bayplan run`, for tests.
pub fn main_on(disks: Disks) -> ExitCode {
    complete::complete_and_exit();
    match run(Args::parse(), disks) {
        Ok(code) => code,
        Err(error) if error.is::<Closed>() => ExitCode::SUCCESS,
        Err(error) => {
            errln!("bayplan: {}", visible(&format!("{error:#}")));
            let is_usage = error.is::<bayplan_daemon::config::ConfigErrors>();
            if is_usage { ExitCode::from(EXIT_USAGE) } else { ExitCode::FAILURE }
        }
    }
}

fn run(args: Args, disks: Disks) -> anyhow::Result<ExitCode> {
    let config = &NodeConfig::new(args.config, std::env::var_os(node_config::VARIABLE));
    match args.command {
        Command::Run(options) => run::run(config, &options, disks)?,
        #[cfg(feature = "cluster")]
        Command::Agent(options) => agent::run(config, &options)?,
        #[cfg(feature = "cluster")]
        Command::Webhook(options) => webhook::run(options)?,
        Command::Demo(options) => demo::run(config, &options)?,
        Command::Topology(options) => topology::run(config, &options)?,
        Command::Snapshot(options) => snapshot::run(config, &options)?,
        Command::Simulate(options) => simulate::run(config, &options)?,
        Command::Status(options) => status::run(config, &options)?,
        Command::Explain(options) => explain::run(config, &options)?,
        Command::Why(options) => why::run(config, &options)?,
        Command::Map(options) => map::run(config, &options)?,
        Command::Top(options) => top::run(config, &options)?,
        Command::Audit(options) => audit::run(config, &options)?,
        Command::Rebalance(command) => rebalance::run(config, &command)?,
        Command::Plan(options) => plan::run(config, &options)?,
        Command::Drain(options) => return mode::run(config, Mode::Draining, &options),
        Command::Restore(options) if options.files_only => {
            return mode::restore_files(config, options.mode.output.output);
        }
        Command::Restore(options) => return mode::run(config, Mode::Restored, &options.mode),
        Command::Resume(options) => return mode::run(config, Mode::Placing, &options),
        Command::Journal(options) => journal::run(config, &options)?,
        Command::Replay(options) => replay::run(config, &options)?,
        Command::Import(options) => return import::run(config, &options),
        Command::Cmk(command) => return cmk::run(config, &command),
        Command::Annotations(options) => annotations::run(&options)?,
        Command::Bench(options) => bench::run(config, &options)?,
        Command::Check(options) => return check::run(config, &options),
        Command::Config(command) => return config::run(config, &command),
        Command::Version => outln!("bayplan {}", env!("CARGO_PKG_VERSION"))?,
        Command::Completions { shell } => {
            stdout::print_bytes(&complete::script(&shell.to_string())?)?;
        }
        Command::Man { dir } => clap_mangen::generate_to(Args::command(), &dir)
            .with_context(|| format!("cannot write manual pages into {}", dir.display()))?,
    }
    Ok(ExitCode::SUCCESS)
}
