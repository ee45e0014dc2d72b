//! How long calls wait, what becomes of those without a decision, and how running containers are compacted.

use bayplan_node::settings::OnNoCapacity;
use bayplan_workload::annotations::{FLAG, Words};

use super::key::{Key, When};
use crate::config::OnFailure;
use crate::kind::{Kind, OneOf};

const ON_FAILURE: &Words<OnFailure> = &[("open", OnFailure::Open), ("closed", OnFailure::Closed)];

const ON_NO_CAPACITY: &Words<OnNoCapacity> =
    &[("refuse", OnNoCapacity::Refuse), ("share", OnNoCapacity::Share)];

/// In the order of the documentation.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "decisionTimeout",
        when: When::Now,
        kind: Kind::Duration(|it| &mut it.decision_timeout),
        text: "A call of kubelet waits this long for a decision.",
    },
    Key {
        name: "onFailure",
        when: When::Now,
        kind: Kind::Word(&OneOf(ON_FAILURE, |it| &mut it.on_failure)),
        text: "A call without a decision in time is forwarded unchanged (open) or refused (closed).",
    },
    Key {
        name: "onNoCapacity",
        when: When::Now,
        kind: Kind::Word(&OneOf(ON_NO_CAPACITY, |it| &mut it.on_no_capacity)),
        text: "A container that cannot have its exclusive CPUs is refused (refuse), or runs on shared CPUs (share) unless an annotation requires \
               exclusive ones.",
    },
    Key {
        name: "maxWaitingCalls",
        when: When::Restart,
        kind: Kind::Count(1, 65536, |it| &mut it.waiting_max),
        text: "Calls that may wait for a decision; kubelet is told RESOURCE_EXHAUSTED for those beyond.",
    },
    Key {
        name: "runtimeTimeout",
        when: When::Now,
        kind: Kind::Duration(|it| &mut it.runtime_timeout),
        text: "One answer of the runtime may take this long; an update of a CPU set at most a quarter of decisionTimeout.",
    },
    Key {
        name: "resyncInterval",
        when: When::Now,
        kind: Kind::Duration(|it| &mut it.resync_interval),
        text: "The runtime is asked this often what runs, to find what its events have missed.",
    },
    Key {
        name: "drainTimeout",
        when: When::Now,
        kind: Kind::Duration(|it| &mut it.drain_timeout),
        text: "A stop serves on until no call is under way that takes long (a container that ends, an image that is pulled), at most for so long.",
    },
    Key {
        name: "compaction",
        when: When::Now,
        kind: Kind::Section,
        text: "Moves running containers that own CPUs, so that free CPUs lie together in one NUMA node.",
    },
    Key {
        name: "compaction.enabled",
        when: When::Now,
        kind: Kind::Word(&OneOf(FLAG, |it| &mut it.compaction.enabled)),
        text: "Whether containers are moved.",
    },
    Key {
        name: "compaction.maxMovesPerEvent",
        when: When::Now,
        kind: Kind::Count(1, 16, |it| &mut it.compaction.limits.moves_max),
        text: "Containers that may be moved after one event.",
    },
    Key {
        name: "compaction.maxCpusPerEvent",
        when: When::Now,
        kind: Kind::Count(1, 4096, |it| &mut it.compaction.limits.cpus_max),
        text: "Exclusive CPUs that may change.",
    },
    Key {
        name: "compaction.maxMemoryPerEvent",
        when: When::Now,
        kind: Kind::Memory(|it| &mut it.compaction.limits.memory_max),
        text: "Memory that may have to follow to another NUMA node (512Mi, 16Gi, unlimited).",
    },
    Key {
        name: "compaction.minGainPercent",
        when: When::Now,
        kind: Kind::Count(0, 100, |it| &mut it.compaction.limits.gain_min_percent),
        text: "For 100 CPUs that change, the largest hole in a NUMA node has to gain so many CPUs.",
    },
];
