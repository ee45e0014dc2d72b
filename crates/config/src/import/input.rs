//! What is imported, for which node, and why nothing can be.

use bayplan_topology::Topology;

use crate::yaml::Position;

/// A file to import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The text of a file with YAML documents, and its name in messages.
    Text {
        /// The name.
        name: String,
        /// What the file holds.
        text: String,
    },
    /// The directory of CMK (`/etc/cmk`): paths below it, each with what the file there holds.
    CmkDirectory {
        /// The name.
        name: String,
        /// `pools/exclusive/0/4,12/tasks` and so on; a directory without files has a path that ends in a slash.
        entries: Vec<(String, String)>,
    },
}

/// The node that the configuration is for. What is not known leaves keys without counterpart that need it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Target<'a> {
    /// The node's name: its own ConfigMap or custom resource goes before that of its group, and that before the default one.
    pub node: Option<&'a str>,
    /// The node's group, as its label names it.
    pub group: Option<&'a str>,
    /// The machine, for amounts of CPUs that have to become lists.
    pub machine: Option<&'a Topology>,
    /// Keys of ours that are not to be written, because they are not carried out yet (`REFUSED`). What has no counterpart but them has none.
    pub refused: &'a [&'a str],
    /// Keys of ours that only a node's own file may have, where the configuration is for the cluster.
    pub node_keys: &'a [&'a str],
}

/// For messages.
const KNOWN: &str = "TopologyAwarePolicy and BalloonsPolicy of nri-plugins, the file and the ConfigMaps of CRI Resource Manager, the directory and the ConfigMap \
     of CMK, KubeletConfiguration, NodeSLO and slo-controller-config of Koordinator, and the resources of Kubernetes Power Manager";

/// Why there is nothing to import.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// A document that is no YAML.
    #[error("{file}:{}:{}: {message}", at.line, at.column)]
    Syntax {
        /// The file.
        file: String,
        /// Where in it.
        at: Position,
        /// What the parser says.
        message: String,
    },
    /// Nothing in the files is a configuration of a system that is known.
    #[error(
        "{files}: no configuration that `bayplan import` knows; it reads {known}",
        known = KNOWN
    )]
    NothingKnown {
        /// Their names.
        files: String,
    },
}

impl Input {
    pub(super) fn name(&self) -> &str {
        match self {
            Input::Text { name, .. } | Input::CmkDirectory { name, .. } => name,
        }
    }
}
