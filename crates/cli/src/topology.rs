//! `bayplan topology`.

use std::path::Path;

use anyhow::Context as _;
use bayplan_daemon::{MachineView, query_control};
use bayplan_drawing::{render_titled_svg, render_tree};
use bayplan_host::Depth;
use bayplan_host::parse_recorded_machine;
use bayplan_node::status::Status;
use bayplan_topology::{Device, Topology, derive, to_json};

use crate::args::{TopologyOptions, TopologyOutput};
use crate::control::control_socket;
use crate::machine::load_snapshot;
use crate::node_config::NodeConfig;
use crate::seats::Seats;
use crate::text::has_colour;
use crate::visible::print_json;

/// Prints one machine.
pub(crate) fn run(config: &NodeConfig, options: &TopologyOptions) -> anyhow::Result<()> {
    if options.ledger {
        return show_ledger(config, options);
    }
    let topology = derive(&load_snapshot(config, &options.machine, Depth::Cores)?)?;
    if let Some(name) = &options.device {
        outln!("{}", locate(&topology, name)?)?;
        return Ok(());
    }
    show(&topology, &title(options), None, options.output)
}

/// What stands above a picture: the name that the machine was given, or this host and the time.
fn title(options: &TopologyOptions) -> String {
    match &options.machine.machine {
        Some(named) => named.clone(),
        None if options.machine.root != Path::new("/") => {
            options.machine.root.display().to_string()
        }
        None => title_of_host(),
    }
}

/// `node-7, 2026-11-26 15:04 UTC`.
fn title_of_host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let now = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string();
    [host.trim(), now.as_str()]
        .into_iter()
        .filter(|it| !it.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

/// The machine of the daemon that is asked, which need not be the one that this command runs on, and what it has placed where.
fn show_ledger(config: &NodeConfig, options: &TopologyOptions) -> anyhow::Result<()> {
    let socket = control_socket(config, &options.control)?;
    let (machine, status) = tokio::runtime::Runtime::new()?.block_on(async {
        let machine: MachineView = query_control(&socket, "/api/v1/machine").await?;
        let status: Status = query_control(&socket, "/api/v1/status").await?;
        anyhow::Ok((machine, status))
    })?;
    let topology = parse_recorded_machine(&machine.files)?;
    show(&topology, &title_of_host(), Some(&Seats::new(&status)), options.output)
}

fn show(
    topology: &Topology,
    title: &str,
    seats: Option<&Seats>,
    output: TopologyOutput,
) -> anyhow::Result<()> {
    match output {
        TopologyOutput::Text => {
            out!("{}", render_tree(topology))?;
            if let Some(seats) = seats {
                outln!("\n{}", seats.render_map(topology, has_colour()).trim_end())?;
            }
        }
        TopologyOutput::Json => print_json(&to_json(topology))?,
        TopologyOutput::Svg => {
            out!("{}", render_titled_svg(topology, title, &|cpu| seats?.seat(cpu)))?;
        }
    }
    Ok(())
}

/// `network enp59s0f0 at 0000:3b:00.0: NumaNode 1, 56 CPUs 28-55,84-111`.
fn locate(topology: &Topology, name: &str) -> anyhow::Result<String> {
    let device = topology.device(name).with_context(|| {
        format!(
            "there is no device `{name}`; expected a PCI address, a path below /dev or a network interface (`bayplan topology -o \
             json` lists them all)"
        )
    })?;
    let Device { kind, address, cpus, .. } = device;
    let node = match device.node {
        Some(node) => format!("NumaNode {node}"),
        None => "no NumaNode is known".to_owned(),
    };
    let count = cpus.len();
    Ok(format!("{kind} {name} at {address}: {node}, {count} CPUs {cpus}"))
}
