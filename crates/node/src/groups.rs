//! Groups of containers with a common CPU set: their types as the configuration has them, and which of them a container belongs to. Which instances there are, and what they hold,
//! is in `state/groups.rs`.

mod instances;
mod kind;
mod membership;

pub use self::instances::GroupForm;
pub(crate) use self::instances::{Choice, Groups, Instance, Membership};
pub use self::kind::{
    Capacity, Fill, GroupType, Inside, InstanceKey, Instances, Members, Most, Priority, Size,
};
