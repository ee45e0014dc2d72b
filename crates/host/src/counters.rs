//! What the kernel counts about containers and the node beside the probes. In: kernel files that stay open. Out: counters since their beginning, and
//! values at this moment.
//!
//! What a kernel, a machine or a group does not have is absent, and never zero. A file that cannot be understood is absent, too, and told once by its
//! reader ([`Kept::oddity`]). Sources: Documentation/admin-guide/cgroup-v2.rst ("Controllers"), Documentation/accounting/psi.rst, and for the node
//! the documents that `node.rs` names.

mod group;
mod idle_states;
mod kept;
mod monitor;
mod node;
mod parse;

pub use group::{GroupCounters, GroupFiles};
pub use idle_states::{IdleState, IdleStates, IdleTimes};
pub use kept::Kept;
pub use monitor::{MonitorCounters, MonitorFiles, Monitored, Monitors};
pub use node::{
    CoreThrottles, NodeCounters, NodeFiles, TICKS_PER_SECOND, Uncore, Zone, read_idle_ticks,
};
pub use parse::{IoCounters, MemoryCounters, Pressure, Stall, parse_stall};

#[cfg(test)]
mod tests;
