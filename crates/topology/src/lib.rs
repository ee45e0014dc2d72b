//! The hardware of one machine. In: a [`Snapshot`], facts as the kernel's files give them. Out: a [`Topology`], a tree of
//! packages, dies, NUMA nodes, L3s and cores, with a list of everything that was odd.
//!
//! Pure: no file, clock or environment. Snapshots come from real files (crate `bayplan-host`) or from one line of text
//! ([`parse_machine`]); both take the same way through [`derive()`].

mod agree;
mod check;
mod derive;
mod fingerprint;
mod fold;
mod json;
mod map;
mod nest;
mod numa;
#[cfg(test)]
mod properties;
mod render;
mod snapshot;
mod synthetic;
#[cfg(test)]
mod tests;
mod topology;

pub use check::check_topology;
pub use derive::{DeriveError, derive};
pub use json::{JSON_FORMAT, NodeJson, ObjectJson, OddityJson, TopologyJson, to_json};
pub use map::render_map;
pub use render::render_tree;
pub use snapshot::{CacheFacts, CacheKind, CpuFacts, NodeFacts, Oddity, Snapshot};
pub use synthetic::{SYNTHETIC_HELP, SyntheticError, parse_machine};
pub use topology::{Level, NumaNode, Object, ObjectIdx, Topology};
