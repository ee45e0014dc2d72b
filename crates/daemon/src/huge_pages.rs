//! Huge pages that others use. In: what is free, what containers use. Out: what of each node's pages can be set aside.
//!
//! Problem: a page belongs to the first process that maps it, so what is left of the machine's pages after those that are set aside may be in use by processes that Bayplan does not manage. Approach: what is
//! neither free nor used by a container that it was set aside for is taken. A container whose use the kernel does not tell is taken to use all that was set aside for it, once it runs.

use std::collections::BTreeMap;
use std::path::Path;

use bayplan_host::kernel::DiskKernel;
use bayplan_host::{HugeBytes, read_free_huge_pages, read_used_huge_pages};
use bayplan_types::Bytes;

use crate::event::{Answer, Step};
use crate::occupancy::Occupancy;
use crate::state::{NodeState, Phase};

/// Huge pages at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HugePagesNow {
    /// What no process has.
    pub free: HugeBytes,
    /// What containers use, by the runtime's id; those are missing of which the kernel does not tell.
    pub used: BTreeMap<String, HugeBytes>,
}

/// Reads them; of the containers only those that have asked for some are looked for.
pub(crate) fn read_huge_pages(root: &Path, occupancy: &Occupancy) -> HugePagesNow {
    let Ok(mut kernel) = DiskKernel::open(root) else { return HugePagesNow::default() };
    let free = read_free_huge_pages(&mut kernel);
    let asking = occupancy.occupants.iter().filter(|it| !it.spec.huge_pages.is_empty());
    let used = asking.filter_map(|it| {
        let sizes: Vec<Bytes> = it.spec.huge_pages.keys().copied().collect();
        let parent = &it.spec.pod.cgroup_parent;
        let used = read_used_huge_pages(&mut kernel, parent, &it.runtime_id, &sizes)?;
        Some((it.runtime_id.clone(), used))
    });
    HugePagesNow { used: used.collect(), free }
}

impl NodeState {
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
