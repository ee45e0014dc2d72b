//! The edge to kernel files and to the disk. Everything here does I/O; nothing here decides.

pub mod journal;
mod read_process;

pub use read_process::{ProcessError, read_process_pinning};
