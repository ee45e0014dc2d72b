//! Goes on with another configuration while containers run. In: what of a configuration the state decides by. Out: the same state under it,
//! and which containers had to move; or only which would have to, worked out by the same step on a copy.
//!
//! Another configuration is like another machine (`reseat.rs`): a container that can stay where it is does. Sent away is only one that had a place on
//! the reserved CPUs because of its namespace, or now has one. Rules about requests count for containers that come from now on: none that runs is
//! placed anew because a wish of all has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bayplan_allocator::policy::{Policy, PoolsError, pools};
use bayplan_allocator::{ContainerId, Pools};
use bayplan_topology::Topology;
use bayplan_types::CpuSet;
use bayplan_workload::RequestRules;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::event::{Answer, ChangedMachine, Note, Step};
use crate::groups::GroupType;
use crate::history::{By, Kind};
use crate::settings::{CompactionConfig, OnNoCapacity};
use crate::state::{Container, NodeState};

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

/// Whether something would be left if others had not taken CPUs, and the groups around pods allowed all.
fn would_have_some(topology: &Topology, reserved: &CpuSet) -> bool {
    let kept = reserved.union(topology.isolated());
    let is_taken = !topology.partitioned().is_empty() || !topology.withheld().is_empty();
    is_taken && !topology.cpus().is_subset(&kept)
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

/// Where a container is: its own CPUs, all, and its memory nodes.
type Place = (String, String, String);

impl NodeState {
    /// Goes on under another configuration.
    pub(crate) fn config_changed(&mut self, config: ChangedConfig, now: Timestamp) -> Step {
        let places = self.places();
        let mut step = Step::new(Answer::Done);
        let were = self.wanting_reserved(self.ledger.pools());
        self.rules = config.rules;
        let are = self.wanting_reserved(&config.machine.pools);
        let mut sent_away = self.sent_away(&were, &are);
        let are_regrouped = self.groups.types != config.groups;
        if are_regrouped {
            sent_away.extend(self.change_groups(config.groups));
        }
        self.compactor.reconfigure(config.compaction);
        self.narrower.reconfigure(config.narrows_memory);
        self.on_no_capacity = config.on_no_capacity;
        self.doubt_grace = config.doubt_grace;
        if *self.origin.config != *config.text {
            self.origin.config = config.text.into();
            step.history.push(self.node_entry(Kind::Configured));
        }
        let not_alone = self.not_alone();
        if config.machine.pools != *self.machine || !sent_away.is_empty() || are_regrouped {
            self.reseat_all(config.machine, By::Config, &sent_away, now, &mut step);
        }
        self.note_not_alone(&not_alone, &mut step);
        // Groups that the new types want more, fewer or other CPUs for move containers, too.
        self.settle_groups(&mut step);
        let shifts = self.shifts(&places);
        step.notes.push(Note::ConfigChanged { moved: shifts.len() });
        step.answer = Answer::Shifts(shifts);
        step.answers_after_plan = true;
        step
    }

    /// Dry run: which containers would be elsewhere under another configuration.
    pub(crate) fn preview_config(&self, config: ChangedConfig, now: Timestamp) -> Step {
        let mut copy = self.clone();
        Step::new(copy.config_changed(config, now).answer)
    }

    /// Dry run: what would be where under another configuration.
    pub(crate) fn preview_status(&self, config: ChangedConfig, now: Timestamp) -> Step {
        let mut copy = self.clone();
        copy.config_changed(config, now);
        Step::new(Answer::Status(Box::new(copy.status())))
    }

    /// Containers that are to run on the reserved CPUs of these pools, if there are any.
    fn wanting_reserved(&self, pools: &Pools) -> BTreeSet<ContainerId> {
        if pools.reserved().is_empty() {
            return BTreeSet::new();
        }
        let wants = |(id, container): (&ContainerId, &Container)| {
            self.request(*id, &container.spec).0.is_reserved.then_some(*id)
        };
        self.containers.iter().filter_map(wants).collect()
    }

    /// Containers that are not to be where they are, and why.
    fn sent_away(
        &self,
        were: &BTreeSet<ContainerId>,
        are: &BTreeSet<ContainerId>,
    ) -> BTreeMap<ContainerId, String> {
        let sent_away = were.symmetric_difference(are).filter_map(|id| {
            let is = are.contains(id);
            let why = match is {
                true => "its place is on the reserved CPUs now",
                false => "its place is no longer on the reserved CPUs",
            };
            let held = self.ledger.allocation(*id)?;
            (held.is_reserved != is).then(|| (*id, why.to_owned()))
        });
        sent_away.collect()
    }

    fn places(&self) -> BTreeMap<ContainerId, Place> {
        let place = |id: &ContainerId| {
            let held = self.ledger.allocation(*id)?;
            let pinning = self.pinning(*id)?;
            let texts =
                (held.exclusive.to_string(), pinning.cpus.to_string(), pinning.mems.to_string());
            Some((*id, texts))
        };
        self.containers.keys().filter_map(place).collect()
    }

    /// Containers that are no longer where they were.
    fn shifts(&self, before: &BTreeMap<ContainerId, Place>) -> Vec<Shift> {
        let after = self.places();
        let mut shifts = Vec::new();
        for (id, from) in before {
            let Some((to, container)) = after.get(id).zip(self.containers.get(id)) else {
                continue;
            };
            if from != to {
                shifts.push(Shift {
                    container: container.full_name(),
                    exclusive_from: from.0.clone(),
                    exclusive_to: to.0.clone(),
                    cpus_from: from.1.clone(),
                    cpus_to: to.1.clone(),
                    mems_from: from.2.clone(),
                    mems_to: to.2.clone(),
                });
            }
        }
        shifts.sort_by(|a, b| a.container.cmp(&b.container));
        shifts
    }
}
