//! The machine that a command is about: this one, a captured one, a snapshot file, or a synthetic one.

use std::path::Path;

use anyhow::Context as _;
use bayplan_host::kernel_files::KernelFiles;
use bayplan_host::{Depth, capture, read_files, read_snapshot, read_snapshot_file, write_snapshot};
use bayplan_topology::{Snapshot, parse_machine};

use crate::args::MachineOptions;

/// The facts of the machine.
pub(crate) fn load_snapshot(options: &MachineOptions, depth: Depth) -> anyhow::Result<Snapshot> {
    match &options.machine {
        Some(name) => named_machine(name),
        None => Ok(read_snapshot(&options.root, depth)?),
    }
}

/// A snapshot file if there is one of that name, else a synthetic machine.
pub(crate) fn named_machine(name: &str) -> anyhow::Result<Snapshot> {
    match snapshot_file(name) {
        Some(path) => read_files(read_snapshot_file(path)?, Depth::Cpus)
            .with_context(|| format!("{name} holds no machine")),
        None => Ok(parse_machine(name).with_context(|| not_a_machine(name))?),
    }
}

/// The kernel files of the machine.
pub(crate) fn load_files(options: &MachineOptions) -> anyhow::Result<KernelFiles> {
    match &options.machine {
        None => Ok(capture(&options.root)?),
        Some(name) => match snapshot_file(name) {
            Some(path) => Ok(read_snapshot_file(path)?),
            None => {
                let snapshot = parse_machine(name).with_context(|| not_a_machine(name))?;
                Ok(write_snapshot(&snapshot))
            }
        },
    }
}

fn snapshot_file(name: &str) -> Option<&Path> {
    let path = Path::new(name);
    path.is_file().then_some(path)
}

fn not_a_machine(name: &str) -> String {
    match name.contains(['/', '.']) {
        true => format!("--machine {name}: there is no such file, and it is no machine either"),
        false => "--machine".to_owned(),
    }
}
