//! `bayplan topology`.

use std::path::Path;

use anyhow::{Context as _, bail};
use bayplan_host::Depth;
use bayplan_topology::{Device, Topology, derive, render_tree, to_json};

use crate::args::{TopologyOptions, TopologyOutput};
use crate::machine::load_snapshot;

/// Prints one machine.
pub(crate) fn run(_config: Option<&Path>, options: &TopologyOptions) -> anyhow::Result<()> {
    let topology = derive(&load_snapshot(&options.machine, Depth::Cores)?)?;
    if let Some(name) = &options.device {
        println!("{}", locate(&topology, name)?);
        return Ok(());
    }
    match options.output {
        TopologyOutput::Text => print!("{}", render_tree(&topology)),
        TopologyOutput::Json => println!("{}", serde_json::to_string_pretty(&to_json(&topology))?),
        TopologyOutput::Svg | TopologyOutput::Dot => bail!("not yet"),
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
