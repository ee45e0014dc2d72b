//! Command-line arguments of all commands.

#[cfg(feature = "cluster")]
mod cluster;
mod cmk;
mod configuration;
mod containers;
mod daemon;
mod import;
mod machine;
mod past;
mod shared;
mod simulate;
mod sort;
mod top;

use std::path::PathBuf;

use bayplan_topology::JSON_HELP;
use clap::{Parser, Subcommand};

#[cfg(feature = "cluster")]
pub(crate) use self::cluster::{AgentOptions, WebhookOptions};
pub(crate) use self::cmk::{
    CmkCommand, InitOptions, IsolateOptions, ReportOptions, UninstallOptions,
};
pub(crate) use self::configuration::{
    CheckConfigOptions, ConfigCommand, ConfigForm, DiffConfigOptions, ShowConfigOptions,
};
use self::containers::{AUDIT_HELP, WHY_HELP};
pub(crate) use self::containers::{AuditOptions, ExplainOptions, MapOptions};
pub(crate) use self::daemon::{
    ModeOptions, RebalanceCommand, RestoreOptions, RunOptions, StatusOptions,
};
use self::import::IMPORT_HELP;
pub(crate) use self::import::ImportOptions;
use self::machine::BENCH_HELP;
pub(crate) use self::machine::{BenchOptions, SnapshotOptions, TopologyOptions, TopologyOutput};
use self::past::{JOURNAL_HELP, REPLAY_HELP};
pub(crate) use self::past::{JournalOptions, Moment, ReplayOptions};
pub(crate) use self::shared::{ControlOptions, MachineOptions, Output, OutputOptions, PastOptions};
use self::simulate::SIMULATE_HELP;
pub(crate) use self::simulate::{DemoOptions, SimulateOptions};
pub(crate) use self::sort::Sort;
use self::top::TOP_HELP;
pub(crate) use self::top::TopOptions;

/// Decides which CPUs and memory each container of a Kubernetes node gets, and makes the kernel obey.
///
/// bayplan sits between kubelet and the container runtime: kubelet connects to bayplan's socket, bayplan to the runtime's.
/// Start with `bayplan demo`, which needs no root and no Kubernetes, then `bayplan check` on a node.
#[derive(Debug, Parser)]
#[command(name = "bayplan", version, propagate_version = true)]
pub(crate) struct Args {
    /// Configuration file [default: BAYPLAN_CONFIG of the environment, else /etc/bayplan/config.yaml, if it is there]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the daemon until SIGTERM or SIGINT
    ///
    /// At the first signal it serves on until calls that take long have ended, at most for `drainTimeout` of the configuration; a second
    /// one ends it at once. Containers keep running as they are. The configuration is read again at SIGHUP, and when its file has changed
    /// (`bayplan config reload`).
    ///
    /// Under systemd it serves the socket that it is given (FileDescriptorName=cri, and `control` if there is one), says when it serves
    /// (Type=notify), and feeds the watchdog (WatchdogSec=).
    Run(RunOptions),
    /// Run the agent of this node: carry configuration from the cluster to the daemon, and the node's state and events back
    ///
    /// The API server is found as in every pod, or by the file that KUBECONFIG names. The agent needs no root and none of the node's files, only the
    /// daemon's control socket. It ends at SIGTERM; the daemon works on without it.
    #[cfg(feature = "cluster")]
    Agent(AgentOptions),
    /// Run an admission webhook that copies the requests of new pods into an annotation, for Kubernetes before 1.36
    ///
    /// Nodes where kubelet has its PodsAPI (since 1.37) need none, and Kubernetes from 1.36 on has `requestsPolicy` of the chart instead. It makes its own certificate, keeps it in a
    /// Secret, renews it, and writes the CA into the MutatingWebhookConfiguration. While it is down, pods are created as they are.
    #[cfg(feature = "cluster")]
    Webhook(WebhookOptions),
    /// Watch bayplan place pods on a synthetic two-socket machine; needs no root, no Kubernetes, no network
    ///
    /// With --config FILE it is divided as that says, with its groups and what it says of requests; two pods of each type of groups come, too. Everything else of the file, and the node's
    /// own file, count for nothing here.
    Demo(DemoOptions),
    /// Print the hardware of this machine, of a captured one, or of a synthetic one
    ///
    /// Energy preferences that a daemon has set here are shown as they were before, as the daemon itself sees them.
    #[command(after_long_help = JSON_HELP)]
    Topology(TopologyOptions),
    /// Write down everything that bayplan reads of this machine, in one file for a bug report
    ///
    /// The file holds no serial numbers, hardware addresses or host names, and of the kernel's command line only the options for CPUs
    /// and memory. Energy preferences that a daemon has set here are in it as they were before. Look at it with `zcat`. Every command with
    /// --machine takes it.
    Snapshot(SnapshotOptions),
    /// Replay a stream of containers through the daemon's allocator, on any machine, and judge where they went
    ///
    /// Every container is placed as `bayplan run` would place it, with the same code, on a machine that need not exist. Nothing is
    /// written but the files that you name; no root, no Kubernetes, no daemon.
    #[command(after_long_help = SIMULATE_HELP)]
    Simulate(SimulateOptions),
    /// Which container has which CPUs
    Status(StatusOptions),
    /// Why a container is where it is: every pool that was considered, and why it won or lost
    Explain(ExplainOptions),
    /// Why a container is slow: what costs it time, the most harmful first, each with what helps
    ///
    /// Joins its place and what became of it, throttling, waiting and the neighbours that it waits for, intruders on its CPUs, lack of memory and of block
    /// I/O, memory on other NUMA nodes, what other programs change, and what the rebalancer proposed or did. Shares of its time are what the kernel counts
    /// between the last two readings of the daemon (`observeInterval`), and by probes in the last minute; those of different causes overlap.
    #[command(after_long_help = WHY_HELP)]
    Why(ExplainOptions),
    /// The daemon's machine with what holds each CPU, now and under another configuration
    ///
    /// With --what-if the daemon works out on a copy of its state what would be where under that file, as `bayplan config diff` does. The page in the
    /// browser shows that map beside today's until --forget or another --what-if.
    Map(MapOptions),
    /// Which containers use how much CPU, and which are throttled, wait, move, stall, or have memory elsewhere, live
    ///
    /// Counters are read from the containers' cgroups below `hostRoot` of the configuration, so run it on the node. On a terminal the table is
    /// drawn anew until Ctrl-C; elsewhere the tables follow each other, with -o json one object per line.
    #[command(after_long_help = TOP_HELP)]
    Top(TopOptions),
    /// What really happened to containers: CPU time, waiting, preemptions, moves, and what else ran on CPUs that they own
    ///
    /// Programs in the kernel count it (`probes` in the configuration); the daemon reads them every five seconds. With a container, everything that
    /// ran on its CPUs is named: kernel threads, other containers, processes, interrupts. What cannot be counted here is said, with what would mend
    /// it.
    #[command(after_long_help = AUDIT_HELP)]
    Audit(AuditOptions),
    /// Which containers suffer from others, and what would help them or was done
    ///
    /// The daemon compares what the probes and the kernel's files count, every few seconds (`rebalance` in the configuration), and says what it would turn;
    /// in mode `act` it does, and takes back what does not help. `bayplan journal --kind proposed,judged` has everything.
    #[command(subcommand)]
    Rebalance(RebalanceCommand),
    /// What the daemon would write into kernel files now, one line per write, with the reason; nothing when all of them are right
    ///
    /// CPU sets go through the runtime and are not listed here. What cannot be had on this machine is listed, too.
    Plan(StatusOptions),
    /// Stop granting exclusive CPUs to new containers, for example before this node is upgraded
    ///
    /// New containers get a place among the shared ones; one that requires exclusive CPUs is refused. Those that own CPUs keep them,
    /// also through a resize. It stays so, through restarts of the daemon too, until `bayplan resume`.
    Drain(ModeOptions),
    /// Give every container all CPUs and memory nodes back, and let kubelet's calls pass, for example before bayplan is removed
    ///
    /// Each container is set to all CPUs and memory nodes of the machine, as kubelet without a CPU manager leaves it, and kernel files
    /// that bayplan has changed get back what they said before. What was written is read back, and containers that do not run everywhere are named,
    /// with exit code 1. It stays so, through restarts of the daemon too, until `bayplan resume`; the places are kept for it.
    ///
    /// While no daemon runs, this command does the same itself, with the journal of the last one and through the runtime's socket; name no
    /// other --control than that of the configuration then. With --files-only, and only while no daemon runs, it gives back only what is left in kernel files, and asks no runtime.
    Restore(RestoreOptions),
    /// End `drain` and `restore`: place containers again
    ///
    /// After `restore`, containers get the places back that they had; those that came meanwhile are adopted where they run, and share.
    Resume(ModeOptions),
    /// What happened on this node: which containers were placed, refused, moved, resized and released, when and why; newest last
    ///
    /// Reads the history that the daemon keeps below its state directory; the daemon need not run. `bayplan explain` has every pool
    /// that was considered for those that are there and for the last 256 that ended.
    #[command(after_long_help = JOURNAL_HELP)]
    Journal(JournalOptions),
    /// What if: lets this node's history happen again under another configuration or on another machine, and compares
    ///
    /// Every container that came, was resized or went does so again, with the daemon's own code: how it was and how it would have been
    /// stand side by side, and the containers that would be elsewhere are listed. Nothing is written; no root, no daemon.
    #[command(after_long_help = REPLAY_HELP)]
    Replay(ReplayOptions),
    /// Turn the configuration of another system into one for bayplan, and say what became of each of its keys
    #[command(after_long_help = IMPORT_HELP)]
    Import(ImportOptions),
    /// CMK's commands on a node without Kubernetes: pools of CPU lists, and programs that run on them
    #[command(subcommand)]
    Cmk(CmkCommand),
    /// What pods can ask for by annotation: every key, its values, default, meaning and older names
    Annotations(OutputOptions),
    /// How fast this node is at what the daemon does: decisions, the journal's disk, kernel files, calls to the runtime
    ///
    /// No container is touched: decisions are made on a copy of what the journal holds, and thrown away; the journal that is written, and the control group
    /// with its CPU set, are made for it and removed. It needs the rights of the daemon; what cannot be measured is said with the reason. How containers
    /// fare, on this machine against other systems, is for `cargo xtask reenact` of the source tree.
    #[command(after_long_help = BENCH_HELP)]
    Bench(BenchOptions),
    /// Look for what would keep bayplan from working: configuration, machine, cgroups, rights, runtime, kubelet
    Check(OutputOptions),
    /// The configuration file: what it can say, what is wrong with it, what holds
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the version
    Version,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory; packages are made with it
    #[command(hide = true)]
    Man {
        /// The directory, which must exist
        dir: PathBuf,
    },
}
