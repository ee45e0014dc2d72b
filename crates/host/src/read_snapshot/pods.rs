//! What the groups around all pods allow. In: the root of the cgroups and kubelet's `kubepods`, wherever that is. Out: the CPUs and memory nodes that a container can have at most.
//!
//! The kernel narrows every set to what the groups above have: with version 2 silently (Documentation/admin-guide/cgroup-v2.rst, `cpuset.cpus.effective`), with version 1 it refuses a set
//! that the parent does not have (Documentation/admin-guide/cgroup-v1/cpusets.rst, 1.4). The root of the cgroups is not the host's where the node is itself a container.

use std::path::Path;
use std::str::FromStr;

use bayplan_topology::Snapshot;
use bayplan_types::{CpuSet, NodeSet};

use super::dirs::{CGROUP_DIR, dir};
use crate::kernel_files::Entry;
use crate::kernel_fs::{Dir, KernelFs};

/// The hierarchy of version 1.
const CPUSET_DIR: &str = "sys/fs/cgroup/cpuset";
/// Stands for the group around all pods in a record: its parents' names may identify the machine.
pub(crate) const RECORDED: &str = "sys/fs/cgroup/kubepods";
/// Files of both versions; the first that is there counts.
const CPUS: [&str; 3] = ["cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"];
const MEMS: [&str; 3] = ["cpuset.mems.effective", "cpuset.effective_mems", "cpuset.mems"];

/// Whether a group is the one around all pods, or was when another cgroup driver was in use.
pub(super) fn is_kubepods(name: &str) -> bool {
    name.contains("kubepods")
}

/// Reads the sets; `of_containers` are CPUs of partitions that are containers, which the kernel takes away from all groups around them.
pub(super) fn read(fs: &mut KernelFs, of_containers: &CpuSet, snapshot: &mut Snapshot) {
    let tops = [CGROUP_DIR, CPUSET_DIR];
    let mut groups: Vec<String> = tops.iter().map(|top| (*top).to_owned()).collect();
    for top in tops {
        groups.extend(fs.unrecorded(|fs| kubepods_below(top, &mut |dir| fs.dir_names(dir))));
    }
    let (mut cpus, mut mems): (Option<CpuSet>, Option<NodeSet>) = (None, None);
    for path in groups {
        let Some(group) = dir(fs, &path) else { continue };
        let of_group = fs.unrecorded(|fs| first::<CpuSet>(fs, &group, CPUS));
        if let Some(of_group) = of_group.map(|it| it.union(of_containers)) {
            cpus = Some(cpus.map_or(of_group.clone(), |known| known.intersection(&of_group)));
        }
        let of_group = fs.unrecorded(|fs| first::<NodeSet>(fs, &group, MEMS));
        if let Some(of_group) = of_group {
            mems = Some(mems.map_or(of_group.clone(), |known| known.intersection(&of_group)));
        }
    }
    let text = |set: String| Entry::Text(set);
    if let Some(cpus) = &cpus {
        fs.record(format!("{RECORDED}/cpuset.cpus.effective"), text(cpus.to_string()));
    }
    if let Some(mems) = &mems {
        fs.record(format!("{RECORDED}/cpuset.mems.effective"), text(mems.to_string()));
    }
    (snapshot.pods_cpus, snapshot.pods_mems) = (cpus, mems);
}

/// The first of these files that is there and holds something: a group of version 2 without the controller has none, one of version 1 may not be set up yet.
fn first<T: FromStr>(fs: &mut KernelFs, group: &Dir, files: [&str; 3]) -> Option<T> {
    let is_filled = |text: &String| !text.trim().is_empty();
    let text = files.iter().find_map(|file| fs.text(group, file)).filter(is_filled)?;
    text.trim().parse().ok()
}

/// Directories of the groups around all pods in one hierarchy: at its top, or one deeper (kubelet's option `cgroupRoot`).
pub(super) fn kubepods_below(
    top: &str,
    dir_names: &mut impl FnMut(&str) -> Vec<String>,
) -> Vec<String> {
    let mut groups = Vec::new();
    for name in dir_names(top) {
        let path = format!("{top}/{name}");
        if is_kubepods(&name) {
            groups.push(path);
            continue;
        }
        // The hierarchies of version 1 are mounted there.
        if path == CPUSET_DIR {
            continue;
        }
        let below = dir_names(&path).into_iter().filter(|name| is_kubepods(name));
        groups.extend(below.map(|name| format!("{path}/{name}")));
    }
    groups
}

/// Files below `root` that say what the groups around all pods allow, as many as there are now. When one of them changes, the machine has changed for containers.
pub fn pods_limit_files(root: &Path) -> Vec<String> {
    let mut dir_names = |dir: &str| {
        let entries = std::fs::read_dir(root.join(dir)).into_iter().flatten().flatten();
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut names: Vec<String> =
            dirs.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    };
    let mut files = Vec::new();
    for top in [CGROUP_DIR, CPUSET_DIR] {
        let groups = std::iter::once(top.to_owned()).chain(kubepods_below(top, &mut dir_names));
        for group in groups {
            for names in [CPUS, MEMS] {
                let mut paths = names.iter().map(|name| format!("{group}/{name}"));
                files.extend(paths.find(|path| root.join(path).exists()));
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use crate::kernel_files::KernelFiles;
    use crate::{Depth, capture, read_files, read_snapshot};

    use super::*;

    /// What is read of these files, also of their record.
    #[track_caller]
    fn check(files: &str, cpus: Option<&str>, mems: Option<&str>) {
        let root = tempfile::tempdir().unwrap();
        let online = "sys/devices/system/cpu/online 0-7\n";
        let files = KernelFiles::parse(&format!("bayplan-files/1\n{online}{files}")).unwrap();
        files.write_to(root.path()).unwrap();
        let captured = capture(root.path()).unwrap();
        assert!(!captured.render().contains("customer"), "{}", captured.render());
        let again = read_files(captured, Depth::Cpus).unwrap();
        for snapshot in [read_snapshot(root.path(), Depth::Placement).unwrap(), again] {
            let found = snapshot.pods_cpus.map(|it| it.to_string());
            assert_eq!(found.as_deref(), cpus);
            let found = snapshot.pods_mems.map(|it| it.to_string());
            assert_eq!(found.as_deref(), mems);
            assert_eq!(snapshot.oddities, []);
        }
    }

    #[test]
    fn containers_can_have_what_every_group_around_them_has() {
        check("", None, None);
        check("sys/fs/cgroup/cpuset.cpus.effective 2-5\n", Some("2-5"), None);
        check(
            "sys/fs/cgroup/cpuset.cpus.effective 0-7\n\
             sys/fs/cgroup/cpuset.mems.effective 0-1\n\
             sys/fs/cgroup/kubepods.slice/cpuset.cpus.effective 4-7\n\
             sys/fs/cgroup/kubepods.slice/cpuset.mems.effective 1\n\
             sys/fs/cgroup/system.slice/cpuset.cpus.effective 0\n",
            Some("4-7"),
            Some("1"),
        );
        check("sys/fs/cgroup/customer/kubepods/cpuset.cpus.effective 1,3\n", Some("1,3"), None);
        // CPUs of a container's own partition are its.
        check(
            "sys/fs/cgroup/kubepods/cpuset.cpus.effective 0-5\n\
             sys/fs/cgroup/kubepods/pod1/ab/cpuset.cpus.partition isolated\n\
             sys/fs/cgroup/kubepods/pod1/ab/cpuset.cpus.effective 6-7\n",
            Some("0-7"),
            None,
        );
        check(
            "sys/fs/cgroup/cpuset/cpuset.effective_cpus 0-7\n\
             sys/fs/cgroup/cpuset/cpuset.cpus 0-7\n\
             sys/fs/cgroup/cpuset/kubepods/cpuset.effective_cpus 1\n\
             sys/fs/cgroup/cpuset/kubepods/cpuset.cpus 1,9\n\
             sys/fs/cgroup/cpuset/kubepods/cpuset.mems 0\n",
            Some("1"),
            Some("0"),
        );
        check("sys/fs/cgroup/cpuset/kubepods/cpuset.cpus \\n\n", None, None);
    }

    #[test]
    fn the_files_that_limit_pods_are_named() {
        let root = tempfile::tempdir().unwrap();
        let files = "bayplan-files/1\n\
            sys/fs/cgroup/cpuset.cpus.effective 0-7\n\
            sys/fs/cgroup/a/kubepods.slice/cpuset.cpus.effective 0-7\n\
            sys/fs/cgroup/a/kubepods.slice/cpuset.cpus 0-7\n\
            sys/fs/cgroup/cpuset/kubepods/cpuset.mems 0\n";
        KernelFiles::parse(files).unwrap().write_to(root.path()).unwrap();
        assert_eq!(
            pods_limit_files(root.path()),
            [
                "sys/fs/cgroup/cpuset.cpus.effective",
                "sys/fs/cgroup/a/kubepods.slice/cpuset.cpus.effective",
                "sys/fs/cgroup/cpuset/kubepods/cpuset.mems",
            ]
        );
    }
}
