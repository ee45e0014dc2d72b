//! Arguments of the commands that look at the machine: `bayplan topology`, `bayplan snapshot` and `bayplan bench`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

use super::shared::{ControlOptions, MachineOptions, OutputOptions};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopologyOutput {
    /// A tree for people
    Text,
    /// For programs; `--help` lists the fields
    Json,
    /// A picture for browsers and printers
    Svg,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TopologyOptions {
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = TopologyOutput::Text)]
    pub(crate) output: TopologyOutput,
    /// Show the daemon's machine, and in the tree's map and in the SVG picture what it has placed where
    #[arg(long, conflicts_with_all = ["machine", "root"])]
    pub(crate) ledger: bool,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    /// Print only where this device is: a PCI address, a path below /dev, or a network interface
    #[arg(long, value_name = "NAME", conflicts_with = "ledger")]
    pub(crate) device: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SnapshotOptions {
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
    /// The file to write; not compressed if the name ends in .txt, and `-` is standard output [default: bayplan-snapshot.gz]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write a directory with sys/ in it instead, for --root and for other programs
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    pub(crate) tree: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BenchOptions {
    /// Repetitions of each
    #[arg(short = 'n', long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rounds: u32,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// What each of the figures is.
pub(super) const BENCH_HELP: &str = "\
  place ...     from kubelet's call to the answer, without the disk: what the configuration, the machine and the containers of now make of it.
                RESULT is what would be answered now
  journal       an answer leaves when its record is on disk, so this is added to each creation, resize and end. Milliseconds are
                those of the disk: a faster one for `stateDir` helps
  kernel file   what one CPU set costs when the daemon sets it, and when it looks whether it is still so
  call          what every call of kubelet costs through the daemon, and without it

Times of other work on the node are in them: look at the median, and at the load. What it takes until other containers have left
CPUs is not measured, because it would move them; `bayplan_decision_duration_seconds` and the other metrics count it as it happens.

  $ sudo bayplan bench -n 1000
  $ sudo bayplan bench -o json | jq '.figures[] | {name, median_us}'
";
