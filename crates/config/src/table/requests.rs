//! What holds for containers of pods that say nothing themselves.

use bayplan_types::AMPLIFICATION_PERCENT;
use bayplan_workload::annotations::{BURST, FLAG, NUMA_STRATEGY, PRIORITY, SIBLINGS};

use super::key::{Key, When};
use crate::kind::{Kind, OneOf};
use crate::requests::trees::Preserved;
use crate::requests::{PINS, POLICIES, SCOPES};

/// In the order of the documentation.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "requests",
        when: When::Now,
        kind: Kind::Section,
        text: "What holds for containers of pods that say nothing themselves; `bayplan annotations` lists what pods can say. Kubelet's spelling \
               (full-pcpus-only) and that of nri-plugins (preferSharedCPUs) are accepted, too.",
    },
    Key {
        name: "requests.preferSharedCpus",
        when: When::Now,
        kind: Kind::Word(&OneOf(FLAG, |it| &mut it.requests.prefer_shared_cpus)),
        text: "Shared CPUs also for whole CPUs.",
    },
    Key {
        name: "requests.qosPerContainer",
        when: When::Now,
        kind: Kind::Word(&OneOf(FLAG, |it| &mut it.requests.qos_per_container)),
        text: "A container of a Burstable pod with requests equal to its own limits gets CPUs as one of a Guaranteed pod.",
    },
    Key {
        name: "requests.preferIsolatedCpus",
        when: When::Now,
        kind: Kind::Word(&OneOf(FLAG, |it| &mut it.requests.prefer_isolated_cpus)),
        text: "Isolated CPUs (isolcpus) for containers with a single exclusive CPU.",
    },
    Key {
        name: "requests.siblings",
        when: When::Now,
        kind: Kind::Word(&OneOf(SIBLINGS, |it| &mut it.requests.siblings)),
        text: "The other threads of a core of which a container owns only some: pair, shared or idle.",
    },
    Key {
        name: "requests.defaultCpuPriority",
        when: When::Now,
        kind: Kind::Word(&OneOf(PRIORITY, |it| &mut it.requests.priority)),
        text: "Exclusive CPUs of this priority: high, normal, low or none.",
    },
    Key {
        name: "requests.unlimitedBurstable",
        when: When::Now,
        kind: Kind::Word(&OneOf(BURST, |it| &mut it.requests.burst_level)),
        text: "Containers without a CPU limit burst over a system, package, die, numa or l3cache; none: wherever there is most room.",
    },
    Key {
        name: "requests.pinCpu",
        when: When::Now,
        kind: Kind::Word(&OneOf(PINS, |it| &mut it.requests.preserve.cpus)),
        text: "Containers get a CPU set. With false it stays as the runtime made it, and none has CPUs of its own, but in a group that says pinCPU: true.",
    },
    Key {
        name: "requests.pinMemory",
        when: When::Now,
        kind: Kind::Word(&OneOf(PINS, |it| &mut it.requests.preserve.memory)),
        text: "Containers get memory nodes. With false these stay as the runtime made them, but in a group that says pinMemory: true.",
    },
    Key {
        name: "requests.preserve",
        when: When::Now,
        kind: Kind::Tree(&Preserved),
        text: "Containers that keep the CPUs and memory nodes which the runtime gives them: those for which one of these expressions holds, such as \
               {key: namespace, operator: In, values: [infra]}.",
    },
    Key {
        name: "requests.numaStrategy",
        when: When::Now,
        kind: Kind::Word(&OneOf(NUMA_STRATEGY, |it| &mut it.requests.numa_strategy)),
        text: "New exclusive CPUs on the NUMA node that is filled most (most-allocated), on the one with most room (least-allocated), or in equal parts \
               where they need several (distribute-evenly).",
    },
    Key {
        name: "requests.lseIdleSiblings",
        when: When::Now,
        kind: Kind::Word(&OneOf(PINS, |it| &mut it.requests.lse_uses_siblings)),
        text: "Other threads of the cores of Koordinator's LSE pods stay idle; with false other containers use them.",
    },
    Key {
        name: "requests.amplificationPercent",
        when: When::Now,
        kind: Kind::Count(*AMPLIFICATION_PERCENT.start(), *AMPLIFICATION_PERCENT.end(), |it| {
            &mut it.requests.amplification.percent
        }),
        text: "CPU time that a scheduler counts a CPU as, in percent, where it amplifies CPUs (Koordinator's resource-amplification-ratio, which the agent \
               takes from the Node where this key is missing): requests of containers without CPUs of their own are divided by it.",
    },
    Key {
        name: "requests.colocatePods",
        when: When::Now,
        kind: Kind::Word(&OneOf(FLAG, |it| &mut it.requests.colocate_pods)),
        text: "Containers of a pod near each other.",
    },
    Key {
        name: "requests.colocateNamespaces",
        when: When::Now,
        kind: Kind::Word(&OneOf(FLAG, |it| &mut it.requests.colocate_namespaces)),
        text: "Containers of a namespace near each other.",
    },
    Key {
        name: "requests.fullPcpusOnly",
        when: When::Now,
        kind: Kind::Word(&OneOf(FLAG, |it| &mut it.requests.only_whole_cores)),
        text: "Options of kubelet's static CPU manager, as far as strictCpuReservation. Whole cores, or nothing.",
    },
    Key {
        name: "requests.distributeCpusAcrossNuma",
        when: When::Now,
        kind: Kind::Word(&OneOf(FLAG, |it| &mut it.requests.across_numa)),
        text: "Containers that need several NUMA nodes get equal parts.",
    },
    Key {
        name: "requests.distributeCpusAcrossCores",
        when: When::Now,
        kind: Kind::Word(&OneOf(FLAG, |it| &mut it.requests.across_cores)),
        text: "One thread per core, as far as there are cores.",
    },
    Key {
        name: "requests.preferAlignCpusByUncoreCache",
        when: When::Now,
        kind: Kind::Always("the tightest domain is always preferred, L3s too; leave it out"),
        text: "Always true.",
    },
    Key {
        name: "requests.alignBySocket",
        when: When::Now,
        kind: Kind::Word(&OneOf(FLAG, |it| &mut it.requests.by_socket)),
        text: "With topologyManagerPolicy: restricted, the fewest packages instead of the fewest NUMA nodes.",
    },
    Key {
        name: "requests.strictCpuReservation",
        when: When::Now,
        kind: Kind::Always("reserved CPUs are always kept from all others; reserve fewer instead"),
        text: "Always true.",
    },
    Key {
        name: "requests.topologyManagerPolicy",
        when: When::Now,
        kind: Kind::Word(&OneOf(POLICIES, |it| &mut it.requests.policy)),
        text: "As kubelet's Topology Manager: none, best-effort (both: the fewest NUMA nodes first), restricted (no more NUMA nodes than on an \
               empty machine), or single-numa-node.",
    },
    Key {
        name: "requests.topologyManagerScope",
        when: When::Now,
        kind: Kind::Word(&OneOf(SCOPES, |it| &mut it.requests.is_for_pods)),
        text: "restricted and single-numa-node hold for each container, or for all of a pod together (pod).",
    },
];
