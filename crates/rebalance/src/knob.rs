//! The ladder of what can be done, least disruptive first.

/// What can be turned for a victim. Declared in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Knob {
    /// The culprit runs only where no other wants to: `cpu.idle`.
    Idle,
    /// The culprit leaves the hardware threads beside the victim's.
    Siblings,
    /// BestEffort containers together get less CPU time: at step 1 half of what the CPUs have that they may run on, at step 2 a quarter, and so on
    /// (`cpu.max`). The target is the one that this is said of; it holds for all.
    Suppress,
    /// The victim has tasks that go from cache to cache, and stays on those of its CPUs that have one last-level cache.
    Gather,
    /// The victim may overdraw its CPU limit for a moment: `cpu.max.burst`.
    Burst,
    /// The culprit gets fewer ways of the last-level cache (resctrl CAT).
    Cache,
    /// The culprit gets less memory bandwidth (resctrl MBA).
    Bandwidth,
    /// A container that shares CPUs goes to another L3 or NUMA node.
    Move,
    /// A container that uses wide vectors goes to another clock domain, by the strategy for its kind.
    Clock,
    /// The victim's memory comes to where it runs.
    Memory,
    /// A container that owns CPUs gets others.
    MoveOwner,
    /// A controller with an overview of the cluster should take the culprit away. Only said.
    Evict,
}

impl Knob {
    /// All of them, in order.
    pub const ALL: [Knob; 12] = [
        Knob::Idle,
        Knob::Siblings,
        Knob::Suppress,
        Knob::Gather,
        Knob::Burst,
        Knob::Cache,
        Knob::Bandwidth,
        Knob::Move,
        Knob::Clock,
        Knob::Memory,
        Knob::MoveOwner,
        Knob::Evict,
    ];

    /// One word, for metrics, logs and configuration.
    pub fn name(self) -> &'static str {
        match self {
            Knob::Idle => "idle",
            Knob::Siblings => "siblings",
            Knob::Suppress => "suppress",
            Knob::Gather => "gather",
            Knob::Burst => "burst",
            Knob::Bandwidth => "bandwidth",
            Knob::Cache => "cache",
            Knob::Move => "move",
            Knob::Clock => "clock",
            Knob::Memory => "memory",
            Knob::MoveOwner => "move-owner",
            Knob::Evict => "evict",
        }
    }
}
