//! `bayplan bench`: how fast this node is at what the daemon does, without touching a container. In: the configuration, the machine, what the daemon has left on
//! disk, the runtime's socket. Out: times, and what could not be measured with the reason.

mod calls;
mod decisions;
mod figures;
mod files;

use std::path::Path;

use anyhow::{Context as _, ensure};
use bayplan_host::Depth;
use bayplan_host::journal::parse_journal;
use bayplan_topology::derive;

use self::figures::Report;
use crate::args::{BenchOptions, Output};
use crate::machine::load_root;
use crate::node_config::NodeConfig;
use crate::visible::print_json;

/// Measures and prints; fails where nothing could be measured.
pub(crate) fn run(config: &NodeConfig, options: &BenchOptions) -> anyhow::Result<()> {
    let rounds = usize::try_from(options.rounds)?;
    let read = config.usable()?;
    let topology = derive(&load_root(config, &read.host_root, Depth::Placement)?)?;
    let records = read_records(&read.state_dir)?;
    let node = decisions::restore(read, &topology, &records)?;
    let (containers, cpus) = (node.containers, topology.cpus().len());
    let mut report = Report { cpus, containers, load: load(&read.host_root), ..Report::default() };
    report.add(decisions::measure(node, &topology, rounds));
    report.add(files::journal(&read.state_dir, &records, rounds));
    report.add(files::kernel_files(&read.host_root, topology.cpus(), rounds));
    let control = options.control.control.as_ref().unwrap_or(&read.control_socket);
    report.add(calls::measure(read, control, rounds));
    match options.output.output {
        Output::Text => out!("{}", figures::render(&report))?,
        Output::Json => print_json(&report)?,
    }
    ensure!(!report.figures.is_empty(), "nothing could be measured");
    Ok(())
}

/// Records of the journal, also while a daemon writes it; none where no daemon has ever run.
fn read_records(state_dir: &Path) -> anyhow::Result<Vec<String>> {
    let path = state_dir.join("journal");
    match std::fs::read(&path) {
        Ok(bytes) => Ok(parse_journal(&bytes).records),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| {
            format!("cannot read {}: what is held now is in it; root may", path.display())
        }),
    }
}

/// Load average of the last minute: other work spoils times.
fn load(root: &Path) -> String {
    let text = std::fs::read_to_string(root.join("proc/loadavg")).unwrap_or_default();
    text.split(' ').next().filter(|it| !it.is_empty()).unwrap_or("unknown").to_owned()
}
