//! From which domains units are taken, and what that costs. Values.

use smallvec::SmallVec;

use crate::pool::PoolId;

/// What taking CPUs does to NUMA nodes and cores. Less is better, top to bottom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    /// NUMA nodes that are spanned.
    pub(crate) nodes: u32,
    /// Cores that are taken only in part; where one thread of each is wished, further threads.
    pub(crate) split_cores: u32,
    /// Of those, the ones that were whole before.
    pub(crate) broken_cores: u32,
    /// Of those that were not, the ones with other threads that belong to another pod; twice for another namespace.
    pub(crate) strangers: u32,
}

impl Cost {
    pub(super) fn add(&mut self, other: Cost) {
        self.split_cores += other.split_cores;
        self.broken_cores += other.broken_cores;
        self.strangers += other.strangers;
        self.nodes += other.nodes;
    }
}

/// Where a share of the units comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) pool: PoolId,
    /// From the cores that are in the pool and in no pool inside it.
    pub(super) is_own: bool,
    pub(super) count: usize,
}

/// Where all of the units come from.
pub(super) type Parts = SmallVec<[Part; 8]>;

/// How a number of units is taken. Less is better: [`Way::key`].
#[derive(Clone, Debug, Default)]
pub(super) struct Way {
    pub(super) cost: Cost,
    /// Sum of the squares of what each domain gives: least where all give the same.
    pub(super) uneven: usize,
    pub(super) parts: Parts,
}

/// What ways are compared by: nodes, split cores, parts, unevenness, broken cores, strangers.
pub(super) type Key = (u32, u32, usize, usize, u32, u32);

impl Way {
    pub(super) fn key(&self) -> Key {
        key(self.cost, self.parts.len(), self.uneven)
    }

    /// That of [`Self::and`], which is not made for it.
    pub(super) fn key_with(&self, other: &Way) -> Key {
        let mut cost = self.cost;
        cost.add(other.cost);
        key(cost, self.parts.len() + other.parts.len(), self.uneven + other.uneven)
    }

    pub(super) fn and(&self, other: &Way) -> Way {
        let mut both = self.clone();
        both.cost.add(other.cost);
        both.uneven += other.uneven;
        both.parts.extend(other.parts.iter().copied());
        both
    }
}

fn key(cost: Cost, parts: usize, uneven: usize) -> Key {
    let Cost { nodes, split_cores, broken_cores, strangers } = cost;
    (nodes, split_cores, parts, uneven, broken_cores, strangers)
}

/// What a domain may give.
#[derive(Clone, Copy)]
pub(super) enum Giving {
    /// Any number of units, or none.
    Any,
    /// From the first to the second, or none.
    Between(usize, usize),
}

impl Giving {
    pub(super) fn allows(self, count: usize) -> bool {
        match self {
            Giving::Any => true,
            Giving::Between(least, most) => count >= least && count <= most,
        }
    }
}
