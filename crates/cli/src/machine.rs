//! The machine that a command is about: this one, a captured one, one in a file, or a synthetic one.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bayplan_daemon::config::Config;
use bayplan_daemon::{AsItWas, capture_machine, capture_own, read_machine, read_own_snapshot};
use bayplan_host::kernel_files::KernelFiles;
use bayplan_host::{Depth, read_files, read_snapshot_file, write_snapshot};
use bayplan_topology::{Snapshot, parse_machine};
use bayplan_types::CpuSet;

use crate::args::MachineOptions;
use crate::json_file::is_json;
use crate::machine_file::{MachineFile, parse_machine_file};
use crate::node_config::NodeConfig;

/// What a machine in JSON may have: ten times what 8,192 CPUs need.
const BYTES_MAX: u64 = 16 << 20;

/// A machine, and what its file says beside its hardware.
pub(crate) struct NamedMachine {
    /// What it is called.
    pub(crate) name: String,
    /// The facts.
    pub(crate) snapshot: Snapshot,
    /// CPUs for system pods, if the file names some.
    pub(crate) reserved: CpuSet,
}

/// The facts of the machine.
pub(crate) fn load_snapshot(
    config: &NodeConfig,
    options: &MachineOptions,
    depth: Depth,
) -> anyhow::Result<Snapshot> {
    match &options.machine {
        Some(name) => Ok(named_machine(name)?.snapshot),
        None => load_root(config, &options.root, depth),
    }
}

/// The facts of the machine below a root, without what a daemon has set there.
pub(crate) fn load_root(
    config: &NodeConfig,
    root: &Path,
    depth: Depth,
) -> anyhow::Result<Snapshot> {
    match state_dir(config, root)? {
        Some(state_dir) => Ok(warned(read_own_snapshot(root, &state_dir, depth)?)),
        None => Ok(read_machine(root, depth)?),
    }
}

/// Where a daemon on the machine below a root keeps what was before; `None`: no daemon works on a captured one.
fn state_dir(config: &NodeConfig, root: &Path) -> anyhow::Result<Option<PathBuf>> {
    let Config { host_root, state_dir, .. } = config.usable()?;
    Ok((root == Path::new("/") || root == host_root).then(|| state_dir.clone()))
}

fn warned<T>(AsItWas { read, unknown }: AsItWas<T>) -> T {
    if let Some(why) = unknown {
        errln!(
            "bayplan: warning: {why}; energy preferences are left out, because a daemon may have set them (root may read that)"
        );
    }
    read
}

/// A file if there is one of that name, else a synthetic machine.
pub(crate) fn named_machine(name: &str) -> anyhow::Result<NamedMachine> {
    let named =
        |snapshot| NamedMachine { name: name.to_owned(), snapshot, reserved: CpuSet::new() };
    let Some(path) = existing_file(name) else {
        return Ok(named(parse_machine(name).with_context(|| not_a_machine(name))?));
    };
    match json_machine(path)? {
        Some(MachineFile { name, snapshot, reserved }) => {
            Ok(NamedMachine { name, snapshot, reserved })
        }
        None => {
            let files = read_snapshot_file(path)?;
            let snapshot = read_files(files, Depth::Cpus);
            Ok(named(snapshot.with_context(|| format!("{name} holds no machine"))?))
        }
    }
}

/// The kernel files of the machine.
pub(crate) fn load_files(
    config: &NodeConfig,
    options: &MachineOptions,
) -> anyhow::Result<KernelFiles> {
    let Some(name) = &options.machine else {
        return match state_dir(config, &options.root)? {
            Some(state_dir) => Ok(warned(capture_own(&options.root, &state_dir)?)),
            None => Ok(capture_machine(&options.root)?),
        };
    };
    match existing_file(name) {
        Some(path) if json_machine(path)?.is_none() => Ok(read_snapshot_file(path)?),
        _ => Ok(write_snapshot(&named_machine(name)?.snapshot)),
    }
}

/// `None` for a file that is not JSON.
fn json_machine(path: &Path) -> anyhow::Result<Option<MachineFile>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read {}", path.display()))?;
    if !is_json(&bytes) {
        return Ok(None);
    }
    let is_large = bytes.len() as u64 > BYTES_MAX;
    anyhow::ensure!(!is_large, "{} has more than {} MiB", path.display(), BYTES_MAX >> 20);
    Ok(Some(parse_machine_file(path, &bytes)?))
}

fn existing_file(name: &str) -> Option<&Path> {
    let path = Path::new(name);
    path.is_file().then_some(path)
}

fn not_a_machine(name: &str) -> String {
    match name.contains(['/', '.']) {
        true => format!("--machine {name}: there is no such file, and it is no machine either"),
        false => "--machine".to_owned(),
    }
}
