//! When threads and their I/O have their turn: sched(7), ioprio_set(2).

/// The policy of a thread, with what it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadPolicy {
    /// `SCHED_OTHER`, with a nice value of -20 to 19. That compares threads of the same cgroup.
    Other(i8),
    /// `SCHED_BATCH`, with a nice value of -20 to 19: wakes up without preempting others of the same cgroup.
    Batch(i8),
    /// `SCHED_FIFO`, with a priority of 1 to 99: before all threads of the CPU that have a lower one or none, whatever their cgroup, for as long as it wants to run.
    Fifo(u8),
    /// `SCHED_RR`: the same, in turns with threads of the same priority.
    RoundRobin(u8),
}

impl ThreadPolicy {
    /// Nice values.
    pub const NICE: std::ops::RangeInclusive<i8> = -20..=19;
    /// Priorities of real-time policies.
    pub const PRIORITIES: std::ops::RangeInclusive<u8> = 1..=99;

    /// Whether threads of all cgroups wait for one with this policy.
    pub fn is_realtime(self) -> bool {
        matches!(self, ThreadPolicy::Fifo(_) | ThreadPolicy::RoundRobin(_))
    }
}

/// A class of I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoClass {
    /// Before that of all others.
    Realtime,
    /// Not before that of others.
    BestEffort,
    /// Where no other wants the disk.
    Idle,
}

/// What threads say of themselves. Set for the first process of a container, all others inherit it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadScheduling {
    /// `None`: as the runtime has it.
    pub policy: Option<ThreadPolicy>,
    /// The class of I/O and the priority within it, 0 (first) to 7. `None`: as the runtime has it.
    pub io: Option<(IoClass, u8)>,
}

impl ThreadScheduling {
    /// Priorities within a class of I/O (`IOPRIO_NR_LEVELS` in `include/uapi/linux/ioprio.h`).
    pub const IO_PRIORITIES: std::ops::RangeInclusive<u8> = 0..=7;

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.policy.is_none() && self.io.is_none()
    }
}
