//! Arguments of `bayplan import`.

use std::path::PathBuf;

use clap::Args;

use super::shared::{ControlOptions, MachineOptions};

/// For `--help`.
pub(super) const IMPORT_HELP: &str = "\
Read are: TopologyAwarePolicy and BalloonsPolicy of nri-plugins; the file and the ConfigMaps of CRI Resource Manager, with every policy;
the directory and the ConfigMap of CMK; KubeletConfiguration; NodeSLO and slo-controller-config of Koordinator; PowerProfile, PowerWorkload,
CStates, TimeOfDay and Uncore of Kubernetes Power Manager. Several files become one configuration; of two that say the same key, the
first decides. Objects in the cluster: kubectl get balloonspolicies.config.nri -n kube-system -o yaml | bayplan import -

Above each key of the output stands the one that it came from. At the end are the keys that need none here, those without counterpart
with the reason, and how many there are of each.";

/// `bayplan import`.
#[derive(Debug, Args)]
pub(crate) struct ImportOptions {
    /// Files of other systems, directories of CMK such as /etc/cmk, or - for standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Write the configuration into this new file, and print what became of each key
    #[arg(short, long, value_name = "FILE", conflicts_with = "check")]
    pub(crate) output: Option<PathBuf>,
    /// Write nothing; ask the daemon what would differ for the pods on this node now
    #[arg(long)]
    pub(crate) check: bool,
    /// This node's name, which chooses among configurations for several nodes
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// This node's group, as its label names it
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
    #[command(flatten)]
    pub(crate) control: ControlOptions,
}
