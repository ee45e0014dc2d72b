//! NUMA nodes and their memory.
//!
//! Files: `Documentation/ABI/stable/sysfs-devices-node`, `Documentation/admin-guide/mm/numaperf.rst`,
//! `Documentation/ABI/testing/sysfs-kernel-mm-memory-tiers`, `Documentation/ABI/testing/sysfs-bus-dax`.

use bayplan_topology::{
    AccessFacts, DaxFacts, DaxOrigin, HugePages, NodeFacts, Snapshot, TierFacts,
};
use bayplan_types::{Bytes, NodeId};

use super::cpu_lists::read_cpu_set;
use super::dirs::{NODE_DIR, dir};
use super::text;
use crate::kernel_files::plain_number;
use crate::kernel_fs::{Dir, KernelFs};

const TIER_DIR: &str = "sys/devices/virtual/memory_tiering";
const DAX_DIR: &str = "sys/bus/dax/devices";
/// Any initiator, and CPUs alone; there are no others.
const ACCESS_CLASSES: [u32; 2] = [0, 1];
/// Memory-side caches of a node; firmware tables know two bits of levels.
const SIDE_CACHES_MAX: u32 = 4;

/// Reads the node directory, tiers and memory devices. A kernel without NUMA has none of them.
pub(super) fn read(fs: &mut KernelFs, snapshot: &mut Snapshot) {
    if let Some(dir) = dir(fs, NODE_DIR) {
        snapshot.online_nodes = fs.value(&dir, "online");
        snapshot.normal_memory = fs.value(&dir, "has_normal_memory");
        for (number, dir) in fs.numbered_dirs(&dir, "node") {
            snapshot.nodes.push(read_node(fs, NodeId(number), &dir));
        }
    }
    // proc/ itself may be missing in a captured tree.
    if let Some(dir) = dir(fs, "proc") {
        snapshot.mem_total = fs.line(&dir, "meminfo", text::mem_total).flatten();
    }
    if let Some(tiers) = dir(fs, TIER_DIR) {
        for (tier, dir) in fs.numbered_dirs(&tiers, "memory_tier") {
            if let Some(nodes) = fs.value(&dir, "nodelist") {
                snapshot.tiers.push(TierFacts { tier, nodes });
            }
        }
    }
    let mut names = fs.names(DAX_DIR, |name| name.starts_with("dax"));
    // `dax10.0` after `dax9.0`.
    names.sort_by_key(|name| (name.len(), name.clone()));
    for name in names {
        snapshot.dax.extend(read_dax(fs, name));
    }
}

fn read_node(fs: &mut KernelFs, id: NodeId, dir: &Dir) -> NodeFacts {
    let mem_total = fs.line(dir, "meminfo", text::mem_total);
    if mem_total == Some(None) {
        let path = format!("{}/meminfo", dir.path);
        fs.note(&path, "MemTotal without a number of kB".to_owned(), "as if the file were missing");
    }
    NodeFacts {
        id,
        cpus: read_cpu_set(fs, dir, &["cpulist"], &["cpumap"]),
        mem_total: mem_total.flatten(),
        distances: fs.parsed(dir, "distance", text::numbers).unwrap_or_default(),
        huge_pages: read_huge_pages(fs, dir),
        accesses: ACCESS_CLASSES.iter().filter_map(|class| read_access(fs, dir, *class)).collect(),
        side_caches: read_side_caches(fs, dir),
    }
}

fn read_huge_pages(fs: &mut KernelFs, node: &Dir) -> Vec<HugePages> {
    let Some(pages) = fs.sub(node, "hugepages") else { return Vec::new() };
    let mut sizes: Vec<(u64, String)> = fs
        .names(&pages.path, |name| name.starts_with("hugepages-"))
        .into_iter()
        .filter_map(|name| {
            let number = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            Some((number, name))
        })
        .collect();
    sizes.sort();
    let read = sizes.into_iter().filter_map(|(kib, name): (u64, String)| {
        let size = Bytes(kib.checked_mul(1024)?);
        let total = fs.value(&pages, &format!("{name}/nr_hugepages"))?;
        let free = fs.value(&pages, &format!("{name}/free_hugepages")).unwrap_or(0);
        Some(HugePages { size, total, free })
    });
    read.collect()
}

fn read_access(fs: &mut KernelFs, node: &Dir, class: u32) -> Option<AccessFacts> {
    let initiators = fs.sub(node, &format!("access{class}/initiators"))?;
    let named = fs.names(&initiators.path, |name| name.starts_with("node"));
    for name in &named {
        // The names are links to the nodes.
        fs.link(&format!("{}/{name}", initiators.path));
    }
    let numbers = named.iter().filter_map(|name| plain_number(name.strip_prefix("node")?));
    let mut value = |file| fs.value(&initiators, file);
    Some(AccessFacts {
        class,
        initiators: numbers.map(NodeId).collect(),
        read_bandwidth: value("read_bandwidth"),
        write_bandwidth: value("write_bandwidth"),
        read_latency: value("read_latency"),
        write_latency: value("write_latency"),
    })
}

fn read_side_caches(fs: &mut KernelFs, node: &Dir) -> Vec<Bytes> {
    let Some(dir) = fs.sub(node, "memory_side_cache") else { return Vec::new() };
    let sizes = (0..=SIDE_CACHES_MAX).filter_map(|index| {
        // In bytes, without a unit.
        fs.value(&dir, &format!("index{index}/size")).map(Bytes)
    });
    sizes.collect()
}

fn read_dax(fs: &mut KernelFs, name: String) -> Option<DaxFacts> {
    let path = format!("{DAX_DIR}/{name}");
    let place = fs.link(&path)?;
    let origin = match () {
        () if place.contains("/ndbus") => DaxOrigin::Pmem,
        () if place.contains("/cxl") || place.contains("/region") => DaxOrigin::Cxl,
        () => DaxOrigin::SpecialPurpose,
    };
    let device = dir(fs, &path)?;
    let node = fs.parsed(&device, "target_node", text::number_or_unknown).flatten().map(NodeId);
    Some(DaxFacts { name, node, origin })
}
