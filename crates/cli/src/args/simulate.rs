//! Arguments of the commands that place containers on a machine which need not exist: `bayplan simulate` and `bayplan demo`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bayplan_allocator::policy::Policy;
use clap::{Args as ClapArgs, ValueEnum};

use super::shared::{MachineOptions, Output, machine_help};

#[derive(Debug, ClapArgs)]
pub(crate) struct SimulateOptions {
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
    /// Pods to place on the empty machine, one after the other: YAML with `kind: Pod`, or a Deployment and the like; - is standard input
    #[arg(value_name = "POD.yaml", conflicts_with_all = ["trace", "placement", "compare", "svg"])]
    pub(crate) pods: Vec<PathBuf>,
    /// The containers that come and go, JSON of format `bayplan-bench-trace/1`; see the end of `--help`
    #[arg(long, value_name = "FILE", required_unless_present = "pods")]
    pub(crate) trace: Option<PathBuf>,
    /// How the machine is divided [default: as `policy` of the configuration says]
    #[arg(long, value_enum, value_name = "POLICY")]
    pub(crate) policy: Option<PolicyName>,
    /// Write what became of each event, JSON of format `bayplan-bench-placement/1`
    #[arg(long, value_name = "FILE")]
    placement: Option<PathBuf>,
    /// Replay it under two configurations, and set the figures side by side
    #[arg(long, num_args = 2, value_names = ["A.yaml", "B.yaml"], conflicts_with_all = ["placement", "svg"])]
    pub(crate) compare: Vec<PathBuf>,
    /// Draw the bare machine and which containers run where at the end: before.svg and after.svg in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// Form of the summary: text or json [default: text]
    // A file that is named here is that of `--placement`, as it was called earlier.
    #[arg(short, long, value_name = "OUTPUT")]
    output: Vec<PathBuf>,
    /// As `--output`
    #[arg(long, value_enum, value_name = "OUTPUT", hide = true)]
    summary: Option<Output>,
}

impl SimulateOptions {
    /// Form of the summary.
    pub(crate) fn form(&self) -> Output {
        let named = self.output.iter().rev().find_map(|it| form(it));
        named.or(self.summary).unwrap_or(Output::Text)
    }

    /// Where the placement is written.
    pub(crate) fn placement(&self) -> Option<&Path> {
        self.placement.as_deref().or(self.old_placement())
    }

    /// The same, under the name that it had earlier.
    pub(crate) fn old_placement(&self) -> Option<&Path> {
        self.output.iter().map(PathBuf::as_path).find(|it| form(it).is_none())
    }
}

fn form(name: &Path) -> Option<Output> {
    Output::from_str(name.to_str()?, false).ok()
}

/// How a machine is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyName {
    /// Shared containers run within one NUMA node, or as few as they need
    TopologyAware,
    /// Shared containers run together, on all CPUs that are not exclusive
    OneSharedPool,
}

impl From<PolicyName> for Policy {
    fn from(name: PolicyName) -> Policy {
        match name {
            PolicyName::TopologyAware => Policy::TopologyAware,
            PolicyName::OneSharedPool => Policy::OneSharedPool,
        }
    }
}

/// What is read and what is written.
pub(super) const SIMULATE_HELP: &str = "\
Reserved CPUs are those of the configuration (`reservedCpus`), or else those of the machine file. Without --config, the file in
/etc counts only for this machine, not for one that is named with --machine or --root.

A trace holds containers in the order in which they come and go; CPU in thousandths, memory in bytes, a limit of 0 is none:

  {\"format\": \"bayplan-bench-trace/1\", \"name\": \"morning\", \"machine\": \"m16\", \"events\": [
    {\"i\": 0, \"op\": \"create\", \"id\": \"c1\", \"pod\": \"web\", \"qos\": \"Guaranteed\", \"cpu_request_m\": 2000,
     \"cpu_limit_m\": 2000, \"mem_request\": 1073741824, \"mem_limit\": 1073741824},
    {\"i\": 1, \"op\": \"remove\", \"id\": \"c1\"}]}

`namespace`, `annotations` and `labels` of the pod are optional. With `groups` in the configuration, a pod names its group by the annotation
bayplan.dev/group.

The placement file has one entry per event, in the same order:

  {\"i\": 0, \"op\": \"create\", \"id\": \"c1\", \"ok\": true, \"kind\": \"exclusive\", \"excl\": \"1,9\", \"cpus\": \"1,9\", \"mems\": \"0\", \"updates\": 0}

  excl     CPUs that no other container runs on; those of its group where an exclusive container is alone in it
  cpus     every CPU that it may run on
  updates  other containers with a CPU set that had to be rewritten because of this event
  moved    other containers that own other CPUs because of this event, with all their new ones (`compaction` of the configuration)
  err      why it was refused; then `ok` is false

The same trace on the same machine gives the same file, byte for byte.

Of pods in files, what `bayplan explain` would say of each container is printed; where one is refused, the exit code is 1. They come in the order of
the files, each as kubelet brings it: init containers end before the next one comes. Devices are those of `hostPath` volumes and of PCIDEVICE_* variables.

Examples:
  bayplan simulate --machine epyc-7763-nps4 pod.yaml
  bayplan simulate --machine epyc-9654 --trace morning.json
  bayplan simulate --machine m16.json --trace morning.json --placement placed.json --svg pictures
  bayplan simulate --trace morning.json --compare today.yaml tomorrow.yaml";

#[derive(Debug, ClapArgs)]
pub(crate) struct DemoOptions {
    /// The machine to play on
    #[arg(
        long,
        value_name = "FILE|SPEC",
        default_value = "pack:2 l3:1 numa:2 core:8 pu:2 mem:32",
        long_help = machine_help()
    )]
    pub(crate) machine: String,
    /// Keep the daemon running at the end and say how to look at it
    #[arg(long)]
    pub(crate) keep: bool,
    /// Time to look at each step, in milliseconds [default: 1200 on a terminal, else 0]
    #[arg(long, value_name = "MS", value_parser = parse_millis)]
    pub(crate) pause: Option<Duration>,
}

fn parse_millis(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(millis) if millis <= 60_000 => Ok(Duration::from_millis(millis)),
        _ => Err("expected milliseconds from 0 to 60000".to_owned()),
    }
}
