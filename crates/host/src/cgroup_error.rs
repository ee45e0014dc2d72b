//! Why a container's cgroup cannot be found or read.

use std::io;
use std::path::PathBuf;

/// Why counters could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// A file or directory could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A line is missing, or is no number.
    #[error("{} has no usable `{key}`", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's key.
        key: &'static str,
    },
}
