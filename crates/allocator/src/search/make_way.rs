//! Whether the winner would be better if sharers left the CPUs that it is to have. In: a pool and what was found there. Out: the same with sharers moved, if that is worth it.

use bayplan_topology::Level;
use bayplan_types::CpuSet;

use super::{Candidate, Search};
use crate::budget::{Load, Supply, Unit, Units};
use crate::counted::Counted;
use crate::domain::around;
use crate::pool::Pool;
use crate::room::Wanted;

/// So many sharers may have to leave their memory for a core that stays whole. For a NUMA node less as many as it takes: spanning two nodes costs
/// memory latency for the container's life.
const MOVES_PER_CORE: usize = 4;

impl<'q> Search<'q, '_> {
    /// The same from fewer NUMA nodes or with fewer split cores, where shared containers that keep CPUs are all that is in the way: in the nodes that
    /// were found, or in those that would be the best without them.
    pub(crate) fn with_sharers_moved(
        &self,
        pool: &Pool,
        found: &Candidate<'q>,
    ) -> Option<Candidate<'q>> {
        let (nodes, split) = (found.score.nodes_taken.0, found.score.split_cores.0);
        let doubled = self.doubled(pool, found.view);
        let picker = self.picker(found)?;
        let is_uniform = picker.supply.uniform_whole_cpus(pool.id).is_some();
        let is_odd = !picker.count.is_multiple_of(self.ledger.pools().width);
        // An odd CPU splits a core, whichever container moves.
        if nodes <= 1 && split <= usize::from(is_uniform && is_odd) {
            return None;
        }
        let no_load = vec![Load::default(); self.ledger.loads().len()];
        let ideal = self.picker_with(picker.supply, &no_load, (picker.count, &picker.spread));
        let cost = ideal.cost(pool.id)?;
        if (cost.nodes as usize, cost.split_cores as usize) >= (nodes, split - doubled) {
            return None;
        }
        let is_whole = cost.split_cores == 0 && is_uniform && !is_odd;
        let places = [picker.pick(pool.id), ideal.pick(pool.id)];
        let moved = places.iter().filter_map(|cpus| self.in_nodes_of(cpus, pool, found, is_whole));
        let moved = moved.filter(|it| is_worth_it(it, found));
        moved.max_by(|one, other| one.score.cmp(&other.score)).filter(|it| it.score > found.score)
    }

    /// What the pool can do once enough sharers have left the NUMA nodes of these CPUs.
    fn in_nodes_of(
        &self,
        cpus: &CpuSet,
        pool: &Pool,
        found: &Candidate<'q>,
        is_whole: bool,
    ) -> Option<Candidate<'q>> {
        let (pools, picker) = (self.ledger.pools(), self.picker(found)?);
        let (units, count) = match is_whole {
            true => {
                let cores = Units { unit: Unit::Core, only_whole: true, cpus: pools.width };
                (cores, picker.count / pools.width)
            }
            false => (picker.supply.units, picker.count),
        };
        let supply = Supply { units, ..picker.supply };
        let nodes = around(pools, Level::NumaNode, cpus);
        let takeable = Counted::new(pools, &supply.takeable.cpus().intersection(&nodes));
        let wanted = Wanted { count, shared: self.request.demand.shared() };
        let room = self.make_room(pool, &Supply { takeable: &takeable, ..supply }, wanted)?;
        let before = Candidate::without_moves(found.score.clone(), found.view);
        self.roomier(pool, (supply, count, &picker.spread), room, before)
    }
}

fn is_worth_it(moved: &Candidate<'_>, found: &Candidate<'_>) -> bool {
    let (new, old) = (&moved.score, &found.score);
    let spared = old.split_cores.0.saturating_sub(new.split_cores.0);
    new.nodes_taken.0 < old.nodes_taken.0
        || moved.moves.len() <= found.moves.len() + MOVES_PER_CORE * spared
}
