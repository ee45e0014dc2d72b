//! Where CPUs of groups come from. In: a ledger, a group, the components that it is made of. Out: CPUs for each component, domains around CPUs.

use bayplan_topology::Level;
use bayplan_types::CpuSet;

use crate::allocation::Allocation;
use crate::domain::around;
use crate::group::choose_kept;
use crate::id::ContainerId;
use crate::ledger::Ledger;
use crate::offer::Refusal;
use crate::plan_offer::offer;
use crate::pool::Pools;
use crate::request::{Demand, Previous, Request};
use crate::score::Rejection;

/// A part of a group that has wishes of its own.
#[derive(Clone, Debug)]
pub struct Component {
    /// Its wishes, and how many CPUs it is to have. The id is that of no entry of the ledger.
    pub request: Request,
    /// CPUs that it has.
    pub has: CpuSet,
}

impl Ledger {
    /// CPUs for each component of a group, in their order, as if the group had none: each keeps what it can of those that it has. Nothing is changed.
    ///
    /// # Errors
    /// Why the first that cannot have as many as it needs cannot.
    pub fn compose(
        &self,
        group: ContainerId,
        components: &[Component],
    ) -> Result<Vec<CpuSet>, Refusal> {
        let mut trial = self.clone();
        let members: Vec<ContainerId> = trial.members_of(group).map(|(id, _)| id).collect();
        for id in members.into_iter().chain([group]) {
            trial.lift(id);
        }
        for Component { request, has } in components {
            let wanted = request.demand.exclusive().min(has.len());
            let exclusive = choose_kept(&trial.pools, &request.wishes.cpus, has, wanted);
            if !exclusive.is_empty() {
                let pool = trial.pools.around(&exclusive);
                let terms = request.terms();
                let kept = Allocation { exclusive, terms, ..Allocation::new(pool) };
                // What is not to be had any more is replaced below.
                trial.adopt(request.id, kept).ok();
            }
        }
        components.iter().map(|it| trial.complete(&it.request)).collect()
    }

    /// Gives an entry as many CPUs as it is to have, beside those that it has; gives all of them.
    fn complete(&mut self, request: &Request) -> Result<CpuSet, Refusal> {
        let mut had = self.lift(request.id).map(|it| it.exclusive).unwrap_or_default();
        let wanted = request.demand.exclusive();
        for size in self.sizes_to_grow(&request.wishes.cpus, &had, wanted) {
            self.lift(request.id);
            let pool = self.pool_to_grow(request, &had, size.saturating_sub(had.len()));
            let previous = (!had.is_empty()).then(|| Previous { pool, exclusive: had.clone() });
            let demand = Demand::new(size, None);
            let offered = offer(self, &Request { demand, previous, ..request.clone() })?;
            had.clone_from(&offered.allocation().exclusive);
            if self.commit(offered).is_err() {
                return Err(Refusal::of(pool, Rejection::NoSuchGroup));
            }
        }
        Ok(had)
    }
}

/// CPUs of the cores around these, and of the domains of this level around them.
pub fn domains_around(pools: &Pools, level: Level, cpus: &CpuSet) -> CpuSet {
    around(pools, level, &around(pools, Level::Core, cpus))
}
