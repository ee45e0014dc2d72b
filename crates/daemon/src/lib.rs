//! The daemon. In: a configuration, a machine, kubelet's calls. Out: placed containers, metrics, answers to `status` and `explain`.
//!
//! One task owns the [`NodeState`]; everything else sends it events and carries out what follows.

mod api;
pub mod check;
mod compaction;
pub mod compactor;
pub mod config;
mod control;
pub mod decision;
mod enforcer;
pub mod event;
mod event_loop;
mod exits;
mod gate;
mod health;
mod historian;
pub mod history;
mod hotplug;
mod inbox;
mod keeper;
mod metrics;
pub mod mode;
mod narrowing;
mod neighbours;
mod observer;
mod occupancy;
mod overflow;
mod prober;
mod rebalancer;
pub mod reconcile;
mod reconfigure;
pub mod record;
mod recorded_machine;
mod reload;
mod reseat;
mod resources_dir;
mod resources_file;
mod run;
mod socket;
pub mod state;
pub mod status;
mod sync;
pub mod systemd;
mod writer;
mod yaml;

pub use control::{ControlError, post_control, query_control};
pub use enforcer::{FilePlanView, RestoredFiles, render_file_plan_view};
pub use hotplug::Machine;
pub use prober::{AuditView, ContainerAudit, IntruderView, ProbeView, Recent};
pub use rebalancer::{ProposalView, RebalanceView};
pub use reconfigure::{ChangedConfig, Shift};
pub use recorded_machine::parse_recorded_machine;
pub use reload::{ConfigDiff, Followed, LogFilter, Reloader};
pub use run::{Daemon, StartError, derive_machine, new_state, restore_files};
pub use state::NodeState;
pub use yaml::Position;
