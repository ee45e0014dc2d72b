//! The hardware as the kernel shows it. In: a root with `sys` in it. Out: a [`Snapshot`], facts without judgement.
//!
//! Everything but the CPU directory may be missing. What is there but cannot be read becomes an oddity of the snapshot.
//!
//! Files: `Documentation/ABI/stable/sysfs-devices-system-cpu`, `Documentation/ABI/testing/sysfs-devices-system-cpu`,
//! `Documentation/admin-guide/cputopology.rst`, `Documentation/ABI/stable/sysfs-devices-node`.

use std::io;
use std::path::{Path, PathBuf};

use bayplan_topology::{CacheFacts, CacheKind, CpuFacts, NodeFacts, Snapshot};
use bayplan_types::{Bytes, CoreId, CpuId, CpuSet, DieId, NodeId, PackageId};

use crate::kernel_fs::KernelFs;

const CPU_DIR: &str = "sys/devices/system/cpu";
const NODE_DIR: &str = "sys/devices/system/node";
const CGROUP_DIR: &str = "sys/fs/cgroup";

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The root holds no machine.
    #[error(
        "{} is not there; expected the kernel's CPU directories: mount sysfs, or name the directory that holds `sys`",
        path.display()
    )]
    NoCpuDirectory {
        /// Where the CPU directories should be.
        path: PathBuf,
    },
    /// The CPU directory is there, but cannot be entered.
    #[error("cannot enter {}; expected the kernel's CPU directories: run as a user who may read them", path.display())]
    Unreadable {
        /// The CPU directory.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// Everything that sysfs says about CPUs and NUMA nodes under `root`, which is `/` or a captured tree.
///
/// # Errors
/// [`ReadError`] when there is no CPU directory.
pub fn read_snapshot(root: &Path) -> Result<Snapshot, ReadError> {
    let path = root.join(CPU_DIR);
    let found = KernelFs::new(root).and_then(|fs| Ok(fs.dir(CPU_DIR)?.map(|dir| (fs, dir))));
    let (mut fs, cpu_dir) = match found {
        Ok(Some(found)) => found,
        Ok(None) => return Err(ReadError::NoCpuDirectory { path }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ReadError::NoCpuDirectory { path });
        }
        Err(source) => return Err(ReadError::Unreadable { path, source }),
    };
    let mut snapshot = Snapshot {
        present: fs.value(&cpu_dir.join("present")),
        possible: fs.value(&cpu_dir.join("possible")),
        online: fs.value(&cpu_dir.join("online")),
        isolated: fs.value(&cpu_dir.join("isolated")),
        ..Snapshot::default()
    };
    for (number, dir) in fs.numbered_dirs(&cpu_dir, "cpu") {
        snapshot.cpus.push(read_cpu(&mut fs, CpuId(number), &dir));
    }
    // A kernel without NUMA has no such directory.
    if let Ok(Some(dir)) = fs.dir(NODE_DIR) {
        snapshot.online_nodes = fs.value(&dir.join("online"));
        for (number, dir) in fs.numbered_dirs(&dir, "node") {
            snapshot.nodes.push(read_node(&mut fs, NodeId(number), &dir));
        }
    }
    if let Some(cgroup) = own_cgroup(&mut fs) {
        snapshot.allowed_cpus = fs.value(&cgroup.join("cpuset.cpus.effective"));
        snapshot.allowed_mems = fs.value(&cgroup.join("cpuset.mems.effective"));
    }
    snapshot.oddities = fs.oddities;
    Ok(snapshot)
}

fn read_cpu(fs: &mut KernelFs, id: CpuId, dir: &Path) -> CpuFacts {
    let topology = dir.join("topology");
    let mut number = |file: &str| fs.parsed(&topology.join(file), parse_number).flatten();
    let package_id = number("physical_package_id").map(PackageId);
    let die_id = number("die_id").map(DieId);
    let core_id = number("core_id").map(CoreId);
    CpuFacts {
        id,
        online: fs.parsed(&dir.join("online"), parse_switch),
        package_id,
        die_id,
        core_id,
        thread_siblings: read_cpu_set(
            fs,
            &topology,
            &["core_cpus_list", "thread_siblings_list"],
            &["core_cpus", "thread_siblings"],
        ),
        caches: read_caches(fs, &dir.join("cache")),
    }
}

fn read_caches(fs: &mut KernelFs, dir: &Path) -> Vec<CacheFacts> {
    let dirs = fs.numbered_dirs(dir, "index");
    let caches = dirs.into_iter().map(|(_, dir)| CacheFacts {
        level: fs.value(&dir.join("level")),
        kind: fs.parsed(&dir.join("type"), parse_cache_kind),
        shared_cpus: read_cpu_set(fs, &dir, &["shared_cpu_list"], &["shared_cpu_map"]),
        size: fs.parsed(&dir.join("size"), parse_size),
        id: fs.value(&dir.join("id")),
    });
    caches.collect()
}

fn read_node(fs: &mut KernelFs, id: NodeId, dir: &Path) -> NodeFacts {
    NodeFacts {
        id,
        cpus: read_cpu_set(fs, dir, &["cpulist"], &["cpumap"]),
        mem_total: fs.parsed(&dir.join("meminfo"), parse_mem_total),
        distances: fs.parsed(&dir.join("distance"), parse_distances).unwrap_or_default(),
    }
}

/// The first file that can be used; old kernels have only masks.
fn read_cpu_set(fs: &mut KernelFs, dir: &Path, lists: &[&str], masks: &[&str]) -> Option<CpuSet> {
    let list = lists.iter().find_map(|file| fs.value(&dir.join(file)));
    list.or_else(|| {
        let parse = |text: &str| CpuSet::parse_mask(text).ok();
        masks.iter().find_map(|file| fs.parsed(&dir.join(file), parse))
    })
}

/// Our own group in the cgroup v2 tree (`Documentation/admin-guide/cgroup-v2.rst`); `None` with cgroup v1.
fn own_cgroup(fs: &mut KernelFs) -> Option<PathBuf> {
    let process = fs.dir("proc/self").ok()??;
    let text = fs.text(&process.join("cgroup"))?;
    let group = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    fs.dir(&format!("{CGROUP_DIR}/{}", group.trim_end())).ok()?
}

/// A number, or -1 where the kernel does not know (`cputopology.rst`).
fn parse_number(text: &str) -> Option<Option<u32>> {
    if text == "-1" { Some(None) } else { text.parse().ok().map(Some) }
}

fn parse_switch(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

fn parse_cache_kind(text: &str) -> Option<CacheKind> {
    match text {
        "Data" => Some(CacheKind::Data),
        "Instruction" => Some(CacheKind::Instruction),
        "Unified" => Some(CacheKind::Unified),
        _ => None,
    }
}

/// `39424K`.
fn parse_size(text: &str) -> Option<Bytes> {
    let number = text.strip_suffix('K')?.parse::<u64>().ok()?;
    number.checked_mul(1024).map(Bytes)
}

/// `Node 0 MemTotal:       98304000 kB`.
fn parse_mem_total(text: &str) -> Option<Bytes> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let mut words = lines.find_map(|mut words| {
        let is_total = words.any(|word| word == "MemTotal:");
        is_total.then_some(words)
    })?;
    let number = words.next()?.parse::<u64>().ok()?;
    if words.next() != Some("kB") {
        return None;
    }
    number.checked_mul(1024).map(Bytes)
}

fn parse_distances(text: &str) -> Option<Vec<u32>> {
    text.split_ascii_whitespace().map(|word| word.parse().ok()).collect()
}
