//! The configuration at the edge: its file is read here, and what only a machine can tell of it is checked here.
//!
//! What it is, and what its text means, is in [`bayplan_config`].

use std::path::Path;
use std::sync::Arc;

use bayplan_allocator::policy::PoolsError;
use bayplan_node::reconfigure::check_division;
use bayplan_probes::CounterChoice;
use bayplan_topology::Topology;
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

pub use bayplan_config::*;

use crate::socket::find_group;

/// The configuration that holds now; it may be another one later.
pub(crate) type LiveConfig = watch::Receiver<Arc<Config>>;

/// What can be used of a file that may have mistakes.
#[derive(Debug, Default)]
pub struct UsableConfig {
    /// What it says where it can be understood, and defaults elsewhere.
    pub config: Config,
    /// Why it cannot be used as a whole: [`ConfigErrors`], or it cannot be read.
    pub problem: Option<anyhow::Error>,
}

/// Reads and parses a file. `None` reads [`CONFIG_PATH`], and gives the defaults when there is no such file.
///
/// # Errors
/// The file cannot be read, or [`ConfigErrors`].
pub fn read_config_file(path: Option<&Path>) -> anyhow::Result<ConfigFile> {
    let (path, is_named) = path.map_or((Path::new(CONFIG_PATH), false), |path| (path, true));
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(ConfigFile::parse(path, &text)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_named => {
            Ok(ConfigFile::default())
        }
        Err(error) => {
            Err(anyhow::Error::new(error).context(format!("cannot read {}", path.display())))
        }
    }
}

/// Reads as much of a file as can be understood, as [`ConfigFile::parse_usable`] does. Meant for what has to work when a file is broken, such
/// as finding the control socket of a daemon that runs under an earlier version of the file.
///
/// # Errors
/// A file that was named is not there or cannot be read. The usual one need not be.
pub fn read_usable_config(path: Option<&Path>) -> anyhow::Result<UsableConfig> {
    let read = path.unwrap_or(Path::new(CONFIG_PATH));
    match (std::fs::read_to_string(read), path) {
        (Ok(text), _) => {
            let (config, errors) = ConfigFile::parse_usable(read, &text);
            Ok(UsableConfig { config, problem: errors.map(anyhow::Error::new) })
        }
        (Err(error), None) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(UsableConfig::default())
        }
        (Err(error), _) => {
            let problem =
                anyhow::Error::new(error).context(format!("cannot read {}", read.display()));
            match path {
                Some(_) => Err(problem),
                None => Ok(UsableConfig { problem: Some(problem), ..UsableConfig::default() }),
            }
        }
    }
}

/// Checks what the machine must have. `bayplan run`, a reload and `bayplan config check` all ask here, so that what one of them takes the
/// others take, too.
///
/// # Errors
/// What it lacks, with line and column; `path` is for messages only.
pub fn check_config_on(
    file: &ConfigFile,
    path: &Path,
    topology: &Topology,
) -> Result<(), ConfigErrors> {
    let mut errors = Vec::new();
    let mut wrong = |key: &str, message: String| {
        errors.push(ConfigError { at: file.place(key), message: format!("`{key}`: {message}") });
    };
    if let Err(error) = check_division(topology, &file.config.division()) {
        let key = match &error {
            PoolsError::NothingAvailable { .. } => "availableCpus",
            _ => "reservedCpus",
        };
        wrong(key, error.to_string());
    }
    if let Err(error) = find_group(&file.config.control_group) {
        wrong("controlGroup", format!("{error:#}"));
    }
    if parse_filter(&file.config.log).is_none() {
        let log = &file.config.log;
        wrong(
            "log",
            format!(
                "`{log}` has a pattern that cannot be read; expected a regular expression as value of a field"
            ),
        );
    }
    ConfigErrors::none_of(path, errors)
}

/// The counters that are charged to containers, as the probes call them.
pub(crate) fn counter_choice(set: CounterSet) -> CounterChoice {
    match set {
        CounterSet::Auto => CounterChoice::Auto,
        CounterSet::Software => CounterChoice::Software,
        CounterSet::Off => CounterChoice::Off,
    }
}

/// What is logged; `None` for what is no filter.
pub fn parse_filter(text: &str) -> Option<EnvFilter> {
    // The library would take spaces for a part of a name.
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    parts.join(",").parse().ok().filter(|_| is_log_filter(text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pattern_that_cannot_be_read_is_a_mistake_of_the_filter() {
        for (text, is_one) in [
            ("info", true),
            ("bayplan_daemon[step{event=ended}]=debug,warn", true),
            ("info,[step{event=(}]=debug", false),
        ] {
            assert!(is_log_filter(text), "{text}");
            assert_eq!(parse_filter(text).is_some(), is_one, "{text}");
        }
    }

    proptest! {
        /// Without patterns there is nothing that the library could refuse of what the configuration takes.
        #[test]
        fn what_is_a_filter_to_the_configuration_is_one_to_the_library(
            text in "(info|bayplan_cri|h2|step|=|,|\\[|\\]|:| |5){0,8}"
        ) {
            prop_assert_eq!(is_log_filter(&text), parse_filter(&text).is_some(), "{:?}", text);
        }
    }
}
