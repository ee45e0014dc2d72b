//! Huge pages that others use. In: what is free, what containers use. Out: what of each node's pages can be set aside.
//!
//! Problem: a page belongs to the first process that maps it, so what is left of the machine's pages after those that are set aside may be in use by
//! processes that Bayplan does not manage. Approach: what is neither free nor used by a container that it was set aside for is taken. A container
//! with a use that the kernel does not tell is taken to use all that was set aside for it, once it runs.

use std::collections::BTreeMap;

use bayplan_types::{Bytes, HugeBytes};

use crate::event::{Answer, Step};
use crate::state::{NodeState, Phase};

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

impl NodeState {
    /// The containers that have asked for huge pages and that the runtime has made.
    pub fn huge_page_users(&self) -> impl Iterator<Item = HugePageUser> {
        let asking = self.containers.values().filter(|it| !it.spec.huge_pages.is_empty());
        asking.filter_map(|it| {
            Some(HugePageUser {
                runtime_id: it.runtime_id.clone()?,
                cgroup_parent: it.spec.pod.cgroup_parent.clone(),
                sizes: it.spec.huge_pages.keys().copied().collect(),
            })
        })
    }

    /// From now on what others use is not free.
    pub(crate) fn huge_pages_read(&mut self, now: &HugePagesNow) -> Step {
        let mut left = now.free.clone();
        for (id, container) in &self.containers {
            let Some(held) = self.ledger.allocation(*id) else { continue };
            let used = container.runtime_id.as_ref().and_then(|id| now.used.get(id));
            for charge in &held.huge_charges {
                let key = (charge.node, charge.size);
                let own = match used {
                    Some(used) => used.get(&key).copied().unwrap_or_default().min(charge.bytes),
                    None if container.phase == Phase::Running => charge.bytes,
                    None => Bytes::ZERO,
                };
                if let Some(left) = left.get_mut(&key) {
                    *left += own;
                }
            }
        }
        self.ledger.limit_huge_pages(&left);
        Step::new(Answer::Done)
    }
}
