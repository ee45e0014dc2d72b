//! What an operator can set of the decisions about containers. Plain values; the configuration reads them.

use bayplan_allocator::Limits;

/// Moves that compaction tries before it takes the best plan that it has: about 5 ms on 512 CPUs.
const STATES_MAX: usize = 2000;

/// What happens to a container that asks for CPUs of its own when no pool can give them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnNoCapacity {
    /// It is refused; kubelet tries again, and the pod's events say what is lacking.
    #[default]
    Refuse,
    /// It runs among the shared containers, and counts there with all that it asks for.
    Share,
}

/// Whether and how much running containers are moved so that free CPUs lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionConfig {
    /// Whether any container is moved.
    pub enabled: bool,
    /// What the moves after one event may cost.
    pub limits: Limits,
}

impl Default for CompactionConfig {
    fn default() -> CompactionConfig {
        let limits = Limits {
            moves_max: 8,
            cpus_max: 64,
            memory_max: None,
            gain_min_percent: 10,
            states_max: STATES_MAX,
        };
        CompactionConfig { enabled: false, limits }
    }
}
