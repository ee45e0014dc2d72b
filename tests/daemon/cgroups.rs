//! A node with a runtime that makes files of cgroups, and what they say.

use std::fs;

use bayplan_cri::embedded::EmbeddedRuntime;
use bayplan_types::CpuSet;

use crate::node::{Node, set};

impl Node {
    /// From now on the runtime makes files of cgroups; it has no containers yet.
    pub(crate) async fn make_cgroups(&mut self) {
        self.stop_runtime().await;
        self.runtime = EmbeddedRuntime::with_cgroups(self.host_root());
        self.start_runtime();
    }

    /// The CPUs in the file of a container's cgroup, if it has one.
    pub(crate) fn kernel_cpus(&self, id: &str) -> Option<CpuSet> {
        let mut dirs = vec![self.host_root().join("sys/fs/cgroup")];
        while let Some(dir) = dirs.pop() {
            for path in fs::read_dir(dir).into_iter().flatten().flatten().map(|it| it.path()) {
                if path.to_string_lossy().contains(id) {
                    let text = fs::read_to_string(path.join("cpuset.cpus")).ok()?;
                    return Some(set(text.trim()));
                }
                dirs.push(path);
            }
        }
        None
    }
}
