//! The node: what is known of its containers, and what follows from each event. In: an event and the time. Out: a step with an answer, a plan, records of the
//! journal, entries of the history and notes for the log. Pure: the daemon, the simulator, the replay and the property tests run the same code.
//!
//! | Module | What it is |
//! |---|---|
//! | [`state`] | [`NodeState`] and its one entrance, `step` |
//! | [`event`] | what goes in, and what comes out |
//! | `change` | what happened: one value each, from which record, entry and note follow |
//! | [`record`], [`history`], [`facts_form`] | lines of the journal and of the history |
//! | `restore`, [`known`], [`reconcile`], [`replan`], `lost` | a start, a sync with the runtime, a machine of another shape |
//! | [`decision`], [`criteria`], [`status`] | what is told of all that |
//! | [`mode`], [`reconfigure`], [`settings`] | what an operator changes |
//! | [`compaction`], [`narrowing`], [`cold_start`], [`claims`], [`turned`], [`sent`], [`colocation`], [`overflow`], [`huge_pages`] | one concern each |
//! | `state/` | what follows from each of them in the state: one file for each concern |
//! | `containers`, `told`, `departed` | what several concerns share: the containers, what the runtime was told of them, what has ended |
//! | `vectors` | which workloads use wide vectors |
//! | [`groups`] | types of groups, and which containers are in which group |
//! | [`occupancy`], [`resources_file`] | what runs where, for kernel files and for the containers themselves |

#![forbid(unsafe_code)]

mod change;
pub mod claims;
pub mod cold_start;
pub mod colocation;
pub mod compaction;
pub mod compactor;
mod container;
mod containers;
pub mod criteria;
pub mod decision;
mod departed;
mod earlier;
pub mod event;
pub mod facts_form;
pub mod found;
pub mod groups;
pub mod history;
pub mod huge_pages;
pub mod known;
mod lost;
pub mod mode;
pub mod names;
pub mod narrowing;
mod note;
pub mod occupancy;
pub mod overflow;
mod place;
pub mod proposals;
pub mod reconcile;
pub mod reconfigure;
pub mod record;
pub mod replan;
pub mod resources_file;
mod restore;
pub mod sent;
pub mod settings;
pub mod state;
pub mod status;
mod told;
pub mod turned;
pub mod unasked;
mod vectors;

pub use reconfigure::{ChangedConfig, Shift};
pub use state::{NodeState, NodeZones, PodCpus};
