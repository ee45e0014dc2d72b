//! What BestEffort containers get beside their place: a budget of CPU time, and CPUs that exclusive containers lend. In: what the daemon has found by measuring. Out: a part of the state, which
//! occupancy and CPU sets follow.
//!
//! The ledger knows nothing of it: a CPU that is lent is its holder's. So whatever the ledger does with that CPU ends the loan, and a container that is placed anew counts on none. It is not in
//! the journal: after a restart nothing is lent until it is found anew.

use std::collections::BTreeMap;

use bayplan_allocator::{Allocation, ContainerId};
use bayplan_types::{CpuClass, CpuSet, MilliCpu, QosClass};

use crate::event::{Answer, Step};
use crate::state::NodeState;

/// What is found by measuring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Colocation {
    /// CPU time that BestEffort containers have together; `None`: as much as they get.
    pub budget: Option<MilliCpu>,
    /// CPUs that containers lend to them.
    pub lent: BTreeMap<ContainerId, CpuSet>,
}

impl NodeState {
    /// The answer is after which step it holds; nothing, where it does already.
    pub(crate) fn colocate(&mut self, colocation: Colocation) -> Step {
        let is_new = self.colocation != colocation;
        let mut step = Step::new(Answer::Since(is_new.then_some(self.steps)));
        step.answers_after_plan = is_new;
        self.colocation = colocation;
        step
    }

    /// What of the budget holds: nothing while the rebalancer is paused or everything is given back.
    pub(crate) fn budget_now(&self) -> Option<MilliCpu> {
        self.colocation.budget.filter(|_| !self.is_rebalance_paused && !self.is_restored())
    }

    /// CPUs that are lent: of each holder, those that are still its own.
    pub(crate) fn lent_now(&self) -> CpuSet {
        if self.colocation.lent.is_empty() || self.is_rebalance_paused || self.is_restored() {
            return CpuSet::new();
        }
        let own = self.colocation.lent.iter().filter_map(|(id, lent)| {
            Some(self.ledger.allocation(*id)?.exclusive.intersection(lent))
        });
        own.fold(CpuSet::new(), |all, cpus| all.union(&cpus))
    }

    /// The CPUs of a container with those that are lent, if it may borrow: BestEffort, on shared CPUs that are Bayplan's to say.
    pub(crate) fn with_loans(
        &self,
        id: ContainerId,
        allocation: &Allocation,
        cpus: CpuSet,
    ) -> CpuSet {
        if self.colocation.lent.is_empty() || cpus.is_empty() {
            return cpus;
        }
        let qos = self.containers.get(&id).and_then(|it| it.spec.pod.qos);
        let is_free = allocation.class() == CpuClass::Shared && !allocation.terms.preserve.cpus;
        match qos == Some(QosClass::BestEffort) && is_free {
            true => cpus.union(&self.lent_now()),
            false => cpus,
        }
    }
}
