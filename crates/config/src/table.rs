//! Every key of the configuration, in the order of the documentation. A new key is one row here, and a field of [`crate::Config`].

use bayplan_allocator::policy::Policy;
use bayplan_enforcement::power::TurboDomain;
use bayplan_node::settings::OnNoCapacity;
use bayplan_types::Bytes;
use bayplan_workload::VectorStrategy;
use bayplan_workload::annotations::{
    BURST, FLAG, INTERRUPTS, NUMA_STRATEGY, PARTITION, PRIORITY, SIBLINGS, Words,
};

use super::block_io::BlockIoClasses;
use super::cpu_classes::CpuUse;
use super::cpu_classes::speed_select::SpeedSelectTree;
use super::cpu_classes::trees::{ClassOf, Classes, Schedule, Zone};
use super::groups::{GroupLoads, GroupTypes, SchedulingClasses};
use super::kind::{Kind, OneOf};
use super::permissions::Permissions;
use super::rebalance::trees::{ForbiddenKnobs, MODES, NamespaceModes};
use super::reclaim::ReclaimClasses;
use super::requests::trees::Preserved;
use super::requests::{PINS, POLICIES, SCOPES};
use super::resctrl::{ResctrlOptionsTree, ResctrlPartitions};
use crate::config::{CounterSet, EnforcementMode, FrontEnd, OnFailure};

/// When a changed key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// As soon as the file is read again.
    Now,
    /// From the next start of the daemon on.
    Restart,
}

/// One key, or a section of keys.
pub(super) struct Key {
    /// `resyncInterval`, or `compaction.enabled` in a section.
    pub(super) name: &'static str,
    /// When a change of it holds.
    pub(super) when: When,
    pub(super) kind: Kind,
    /// What it is for, for the author of a file.
    pub(super) text: &'static str,
}

impl Key {
    /// The section that it stands in, and its name there; the section of a key outside of all is empty.
    pub(super) fn split(&self) -> (&'static str, &'static str) {
        self.name.rsplit_once('.').unwrap_or(("", self.name))
    }

    /// Keys of `requests` come from elsewhere, and are accepted as they are written there: kubelet's `full-pcpus-only`, the
    /// `preferSharedCPUs` of nri-plugins.
    pub(super) fn is_called(&self, name: &str) -> bool {
        match self.split() {
            ("requests", known) => plain(known) == plain(name),
            (_, known) => known == name,
        }
    }

    /// Its name in its section, and how it is written elsewhere.
    pub(super) fn spellings(&self) -> Vec<String> {
        let (section, name) = self.split();
        let mut all = vec![name.to_owned()];
        if section == "requests" {
            all.push(name.replace("Cpu", "CPU").replace("Pcpu", "PCPU"));
            all.push(kebab(name));
            all.dedup();
        }
        all
    }
}

/// So that `full-pcpus-only`, `fullPCPUsOnly` and `fullPcpusOnly` are one.
fn plain(name: &str) -> String {
    name.chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect()
}

/// As kubelet writes its options.
fn kebab(name: &str) -> String {
    let dashed = |c: char| match c.is_ascii_uppercase() {
        true => format!("-{}", c.to_ascii_lowercase()),
        false => c.to_string(),
    };
    let dashed: String = name.chars().map(dashed).collect();
    dashed.replace("uncore-cache", "uncorecache")
}

/// The keys of a section, or those outside of all.
pub(super) fn keys_of(section: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.split().0 == section)
}

/// The key of this whole name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

const ON_FAILURE: &Words<OnFailure> = &[("open", OnFailure::Open), ("closed", OnFailure::Closed)];

const FRONT_END: &Words<FrontEnd> = &[("cri", FrontEnd::Cri), ("nri", FrontEnd::Nri)];

const POLICY: &Words<Policy> =
    &[("topology-aware", Policy::TopologyAware), ("one-shared-pool", Policy::OneSharedPool)];
const ON_NO_CAPACITY: &Words<OnNoCapacity> =
    &[("refuse", OnNoCapacity::Refuse), ("share", OnNoCapacity::Share)];

const ENFORCEMENT: &Words<EnforcementMode> = &[
    ("on", EnforcementMode::On),
    ("dry-run", EnforcementMode::DryRun),
    ("off", EnforcementMode::Off),
];

const TURBO_DOMAINS: &Words<TurboDomain> =
    &[("package", TurboDomain::Package), ("machine", TurboDomain::Machine)];

const VECTOR_STRATEGIES: &Words<VectorStrategy> = &[
    ("off", VectorStrategy::Off),
    ("spread", VectorStrategy::Spread),
    ("squeeze", VectorStrategy::Squeeze),
    ("auto", VectorStrategy::Auto),
];

const MAP: &Words<bool> = &[("on", true), ("off", false)];

const PROBES: &Words<bool> = &[("on", true), ("off", false)];

const MONITOR: &Words<bool> = &[("auto", true), ("off", false)];

const COUNTERS: &Words<CounterSet> =
    &[("auto", CounterSet::Auto), ("software", CounterSet::Software), ("off", CounterSet::Off)];

/// All of them.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "frontEnd",
        when: When::Restart,
        kind: Kind::Word(&OneOf(FRONT_END, |it| &mut it.front_end)),
        text: "How Bayplan hears of pods and containers: kubelet's calls pass through it (cri), or the runtime asks it as a plugin (nri), and kubelet stays as it is.",
    },
    Key {
        name: "nri",
        when: When::Restart,
        kind: Kind::Section,
        text: "For frontEnd: nri. The runtime is still asked what runs, and told of changes, at runtimeSocket.",
    },
    Key {
        name: "nri.socket",
        when: When::Restart,
        kind: Kind::Path(|it| &mut it.nri_socket),
        text: "The runtime listens here for plugins.",
    },
    Key {
        name: "nri.index",
        when: When::Restart,
        kind: Kind::Count(0, 99, |it| &mut it.nri_index),
        text: "The place among the runtime's plugins, which are asked in ascending order; best after those that add devices.",
    },
    Key {
        name: "kubelet",
        when: When::Restart,
        kind: Kind::Section,
        text: "What kubelet knows of pods beside what it tells the runtime. A creation waits 50 ms at most for it, and nothing needs it.",
    },
    Key {
        name: "kubelet.podsSocket",
        when: When::Restart,
        kind: Kind::PathOr("off", |it| &mut it.kubelet_pods_socket),
        text: "Kubelet's PodsAPI (on by default since Kubernetes 1.37): exact requests, extended resources, and annotations that change while a pod runs.",
    },
    Key {
        name: "kubelet.podResourcesSocket",
        when: When::Restart,
        kind: Kind::PathOr("off", |it| &mut it.pod_resources_socket),
        text: "Kubelet's podresources API: the devices of containers, and the NUMA nodes that they are on.",
    },
    Key {
        name: "socket",
        when: When::Restart,
        kind: Kind::Path(|it| &mut it.socket),
        text: "Kubelet connects here (containerRuntimeEndpoint: unix:///run/bayplan/bayplan.sock).",
    },
    Key {
        name: "runtimeSocket",
        when: When::Restart,
        kind: Kind::Path(|it| &mut it.runtime_socket),
        text: "The runtime listens here; for CRI-O /run/crio/crio.sock.",
    },
    Key {
        name: "imageSocket",
        when: When::Restart,
        kind: Kind::PathOr("runtimeSocket", |it| &mut it.image_socket),
        text: "Where image calls go, if they do not go to the runtime (kubelet's imageServiceEndpoint).",
    },
    Key {
        name: "controlSocket",
        when: When::Restart,
        kind: Kind::Path(|it| &mut it.control_socket),
        text: "bayplan status and the other commands that ask the daemon connect here.",
    },
    Key {
        name: "controlGroup",
        when: When::Restart,
        kind: Kind::Group(|it| &mut it.control_group),
        text: "The group that may connect there beside root, by name or number; one of a directory service by number. It may change where containers run.",
    },
    Key {
        name: "stateDir",
        when: When::Restart,
        kind: Kind::Path(|it| &mut it.state_dir),
        text: "Holds the journal and the history. One daemon at a time.",
    },
    Key {
        name: "historySize",
        when: When::Restart,
        kind: Kind::Size(Bytes(1 << 20), Bytes::gib(64), |it| &mut it.history_max),
        text: "What the history may have on disk, for `bayplan journal` and `bayplan replay`; the oldest goes first.",
    },
    Key {
        name: "metricsAddress",
        when: When::Restart,
        kind: Kind::Address(|it| &mut it.metrics_address),
        text: "Prometheus scrapes http://ADDRESS/metrics; off turns it off. On a loopback address /api/v1/status is served, too.",
    },
    Key {
        name: "map",
        when: When::Restart,
        kind: Kind::Word(&OneOf(MAP, |it| &mut it.has_map)),
        text: "The live map of the node, a page at http://ADDRESS/map while metricsAddress is a loopback address, with what happened before: on or off.",
    },
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
        kind: Kind::Count(100, 1000, |it| &mut it.requests.amplification.percent),
        text: "CPU time that a scheduler counts a CPU as, in percent, where it amplifies CPUs (Koordinator's resource-amplification-ratio): requests of \
               containers without CPUs of their own are divided by it.",
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
    Key {
        name: "memory",
        when: When::Now,
        kind: Kind::Section,
        text: "Memory of running containers.",
    },
    Key {
        name: "memory.narrow",
        when: When::Now,
        kind: Kind::Word(&OneOf(FLAG, |it| &mut it.narrows_memory)),
        text: "Takes memory nodes away from containers that were widened, one after each departure, when fewer will do; the kernel moves their \
               memory.",
    },
    Key {
        name: "memory.minPercent",
        when: When::Now,
        kind: Kind::Count(0, 100, |it| &mut it.memory_qos.min_percent),
        text: "Of what a container requests, this much is never taken away from it (memory.min); 0: nothing. Kubelet's own memoryQoS must be off.",
    },
    Key {
        name: "memory.lowPercent",
        when: When::Now,
        kind: Kind::Count(0, 100, |it| &mut it.memory_qos.low_percent),
        text: "Of what a container requests, this much is taken away only where nothing else is left (memory.low); 0: nothing.",
    },
    Key {
        name: "memory.highPercent",
        when: When::Now,
        kind: Kind::Count(0, 100, |it| &mut it.memory_qos.high_percent),
        text: "From so far on the way between request and limit a container has to reclaim memory before it gets more (memory.high); 0: never. Without \
               a limit the way leads to all memory of the node.",
    },
    Key {
        name: "memory.reclaim",
        when: When::Now,
        kind: Kind::Tree(&ReclaimClasses),
        text: "Classes of which idle memory is reclaimed a little at a time (memory.reclaim; Linux 5.19): bytes (64Mi) every so often (every: 60s), unless \
               the container has stalled for lack of memory for more than maxStalledPercent (1) of the time since; swappiness (0 to 200; Linux 6.9) instead of the \
               machine's. What is protected (memory.min, memory.low) is left out. A class is chosen with bayplan.dev/memory-reclaim-class; one that is named \
               Guaranteed, Burstable or BestEffort is for all others of that QoS class but those of reservedNamespaces.",
    },
    Key {
        name: "memory.demotion",
        when: When::Now,
        kind: Kind::Word(&OneOf(FLAG, |it| &mut it.demotes)),
        text: "What is reclaimed goes to slower memory, where there is any (demotion_enabled), as long as a container is in a class of \
               memory.reclaim. It counts for the whole machine: before Linux 6.16, pages of containers that are bound to fast memory move to slow \
               memory, too, when their node runs short.",
    },
    Key {
        name: "cpu",
        when: When::Now,
        kind: Kind::Section,
        text: "Limits of CPU time. Annotations: bayplan.dev/cpu-quota and cpu-burst.",
    },
    Key {
        name: "cpu.liftQuota",
        when: When::Now,
        kind: Kind::Word(&OneOf(FLAG, |it| &mut it.lifts_quota)),
        text: "Containers with exclusive CPUs only have no limit of CPU time: it could only stop them where nothing else runs.",
    },
    Key {
        name: "cpu.burstPercent",
        when: When::Now,
        kind: Kind::Count(0, 100, |it| &mut it.burst_percent),
        text: "CPU time that a container has not used may be caught up on, this much of its limit (cpu.max.burst).",
    },
    Key {
        name: "isolation",
        when: When::Now,
        kind: Kind::Section,
        text: "What else is kept away from the CPUs of containers with exclusive CPUs only. Annotations: bayplan.dev/cpu-partition and \
               irq-load-balancing.",
    },
    Key {
        name: "isolation.partition",
        when: When::Now,
        kind: Kind::Word(&OneOf(PARTITION, |it| &mut it.partition)),
        text: "none, root (a scheduling domain of its own: no other process of the node runs there), or isolated (nor does the kernel move the container's own \
               threads among its CPUs). Needs cgroup v2, Linux 6.7, and CAP_SYS_ADMIN, which bayplan.service leaves out: systemctl edit it to add that.",
    },
    Key {
        name: "isolation.interrupts",
        when: When::Now,
        kind: Kind::Word(&OneOf(INTERRUPTS, |it| &mut it.interrupts)),
        text: "Interrupts and work of the kernel's: enable (as they come), disable, or housekeeping (on the container's first core only).",
    },
    Key {
        name: "blockIo",
        when: When::Now,
        kind: Kind::Section,
        text: "Weights, limits and latencies on disks.",
    },
    Key {
        name: "blockIo.classes",
        when: When::Now,
        kind: Kind::Tree(&BlockIoClasses),
        text: "Classes in the form of goresctrl: a list of rules with Devices (paths and patterns below /dev), Weight (1 to 1000, 100 is usual), ThrottleReadBps, \
               ThrottleWriteBps, ThrottleReadIOPS, ThrottleWriteIOPS (50M, 10k) and LatencyMicroseconds. The last rule that names a disk counts. A class is \
               chosen with bayplan.dev/blockioclass; one that is named Guaranteed, Burstable or BestEffort is for all others of that QoS class.",
    },
    Key {
        name: "resctrl",
        when: When::Now,
        kind: Kind::Section,
        text: "Caches and memory bandwidth (Intel RDT, AMD QoS), where resctrl is mounted. docs/resctrl.md has examples.",
    },
    Key {
        name: "resctrl.monitor",
        when: When::Now,
        kind: Kind::Word(&OneOf(MONITOR, |it| &mut it.monitors_caches)),
        text: "Whether containers get a monitor group each, by which the processor counts how much of the last-level cache they occupy and what goes \
               between it and memory: off, or auto (as far as the processor has RMIDs, exclusive containers first, then by QoS class; \
               docs/resctrl.md says what it costs).",
    },
    Key {
        name: "resctrl.options",
        when: When::Now,
        kind: Kind::Tree(&ResctrlOptionsTree),
        text: "What the machine may lack although classes ask for it: l2, l3 or mb, each with {optional: true}.",
    },
    Key {
        name: "resctrl.partitions",
        when: When::Now,
        kind: Kind::Tree(&ResctrlPartitions),
        text: "Classes of containers with parts of the caches and a bound on memory bandwidth, in the form of goresctrl. A class is chosen with \
               bayplan.dev/rdtclass; one that is named Guaranteed, Burstable or BestEffort is for all others of that QoS class.",
    },
    Key {
        name: "cpuClasses",
        when: When::Now,
        kind: Kind::Section,
        text: "Frequency and sleep of CPUs. Annotation: bayplan.dev/cpu-class. Beside the classes here there are performance, balance-performance, \
               balance-power and power: the 200 MHz below 100, 75, 50 and 25 percent of what the CPU can do, with that energy preference; and default, which sets nothing.",
    },
    Key {
        name: "cpuClasses.classes",
        when: When::Now,
        kind: Kind::Tree(&Classes),
        text: "By name, each with some of governor, minFreq and maxFreq (2.4GHz, kHz, 75%, min, base, turbo), energyPerformancePreference, turbo, maxLatency \
               (to wake up: 10us), disabledCstates ([C6]), turboPriority (0, ..., see turboDomain), uncoreMinFreq, uncoreMaxFreq, clos (class of service of Speed Select, 0 to 3). What a class does not name stays as it was.",
    },
    Key {
        name: "cpuClasses.turboDomain",
        when: When::Now,
        kind: Kind::Word(&OneOf(TURBO_DOMAINS, |it| &mut it.cpu_classes.turbo_domain)),
        text: "Where classes compete for turbo: in each package, or in the machine. Only those with the highest turboPriority among classes of CPUs on which containers \
               may run have it there; CPUs of all others with a class stay at or below the base frequency.",
    },
    Key {
        name: "cpuClasses.speedSelect",
        when: When::Now,
        kind: Kind::Tree(&SpeedSelectTree),
        text: "Intel Speed Select: corePower (off, proportional, ordered) says how power that is short is divided between classes of service, and clos what each \
               of them, 0 to 3, has: minFreq, maxFreq (2.4GHz), weight (0 to 15, the lower the more). What is not named stays as it was.",
    },
    Key {
        name: "cpuClasses.exclusive",
        when: When::Now,
        kind: Kind::Tree(&ClassOf(CpuUse::Exclusive)),
        text: "The class of CPUs that containers own, unless an annotation names another; none leaves them as they are.",
    },
    Key {
        name: "cpuClasses.shared",
        when: When::Now,
        kind: Kind::Tree(&ClassOf(CpuUse::Shared)),
        text: "The class of CPUs that containers share.",
    },
    Key {
        name: "cpuClasses.reserved",
        when: When::Now,
        kind: Kind::Tree(&ClassOf(CpuUse::Reserved)),
        text: "The class of the reserved CPUs.",
    },
    Key {
        name: "cpuClasses.idle",
        when: When::Now,
        kind: Kind::Tree(&ClassOf(CpuUse::Idle)),
        text: "The class of shared CPUs that no container may run on now; none: that of shared ones.",
    },
    Key {
        name: "cpuClasses.schedule",
        when: When::Now,
        kind: Kind::Tree(&Schedule),
        text: "From a time of the day on other classes: {at: \"22:00\", exclusive: power, shared: none}. What a line does not name is as the line before says.",
    },
    Key {
        name: "cpuClasses.timeZone",
        when: When::Now,
        kind: Kind::Tree(&Zone),
        text: "Time zone of the schedule: a name such as Europe/Berlin, or local.",
    },
    Key {
        name: "enforcement",
        when: When::Now,
        kind: Kind::Word(&OneOf(ENFORCEMENT, |it| &mut it.enforcement)),
        text: "Whether kernel files are written, beside the CPU sets that go through the runtime: on, dry-run (they go into the log), or off, which gives back \
               what was changed. `bayplan plan` shows what is to be written.",
    },
    Key {
        name: "sweepInterval",
        when: When::Now,
        kind: Kind::Duration(|it| &mut it.sweep_interval),
        text: "How often kernel files are checked for changes by other programs.",
    },
    Key {
        name: "resourcesDirectories",
        when: When::Restart,
        kind: Kind::Directories(|it| &mut it.resources_directories),
        text: "Directories in every container in which the file resources.sh says which CPUs and memory nodes it has, as shell variables; it is kept up to \
               date, and containers cannot write to it. Usually [/.bayplan]; /.cri-resmgr and /.nri-resource-policy for programs that know it from there.",
    },
    Key {
        name: "observeInterval",
        when: When::Now,
        kind: Kind::Duration(|it| &mut it.observe_interval),
        text: "How often the counters of containers and of the node are read, for the metrics.",
    },
    Key {
        name: "probes",
        when: When::Now,
        kind: Kind::Word(&OneOf(PROBES, |it| &mut it.has_probes)),
        text: "Whether programs in the kernel count switches and moves of containers' tasks, and what else runs on exclusive CPUs: on (where the \
               kernel and the rights allow it; `bayplan check` says so), or off. `bayplan audit` shows it.",
    },
    Key {
        name: "counters",
        when: When::Now,
        kind: Kind::Word(&OneOf(COUNTERS, |it| &mut it.counters)),
        text: "What the probes count of the processor for each container: auto (cycles, instructions and cache misses, where Linux shows them, which in many virtual \
               machines it does not), software (page faults, context switches and time instead, which every machine counts), or off.",
    },
    Key {
        name: "bestEffort",
        when: When::Now,
        kind: Kind::Section,
        text: "What BestEffort containers get of CPUs that others need or own, whether a container suffers from them or not. Needs `enforcement: on` and cgroups of version 2.",
    },
    Key {
        name: "bestEffort.nodePercent",
        when: When::Now,
        kind: Kind::Count(0, 100, |it| &mut it.best_effort.node_percent),
        text: "Share of the node's CPU time up to which BestEffort containers use what all else leaves, as a limit of all of them together that follows every second; 65 is usual. 0: \
               there is no such limit.",
    },
    Key {
        name: "bestEffort.floorPercent",
        when: When::Now,
        kind: Kind::Count(1, 100, |it| &mut it.best_effort.floor_percent),
        text: "What they have together at least, in percent of the node.",
    },
    Key {
        name: "bestEffort.growthPercent",
        when: When::Now,
        kind: Kind::Count(1, 100, |it| &mut it.best_effort.growth_percent),
        text: "By how much more their limit grows in a second, in percent of the node. It shrinks at once.",
    },
    Key {
        name: "bestEffort.idle",
        when: When::Now,
        kind: Kind::Word(&OneOf(FLAG, |it| &mut it.best_effort.is_idle)),
        text: "true: every BestEffort pod is woken as if its CPU had nothing to do (`cpu.idle`). While CPUs are lent, that is so in any case.",
    },
    Key {
        name: "bestEffort.borrow",
        when: When::Now,
        kind: Kind::Word(&OneOf(FLAG, |it| &mut it.best_effort.borrows)),
        text: "true: BestEffort containers run on whole cores that exclusive containers own, do not use, and lend by the annotation bayplan.dev/lend or as Koordinator's class LSR.",
    },
    Key {
        name: "wideVectors",
        when: When::Now,
        kind: Kind::Section,
        text: "Where containers go that use wide vectors (AVX-512), which lower the frequency of the CPUs of their package. It is a preference of new \
               containers that share CPUs; those that run are moved as rebalance.mode says (knob clock). docs/placement.md says what counts as use. Annotation: bayplan.dev/wide-vectors.",
    },
    Key {
        name: "wideVectors.guaranteed",
        when: When::Now,
        kind: Kind::Word(&OneOf(VECTOR_STRATEGIES, |it| &mut it.wide_vectors.guaranteed)),
        text: "Those of Guaranteed pods: off (as all others), spread (to the package with fewest of them), squeeze (to the one with most), or auto (spread while there are no more than \
               perDomain for each package, and squeeze beyond).",
    },
    Key {
        name: "wideVectors.burstable",
        when: When::Now,
        kind: Kind::Word(&OneOf(VECTOR_STRATEGIES, |it| &mut it.wide_vectors.burstable)),
        text: "Those of Burstable pods: off, spread, squeeze or auto.",
    },
    Key {
        name: "wideVectors.bestEffort",
        when: When::Now,
        kind: Kind::Word(&OneOf(VECTOR_STRATEGIES, |it| &mut it.wide_vectors.best_effort)),
        text: "Those of BestEffort pods: off, spread, squeeze or auto.",
    },
    Key {
        name: "wideVectors.perDomain",
        when: When::Now,
        kind: Kind::Count(1, 1024, |it| &mut it.wide_vectors.per_domain),
        text: "For auto: up to so many containers for each package are spread.",
    },
    Key {
        name: "wideVectors.measured",
        when: When::Now,
        kind: Kind::Word(&OneOf(FLAG, |it| &mut it.wide_vectors.is_measured)),
        text: "Whether use that is measured counts where a pod says nothing. The kernel's hint is coarse: functions of the C library may look like use.",
    },
    Key {
        name: "rebalance",
        when: When::Now,
        kind: Kind::Section,
        text: "Finds containers that suffer from others, by what the probes and the kernel's files count, and says what would help them, or does it. \
               `bayplan rebalance status` shows it, `bayplan rebalance pause` takes back all that was turned.",
    },
    Key {
        name: "rebalance.mode",
        when: When::Now,
        kind: Kind::Word(&OneOf(MODES, |it| &mut it.rebalance.mode)),
        text: "off, observe (what would be done goes into the log and into `bayplan journal`), or act: it is done, and taken back if it does not \
               help. Something is turned only where both the container that suffers and the one on which it is turned are to be acted on. Pods say \
               otherwise by the annotation bayplan.dev/rebalance.",
    },
    Key {
        name: "rebalance.namespaces",
        when: When::Now,
        kind: Kind::Tree(&NamespaceModes),
        text: "off, observe or act for all pods of a namespace, whatever rebalance.mode says, unless that is off: {shop: act, batch: observe}. Annotations of these pods \
               may ask for less, not for more.",
    },
    Key {
        name: "rebalance.interval",
        when: When::Now,
        kind: Kind::Duration(|it| &mut it.rebalance.interval),
        text: "How often it looks; counters are read as often, too. A container that suffers is reported after three looks, and not within six after \
               it came or moved.",
    },
    Key {
        name: "rebalance.forbid",
        when: When::Now,
        kind: Kind::Tree(&ForbiddenKnobs),
        text: "What is never proposed, and taken back if it is turned: some of idle, siblings, suppress, gather, confine, burst, cache, bandwidth, move, clock, memory, move-owner, evict.",
    },
    Key {
        name: "rebalance.changesPerMinute",
        when: When::Now,
        kind: Kind::Count(1, 60, |it| &mut it.rebalance.changes_per_minute),
        text: "How often something is turned or turned back in any minute, at most.",
    },
    Key {
        name: "hostRoot",
        when: When::Restart,
        kind: Kind::Path(|it| &mut it.host_root),
        text: "Directory under which /sys and /proc are read; a daemon in a container mounts the node's root elsewhere.",
    },
    Key {
        name: "log",
        when: When::Now,
        kind: Kind::Filter(|it| &mut it.log),
        text: "A level, or levels by crate: bayplan_cri=debug,info. The variable BAYPLAN_LOG overrides it.",
    },
];
