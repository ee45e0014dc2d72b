//! Directories of the kernel.

use crate::kernel_fs::{Dir, KernelFs};

pub(super) const NODE_DIR: &str = "sys/devices/system/node";
pub(super) const CGROUP_DIR: &str = "sys/fs/cgroup";

/// A directory that may be missing. One that may not be entered counts as missing.
pub(super) fn dir(fs: &mut KernelFs, path: &str) -> Option<Dir> {
    fs.dir(path).unwrap_or_else(|error| {
        fs.note(path, error.to_string(), "it is not there");
        None
    })
}
