//! What kernel files say of memory, CPU time, isolation, disks and caches.

use bayplan_workload::annotations::{FLAG, INTERRUPTS, PARTITION, Words};

use super::key::{Key, When};
use crate::block_io::BlockIoClasses;
use crate::kind::{Kind, OneOf};
use crate::reclaim::ReclaimClasses;
use crate::resctrl::{ResctrlOptionsTree, ResctrlPartitions};

const MONITOR: &Words<bool> = &[("auto", true), ("off", false)];

/// In the order of the documentation.
pub(super) const KEYS: &[Key] = &[
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
];
