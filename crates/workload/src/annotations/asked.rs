//! What a container asks for: the value that all annotations fill.

use bayplan_allocator::Wishes;
use bayplan_types::NodeSet;

use super::affinity::Affinity;
use super::hints::Hints;
use super::tuning::Tuning;
use crate::resources::ExactRequests;

/// What a container asks for, all sources together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// About the split into exclusive and shared CPUs.
    pub prefer_shared_cpus: Option<bool>,
    /// A container owns the whole CPUs that it requests, whatever the QoS class of its pod, where it may use no more.
    pub owns_requested: bool,
    /// Each container has the QoS class that its own resources make.
    pub has_own_qos: bool,
    /// About the reserved CPUs.
    pub prefer_reserved_cpus: Option<bool>,
    /// Whether the pod said anything about isolated CPUs; if not, the configuration may.
    pub prefer_isolated_cpus: Option<bool>,
    /// The type of groups that it is to belong to.
    pub group: Option<String>,
    /// Everything that placement takes as it is. `place` is filled from `affinity` and `hints` by callers that know the others and the devices.
    pub wishes: Wishes,
    /// What a webhook says that the container requests, and in which annotation.
    pub requests: Option<(&'static str, ExactRequests)>,
    /// Which devices and mounts count.
    pub hints: Hints,
    /// NUMA nodes that Koordinator's scheduler has chosen.
    pub numa_nodes: NodeSet,
    /// Its relations to other containers.
    pub affinity: Vec<Affinity>,
    /// What it asks for beside its place.
    pub tuning: Tuning,
}
