//! The daemon. In: a configuration, a machine, kubelet's calls. Out: placed containers, metrics, answers to `status` and `explain`.
//!
//! One task owns the [`bayplan_node::NodeState`]; everything else sends it events and carries out what follows.

mod api;
pub mod check;
mod check_cgroups;
mod check_front_end;
mod check_groups;
mod check_required_plugins;
mod check_speed_select;
mod cluster_config;
mod colocation;
pub mod config;
mod control;
mod cpuid_names;
mod early_answers;
mod enforcer;
mod event_loop;
mod exits;
mod features;
mod feed;
mod finding;
mod forwarder;
mod gate;
mod health;
mod history_writer;
mod holdings;
mod hotplug;
mod http_server;
mod inbox;
mod journal_writer;
mod known_occupancy;
mod live_map;
mod lookups;
mod metrics;
mod metrics_port;
mod neighbours;
mod node_kernel;
mod nri_gate;
mod nri_link;
mod observer;
mod offline;
mod pods;
mod prober;
mod read_huge_pages;
mod read_machine;
mod rebalancer;
mod reclaimer;
mod reload;
mod resources_dir;
mod run;
mod runtime;
mod runtime_writer;
mod scheduling_class;
mod socket;
mod start_core;
mod start_error;
mod start_looking;
mod start_state;
mod sync;
pub mod systemd;
mod tasks;
#[cfg(test)]
mod test_support;
mod unconfirmed;
mod why;
mod zone_cpus;
mod zone_devices;
mod zones;

pub use api::MachineView;
pub use bayplan_config::yaml::Position;
pub use control::{ControlError, ask_control, open_control, post_control, query_control};
pub use enforcer::{FilePlanView, RestoredFiles, render_file_plan_view};
pub use feed::{EventView, EventsView};
pub use hotplug::Machine;
pub use http_server::{serve_reviews, serve_scrapes};
pub use offline::{Offline, is_stopped};
pub use prober::{AuditView, ContainerAudit, IntruderView, ProbeView, Recent};
pub use read_machine::{
    AsItWas, capture_machine, capture_own, derive_machine, read_machine, read_own_snapshot,
};
pub use rebalancer::{OutsideView, RebalanceView, UnhelpedView};
pub use reload::{ConfigDiff, Followed, LogFilter, Reloader, WhatIf};
pub use run::{Daemon, REMOVED};
pub use start_error::StartError;
pub use start_state::restore_files;
pub use why::{Cause, CauseKind, CauseSeverity, Measured, WhyView, render_causes, render_why};
