//! The section `rebalance`: whether it is looked for containers that suffer from others, and what is done about it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bayplan_rebalance::{Knob, Mode};
use bayplan_workload::annotations::RebalanceWish;

pub(crate) mod trees;

/// In the order in which the key `forbid` tells them.
pub const KNOBS: [Knob; 12] = [
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

/// Everything about the rebalancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebalanceConfig {
    /// How far it goes where nothing else is said.
    pub mode: Mode,
    /// How far it goes at most with pods of these namespaces.
    pub namespaces: BTreeMap<String, Mode>,
    /// How often it looks.
    pub interval: Duration,
    /// What it never proposes.
    pub forbidden: BTreeSet<Knob>,
    /// Knobs that are turned and turned back in any minute, together.
    pub changes_per_minute: usize,
}

impl Default for RebalanceConfig {
    fn default() -> RebalanceConfig {
        RebalanceConfig {
            mode: Mode::Observe,
            namespaces: BTreeMap::new(),
            interval: Duration::from_secs(5),
            forbidden: BTreeSet::new(),
            changes_per_minute: 6,
        }
    }
}

impl RebalanceConfig {
    /// How far to go with a pod of this namespace that has this annotation.
    ///
    /// The configuration has the last word: `off` for the node is off, and what stands for a namespace is as far as it goes there. Where nothing
    /// stands for it a pod may go further than the node, because nothing is changed but for the sake of containers that agree, on such as agree.
    pub fn mode_of(&self, namespace: &str, wish: Option<RebalanceWish>) -> Mode {
        let wish = wish.map(|it| match it {
            RebalanceWish::Off => Mode::Off,
            RebalanceWish::Observe => Mode::Observe,
            RebalanceWish::Act => Mode::Act,
        });
        match (self.mode, self.namespaces.get(namespace)) {
            (Mode::Off, _) => Mode::Off,
            (_, Some(most)) => wish.map_or(*most, |wish| wish.min(*most)),
            (node, None) => wish.unwrap_or(node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_may_do_what_its_namespace_lets_it_and_nothing_on_a_node_that_is_off() {
        use Mode::{Act, Observe, Off};
        let mode = |mode, namespace: Option<Mode>, wish| {
            let namespaces = namespace.map(|it| ("n".to_owned(), it)).into_iter().collect();
            RebalanceConfig { mode, namespaces, ..RebalanceConfig::default() }.mode_of("n", wish)
        };
        let act = Some(RebalanceWish::Act);
        for (node, namespace, wish, expected) in [
            (Observe, None, None, Observe),
            (Observe, None, act, Act),
            (Observe, None, Some(RebalanceWish::Off), Off),
            (Observe, Some(Observe), act, Observe),
            (Observe, Some(Act), None, Act),
            (Observe, Some(Act), Some(RebalanceWish::Observe), Observe),
            (Act, Some(Off), act, Off),
            (Act, None, Some(RebalanceWish::Off), Off),
            (Off, Some(Act), act, Off),
        ] {
            assert_eq!(mode(node, namespace, wish), expected, "{node:?} {namespace:?} {wish:?}");
        }
    }
}
