//! Everything that is wanted of kernel files, family by family. In: the configuration, which container runs where, what the kernel offers. Out:
//! settings, and what cannot be had here.

mod arrivals;
mod cgroups;
mod isolation;
mod power;
mod resctrl;
mod scheduling;
mod turned;

use std::collections::{BTreeMap, BTreeSet};

use bayplan_enforcement::{Original, Reclaim, Settings, Slot, Unmovable};
use bayplan_host::ContainerCgroup;
use bayplan_host::kernel::Kernel;
use bayplan_node::occupancy::{Occupancy, Occupant};

pub(crate) use arrivals::Arrivals;
pub(super) use cgroups::KnownFiles;
pub(crate) use cgroups::{NO_RECLAIM_CLASS, asks_for_isolation, has_isolcpus_only, patterns_of};
pub(crate) use isolation::Isolations;
pub(super) use power::{PowerCache, gather_power};
pub(crate) use resctrl::{ClassesKnown, SCARCE, check_classes};
pub(crate) use turned::{TurnedSlots, class_group};

use crate::config::Config;
use crate::enforcer::groups::GroupWork;

/// What is wanted.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) settings: Settings,
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
    /// Everything is given back.
    pub(crate) fn nothing(kernel: &mut dyn Kernel) -> Gathered {
        let plan = resctrl::without_groups(kernel);
        Gathered { groups: GroupWork { plan, ..GroupWork::default() }, ..Gathered::default() }
    }
}

impl Gathered {
    fn add(&mut self, mut settings: Settings, problems: Vec<String>) {
        // To append makes the whole map anew.
        match settings.len() < self.settings.len() / 8 {
            true => self.settings.extend(settings),
            false => self.settings.append(&mut settings),
        }
        self.problems.extend(problems);
    }
}

/// Adds what it wants.
type Family = fn(&mut dyn Kernel, &Config, &Occupancy, &mut Gathered);

/// Those that keep nothing from look to look; no two want the same file.
const FAMILIES: &[Family] = &[turned::gather_turned, resctrl::gather_resctrl];

/// `known` is kept from look to look, `originals` is what files said before, `unmovable` what the kernel does not let any program change, and
/// `starting` are the runtime's ids of containers that it is starting.
pub(crate) fn gather(
    kernel: &mut dyn Kernel,
    known: &mut KnownFiles,
    config: &Config,
    occupancy: &Occupancy,
    originals: &BTreeMap<Slot, Original>,
    unmovable: &Unmovable,
    starting: BTreeSet<String>,
) -> Gathered {
    let mut gathered = Gathered { arrivals: Arrivals::of(starting), ..Gathered::default() };
    cgroups::gather_cgroups(kernel, known, config, occupancy, &mut gathered);
    for family in FAMILIES {
        family(kernel, config, occupancy, &mut gathered);
    }
    let is_asked = |it: &Occupant| cgroups::asks_for_partition(config, it);
    // What the rebalancer has turned goes before.
    let scheduled = scheduling::scheduled(kernel, &config.scheduling_classes, occupancy);
    for (slot, setting) in scheduled.settings {
        gathered.settings.entry(slot).or_insert(setting);
    }
    gathered.problems.extend(scheduled.problems);
    gathered.lacks_groups |= scheduled.lacks_groups;
    isolation::add_plain_owners(kernel, occupancy, is_asked, &mut gathered);
    cgroups::gather_interrupts(kernel, config, occupancy, originals, unmovable, &mut gathered);
    gathered
}

#[cfg(test)]
mod tests;
