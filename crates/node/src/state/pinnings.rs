//! Where containers are to run, and the plan that brings them there.

use bayplan_allocator::ContainerId;
use bayplan_enforcement::{DesiredState, plan_pinnings};
use bayplan_types::Pinning;

use super::NodeState;
use crate::event::Step;
use crate::record::Record;

impl NodeState {
    /// A container that was told of CPUs that have found an owner since must not be started there.
    pub(super) fn corrects_new(&self, step: &Step) -> bool {
        step.records.iter().any(|record| match record {
            Record::Created { runtime_id, .. } => {
                step.plan.writes.iter().any(|write| write.container == *runtime_id)
            }
            _ => false,
        })
    }

    pub(super) fn plan(&mut self, step: &mut Step) {
        // Giving all CPUs to every container takes none away.
        if self.known.is_partial() && !self.is_restored() {
            return;
        }
        step.plan = plan_pinnings(&self.desired(), &self.observed);
        for write in &step.plan.writes {
            self.note_rewritten(&write.container);
            // After a failure, and until an update succeeds, that is what it had before the first that failed.
            let had = self.held.get(&write.container).or(write.old.as_ref());
            if let Some(had) = had.filter(|had| !had.cpus.is_empty()) {
                self.before.insert(write.container.clone(), had.clone());
            }
            self.observed.insert(write.container.clone(), write.new.clone());
        }
    }

    pub(crate) fn desired(&self) -> DesiredState {
        let pairs = self.by_runtime_id.iter();
        pairs.filter_map(|(id, key)| Some((id.clone(), self.pinning(*key)?))).collect()
    }

    /// Where it is to run, as far as that is bayplan's to say: what is left alone is empty.
    pub(crate) fn pinning(&self, id: ContainerId) -> Option<Pinning> {
        let allocation = self.ledger.allocation(id)?;
        let preserve = allocation.terms.preserve;
        let Pinning { cpus, mems } = match self.is_restored() {
            true => self.everywhere(),
            false => {
                let (cpus, mems) = (self.cpus_of(id, allocation), self.mems_of(id, allocation));
                Pinning { cpus, mems }
            }
        };
        let is_pinned = self.containers.get(&id).is_some_and(|it| it.claim.is_pinned());
        let cpus = (!preserve.cpus || is_pinned).then_some(cpus);
        let mems = (!preserve.memory).then_some(mems);
        Some(Pinning { cpus: cpus.unwrap_or_default(), mems: mems.unwrap_or_default() })
    }
}
