//! Which containers to move so that free CPUs lie together. In: a ledger, which containers may be moved, a wish or none, limits. Out: the moves, in
//! the order in which they can be made, with their price.
//!
//! Problem: containers come and go, and what they leave are holes. In the end half of a machine is free, and no request for half of a NUMA node can
//! be met. Moving a container joins holes, and costs it: its caches are cold, and memory on another node has to follow it.
//!
//! Terms: a *hole* is what is free in one domain, counted in CPUs and in whole cores ([`Hole`]). The *price* of a CPU that a container has to change
//! is a part of a CPU of the largest hole ([`Limits::gain_min_percent`]); moves that do not earn their price are not made.
//!
//! Approach: `model.rs` counts free threads per core; `search.rs` looks for moves there, cheaply, move by move, keeping the best few
//! beginnings; `apply.rs` makes the best plans on a copy of the ledger with [`offer`](crate::offer), which knows about sharers and memory, and
//! judges what really came of them.
//!
//! Guarantees: nothing is changed; the same input gives the same plan; made in order, no two containers ever own one CPU. No container is moved that
//! is not in `movable`, also no shared one that would have to make room. A container that is moved is nowhere worse off: no domain that held all of
//! its CPUs is given up, cores are not split more, memory is not farther. The work is bounded by [`Limits::states_max`]. Not guaranteed: that no
//! better plan exists, since finding it is as hard as packing bins. Only the most promising beginnings are continued, and no container is moved twice
//! in one plan.

mod apply;
mod depart;
mod model;
mod search;
#[cfg(test)]
mod tests;
mod wish;

use std::collections::BTreeMap;

use bayplan_topology::Level;

use crate::change::{Cost, Relocation};
use crate::id::ContainerId;
use crate::ledger::Ledger;
use crate::request::Request;
use apply::{Outcome, try_steps};
use model::Model;
use search::{Goal, search};

pub use depart::plan_departure;
pub use model::Hole;
pub use wish::{Limits, Wish};

/// Moves that are worth their cost; none when nothing is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// In the order in which they are to be made.
    pub moves: Vec<Relocation>,
    /// The largest hole in one domain before them.
    pub before: Hole,
    /// The largest hole in one domain after them; for a wish, before it is placed.
    pub after: Hole,
}

impl Compaction {
    /// Of all moves.
    pub fn cost(&self) -> Cost {
        self.moves.iter().fold(Cost::default(), |sum, made| Cost {
            cpus: sum.cpus + made.cost.cpus,
            memory: sum.memory + made.cost.memory,
        })
    }
}

/// Plans tried on a copy of the ledger until one holds what it promises.
const TRIED_MAX: usize = 6;

/// The fewest moves that make room for `wish` in one domain; without a wish, those that make the largest hole in one NUMA node larger,
/// as long as that is worth it. `movable` has the requests of all that may be moved, shared ones too.
pub fn plan_compaction(
    ledger: &Ledger,
    movable: &BTreeMap<ContainerId, Request>,
    wish: Option<&Wish>,
    limits: &Limits,
) -> Compaction {
    let level = wish.map_or(Level::NumaNode, |wish| wish.level);
    let model = Model::new(ledger, movable, level);
    let start = model.start();
    let before = model.largest_hole(&start);
    let goal = Goal::new(&model, wish, before);
    let none = Compaction { moves: Vec::new(), before, after: before };
    if goal.is_met(&model, &start) || goal.is_out_of_reach(&model) {
        return none;
    }
    for plan in search(&model, &start, &goal, limits).iter().take(TRIED_MAX) {
        let Some(Outcome { moves, ledger: after }) = try_steps(ledger, movable, &model, plan)
        else {
            continue;
        };
        // Which containers may be moved on from there does not matter.
        let hole = Model::new(&after, &BTreeMap::new(), level);
        let hole = hole.largest_hole(&hole.start());
        let compaction = Compaction { moves, before, after: hole };
        if is_worth(&compaction, &after, wish, limits) {
            return compaction;
        }
    }
    none
}

/// Judges what really came of a plan.
fn is_worth(compaction: &Compaction, after: &Ledger, wish: Option<&Wish>, limits: &Limits) -> bool {
    let cost = compaction.cost();
    let price = cost.cpus * limits.gain_min_percent;
    let gain = match wish {
        Some(wish) if apply::holds(after, wish) => 100 * wish.request.demand.exclusive(),
        Some(_) => return false,
        None => 50 * compaction.after.weight().saturating_sub(compaction.before.weight()),
    };
    compaction.moves.len() <= limits.moves_max
        && cost.cpus <= limits.cpus_max
        && limits.memory_max.is_none_or(|limit| cost.memory <= limit)
        && gain > 0
        && gain >= price
}
