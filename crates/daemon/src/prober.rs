//! What really happens to containers. In: which container runs where, and what programs in the kernel have counted. Out: the same by container, for
//! `bayplan audit` and for Prometheus.
//!
//! The task (`task.rs`) tells the probes which containers to watch, and reads them every few seconds into [`Sightings`], from which `view.rs` and
//! `collector.rs` make what others see. No caller waits for any of it.

mod collector;
mod sightings;
mod task;
#[cfg(test)]
pub(crate) mod tests;
mod view;

pub(crate) use collector::ProbeTable;
pub(crate) use sightings::{Seen, Sightings};
pub(crate) use task::{ProberTask, run_prober};
pub(crate) use view::recent_ns;
pub use view::{AuditView, ContainerAudit, IntruderView, ProbeView, Recent};
