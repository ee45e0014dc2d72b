//! Where a container's cgroup is. In: the pod's cgroup as kubelet names it, the runtime's id, a process. Out: directories that exist.
//!
//! Kubelet names the pod's cgroup as a path (driver `cgroupfs`, `/kubepods/burstable/podUID`) or as a slice (driver `systemd`,
//! `kubepods-burstable-podUID.slice`), which lies in all slices that its name begins with (systemd.slice(5)). In there each runtime names a
//! container's in its own way: `ID`, `crio-ID`, `cri-containerd-ID.scope`, `crio-ID.scope`; crun puts the processes into `container` below it.
//! Where kubelet's name does not lead there, a process tells (cgroups(7), "/proc/pid/cgroup").

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;

use crate::cgroup_error::CgroupError;
use crate::kernel::{DiskKernel, Kernel};

/// Where cgroup v2 is mounted, below the root.
pub(crate) const CGROUPS: &str = "sys/fs/cgroup";

/// A container's directories, below the root and without a slash in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerCgroup {
    /// The one around the containers of its pod; `None` where kubelet has named none.
    pub pod: Option<String>,
    /// Its own; then, if the runtime has made one, that with its processes.
    pub dirs: Vec<String>,
}

/// The cgroup (version 2) of the container with this id in the pod's cgroup that kubelet calls `parent`; `pid` is a process of the container. `None`:
/// it has none, or none any more.
///
/// # Errors
/// [`CgroupError`] when it cannot be looked for.
pub fn find_container_cgroup(
    kernel: &mut dyn Kernel,
    parent: &str,
    id: &str,
    pid: Option<u32>,
) -> Result<Option<ContainerCgroup>, CgroupError> {
    let named = match find_by_name(kernel, CGROUPS, GROUP_FILE, parent, id) {
        Some(own) => Some(own),
        None => find_below(kernel, CGROUPS, parent, id)?,
    };
    let found = match (named, pid) {
        (None, Some(pid)) => find_by_process(kernel, id, pid)?,
        (named, _) => named,
    };
    let Some(own) = found else { return Ok(None) };
    let mut dirs = vec![own.clone()];
    let inner = format!("{own}/container");
    if is_group(kernel, &inner) {
        dirs.push(inner);
    }
    Ok(Some(ContainerCgroup { pod: pod_around(&own, parent), dirs }))
}

fn pod_around(own: &str, parent: &str) -> Option<String> {
    let (dir, _) = own.rsplit_once('/')?;
    let is_kubelets = cgroup_dir(parent)?.file_name() == Path::new(dir).file_name();
    is_kubelets.then(|| dir.to_owned())
}

/// As [`find_container_cgroup`] in the hierarchy `cpu` of version 1 (Documentation/scheduler/sched-bwc.rst), without what the runtime makes within.
///
/// # Errors
/// [`CgroupError`] when it cannot be looked for.
pub fn find_cpu_cgroup(
    kernel: &mut dyn Kernel,
    parent: &str,
    id: &str,
) -> Result<Option<ContainerCgroup>, CgroupError> {
    let own = find_below(kernel, &format!("{CGROUPS}/cpu"), parent, id)?;
    Ok(own.map(|own| ContainerCgroup { pod: pod_around(&own, parent), dirs: vec![own] }))
}

/// Whether the CPU time of groups is limited by a hierarchy of version 1.
pub fn has_cpu_cgroups(kernel: &mut dyn Kernel) -> bool {
    kernel.is_there(&format!("{CGROUPS}/cpu/cpu.cfs_quota_us"))
}

/// Whether the kernel gives real-time threads of groups a time of their own (`CONFIG_RT_GROUP_SCHED`, Documentation/scheduler/sched-rt-group.rst). A group that is made has
/// none, so it has no real-time threads. With cgroups of version 2 alone no file tells.
pub fn groups_realtime_threads(kernel: &mut dyn Kernel) -> bool {
    kernel.is_there(&format!("{CGROUPS}/cpu/cpu.rt_runtime_us"))
}

/// The directory in which a pod's containers get theirs (version 2), whether it is there or not. `None`: kubelet has named none.
pub fn pod_cgroup(parent: &str) -> Option<String> {
    pod_dir(CGROUPS, parent)
}

/// The group with the files that say where a container may run: its own, or where cgroups are of version 1 that of the hierarchy `cpuset`
/// (Documentation/admin-guide/cgroup-v1/cpusets.rst). `None`: it has none, or none any more.
///
/// # Errors
/// [`CgroupError`] when it cannot be looked for.
pub fn find_cpuset_group(
    kernel: &mut dyn Kernel,
    parent: &str,
    id: &str,
) -> Result<Option<String>, CgroupError> {
    let version_1 = format!("{CGROUPS}/cpuset");
    let named = find_by_name(kernel, CGROUPS, GROUP_FILE, parent, id)
        .or_else(|| find_by_name(kernel, &version_1, "cpuset.cpus", parent, id));
    if named.is_some() {
        return Ok(named);
    }
    match find_below(kernel, CGROUPS, parent, id)? {
        None => find_below(kernel, &version_1, parent, id),
        found => Ok(found),
    }
}

/// The names of the usual runtimes are tried first: this is asked for every container at every look, and a list of a directory of files takes longer. `file` is one that every group
/// of this hierarchy has.
fn find_by_name(
    kernel: &mut dyn Kernel,
    mount: &str,
    file: &str,
    parent: &str,
    id: &str,
) -> Option<String> {
    let pod = pod_dir(mount, parent).filter(|_| !id.is_empty())?;
    let names = [("", ""), ("cri-containerd-", ".scope"), ("crio-", ".scope"), ("crio-", "")];
    let mut paths = names.iter().map(|(before, after)| format!("{pod}/{before}{id}{after}"));
    paths.find(|path| kernel.is_there(&format!("{path}/{file}")))
}

/// Below a mounted hierarchy; `None`: kubelet has named none.
fn pod_dir(mount: &str, parent: &str) -> Option<String> {
    Some(format!("{mount}/{}", cgroup_dir(parent)?.to_str()?))
}

/// Every group of version 2 but the root has this file.
const GROUP_FILE: &str = "cgroup.type";

fn is_group(kernel: &mut dyn Kernel, dir: &str) -> bool {
    kernel.is_there(&format!("{dir}/{GROUP_FILE}"))
}

/// Only a hierarchy of version 2 has it; mounted here it is the only one (Documentation/admin-guide/cgroup-v2.rst, "Mounting" and "Core Interface Files").
pub const CGROUP_CONTROLLERS: &str = "sys/fs/cgroup/cgroup.controllers";

/// Whether cgroups are of version 2 alone.
pub fn has_cgroup_v2(kernel: &mut dyn Kernel) -> bool {
    kernel.is_there(CGROUP_CONTROLLERS)
}

/// Where cgroups of version 2 are mounted: alone, or beside version 1.
fn unified_mount(root: &Path) -> String {
    let is_alone = DiskKernel::open(root).is_ok_and(|mut kernel| has_cgroup_v2(&mut kernel));
    if is_alone { CGROUPS.to_owned() } else { format!("{CGROUPS}/unified") }
}

/// The paths, from the root of the hierarchy (version 2), of cgroups of which only the kernel's numbers are known; without those that are gone. Walks the
/// whole tree, so it is not for every round.
pub fn find_cgroup_paths(root: &Path, ids: &BTreeSet<u64>) -> BTreeMap<u64, String> {
    let mount = root.join(unified_mount(root));
    let (mut found, mut todo) = (BTreeMap::new(), vec![mount.clone()]);
    let own = |dir: &Path| std::fs::metadata(dir).ok().map(|it| it.ino());
    if let Some(id) = own(&mount).filter(|id| ids.contains(id)) {
        found.insert(id, "/".to_owned());
    }
    // One that goes meanwhile has no process in it.
    while let Some(dir) = todo.pop().filter(|_| found.len() < ids.len()) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|it| it.is_dir()) {
                continue;
            }
            let path = entry.path();
            if let (true, Ok(below)) = (ids.contains(&entry.ino()), path.strip_prefix(&mount)) {
                found.insert(entry.ino(), format!("/{}", below.display()));
            }
            todo.push(path);
        }
    }
    found
}

/// The kernel's number of the container's cgroup (version 2), which is the inode number of its directory; also where version 2 is only mounted
/// beside version 1, at `unified`. `root` holds `sys`. `None`: it has none, or none any more.
///
/// # Errors
/// [`CgroupError`] when it cannot be looked for.
pub fn find_container_cgroup_id(
    root: &Path,
    parent: &str,
    id: &str,
) -> Result<Option<u64>, CgroupError> {
    let read = |source| CgroupError::Read { path: root.to_owned(), source };
    let mut kernel = DiskKernel::open(root).map_err(read)?;
    let Some(dir) = find_below(&mut kernel, &unified_mount(root), parent, id)? else {
        return Ok(None);
    };
    let path = root.join(dir);
    match std::fs::metadata(&path) {
        Ok(metadata) => Ok(Some(metadata.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(CgroupError::Read { path, source }),
    }
}

/// The container's directory in its pod's, in one mounted hierarchy. `parent` may be the container's own path, too, as runtimes tell it.
pub(crate) fn find_below(
    kernel: &mut dyn Kernel,
    mount: &str,
    parent: &str,
    id: &str,
) -> Result<Option<String>, CgroupError> {
    let Some(dir) = pod_dir(mount, parent).filter(|_| !id.is_empty()) else { return Ok(None) };
    let Some(names) = list(kernel, &dir)? else { return Ok(None) };
    if dir.rsplit('/').next().is_some_and(|name| is_of(name, id)) {
        return Ok(Some(dir));
    }
    Ok(names.iter().find(|name| is_of(name, id)).map(|name| format!("{dir}/{name}")))
}

/// From the process's own cgroup up to the one with the id in its name: a container may have made cgroups of its own in its.
fn find_by_process(
    kernel: &mut dyn Kernel,
    id: &str,
    pid: u32,
) -> Result<Option<String>, CgroupError> {
    let path = format!("proc/{pid}/cgroup");
    let text = match kernel.read(&path) {
        Ok(text) => text,
        Err(Errno::ENOENT | Errno::ESRCH) => return Ok(None),
        Err(errno) => return Err(failed(&path, errno)),
    };
    let Some(dir) = text.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Ok(None);
    };
    let names: Vec<&str> = dir.trim().split('/').collect();
    // From a cgroup namespace of one's own the paths of others begin with `..` and lead nowhere.
    let Some(at) = names.iter().position(|name| is_of(name, id)).filter(|_| !dir.contains(".."))
    else {
        return Ok(None);
    };
    let own = format!("{CGROUPS}/{}", names.get(..=at).unwrap_or_default().join("/"));
    Ok(list(kernel, &own)?.map(|_| own))
}

/// Whether a directory is the container's: its id, or that behind the runtime's name. The runtime's own monitor is another
/// (`crio-conmon-ID.scope`).
fn is_of(name: &str, id: &str) -> bool {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    match name.strip_suffix(id) {
        Some("") => !id.is_empty(),
        Some(prefix) => !id.is_empty() && prefix.ends_with('-') && !prefix.ends_with("conmon-"),
        None => false,
    }
}

fn list(kernel: &mut dyn Kernel, dir: &str) -> Result<Option<Vec<String>>, CgroupError> {
    match kernel.list(dir) {
        Ok(names) => Ok(Some(names)),
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ENODEV) => Ok(None),
        Err(errno) => Err(failed(dir, errno)),
    }
}

fn failed(path: &str, errno: Errno) -> CgroupError {
    CgroupError::Read { path: PathBuf::from(format!("/{path}")), source: io::Error::from(errno) }
}

/// Where a cgroup is below the mount. `None`: it is none.
fn cgroup_dir(parent: &str) -> Option<PathBuf> {
    // Runtimes tell `SLICE:PREFIX:ID`.
    let parent = parent.split(':').next().unwrap_or_default();
    let path = match parent.strip_suffix(".slice") {
        Some(name) if !parent.contains('/') => {
            let ends = name.match_indices('-').map(|(at, _)| at).chain([name.len()]);
            ends.map(|end| format!("{}.slice", name.get(..end).unwrap_or_default())).collect()
        }
        _ => PathBuf::from(parent.trim_start_matches('/')),
    };
    let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    (is_inside && path.components().next().is_some()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_kernel::FakeKernel;

    #[test]
    fn cgroups_are_found_by_path_and_by_slice() {
        for (parent, expected) in [
            ("/kubepods/burstable/pod1", Some("kubepods/burstable/pod1")),
            ("kubepods.slice", Some("kubepods.slice")),
            (
                "kubepods-burstable-pod1_2.slice",
                Some("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"),
            ),
            ("kubepods-pod1.slice:cri-containerd:ab", Some("kubepods.slice/kubepods-pod1.slice")),
            ("/kubepods.slice/kubepods-pod1.slice", Some("kubepods.slice/kubepods-pod1.slice")),
            ("", None),
            ("/", None),
            ("/../etc", None),
            ("/kubepods/../../etc", None),
        ] {
            assert_eq!(cgroup_dir(parent), expected.map(PathBuf::from), "{parent}");
        }
    }

    #[test]
    fn cgroups_are_of_version_2_where_the_one_hierarchy_has_controllers() {
        for (file, expected) in [
            ("sys/fs/cgroup/cgroup.controllers", true),
            ("sys/fs/cgroup/unified/cgroup.controllers", false),
            ("sys/fs/cgroup/cpu/cgroup.procs", false),
        ] {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "cpu\n").unwrap();
            let mut kernel = DiskKernel::open(root.path()).unwrap();
            assert_eq!(has_cgroup_v2(&mut kernel), expected, "{file}");
        }
    }

    #[test]
    fn paths_are_found_by_number_also_beside_version_1() {
        for (mount, marker) in [("unified", None), ("", Some("cgroup.controllers"))] {
            let root = tempfile::tempdir().unwrap();
            let mount = root.path().join(CGROUPS).join(mount);
            let own = mount.join("system.slice/chrony.service");
            std::fs::create_dir_all(&own).unwrap();
            std::fs::create_dir_all(mount.join("kubepods/pod1")).unwrap();
            std::fs::write(mount.join(marker.unwrap_or("cgroup.procs")), "").unwrap();
            let number = |path: &Path| std::fs::metadata(path).unwrap().ino();
            let gone = number(&mount.join("kubepods/pod1"));
            std::fs::remove_dir(mount.join("kubepods/pod1")).unwrap();
            let ids = BTreeSet::from([number(&own), number(&mount), gone]);
            let expected = [(number(&own), "/system.slice/chrony.service"), (number(&mount), "/")];
            let expected = expected.map(|(id, path)| (id, path.to_owned()));
            assert_eq!(find_cgroup_paths(root.path(), &ids), expected.into());
        }
    }

    #[test]
    fn sets_of_cpus_are_found_in_either_version_by_name_and_by_list() {
        for (file, expected) in [
            ("kubepods/pod1/ab/cgroup.type", "kubepods/pod1/ab"),
            ("cpuset/kubepods/pod1/ab/cpuset.cpus", "cpuset/kubepods/pod1/ab"),
            (
                "cpuset/kubepods/pod1/cri-containerd-ab.scope/cpuset.cpus",
                "cpuset/kubepods/pod1/cri-containerd-ab.scope",
            ),
            // Of a runtime that is not known.
            (
                "cpuset/kubepods/pod1/other-ab.scope/cpuset.cpus",
                "cpuset/kubepods/pod1/other-ab.scope",
            ),
            ("cpuset/kubepods/pod1/cd/cpuset.cpus", ""),
        ] {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join(CGROUPS).join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "0-1\n").unwrap();
            let mut kernel = DiskKernel::open(root.path()).unwrap();
            let found = find_cpuset_group(&mut kernel, "/kubepods/pod1", "ab").unwrap();
            let expected = (!expected.is_empty()).then(|| format!("{CGROUPS}/{expected}"));
            assert_eq!(found, expected, "{file}");
        }
    }

    /// A container `ab` with process 7: the directories that are there, what the process says, and what is found.
    fn check(
        dirs: &[&str],
        process: &str,
        parent: &str,
        expected: Option<(Option<&str>, &[&str])>,
    ) {
        let mut kernel = FakeKernel::new(&[("proc/7/cgroup", process)]);
        for dir in dirs {
            let file = format!("sys/fs/cgroup/{dir}/cgroup.type");
            kernel.files.insert(file, "domain\n".to_owned());
        }
        let below = |dir: &str| format!("sys/fs/cgroup/{dir}");
        let expected = expected.map(|(pod, dirs)| ContainerCgroup {
            pod: pod.map(below),
            dirs: dirs.iter().map(|dir| below(dir)).collect(),
        });
        let found = find_container_cgroup(&mut kernel, parent, "ab", Some(7)).unwrap();
        assert_eq!(found, expected, "{dirs:?} {parent}");
    }

    #[test]
    fn every_runtime_is_found_with_both_drivers() {
        let pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice";
        for name in ["cri-containerd-ab.scope", "crio-ab.scope", "docker-ab.scope"] {
            let own = format!("{pod}/{name}");
            let conmon = format!("{pod}/crio-conmon-ab.scope");
            let dirs = [conmon.as_str(), &own];
            check(&dirs, "", "kubepods-burstable-pod1.slice", Some((Some(pod), &[&own])));
        }
        for name in ["ab", "crio-ab"] {
            let own = format!("kubepods/besteffort/pod1/{name}");
            let pod = Some("kubepods/besteffort/pod1");
            check(&[&own], "", "/kubepods/besteffort/pod1", Some((pod, &[&own])));
        }
        let own = format!("{pod}/crio-ab.scope");
        let inner = format!("{own}/container");
        check(&[&inner], "", "kubepods-burstable-pod1.slice", Some((Some(pod), &[&own, &inner])));
    }

    #[test]
    fn a_process_tells_where_kubelets_name_does_not_lead() {
        let own = "node/kubepods/pod1/ab";
        let says = "1:name=systemd:/x\n0::/node/kubepods/pod1/ab/init.scope\n";
        check(&[own], says, "/kubepods/pod1", Some((Some("node/kubepods/pod1"), &[own])));
        check(&["k8s.io/ab"], "0::/k8s.io/ab\n", "", Some((None, &["k8s.io/ab"])));
        // Gone, in another namespace, another container, cgroup v1.
        check(&[], "0::/k8s.io/ab\n", "", None);
        check(&["k8s.io/ab"], "0::/../../k8s.io/ab\n", "", None);
        check(&["k8s.io/cab"], "0::/k8s.io/cab\n", "", None);
        check(&["k8s.io/ab"], "4:cpu:/k8s.io/ab\n", "", None);
    }

    #[test]
    fn without_a_name_or_an_id_nothing_is_found() {
        let mut kernel = FakeKernel::new(&[("sys/fs/cgroup/kubepods/pod1/ab/cpu.stat", "")]);
        for (parent, id, pid) in
            [("", "ab", None), ("/kubepods/pod1", "", None), ("", "ab", Some(8))]
        {
            let found = find_container_cgroup(&mut kernel, parent, id, pid).unwrap();
            assert_eq!(found, None, "{parent} {id}");
        }
    }
}
