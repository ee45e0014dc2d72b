//! What all families together want, as one value.

use std::collections::BTreeMap;

use bayplan_enforcement::{Reclaim, Settings, Slot};
use bayplan_host::ContainerCgroup;

use super::arrivals::Arrivals;
use super::isolation::Isolations;
use crate::enforcer::groups::GroupWork;

/// The files of each proposal, by its number; or why there are none.
pub(crate) type TurnedSlots = BTreeMap<u64, Result<Vec<Slot>, String>>;

/// What is wanted.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) settings: Settings,
    /// Files below these stay as they are for now, although nothing is wanted of them.
    pub(crate) kept_below: Vec<&'static str>,
    /// What is wanted and cannot be had here, a sentence each.
    pub(crate) problems: Vec<String>,
    /// Something is wanted of a group that is not there yet.
    pub(crate) lacks_groups: bool,
    /// Where such groups come.
    pub(crate) arrivals: Arrivals,
    /// Groups of resctrl, and the threads that belong into them.
    pub(crate) groups: GroupWork,
    /// Which files belong to what the rebalancer has turned.
    pub(crate) turned: TurnedSlots,
    /// Of those that are a class, the container with threads in it.
    pub(crate) turned_threads: BTreeMap<u64, String>,
    /// How far CPUs are kept from others.
    pub(crate) isolations: Isolations,
    /// Containers from which idle memory is reclaimed.
    pub(crate) reclaims: Vec<Reclaim>,
    /// The groups of containers that a family has looked for, by the runtime's ids.
    pub(crate) cgroups: BTreeMap<String, ContainerCgroup>,
}

impl Gathered {
    pub(super) fn add(&mut self, mut settings: Settings, problems: Vec<String>) {
        // To append makes the whole map anew.
        match settings.len() < self.settings.len() / 8 {
            true => self.settings.extend(settings),
            false => self.settings.append(&mut settings),
        }
        self.problems.extend(problems);
    }
}
