//! What a container asks for: the value that all annotations fill.

use bayplan_allocator::Wishes;

use super::affinity::Affinity;
use super::hints::Hints;
use super::tuning::Tuning;
use crate::resources::ExactRequests;

/// What a container asks for, all sources together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// About the split into exclusive and shared CPUs.
    pub prefer_shared_cpus: Option<bool>,
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
    /// Its relations to other containers.
    pub affinity: Vec<Affinity>,
    /// What it asks for beside its place.
    pub tuning: Tuning,
}
