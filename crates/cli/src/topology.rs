//! `bayplan topology`.

use std::path::Path;

use anyhow::Context as _;
use bayplan_daemon::query_control;
use bayplan_daemon::status::Status;
use bayplan_host::Depth;
use bayplan_topology::{Device, Topology, derive, render_dot, render_svg, render_tree, to_json};

use crate::args::{TopologyOptions, TopologyOutput};
use crate::has_colour;
use crate::machine::load_snapshot;
use crate::seats::Seats;
use crate::status::control_socket;

/// Prints one machine.
pub(crate) fn run(config: Option<&Path>, options: &TopologyOptions) -> anyhow::Result<()> {
    let topology = derive(&load_snapshot(config, &options.machine, Depth::Cores)?)?;
    if let Some(name) = &options.device {
        println!("{}", locate(&topology, name)?);
        return Ok(());
    }
    let seats = match options.ledger {
        true => {
            let socket = control_socket(config, &options.control)?;
            let asked = query_control::<Status>(&socket, "/api/v1/status");
            Some(Seats::new(&tokio::runtime::Runtime::new()?.block_on(asked)?))
        }
        false => None,
    };
    match options.output {
        TopologyOutput::Text => {
            print!("{}", render_tree(&topology));
            if let Some(seats) = &seats {
                println!("\n{}", seats.render_map(&topology, has_colour()).trim_end());
            }
        }
        TopologyOutput::Json => println!("{}", serde_json::to_string_pretty(&to_json(&topology))?),
        TopologyOutput::Svg => {
            print!("{}", render_svg(&topology, &|cpu| seats.as_ref()?.seat(cpu)));
        }
        TopologyOutput::Dot => print!("{}", render_dot(&topology)),
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
