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
    // proc/ itself may be missing in a captured tree.
    if let Ok(Some(dir)) = fs.dir("proc") {
        snapshot.mem_total = fs.parsed(&dir.join("meminfo"), parse_mem_total);
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use bayplan_topology::derive;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;

    /// Files below `sys/devices/system`, and their texts.
    fn tree(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join("sys/devices/system").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[track_caller]
    fn check(root: &TempDir, expected: Expect) {
        let Snapshot {
            cpus,
            present,
            possible,
            online,
            isolated,
            nodes,
            online_nodes,
            oddities,
            ..
        } = read_snapshot(root.path()).unwrap();
        let mut lines = vec![
            format!("present {present:?}, possible {possible:?}"),
            format!("online {online:?}, isolated {isolated:?}"),
        ];
        lines.extend(cpus.iter().map(|cpu| format!("{cpu:?}")));
        lines.push(format!("nodes {online_nodes:?}"));
        lines.extend(nodes.iter().map(|node| format!("{node:?}")));
        lines.extend(oddities.iter().map(ToString::to_string));
        expected.assert_eq(&format!("{}\n", lines.join("\n")));
    }

    fn oddities(files: &[(&str, &str)]) -> Vec<String> {
        let root = tree(files);
        let snapshot = read_snapshot(root.path()).unwrap();
        snapshot.oddities.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_file_is_read() {
        let root = tree(&[
            ("cpu/present", "0-1\n"),
            ("cpu/possible", "0-3\n"),
            ("cpu/online", "0\n"),
            ("cpu/isolated", "\n"),
            ("cpu/cpu1/online", "0\n"),
            ("cpu/cpu0/topology/physical_package_id", "3\n"),
            ("cpu/cpu0/topology/die_id", "-1\n"),
            ("cpu/cpu0/topology/core_id", "7\n"),
            ("cpu/cpu0/topology/core_cpus_list", "0-1\n"),
            ("cpu/cpu0/topology/thread_siblings_list", "0,9\n"),
            ("cpu/cpu0/cache/index3/level", "3\n"),
            ("cpu/cpu0/cache/index3/type", "Unified\n"),
            ("cpu/cpu0/cache/index3/size", "39424K\n"),
            ("cpu/cpu0/cache/index3/id", "2\n"),
            ("cpu/cpu0/cache/index3/shared_cpu_map", "00000000,00000003\n"),
            ("cpu/cpufreq/boost", "1\n"),
            ("node/online", "0-1\n"),
            ("node/node0/cpumap", "3\n"),
            ("node/node0/meminfo", "\nNode 0 MemTotal:       1024 kB\nNode 0 MemFree: 1 kB\n"),
            ("node/node0/distance", "10 21\n"),
        ]);
        check(
            &root,
            expect![[r#"
                present Some(CpuSet(0-1)), possible Some(CpuSet(0-3))
                online Some(CpuSet(0)), isolated Some(CpuSet())
                CpuFacts { id: CpuId(0), online: None, package_id: Some(PackageId(3)), die_id: None, core_id: Some(CoreId(7)), thread_siblings: Some(CpuSet(0-1)), caches: [CacheFacts { level: Some(3), kind: Some(Unified), shared_cpus: Some(CpuSet(0-1)), size: Some(Bytes(40370176)), id: Some(2) }] }
                CpuFacts { id: CpuId(1), online: Some(false), package_id: None, die_id: None, core_id: None, thread_siblings: None, caches: [] }
                nodes Some(NodeSet(0-1))
                NodeFacts { id: NodeId(0), cpus: Some(CpuSet(0-1)), mem_total: Some(Bytes(1048576)), distances: [10, 21] }
            "#]],
        );
    }

    #[test]
    fn a_cgroup_that_allows_only_some_cpus_is_seen() {
        let root = tree(&[("cpu/cpu0/online", "1")]);
        let group = root.path().join("sys/fs/cgroup/system.slice/bayplan.service");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("cpuset.cpus.effective"), "2-3\n").unwrap();
        fs::write(group.join("cpuset.mems.effective"), "1\n").unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(
            root.path().join("proc/self/cgroup"),
            "12:cpuset:/old\n0::/system.slice/bayplan.service\n",
        )
        .unwrap();
        let snapshot = read_snapshot(root.path()).unwrap();
        assert_eq!(snapshot.allowed_cpus, Some("2-3".parse().unwrap()));
        assert_eq!(snapshot.allowed_mems, Some("1".parse().unwrap()));
        assert_eq!(snapshot.oddities, []);
    }

    #[test]
    fn garbage_is_noted_and_counts_as_missing() {
        let long = "9".repeat(100);
        let found = oddities(&[
            ("cpu/online", "zero to three\n"),
            ("cpu/isolated", "0-99999999\n"),
            ("cpu/cpu0/online", "2\n"),
            ("cpu/cpu0/topology/physical_package_id", "-2\n"),
            ("cpu/cpu0/topology/core_id", &long),
            ("cpu/cpu0/topology/core_cpus_list", "0-\n"),
            ("cpu/cpu0/topology/thread_siblings", "xyz\n"),
            ("cpu/cpu0/cache/index0/type", "Trace\n"),
            ("cpu/cpu0/cache/index0/size", "lots\n"),
            ("cpu/cpu1", "a file where a directory should be\n"),
            ("cpu/cpu01/online", "1\n"),
            ("node/node0/meminfo", "Node 0 MemTotal: 5 MB\n"),
            ("node/node0/distance", "10 near\n"),
        ]);
        expect![[r#"
            /sys/devices/system/cpu/online: "zero to three"; assumed: as if the file were missing
            /sys/devices/system/cpu/isolated: "0-99999999"; assumed: as if the file were missing
            /sys/devices/system/cpu/cpu1: not a directory; assumed: it is not there
            /sys/devices/system/cpu/cpu0/topology/physical_package_id: "-2"; assumed: as if the file were missing
            /sys/devices/system/cpu/cpu0/topology/core_id: "999999999999999999999999999999999999999999999999999999999999..."; assumed: as if the file were missing
            /sys/devices/system/cpu/cpu0/online: "2"; assumed: as if the file were missing
            /sys/devices/system/cpu/cpu0/topology/core_cpus_list: "0-"; assumed: as if the file were missing
            /sys/devices/system/cpu/cpu0/topology/thread_siblings: "xyz"; assumed: as if the file were missing
            /sys/devices/system/cpu/cpu0/cache/index0/type: "Trace"; assumed: as if the file were missing
            /sys/devices/system/cpu/cpu0/cache/index0/size: "lots"; assumed: as if the file were missing
            /sys/devices/system/node/node0/meminfo: "Node 0 MemTotal: 5 MB"; assumed: as if the file were missing
            /sys/devices/system/node/node0/distance: "10 near"; assumed: as if the file were missing"#]].assert_eq(&found.join("\n"));
    }

    #[test]
    fn a_huge_file_is_cut_off() {
        let text = format!("Node 0 MemTotal: 4 kB\n{}", "x".repeat(100_000));
        let root = tree(&[("cpu/cpu0/online", "1"), ("node/node0/meminfo", &text)]);
        let snapshot = read_snapshot(root.path()).unwrap();
        assert_eq!(snapshot.nodes[0].mem_total, Some(Bytes(4096)));
        assert_eq!(
            snapshot.oddities[0].to_string(),
            "/sys/devices/system/node/node0/meminfo: more than 65536 bytes; assumed: what stands in the first ones"
        );
    }

    #[test]
    fn links_are_not_followed_out_of_the_root() {
        let outside = tree(&[("node/node0/cpulist", "0-63\n"), ("cpu/online", "0-63\n")]);
        let outside = outside.path().join("sys/devices/system");
        let root = tree(&[("cpu/cpu0/online", "1\n")]);
        let inside = root.path().join("sys/devices/system");
        symlink(outside.join("node"), inside.join("node")).unwrap();
        symlink(outside.join("cpu/online"), inside.join("cpu/online")).unwrap();
        symlink(inside.join("cpu/cpu0"), inside.join("cpu/cpu1")).unwrap();
        check(
            &root,
            expect![[r#"
                present None, possible None
                online None, isolated None
                CpuFacts { id: CpuId(0), online: Some(true), package_id: None, die_id: None, core_id: None, thread_siblings: None, caches: [] }
                nodes None
                /sys/devices/system/cpu/online: not a regular file; assumed: as if the file were missing
                /sys/devices/system/cpu/cpu1: not a directory; assumed: it is not there
            "#]],
        );
    }

    #[test]
    fn a_root_without_cpus_is_refused_with_what_to_do() {
        let empty = tempfile::tempdir().unwrap();
        for root in [empty.path(), &empty.path().join("no/such/place")] {
            let text = read_snapshot(root).unwrap_err().to_string();
            assert_eq!(
                text,
                format!(
                    "{}/sys/devices/system/cpu is not there; expected the kernel's CPU directories: \
                     mount sysfs, or name the directory that holds `sys`",
                    root.display()
                )
            );
        }
    }

    #[test]
    fn this_machine_has_a_cpu() {
        // A build sandbox may lack /sys.
        if let Ok(snapshot) = read_snapshot(Path::new("/")) {
            assert!(!derive(&snapshot).unwrap().cpus().is_empty());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_text_in_any_file_is_read_or_noted(text in "[-0-9,:/a-zK \\n\\x00]{0,12}", at in 0_usize..12) {
            let mut files = [
                ("cpu/online", "0\n"),
                ("cpu/present", "0\n"),
                ("cpu/isolated", "\n"),
                ("cpu/cpu0/online", "1\n"),
                ("cpu/cpu0/topology/core_id", "0\n"),
                ("cpu/cpu0/topology/core_cpus_list", "0\n"),
                ("cpu/cpu0/cache/index3/level", "3\n"),
                ("cpu/cpu0/cache/index3/size", "1K\n"),
                ("cpu/cpu0/cache/index3/shared_cpu_list", "0\n"),
                ("node/node0/cpulist", "0\n"),
                ("node/node0/meminfo", "Node 0 MemTotal: 4 kB\n"),
                ("node/node0/distance", "10\n"),
            ];
            files[at].1 = &text;
            let snapshot = read_snapshot(tree(&files).path()).unwrap();
            let _either = derive(&snapshot);
        }
    }
}
