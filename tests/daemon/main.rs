//! The daemon from end to end: kubelet's calls through real sockets to a runtime without processes, and what the ledger, the
//! runtime's own records and the metrics say afterwards.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod absurd;
mod bugs;
mod cgroups;
mod chaos;
mod cluster_config;
mod compacting;
mod disks;
mod drift;
mod early_answers;
mod engine;
mod exits;
mod faults;
mod front_ends;
mod groups;
mod history;
mod holds;
mod hostile;
mod hotplug;
mod importing;
mod knobs;
mod modes;
mod monitoring;
mod neighbours;
mod node;
mod observing;
mod packages;
mod placing;
mod pod_level;
mod pods;
mod power;
mod prometheus;
mod rebalancing;
mod reclaiming;
mod regrouping;
mod releases;
mod reload;
mod resctrl;
mod resources;
mod restarts;
mod soak;
mod speed_select;
mod upgrade;
