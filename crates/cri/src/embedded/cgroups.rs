//! Files of the cgroups that containers would have, below a directory. In: containers as they are now. Out: `cpuset.cpus` and `cpuset.mems` of those that run, where the runtime with its
//! systemd driver would have them (cgroup version 2). Other files are not there, and what is written is not looked at.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::held::Container;
use crate::v1::ContainerState;

/// Below a root; `None`: there are no cgroups.
#[derive(Clone, Debug, Default)]
pub(super) struct Cgroups(pub(super) Option<PathBuf>);

impl Cgroups {
    /// Makes the files of a container as the runtime has it, or removes them where it does not run. A failure is one of the runtime's call.
    pub(super) fn put(&self, container: &Container) -> Result<(), tonic::Status> {
        let Some(root) = &self.0 else { return Ok(()) };
        let dir = dir_of(root, container);
        let written = match container.state {
            ContainerState::ContainerRunning => write(&dir, container),
            _ => remove(&dir),
        };
        written.map_err(|error| tonic::Status::unknown(format!("{}: {error}", dir.display())))
    }

    /// The container is gone.
    pub(super) fn remove(&self, container: &Container) {
        if let Some(root) = &self.0 {
            // What could not be removed is an empty cgroup, which does no harm.
            let _left = remove(&dir_of(root, container));
        }
    }
}

fn write(dir: &Path, container: &Container) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let resources = &container.resources;
    let files = [
        ("cgroup.type", "domain"),
        ("cpuset.cpus", resources.cpuset_cpus.as_str()),
        ("cpuset.mems", resources.cpuset_mems.as_str()),
    ];
    files.iter().try_for_each(|(name, text)| fs::write(dir.join(name), format!("{text}\n")))
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn dir_of(root: &Path, container: &Container) -> PathBuf {
    let (parent, id) = (&container.cgroup_parent, &container.id);
    let pod = match parent.strip_suffix(".slice") {
        // A slice lies in all slices that its name begins with (systemd.slice(5)).
        Some(name) if !name.contains('/') => {
            let ends = name.match_indices('-').map(|(at, _)| at).chain([name.len()]);
            ends.map(|end| format!("{}.slice", name.split_at(end).0)).collect()
        }
        _ => PathBuf::from(parent.trim_start_matches('/')),
    };
    root.join("sys/fs/cgroup").join(pod).join(format!("cri-containerd-{id}.scope"))
}
