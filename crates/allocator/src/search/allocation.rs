//! The allocation in the pool that won. In: a candidate. Out: CPUs and memory, or why they are not to be had there after all.

use bayplan_topology::Level;
use bayplan_types::CpuSet;

use super::{Candidate, Search};
use crate::allocation::Allocation;
use crate::company::Company;
use crate::domain::around;
use crate::eligible::{Picked, check_picked, eligible_on_machine};
use crate::pick::choose::choose;
use crate::pool::Pool;
use crate::requirement::Requirement;
use crate::score::Rejection;
use crate::wishes::{Siblings, Within};

impl<'q> Search<'q, '_> {
    /// The allocation in the pool that won.
    ///
    /// # Errors
    /// A [`Rejection`] when the memory is not to be had near the CPUs that were picked, or these lie too far apart.
    pub(crate) fn allocation(
        &self,
        pool: &Pool,
        winner: &Candidate<'q>,
    ) -> Result<Allocation, Rejection> {
        let request = self.request;
        let picked = self.picker(winner).map(|picker| picker.pick(pool.id)).unwrap_or_default();
        let (exclusive, idle) = self.exclusive_and_idle(picked);
        let (needed, free) = (request.demand.exclusive(), exclusive.len());
        if free < needed {
            let required = Requirement::all(&request.wishes.cpus).collect();
            return Err(Rejection::TooFewCpus { needed, free, most: needed, required });
        }
        let picked = Picked { exclusive: &exclusive, kept: &self.question.kept, idle: &idle };
        check_picked(self.ledger, request, &picked).map_err(Rejection::Unmet)?;
        self.check_fewest(&exclusive)?;
        let held = Allocation {
            exclusive,
            idle,
            shared: request.demand.shared(),
            terms: request.terms(),
            ..Allocation::new(pool.id)
        };
        Ok(self.question.memory.grant_near(&held)?.give_to(held))
    }

    /// Where the fewest NUMA nodes or packages are required: whether these CPUs, and those of the pod where it has to lie together, are in
    /// as few as the CPUs that meet all requirements allow on an empty machine. A pod that is already in more may stay in those.
    fn check_fewest(&self, exclusive: &CpuSet) -> Result<(), Rejection> {
        let Some(Within::Fewest(level)) = self.request.wishes.cpus.within else { return Ok(()) };
        if exclusive.is_empty() {
            return Ok(());
        }
        let pools = self.ledger.pools();
        let count = |cpus: &CpuSet| pools.count(level, cpus);
        let (taken, fewest) = match self.question.company.filter(Company::is_one) {
            Some(company) => {
                let owned = company.owned();
                (count(&owned.union(exclusive)), company.fewest().max(count(&owned)))
            }
            None => {
                let eligible = eligible_on_machine(pools, &self.request.wishes.cpus);
                (count(exclusive), pools.fewest_of(level, &eligible, exclusive.len()))
            }
        };
        match taken > fewest {
            true => Err(Rejection::MoreDomains { level, taken, fewest }),
            false => Ok(()),
        }
    }

    /// The CPUs that were picked and those that were kept; and the siblings of both that stay idle.
    fn exclusive_and_idle(&self, picked: CpuSet) -> (CpuSet, CpuSet) {
        let (pools, question) = (self.ledger.pools(), self.question);
        let wishes = &self.request.wishes.cpus;
        let used = match picked.len() > question.missing {
            true => choose(pools, &picked, question.missing, wishes.is_spread()),
            false => picked,
        };
        let mut idle = question.kept_idle.clone();
        if wishes.siblings == Siblings::Idle {
            idle.union_with(&around(pools, Level::Core, &used).difference(&used));
        }
        (used.union(&question.kept), idle)
    }
}
