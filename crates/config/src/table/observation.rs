//! What is written and observed, and what follows from that: best-effort limits, wide vectors, rebalancing; the host and the log.

use bayplan_workload::VectorStrategy;
use bayplan_workload::annotations::{FLAG, Words};

use super::key::{Key, When};
use crate::config::{CounterSet, EnforcementMode};
use crate::kind::{Kind, OneOf};
use crate::rebalance::trees::{ForbiddenKnobs, MODES, NamespaceModes};

const ENFORCEMENT: &Words<EnforcementMode> = &[
    ("on", EnforcementMode::On),
    ("dry-run", EnforcementMode::DryRun),
    ("off", EnforcementMode::Off),
];

const VECTOR_STRATEGIES: &Words<VectorStrategy> = &[
    ("off", VectorStrategy::Off),
    ("spread", VectorStrategy::Spread),
    ("squeeze", VectorStrategy::Squeeze),
    ("auto", VectorStrategy::Auto),
];

const PROBES: &Words<bool> = &[("on", true), ("off", false)];

const COUNTERS: &Words<CounterSet> =
    &[("auto", CounterSet::Auto), ("software", CounterSet::Software), ("off", CounterSet::Off)];

/// In the order of the documentation.
pub(super) const KEYS: &[Key] = &[
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
        text: "What is never proposed, and taken back if it is turned: some of idle, siblings, suppress, gather, burst, cache, bandwidth, move, clock, memory, move-owner, evict.",
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
