//! How much memory of a NUMA node is there to be taken now. In: `/sys/devices/system/node/node*/meminfo`
//! (Documentation/ABI/stable/sysfs-devices-node). Out: bytes.

use bayplan_types::{Bytes, NodeId};

use crate::kernel::Kernel;

/// Memory of one NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeMemory {
    /// All of it.
    pub total: Bytes,
    /// What is free, and what files have that has not been used lately.
    pub available: Bytes,
}

/// Reads that of one node; `None` where the kernel does not tell.
pub fn read_node_memory(kernel: &mut dyn Kernel, node: NodeId) -> Option<NodeMemory> {
    let text = kernel.read(&format!("sys/devices/system/node/node{}/meminfo", node.0)).ok()?;
    // `Node 0 MemFree:         1024 kB`
    let bytes = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(key));
        let (_, rest) = lines.next()?;
        let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(Bytes(kib.saturating_mul(1024)))
    };
    let (free, files) = (bytes(" MemFree:")?, bytes(" Inactive(file):")?);
    Some(NodeMemory { total: bytes(" MemTotal:")?, available: free + files })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_kernel::FakeKernel;

    const TEXT: &str = "Node 1 MemTotal:       4096 kB\nNode 1 MemFree:         1000 kB\nNode 1 MemUsed:         3096 kB\n\
                        Node 1 Inactive:        500 kB\nNode 1 Inactive(anon):   476 kB\nNode 1 Inactive(file):    24 kB\n";

    #[track_caller]
    fn check(text: &str, expected: Option<(u64, u64)>) {
        let mut kernel = FakeKernel::new(&[("sys/devices/system/node/node1/meminfo", text)]);
        let read = read_node_memory(&mut kernel, NodeId(1));
        assert_eq!(read.map(|it| (it.total.0 / 1024, it.available.0 / 1024)), expected);
    }

    #[test]
    fn free_memory_and_files_that_can_go_are_available() {
        check(TEXT, Some((4096, 1024)));
    }

    #[test]
    fn what_is_not_told_is_nothing_and_not_zero() {
        check("", None);
        check(&TEXT.replace("MemFree", "MemFee"), None);
        check(&TEXT.replace(" kB", ""), None);
        assert_eq!(read_node_memory(&mut FakeKernel::new(&[]), NodeId(0)), None);
    }
}
