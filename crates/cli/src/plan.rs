//! `bayplan plan`.

use bayplan_daemon::{FilePlanView, query_control, render_file_plan_view};

use crate::args::{Output, StatusOptions};
use crate::control::control_socket;
use crate::node_config::NodeConfig;
use crate::visible::print_json;

/// Asks the daemon what it would write into kernel files.
pub(crate) fn run(config: &NodeConfig, options: &StatusOptions) -> anyhow::Result<()> {
    let socket = control_socket(config, &options.control)?;
    let asked = query_control::<FilePlanView>(&socket, "/api/v1/plan");
    let view = tokio::runtime::Runtime::new()?.block_on(asked)?;
    match options.output.output {
        Output::Text => out!("{}", render_file_plan_view(&view))?,
        Output::Json => print_json(&view)?,
    }
    Ok(())
}
