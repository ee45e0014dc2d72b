//! Which containers run where, as a value of its own. Nothing here changes anything.

use std::sync::Arc;

use bayplan_allocator::Part;
use bayplan_types::NodeSet;

use super::NodeState;
use crate::occupancy::{Occupancy, Occupant, OccupiedGroup, tuning_of};

impl NodeState {
    /// Which containers run where. Grows with the containers; asked for after something has changed, and not on kubelet's way.
    pub fn occupancy(&self) -> Occupancy {
        let pools = self.ledger.pools();
        let mut occupants: Vec<Occupant> = self
            .containers
            .iter()
            .filter_map(|(id, container)| {
                let allocation = self.ledger.allocation(*id)?;
                let tuning = tuning_of(&container.spec, &self.rules);
                Some(Occupant {
                    id: *id,
                    name: container.full_name(),
                    runtime_id: container.runtime_id.clone()?,
                    spec: Arc::clone(&container.spec),
                    scheduling_class: self.scheduling_class_of(*id, &tuning),
                    tuning: Arc::new(tuning),
                    class: allocation.class(),
                    cpus: self.cpus_of(*id, allocation),
                    exclusive: allocation.exclusive.clone(),
                    mems: match allocation.terms.preserve.memory {
                        true => NodeSet::new(),
                        false => self.mems_of(*id, allocation),
                    },
                    home: self.home_of(*id, allocation),
                    is_left_alone: allocation.terms.preserve.cpus,
                    is_claimed: container.claim.is_pinned(),
                    is_immovable: allocation.terms.is_immovable
                        || allocation.terms.part.runs_on_others(),
                    may_share_elsewhere: allocation.may_share_elsewhere(),
                    is_together: !matches!(allocation.terms.part, Part::Alone | Part::Inside(_)),
                })
            })
            .collect();
        occupants.sort_by(|a, b| a.name.cmp(&b.name).then(a.runtime_id.cmp(&b.runtime_id)));
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
}
