//! Groups of containers with a common CPU set: their types as the configuration has them, and which of them a container belongs to. Which instances there are, and what they hold,
//! is in `state/groups.rs`.

mod instances;
mod kind;
mod membership;
mod place;
mod usage;

pub use self::instances::GroupForm;
pub(crate) use self::instances::{Asked, Choice, Groups, Instance, Membership, Portion};
pub use self::kind::{
    Capacity, Creation, Fill, GroupPlace, GroupType, Inside, InstanceKey, Instances, Load, Members,
    Most, Priority, Size,
};
pub(crate) use self::membership::{NO_GROUP, has_no_affinity};
pub use self::place::place_named;
pub use self::usage::Follow;
pub(crate) use self::usage::Followed;

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
