//! Goes on with another configuration while containers run. In: what of a configuration the state decides by. Out: the same state under it,
//! and which containers had to move; or only which would have to, worked out by the same step on a copy.
//!
//! Another configuration is like another machine (`replan.rs`): a container that can stay where it is does. Sent away is only one that had a place on
//! the reserved CPUs because of its namespace, or now has one. Rules about requests count for containers that come from now on: none that runs is
//! placed anew because a wish of all has changed.

use std::sync::Arc;

use bayplan_allocator::Pools;
use bayplan_allocator::policy::{Division, Policy, PoolsError, pools, surviving_pools};
use bayplan_topology::{Device, Topology};
use bayplan_types::CpuSet;
use bayplan_workload::RequestRules;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::groups::GroupType;
use crate::note::Note;
use crate::settings::{CompactionConfig, OnNoCapacity};

/// A configuration as far as decisions depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedConfig {
    /// What is derived for a container that says nothing itself, and which namespaces run on reserved CPUs.
    pub rules: RequestRules,
    /// Types of groups.
    pub groups: Arc<[GroupType]>,
    /// Moving running containers.
    pub compaction: CompactionConfig,
    /// Whether memory nodes are taken away.
    pub narrows_memory: bool,
    /// What happens without room.
    pub on_no_capacity: OnNoCapacity,
    /// How long a creation in doubt keeps its place.
    pub doubt_grace: SignedDuration,
    /// The configuration in YAML, as far as it says where containers go, for the history.
    pub text: String,
    /// The machine in use with the reserved CPUs of this configuration.
    pub machine: ChangedMachine,
}

/// The machine as it is now, in the words of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedMachine {
    /// Its pools.
    pub pools: Pools,
    /// Names its shape.
    pub fingerprint: String,
    /// Its devices.
    pub devices: Arc<[Device]>,
    /// What of the configuration does not fit it.
    pub notes: Vec<Note>,
    /// What was read of it, for the history.
    pub files: Option<Arc<str>>,
}

impl ChangedMachine {
    /// What becomes of the configured reserved CPUs on this machine is for [`surviving_pools`] to say, and is noted.
    pub fn new(topology: &Topology, policy: Policy, reserved: &CpuSet) -> ChangedMachine {
        let pools = surviving_pools(topology, policy, reserved);
        let mut notes = Vec::new();
        if pools.reserved() != reserved {
            let instead = match pools.reserved() {
                none if none.is_empty() => "system pods share with all others".to_owned(),
                left => format!("system pods run on {left}"),
            };
            let online = topology.cpus();
            let message = format!("reservedCpus are {reserved}, online are {online}; {instead}");
            notes.push(Note::Failure { kind: "reserved_offline", message });
        }
        let kept_out = topology.isolated().difference(pools.reserved());
        let shared = kept_out.difference(pools.isolated());
        if !shared.is_empty() {
            let message =
                format!("nothing is online but isolated CPUs; containers run on {shared}");
            notes.push(Note::Failure { kind: "isolated_shared", message });
        }
        let devices = topology.devices().into();
        ChangedMachine { pools, fingerprint: fingerprint(topology), devices, notes, files: None }
    }

    /// The same for a machine of which a configuration may use a part only.
    pub fn divided(topology: &Topology, division: &Division) -> ChangedMachine {
        let reserved = division.reserved_on(topology);
        ChangedMachine::new(&division.machine(topology), division.policy, &reserved)
    }

    /// With what was read of it, in the text form of `bayplan snapshot`.
    pub fn with_files(self, files: Option<Arc<str>>) -> ChangedMachine {
        ChangedMachine { files, ..self }
    }
}

/// The shape of a machine as the journal has it.
pub fn fingerprint(topology: &Topology) -> String {
    format!("{:016x}", topology.fingerprint())
}

/// Reserved CPUs that the machine does not have are a mistake in the configuration. Those that it has and that are offline just now must
/// not keep a node from coming back.
pub fn check_reserved(topology: &Topology, reserved: &CpuSet) -> Result<(), PoolsError> {
    // Which are reserved is the same for every policy.
    match pools(topology, Policy::default(), reserved) {
        Err(PoolsError::ReservedNotOnline { missing, .. })
            if missing.is_subset(topology.offline()) =>
        {
            Ok(())
        }
        // What others have claimed is no mistake in the configuration, and passes.
        Err(PoolsError::NothingLeft { .. }) if would_have_some(topology, reserved) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// The same for all that a configuration says about the CPUs of a machine.
///
/// # Errors
/// [`PoolsError`].
pub fn check_division(topology: &Topology, division: &Division) -> Result<(), PoolsError> {
    division.check(topology)?;
    // Those of an amount that are offline just now may be the ones that would be left for containers.
    if division.lacking(topology) > 0 {
        return Ok(());
    }
    check_reserved(topology, &division.reserved_on(topology))
}

/// Whether something would be left if others had not taken CPUs, the groups around pods allowed all, and every CPU were online.
fn would_have_some(topology: &Topology, reserved: &CpuSet) -> bool {
    let kept = reserved.union(topology.isolated());
    let is_taken = !topology.partitioned().is_empty() || !topology.withheld().is_empty();
    let there = topology.cpus().union(topology.offline());
    (is_taken || !topology.offline().is_empty()) && !there.is_subset(&kept)
}

/// A container that is elsewhere under another configuration. Lists of CPUs and nodes, as in `status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shift {
    /// `namespace/pod/container`.
    pub container: String,
    /// CPUs of its own until then; empty for a sharer.
    pub exclusive_from: String,
    /// CPUs of its own from then on.
    pub exclusive_to: String,
    /// Every CPU that it may run on until then.
    pub cpus_from: String,
    /// Every CPU that it may run on from then on.
    pub cpus_to: String,
    /// Memory nodes until then.
    pub mems_from: String,
    /// Memory nodes from then on.
    pub mems_to: String,
}
