//! Containers with exclusive CPUs that are in no partition. In: which containers own CPUs. Out: how far these are kept from others.

use bayplan_enforcement::PartitionGiven;
use bayplan_node::occupancy::Occupant;

use super::cgroups::asks_for_partition;
use super::family::{Context, Family};
use super::gathered::Gathered;
use super::isolation::{Isolation, isolated_at_boot};

/// Containers that own all of their CPUs and have nothing more, whether they ask for it or not. No file is wanted for that.
#[derive(Debug)]
pub(super) struct PlainOwners;

impl Family for PlainOwners {
    fn gather(&mut self, context: &mut Context<'_>, gathered: &mut Gathered) {
        let Context { kernel, config, occupancy, .. } = context;
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
        let at_boot = isolated_at_boot(&mut **kernel);
        for it in plain {
            let given = match it.exclusive.is_subset(&at_boot) {
                true => PartitionGiven::Boot,
                false => PartitionGiven::Exclusive,
            };
            let isolation =
                Isolation { given, is_asked: asks_for_partition(config, it), slot: None };
            gathered.isolations.insert(it.name.clone(), isolation);
        }
    }
}
