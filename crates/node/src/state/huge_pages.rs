//! Which containers have asked for huge pages, and what of the machine's pages is left for others.

use bayplan_types::Bytes;

use super::NodeState;
use crate::container::Phase;
use crate::event::{Answer, Step};
use crate::huge_pages::{HugePageUser, HugePagesNow};

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
