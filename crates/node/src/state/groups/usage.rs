//! Groups with sizes that follow measured CPU time. In: what containers have used since the last look. Out: groups of other sizes.

use std::collections::BTreeMap;

use bayplan_allocator::ContainerId;
use bayplan_types::MilliCpu;
use jiff::Timestamp;

use crate::event::{Answer, Step};
use crate::groups::{Followed, Size};
use crate::state::NodeState;

impl NodeState {
    /// Containers have used so much CPU time, by the runtime's ids.
    pub(crate) fn containers_used(
        &mut self,
        used: &BTreeMap<String, MilliCpu>,
        now: Timestamp,
    ) -> Step {
        let mut step = Step::new(Answer::Done);
        if self.known.is_partial() || self.is_restored() {
            return step;
        }
        let groups: Vec<ContainerId> = self.groups.instances.keys().copied().collect();
        for group in groups {
            if self.follow(group, used, now).unwrap_or(false) {
                self.settle_group(group, &mut step);
            }
        }
        step
    }

    /// One look at a group; `None` where it follows nothing, or nothing is known of its members.
    fn follow(
        &mut self,
        group: ContainerId,
        used: &BTreeMap<String, MilliCpu>,
        now: Timestamp,
    ) -> Option<bool> {
        let kind = self.groups.kind_of(group)?;
        let follow = kind.follows?;
        let Size::Requests { max, .. } = kind.size else { return None };
        let mut of_members = used.iter().filter_map(|(id, used)| {
            let id = self.containers.id_of(id)?;
            (self.groups.members.get(&id)?.group == group).then_some(*used)
        });
        let first = of_members.next()?;
        let used = of_members.fold(first, |sum, used| sum + used);
        let least = self.groups.requested_cpus(group)?;
        let has = self.ledger.group_cpus(group).len();
        let mut followed: Followed = self.groups.followed.remove(&group).unwrap_or_default();
        let is_other = followed.step(&follow, (used, has), (least, max), now);
        self.groups.followed.insert(group, followed);
        Some(is_other)
    }
}
