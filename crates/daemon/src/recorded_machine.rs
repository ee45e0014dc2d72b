//! A machine as the history has it. In: what was read of one. Out: a text, and from the text the same topology again.

use bayplan_host::kernel_files::KernelFiles;
use bayplan_host::{Depth, read_files, write_snapshot};
use bayplan_topology::{Snapshot, Topology, derive};
use serde::{Deserialize, Serialize};

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

/// The machine that a daemon runs on; format `bayplan-machine/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineView {
    /// Names the format.
    pub format: String,
    /// What placement depends on, in the text form of `bayplan snapshot`; [`parse_recorded_machine`] reads it.
    pub files: String,
}

/// What placement depends on, in the text form of `bayplan snapshot`.
pub(crate) fn render_machine(snapshot: &Snapshot) -> String {
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
/// It is no such text, or there is no CPU in it.
pub fn parse_recorded_machine(text: &str) -> anyhow::Result<Topology> {
    Ok(derive(&read_files(KernelFiles::parse(text)?, Depth::Placement)?)?)
}

#[cfg(test)]
mod tests {
    use bayplan_host::read_snapshot;
    use bayplan_topology::parse_machine;

    use super::*;

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
