//! What annotations and the configuration can fill in a request.

use super::asked::Asked;

/// A field of [`Asked`] or of the request that is made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// CPU and memory of the request.
    Requests,
    /// `Preferences::prefer_shared_cpus`.
    PreferSharedCpus,
    /// The QoS class by which CPUs are given.
    OwnQos,
    /// `Request::is_reserved`.
    IsReserved,
    /// `wishes.cpus.siblings`.
    Siblings,
    /// `wishes.cpus.packing`.
    Packing,
    /// `wishes.cpus.only_whole_cores`.
    OnlyWholeCores,
    /// `wishes.cpus.apart`.
    Apart,
    /// `wishes.cpus.isolated`.
    Isolated,
    /// `wishes.cpus.core_kind`.
    CoreKind,
    /// `wishes.cpus.priority`.
    Priority,
    /// `wishes.cpus.within`.
    Within,
    /// `wishes.cpus.is_even`.
    IsEven,
    /// `wishes.place.is_balanced`.
    IsBalanced,
    /// `wishes.cpus.hides_hyperthreads`.
    HidesHyperthreads,
    /// `wishes.memory.kinds`.
    MemoryKinds,
    /// `wishes.memory.is_bound`.
    MemoryIsBound,
    /// `tuning.cold_start`.
    ColdStart,
    /// `wishes.place.near`, by way of [`Hints`](super::hints::Hints).
    Near,
    /// `wishes.place.is_near_each`.
    IsNearEach,
    /// `wishes.place.affinity`.
    Affinity,
    /// `wishes.place.burst_level`.
    BurstLevel,
    /// `wishes.preserve.cpus`.
    PreserveCpus,
    /// `wishes.preserve.memory`.
    PreserveMemory,
    /// `wishes.claimed`.
    Claimed,
    /// `wishes.is_immovable`.
    IsImmovable,
    /// `group`.
    Group,
    /// `tuning.partition`.
    Partition,
    /// `tuning.is_quota_lifted`.
    Quota,
    /// `tuning.burst_percent`.
    CpuBurst,
    /// `tuning.interrupts`.
    Interrupts,
    /// `tuning.block_io_class`.
    BlockIoClass,
    /// `tuning.scheduling_class`.
    SchedulingClass,
    /// `tuning.reclaim_class`.
    ReclaimClass,
    /// `tuning.resctrl_class`.
    ResctrlClass,
    /// `tuning.cpu_class`.
    CpuClass,
    /// `tuning.cpu_governor`.
    CpuGovernor,
    /// `tuning.wake_up`.
    WakeUp,
    /// `tuning.rebalance`.
    Rebalance,
    /// `tuning.lends`.
    Lends,
    /// `tuning.batch`.
    Batch,
    /// `tuning.uses_wide_vectors`.
    WideVectors,
}

/// Which containers a wish counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Those with CPUs of their own.
    Owners,
    /// Those that have no other CPUs.
    PureOwners,
    /// Every container; exclusive CPUs are for Guaranteed pods only.
    Guaranteed,
    /// Those with a CPU limit.
    Limited,
    /// Those without a CPU limit.
    Unlimited,
    /// Every container.
    All,
}

impl Reach {
    /// What it does to a container that shares all of its CPUs, for the reference page.
    pub(super) const fn on_shared(self) -> &'static str {
        match self {
            Reach::Owners | Reach::PureOwners => "nothing, with a warning",
            Reach::Guaranteed => {
                "true: nothing more; false where it has no whole CPU or its pod is not Guaranteed: nothing, with a warning"
            }
            Reach::Limited => "the same; without a CPU limit nothing, with a warning",
            Reach::Unlimited => "the same; with a CPU limit nothing, with a warning",
            Reach::All => "the same",
        }
    }
}

impl Field {
    /// Whether it says where exclusive CPUs are, which for a member of a group its type says.
    pub(super) fn is_place_of_cpus(self) -> bool {
        matches!(
            self,
            Field::Siblings
                | Field::Packing
                | Field::OnlyWholeCores
                | Field::Apart
                | Field::Isolated
                | Field::CoreKind
                | Field::Priority
                | Field::Within
                | Field::IsEven
                | Field::IsBalanced
                | Field::Near
                | Field::IsNearEach
                | Field::Affinity
                | Field::BurstLevel
        )
    }

    /// Every field.
    pub const ALL: [Field; 42] = [
        Field::Requests,
        Field::PreferSharedCpus,
        Field::OwnQos,
        Field::IsReserved,
        Field::Siblings,
        Field::Packing,
        Field::OnlyWholeCores,
        Field::Apart,
        Field::Isolated,
        Field::CoreKind,
        Field::Priority,
        Field::Within,
        Field::IsEven,
        Field::IsBalanced,
        Field::HidesHyperthreads,
        Field::MemoryKinds,
        Field::MemoryIsBound,
        Field::ColdStart,
        Field::Near,
        Field::IsNearEach,
        Field::Affinity,
        Field::BurstLevel,
        Field::PreserveCpus,
        Field::PreserveMemory,
        Field::Claimed,
        Field::IsImmovable,
        Field::Group,
        Field::Partition,
        Field::Quota,
        Field::CpuBurst,
        Field::Interrupts,
        Field::BlockIoClass,
        Field::SchedulingClass,
        Field::ReclaimClass,
        Field::ResctrlClass,
        Field::CpuClass,
        Field::CpuGovernor,
        Field::WakeUp,
        Field::Rebalance,
        Field::Lends,
        Field::Batch,
        Field::WideVectors,
    ];

    /// Gives `to` what `from` has in this field.
    pub(super) fn copy(self, from: &Asked, to: &mut Asked) {
        match self {
            Field::Requests => to.requests.clone_from(&from.requests),
            Field::PreferSharedCpus => {
                to.prefer_shared_cpus = from.prefer_shared_cpus;
                to.owns_requested = from.owns_requested;
            }
            Field::OwnQos => to.has_own_qos = from.has_own_qos,
            Field::IsReserved => to.prefer_reserved_cpus = from.prefer_reserved_cpus,
            Field::Siblings => to.wishes.cpus.siblings = from.wishes.cpus.siblings,
            Field::Packing => to.wishes.cpus.packing = from.wishes.cpus.packing,
            Field::OnlyWholeCores => {
                to.wishes.cpus.only_whole_cores = from.wishes.cpus.only_whole_cores
            }
            Field::Apart => to.wishes.cpus.apart = from.wishes.cpus.apart,
            Field::Isolated => {
                to.prefer_isolated_cpus = from.prefer_isolated_cpus;
                to.wishes.cpus.isolated = from.wishes.cpus.isolated;
            }
            Field::CoreKind => to.wishes.cpus.core_kind = from.wishes.cpus.core_kind,
            Field::Priority => to.wishes.cpus.priority = from.wishes.cpus.priority,
            Field::Within => to.wishes.cpus.within = from.wishes.cpus.within,
            Field::IsEven => to.wishes.cpus.is_even = from.wishes.cpus.is_even,
            Field::IsBalanced => to.wishes.place.is_balanced = from.wishes.place.is_balanced,
            Field::HidesHyperthreads => {
                to.wishes.cpus.hides_hyperthreads = from.wishes.cpus.hides_hyperthreads
            }
            Field::MemoryKinds => to.wishes.memory.kinds.clone_from(&from.wishes.memory.kinds),
            Field::MemoryIsBound => to.wishes.memory.is_bound = from.wishes.memory.is_bound,
            Field::ColdStart => to.tuning.cold_start = from.tuning.cold_start,
            Field::Near => to.hints.clone_from(&from.hints),
            Field::IsNearEach => to.wishes.place.is_near_each = from.wishes.place.is_near_each,
            Field::Affinity => to.affinity.clone_from(&from.affinity),
            Field::BurstLevel => to.wishes.place.burst_level = from.wishes.place.burst_level,
            Field::PreserveCpus => to.wishes.preserve.cpus = from.wishes.preserve.cpus,
            Field::PreserveMemory => to.wishes.preserve.memory = from.wishes.preserve.memory,
            Field::Claimed => to.wishes.claimed.clone_from(&from.wishes.claimed),
            Field::IsImmovable => to.wishes.is_immovable = from.wishes.is_immovable,
            Field::Group => to.group.clone_from(&from.group),
            Field::Partition => to.tuning.partition = from.tuning.partition,
            Field::Quota => to.tuning.is_quota_lifted = from.tuning.is_quota_lifted,
            Field::CpuBurst => to.tuning.burst_percent = from.tuning.burst_percent,
            Field::Interrupts => to.tuning.interrupts = from.tuning.interrupts,
            Field::BlockIoClass => to.tuning.block_io_class.clone_from(&from.tuning.block_io_class),
            Field::SchedulingClass => {
                to.tuning.scheduling_class.clone_from(&from.tuning.scheduling_class)
            }
            Field::ReclaimClass => to.tuning.reclaim_class.clone_from(&from.tuning.reclaim_class),
            Field::ResctrlClass => to.tuning.resctrl_class.clone_from(&from.tuning.resctrl_class),
            Field::CpuClass => to.tuning.cpu_class.clone_from(&from.tuning.cpu_class),
            Field::CpuGovernor => to.tuning.cpu_governor.clone_from(&from.tuning.cpu_governor),
            Field::WakeUp => to.tuning.wake_up = from.tuning.wake_up,
            Field::Rebalance => to.tuning.rebalance = from.tuning.rebalance,
            Field::Lends => to.tuning.lends = from.tuning.lends,
            Field::Batch => to.tuning.batch = from.tuning.batch,
            Field::WideVectors => to.tuning.uses_wide_vectors = from.tuning.uses_wide_vectors,
        }
    }

    /// Which containers it counts for.
    pub(super) const fn reach(self) -> Reach {
        match self {
            Field::Siblings
            | Field::Packing
            | Field::OnlyWholeCores
            | Field::Apart
            | Field::Isolated
            | Field::CoreKind
            | Field::Priority
            | Field::Within
            | Field::IsEven
            | Field::IsBalanced
            | Field::IsNearEach
            | Field::CpuClass
            | Field::CpuGovernor
            | Field::WakeUp
            | Field::Lends
            | Field::Interrupts => Reach::Owners,
            Field::Partition | Field::Quota => Reach::PureOwners,
            Field::PreferSharedCpus => Reach::Guaranteed,
            Field::CpuBurst => Reach::Limited,
            Field::BurstLevel => Reach::Unlimited,
            _ => Reach::All,
        }
    }

    /// The field as it is called in the code.
    pub const fn path(self) -> &'static str {
        match self {
            Field::Requests => "demand, memory",
            Field::PreferSharedCpus => "preferences.prefer_shared_cpus",
            Field::OwnQos => "qos",
            Field::IsReserved => "is_reserved",
            Field::Siblings => "wishes.cpus.siblings",
            Field::Packing => "wishes.cpus.packing",
            Field::OnlyWholeCores => "wishes.cpus.only_whole_cores",
            Field::Apart => "wishes.cpus.apart",
            Field::Isolated => "wishes.cpus.isolated",
            Field::CoreKind => "wishes.cpus.core_kind",
            Field::Priority => "wishes.cpus.priority",
            Field::Within => "wishes.cpus.within",
            Field::IsEven => "wishes.cpus.is_even",
            Field::IsBalanced => "wishes.place.is_balanced",
            Field::HidesHyperthreads => "wishes.cpus.hides_hyperthreads",
            Field::MemoryKinds => "wishes.memory.kinds",
            Field::MemoryIsBound => "wishes.memory.is_bound",
            Field::ColdStart => "tuning.cold_start",
            Field::Near => "wishes.place.near",
            Field::IsNearEach => "wishes.place.is_near_each",
            Field::Affinity => "wishes.place.affinity",
            Field::BurstLevel => "wishes.place.burst_level",
            Field::PreserveCpus => "wishes.preserve.cpus",
            Field::PreserveMemory => "wishes.preserve.memory",
            Field::Claimed => "wishes.claimed",
            Field::IsImmovable => "wishes.is_immovable",
            Field::Group => "group",
            Field::Partition => "tuning.partition",
            Field::Quota => "tuning.is_quota_lifted",
            Field::CpuBurst => "tuning.burst_percent",
            Field::Interrupts => "tuning.interrupts",
            Field::BlockIoClass => "tuning.block_io_class",
            Field::SchedulingClass => "tuning.scheduling_class",
            Field::ReclaimClass => "tuning.reclaim_class",
            Field::ResctrlClass => "tuning.resctrl_class",
            Field::CpuClass => "tuning.cpu_class",
            Field::CpuGovernor => "tuning.cpu_governor",
            Field::WakeUp => "tuning.wake_up",
            Field::Rebalance => "tuning.rebalance",
            Field::Lends => "tuning.lends",
            Field::Batch => "tuning.batch",
            Field::WideVectors => "tuning.uses_wide_vectors",
        }
    }
}
