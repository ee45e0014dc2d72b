//! The hardware as the kernel shows it. In: a root with `sys` in it. Out: a [`Snapshot`], facts without judgement. The files are in
//! Documentation/admin-guide/cputopology.rst, Documentation/ABI/stable/sysfs-devices-node and Documentation/admin-guide/mm/numaperf.rst.
//!
//! Everything but the CPU directory may be missing. What is there but cannot be read becomes an oddity of the snapshot.

mod caches;
mod cpu_lists;
mod cpus;
mod depth;
mod devices;
mod dirs;
mod kernel;
mod nodes;
mod pods;
mod text;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bayplan_topology::Snapshot;
use bayplan_types::{CpuSet, SPEED_SELECT_DEVICE};

use crate::fake_kernel::FakeKernel;
use crate::kernel::DiskKernel;
use crate::kernel_files::{Entry, KernelFiles};
use crate::kernel_fs::{Dir, KernelFs};
use crate::read_speed_select::read_speed_select;
use dirs::{CGROUP_DIR, dir};

pub use depth::Depth;
pub(crate) use devices::NVIDIA_DIR;
pub(crate) use pods::RECORDED as PODS_RECORDED;
pub use pods::pods_limit_files;

const CPU_DIR: &str = "sys/devices/system/cpu";
/// Below `kubepods`: QoS class, pod, container.
const CONTAINER_DEPTH_MAX: usize = 3;
/// Stands for our own group in a record: the real name may tell the user that runs bayplan.
const GROUP_RECORDED: &str = "self";

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
    #[error("cannot enter {}; expected the kernel's CPU directories: run as a user with the right to read them", path.display())]
    Unreadable {
        /// The CPU directory.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// Everything that sysfs says about the machine under `root`, which is `/` or a captured tree.
///
/// # Errors
/// [`ReadError`] when there is no CPU directory.
pub fn read_snapshot(root: &Path, depth: Depth) -> Result<Snapshot, ReadError> {
    let mut snapshot = read_all(open(root)?, root, depth)?.0;
    // The kernel's is a device, which the daemon asks.
    if root.join(SPEED_SELECT_DEVICE).is_dir()
        && let Ok(mut kernel) = DiskKernel::open(root)
    {
        snapshot.kernel.speed_select = read_speed_select(&mut kernel);
    }
    Ok(snapshot)
}

/// The same from files that were read before.
///
/// # Errors
/// [`ReadError`] when there is no CPU directory.
pub fn read_files(files: KernelFiles, depth: Depth) -> Result<Snapshot, ReadError> {
    let mut recorded = recorded_speed_select(&files);
    let mut snapshot = read_all(KernelFs::of(Arc::new(files)), Path::new("/"), depth)?.0;
    snapshot.kernel.speed_select = recorded.as_mut().and_then(|it| read_speed_select(it));
    Ok(snapshot)
}

/// Every file that a reading looks at, without anything that identifies the machine: no serial numbers, hardware addresses, host names, and of the
/// kernel's command line the options for CPUs and memory alone.
///
/// # Errors
/// [`ReadError`] when there is no CPU directory.
pub fn capture(root: &Path) -> Result<KernelFiles, ReadError> {
    Ok(read_all(open(root)?.recording(), root, Depth::Cpus)?.1)
}

/// What a record has of the device of Speed Select, and of the CPUs that are asked; `None`: nothing.
fn recorded_speed_select(files: &KernelFiles) -> Option<FakeKernel> {
    if !files.is_dir(SPEED_SELECT_DEVICE) {
        return None;
    }
    let mut kernel = FakeKernel::default();
    for (path, entry) in files.iter() {
        let is_asked =
            path.starts_with(SPEED_SELECT_DEVICE) || path.ends_with("/physical_package_id");
        if let (true, Entry::Text(text)) = (is_asked, entry) {
            kernel.files.insert(path.to_owned(), text.clone());
        }
    }
    Some(kernel)
}

fn open(root: &Path) -> Result<KernelFs, ReadError> {
    let path = root.join(CPU_DIR);
    KernelFs::open(root).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ReadError::NoCpuDirectory { path },
        _ => ReadError::Unreadable { path, source },
    })
}

fn read_all(
    mut fs: KernelFs,
    root: &Path,
    depth: Depth,
) -> Result<(Snapshot, KernelFiles), ReadError> {
    let path = root.join(CPU_DIR);
    let cpu_dir = match fs.dir(CPU_DIR) {
        Ok(Some(dir)) => dir,
        Ok(None) => return Err(ReadError::NoCpuDirectory { path }),
        Err(source) => return Err(ReadError::Unreadable { path, source }),
    };
    let mut snapshot = Snapshot {
        present: fs.value(&cpu_dir, "present"),
        possible: fs.value(&cpu_dir, "possible"),
        online: fs.value(&cpu_dir, "online"),
        isolated: fs.value(&cpu_dir, "isolated"),
        nohz_full: fs.parsed(&cpu_dir, "nohz_full", text::list_or_null),
        ..Snapshot::default()
    };
    cpus::read(&mut fs, &cpu_dir, depth, &mut snapshot);
    nodes::read(&mut fs, &mut snapshot);
    devices::read(&mut fs, &mut snapshot);
    kernel::read(&mut fs, &cpu_dir, &mut snapshot);
    read_cgroups(&mut fs, &mut snapshot);
    let (files, oddities) = fs.into_parts();
    snapshot.oddities = oddities;
    Ok((snapshot, files))
}

/// What cgroups say about CPUs (`Documentation/admin-guide/cgroup-v2.rst`, "Cpuset Interface Files").
fn read_cgroups(fs: &mut KernelFs, snapshot: &mut Snapshot) {
    let of_containers = fs.unrecorded(partitions_of_containers);
    if let Some(group) = own_cgroup(fs) {
        snapshot.allowed_cpus = fs.value(&group, "cpuset.cpus.effective");
        if let Some(cpus) = snapshot.allowed_cpus.as_mut().filter(|_| !of_containers.is_empty()) {
            cpus.union_with(&of_containers);
            fs.record(group.recorded("cpuset.cpus.effective"), Entry::Text(cpus.to_string()));
        }
        snapshot.allowed_mems = fs.value(&group, "cpuset.mems.effective");
    }
    pods::read(fs, &of_containers, snapshot);
    let Some(root) = dir(fs, CGROUP_DIR) else { return };
    snapshot.partitioned = fs.value(&root, "cpuset.cpus.isolated");
    if let Some(cpus) = &mut snapshot.partitioned {
        cpus.subtract(&of_containers);
        // Later kernels (seen on 6.12) list those that `isolcpus=` names, too, which are in no partition.
        if let Some(at_boot) = &snapshot.isolated {
            cpus.subtract(at_boot);
        }
        fs.record(root.recorded("cpuset.cpus.isolated"), Entry::Text(cpus.to_string()));
        return;
    }
    // Before Linux 6.7 a partition is a child of the root or of another partition.
    for name in fs.unrecorded(|fs| fs.names(CGROUP_DIR, |_| true)) {
        let Some(group) = fs.sub(&root, &name) else { continue };
        let file = "cpuset.cpus.partition";
        let state = fs.text(&group, file);
        if state.is_some_and(|state| state.trim() == "isolated") {
            fs.record(format!("{CGROUP_DIR}/{name}/{file}"), Entry::Text("isolated".to_owned()));
            let cpus = fs.value(&group, "cpuset.cpus.effective").unwrap_or_default();
            snapshot.partitioned.get_or_insert_default().union_with(&cpus);
        }
    }
}

/// CPUs in partitions that are groups of containers: these were assigned to them, and to nothing else. The kernel takes them away from all other
/// groups, ours too.
fn partitions_of_containers(fs: &mut KernelFs) -> CpuSet {
    let found = pods::kubepods_below(CGROUP_DIR, &mut |dir| fs.dir_names(dir));
    let mut groups: Vec<(String, usize)> = found.into_iter().map(|path| (path, 0)).collect();
    let mut cpus = CpuSet::new();
    while let Some((path, depth)) = groups.pop() {
        if depth < CONTAINER_DEPTH_MAX {
            let below = fs.dir_names(&path).into_iter();
            groups.extend(below.map(|name| (format!("{path}/{name}"), depth + 1)));
        }
        let Some(group) = dir(fs, &path) else { continue };
        let kind = fs.text(&group, "cpuset.cpus.partition").unwrap_or_default();
        if matches!(kind.trim(), "isolated" | "root") {
            let its: Option<CpuSet> = fs.value(&group, "cpuset.cpus.effective");
            cpus.union_with(&its.unwrap_or_default());
        }
    }
    cpus
}

/// Our own group in the cgroup v2 tree; `None` with cgroup v1.
fn own_cgroup(fs: &mut KernelFs) -> Option<Dir> {
    let process = dir(fs, "proc/self")?;
    let text = fs.text(&process, "cgroup")?;
    let group = text.lines().find_map(|line| line.trim_end().strip_prefix("0::/"))?;
    let mut group = dir(fs, format!("{CGROUP_DIR}/{group}").trim_end_matches('/'))?;
    fs.record("proc/self/cgroup".to_owned(), Entry::Text(format!("0::/{GROUP_RECORDED}")));
    if group.path != CGROUP_DIR {
        group.recorded_as = Some(format!("{CGROUP_DIR}/{GROUP_RECORDED}"));
    }
    Some(group)
}

#[cfg(test)]
mod tests;
