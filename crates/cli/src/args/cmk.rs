//! Arguments of `bayplan cmk`, as CMK has them.

use std::path::PathBuf;

use bayplan_config::cmk::Mode;
use clap::{Args, Subcommand, ValueEnum};

use super::shared::MachineOptions;

/// `bayplan cmk`.
#[derive(Debug, Subcommand)]
pub(crate) enum CmkCommand {
    /// Divide the machine into an exclusive pool, a shared one and one for infrastructure
    Init(InitOptions),
    /// Print the pools as JSON
    Describe(DirOptions),
    /// Run a program on a CPU list of a pool, and end as it ends
    Isolate(IsolateOptions),
    /// Take processes out of the pools that do not run any more, and print which
    Reconcile(ReportOptions),
    /// Print the pools, whether lists overlap, and processes that run elsewhere than on their list
    NodeReport(ReportOptions),
    /// Remove the directory, once no program of a pool runs
    Uninstall(UninstallOptions),
}

/// Where the pools are.
#[derive(Debug, Args)]
pub(crate) struct DirOptions {
    /// The directory with the pools, in either layout of CMK
    #[arg(long, value_name = "DIR", default_value = "/etc/cmk")]
    pub(crate) conf_dir: PathBuf,
    /// As CMK has it; there is no Kubernetes here
    #[arg(long, value_name = "NAME", hide = true)]
    namespace: Option<String>,
}

impl CmkCommand {
    /// Flags that CMK has for Kubernetes and that were given: they count for nothing here.
    pub(crate) fn without_effect(&self) -> Vec<&'static str> {
        let (dir, others) = match self {
            CmkCommand::Init(it) => (&it.dir, [("--socket-id", it.socket_id.is_some())]),
            CmkCommand::Describe(dir) => (dir, [("", false)]),
            CmkCommand::Isolate(it) => (&it.dir, [("", false)]),
            CmkCommand::Reconcile(it) | CmkCommand::NodeReport(it) => {
                (&it.dir, [("--publish", it.publish)])
            }
            CmkCommand::Uninstall(it) => (&it.dir, [("--install-dir", it.install_dir.is_some())]),
        };
        let flags = [("--namespace", dir.namespace.is_some())].into_iter().chain(others);
        flags.filter(|(_, is_given)| *is_given).map(|(flag, _)| flag).collect()
    }
}

/// An order of cores.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ModeName {
    /// Package after package
    Packed,
    /// One of each package in turn
    Spread,
}

impl From<ModeName> for Mode {
    fn from(name: ModeName) -> Mode {
        match name {
            ModeName::Packed => Mode::Packed,
            ModeName::Spread => Mode::Spread,
        }
    }
}

/// `bayplan cmk init`.
#[derive(Debug, Args)]
pub(crate) struct InitOptions {
    #[command(flatten)]
    pub(crate) dir: DirOptions,
    /// Cores of the pool `exclusive`
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    pub(crate) num_exclusive_cores: usize,
    /// Cores of the pool `shared`
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub(crate) num_shared_cores: usize,
    /// Order in which cores are taken for `exclusive`
    #[arg(long, value_enum, default_value_t = ModeName::Packed)]
    pub(crate) exclusive_mode: ModeName,
    /// Order in which cores are taken for `shared`
    #[arg(long, value_enum, default_value_t = ModeName::Packed)]
    pub(crate) shared_mode: ModeName,
    /// CPUs on cores that are the pool `exclusive-non-isolcpus`, where others are isolated; -1 for none
    #[arg(long, value_name = "LIST", default_value = "-1", allow_hyphen_values = true)]
    pub(crate) excl_non_isolcpus: String,
    /// Cores of the pool `dataplane`: the pools and the layout of CMK's first release
    #[arg(long, value_name = "COUNT", conflicts_with = "num_exclusive_cores")]
    pub(crate) num_dp_cores: Option<usize>,
    /// Cores of the pool `controlplane`: the pools and the layout of CMK's first release
    #[arg(long, value_name = "COUNT", conflicts_with = "num_shared_cores")]
    pub(crate) num_cp_cores: Option<usize>,
    /// As CMK has it, which does not read it
    #[arg(long, value_name = "NUMBER", hide = true, allow_negative_numbers = true)]
    socket_id: Option<i64>,
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
}

/// `bayplan cmk reconcile` and `node-report`.
#[derive(Debug, Args)]
pub(crate) struct ReportOptions {
    #[command(flatten)]
    pub(crate) dir: DirOptions,
    /// Again every so many seconds; 0: once
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) interval: u64,
    /// As CMK has it; there is no Kubernetes here
    #[arg(long, hide = true)]
    publish: bool,
}

/// `bayplan cmk uninstall`.
#[derive(Debug, Args)]
pub(crate) struct UninstallOptions {
    #[command(flatten)]
    pub(crate) dir: DirOptions,
    /// How often it looks whether programs have ended, once a second
    #[arg(long, value_name = "COUNT", default_value_t = 10, hide = true)]
    pub(crate) tries: u32,
    /// As CMK has it; no program is installed there
    #[arg(long, value_name = "DIR", hide = true)]
    install_dir: Option<PathBuf>,
}

/// `bayplan cmk isolate`.
#[derive(Debug, Args)]
pub(crate) struct IsolateOptions {
    #[command(flatten)]
    pub(crate) dir: DirOptions,
    /// The pool: exclusive, shared, infra
    #[arg(long, value_name = "POOL")]
    pub(crate) pool: String,
    /// Only CPU lists of this package; -1: of any
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = -1,
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX))
    )]
    pub(crate) socket_id: i64,
    /// Only set the environment, and leave the affinity as it is
    #[arg(long)]
    pub(crate) no_affinity: bool,
    /// The program and its arguments; dashes (--) between them are left out
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}
