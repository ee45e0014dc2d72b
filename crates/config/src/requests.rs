//! The section `requests`: what holds for containers of pods that say nothing themselves.
//!
//! Kubelet's options and those of nri-plugins have the meaning that they have there, in the spelling of this file or in theirs. What they
//! ask for is either done, or refused with a reason: an option that does nothing would be believed. Which exclude each other: `exclusions.rs`.

use bayplan_allocator::{Packing, Preserve, Siblings, Strictness, Wishes, Within};
use bayplan_topology::Level;
use bayplan_types::CpuPriority;
use bayplan_workload::annotations::{Condition, Words};
use bayplan_workload::{Amplification, RequestRules};

pub(crate) mod trees;

/// The options as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Shared CPUs only.
    pub prefer_shared_cpus: bool,
    /// Containers of Burstable pods have the QoS class that their own resources make.
    pub qos_per_container: bool,
    /// A container that gets a single CPU of its own prefers an isolated one.
    pub prefer_isolated_cpus: bool,
    /// What becomes of the other threads of a core of which only some are owned.
    pub siblings: Siblings,
    /// Exclusive CPUs of this priority, if there are any.
    pub priority: Option<CpuPriority>,
    /// Where containers without a CPU limit run.
    pub burst_level: Option<Level>,
    /// Containers of a pod want to be near each other.
    pub colocate_pods: bool,
    /// Containers of a namespace want to be near each other.
    pub colocate_namespaces: bool,
    /// Exclusive CPUs are whole cores.
    pub only_whole_cores: bool,
    /// As many CPUs of every NUMA node.
    pub across_numa: bool,
    /// One thread per core.
    pub across_cores: bool,
    /// [`TopologyPolicy::Restricted`] is about packages.
    pub by_socket: bool,
    /// How strictly NUMA nodes bound a request.
    pub policy: TopologyPolicy,
    /// The policy is about whole pods.
    pub is_for_pods: bool,
    /// CPUs and memory nodes of containers stay as the runtime made them.
    pub preserve: Preserve,
    /// The same for containers for which one of these holds.
    pub preserved: Vec<Condition>,
    /// Exclusive CPUs as equal parts of several NUMA nodes, and on the one with most room.
    pub numa_strategy: (bool, bool),
    /// Other threads of cores of Koordinator's LSE pods are used.
    pub lse_uses_siblings: bool,
    /// What a scheduler counts a CPU as.
    pub amplification: Amplification,
}

/// Kubelet's `topologyManagerPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopologyPolicy {
    /// As the next: fewest NUMA nodes first is the order of every score.
    None,
    /// The fewest NUMA nodes that there is room in.
    #[default]
    BestEffort,
    /// No more NUMA nodes than on an empty machine.
    Restricted,
    /// One NUMA node.
    SingleNumaNode,
}

pub(super) const POLICIES: &Words<TopologyPolicy> = &[
    ("none", TopologyPolicy::None),
    ("best-effort", TopologyPolicy::BestEffort),
    ("restricted", TopologyPolicy::Restricted),
    ("single-numa-node", TopologyPolicy::SingleNumaNode),
];

/// Whether something is set; what is kept is whether it is left alone.
pub(super) const PINS: &Words<bool> = &[("true", false), ("false", true)];

pub(super) const SCOPES: &Words<bool> = &[("container", false), ("pod", true)];

impl Requests {
    /// What they mean, together with the namespaces of reserved CPUs.
    pub fn rules(&self, reserved_namespaces: &[String]) -> RequestRules {
        let mut wishes = Wishes::default();
        wishes.cpus.siblings = self.siblings;
        wishes.cpus.priority = self.priority.map(|priority| (priority, Strictness::Preferred));
        wishes.cpus.only_whole_cores = self.only_whole_cores;
        wishes.cpus.is_even = self.across_numa || self.numa_strategy.0;
        wishes.place.is_balanced = self.numa_strategy.1;
        wishes.cpus.packing = if self.across_cores { Packing::Spread } else { Packing::Packed };
        wishes.cpus.within = match (self.policy, self.by_socket) {
            (TopologyPolicy::None | TopologyPolicy::BestEffort, _) => None,
            // Kubelet's align-by-socket: packages are to be few, not NUMA nodes.
            (TopologyPolicy::Restricted, true) => Some(Within::Fewest(Level::Package)),
            (TopologyPolicy::Restricted, false) => Some(Within::Fewest(Level::NumaNode)),
            (TopologyPolicy::SingleNumaNode, _) => Some(Within::One(Level::NumaNode)),
        };
        wishes.place.burst_level = self.burst_level;
        wishes.pod.is_one = self.is_for_pods;
        RequestRules {
            reserved_namespaces: reserved_namespaces.to_vec(),
            prefer_shared_cpus: self.prefer_shared_cpus,
            has_own_qos: self.qos_per_container,
            prefer_isolated_cpus: self.prefer_isolated_cpus,
            colocate_pods: self.colocate_pods,
            colocate_namespaces: self.colocate_namespaces,
            wishes,
            preserve: self.preserve,
            preserved: self.preserved.clone(),
            lse_uses_siblings: self.lse_uses_siblings,
            amplification: self.amplification,
            ..RequestRules::default()
        }
    }
}
