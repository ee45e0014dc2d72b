//! Classes of cache and memory bandwidth. In: partitions and classes in the format of goresctrl, and what the machine's resctrl offers. Out:
//! for every class the schemata that the kernel will take (`Documentation/filesystems/resctrl.rst`, "Schemata files").
//!
//! A *partition* has a part of every cache that no other partition has; a *class* has a part of its partition's, which other classes of the same
//! partition may have, too. Memory bandwidth is a bound: a class has a part of what its partition may use, and all of them together may be
//! promised more than there is. Containers are assigned to classes, each of which is a control group and uses up one CLOSID of the few that the
//! processor has. Guarantees: the same input gives the same output; every mask is one that the machine takes, masks of different partitions are
//! disjoint, and a class's mask is part of its partition's; either all classes get schemata, or every reason why not is told.

mod bandwidth;
mod bitmask;
mod budget;
mod cache;
mod config;
mod groups;
mod info;
mod narrower;
mod problem;
mod resolve;
mod share;
#[cfg(test)]
mod tests;

pub use bitmask::CapacityBitmask;
pub use budget::{GroupBudget, fit_groups};
pub use config::{
    CacheShares, CdpShares, ClassName, PerCache, Refusals, ResctrlClass, ResctrlConfig,
    ResctrlOptions, ResctrlPartition, check_config,
};
pub use groups::{
    GroupChange, GroupPlan, MonitoredContainer, ObservedGroups, RESCTRL, WantedGroups, control_dir,
    groups_of_others, is_own_group, monitor_dir, owner_of_group, plan_groups, schemata_settings,
};
pub use info::{BandwidthInfo, BandwidthUnit, CacheInfo, MonitorInfo, ResctrlInfo};
pub use narrower::{ClassesHere, Scarce};
pub use problem::Problem;
pub use resolve::{ResolvedClass, ResolvedClasses, SchemaLine, Schemata, resolve};
pub use share::{Bandwidth, CacheIds, CacheShare, ParseShareError};
