//! Where a container is: by the kernel and by the runtime, and files of its cgroup.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use bayplan_host::read_process_pinning;
use bayplan_types::{CpuSet, NodeSet};

use super::{LIMIT, Node};
use crate::process::wait_for;

/// A container, and where the kernel and the runtime have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The runtime's id.
    pub id: String,
    /// Its first process.
    pub pid: u32,
    /// `Cpus_allowed_list` of that.
    pub cpus: CpuSet,
    /// `Mems_allowed_list` of that.
    pub mems: NodeSet,
}

impl Node {
    /// The kernel's and the runtime's view of a running container, which must agree.
    ///
    /// # Errors
    /// They go on disagreeing.
    pub fn look(&self, id: &str) -> anyhow::Result<Placed> {
        let placed = wait_for("kernel and runtime to agree", LIMIT, || self.glance(id));
        let placed = placed.with_context(|| format!("{:?}", self.details(id)))?;
        let told = self.details(id)?.mems;
        ensure!(
            told.as_ref() == Some(&placed.mems),
            "mems: runtime says {told:?}, kernel {:?}",
            placed.mems
        );
        Ok(placed)
    }

    /// `None` while kernel and runtime do not agree about the CPUs.
    ///
    /// # Errors
    /// The container does not run, or its CPUs are not known.
    pub fn glance(&self, id: &str) -> anyhow::Result<Option<Placed>> {
        let told = self.details(id)?.cpus.context("the runtime was told a CPU set")?;
        Ok(self.seen(id)?.filter(|placed| placed.cpus == told))
    }

    /// Where the kernel lets a container run, whatever the runtime says; `None`: its process has just ended.
    ///
    /// # Errors
    /// The container does not run.
    pub fn seen(&self, id: &str) -> anyhow::Result<Option<Placed>> {
        let pid = self.details(id)?.pid.context("a running container has a process")?;
        let pinning = read_process_pinning(Path::new("/"), pid)?;
        Ok(pinning.map(|(cpus, mems)| Placed { id: id.to_owned(), pid, cpus, mems }))
    }
}

impl Placed {
    /// A file of its cgroup (version 2), without the line end.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn cgroup_file(&self, name: &str) -> anyhow::Result<String> {
        let path = self.cgroup_path(name)?;
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        Ok(text.trim().to_owned())
    }

    /// Writes one.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_cgroup_file(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.cgroup_path(name)?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {text} to {path}"))
    }

    /// Its cgroup (version 2).
    ///
    /// # Errors
    /// It has ended, or is in none.
    pub fn cgroup_dir(&self) -> anyhow::Result<PathBuf> {
        Ok(self.cgroup_path("")?.into())
    }

    fn cgroup_path(&self, name: &str) -> anyhow::Result<String> {
        let own = std::fs::read_to_string(format!("/proc/{}/cgroup", self.pid))?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::"));
        Ok(format!("/sys/fs/cgroup{}/{name}", own.context("no cgroup of version 2")?))
    }
}

/// The CPUs on which the kernel lets a process run; `None`: there is no such process.
///
/// # Errors
/// The kernel's file cannot be read.
pub fn allowed_by_kernel(pid: u32) -> anyhow::Result<Option<CpuSet>> {
    Ok(read_process_pinning(Path::new("/"), pid)?.map(|(cpus, _)| cpus))
}
