//! What the rebalancer has turned, and what BestEffort containers get beside their place, as parts of the state.

use bayplan_allocator::{Allocation, ContainerId, NoHome};
use bayplan_types::{CpuClass, CpuSet, MilliCpu, NodeSet, QosClass};

use super::NodeState;
use crate::colocation::Colocation;
use crate::event::{Answer, Step};
use crate::turned::Turned;

impl NodeState {
    /// The answer is after which step files are as they are to be; nothing, where they are already.
    pub(crate) fn turn(&mut self, turned: Turned) -> Step {
        let is_new = self.turned != turned;
        let mut step = Step::new(Answer::Since(is_new.then_some(self.steps)));
        step.answers_after_plan = is_new;
        self.put_in_force(turned, &mut step);
        step
    }

    /// Where a container runs: of the CPUs of the pool that it was sent to, or else of those that the ledger gives it, those that it is not to leave.
    /// An exclusive container leaves none, and no container so many that too few are left for what it asks for, together with those that have only
    /// these.
    pub(crate) fn cpus_of(&self, id: ContainerId, allocation: &Allocation) -> CpuSet {
        match self.chosen_cpus(id) {
            Some(chosen) => chosen,
            None => self.with_loans(id, allocation, self.cpus_by_place(id, allocation)),
        }
    }

    fn cpus_by_place(&self, id: ContainerId, allocation: &Allocation) -> CpuSet {
        let cpus = self.ledger.cpus_of(allocation);
        let is_held = self.is_rebalance_paused || self.is_restored();
        let is_owner = allocation.class() == CpuClass::Exclusive;
        if is_held || is_owner || allocation.terms.preserve.cpus {
            return cpus;
        }
        let left = cpus.difference(&self.turned.left_by(id));
        if left == cpus {
            return cpus;
        }
        if let Some(elsewhere) = self.shared_elsewhere(id, allocation) {
            return elsewhere;
        }
        let is_enough = || self.asked_within(id, &left) <= MilliCpu::from_cpus(left.len());
        if !left.is_empty() && is_enough() { left } else { cpus }
    }

    /// What a container asks for together with all that have only CPUs of `left`, be it by their place or because they were to leave others before it
    /// was.
    pub(crate) fn asked_within(&self, id: ContainerId, left: &CpuSet) -> MilliCpu {
        let own = self.turned.first_leave(id);
        let is_within = |other: ContainerId, held: &Allocation| match self.turned.first_leave(other)
        {
            first if first.is_some() && first > own => false,
            _ => match self.asked_elsewhere(other, held) {
                Some((_, elsewhere)) => elsewhere.is_subset(left),
                None => {
                    let cpus = self.ledger.cpus_of(held);
                    cpus.difference(&self.turned.left_by(other)).is_subset(left)
                }
            },
        };
        let asked =
            self.ledger.allocations().filter(|(other, it)| *other == id || is_within(*other, it));
        asked.filter_map(|(_, it)| it.shared).fold(MilliCpu::ZERO, |all, it| all + it)
    }

    /// Memory nodes that a container has: those of its place, or of its home, as long as that is the one that was looked at for room.
    pub(crate) fn mems_of(&self, id: ContainerId, allocation: &Allocation) -> NodeSet {
        let is_held = self.is_rebalance_paused || self.is_restored();
        let agreed = if is_held { None } else { self.turned.home_agreed(id) };
        let home = agreed.filter(|agreed| self.home_of(id, allocation).as_ref() == Ok(*agreed));
        home.unwrap_or(&allocation.mems).clone()
    }

    /// Where its memory belongs as long as it runs where it does now.
    pub(crate) fn home_of(
        &self,
        id: ContainerId,
        allocation: &Allocation,
    ) -> Result<NodeSet, NoHome> {
        self.home_near(id, &self.cpus_of(id, allocation))
    }

    /// The same of a container that runs on these CPUs.
    pub(super) fn home_near(&self, id: ContainerId, cpus: &CpuSet) -> Result<NodeSet, NoHome> {
        let request = || Some(self.request(id, &self.containers.get(&id)?.spec).0);
        self.ledger.home_of(id, cpus, request)
    }

    /// What of it holds: nothing while the rebalancer is paused or everything is given back.
    pub(crate) fn turned_now(&self) -> Turned {
        match self.is_rebalance_paused || self.is_restored() {
            true => Turned::default(),
            false => self.turned.clone().only(|id| self.containers.contains(&id)),
        }
    }
}

/// What BestEffort containers get beside their place ([`crate::colocation`]).
impl NodeState {
    /// The answer is after which step it holds; nothing, where it does already. Only where loans change there is something to wait for: a budget is in files.
    pub(crate) fn colocate(&mut self, colocation: Colocation) -> Step {
        let is_new = self.colocation != colocation;
        let mut step = Step::new(Answer::Since(is_new.then_some(self.steps)));
        step.answers_after_plan = self.colocation.lent != colocation.lent;
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
            // What it left for another's sake does not come back as a loan.
            true => cpus.union(&self.lent_now().difference(&self.turned.left_by(id))),
            false => cpus,
        }
    }
}
