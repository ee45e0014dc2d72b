//! Gauges of groups, by the names that the configuration gives their types: as many as there are types.

use std::sync::atomic::AtomicI64;

use bayplan_node::state::NodeState;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfType {
    pub(super) group_type: String,
}

type ByType = Family<OfType, Gauge<i64, AtomicI64>>;

/// Groups, their CPUs and their members.
#[derive(Debug, Default)]
pub(super) struct GroupGauges {
    groups: ByType,
    cpus: ByType,
    members: ByType,
}

impl GroupGauges {
    pub(super) fn register(&self, registry: &mut Registry) {
        for (name, help, family) in [
            ("groups", "Groups of containers with a common CPU set, by type", &self.groups),
            ("group_cpus", "CPUs of groups, by type", &self.cpus),
            ("group_members", "Containers in groups, by type", &self.members),
        ] {
            registry.register(name, help, family.clone());
        }
    }

    /// Types that the configuration has no more are not told.
    pub(super) fn show(&self, state: &NodeState) {
        [&self.groups, &self.cpus, &self.members].iter().for_each(|it| it.clear());
        for (name, count) in state.group_counts() {
            self.set(name, [count.groups, count.cpus, count.members]);
        }
    }

    pub(super) fn set(&self, group_type: &str, counts: [usize; 3]) {
        let labels = OfType { group_type: group_type.to_owned() };
        for (family, count) in [&self.groups, &self.cpus, &self.members].iter().zip(counts) {
            family.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
