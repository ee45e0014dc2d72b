//! Arguments of the commands that tell of single containers and of the map.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::shared::{ControlOptions, OutputOptions};

#[derive(Debug, ClapArgs)]
pub(crate) struct ExplainOptions {
    /// The container: its name, POD/NAME, NAMESPACE/POD/NAME, the pod, or the beginning of the runtime's id
    #[arg(value_name = "CONTAINER")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

pub(super) const WHY_HELP: &str = "\
Examples:
  bayplan why default/database/database
  bayplan why web -o json | jq '.[].causes[] | {kind, severity, share, command}'";

#[derive(Debug, ClapArgs)]
pub(crate) struct MapOptions {
    /// Show the map under this configuration file, too, and what would change
    #[arg(long, value_name = "FILE")]
    pub(crate) what_if: Option<PathBuf>,
    /// Have the page in the browser show no other configuration any more
    #[arg(long, conflicts_with = "what_if")]
    pub(crate) forget: bool,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AuditOptions {
    /// Only this one, with everything that ran on its CPUs: its name, the pod, NAMESPACE/POD or NAMESPACE/POD/NAME
    #[arg(value_name = "CONTAINER")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

pub(super) const AUDIT_HELP: &str = "\
Columns:
  CPUS USED    CPUs that were kept busy
  WAITING      tasks that could have run and had no CPU, on average
  DELAY P99    99 of 100 runs began after at most this delay
  PREEMPTED/s  times that a task left a CPU and could have gone on
  MOVES/s      moves of tasks to another CPU
  TAKEN        time that others ran on CPUs that the container owns

Examples:
  bayplan audit
  bayplan audit default/database/database
  bayplan audit -o json | jq '.containers[] | select(.recent.taken_seconds > 0.1) | .container'";
