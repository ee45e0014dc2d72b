//! Groups of containers with a common CPU set: their types as the configuration has them, and which of them a container belongs to. Which instances there are, and what they hold,
//! is in `state/groups.rs`.

mod instances;
mod kind;
mod membership;

pub use self::instances::GroupForm;
pub(crate) use self::instances::{Asked, Choice, Groups, Instance, Membership};
pub use self::kind::{
    Capacity, Fill, GroupType, Inside, InstanceKey, Instances, Members, Most, Priority, Size,
};
pub(crate) use self::membership::has_no_affinity;

/// How much there is of a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCount {
    /// Groups.
    pub groups: usize,
    /// Their CPUs.
    pub cpus: usize,
    /// Containers in them.
    pub members: usize,
}
