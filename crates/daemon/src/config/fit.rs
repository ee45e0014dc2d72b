//! Whether a configuration can be used on a machine. In: what a file says, and the machine. Out: every mistake with its line and column.
//!
//! `bayplan run`, a reload and `bayplan config check` all ask here, so that what one of them takes the others take, too.

use std::path::Path;

use bayplan_node::reconfigure::check_division;
use bayplan_topology::Topology;

use super::read::{ConfigError, ConfigErrors, ConfigFile};
use crate::socket::find_group;

impl ConfigFile {
    /// Checks what the machine must have.
    ///
    /// # Errors
    /// What it lacks; `path` is for messages only.
    pub fn check_on(&self, path: &Path, topology: &Topology) -> Result<(), ConfigErrors> {
        let mut errors = Vec::new();
        let mut wrong = |key: &str, message: String| {
            errors
                .push(ConfigError { at: self.place(key), message: format!("`{key}`: {message}") });
        };
        if let Err(error) = check_division(topology, &self.config.division()) {
            wrong("reservedCpus", error.to_string());
        }
        if let Err(error) = find_group(&self.config.control_group) {
            wrong("controlGroup", format!("{error:#}"));
        }
        ConfigErrors::none_of(path, errors)
    }
}
