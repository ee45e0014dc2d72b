//! What tests share: real containerd, the daemon as a process in front of it, and the scenario that is played with them.
//!
//! Programs that are not there are an error that says how to get them; nothing is skipped.

#![allow(clippy::print_stdout, reason = "tests tell what they do")]

pub mod bug;
pub mod containerd;
pub mod daemon;
pub mod disk;
mod image;
pub mod node;
pub mod nri_relay;
pub mod process;
pub mod prometheus;
pub mod release;
pub mod scenario;
pub mod speed_select;
pub mod thread_scheduling;
pub mod topology_aware;
pub mod under_load;
