//! The state and the enforcer as a start finds them. In: a configuration, a machine, what earlier daemons have left. Out: what the daemon begins with.

use std::sync::Arc;

use bayplan_allocator::Pools;
use bayplan_host::disk::Disks;
use bayplan_host::journal::Journal;
use bayplan_host::kernel::Kernel as _;
use bayplan_node::event::fingerprint;
use bayplan_node::history::Entry;
use bayplan_node::known::Known;
use bayplan_node::record::replay;
use bayplan_node::state::{NodeState, Origin};
use bayplan_topology::Topology;
use bayplan_types::CpuSet;
use jiff::Timestamp;

use crate::check::{ISOLATED, isolated_reserved};
use crate::config::{Config, new_state_beside, reserved_lacking};
use crate::enforcer::{BOOT_ID, Enforcer, Originals, RestoredFiles, tell_lost};
use crate::event_loop::tell;
use crate::hotplug::Machine;
use crate::journal_writer::JournalWriter;
use crate::metrics::Metrics;
use crate::node_kernel::NodeKernel;
use crate::resources_dir::{has_files, resources_root};
use crate::start_error::StartError;

/// What is amiss with the reserved CPUs.
fn tell_reserved(config: &Config, topology: &Topology, held: &CpuSet, pools: &Pools) {
    for lacking in reserved_lacking(config, topology, held, pools) {
        tracing::warn!("{lacking}");
    }
    if let Some(message) = isolated_reserved(topology, pools.reserved()) {
        tracing::warn!("{message}; {ISOLATED}");
    }
}

/// The state as the journal has it, and what the history is told of how it came to be.
pub(crate) async fn restore(
    config: &Config,
    machine: &Machine,
    metrics: &Metrics,
) -> Result<(NodeState, JournalWriter, Vec<Entry>), StartError> {
    let topology = machine.topology();
    let origin = Origin { config: config.differences().into(), machine: machine.files() };
    let are_told =
        !config.resources_directories.is_empty() || has_files(&resources_root(&config.socket));
    let opened = Journal::open_on(Arc::clone(&machine.disks().journal), &config.state_dir);
    let (journal, recovered) = opened.map_err(StartError::Journal)?;
    for dropped in &recovered.dropped {
        tracing::warn!(line = dropped.line, why = dropped.why, "a journal record was dropped");
    }
    let live = replay(&recovered.records);
    let state = new_state_beside(config, topology, &live.held())?;
    tell_reserved(config, topology, &live.held(), state.ledger().pools());
    let mut state = state.with_origin(origin).with_tellings(are_told);
    let is_torn = !recovered.dropped.is_empty();
    let known = Known::after_reading(is_torn, &live, &fingerprint(topology));
    if known.is_partial() {
        tracing::warn!(
            "no whole journal of this machine is in {}: containers are created once the runtime has told what runs",
            config.state_dir.display()
        );
    }
    state = state.with_known(known);
    if is_torn || live.unreadable > 0 {
        match journal.set_aside() {
            Ok(old) => tracing::warn!("the journal as it was is in {}", old.display()),
            Err(error) => tracing::warn!(%error, "the journal as it was could not be kept"),
        }
    }
    let is_other = |other: &String| *other != fingerprint(topology);
    if live.fingerprint.as_ref().is_some_and(is_other) {
        tracing::warn!("the journal is about another machine; what fits this one is used");
    }
    if live.unreadable > 0 {
        tracing::warn!(records = live.unreadable, "unreadable journal records were dropped");
    }
    tracing::info!(containers = live.containers.len(), "read the journal");
    let now = Timestamp::now();
    let step = state.restore(live, now);
    for note in &step.notes {
        tell(note, metrics);
    }
    let mut journal = JournalWriter::new(journal);
    let mut found = step.history;
    if let Err(why) = journal.keep(Vec::new(), true, &state, metrics).await {
        found.push(Entry { at: now, ..Entry::failure(format!("journal: {why}")) });
    }
    Ok((state, journal, found))
}

/// Gives back what a daemon that no longer runs has changed in kernel files, as far as they are still there. CPU sets stay as they are: only the
/// runtime can change them for good. Where no daemon has ever run with this state directory, nothing is touched: the kernel may be one in which another has.
///
/// # Errors
/// A daemon runs, or what was changed cannot be read.
pub fn restore_files(config: &Config) -> Result<RestoredFiles, StartError> {
    if !Originals::are_below(&config.state_dir) {
        return Ok(RestoredFiles { given_back: 0, failures: Vec::new() });
    }
    Ok(new_enforcer(config, &Disks::default())?.give_back())
}

/// With what earlier daemons have changed and not given back.
pub(crate) fn new_enforcer(config: &Config, disks: &Disks) -> Result<Enforcer, StartError> {
    let what = || config.host_root.display().to_string();
    let root = |source| StartError::Root { what: what(), source };
    let mut kernel = NodeKernel::open(&config.host_root).map_err(root)?;
    let boot = kernel.read(BOOT_ID).ok();
    let boot = boot.map(|id| id.trim().to_owned());
    let (originals, told) = Originals::open(Arc::clone(&disks.originals), &config.state_dir, boot)
        .map_err(StartError::Journal)?;
    tell_lost(&told);
    Ok(Enforcer::new(Box::new(kernel), originals))
}

#[cfg(test)]
mod tests {
    use bayplan_topology::{derive, parse_machine};
    use bayplan_types::MilliCpu;

    use super::*;
    use crate::config::new_state;
    use crate::test_support::{make, new_container};

    /// A container has some of the lowest CPUs already when an amount comes to be reserved.
    #[test]
    fn a_start_moves_no_container_for_an_amount_of_reserved_cpus() {
        let topology = derive(&parse_machine("numa:1 core:4 pu:2").unwrap()).unwrap();
        let reserving = |cpus: Option<usize>| {
            let reserved_amount = cpus.map(MilliCpu::from_cpus);
            Config { reserved_amount, ..Config::default() }
        };
        let mut before = new_state(&reserving(None), &topology).unwrap();
        make(&mut before, 1, new_container("p", "c", 0, 2));
        let records = before.snapshot_records();
        let lines: Vec<String> =
            records.iter().map(|it| serde_json::to_string(it).unwrap()).collect();
        let live = replay(&lines);
        assert_eq!(live.held().to_string(), "1,5");
        for (amount, expected) in [(2, "0,4"), (4, "0,2,4,6"), (6, "0,2-4,6-7"), (7, "0-4,6-7")] {
            let config = reserving(Some(amount));
            let state = new_state_beside(&config, &topology, &live.held()).unwrap();
            let reserved = state.ledger().pools().reserved();
            assert_eq!(reserved.to_string(), expected, "{amount}");
        }
        let mut after = new_state_beside(&reserving(Some(4)), &topology, &live.held()).unwrap();
        after.restore(live, Timestamp::UNIX_EPOCH);
        assert_eq!(after.status().containers[0].exclusive.to_string(), "1,5");
    }

    /// More of the machine is offline each time.
    #[test]
    fn a_node_comes_back_with_few_cpus_online() {
        for (offline, expected) in [("3", "0-1"), ("2-3", "0"), ("1-3", "")] {
            let line = format!("numa:1 core:4 pu:1 offline:{offline}");
            let topology = derive(&parse_machine(&line).unwrap()).unwrap();
            let reserved_amount = Some(MilliCpu::from_cpus(2));
            let config = Config { reserved_amount, ..Config::default() };
            let state = new_state(&config, &topology).unwrap();
            assert_eq!(state.ledger().pools().reserved().to_string(), expected, "{offline}");
        }
    }
}
