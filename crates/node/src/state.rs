//! The state of the node and its one door. In: an event. Out: what must be journaled, written and answered.
//!
//! Approach: a container is placed before it exists and is then known by its ticket; once the runtime has made it, by the
//! runtime's id. Nothing here waits, reads a clock or writes: [`NodeState::step`] is a function of the state and the event.
//!
//! ```text
//! Admit ─▶ Creating ── Created ─▶ Created ── Started ─▶ Running ── Ended, PodEnded, gone ─▶ (released)
//!              ├─ Failed ─▶ (released)
//!              └─ Unknown ─▶ Unconfirmed ── found by sync ─▶ Created
//!                                 └─ not found by sync ─▶ (released)
//! ```
//!
//! `told` holds what every container was last told; a write counts as done when it is planned, and is forgotten when it fails,
//! so that the next plan repeats it.

mod admission;
mod affected;
mod ceilings;
mod claims;
mod cold_start;
mod creation;
mod decision;
mod emit;
mod ending;
mod entries;
mod groups;
mod huge_pages;
mod live;
mod mode;
mod narrowing;
mod occupancy;
mod pinnings;
mod pods;
mod proposals;
mod reconfigure;
mod refused;
mod request;
mod resizing;
mod resources_file;
mod sent;
mod sets_changed;
mod squeezed;
mod starting;
mod step;
mod taken_back;
mod together;
mod turned;
mod unmet;
mod vectors;
pub(crate) mod view;
mod writes;
mod zones;

pub use zones::{NodeZones, PodCpus};

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bayplan_allocator::{Allocation, ContainerId, Ledger, Pools};
use bayplan_topology::Device;
use bayplan_types::CpuSet;
use bayplan_workload::RequestRules;
use jiff::{SignedDuration, Timestamp};

use crate::colocation::Colocation;
use crate::compactor::Compactor;
use crate::container::Container;
use crate::containers::Containers;
use crate::decision::Gone;
use crate::departed::Departed;
use crate::earlier::Earlier;
use crate::groups::Groups;
use crate::known::Known;
use crate::mode::Mode;
use crate::narrowing::Narrower;
use crate::resources_file::Tellings;
use crate::sent::Sent;
use crate::settings::{CompactionConfig, OnNoCapacity};
use crate::told::Told;
use crate::turned::Turned;
use crate::vectors::VectorWorkloads;

/// Decisions about containers that are gone or were refused, kept for `explain`.
const HISTORY_MAX: usize = 256;

/// What the history is told of where the state comes from.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The configuration in YAML, as far as it says where containers go.
    pub config: Arc<str>,
    /// What was read of the machine, in the text form of `bayplan snapshot`.
    pub machine: Option<Arc<str>>,
}

/// Everything that bayplan knows about the node.
#[derive(Clone, Debug)]
pub struct NodeState {
    pub(crate) ledger: Ledger,
    /// The pools of the ledger as they are while no CPUs are claimed.
    pub(crate) machine: Arc<Pools>,
    /// CPUs that are claimed, and so in no pool of the ledger.
    pub(crate) claimed: CpuSet,
    pub(crate) rules: RequestRules,
    pub(crate) fingerprint: String,
    pub(crate) origin: Origin,
    /// Those of the machine.
    pub(crate) devices: Arc<[Device]>,
    pub(crate) containers: Containers,
    pub(crate) departed: Departed,
    pub(crate) told: Told,
    /// Pods of which a container has ended, or that have another figure, by [`Owner::pod`](bayplan_allocator::Owner::pod); none between two steps.
    unsettled: BTreeSet<u64>,
    history: VecDeque<Gone>,
    pub(crate) steps: u64,
    /// How long a creation in doubt keeps its place although the runtime does not list it: it may still be at work.
    pub(crate) doubt_grace: SignedDuration,
    pub(crate) compactor: Compactor,
    pub(crate) narrower: Narrower,
    pub(crate) tellings: Tellings,
    pub(crate) on_no_capacity: OnNoCapacity,
    pub(crate) mode: Mode,
    /// When it was chosen; `None` for the one that a node begins with.
    pub(crate) mode_since: Option<Timestamp>,
    pub(crate) is_rebalance_paused: bool,
    pub(crate) turned: Turned,
    /// What BestEffort containers get beside their place.
    pub(crate) colocation: Colocation,
    pub(crate) sent: Sent,
    pub(crate) known: Known,
    pub(crate) groups: Groups,
    /// What was before the last change of group types; `None` after another change.
    earlier: Option<Box<Earlier>>,
    /// Containers that the runtime made without asking get CPUs of their own once they are found.
    pub(crate) places_unasked: bool,
    /// What was measured of the use of wide vectors.
    pub(crate) vectors: VectorWorkloads,
}

impl NodeState {
    /// An empty node. `fingerprint` names the shape of its machine.
    pub fn new(ledger: Ledger, rules: RequestRules, fingerprint: String) -> NodeState {
        NodeState {
            machine: Arc::new(ledger.pools().clone()),
            claimed: CpuSet::new(),
            ledger,
            rules,
            fingerprint,
            origin: Origin::default(),
            devices: Arc::default(),
            containers: Containers::default(),
            departed: Departed::default(),
            told: Told::default(),
            unsettled: BTreeSet::new(),
            history: VecDeque::new(),
            steps: 0,
            doubt_grace: SignedDuration::ZERO,
            compactor: Compactor::new(CompactionConfig::default()),
            narrower: Narrower::default(),
            tellings: Tellings::default(),
            on_no_capacity: OnNoCapacity::default(),
            mode: Mode::default(),
            mode_since: None,
            is_rebalance_paused: false,
            turned: Turned::default(),
            colocation: Colocation::default(),
            sent: Sent::default(),
            known: Known::default(),
            groups: Groups::default(),
            earlier: None,
            places_unasked: false,
            vectors: VectorWorkloads::default(),
        }
    }

    /// With what a journal that was just read says of what runs.
    pub fn with_known(self, known: Known) -> NodeState {
        NodeState { known, ..self }
    }

    /// A creation in doubt keeps its place for at least this long although the runtime does not list it.
    pub fn with_doubt_grace(self, doubt_grace: SignedDuration) -> NodeState {
        NodeState { doubt_grace, ..self }
    }

    /// Containers can be placed near these devices.
    pub fn with_devices(self, devices: Arc<[Device]>) -> NodeState {
        NodeState { devices, ..self }
    }

    /// The history is told this of where the state comes from.
    pub fn with_origin(self, origin: Origin) -> NodeState {
        NodeState { origin, ..self }
    }

    /// What the containers hold.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// All containers with what they hold. Both maps are in the order of ids, so none is looked up.
    pub(crate) fn held_containers(
        &self,
    ) -> impl Iterator<Item = (ContainerId, &Container, &Allocation)> {
        let mut held = self.ledger.allocations().peekable();
        self.containers.iter().filter_map(move |(id, container)| {
            // What groups hold lies between.
            while held.next_if(|(other, _)| other < id).is_some() {}
            let (_, allocation) = held.next_if(|(other, _)| other == id)?;
            Some((*id, container, allocation))
        })
    }

    /// Whether an operator has stopped the rebalancer.
    pub fn is_rebalance_paused(&self) -> bool {
        self.is_rebalance_paused
    }

    /// The cgroup around the pod of the container that the runtime calls this, as kubelet named it.
    pub fn cgroup_parent(&self, runtime_id: &str) -> Option<&str> {
        Some(&self.containers.named(runtime_id)?.spec.pod.cgroup_parent)
    }

    fn remember(&mut self, gone: Gone) {
        if self.history.len() >= HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(gone);
    }
}

#[cfg(test)]
pub(crate) mod tests;
