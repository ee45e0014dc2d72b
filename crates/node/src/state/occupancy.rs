//! Which containers run where, as a value of its own. Nothing here changes anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_allocator::{Allocation, ContainerId, Part};
use bayplan_types::{CpuSet, NodeSet};

use super::NodeState;
use crate::container::{Container, Phase};
use crate::occupancy::{Occupancy, Occupant, OccupiedGroup, tuning_of};

impl NodeState {
    /// Which containers run where. Grows with the containers; asked for after something has changed, and not on kubelet's way.
    pub fn occupancy(&self) -> Occupancy {
        let pools = self.ledger.pools();
        let made = self.held_containers().filter_map(|(id, container, held)| {
            Some((container.full_name(), container.runtime_id.as_ref()?, id, container, held))
        });
        // An occupant is large, so the order is found before it is made.
        let mut made: Vec<_> = made.collect();
        made.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.cmp(b.1)));
        let mut shared = BTreeMap::new();
        let occupants = made.into_iter().map(|(name, runtime_id, id, container, held)| {
            let cpus = match self.plain_share(id) {
                Some(_) => {
                    let of_pool = shared.entry(held.pool);
                    CpuSet::clone(of_pool.or_insert_with(|| self.ledger.cpus_of(held)))
                }
                None => self.cpus_of(id, held),
            };
            self.occupant(id, (name, runtime_id.clone()), cpus, (container, held))
        });
        let occupants = occupants.collect();
        let groups = self.groups.instances.iter().map(|(id, it)| OccupiedGroup {
            name: it.name(),
            cpus: self.ledger.group_cpus(*id),
            cpu_class: self.groups.kind(&it.kind).and_then(|kind| kind.cpu_class.clone()),
        });
        Occupancy {
            groups: groups.collect(),
            occupants,
            reserved: pools.reserved().clone(),
            shared: self.ledger.free().clone(),
            is_restored: self.is_restored(),
            is_at_rest: self.is_at_rest(),
            is_rebalance_paused: self.is_rebalance_paused,
            turned: self.turned_now(),
            budget: self.budget_now(),
            lent: self.lent_now(),
            clock_classes: self.rules.wide_vectors.classes().collect(),
            clocks: self.clock_standings(),
            step: self.steps,
        }
    }

    /// The exclusive CPUs of one container, by the runtime's id; none where it is not managed.
    pub(super) fn exclusive_cpus(&self, runtime_id: &str) -> CpuSet {
        let id = self.containers.id_of(runtime_id);
        let held = id.and_then(|id| self.ledger.allocation(id));
        held.map(|it| it.exclusive.clone()).unwrap_or_default()
    }

    fn occupant(
        &self,
        id: ContainerId,
        (name, runtime_id): (String, String),
        cpus: CpuSet,
        (container, held): (&Container, &Allocation),
    ) -> Occupant {
        let tuning = tuning_of(&container.spec, &self.rules);
        let part = held.terms.part;
        Occupant {
            id,
            name,
            runtime_id,
            spec: Arc::clone(&container.spec),
            scheduling_class: self.scheduling_class_of(id, &tuning),
            tuning: Arc::new(tuning),
            class: held.class(),
            exclusive: held.exclusive.clone(),
            mems: match held.terms.preserve.memory {
                true => NodeSet::new(),
                false => self.mems_of(id, held),
            },
            home: self.home_near(id, &cpus),
            cpus,
            is_left_alone: held.terms.preserve.cpus,
            is_claimed: container.claim.is_pinned(),
            is_immovable: held.terms.is_immovable || part.runs_on_others(),
            may_share_elsewhere: held.may_share_elsewhere(),
            is_together: !matches!(part, Part::Alone | Part::Inside(_)),
            is_running: container.phase == Phase::Running,
        }
    }
}
