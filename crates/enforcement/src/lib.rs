//! From what should hold to what must be written. In: desired and observed state. Out: an ordered plan that leaves no choice to
//! its executor.
//!
//! Where containers run goes through the runtime ([`plan_pinnings`]); everything else is a kernel file ([`plan_files`]).
//! Classes of cache and memory bandwidth are in [`resctrl`], those of frequency and sleep in [`power`].

mod author;
mod best_effort;
mod block_io;
mod cgroup;
mod file_plan;
mod interrupts;
mod partition;
mod patience;
mod pinning;
mod plan;
pub mod power;
mod reclaim;
pub mod resctrl;
mod scheduling;
mod setting;
pub mod speed_select;
mod turned;

pub use author::{Author, Told, author_of};
pub use best_effort::{BudgetPolicy, NodeUse, next_budget};
pub use block_io::{
    BlockDevice, BlockIoClass, BlockIoMember, BlockIoRule, CgroupFiles, ResolvedDevices,
    WEIGHT_REMEDY, idle_weight, settings_for_block_io,
};
pub use cgroup::{
    BatchWants, CgroupWants, CpuQuota, MemoryQos, MemoryWants, burst_slot, settings_for_cgroups,
};
pub use file_plan::{
    FilePass, FilePlan, FileWrite, Impossible, disks_to_look_for, files_to_read, is_needed,
    plan_files, render_file_plan,
};
pub use interrupts::{Interrupts, Unmovable, settings_for_interrupts};
pub use partition::{
    PartitionGiven, PartitionKind, PartitionOffer, PartitionWants, partition_slot,
    settings_for_partitions,
};
pub use patience::{Notice, Patience, REPAIRS_MAX, REPAIRS_WITHIN, TRUCE};
pub use pinning::{DesiredState, ObservedState};
pub use plan::{Pass, Plan, Write, is_in_place, plan_pinnings, render_plan};
pub use reclaim::{
    NO_RECLAIM_CLASS, Reclaim, ReclaimClass, ReclaimMember, ReclaimTurn, StallSeen,
    demotion_setting, next_slice, plan_reclaims,
};
pub use scheduling::{NamedScheduling, ScheduledMember, SchedulingClass, settings_for_scheduling};
pub use setting::{
    Form, GONE, Observed, Original, Setting, Settings, Slot, is_same, text_of, value_in,
};
pub use turned::{CgroupVersion, TurnedGroup, suppressed};
