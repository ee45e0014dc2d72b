//! The node of a configuration. In: a configuration, a machine. Out: a state on which nothing runs yet, and what of the configuration the machine lacks.

use std::sync::Arc;

use bayplan_allocator::policy::{Division, PoolsError, surviving_pools};
use bayplan_allocator::{Ledger, Pools};
use bayplan_node::event::fingerprint;
use bayplan_node::reconfigure::check_division;
use bayplan_node::state::NodeState;
use bayplan_topology::Topology;
use bayplan_types::CpuSet;

use crate::config::{Config, FrontEnd};

/// The reserved CPUs do not fit the machine.
#[derive(Debug, thiserror::Error)]
#[error("reservedCpus: {0}")]
pub struct UnsuitableError(PoolsError);

/// A node on which nothing runs yet, as this configuration wants it on this machine.
///
/// # Errors
/// [`UnsuitableError`].
pub fn new_state(config: &Config, topology: &Topology) -> Result<NodeState, UnsuitableError> {
    new_state_beside(config, topology, &CpuSet::new())
}

/// The same, where containers and groups will have these CPUs to themselves: an amount of reserved CPUs is others, as far as there are such, so that a start moves no container for it.
///
/// # Errors
/// [`UnsuitableError`].
pub fn new_state_beside(
    config: &Config,
    topology: &Topology,
    held: &CpuSet,
) -> Result<NodeState, UnsuitableError> {
    check_division(topology, &config.division()).map_err(UnsuitableError)?;
    let division = settled(config, topology, held);
    let reserved = &division.reserved_on(topology);
    let pools = surviving_pools(&division.machine(topology), config.policy, reserved);
    let ledger = Ledger::new(Arc::new(pools));
    let state = NodeState::new(ledger, config.rules(), fingerprint(topology))
        .with_devices(topology.devices().into())
        .with_doubt_grace(config.doubt_grace())
        .with_compaction(config.compaction)
        .with_narrowing(config.narrows_memory)
        .with_on_no_capacity(config.on_no_capacity)
        .with_unasked_placed(config.front_end == FrontEnd::Nri)
        .with_groups(Arc::clone(&config.groups));
    Ok(state)
}

/// What of the reserved CPUs the pools of such a state lack, a sentence each.
pub fn reserved_lacking(
    config: &Config,
    topology: &Topology,
    held: &CpuSet,
    pools: &Pools,
) -> Vec<String> {
    let mut lacking = Vec::new();
    let amount = config.division().lacking(topology);
    if amount > 0 {
        lacking.push(format!("reservedCpus: {amount} of the amount are offline"));
    }
    let reserved = settled(config, topology, held).reserved_on(topology);
    let missing = reserved.difference(pools.reserved());
    if !missing.is_empty() {
        lacking.push(format!(
            "reservedCpus: {missing} are offline or all that is left for containers; {} are reserved until there are more",
            pools.reserved()
        ));
    }
    lacking
}

fn settled(config: &Config, topology: &Topology, held: &CpuSet) -> Division {
    config.division().settled(topology, &topology.cpus().difference(held))
}
