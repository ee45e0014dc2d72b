//! The ways of giving CPUs to containers that are compared. Pure.

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::machine::Machine;

/// How a node is set up. All have the same containerd, kubelet and programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Configuration {
    /// Kubelet's defaults: the scheduler of the kernel decides.
    NoPinning,
    /// The same once more. Figures that differ from those of [`Self::NoPinning`] are noise.
    Control,
    /// Kubelet's static CPU manager.
    Static,
    /// With topology manager, `single-numa-node`.
    StaticTopology,
    /// With `full-pcpus-only`.
    StaticFullCores,
    /// Bayplan between kubelet and containerd.
    Proxy,
    /// Bayplan as an NRI plugin of containerd.
    Nri,
    /// Another CRI proxy, such as CRI-RM, by a command that is given.
    GivenProxy,
    /// Another NRI plugin, such as one of nri-plugins, by a command that is given.
    GivenPlugin,
}

/// Commands of the shell for other systems. They find the paths of their sockets in `RUNTIME`, `SOCKET` and `NRI`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Given {
    pub(crate) proxy: Option<String>,
    pub(crate) plugin: Option<String>,
}

use Configuration::{
    Control, GivenPlugin, GivenProxy, NoPinning, Nri, Proxy, Static, StaticFullCores,
    StaticTopology,
};

/// In the order of tables.
pub(crate) const CONFIGURATIONS: [Configuration; 9] = [
    NoPinning,
    Control,
    Static,
    StaticTopology,
    StaticFullCores,
    GivenProxy,
    GivenPlugin,
    Proxy,
    Nri,
];

impl Configuration {
    /// As on the command line and in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            NoPinning => "default",
            Control => "control",
            Static => "static",
            StaticTopology => "static-topology",
            StaticFullCores => "static-full-cores",
            Proxy => "bayplan",
            Nri => "bayplan-nri",
            GivenProxy => "proxy",
            GivenPlugin => "plugin",
        }
    }

    /// As in tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            NoPinning => "kubelet defaults",
            Control => "kubelet defaults again (control)",
            Static => "kubelet's static CPU manager",
            StaticTopology => "static CPU manager, topology manager",
            StaticFullCores => "static CPU manager, full-pcpus-only",
            Proxy => "Bayplan (CRI proxy)",
            Nri => "Bayplan (NRI plugin)",
            GivenProxy => "the CRI proxy that was given",
            GivenPlugin => "the NRI plugin that was given",
        }
    }

    pub(crate) fn by_name(name: &str) -> Option<Configuration> {
        CONFIGURATIONS.into_iter().find(|it| it.name() == name)
    }

    pub(crate) fn is_bayplan(self) -> bool {
        matches!(self, Proxy | Nri)
    }

    /// CRI-RM's annotations have an effect.
    pub(crate) fn reads_annotations(self) -> bool {
        matches!(self, Proxy | Nri | GivenProxy | GivenPlugin)
    }

    /// Kubelet does the pinning.
    pub(crate) fn is_static(self) -> bool {
        matches!(self, Static | StaticTopology | StaticFullCores)
    }

    /// Why it shows nothing on this machine.
    pub(crate) fn left_out(self, machine: &Machine, given: &Given) -> Option<&'static str> {
        match self {
            StaticTopology if machine.numa_nodes < 2 => {
                Some("one NUMA node: the topology manager has nothing to align")
            }
            StaticFullCores if machine.threads_per_core < 2 => {
                Some("one thread per core: whole cores are CPUs")
            }
            GivenProxy if given.proxy.is_none() => {
                Some("no --proxy COMMAND, as for CRI-RM, was given")
            }
            GivenPlugin if given.plugin.is_none() => {
                Some("no --plugin COMMAND, as for nri-plugins, was given")
            }
            _ => None,
        }
    }

    /// What it adds to kubelet's configuration.
    pub(crate) fn kubelet_options(self) -> Json {
        match self {
            NoPinning | Control | Proxy | Nri | GivenProxy | GivenPlugin => {
                json!({ "cpuManagerPolicy": "none", "memoryManagerPolicy": "None" })
            }
            Static => json!({ "cpuManagerPolicy": "static" }),
            StaticTopology => json!({
                "cpuManagerPolicy": "static",
                "topologyManagerPolicy": "single-numa-node",
            }),
            StaticFullCores => json!({
                "cpuManagerPolicy": "static",
                "cpuManagerPolicyOptions": { "full-pcpus-only": "true" },
            }),
        }
    }
}
