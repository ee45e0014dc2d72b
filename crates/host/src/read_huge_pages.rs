//! Which huge pages can be had now, and which of them containers use. In: `free_hugepages` of every NUMA node (Documentation/admin-guide/mm/hugetlbpage.rst), `hugetlb.SIZE.numa_stat` of
//! a container's group (Documentation/admin-guide/cgroup-v2.rst, "HugeTLB"). Out: bytes by node and size of a page.

use bayplan_types::{Bytes, HugeBytes, NodeId};

use crate::find_cgroup::{CGROUPS, find_below, find_container_cgroup};
use crate::kernel::Kernel;

const NODES: &str = "sys/devices/system/node";

/// Huge pages that no process has, whatever was set aside for containers.
pub fn read_free_huge_pages(kernel: &mut dyn Kernel) -> HugeBytes {
    let mut free = HugeBytes::new();
    for name in kernel.list(NODES).unwrap_or_default() {
        let Some(node) = name.strip_prefix("node").and_then(|it| it.parse().ok()) else { continue };
        let dir = format!("{NODES}/{name}/hugepages");
        for size_name in kernel.list(&dir).unwrap_or_default() {
            let kib = size_name.strip_prefix("hugepages-").and_then(|it| it.strip_suffix("kB"));
            let Some(kib) = kib.and_then(|it| it.parse::<u64>().ok()) else { continue };
            let Ok(text) = kernel.read(&format!("{dir}/{size_name}/free_hugepages")) else {
                continue;
            };
            let Ok(pages) = text.trim().parse::<u64>() else { continue };
            let size = Bytes(kib.saturating_mul(1024));
            free.insert((NodeId(node), size), Bytes(size.0.saturating_mul(pages)));
        }
    }
    free
}

/// Huge pages of these sizes that the container with this id uses. `None`: the kernel does not tell.
pub fn read_used_huge_pages(
    kernel: &mut dyn Kernel,
    parent: &str,
    id: &str,
    sizes: &[Bytes],
) -> Option<HugeBytes> {
    let group = match find_container_cgroup(kernel, parent, id, None).ok()? {
        Some(found) => found.dirs.into_iter().next(),
        None => find_below(kernel, &format!("{CGROUPS}/hugetlb"), parent, id).ok()?,
    }?;
    let mut used = HugeBytes::new();
    for size in sizes {
        let file = format!("{group}/hugetlb.{}.numa_stat", size_name(*size));
        let text = kernel.read(&file).ok()?;
        // `total=0 N0=0 N1=0`; version 1 has a line without what lies below, and one with it.
        let line = text.lines().find(|line| line.starts_with("hierarchical_total="));
        let line = line.or_else(|| text.lines().next())?;
        for word in line.split_whitespace() {
            let Some((node, bytes)) = word.strip_prefix('N').and_then(|it| it.split_once('='))
            else {
                continue;
            };
            let (Ok(node), Ok(bytes)) = (node.parse(), bytes.parse()) else { continue };
            used.insert((NodeId(node), *size), Bytes(bytes));
        }
    }
    Some(used)
}

/// A size as the names of files have it: `2MB`, `1GB`, `64KB` (mem_fmt of mm/hugetlb_cgroup.c).
fn size_name(size: Bytes) -> String {
    match size.0 {
        it if it >= 1 << 30 => format!("{}GB", it >> 30),
        it if it >= 1 << 20 => format!("{}MB", it >> 20),
        it => format!("{}KB", it >> 10),
    }
}

#[cfg(test)]
mod tests {
    use crate::fake_kernel::FakeKernel;

    use super::*;

    const SIZE: Bytes = Bytes(2 << 20);

    #[test]
    fn free_pages_are_read_by_node_and_size() {
        let mut kernel = FakeKernel::new(&[
            ("sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "3\n"),
            ("sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "0\n"),
            ("sys/devices/system/node/node1/hugepages/hugepages-1048576kB/free_hugepages", "1\n"),
            ("sys/devices/system/node/online", "0-1\n"),
        ]);
        let free: Vec<_> = read_free_huge_pages(&mut kernel).into_iter().collect();
        let gib = Bytes::gib(1);
        assert_eq!(
            free,
            [
                ((NodeId(0), SIZE), Bytes(6 << 20)),
                ((NodeId(1), SIZE), Bytes(0)),
                ((NodeId(1), gib), gib)
            ]
        );
    }

    #[test]
    fn a_container_s_own_pages_are_read_from_its_group() {
        let dir = "sys/fs/cgroup/kubepods/pod1/ab";
        let (kind, stat) = (format!("{dir}/cgroup.type"), format!("{dir}/hugetlb.2MB.numa_stat"));
        let mut kernel = FakeKernel::new(&[
            (&kind, "domain\n"),
            (&stat, "total=6291456 N0=4194304 N1=2097152\n"),
        ]);
        let mut read = |id| read_used_huge_pages(&mut kernel, "/kubepods/pod1", id, &[SIZE]);
        let used = read("ab").unwrap();
        assert_eq!(used[&(NodeId(0), SIZE)], Bytes(4 << 20));
        assert_eq!(used[&(NodeId(1), SIZE)], Bytes(2 << 20));
        assert_eq!(read("cd"), None);
        assert_eq!(size_name(Bytes::gib(1)), "1GB");
        assert_eq!(size_name(Bytes(64 << 10)), "64KB");
    }
}
