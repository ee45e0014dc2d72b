//! Where containers are to run, and the plan that brings them there.

use std::collections::BTreeMap;

use bayplan_allocator::{Allocation, ContainerId};
use bayplan_enforcement::{DesiredState, is_in_place};
use bayplan_types::{CpuSet, Pinning, QosClass};

use super::NodeState;
use super::affected::Affected;
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

    /// `affected`: what the step has happened to, if others cannot have been moved by it.
    pub(super) fn plan(&mut self, affected: Option<&Affected>, step: &mut Step) {
        // Giving all CPUs to every container takes none away.
        if self.known.is_partial() && !self.is_restored() {
            return;
        }
        let few = affected.and_then(|affected| self.moved_by(affected, &step.records));
        let wanted = match few {
            Some(few) => few.into_iter().filter_map(|it| self.if_out_of_place(it)).collect(),
            None => self.all_out_of_place(),
        };
        debug_assert_eq!(wanted, self.all_out_of_place());
        step.plan = self.told.plan(&wanted);
        for write in &step.plan.writes {
            self.note_rewritten(&write.container);
        }
    }

    /// Containers that are not where they were told to be last, by the runtime's ids, with where they are to run.
    ///
    /// Most containers share the CPUs of a few pools: what a pool shares is found once.
    pub(crate) fn out_of_place(&self) -> impl Iterator<Item = (&String, Pinning)> {
        let mut told = self.told.last().iter().peekable();
        let mut shared = BTreeMap::new();
        self.containers.by_runtime_id().iter().filter_map(move |(runtime_id, id)| {
            // Both are in the order of the runtime's ids.
            while told.next_if(|(other, _)| *other < runtime_id).is_some() {}
            let told = told.next_if(|(other, _)| *other == runtime_id).map(|(_, told)| told);
            let wanted = match self.plain_share(*id) {
                Some(held) => {
                    let cpus: &CpuSet =
                        shared.entry(held.pool).or_insert_with(|| self.ledger.cpus_of(held));
                    if told.is_some_and(|told| told.cpus == *cpus && told.mems == held.mems) {
                        return None;
                    }
                    Pinning { cpus: cpus.clone(), mems: held.mems.clone() }
                }
                None => self.pinning(*id)?,
            };
            (!is_in_place(told, &wanted)).then_some((runtime_id, wanted))
        })
    }

    pub(crate) fn are_all_in_place(&self) -> bool {
        let is_none_out = || self.out_of_place().next().is_none();
        debug_assert!(!self.told.is_current() || is_none_out());
        self.told.is_current() || is_none_out()
    }

    fn all_out_of_place(&self) -> DesiredState {
        self.out_of_place().map(|(runtime_id, wanted)| (runtime_id.clone(), wanted)).collect()
    }

    fn if_out_of_place(&self, runtime_id: &str) -> Option<(String, Pinning)> {
        let wanted = self.pinning(self.containers.id_of(runtime_id)?)?;
        let is_told = is_in_place(self.told.get(runtime_id), &wanted);
        (!is_told).then(|| (runtime_id.to_owned(), wanted))
    }

    /// What a container holds, if it runs on the shared CPUs of its pool and has the memory nodes of its place: nothing but the ledger says where.
    pub(super) fn plain_share(&self, id: ContainerId) -> Option<&Allocation> {
        let held = self.ledger.allocation(id).filter(|held| held.only_shares())?;
        let preserve = held.terms.preserve;
        let container = self.containers.get(&id).filter(|it| it.claim.cpus.is_empty())?;
        let borrows = || {
            let may_borrow = container.spec.pod.qos == Some(QosClass::BestEffort);
            may_borrow && !self.colocation.lent.is_empty()
        };
        let is_plain = !preserve.cpus && !preserve.memory && !self.is_restored();
        (is_plain && !self.turned.is_about(id) && !borrows()).then_some(held)
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
