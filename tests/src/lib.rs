//! What tests share: real containerd, the daemon as a process, a virtual machine, and the scenario that is played in them.
//!
//! Programs that are not there are an error that says how to get them; nothing is skipped.

#![allow(clippy::print_stdout, reason = "tests tell what they do")]

pub mod containerd;
pub mod guest;
mod image;
mod process;
pub mod scenario;
