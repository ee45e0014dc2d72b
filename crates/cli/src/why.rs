//! `bayplan why`.

use bayplan_daemon::{WhyView, query_control, render_why};

use crate::args::{ExplainOptions, Output};
use crate::control::control_socket;
use crate::explain::{encode, remembered};
use crate::node_config::NodeConfig;
use crate::visible::{print_json, visible};

/// Asks the daemon, or for a container that it does not remember the history, and prints the causes.
pub(crate) fn run(config: &NodeConfig, options: &ExplainOptions) -> anyhow::Result<()> {
    let socket = control_socket(config, &options.control)?;
    let path = format!("/api/v1/why?name={}", encode(&options.name));
    let asked = query_control::<Vec<WhyView>>(&socket, &path);
    let mut found = tokio::runtime::Runtime::new()?.block_on(asked)?;
    if found.is_empty() {
        found = vec![WhyView::of_gone(remembered(config, options)?.explanation)];
    }
    match options.output.output {
        Output::Text => out!("{}", render(&found))?,
        Output::Json => print_json(&found)?,
    }
    Ok(())
}

/// A blank line between two containers.
fn render(found: &[WhyView]) -> String {
    let texts: Vec<String> = found.iter().map(render_why).collect();
    visible(&texts.join("\n"))
}
