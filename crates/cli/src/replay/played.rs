//! What goes into a replay and what comes of it: values only.

use bayplan_allocator::policy::Policy;
use bayplan_config::{Config, parse_config};
use bayplan_topology::Topology;
use jiff::Timestamp;

use crate::replay::story::{Fate, Story};

/// What is to be different; `None`: as it was.
#[derive(Debug, Default)]
pub(crate) struct Setting {
    pub(crate) config: Option<Config>,
    /// Beside the configuration, whichever that is.
    pub(crate) policy: Option<Policy>,
    pub(crate) topology: Option<Topology>,
}

impl Setting {
    /// Nothing is.
    pub(crate) fn is_as_it_was(&self) -> bool {
        self.config.is_none() && self.policy.is_none() && self.topology.is_none()
    }

    /// The configuration that is to hold where this one held.
    pub(crate) fn config(&self, recorded: &Config) -> Config {
        let config = self.config.clone().unwrap_or_else(|| recorded.clone());
        let policy = self.policy.unwrap_or(config.policy);
        Config { policy, ..config }
    }
}

/// A container that came, or was resized.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Timestamp,
    /// `namespace/pod/container`.
    pub(crate) name: String,
    pub(crate) was: Fate,
    pub(crate) would: Fate,
}

/// A change of group types that cannot be had in the replay, where containers are elsewhere than they were: the earlier types hold until the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedChange {
    pub(crate) at: Timestamp,
    /// What cannot be had, each in words.
    pub(crate) lacking: Vec<String>,
}

/// A history that was played.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) was: Story,
    pub(crate) would: Story,
    pub(crate) arrivals: Vec<Arrival>,
    /// Configuration and machine with which it begins, as they were and as they are to be.
    pub(crate) recorded: (Config, Topology),
    pub(crate) replayed: (Config, Topology),
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    /// Entries that were played.
    pub(crate) entries: usize,
    /// Entries before the first that says where all containers are.
    pub(crate) skipped: usize,
    /// Times that the machine became another.
    pub(crate) machines: usize,
    /// Changes of the configuration that the replay refused.
    pub(crate) refused_changes: Vec<RefusedChange>,
    /// Writes that failed, and times that the runtime was lost: the replay knows nothing of what followed.
    pub(crate) failures: usize,
}

/// A configuration as an entry of the history has it.
///
/// # Errors
/// It has mistakes: another version wrote it.
pub(crate) fn recorded_config(text: &str) -> anyhow::Result<Config> {
    let path = std::path::Path::new("the configuration in the history");
    Ok(parse_config(path, text)?)
}

/// Whether a daemon of this configuration tells when it finds the node at rest.
pub(crate) fn tells_looks(config: &Config) -> bool {
    config.compaction.enabled || config.narrows_memory
}
