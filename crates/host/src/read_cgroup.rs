//! How much CPU a container has used. In: the cgroup around its pod's containers as kubelet named it, and its id. Out: the kernel's
//! counters, read again and again from files that stay open.
//!
//! With cgroup v2 all of them are in `cpu.stat` (Documentation/admin-guide/cgroup-v2.rst, "CPU Interface Files"); with v1 usage is in
//! `cpuacct.usage`, in nanoseconds (cgroup-v1/cpuacct.rst), and throttling in another `cpu.stat` (scheduler/sched-bwc.rst).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use bayplan_enforcement::CgroupFiles;

use crate::cgroup_error::CgroupError;
use crate::find_cgroup::{CGROUPS, find_below, has_cgroup_v2};
use crate::kernel::{DiskKernel, Kernel};

/// The names of the files that cgroups (version 2) below the root have, as far as some group there has them now: each controller brings its
/// own, and not every kernel has all of them. Empty where cgroups are of version 1.
pub fn read_cgroup_files(kernel: &mut dyn Kernel) -> CgroupFiles {
    let groups =
        if has_cgroup_v2(kernel) { kernel.list(CGROUPS).unwrap_or_default() } else { Vec::new() };
    // Whatever is no directory has no names in it.
    let files = groups.iter().flat_map(|it| kernel.list(&format!("{CGROUPS}/{it}")));
    files.flatten().filter(|name| name.contains('.')).collect()
}

/// What a cgroup has used since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuStat {
    /// CPU time in microseconds.
    pub usage_usec: u64,
    /// Periods in which it wanted to run; grows only under a limit.
    pub nr_periods: u64,
    /// Those of them in which its limit stopped it.
    pub nr_throttled: u64,
}

/// The open files of one container.
#[derive(Debug)]
pub struct CpuFiles {
    /// `cpu.stat`.
    stat: OpenFile,
    /// `cpuacct.usage`, with cgroup v1.
    usage: Option<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    file: File,
}

impl CpuFiles {
    /// Opens those of the container with this id in the pod's cgroup `parent`: a path (`/kubepods/burstable/pod1`), a slice
    /// (`kubepods-burstable-pod1.slice`), or a container's own path as runtimes tell it (`SLICE:PREFIX:ID`). `root` holds `sys`. `None`:
    /// there is no such cgroup.
    ///
    /// # Errors
    /// [`CgroupError`] when it cannot be looked for.
    pub fn open(root: &Path, parent: &str, id: &str) -> Result<Option<CpuFiles>, CgroupError> {
        let kernel = DiskKernel::open(root);
        let mut kernel =
            kernel.map_err(|source| CgroupError::Read { path: root.to_owned(), source })?;
        let below = |dir: String, file: &str| OpenFile::open(root.join(dir).join(file));
        if has_cgroup_v2(&mut kernel) {
            let found = find_below(&mut kernel, CGROUPS, parent, id)?;
            let Some(own) = found else { return Ok(None) };
            return Ok(below(own, "cpu.stat")?.map(|stat| CpuFiles { stat, usage: None }));
        }
        let mut find = |controller: &str| {
            find_below(&mut kernel, &format!("{CGROUPS}/{controller}"), parent, id)
        };
        let (Some(cpu), Some(cpuacct)) = (find("cpu")?, find("cpuacct")?) else {
            return Ok(None);
        };
        let Some(stat) = below(cpu, "cpu.stat")? else { return Ok(None) };
        let usage = below(cpuacct, "cpuacct.usage")?;
        Ok(usage.map(|usage| CpuFiles { stat, usage: Some(usage) }))
    }

    /// The counters now; `None`: the cgroup is gone.
    ///
    /// # Errors
    /// [`CgroupError`] when a file cannot be read, or lacks what it should hold.
    pub fn read(&self) -> Result<Option<CpuStat>, CgroupError> {
        let Some(stat) = self.stat.read()? else { return Ok(None) };
        let number = |key| {
            let missing = CgroupError::Line { path: self.stat.path.clone(), key };
            parse_line(&stat, key).ok_or(missing)
        };
        let usage_usec = match &self.usage {
            None => number("usage_usec")?,
            Some(file) => {
                let Some(text) = file.read()? else { return Ok(None) };
                let key = "number of nanoseconds";
                let missing = CgroupError::Line { path: file.path.clone(), key };
                text.trim().parse::<u64>().map_err(|_| missing)? / 1000
            }
        };
        // Without the controller `cpu` there is usage only.
        let (periods, throttled) =
            (parse_line(&stat, "nr_periods"), parse_line(&stat, "nr_throttled"));
        let (nr_periods, nr_throttled) = (periods.unwrap_or(0), throttled.unwrap_or(0));
        Ok(Some(CpuStat { usage_usec, nr_periods, nr_throttled }))
    }
}

impl OpenFile {
    fn open(path: PathBuf) -> Result<Option<OpenFile>, CgroupError> {
        match File::open(&path) {
            Ok(file) => Ok(Some(OpenFile { path, file })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(CgroupError::Read { path, source }),
        }
    }

    /// From its beginning, which makes the kernel write it anew; `None`: the cgroup is gone.
    fn read(&self) -> Result<Option<String>, CgroupError> {
        let mut text = [0; 4096];
        match self.file.read_at(&mut text, 0) {
            Ok(length) => {
                let text = text.get(..length).unwrap_or_default();
                Ok(Some(String::from_utf8_lossy(text).into_owned()))
            }
            Err(error) if error.raw_os_error() == Some(nix::libc::ENODEV) => Ok(None),
            Err(source) => Err(CgroupError::Read { path: self.path.clone(), source }),
        }
    }
}

fn parse_line(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::fake_kernel::FakeKernel;

    /// Files below `sys/fs/cgroup`; a container `ab` of the pod `/kubepods/pod1`.
    fn check(files: &[(&str, &str)], expected: Result<Option<(u64, u64, u64)>, &str>) {
        let root = tempfile::tempdir().unwrap();
        let cgroups = root.path().join("sys/fs/cgroup");
        for (path, text) in files {
            let path = cgroups.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let opened = CpuFiles::open(root.path(), "/kubepods/pod1", "ab");
        let read = opened.and_then(|files| files.map_or(Ok(None), |files| files.read()));
        let read = read
            .map(|stat| stat.map(|it| (it.usage_usec, it.nr_periods, it.nr_throttled)))
            .map_err(|error| error.to_string().replace(&cgroups.display().to_string(), ""));
        assert_eq!(read, expected.map_err(str::to_owned));
    }

    #[test]
    fn both_versions_of_cgroups_are_read_and_what_is_missing_is_absent() {
        let v2 = ("cgroup.controllers", "cpu\n");
        let stat = "usage_usec 70\nuser_usec 40\nsystem_usec 30\nnr_periods 5\nnr_throttled 2\nthrottled_usec 9\n";
        check(&[v2, ("kubepods/pod1/ab/cpu.stat", stat)], Ok(Some((70, 5, 2))));
        check(
            &[v2, ("kubepods/pod1/cri-containerd-ab.scope/cpu.stat", stat)],
            Ok(Some((70, 5, 2))),
        );
        check(&[v2, ("kubepods/pod1/ab/cpu.stat", "usage_usec 7\n")], Ok(Some((7, 0, 0))));
        check(
            &[
                (
                    "cpu/kubepods/pod1/ab/cpu.stat",
                    "nr_periods 5\nnr_throttled 2\nthrottled_time 9\n",
                ),
                ("cpuacct/kubepods/pod1/ab/cpuacct.usage", "70999\n"),
            ],
            Ok(Some((70, 5, 2))),
        );
        for absent in [&[v2][..], &[], &[v2, ("kubepods/pod1/cd/cpu.stat", stat)]] {
            check(absent, Ok(None));
        }
        check(
            &[v2, ("kubepods/pod1/ab/cpu.stat", "usage_usec x\n")],
            Err("/kubepods/pod1/ab/cpu.stat has no usable `usage_usec`"),
        );
        check(
            &[
                ("cpu/kubepods/pod1/ab/cpu.stat", ""),
                ("cpuacct/kubepods/pod1/ab/cpuacct.usage", "\n"),
            ],
            Err("/cpuacct/kubepods/pod1/ab/cpuacct.usage has no usable `number of nanoseconds`"),
        );
    }

    #[test]
    fn files_of_controllers_are_known_from_any_group() {
        let v2 = ("sys/fs/cgroup/cgroup.controllers", "cpu io\n");
        let groups = [
            ("sys/fs/cgroup/io.cost.qos", ""),
            ("sys/fs/cgroup/system.slice/io.max", ""),
            ("sys/fs/cgroup/kubepods/cpu.max.burst", ""),
            ("sys/fs/cgroup/kubepods/pods/io.weight", ""),
        ];
        let read = |files: &[(&str, &str)]| read_cgroup_files(&mut FakeKernel::new(files));
        let found = read(&[&[v2][..], &groups].concat());
        assert_eq!(found, ["cpu.max.burst", "io.max"].map(str::to_owned).into());
        assert!(read(&groups).is_empty());
    }

    #[test]
    fn open_files_show_what_is_new() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/fs/cgroup/kubepods/pod1/ab");
        fs::create_dir_all(&dir).unwrap();
        fs::write(root.path().join("sys/fs/cgroup/cgroup.controllers"), "cpu\n").unwrap();
        fs::write(dir.join("cpu.stat"), "usage_usec 1\n").unwrap();
        let files = CpuFiles::open(root.path(), "/kubepods/pod1", "ab").unwrap().unwrap();
        for usage_usec in [1, 200_000] {
            fs::write(dir.join("cpu.stat"), format!("usage_usec {usage_usec}\n")).unwrap();
            assert_eq!(files.read().unwrap().unwrap().usage_usec, usage_usec);
        }
    }
}
