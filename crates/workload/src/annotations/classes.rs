//! Names of the classes that the configuration has: of CPUs, caches, block I/O, reclaimed memory.

use std::collections::BTreeSet;

use super::field::Field;
use super::permissions::Wish;

/// Classes by the names that the configuration gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassNames {
    /// Of frequency and sleep, the built-in ones included.
    pub cpu: BTreeSet<String>,
    /// Of caches and memory bandwidth, the root's names included.
    pub resctrl: BTreeSet<String>,
    /// Of block I/O.
    pub block_io: BTreeSet<String>,
    /// Of scheduling.
    pub scheduling: BTreeSet<String>,
    /// Those of them with a real-time policy: threads of other containers have what these leave.
    pub realtime: BTreeSet<String>,
    /// Of memory that is reclaimed, with the word for none.
    pub reclaim: BTreeSet<String>,
}

impl ClassNames {
    /// Whether a class is wished that can harm other pods.
    pub(super) fn is_harmful(&self, wish: &Wish) -> bool {
        let is_realtime = |name: &String| self.realtime.contains(name);
        wish.field == Field::SchedulingClass && wish.value.as_ref().is_some_and(is_realtime)
    }

    /// The key of the configuration that has the classes for a field, and their names; `None` for a field without classes.
    pub(super) fn of(&self, field: Field) -> Option<(&'static str, &BTreeSet<String>)> {
        match field {
            Field::CpuClass => Some(("cpuClasses.classes", &self.cpu)),
            Field::ResctrlClass => Some(("resctrl.partitions", &self.resctrl)),
            Field::BlockIoClass => Some(("blockIo.classes", &self.block_io)),
            Field::SchedulingClass => Some(("schedulingClasses", &self.scheduling)),
            Field::ReclaimClass => Some(("memory.reclaim", &self.reclaim)),
            _ => None,
        }
    }
}
