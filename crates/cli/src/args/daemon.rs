//! Arguments of the commands that run the daemon, ask it for all it knows, or change what it does.

use clap::{Args as ClapArgs, Subcommand};

use super::shared::{ControlOptions, OutputOptions};

#[derive(Debug, ClapArgs)]
pub(crate) struct RunOptions {
    /// Write nothing into kernel files, whatever the configuration says; what would be written goes into the log
    ///
    /// CPU sets go through the runtime, and are written all the same.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RestoreOptions {
    #[command(flatten)]
    pub(crate) mode: ModeOptions,
    /// Without a daemon: give back what one that ended has changed in kernel files
    #[arg(long, conflicts_with_all = ["control", "dry_run", "yes"])]
    pub(crate) files_only: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ModeOptions {
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Print only what would be done
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct StatusOptions {
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RebalanceCommand {
    /// Whether it looks, what it has proposed since the daemon was started, and how it knows
    Status(StatusOptions),
    /// Take back all that is turned, and turn and propose nothing from now on, also after a restart of the daemon, until `bayplan rebalance resume`
    Pause(StatusOptions),
    /// End `bayplan rebalance pause`
    Resume(StatusOptions),
}
