//! `bayplan cmk`: CMK's commands on a node without Kubernetes. Pools are kept in a directory, in either of CMK's layouts (`store.rs`); `isolate.rs` runs a program on a list of a pool.
//!
//! Flags, output and exit codes are CMK's, but for one: `isolate` ends as its program ends.

mod isolate;
mod store;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bayplan_config::cmk::{
    Division, Pools, describe, divide, node_report, parse_cpu_list, reclaim, reconcile_report,
};
use bayplan_host::Depth;
use bayplan_topology::derive;
use bayplan_types::CpuSet;

use self::store::{Processes, Store};
use crate::args::{CmkCommand, InitOptions, ReportOptions, UninstallOptions};
use crate::machine::load_snapshot;
use crate::node_config::NodeConfig;

/// Runs a sub-command.
pub(crate) fn run(config: &NodeConfig, command: &CmkCommand) -> anyhow::Result<ExitCode> {
    for flag in command.without_effect() {
        errln!("bayplan: warning: {flag} has no effect on a node without Kubernetes");
    }
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
    let processes = Processes::find()?;
    let store = Store::open(dir)?;
    let mut pools = store.read()?;
    let reclaimed = reclaim(&mut pools, |pid| processes.is_running(pid));
    if !reclaimed.is_empty() {
        store.write(&pools)?;
    }
    say_json(&reconcile_report(&reclaimed))
}

fn report(dir: &Path) -> anyhow::Result<()> {
    let processes = Processes::find()?;
    let pools = Store::open(dir)?.read()?;
    let allowed = |pid| processes.allowed_cpus(pid);
    say_json(&node_report(&pools, path_text(dir), allowed))
}

fn say_json(value: &serde_json::Value) -> anyhow::Result<()> {
    sayln!("{}", serde_json::to_string_pretty(value)?)
}

/// Waits a little for programs to end.
fn uninstall(options: &UninstallOptions) -> anyhow::Result<()> {
    let dir = &options.dir.conf_dir;
    let processes = Processes::find()?;
    for left in (0..options.tries.max(1)).rev() {
        let store = Store::open(dir)?;
        let mut pools = store.read()?;
        reclaim(&mut pools, |pid| processes.is_running(pid));
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
