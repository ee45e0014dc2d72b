//! `bayplan map`: the machine with what holds each CPU, now and under another configuration.

use std::path::Path;

use anyhow::Context as _;
use bayplan_daemon::config::ConfigFile;
use bayplan_daemon::{ControlError, MachineView, WhatIf, ask_control, post_control, query_control};
use bayplan_host::parse_recorded_machine;
use bayplan_node::status::Status;
use bayplan_topology::Topology;
use serde_json::json;

use crate::args::{MapOptions, Output};
use crate::config::{WOULD, render_diff};
use crate::control::control_socket;
use crate::explain::encode;
use crate::node_config::NodeConfig;
use crate::seats::Seats;
use crate::text::has_colour;
use crate::visible::print_json;

/// Where the map of another configuration is kept.
const WHAT_IF: &str = "/api/v1/map/what-if";

/// Prints the map, or both maps one after the other.
pub(crate) fn run(config: &NodeConfig, options: &MapOptions) -> anyhow::Result<()> {
    let socket = control_socket(config, &options.control)?;
    let tokio = tokio::runtime::Runtime::new()?;
    if options.forget {
        return tokio.block_on(forget(&socket));
    }
    let text = options.what_if.as_deref().map(read_config).transpose()?;
    let (machine, status, what_if) = tokio.block_on(async {
        let machine: MachineView = query_control(&socket, "/api/v1/machine").await?;
        let status: Status = query_control(&socket, "/api/v1/status").await?;
        let what_if = match options.what_if.as_deref().zip(text) {
            Some((file, text)) => Some(ask_what_if(&socket, file, text).await?),
            None => None,
        };
        anyhow::Ok((machine, status, what_if))
    })?;
    let topology = parse_recorded_machine(&machine.files)?;
    match options.output.output {
        Output::Text => {
            out!("{}", render(&topology, &status, what_if.as_ref(), has_colour()))?;
            if let Some(address) = page_address(config) {
                outln!(
                    "\nThe same in a browser on the node: http://{address}/map{}",
                    fragment(options)
                )?;
            }
        }
        Output::Json => print_json(&json!({
            "format": "bayplan-maps/1", "now": status, "what_if": what_if,
        }))?,
    }
    Ok(())
}

/// Mistakes are told here, as by every other command.
fn read_config(file: &Path) -> anyhow::Result<String> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    ConfigFile::parse(file, &text)?;
    Ok(text)
}

async fn ask_what_if(socket: &Path, file: &Path, text: String) -> Result<WhatIf, ControlError> {
    let path = format!("{WHAT_IF}?name={}", encode(&file.to_string_lossy()));
    post_control(socket, &path, text).await
}

async fn forget(socket: &Path) -> anyhow::Result<()> {
    let (status, body) = ask_control(socket, "DELETE", WHAT_IF, String::new()).await?;
    if !(200..300).contains(&status) {
        let message = String::from_utf8_lossy(&body).trim().to_owned();
        return Err(ControlError::Refused { status, message }.into());
    }
    outln!("the page shows no other configuration any more")
}

/// Where the page is, as the configuration of this node says; `None`: it is off, or that cannot be read.
fn page_address(config: &NodeConfig) -> Option<String> {
    let config = config.usable().ok()?;
    let address = config.metrics_address.filter(|it| it.ip().is_loopback() && it.port() != 0)?;
    config.has_map.then(|| address.to_string())
}

fn fragment(options: &MapOptions) -> &'static str {
    if options.what_if.is_some() { "#with=what-if" } else { "" }
}

fn render(
    topology: &Topology,
    status: &Status,
    what_if: Option<&WhatIf>,
    has_colour: bool,
) -> String {
    let map = |status: &Status| Seats::new(status).render_map(topology, has_colour);
    match what_if {
        None => map(status),
        Some(WhatIf { diff, status: other, .. }) => format!(
            "Now:\n{}\nUnder the other configuration:\n{}\n{}",
            map(status),
            map(other),
            render_diff(diff, WOULD)
        ),
    }
}

#[cfg(test)]
mod tests {
    use bayplan_topology::{derive, parse_machine};
    use expect_test::expect;
    use serde_json::Value;

    use super::*;

    fn status(reserved: &str, own: &str, shared: &str) -> Value {
        json!({
            "format": "bayplan-status/1",
            "cpus": {"exclusive": own, "shared": shared, "reserved": reserved, "isolated": ""},
            "pools": [{"name": "numa 0", "cpus": "0-7", "shared_cpus": shared, "shared_requests_milli": 0}],
            "containers": [{
                "id": "id", "namespace": "shop", "pod": "web", "container": "app", "qos": "Guaranteed", "class": "exclusive",
                "phase": "running", "asked": "2 exclusive", "exclusive": own, "cpus": own, "mems": "0", "pool": "numa 0",
            }],
        })
    }

    #[test]
    fn both_maps_and_what_differs_are_printed() {
        let topology = derive(&parse_machine("pack:1 numa:1 core:8").unwrap()).unwrap();
        let now: Status = serde_json::from_value(status("0", "1-2", "3-7")).unwrap();
        let what_if: WhatIf = serde_json::from_value(json!({
            "format": "bayplan-what-if/1",
            "diff": {
                "format": "bayplan-config-diff/1",
                "changes": [{"key": "reservedCpus", "from": "0", "to": "0-1", "needs_restart": false}],
                "moves": [{"container": "shop/web/app", "exclusive_from": "1-2", "exclusive_to": "2-3", "cpus_from": "1-2",
                           "cpus_to": "2-3", "mems_from": "0", "mems_to": "0"}],
            },
            "status": status("0-1", "2-3", "4-7"),
        }))
        .unwrap();
        expect![[r#"
            Now:
            NumaNode 0 (Package 0): 8 CPUs 0-7
                 0  r A A · · · · ·
              A shop/web/app 1-2
              · shared  r reserved  i isolated

            Under the other configuration:
            NumaNode 0 (Package 0): 8 CPUs 0-7
                 0  r r A A · · · ·
              A shop/web/app 2-3
              · shared  r reserved  i isolated

             KEY           IS   WOULD BE
             reservedCpus  "0"  "0-1"

             CONTAINER     OWN CPUS    CPUS        MEMS
             shop/web/app  1-2 -> 2-3  1-2 -> 2-3  0
        "#]]
        .assert_eq(&render(&topology, &now, Some(&what_if), false));
        expect![[r#"
            NumaNode 0 (Package 0): 8 CPUs 0-7
                 0  r A A · · · · ·
              A shop/web/app 1-2
              · shared  r reserved  i isolated
        "#]]
        .assert_eq(&render(&topology, &now, None, false));
    }
}
