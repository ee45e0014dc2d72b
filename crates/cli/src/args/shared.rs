//! Arguments that several commands have.

use std::path::PathBuf;

use bayplan_topology::SYNTHETIC_HELP;
use clap::{Args as ClapArgs, ValueEnum};

use crate::machine_file::MACHINE_FORMAT;

/// Form of what a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Text,
    /// For programs
    Json,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct OutputOptions {
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ControlOptions {
    /// The daemon's control socket [default: controlSocket of the configuration]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PastOptions {
    /// The daemon's state directory, or one file of its history [default: stateDir of the configuration]
    #[arg(long, value_name = "DIR|FILE")]
    pub(crate) state_dir: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct MachineOptions {
    /// Read the machine below this directory, for example a captured tree that holds sys/
    #[arg(long, value_name = "DIR", default_value = "/", conflicts_with = "machine")]
    pub(crate) root: PathBuf,
    /// A machine in a file or a synthetic one instead, by name or by description
    #[arg(long, value_name = "FILE|SPEC", long_help = machine_help())]
    pub(crate) machine: Option<String>,
}

/// What can be named as a machine.
pub(super) fn machine_help() -> String {
    format!(
        "A machine in a file or a synthetic one instead, by name or by description\n\nIf there is a file of that name, it is read \
         as a snapshot that `bayplan snapshot` has written, or as JSON of format `{MACHINE_FORMAT}`.\n\n{SYNTHETIC_HELP}"
    )
}
