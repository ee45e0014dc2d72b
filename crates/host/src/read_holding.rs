//! What the kernel lets a container run on, whatever it was told. In: its pod's cgroup, its id. Out: the effective sets of its group, and the affinity of its first process.
//!
//! The groups above narrow what `cpuset.cpus` asks for (`cpuset.cpus.effective`), a process its own affinity (sched_setaffinity(2)), which it inherits from the process that started it:
//! the runtime's, where systemd's `CPUAffinity=` has set one.

use std::path::Path;

use bayplan_types::{CpuSet, NodeSet};

use crate::find_cgroup::find_cpuset_group;
use crate::kernel::Kernel;
use crate::read_process::read_process_pinning;

/// What a container runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// `cpuset.cpus.effective`; version 1: `cpuset.effective_cpus`.
    pub cpus: CpuSet,
    /// `cpuset.mems.effective`; empty where the kernel does not say.
    pub mems: NodeSet,
    /// CPUs on which its first process may run, where these are fewer.
    pub affinity: Option<CpuSet>,
}

/// What the container with this id runs on; `kernel` reads what `root` holds. `None`: it has no group with a set, or none any more.
pub fn read_holding(
    root: &Path,
    kernel: &mut dyn Kernel,
    parent: &str,
    id: &str,
) -> Option<Holding> {
    let group = find_cpuset_group(kernel, parent, id).ok().flatten()?;
    let mut first = |files: [&str; 3]| {
        let mut texts =
            files.iter().filter_map(|file| kernel.read(&format!("{group}/{file}")).ok());
        texts.find(|text| !text.trim().is_empty())
    };
    let cpus: CpuSet = first(["cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"])?
        .trim()
        .parse()
        .ok()?;
    let mems = first(["cpuset.mems.effective", "cpuset.effective_mems", "cpuset.mems"]);
    let mems = mems.and_then(|text| text.trim().parse().ok()).unwrap_or_default();
    let affinity = first_process(kernel, &group).and_then(|pid| read_affinity(root, pid));
    let affinity = affinity.filter(|own| !own.is_empty() && own.is_subset(&cpus) && *own != cpus);
    Some(Holding { cpus, mems, affinity })
}

/// The process with the lowest number in a group, or in the one that crun makes below it.
fn first_process(kernel: &mut dyn Kernel, group: &str) -> Option<u32> {
    let mut of = |dir: &str| -> Option<u32> {
        let text = kernel.read(&format!("{dir}/cgroup.procs")).ok()?;
        // Processes of a namespace that is not ours are told as 0.
        text.lines().filter_map(|line| line.trim().parse().ok()).filter(|pid| *pid > 0).min()
    };
    of(group).or_else(|| of(&format!("{group}/container")))
}

fn read_affinity(root: &Path, pid: u32) -> Option<CpuSet> {
    read_process_pinning(root, pid).ok().flatten().map(|(cpus, _)| cpus)
}

/// Programs that start containers; containers inherit their affinity.
const RUNTIMES: [&str; 2] = ["containerd", "crio"];

/// The runtime's own affinity, where that is narrower than the set of its cgroup: the program, and its CPUs.
pub fn read_runtime_affinity(root: &Path, kernel: &mut dyn Kernel) -> Option<(String, CpuSet)> {
    let names = std::fs::read_dir(root.join("proc")).ok()?.flatten().map(|it| it.file_name());
    let mut pids: Vec<u32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids.into_iter().find_map(|pid| {
        let name = kernel.read(&format!("proc/{pid}/comm")).ok()?;
        let program = RUNTIMES.into_iter().find(|program| *program == name.trim())?;
        let own = read_affinity(root, pid)?;
        let set = cpuset_of(kernel, pid)?;
        (own.is_subset(&set) && own != set).then(|| (program.to_owned(), own))
    })
}

/// The effective set of the cgroup of a process (cgroups(7), "/proc/pid/cgroup"), or of the nearest group around it that has one; of all online CPUs where cgroups say nothing.
fn cpuset_of(kernel: &mut dyn Kernel, pid: u32) -> Option<CpuSet> {
    let text = kernel.read(&format!("proc/{pid}/cgroup")).unwrap_or_default();
    let path = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let mut groups: Vec<&Path> = Path::new(path).ancestors().collect();
    groups.dedup();
    let files = groups.into_iter().filter_map(|group| {
        let dir = Path::new("sys/fs/cgroup").join(group);
        Some(dir.join("cpuset.cpus.effective").to_str()?.to_owned())
    });
    let online = "sys/devices/system/cpu/online".to_owned();
    let mut texts = files.chain([online]).filter_map(|file| kernel.read(&file).ok());
    texts.find_map(|text| text.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use crate::kernel::DiskKernel;
    use crate::kernel_files::KernelFiles;

    use super::*;

    fn root_of(files: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        KernelFiles::parse(&format!("bayplan-files/1\n{files}"))
            .unwrap()
            .write_to(root.path())
            .unwrap();
        root
    }

    #[track_caller]
    fn check(files: &str, expected: Option<(&str, &str, Option<&str>)>) {
        let root = root_of(files);
        let mut kernel = DiskKernel::open(root.path()).unwrap();
        let found = read_holding(root.path(), &mut kernel, "/kubepods/pod1", "ab");
        let found = found.map(|it| {
            (it.cpus.to_string(), it.mems.to_string(), it.affinity.map(|it| it.to_string()))
        });
        let found =
            found.as_ref().map(|(cpus, mems, own)| (cpus.as_str(), mems.as_str(), own.as_deref()));
        assert_eq!(found, expected);
    }

    #[test]
    fn the_kernel_tells_on_what_a_container_runs() {
        check("", None);
        let v2 = "sys/fs/cgroup/kubepods/pod1/ab/cgroup.type domain\n\
            sys/fs/cgroup/kubepods/pod1/ab/cpuset.cpus 0-3\n\
            sys/fs/cgroup/kubepods/pod1/ab/cpuset.cpus.effective 0-1\n\
            sys/fs/cgroup/kubepods/pod1/ab/cpuset.mems.effective 0\n\
            sys/fs/cgroup/kubepods/pod1/ab/cgroup.procs 0\\n71\\n70\n";
        check(v2, Some(("0-1", "0", None)));
        let status = |cpus: &str| {
            format!("{v2}proc/70/status Cpus_allowed_list: {cpus}\\nMems_allowed_list: 0\n")
        };
        check(&status("0-1"), Some(("0-1", "0", None)));
        check(&status("0"), Some(("0-1", "0", Some("0"))));
        // Read while it was being moved.
        check(&status("2"), Some(("0-1", "0", None)));
        let v1 = "sys/fs/cgroup/cpuset/kubepods/pod1/ab/cpuset.effective_cpus 1\n\
            sys/fs/cgroup/cpuset/kubepods/pod1/ab/cpuset.cpus 1-2\n\
            sys/fs/cgroup/cpuset/kubepods/pod1/ab/cpuset.mems 0\n";
        check(v1, Some(("1", "0", None)));
    }

    #[test]
    fn a_runtime_with_an_affinity_of_its_own_is_found() {
        let find = |set: &str, own: &str| {
            let root = root_of(&format!(
                "sys/devices/system/cpu/online 0-3\n\
                 sys/fs/cgroup/system.slice/cpuset.cpus.effective {set}\n\
                 proc/7/comm kubelet\n\
                 proc/7/status Cpus_allowed_list: 1\\nMems_allowed_list: 0\n\
                 proc/9/comm containerd\n\
                 proc/9/cgroup 0::/system.slice/containerd.service\n\
                 proc/9/status Cpus_allowed_list: {own}\\nMems_allowed_list: 0\n"
            ));
            let mut kernel = DiskKernel::open(root.path()).unwrap();
            let found = read_runtime_affinity(root.path(), &mut kernel);
            found.map(|(program, cpus)| format!("{program} {cpus}"))
        };
        assert_eq!(find("0-3", "0").as_deref(), Some("containerd 0"));
        assert_eq!(find("0-3", "0-3"), None);
        // Narrowed by its group, which containers do not inherit.
        assert_eq!(find("0-1", "0-1"), None);
    }
}
