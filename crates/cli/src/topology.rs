//! `bayplan topology`.

use bayplan_daemon::derive_machine;
use bayplan_topology::{derive, parse_machine, render_tree, to_json};

use crate::args::{Output, TopologyOptions};

/// Prints the tree of one machine.
pub(crate) fn run(options: &TopologyOptions) -> anyhow::Result<()> {
    let topology = match &options.machine {
        Some(line) => derive(&parse_machine(line)?)?,
        None => derive_machine(&options.root)?,
    };
    match options.output.output {
        Output::Text => print!("{}", render_tree(&topology)),
        Output::Json => println!("{}", serde_json::to_string_pretty(&to_json(&topology))?),
    }
    Ok(())
}
