//! What a plan is for, and how much it may cost.

use bayplan_topology::Level;
use bayplan_types::Bytes;

use crate::request::Request;

/// A container that should get exclusive CPUs in one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// What it asks for. The ledger must not hold it.
    pub request: Request,
    /// The kind of domain that is to hold all of it.
    pub level: Level,
}

/// How much one plan may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Containers moved.
    pub moves_max: usize,
    /// CPUs that change, of all containers together.
    pub cpus_max: usize,
    /// Memory that has to follow to another NUMA node; `None` is no limit.
    pub memory_max: Option<Bytes>,
    /// For each 100 CPUs that change, the largest hole (or what is placed, for a wish) has to gain this many CPUs.
    pub gain_min_percent: usize,
    /// Moves that are tried while a plan is looked for: a bound on the work that, unlike one in time, always gives the same plan.
    pub states_max: usize,
}
