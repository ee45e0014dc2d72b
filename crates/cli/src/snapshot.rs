//! `bayplan snapshot`.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use bayplan_host::kernel_files::KernelFiles;
use bayplan_host::{Depth, pack_snapshot, read_files};
use bayplan_topology::derive;
use bayplan_types::Bytes;

use crate::args::SnapshotOptions;
use crate::machine::load_files;
use crate::node_config::NodeConfig;
use crate::stdout::print_bytes;

const DEFAULT_FILE: &str = "bayplan-snapshot.gz";

/// Writes the machine down.
pub(crate) fn run(config: &NodeConfig, options: &SnapshotOptions) -> anyhow::Result<()> {
    let files = load_files(config, &options.machine)?;
    // What cannot be read again is of no use.
    let topology = derive(&read_files(files.clone(), Depth::Cpus)?)?;
    let what = format!("{} files of {} CPUs", files.iter().count(), topology.cpus().len());
    if let Some(dir) = &options.tree {
        write_tree(&files, dir)?;
        errln!("wrote {what} below {}", dir.display());
        return Ok(());
    }
    let bytes = match &options.output {
        Some(path) if path == Path::new("-") => return write_to_stdout(&files),
        // A file that was not asked for by name may belong to another program.
        None => write_file(&files, Path::new(DEFAULT_FILE), false)?,
        Some(path) => write_file(&files, path, true)?,
    };
    let path = options.output.as_deref().unwrap_or(Path::new(DEFAULT_FILE)).display();
    errln!("wrote {path}: {what} in {bytes}; `bayplan topology --machine {path}` reads it");
    Ok(())
}

fn write_to_stdout(files: &KernelFiles) -> anyhow::Result<()> {
    let is_packed = !io::stdout().is_terminal();
    print_bytes(&pack_snapshot(files, is_packed)?)
}

fn write_file(files: &KernelFiles, path: &Path, may_replace: bool) -> anyhow::Result<Bytes> {
    let is_packed = path.extension().is_none_or(|extension| extension != "txt");
    let bytes = pack_snapshot(files, is_packed)?;
    let created = match may_replace {
        true => File::create(path),
        false => File::create_new(path),
    };
    let mut file = match created {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            bail!("{} is there already; name the file to write with -o FILE", path.display())
        }
        other => other.with_context(|| format!("cannot write {}", path.display()))?,
    };
    file.write_all(&bytes).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Bytes(bytes.len() as u64))
}

fn write_tree(files: &KernelFiles, dir: &Path) -> anyhow::Result<()> {
    if dir.join("sys").exists() {
        bail!("{} has a sys/ already; name an empty or a new directory", dir.display());
    }
    files.write_to(dir).with_context(|| format!("cannot write below {}", dir.display()))
}
