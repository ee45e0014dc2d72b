//! `bayplan cmk`: CMK's commands on a node without Kubernetes. Pools are kept in a directory, in either of CMK's layouts (`store.rs`); `isolate.rs` runs a program on a list of a pool.
//!
//! Flags, output and exit codes are CMK's, but for one: `isolate` ends as its program ends.

mod isolate;
mod store;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bayplan_config::cmk::{
    Division, Mode, Pools, describe, divide, node_report, parse_cpu_list, reclaim, reconcile_report,
};
use bayplan_host::Depth;
use bayplan_topology::derive;
use bayplan_types::CpuSet;
use clap::{Args, Subcommand, ValueEnum};

use self::store::Store;
use crate::args::MachineOptions;
use crate::machine::load_snapshot;
use crate::node_config::NodeConfig;

/// `bayplan cmk`.
#[derive(Debug, Subcommand)]
pub(crate) enum CmkCommand {
    /// Divide the machine into an exclusive pool, a shared one and one for infrastructure
    Init(InitOptions),
    /// Print the pools as JSON
    Describe(DirOptions),
    /// Run a program on a CPU list of a pool, and end as it ends
    Isolate(isolate::IsolateOptions),
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
    conf_dir: PathBuf,
}

/// An order of cores.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeName {
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
    dir: DirOptions,
    /// Cores of the pool `exclusive`
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    num_exclusive_cores: usize,
    /// Cores of the pool `shared`
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    num_shared_cores: usize,
    /// Order in which cores are taken for `exclusive`
    #[arg(long, value_enum, default_value_t = ModeName::Packed)]
    exclusive_mode: ModeName,
    /// Order in which cores are taken for `shared`
    #[arg(long, value_enum, default_value_t = ModeName::Packed)]
    shared_mode: ModeName,
    /// CPUs on cores that are the pool `exclusive-non-isolcpus`, where others are isolated; -1 for none
    #[arg(long, value_name = "LIST", default_value = "-1", allow_hyphen_values = true)]
    excl_non_isolcpus: String,
    /// Cores of the pool `dataplane`: the pools and the layout of CMK's first release
    #[arg(long, value_name = "COUNT", conflicts_with = "num_exclusive_cores")]
    num_dp_cores: Option<usize>,
    /// Cores of the pool `controlplane`: the pools and the layout of CMK's first release
    #[arg(long, value_name = "COUNT", conflicts_with = "num_shared_cores")]
    num_cp_cores: Option<usize>,
    #[command(flatten)]
    machine: MachineOptions,
}

/// `bayplan cmk reconcile` and `node-report`.
#[derive(Debug, Args)]
pub(crate) struct ReportOptions {
    #[command(flatten)]
    dir: DirOptions,
    /// Again every so many seconds; 0: once
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    interval: u64,
}

/// `bayplan cmk uninstall`.
#[derive(Debug, Args)]
pub(crate) struct UninstallOptions {
    #[command(flatten)]
    dir: DirOptions,
    /// How often it looks whether programs have ended, once a second
    #[arg(long, value_name = "COUNT", default_value_t = 10, hide = true)]
    tries: u32,
}

/// Runs a sub-command.
pub(crate) fn run(config: &NodeConfig, command: &CmkCommand) -> anyhow::Result<ExitCode> {
    match command {
        CmkCommand::Init(options) => init(config, options)?,
        CmkCommand::Describe(options) => {
            let dir = &options.conf_dir;
            let pools = Store::open(dir)?.read()?;
            outln!("{}", serde_json::to_string_pretty(&describe(&pools, path_text(dir)))?)?;
        }
        CmkCommand::Isolate(options) => return isolate::run(options),
        CmkCommand::Reconcile(options) => repeat(options, reconcile)?,
        CmkCommand::NodeReport(options) => repeat(options, report)?,
        CmkCommand::Uninstall(options) => uninstall(options)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn path_text(path: &Path) -> Option<&str> {
    path.to_str()
}

/// Makes the directory; one that is there already is good if its pools have as many cores.
fn init(config: &NodeConfig, options: &InitOptions) -> anyhow::Result<()> {
    let is_first_release = options.num_dp_cores.is_some() || options.num_cp_cores.is_some();
    let division = Division {
        exclusive: options.num_dp_cores.unwrap_or(options.num_exclusive_cores),
        shared: options.num_cp_cores.unwrap_or(options.num_shared_cores),
        exclusive_mode: options.exclusive_mode.into(),
        shared_mode: options.shared_mode.into(),
        not_isolated: not_isolated(&options.excl_non_isolcpus)?,
    };
    let topology = derive(&load_snapshot(config, &options.machine, Depth::Cores)?)?;
    let (mut pools, warnings) = divide(&topology, topology.isolated(), &division)?;
    if is_first_release {
        pools = as_in_the_first_release(pools);
    }
    for warning in warnings {
        errln!("bayplan: warning: {warning}");
    }
    let store = Store::create(&options.dir.conf_dir)?;
    let there = store.read()?;
    if there.pools.is_empty() {
        return store.write(&pools);
    }
    let cpus = |pools: &Pools, name: &str| pools.cpus_of(name).len();
    let differs = pools.pools.keys().find(|name| cpus(&there, name) != cpus(&pools, name));
    match differs {
        None => Ok(()),
        Some(name) => bail!(
            "{} is there already, with {} CPUs in pool {name} instead of {}; `bayplan cmk uninstall` removes it",
            options.dir.conf_dir.display(),
            cpus(&there, name),
            cpus(&pools, name)
        ),
    }
}

/// CPUs; -1 is none.
fn not_isolated(text: &str) -> anyhow::Result<Option<CpuSet>> {
    if text == "-1" {
        return Ok(None);
    }
    let cpus = parse_cpu_list(text);
    cpus.map(Some).with_context(|| {
        format!("--excl-non-isolcpus is `{text}`, expected a list of CPUs such as 4-7,9")
    })
}

/// Other names, and no sockets.
fn as_in_the_first_release(pools: Pools) -> Pools {
    let renamed = pools.pools.into_iter().map(|(name, mut pool)| {
        pool.slots.iter_mut().for_each(|slot| slot.socket = None);
        let name = match name.as_str() {
            "exclusive" => "dataplane".to_owned(),
            "shared" => "controlplane".to_owned(),
            _ => name,
        };
        (name, pool)
    });
    Pools { pools: renamed.collect() }
}

/// Once, or again and again.
fn repeat(options: &ReportOptions, print: fn(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    loop {
        print(&options.dir.conf_dir)?;
        if options.interval == 0 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(options.interval));
    }
}

fn reconcile(dir: &Path) -> anyhow::Result<()> {
    let store = Store::open(dir)?;
    let mut pools = store.read()?;
    let reclaimed = reclaim(&mut pools, store::is_running);
    if !reclaimed.is_empty() {
        store.write(&pools)?;
    }
    say_json(&reconcile_report(&reclaimed))
}

fn report(dir: &Path) -> anyhow::Result<()> {
    let pools = Store::open(dir)?.read()?;
    say_json(&node_report(&pools, path_text(dir), store::allowed_cpus))
}

fn say_json(value: &serde_json::Value) -> anyhow::Result<()> {
    sayln!("{}", serde_json::to_string_pretty(value)?)
}

/// Waits a little for programs to end.
fn uninstall(options: &UninstallOptions) -> anyhow::Result<()> {
    let dir = &options.dir.conf_dir;
    for left in (0..options.tries.max(1)).rev() {
        let store = Store::open(dir)?;
        let mut pools = store.read()?;
        reclaim(&mut pools, store::is_running);
        let tasks: Vec<String> = pools
            .pools
            .values()
            .flat_map(|pool| &pool.slots)
            .flat_map(|slot| &slot.tasks)
            .map(u32::to_string)
            .collect();
        if tasks.is_empty() {
            return store.remove();
        }
        if left == 0 {
            bail!(
                "processes {} still run in pools of {}; end them first",
                tasks.join(", "),
                dir.display()
            );
        }
        drop(store);
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}
