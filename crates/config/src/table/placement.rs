//! Which CPUs there are, for which containers, and what pods may ask for.

use bayplan_allocator::policy::Policy;
use bayplan_workload::annotations::Words;

use super::key::{Key, When};
use crate::groups::{GroupLoads, GroupTypes, SchedulingClasses};
use crate::kind::{Kind, OneOf};
use crate::permissions::Permissions;

const POLICY: &Words<Policy> =
    &[("topology-aware", Policy::TopologyAware), ("one-shared-pool", Policy::OneSharedPool)];

/// In the order of the documentation.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "policy",
        when: When::Now,
        kind: Kind::Word(&OneOf(POLICY, |it| &mut it.policy)),
        text: "Shared containers run within one NUMA node, or as few as they need (topology-aware), or on all CPUs that are not exclusive \
               (one-shared-pool), as with kubelet's static CPU manager. Exclusive CPUs are chosen by caches and NUMA nodes under either.",
    },
    Key {
        name: "reservedCpus",
        when: When::Now,
        kind: Kind::CpusOrAmount(|it| &mut it.reserved_cpus, |it| &mut it.reserved_amount),
        text: "CPUs for system pods, best those of kubelet's reservedSystemCPUs; or an amount (750m, 2 CPUs), for which the lowest cores are taken, whole \
               ones first. Empty: system pods share with all others.",
    },
    Key {
        name: "availableCpus",
        when: When::Now,
        kind: Kind::Cpus(|it| &mut it.available_cpus),
        text: "CPUs that Bayplan uses at all, the reserved ones included; no container that it places runs on others. Empty: every CPU.",
    },
    Key {
        name: "reservedNamespaces",
        when: When::Now,
        kind: Kind::Names(|it| &mut it.reserved_namespaces),
        text: "Pods of these namespaces run on the reserved CPUs; * and ? stand for any text and any character.",
    },
    Key {
        name: "groups",
        when: When::Now,
        kind: Kind::Tree(&GroupTypes),
        text: "Types of groups: containers with a common CPU set that others do not use. A container belongs to the first type with members that \
               match it (namespaces, match, all), or to the one that its pod names (bayplan.dev/group). Groups have as many CPUs as their members \
               request, a number, a list, or a whole domain. docs/groups.md has examples.",
    },
    Key {
        name: "groupLoads",
        when: When::Now,
        kind: Kind::Tree(&GroupLoads),
        text: "Kinds of load that groups can name (loads): groups with the same one are rather not on the same core or L2 cache (level: core, l2), nor are two \
               CPUs of one group (overloadsInGroup: true).",
    },
    Key {
        name: "schedulingClasses",
        when: When::Now,
        kind: Kind::Tree(&SchedulingClasses),
        text: "When threads and I/O of containers have their turn: classes with policy (idle: its pods run where no other of their QoS class wants to; with frontEnd: nri also fifo, \
               rr, batch, with priority or nice), ioClass (rt, be, idle) and ioPriority, for groups (schedulingClass), pods (bayplan.dev/scheduling-class), namespaces and qosClasses.",
    },
    Key {
        name: "permissions",
        when: When::Now,
        kind: Kind::Tree(&Permissions),
        text: "What the pods of a namespace may ask for by annotation and label: rules with namespaces (names; * and ? stand for any text and any \
               character), allow and deny, of which the last that names both decides. Named are *, groups (interrupts, isolatedPartitions, preserve, \
               reservedCpus, fixedCpus, closedCpus, priorities, classes), and annotations, also one value (rdtclass=gold). Without a rule, the first \
               five groups are not allowed, because they can harm others, and everything else is; pods of reservedNamespaces may have reservedCpus. \
               What is not allowed is ignored, with a warning.",
    },
    Key {
        name: "closedCpus",
        when: When::Now,
        kind: Kind::Section,
        text: "CPUs that no other container can own because of one (apart with required, siblings: shared), or that are left idle for it (siblings: \
               idle). A container that requires more is refused; of others the preference is ignored, with a warning. Where permissions allow \
               closedCpus there is no bound.",
    },
    Key {
        name: "closedCpus.podPercent",
        when: When::Now,
        kind: Kind::Count(0, 100_000, |it| &mut it.ceilings.pod_percent),
        text: "At most for a pod, in percent of the CPUs that it owns, and one core more.",
    },
    Key {
        name: "closedCpus.namespacePercent",
        when: When::Now,
        kind: Kind::Count(0, 100, |it| &mut it.ceilings.namespace_percent),
        text: "At most for all pods of a namespace together, in percent of the CPUs that containers can own; one core at least.",
    },
];
