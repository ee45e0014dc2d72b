//! The section `bestEffort`: what BestEffort containers get of CPUs that others need or own.

use bayplan_enforcement::BudgetPolicy;

/// Everything about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BestEffortConfig {
    /// Share of the node's CPU time in percent from which on BestEffort containers are held back; 0: never.
    pub node_percent: usize,
    /// What they have at least, in percent of the node.
    pub floor_percent: usize,
    /// By how much more they get at once, in percent of the node.
    pub growth_percent: usize,
    /// They run only where no other of their class wants to.
    pub is_idle: bool,
    /// They run on idle CPUs of exclusive containers that agree.
    pub borrows: bool,
}

impl Default for BestEffortConfig {
    fn default() -> BestEffortConfig {
        BestEffortConfig {
            node_percent: 0,
            floor_percent: 5,
            growth_percent: 10,
            is_idle: false,
            borrows: false,
        }
    }
}

impl BestEffortConfig {
    /// What the budget follows.
    pub fn policy(&self) -> BudgetPolicy {
        let percent = |value: usize| u64::try_from(value).unwrap_or(100).min(100);
        BudgetPolicy {
            node_percent: percent(self.node_percent),
            floor_percent: percent(self.floor_percent),
            growth_percent: percent(self.growth_percent),
        }
    }
}
