//! Containers with exclusive CPUs that are in no partition. In: which containers own CPUs. Out: how far these are kept from others.

use bayplan_enforcement::PartitionGiven;
use bayplan_host::kernel::Kernel;
use bayplan_node::occupancy::{Occupancy, Occupant};

use super::gathered::Gathered;
use super::isolation::{Isolation, isolated_at_boot};

/// Containers that own all of their CPUs and have nothing more, whether they ask for it or not.
pub(super) fn add_plain_owners(
    kernel: &mut dyn Kernel,
    occupancy: &Occupancy,
    is_asked: impl Fn(&Occupant) -> bool,
    gathered: &mut Gathered,
) {
    let is_plain = |it: &&Occupant| {
        !it.exclusive.is_empty()
            && it.exclusive == it.cpus
            && !it.is_left_alone
            && !it.is_together
            && !gathered.isolations.contains_key(&it.name)
    };
    let plain: Vec<&Occupant> = occupancy.occupants.iter().filter(is_plain).collect();
    if plain.is_empty() {
        return;
    }
    let at_boot = isolated_at_boot(kernel);
    for it in plain {
        let given = match it.exclusive.is_subset(&at_boot) {
            true => PartitionGiven::Boot,
            false => PartitionGiven::Exclusive,
        };
        let isolation = Isolation { given, is_asked: is_asked(it), slot: None };
        gathered.isolations.insert(it.name.clone(), isolation);
    }
}
