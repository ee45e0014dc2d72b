//! The daemon. In: a configuration, a machine, kubelet's calls. Out: placed containers, metrics, answers to `status` and `explain`.
//!
//! One task owns the [`bayplan_node::NodeState`]; everything else sends it events and carries out what follows.

mod api;
pub mod check;
mod check_front_end;
mod cluster_config;
mod colocation;
pub mod config;
mod control;
mod cpuid_names;
mod enforcer;
mod event_loop;
mod exits;
mod features;
mod feed;
mod forwarder;
mod gate;
mod health;
mod historian;
mod holdings;
mod hotplug;
mod http_server;
mod inbox;
mod keeper;
mod live_map;
mod lookups;
mod metrics;
mod metrics_port;
mod neighbours;
mod nri_gate;
mod observer;
mod offline;
mod pods;
mod prober;
mod read_huge_pages;
mod read_machine;
mod rebalancer;
mod reclaimer;
mod recorded_machine;
mod reload;
mod resources_dir;
mod run;
mod socket;
mod sync;
pub mod systemd;
mod tasks;
#[cfg(test)]
mod test_support;
mod unconfirmed;
mod writer;
mod zone_devices;
mod zones;

pub use bayplan_config::yaml::Position;
pub use control::{ControlError, ask_control, post_control, query_control};
pub use enforcer::{FilePlanView, RestoredFiles, render_file_plan_view};
pub use feed::{EventView, EventsView};
pub use hotplug::Machine;
pub use offline::{Offline, is_stopped};
pub use prober::{AuditView, ContainerAudit, IntruderView, ProbeView, Recent};
pub use read_machine::{AsItWas, capture_own, derive_machine, read_own_snapshot};
pub use rebalancer::{RebalanceView, UnhelpedView};
pub use recorded_machine::{MachineView, parse_recorded_machine};
pub use reload::{ConfigDiff, Followed, LogFilter, Reloader};
pub use run::{Daemon, StartError, new_state, restore_files};
