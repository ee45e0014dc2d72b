//! What BestEffort containers get beside their place: a budget of CPU time, and CPUs that exclusive containers lend. In: what the daemon has found by measuring. Out: a part of the state, which
//! occupancy and CPU sets follow.
//!
//! The ledger knows nothing of it: a CPU that is lent is its holder's. So whatever the ledger does with that CPU ends the loan, and a container that is placed anew counts on none. It is not in
//! the journal: after a restart nothing is lent until it is found anew.

use std::collections::BTreeMap;

use bayplan_allocator::ContainerId;
use bayplan_types::{CpuSet, MilliCpu};

/// What is found by measuring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Colocation {
    /// CPU time that BestEffort containers have together; `None`: as much as they get.
    pub budget: Option<MilliCpu>,
    /// CPUs that containers lend to them.
    pub lent: BTreeMap<ContainerId, CpuSet>,
}
