//! `bayplan import`: files of other systems to a configuration of ours. What becomes of each key is decided in `bayplan_config::import`; here files are read and written.

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use bayplan_config::ConfigFile;
use bayplan_config::import::{Counts, Fate, Imported, Input, Note, REFUSED, Target, import};
use bayplan_host::Depth;
use bayplan_topology::{Topology, derive};

use crate::args::ImportOptions;
use crate::config;
use crate::exit_code::EXIT_USAGE;
use crate::machine::load_snapshot;
use crate::node_config::NodeConfig;
use crate::stdout::print_bytes;
use crate::text::{render_table, table};

/// Runs the command.
pub(crate) fn run(config: &NodeConfig, options: &ImportOptions) -> anyhow::Result<ExitCode> {
    let inputs = options.files.iter().map(|path| read_input(path));
    let inputs = inputs.collect::<anyhow::Result<Vec<Input>>>()?;
    let topology = read_machine(config, options)?;
    let target = Target {
        node: options.node.as_deref(),
        group: options.group.as_deref(),
        machine: topology.as_ref(),
        refused: REFUSED,
        node_keys: &[],
    };
    let imported = import(&inputs, &target)?;
    if options.check {
        return check(config, options, &imported);
    }
    match &options.output {
        None => print_bytes(imported.text.as_bytes())?,
        Some(path) => {
            write_new(path, &imported.text)?;
            out!("{}", render(&imported.notes))?;
        }
    }
    Ok(if warn_of_mistakes(&imported) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A file, a directory or standard input.
fn read_input(path: &Path) -> anyhow::Result<Input> {
    let name = path.display().to_string();
    if path.is_dir() {
        return Ok(Input::CmkDirectory { entries: read_directory(path)?, name });
    }
    let mut text = String::new();
    match name.as_str() {
        "-" => std::io::stdin().read_to_string(&mut text).map(drop),
        _ => fs::read_to_string(path).map(|read| text = read),
    }
    .with_context(|| format!("cannot read {name}"))?;
    Ok(Input::Text { name, text })
}

/// All files below a directory of CMK: paths below it, and what they hold.
///
/// # Errors
/// The directory or a file cannot be read.
pub(crate) fn read_directory(root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    /// `pools/POOL/SOCKET/LIST`.
    const DEPTH_MAX: usize = 5;
    let mut entries = Vec::new();
    let mut open = vec![(root.to_owned(), 0)];
    while let Some((dir, depth)) = open.pop() {
        let listed =
            fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
        for entry in listed {
            let path = entry.with_context(|| format!("cannot read {}", dir.display()))?.path();
            if path.is_dir() && depth < DEPTH_MAX {
                open.push((path, depth + 1));
            } else if path.is_file() {
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                let below = path.strip_prefix(root).unwrap_or(&path);
                entries.push((below.display().to_string(), text));
            }
        }
    }
    entries.sort();
    Ok(entries)
}

/// The machine that is named, or this one; a machine that cannot be read is none, unless it was named.
fn read_machine(config: &NodeConfig, options: &ImportOptions) -> anyhow::Result<Option<Topology>> {
    let is_named = options.machine.machine.is_some() || options.machine.root != Path::new("/");
    let read = load_snapshot(config, &options.machine, Depth::Cores)
        .and_then(|snapshot| Ok(derive(&snapshot)?));
    match read {
        Ok(topology) => Ok(Some(topology)),
        Err(error) if is_named => Err(error),
        Err(_) => Ok(None),
    }
}

/// What exists is never overwritten: it may be the work of a person.
fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).open(path);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{} is there already; name a new file, and compare them", path.display())
        }
        written => written.with_context(|| format!("cannot write {}", path.display())),
    }
}

/// Tells what our own parser refuses of it.
fn warn_of_mistakes(imported: &Imported) -> bool {
    let Err(errors) = ConfigFile::parse(Path::new("imported"), &imported.text) else {
        return false;
    };
    for error in &errors.errors {
        let message = error.message.lines().next().unwrap_or_default();
        errln!("bayplan: warning: line {} of what was written: {message}", error.at.line);
    }
    true
}

/// What would differ for the pods that run now.
fn check(
    config: &NodeConfig,
    options: &ImportOptions,
    imported: &Imported,
) -> anyhow::Result<ExitCode> {
    out!("{}", render(&imported.notes))?;
    if warn_of_mistakes(imported) {
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    outln!()?;
    config::diff_text(config, &options.control, Path::new("imported"), imported.text.clone())?;
    Ok(ExitCode::SUCCESS)
}

/// A table of all keys, and how many had which fate.
fn render(notes: &[Note]) -> String {
    let mut rows = table(&["KEY", "VALUE", "BECAME"]);
    for note in notes {
        let became = match &note.fate {
            Fate::Taken(key) => key.clone(),
            Fate::Holds(why) => format!("needs no key: {why}"),
            Fate::Lost(why) => format!("no counterpart: {why}"),
        };
        rows.add_row([&note.key, &note.value, &became]);
    }
    format!("{}{}\n", render_table(&rows), Counts::of(notes).render())
}
