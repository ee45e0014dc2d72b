//! A machine as the history has it. In: what was read of one. Out: a text, and from the text the same topology again.

use bayplan_topology::{DeriveError, Snapshot, Topology, derive};

use crate::kernel_files::{FilesError, KernelFiles};
use crate::read_snapshot::{Depth, ReadError, read_files};
use crate::write_snapshot::write_snapshot;

/// Files that say once more, as a mask or under an older name, what another one says as a list: four fifths of the text.
const SAID_TWICE: [&str; 8] = [
    "core_cpus",
    "core_siblings",
    "core_siblings_list",
    "cpumap",
    "package_cpus",
    "shared_cpu_map",
    "thread_siblings",
    "thread_siblings_list",
];

/// Why there is no machine in a text.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// It is no record of kernel files.
    #[error(transparent)]
    Text(#[from] FilesError),
    /// There are no CPU directories in it.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// No CPU is online.
    #[error(transparent)]
    Derive(#[from] DeriveError),
}

/// What placement depends on, in the text form of `bayplan snapshot`.
pub fn render_machine(snapshot: &Snapshot) -> String {
    let mut files = KernelFiles::default();
    for (path, entry) in write_snapshot(snapshot).iter() {
        let name = path.rsplit('/').next().unwrap_or_default();
        if !SAID_TWICE.contains(&name) {
            files.insert(path, entry.clone());
        }
    }
    files.render()
}

/// The machine of such a text, as a daemon reads its own.
///
/// # Errors
/// [`RecordedError`].
pub fn parse_recorded_machine(text: &str) -> Result<Topology, RecordedError> {
    Ok(derive(&read_files(KernelFiles::parse(text)?, Depth::Placement)?)?)
}

#[cfg(test)]
mod tests {
    use bayplan_topology::parse_machine;

    use super::*;
    use crate::read_snapshot::read_snapshot;

    #[test]
    fn what_is_left_out_changes_nothing() {
        for line in [
            "pack:1 numa:2 core:4 pu:2 mem:16",
            "xeon-8480-snc4",
            "epyc-7763-nps4 huge:2M=64 isolated:2-5 offline:9",
            "xeon-8280l-pmem nic:1 vf:2 nvme:1",
            "core-hybrid",
            "one-cpu",
        ] {
            let root = tempfile::tempdir().unwrap();
            write_snapshot(&parse_machine(line).unwrap()).write_to(root.path()).unwrap();
            let read = read_snapshot(root.path(), Depth::Placement).unwrap();
            let again = parse_recorded_machine(&render_machine(&read)).unwrap();
            assert!(again == derive(&read).unwrap(), "{line}");
        }
    }
}
