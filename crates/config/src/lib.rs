//! Configurations. In: bytes of files, of this system or of others. Out: a [`Config`], every mistake with line and column, all values as a file.
//!
//! One table has a row per key (`table.rs`): its name, what it takes, where it is kept, what it is for. From that come what a file says or every
//! mistake of it ([`parse_config`]), all values as a file ([`Settings`]), and the [`schema`]. Files are read, and names of the machine are looked
//! up, by the daemon.
//!
//! [`import`] turns the configurations of other systems into one of bayplan, with a word on what became of each key. [`cmk`] holds the pools
//! of CMK, which both the importer and `bayplan cmk` know. [`yaml`] is the tree that configurations are read from.

mod best_effort;
mod block_io;
mod changed;
pub mod cmk;
mod config;
mod cpu_classes;
mod errors;
mod exclusions;
mod fields;
mod foreign;
mod groups;
pub mod import;
mod kind;
mod log_filter;
mod permissions;
mod read;
mod rebalance;
mod reclaim;
mod requests;
mod resctrl;
mod schema;
mod settings;
mod shared;
mod sockets;
mod state;
mod table;
#[cfg(test)]
mod test_support;
#[cfg(test)]
mod tests;
pub mod yaml;

pub use best_effort::BestEffortConfig;
pub use config::{CONFIG_PATH, Config, CounterSet, EnforcementMode, FrontEnd, OnFailure};
pub use cpu_classes::{CpuClasses, CpuUse, Turn};
pub use errors::{ConfigError, ConfigErrors};
pub use log_filter::is_log_filter;
pub use read::{ConfigFile, parse_config};
pub use rebalance::{KNOBS, RebalanceConfig};
pub use requests::{Requests, TopologyPolicy};
pub use schema::schema;
pub use settings::{Change, Setting, Settings, Source, changes};
pub use shared::{node_key_names, shared_schema};
pub use state::{UnsuitableError, new_state, new_state_beside, reserved_lacking};
