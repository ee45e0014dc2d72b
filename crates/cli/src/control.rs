//! The daemon's control socket, as commands find it.

use std::path::PathBuf;

use crate::args::ControlOptions;
use crate::node_config::NodeConfig;

/// Where the daemon listens for commands. Of the configuration only that key has to be right.
pub(crate) fn control_socket(
    config: &NodeConfig,
    options: &ControlOptions,
) -> anyhow::Result<PathBuf> {
    match &options.control {
        Some(socket) => Ok(socket.clone()),
        None => Ok(config.usable()?.control_socket.clone()),
    }
}
