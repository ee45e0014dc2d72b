//! Command-line arguments of all commands.

mod cmk;
mod import;
mod shared;
mod sort;

#[cfg(feature = "cluster")]
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bayplan_allocator::policy::Policy;
use bayplan_node::history::Kind;
use bayplan_topology::JSON_HELP;
use clap::builder::PossibleValuesParser;
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};

pub(crate) use self::cmk::{
    CmkCommand, InitOptions, IsolateOptions, ReportOptions, UninstallOptions,
};
use self::import::IMPORT_HELP;
pub(crate) use self::import::ImportOptions;
use self::shared::machine_help;
pub(crate) use self::shared::{ControlOptions, MachineOptions, Output, OutputOptions, PastOptions};
pub(crate) use self::sort::Sort;

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

#[derive(Debug, Subcommand)]
pub(crate) enum RebalanceCommand {
    /// Whether it looks, what it has proposed since the daemon was started, and how it knows
    Status(StatusOptions),
    /// Take back all that is turned, and turn and propose nothing from now on, also after a restart of the daemon, until `bayplan rebalance resume`
    Pause(StatusOptions),
    /// End `bayplan rebalance pause`
    Resume(StatusOptions),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every key with its value and what it is for; the output is a configuration file
    ///
    /// Without a file it is all defaults, and a start for a file of your own:
    ///
    ///   bayplan config show > bayplan.yaml
    ///
    /// Never onto the file that it reads: the shell empties that first.
    #[command(verbatim_doc_comment)]
    Show(ShowConfigOptions),
    /// List every mistake of a file, with line and column, and what of it this machine lacks
    ///
    /// What `bayplan run` would refuse is a mistake, found by the same code: also reserved CPUs that the machine does not have. For a file
    /// that is for another machine, name that one with --machine. The exit code is 64 if there are mistakes, and 0 if not; warnings do not
    /// count.
    Check(CheckConfigOptions),
    /// Ask the daemon what a file would change: keys, which of them need a restart, and which containers would move
    ///
    /// Nothing changes. The daemon works it out with the code with which it would carry it out, on a copy of its state. To see it before
    /// it happens, write the new configuration to another file first: the daemon reads its own as soon as that is another one.
    Diff(DiffConfigOptions),
    /// Have the daemon read its file again, as SIGHUP does, and wait until the containers that have to move have moved
    ///
    /// A file with mistakes, or one that does not fit the machine, changes nothing, and the exit code is not 0. The daemon also reads the
    /// file by itself about two seconds after it was changed.
    Reload(ReloadConfigOptions),
    /// Print a JSON Schema (draft 2020-12) of the file, for editors and generators
    ///
    /// With the YAML language server, the first line of the file names it: # yaml-language-server: $schema=/path/to/schema.json
    Schema,
    /// Print the custom resources BayplanConfig and BayplanNode, for `kubectl apply --server-side -f -`
    #[cfg(feature = "cluster")]
    Crds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConfigForm {
    /// A commented configuration file
    Yaml,
    /// For programs
    Json,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ShowConfigOptions {
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = ConfigForm::Yaml)]
    pub(crate) output: ConfigForm,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DiffConfigOptions {
    /// The file [default: that of --config]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ReloadConfigOptions {
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CheckConfigOptions {
    /// The file [default: that of --config]
    pub(crate) file: Option<PathBuf>,
    /// The machine that the file is for, instead of this one
    #[arg(long, value_name = "FILE|SPEC", long_help = machine_help())]
    pub(crate) machine: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[cfg(feature = "cluster")]
#[derive(Debug, ClapArgs)]
pub(crate) struct AgentOptions {
    /// The name of this node's Node object
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub(crate) node: String,
    /// Make the first call within this time, later on one node than on the next; 0s: at once
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_start_within)]
    pub(crate) start_within: Duration,
    /// Publish this beside the BayplanNode: node-topology, koordinator (with node-topology), taints, cmk, power-classes, groups, condition, node-feature; may be given several times
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub(crate) publish: Vec<bayplan_cluster::Part>,
    /// Let objects of this system in NAMESPACE (kube-system) configure the node where no BayplanConfig does: nri-plugins, cri-resmgr; may be given several times
    #[arg(
        long,
        value_name = "SYSTEM[=NAMESPACE]",
        value_delimiter = ',',
        conflicts_with = "withdraw"
    )]
    pub(crate) accept: Vec<bayplan_cluster::Accepted>,
    /// Label the Node with its features, by the names of Node Feature Discovery, where that does not run
    #[arg(long)]
    pub(crate) feature_labels: bool,
    /// Label the Node by the rules of this file: NodeFeatureRules of Node Feature Discovery
    #[arg(long, value_name = "FILE")]
    pub(crate) profiles: Option<PathBuf>,
    /// Write Bayplan's features for the worker of Node Feature Discovery into this directory: its features.d
    #[arg(long, value_name = "DIR")]
    pub(crate) features_dir: Option<PathBuf>,
    /// Tell the daemon of the node's pods, for a kubelet without PodsAPI (before 1.37); needs the right to read pods
    #[arg(long)]
    pub(crate) pods: bool,
    /// Serve the daemon's metrics over TLS, to bearer tokens that the API server lets `get` the path /metrics; needs the right to ask it about tokens
    #[arg(long, value_name = "IP:PORT", conflicts_with = "withdraw")]
    pub(crate) metrics: Option<SocketAddr>,
    /// A directory with tls.crt and tls.key for that, which another program renews; otherwise the agent makes a certificate that is signed by itself
    #[arg(long, value_name = "DIR", requires = "metrics")]
    pub(crate) metrics_certificate: Option<PathBuf>,
    /// Serve the daemon's live map beside them, to tokens that the API server lets `get` the path /map; a browser is asked for one
    #[arg(long, requires = "metrics")]
    pub(crate) map: bool,
    /// Take back what was published of this node, and end; needs no daemon, but the rights of an administrator
    #[arg(long, conflicts_with = "publish")]
    pub(crate) withdraw: bool,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
}

#[cfg(feature = "cluster")]
#[derive(Debug, ClapArgs)]
pub(crate) struct WebhookOptions {
    /// Where it listens
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:9443")]
    pub(crate) listen: SocketAddr,
    /// A host name or address by which the API server calls it; may be given several times
    #[arg(
        long = "name",
        value_name = "NAME",
        default_value = "bayplan-webhook.bayplan-system.svc"
    )]
    pub(crate) names: Vec<String>,
    /// The namespace of the Secret
    #[arg(long, value_name = "NAMESPACE", default_value = "bayplan-system")]
    pub(crate) namespace: String,
    /// The Secret with its certificates, made if it is missing
    #[arg(long, value_name = "NAME", default_value = "bayplan-webhook")]
    pub(crate) secret: String,
    /// The MutatingWebhookConfiguration that is to trust them
    #[arg(long, value_name = "NAME", default_value = "bayplan-requests")]
    pub(crate) configuration: String,
    /// A directory with tls.crt and tls.key that another program renews, as cert-manager does; then no Secret and no configuration is written
    #[arg(long, value_name = "DIR")]
    pub(crate) certificate: Option<PathBuf>,
    /// Write into new pods what Koordinator's ClusterColocationProfiles say: labels, annotations, priority, scheduler
    #[arg(long)]
    pub(crate) colocation_profiles: bool,
}

#[cfg(feature = "cluster")]
fn parse_start_within(text: &str) -> Result<Duration, String> {
    let span: SignedDuration =
        text.parse().map_err(|error| format!("{error}; expected a time such as 30s or 2m"))?;
    Duration::try_from(span).map_err(|_| "expected a time that is not negative".to_owned())
}

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
pub(crate) struct StatusOptions {
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
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

const WHY_HELP: &str = "\
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

const AUDIT_HELP: &str = "\
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
pub(crate) struct JournalOptions {
    #[command(flatten)]
    pub(crate) past: PastOptions,
    /// Of the daemon behind this control socket, which says where its history is
    #[arg(long, value_name = "SOCKET", conflicts_with = "state_dir")]
    pub(crate) control: Option<PathBuf>,
    /// From this time on: 2026-11-21T03:10:00Z, or 10m, 2h, 3d before now
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub(crate) since: Option<Moment>,
    /// Up to this time
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub(crate) until: Option<Moment>,
    /// Only of this namespace; `*` and `?` stand for any text and any character, here and below
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Only of this pod
    #[arg(long, value_name = "NAME")]
    pub(crate) pod: Option<String>,
    /// Only of containers of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) container: Option<String>,
    /// Only what is of this kind; see the end of `--help`
    #[arg(long, value_name = "KIND", value_delimiter = ',', hide_possible_values = true,
          value_parser = PossibleValuesParser::new(Kind::ALL.map(Kind::name)))]
    pub(crate) kind: Vec<String>,
    /// Only so many, the last ones
    #[arg(short = 'n', long = "last", value_name = "COUNT")]
    pub(crate) last: Option<usize>,
    /// Go on with what happens from now on
    #[arg(short, long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ReplayOptions {
    /// A state directory of the daemon, or one file of its history [default: stateDir of the configuration of this node: that
    /// of BAYPLAN_CONFIG, else that in /etc]
    #[arg(value_name = "HISTORY")]
    history: Option<PathBuf>,
    /// How the machine is divided [default: as `policy` of the configuration says]
    #[arg(long, value_enum, value_name = "POLICY")]
    pub(crate) policy: Option<PolicyName>,
    /// On this machine instead of the recorded one
    #[arg(long, value_name = "FILE|SPEC", long_help = machine_help())]
    pub(crate) machine: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

impl ReplayOptions {
    /// Where the history is.
    pub(crate) fn history(&self) -> PastOptions {
        PastOptions { state_dir: self.history.clone() }
    }
}

/// What is replayed, and what not.
const REPLAY_HELP: &str = "\
The history has the machine and the configuration that it was recorded with. --config FILE is the configuration to try (BAYPLAN_CONFIG
names that of this node, where the history is), --policy stands in for the policy in it; without both, and without --machine, the replay has to come to the same decisions, and says so. With --machine, that machine stays as it is.

What came to the daemon is replayed, what it did is done anew: creations with all that kubelet said, ends, resizes, changes of the machine,
starts. Not in any history, and so not replayed, are how long the runtime took, writes that it refused, and creations that overlapped.
A container that was refused and would have had a place keeps it to the end, because nothing says when it would have ended. With compaction or
memory.narrow, the node is looked at when the daemon did so; where it never did, two seconds after a container came or went.

Figures are those of `bayplan simulate`. A container that kubelet resized counts once more, one that it asked for again and again once.
Containers that were there at the beginning stay where they were.

Examples:
  bayplan replay                                                  # does it come to the same decisions?
  bayplan --config tomorrow.yaml replay                           # what if?
  bayplan replay --policy one-shared-pool                         # what are pools by NUMA node worth here?
  bayplan replay node7/var/lib/bayplan --machine epyc-9654 -o json";

#[derive(Debug, ClapArgs)]
pub(crate) struct TopOptions {
    /// Show so many containers [default: all that fit the terminal]
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = parse_rows)]
    pub(crate) number: Option<usize>,
    /// Time between two readings
    #[arg(short, long, value_name = "SECONDS", default_value = "2", value_parser = parse_delay)]
    pub(crate) delay: Duration,
    /// What comes first
    #[arg(short, long, value_enum, value_name = "COLUMN", default_value_t = Sort::Cpu)]
    pub(crate) sort: Sort,
    /// Print one table, after one delay, and end
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// What the columns mean.
const TOP_HELP: &str = "\
CLASS      exclusive (it has exclusive CPUs), shared or reserved
CPU        CPUs that it used on average since the last reading: 1.50 is one and a half
THROTTLED  of the periods since then in which it ran, those in which its limit stopped it; `-` without a limit
WAITING    tasks that could have run and had no CPU, on average of the last five seconds: as much as CPU means half of what it wants
DELAY P99  99 of 100 runs of the last minute began after at most this
TAKEN      of the last minute's time of the CPUs that it owns, that in which others ran there (`bayplan audit CONTAINER` names them)
PREEMPTED/s  times that it had to leave a CPU and could have gone on, over the last minute (`bayplan audit CONTAINER` says for what)
MOVES/s    moves of its tasks to another CPU, in the last five seconds
CPI        cycles per instruction over the last minute: more than usual means that it waits for caches and memory
MISSES     cache misses per thousand instructions over the last minute
.. STALL   time since the last reading in which some of its tasks stood still for lack of CPU time, memory, or block I/O (PSI)
IO MB/s    read from and written to block devices since the last reading
FAR        share of its memory that is on NUMA nodes that it is not to use
CPUS       every CPU that it may run on

`-` stands for what is not known yet or cannot be read. A column of which nothing is known is not there: WAITING, DELAY, TAKEN, PREEMPTED and MOVES need
probes, CPI and MISSES also a processor that shows its counters, STALL, IO and FAR cgroup v2. JSON has everything, null for what is not known: `cpu_usage` in CPUs,
`throttled`, `stalled` (`cpu`, `memory`, `io`) and `memory_far` from 0 to 1, `waiting`, `run_delay_p99_seconds`, `preemptions` and `migrations` per second, `io_bytes` per second,
`cycles_per_instruction` and `cache_misses`.";

fn parse_rows(text: &str) -> Result<usize, String> {
    let rows = text.parse().ok().filter(|rows| *rows > 0);
    rows.ok_or_else(|| "expected a number of containers, at least 1".to_owned())
}

fn parse_delay(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|it| (0.1..=3600.0).contains(it));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected seconds from 0.1 to 3600".to_owned())
}

/// A time as people type it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// This one.
    At(Timestamp),
    /// So long before now.
    Ago(SignedDuration),
}

impl Moment {
    /// The time, where it is `now`.
    pub(crate) fn before(self, now: Timestamp) -> Timestamp {
        match self {
            Moment::At(at) => at,
            Moment::Ago(ago) => now.checked_sub(ago).unwrap_or(Timestamp::MIN),
        }
    }
}

fn parse_moment(text: &str) -> Result<Moment, String> {
    if let Ok(at) = text.parse() {
        return Ok(Moment::At(at));
    }
    let ago =
        text.parse::<Span>().and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()));
    match ago {
        Ok(ago) if !ago.is_negative() => Ok(Moment::Ago(ago)),
        _ => Err("expected a time such as 2026-11-21T03:10:00Z, or how long ago it was, such as 10m, 2h or 3d".to_owned()),
    }
}

/// The kinds, and what -o json prints.
const JOURNAL_HELP: &str = "\
Kinds:
  started, machine             the daemon started; the machine as it is from then on
  placed, refused, adopted     a container came: it has a place, there is none, or it ran already
  moved                        for another reason: room for a new container, compaction, narrowing, the machine, a restart
  resized, pod_resized, ended  kubelet changed what it, or its pod, may have; it gave everything back
  annotated                    annotations that count while it runs are others
  proposed                     the rebalancer found that a container suffers, and what it would turn on this one
  judged                       what became of something that the rebalancer turned on this container: kept, undone, could not be done
  mode                         bayplan drain, restore or resume, and bayplan rebalance pause or resume
  runtime_lost, runtime_back   the runtime does not answer, and answers again
  failure                      a write failed, or something else that an operator should know
  held, continued, looked      bookkeeping for `bayplan replay`, shown only when asked for

CPUs are exclusive where it says `own`, and shared otherwise; `a -> b` is before and after.

With -o json there is one object a line: `at`, `kind`; the container: `who` (`namespace`, `pod`, `container`, `attempt`, `qos`, `id`,
`runtime_id`); `asked`, `before` and `after` (`pool`, `own`, `cpus`, `mems`), `by` (of what is moved: room, compaction, narrowing, machine,
restart), `why`, `warnings`; `spec` with all that kubelet said of the container; `resources`, `allocation`, `machine`, `node`; `proposal` with what
the rebalancer proposed (`number`, `knob`, `mode`, `target`, `victim`, `findings`, `culprits`) or how it was judged (`verdict`). What does not
apply is absent.

Examples:
  bayplan journal --since 1h
  bayplan journal --pod 'web-*' --kind refused,moved
  bayplan journal --follow -n 20
  bayplan journal --state-dir /mnt/node7/var/lib/bayplan -o json | jq .why";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopologyOutput {
    /// A tree for people
    Text,
    /// For programs; `--help` lists the fields
    Json,
    /// A picture for browsers and printers
    Svg,
    /// For Graphviz
    Dot,
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

/// What each of the figures is.
const BENCH_HELP: &str = "\
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

/// What is read and what is written.
const SIMULATE_HELP: &str = "\
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
