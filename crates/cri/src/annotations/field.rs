//! What annotations and the configuration can fill in a request.

/// A field of [`Asked`](super::Asked) or of the request that is made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// CPU and memory of the request.
    Requests,
    /// `Preferences::prefer_shared_cpus`.
    PreferSharedCpus,
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
    /// `wishes.cpus.hides_hyperthreads`.
    HidesHyperthreads,
    /// `wishes.memory.kinds`.
    MemoryKinds,
    /// `wishes.memory.is_bound`.
    MemoryIsBound,
    /// `tuning.cold_start`.
    ColdStart,
    /// `wishes.place.near`, by way of [`Hints`](super::Hints).
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
}

impl Field {
    /// The field as it is called in the code.
    pub const fn path(self) -> &'static str {
        match self {
            Field::Requests => "demand, memory",
            Field::PreferSharedCpus => "preferences.prefer_shared_cpus",
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
            Field::Partition => "tuning.partition",
            Field::Quota => "tuning.is_quota_lifted",
            Field::CpuBurst => "tuning.burst_percent",
            Field::Interrupts => "tuning.interrupts",
            Field::BlockIoClass => "tuning.block_io_class",
            Field::ReclaimClass => "tuning.reclaim_class",
            Field::ResctrlClass => "tuning.resctrl_class",
            Field::CpuClass => "tuning.cpu_class",
            Field::CpuGovernor => "tuning.cpu_governor",
            Field::WakeUp => "tuning.wake_up",
            Field::Rebalance => "tuning.rebalance",
        }
    }
}
