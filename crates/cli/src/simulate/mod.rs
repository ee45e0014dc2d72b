//! `bayplan simulate`. In: a machine, a trace, configurations. Out: a placement file, figures, pictures.
//!
//! Files, the clock and the terminal are here and in `progress`; `trace`, `replay`, `in_groups`, `placement`, `tally`, `quality` and `summary` take
//! values and return values.

#[cfg(test)]
mod against_daemon;
mod in_groups;
mod mover;
mod place_pods;
pub(crate) mod placement;
pub(crate) mod pods;
mod progress;
pub(crate) mod quality;
pub(crate) mod replay;
pub(crate) mod summary;
pub(crate) mod tally;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod times;
pub(crate) mod trace;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use bayplan_allocator::Ledger;
use bayplan_allocator::policy::pools;
use bayplan_config::{Config, new_state};
use bayplan_drawing::render_svg;
use bayplan_host::Depth;
use bayplan_node::status::Status;
use bayplan_topology::{Topology, derive};
use bayplan_types::CpuSet;

use crate::args::{MachineOptions, Output, SimulateOptions};
use crate::explain;
use crate::machine::{load_root, named_machine};
use crate::node_config::{NodeConfig, read_config};
use crate::seats::Seats;
use crate::simulate::place_pods::place_pods;
use crate::simulate::placement::{PlacementRow, render_placement};
use crate::simulate::pods::parse_pods;
use crate::simulate::progress::Progress;
use crate::simulate::quality::judge;
use crate::simulate::replay::{Moment, Replay, replay};
use crate::simulate::summary::{Run, Summary, render_json, render_text};
use crate::simulate::tally::Tally;
use crate::simulate::times::{Times, clock_cost, thread_cpu_time};
use crate::simulate::trace::{Trace, parse_trace};
use crate::visible::print_json;

/// Replays the trace once, or under each of two configurations; or places the pods of files.
pub(crate) fn run(config: &NodeConfig, options: &SimulateOptions) -> anyhow::Result<()> {
    hint_at_placement(options)?;
    let machine = load_machine(config, &options.machine)?;
    let Some(path) = &options.trace else { return place_files(config, options, &machine) };
    let trace = load_trace(path)?;
    if !trace.machine.is_empty() && trace.machine != machine.name {
        errln!(
            "bayplan: warning: {} was made for the machine `{}`, and is replayed on `{}`",
            path.display(),
            trace.machine,
            machine.name
        );
    }
    let mut runs = Vec::new();
    match options.compare.as_slice() {
        [] => {
            let read = config_for(config, &machine)?;
            let name = config.path().map(|path| path.display().to_string());
            let done = simulate(&machine, &trace, &under(read, options), name)?;
            write_files(options, &machine, &trace, &done)?;
            runs.push(done.run);
        }
        configs => {
            for path in configs {
                let name = Some(path.display().to_string());
                let config = under(read_config(path)?, options);
                runs.push(simulate(&machine, &trace, &config, name)?.run);
            }
        }
    }
    let summary = Summary {
        cpus: machine.topology.cpus().len(),
        machine: machine.name,
        trace: trace.name,
        events: trace.events.len(),
        runs,
    };
    match options.form() {
        Output::Text => out!("{}", render_text(&summary))?,
        Output::Json => out!("{}", render_json(&summary)?)?,
    }
    Ok(())
}

/// The file in /etc is for this machine only.
fn config_for(config: &NodeConfig, machine: &Machine) -> anyhow::Result<Config> {
    match config.path().is_some() || machine.is_this {
        true => config.strict(),
        false => Ok(Config::default()),
    }
}

/// What would become of the pods in files on this machine while it is empty.
///
/// # Errors
/// A file is no pod, or a container has no place.
fn place_files(
    config: &NodeConfig,
    options: &SimulateOptions,
    machine: &Machine,
) -> anyhow::Result<()> {
    let mut config = under(config_for(config, machine)?, options);
    if config.reserved_cpus.is_empty() && config.reserved_amount.is_none() {
        config.reserved_cpus = machine.reserved.clone();
    }
    let mut arrivals = Vec::new();
    for path in &options.pods {
        let text = match path == Path::new("-") {
            true => std::io::read_to_string(std::io::stdin()),
            false => std::fs::read_to_string(path),
        };
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        arrivals.extend(parse_pods(path, &text)?);
    }
    let state = new_state(&config, &machine.topology)
        .with_context(|| format!("the machine {} cannot be used", machine.name))?;
    let placed = place_pods(state, arrivals);
    match options.form() {
        Output::Text => {
            out!("{}", placed.explanations.iter().map(explain::render).collect::<String>())?;
        }
        Output::Json => print_json(&explain::with_typed_criteria(&placed.explanations)?)?,
    }
    let refused = placed.refused;
    ensure!(refused.is_empty(), "no place for {}", refused.join(", "));
    Ok(())
}

/// `--output` was the name of `--placement`, and still takes files.
fn hint_at_placement(options: &SimulateOptions) -> anyhow::Result<()> {
    if let Some(path) = options.old_placement() {
        let path = path.display();
        errln!("bayplan: warning: --output {path} is written --placement {path} now");
        ensure!(
            options.compare.is_empty(),
            "--compare writes no placement; leave --output {path} out"
        );
    }
    Ok(())
}

struct Machine {
    name: String,
    topology: Topology,
    reserved: CpuSet,
    /// The one that we run on.
    is_this: bool,
}

fn load_machine(config: &NodeConfig, options: &MachineOptions) -> anyhow::Result<Machine> {
    match &options.machine {
        Some(name) => {
            let named = named_machine(name)?;
            let topology = derive(&named.snapshot)?;
            Ok(Machine { name: named.name, topology, reserved: named.reserved, is_this: false })
        }
        None => {
            let topology = derive(&load_root(config, &options.root, Depth::Placement)?)?;
            let is_this = options.root == Path::new("/");
            let name = if is_this {
                "this machine".to_owned()
            } else {
                options.root.display().to_string()
            };
            Ok(Machine { name, topology, reserved: CpuSet::new(), is_this })
        }
    }
}

fn load_trace(path: &Path) -> anyhow::Result<Trace> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(parse_trace(path, &bytes)?)
}

/// All that came of one run.
struct Done {
    run: Run,
    rows: Vec<PlacementRow>,
    end: End,
}

/// Which container is where after the last event.
enum End {
    Ungrouped(Box<Replay>),
    InGroups(Box<Status>),
}

/// The configuration, with the policy that is named beside it.
fn under(config: Config, options: &SimulateOptions) -> Config {
    let policy = options.policy.map_or(config.policy, Into::into);
    Config { policy, ..config }
}

fn simulate(
    machine: &Machine,
    trace: &Trace,
    config: &Config,
    name: Option<String>,
) -> anyhow::Result<Done> {
    let division = config.division();
    let said = division.reserved_on(&machine.topology);
    let reserved = if said.is_empty() { &machine.reserved } else { &said };
    let usable = division.machine(&machine.topology);
    let pools = pools(&usable, config.policy, reserved).with_context(|| match &name {
        Some(name) => format!("{name} does not suit the machine {}", machine.name),
        None => format!("the machine {} cannot be used", machine.name),
    })?;
    let empty = Tally::new(&machine.topology, &pools.allocatable());
    let rules = config.rules();
    let mut times = Times::default();
    let mut progress = Progress::new(trace.events.len());
    let clock = clock_cost();
    let mut since = thread_cpu_time();
    let mut watch = |moment| {
        let spent = || thread_cpu_time().saturating_sub(since + clock);
        match moment {
            Moment::Begun => since = thread_cpu_time(),
            Moment::Understood => {
                times.requests.push(spent());
                since = thread_cpu_time();
            }
            Moment::Decided { is_exclusive: true } => times.exclusive.push(spent()),
            Moment::Decided { is_exclusive: false } => times.sharing.push(spent()),
            Moment::Released => times.releases.push(spent()),
            Moment::Settled => progress.step(),
        }
    };
    let (rows, end) = match config.groups.is_empty() {
        true => {
            let ledger = Ledger::new(Arc::new(pools));
            let (rows, end) = replay(trace, ledger, &rules, config.compaction, &mut watch);
            (rows, End::Ungrouped(Box::new(end)))
        }
        false => {
            let reserved_cpus = reserved.clone();
            let config = Config { reserved_cpus, reserved_amount: None, ..config.clone() };
            let state = new_state(&config, &machine.topology)?;
            let (rows, end) = in_groups::play(trace, state, &mut watch);
            (rows, End::InGroups(Box::new(end.status())))
        }
    };
    drop(progress);
    let quality = judge(trace, &rows, empty);
    let run = Run { config: name, reserved: reserved.to_string(), quality, times };
    Ok(Done { run, rows, end })
}

fn write_files(
    options: &SimulateOptions,
    machine: &Machine,
    trace: &Trace,
    done: &Done,
) -> anyhow::Result<()> {
    let write = |path: &Path, text: String| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    if let Some(path) = options.placement() {
        write(path, render_placement(&trace.name, &done.rows)?)?;
    }
    let Some(dir) = &options.svg else { return Ok(()) };
    if dir.exists() && !dir.is_dir() {
        bail!("--svg {}: there is a file of that name, expected a directory", dir.display());
    }
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let seats = match &done.end {
        End::Ungrouped(replay) => Seats::of_ledger(replay.ledger(), &replay.names()),
        End::InGroups(status) => Seats::new(status),
    };
    write(&dir.join("before.svg"), render_svg(&machine.topology, &|_| None))?;
    write(&dir.join("after.svg"), render_svg(&machine.topology, &|cpu| seats.seat(cpu)))
}
