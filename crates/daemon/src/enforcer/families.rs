//! Everything that is wanted of kernel files, family by family. In: the configuration, which container runs where, what the kernel offers. Out:
//! settings, and what cannot be had here.

mod arrivals;
mod cgroups;
mod family;
mod gathered;
pub(super) mod isolation;
mod plain_owners;
mod power;
mod resctrl;
mod scheduling;
mod turned;

use std::collections::BTreeSet;

use bayplan_host::has_cgroup_v2;
use bayplan_host::kernel::Kernel;

pub(crate) use cgroups::{asks_for_isolation, has_isolcpus_only, patterns_of};
pub(super) use family::Context;
pub(crate) use gathered::{Gathered, TurnedSlots};
pub(crate) use resctrl::{ClassesKnown, SCARCE, check_classes};
pub(crate) use turned::class_group;

use self::arrivals::Arrivals;
use self::cgroups::{Cgroups, Interrupts};
use self::family::Family;
use self::plain_owners::PlainOwners;
use self::power::Power;
use self::resctrl::ResctrlClasses;
use self::scheduling::Scheduling;
use self::turned::TurnedKnobs;
use crate::enforcer::groups::GroupWork;

/// Nothing is wanted: everything is given back.
pub(crate) fn gather_nothing(kernel: &mut dyn Kernel) -> Gathered {
    let plan = resctrl::without_groups(kernel);
    Gathered { groups: GroupWork { plan, ..GroupWork::default() }, ..Gathered::default() }
}

/// All of them, in the order in which they are asked.
#[derive(Debug)]
pub(crate) struct Families(Vec<Box<dyn Family>>);

impl Default for Families {
    fn default() -> Families {
        Families(vec![
            Box::new(Cgroups::default()),
            // What the rebalancer has turned goes before classes of scheduling.
            Box::new(TurnedKnobs),
            Box::new(ResctrlClasses),
            Box::new(Scheduling::default()),
            Box::new(PlainOwners),
            Box::new(Interrupts),
            Box::new(NeedsVersion2),
            Box::new(Power::default()),
        ])
    }
}

impl Families {
    /// `starting` are the runtime's ids of containers that it is starting.
    pub(super) fn gather(
        &mut self,
        context: &mut Context<'_>,
        starting: BTreeSet<String>,
    ) -> Gathered {
        let mut gathered = Gathered { arrivals: Arrivals::of(starting), ..Gathered::default() };
        for family in &mut self.0 {
            family.gather(context, &mut gathered);
        }
        gathered
    }

    /// As [`Family::forget`].
    pub(super) fn forget(&mut self) {
        self.0.iter_mut().for_each(|it| it.forget());
    }
}

/// Sections of the configuration that do nothing where cgroups are of version 1: wants no file, and says so.
#[derive(Debug)]
struct NeedsVersion2;

impl Family for NeedsVersion2 {
    fn gather(&mut self, context: &mut Context<'_>, gathered: &mut Gathered) {
        let it = &context.config.best_effort;
        let mut classes = context.config.scheduling_classes.iter();
        let sections = [
            ("bestEffort", it.node_percent > 0 || it.is_idle || it.borrows),
            ("schedulingClasses", classes.any(|it| it.class.wants_files())),
        ];
        let names = sections.iter().filter_map(|(name, is_set)| is_set.then_some(*name));
        let names = names.collect::<Vec<_>>().join(", ");
        if !names.is_empty() && !has_cgroup_v2(context.kernel) {
            gathered.problems.push(format!("cgroups are of version 1: no effect of {names}"));
        }
    }
}

#[cfg(test)]
mod tests;
