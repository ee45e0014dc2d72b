//! Huge pages that others use. In: what is free, what containers use. Out: what of each node's pages can be set aside.
//!
//! Problem: a page belongs to the first process that maps it, so what is left of the machine's pages after those that are set aside may be in use by
//! processes that Bayplan does not manage. Approach: what is neither free nor used by a container that it was set aside for is taken. A container
//! with a use that the kernel does not tell is taken to use all that was set aside for it, once it runs.

use std::collections::BTreeMap;

use bayplan_types::{Bytes, HugeBytes};

/// Huge pages at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HugePagesNow {
    /// What no process has.
    pub free: HugeBytes,
    /// What containers use, by the runtime's id; those are missing of which the kernel does not tell.
    pub used: BTreeMap<String, HugeBytes>,
}

/// A container that has asked for huge pages, and where the kernel tells how many it uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HugePageUser {
    /// The runtime's id.
    pub runtime_id: String,
    /// The group of its pod, as kubelet names it.
    pub cgroup_parent: String,
    /// Sizes of pages that it has asked for.
    pub sizes: Vec<Bytes>,
}
