//! The answer to a request: an offer with every pool's score, or every pool's rejection.

use crate::allocation::Allocation;
use crate::change::Move;
use crate::id::ContainerId;
use crate::pool::PoolId;
use crate::score::{Rejection, Score};

/// What became of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Considered {
    /// The pool.
    pub pool: PoolId,
    /// Its score, or why it cannot hold the request.
    pub outcome: Result<Score, Rejection>,
}

/// A proposal that changes nothing until [`Ledger::commit`](crate::Ledger::commit) takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub(crate) made_at: u64,
    pub(crate) container: ContainerId,
    pub(crate) allocation: Allocation,
    pub(crate) moves: Vec<Move>,
    pub(crate) considered: Vec<Considered>,
}

impl Offer {
    /// One for this version of the ledger, without moves, for which no pools were compared.
    pub(crate) fn new(made_at: u64, container: ContainerId, allocation: Allocation) -> Offer {
        Offer { made_at, container, allocation, moves: Vec::new(), considered: Vec::new() }
    }

    /// Where the container would go.
    pub fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    /// Sharers that run elsewhere from then on.
    pub fn moves(&self) -> &[Move] {
        &self.moves
    }

    /// Every pool, in pool order. Empty for a request on reserved CPUs, where there is no choice.
    pub fn considered(&self) -> &[Considered] {
        &self.considered
    }
}

/// No pool can hold the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why not, pool by pool, in pool order.
    pub considered: Vec<Considered>,
}

impl Refusal {
    /// One for which no other pools were considered.
    pub(crate) fn of(pool: PoolId, why: Rejection) -> Refusal {
        Refusal { considered: vec![Considered { pool, outcome: Err(why) }] }
    }

    /// How many of the CPUs that the request names have to stay shared; `None` where it is refused for another reason.
    pub fn kept_shared(&self) -> Option<usize> {
        self.considered.iter().find_map(|it| match it.outcome {
            Err(Rejection::KeptShared { kept, .. }) => Some(kept),
            _ => None,
        })
    }
}
