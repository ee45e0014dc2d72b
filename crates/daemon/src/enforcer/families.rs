//! Everything that is wanted of kernel files, family by family. In: the configuration, which container runs where, what the kernel offers. Out:
//! settings, and what cannot be had here.

mod arrivals;
mod cgroups;
mod gathered;
pub(super) mod isolation;
mod plain_owners;
mod power;
mod resctrl;
mod scheduling;
mod turned;

use std::collections::{BTreeMap, BTreeSet};

use bayplan_enforcement::{Original, Slot, Unmovable};
use bayplan_host::has_cgroup_v2;
use bayplan_host::kernel::Kernel;
use bayplan_node::occupancy::{Occupancy, Occupant};

pub(super) use cgroups::KnownFiles;
pub(crate) use cgroups::{asks_for_isolation, has_isolcpus_only, patterns_of};
pub(crate) use gathered::{Gathered, TurnedSlots};
pub(super) use power::{PowerCache, gather_power};
pub(crate) use resctrl::{ClassesKnown, SCARCE, check_classes};
pub(crate) use turned::class_group;

use self::arrivals::Arrivals;
use crate::config::Config;
use crate::enforcer::groups::GroupWork;

/// Nothing is wanted: everything is given back.
pub(crate) fn gather_nothing(kernel: &mut dyn Kernel) -> Gathered {
    let plan = resctrl::without_groups(kernel);
    Gathered { groups: GroupWork { plan, ..GroupWork::default() }, ..Gathered::default() }
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
    plain_owners::add_plain_owners(kernel, occupancy, is_asked, &mut gathered);
    cgroups::gather_interrupts(kernel, config, occupancy, originals, unmovable, &mut gathered);
    gathered.problems.extend(lack_of_version_2(kernel, config));
    gathered
}

/// Sections of the configuration that do nothing where cgroups are of version 1.
fn lack_of_version_2(kernel: &mut dyn Kernel, config: &Config) -> Option<String> {
    let it = &config.best_effort;
    let sections = [
        ("bestEffort", it.node_percent > 0 || it.is_idle || it.borrows),
        ("schedulingClasses", !config.scheduling_classes.is_empty()),
    ];
    let names = sections.iter().filter_map(|(name, is_set)| is_set.then_some(*name));
    let names = names.collect::<Vec<_>>().join(", ");
    let is_v1 = !names.is_empty() && !has_cgroup_v2(kernel);
    is_v1.then(|| format!("cgroups are of version 1: no effect of {names}"))
}

#[cfg(test)]
mod tests;
