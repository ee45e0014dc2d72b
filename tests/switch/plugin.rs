//! The topology-aware plugin of nri-plugins as a process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bayplan_tests::node::Node;
use bayplan_tests::process::Process;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::NODE;

/// Killed before its state is unmounted.
pub(crate) struct Plugin {
    pub(crate) process: Process,
    _state: State,
}

/// Where the plugin keeps its state. A file of it is mounted into each container, and runc asks for a mount of which others hear.
struct State(PathBuf);

impl State {
    fn mount(path: PathBuf) -> anyhow::Result<State> {
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

impl Plugin {
    /// As its DaemonSet starts it: configured by custom resources, as a plugin of this node's containerd.
    /// `has_isolated`: it takes the last CPU for isolated from the scheduler.
    pub(crate) fn start(
        program: &Path,
        node: &Node,
        access: &Path,
        has_isolated: bool,
    ) -> anyhow::Result<Plugin> {
        let dir = node.dir();
        let state = State::mount(dir.join("plugin-state"))?;
        let mut command = Command::new(program);
        command.arg("--nri-socket").arg(node.nri_socket()).arg("--kubeconfig").arg(access);
        command.arg("--state-dir").arg(&state.0);
        command.arg("--pid-file").arg(dir.join("plugin.pid"));
        if has_isolated {
            command.arg("--host-root").arg(copy_machine(&dir.join("plugin-host"))?);
        }
        command.env("NODE_NAME", NODE);
        let process = Process::start(&mut command, &dir.join("plugin.log"))?;
        Ok(Plugin { process, _state: state })
    }
}

/// The parts of sysfs that the plugin reads, with the last of two CPUs isolated.
fn copy_machine(root: &Path) -> anyhow::Result<PathBuf> {
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
