//! The topology-aware plugin of nri-plugins as a process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::process::Process;

/// Where its policy comes from.
#[derive(Clone, Copy, Debug)]
pub enum Policy<'a> {
    /// A custom resource of the cluster that this file leads to.
    Cluster(&'a Path),
    /// A file with such a resource.
    File(&'a Path),
}

/// How it is started.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The plugin, as its repository builds it.
    pub program: &'a Path,
    /// Where it keeps its state.
    pub state: &'a State,
    /// Its other files go below this directory.
    pub dir: &'a Path,
    /// Where the runtime waits for plugins.
    pub nri_socket: &'a Path,
    /// The name of its node.
    pub node: &'a str,
    /// Where its policy comes from.
    pub policy: Policy<'a>,
    /// It takes the last CPU for isolated from the scheduler.
    pub has_isolated: bool,
}

/// Where the plugin keeps its state, unmounted in the end. A file of it is mounted into each container, and runc asks for a mount of which others hear.
#[derive(Debug)]
pub struct State(PathBuf);

impl State {
    /// An empty one.
    ///
    /// # Errors
    /// It cannot be mounted, which needs root.
    pub fn mount(path: PathBuf) -> anyhow::Result<State> {
        fs::create_dir_all(&path)?;
        let none: Option<&str> = None;
        // The plugin takes no directory that others may write.
        mount(Some("none"), &path, Some("tmpfs"), MsFlags::empty(), Some("mode=0755"))?;
        let state = State(path);
        mount(none, &state.0, none, MsFlags::MS_SHARED, none)?;
        Ok(state)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // What cannot be removed is below the system's temporary directory.
        let _removed = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

/// Starts the plugin as its DaemonSet does.
///
/// # Errors
/// The program is not there, or its files cannot be written.
pub fn start(launch: &Launch<'_>) -> anyhow::Result<Process> {
    let Launch { program, state, dir, nri_socket, node, policy, has_isolated } = *launch;
    let mut command = Command::new(program);
    command.arg("--nri-socket").arg(nri_socket);
    match policy {
        Policy::Cluster(access) => command.arg("--kubeconfig").arg(access),
        Policy::File(file) => command.arg("--config-file").arg(file),
    };
    command.arg("--state-dir").arg(&state.0);
    command.arg("--pid-file").arg(dir.join("plugin.pid"));
    if has_isolated {
        command.arg("--host-root").arg(copy_machine(&dir.join("plugin-host"))?);
    }
    command.env("NODE_NAME", node);
    Process::start(&mut command, &dir.join("plugin.log"))
}

/// The parts of sysfs that the plugin reads, with the last of two CPUs isolated.
fn copy_machine(root: &Path) -> anyhow::Result<PathBuf> {
    if root.exists() {
        return Ok(root.to_owned());
    }
    for part in ["cpu", "node"] {
        let from = Path::new("/sys/devices/system").join(part);
        copy(&from, &root.join("sys/devices/system").join(part))?;
    }
    fs::write(root.join("sys/devices/system/cpu/isolated"), "1\n")?;
    Ok(root.to_owned())
}

/// Files, directories and links as they are; what cannot be read is left out.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, target)?;
        } else if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if let Ok(bytes) = fs::read(entry.path()) {
            fs::write(target, bytes)?;
        }
    }
    Ok(())
}
