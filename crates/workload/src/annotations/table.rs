//! The table of keys: what each is called, what it accepts and means, which older systems have it, and what it fills. Lookup, parsing,
//! warnings and the reference page come from here.

use bayplan_allocator::Strictness::{self, Preferred, Required};

use super::affinity::{self, Sign};
use super::asked::Asked;
use super::field::Field;
use super::hints;
use super::names::{CRM, NRI, Name, OWN};
use super::tuning::{INTERRUPTS, LEND, PARTITION, QUOTA, REBALANCE, parse_cold_start, percent};
use super::values::{self, Misread, Said, class_name, word};

/// What a key accepts.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// One of these words.
    Words(&'static [&'static str]),
    /// Whatever this says.
    Text(&'static str),
}

impl Values {
    /// For people: `pair, shared or idle`.
    pub fn text(self) -> String {
        match self {
            Values::Text(text) => text.to_owned(),
            Values::Words([]) => String::new(),
            Values::Words([word]) => (*word).to_owned(),
            Values::Words([words @ .., last]) => format!("{} or {last}", words.join(", ")),
        }
    }
}

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Without prefix.
    pub name: &'static str,
    /// What it accepts.
    pub values: Values,
    /// What holds without it.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// Prefixes under which older systems have the same key.
    pub older: &'static [&'static str],
    /// What it fills.
    pub fills: &'static [Field],
    pub(super) set: fn(&mut Asked, &Said<'_>) -> Result<(), Misread>,
}

impl Key {
    /// Whether this value, which was not understood, was to require something of the place.
    pub(super) fn requires(&self, value: &str) -> bool {
        match self.name {
            "apart" => value.to_lowercase().contains("required"),
            name => REQUIRING.contains(&name),
        }
    }

    /// What it does to a container that shares all of its CPUs.
    pub fn on_shared(&self) -> &'static str {
        self.fills.first().map_or("the same", |field| field.reach().on_shared())
    }

    /// The usual way to write it.
    pub fn annotation(&self) -> String {
        format!("{OWN}/{}", self.name)
    }

    /// How older systems write it.
    pub fn older_names(&self) -> Vec<String> {
        let name = |prefix: &&str| match self.name {
            "affinity" | "anti-affinity" => format!("{prefix}/{}", self.name),
            key => format!("{key}.{prefix}"),
        };
        self.older.iter().map(name).collect()
    }
}

/// Keys that ask for something or no place, beside `apart` where it says `required`.
pub(super) const REQUIRING: [&str; 7] = [
    "require-isolated-cpus",
    "require-cpu-priority",
    "require-core-kind",
    "whole-cores-only",
    "within",
    "memory-bound",
    "strict.topologyhints",
];

/// Whether there is such a key under such a prefix.
pub(super) fn is_known(name: &Name<'_>) -> bool {
    let mut known = KEYS.iter().filter(|key| key.name == name.key);
    known.any(|key| name.prefix == OWN || key.older.contains(&name.prefix))
}

fn put<T>(field: &mut T, value: T) -> Result<(), Misread> {
    *field = value;
    Ok(())
}

/// What is no longer required is not preferred either; what was only preferred stays.
fn unrequire<T>(field: &mut Option<(T, Strictness)>) {
    field.take_if(|(_, strictness)| *strictness == Required);
}

const FLAG: Values = Values::Words(&["true", "false"]);
const PRIORITY: Values = Values::Words(&["high", "normal", "low", "none"]);
const CORE_KIND: Values = Values::Words(&["performance", "efficient", "none"]);
const BOTH: &[&str] = &[CRM, NRI];
const AFFINITY: Values = Values::Text("YAML: container names with containers or expressions");
const GROUP: Values = Values::Text("a name of `groups`, or none");
const PATHS: Values = Values::Text("YAML: type (prefix or glob) and paths");

/// Every key, in the order of the reference page. Where two fill the same field, the later one wins if neither is more specific.
pub static KEYS: &[Key] = &[
    Key {
        name: "prefer-shared-cpus",
        values: FLAG,
        default: "whole CPUs are exclusive, fractions are shared",
        meaning: "true: shared CPUs only; false: exclusive CPUs for the whole part of a fractional request of 2 and more, too",
        older: BOTH,
        fills: &[Field::PreferSharedCpus],
        set: |asked, said| put(&mut asked.prefer_shared_cpus, Some(said.flag()?)),
    },
    Key {
        name: "qos-per-container",
        values: FLAG,
        default: "as requests.qosPerContainer says",
        meaning: "true: a container of a Burstable pod with requests equal to its limits gets CPUs as a Guaranteed one",
        older: &[],
        fills: &[Field::OwnQos],
        set: |asked, said| put(&mut asked.has_own_qos, said.flag()?),
    },
    Key {
        name: "prefer-reserved-cpus",
        values: FLAG,
        default: "as reservedNamespaces says",
        meaning: "on the reserved CPUs, or not although the namespace says so; elsewhere only where `permissions` allow it",
        older: BOTH,
        fills: &[Field::IsReserved],
        set: |asked, said| put(&mut asked.prefer_reserved_cpus, Some(said.flag()?)),
    },
    Key {
        name: "prefer-isolated-cpus",
        values: FLAG,
        default: "as requests.preferIsolatedCpus says",
        meaning: "exclusive CPUs that the kernel keeps out of load balancing (isolcpus), where there are enough",
        older: BOTH,
        fills: &[Field::Isolated],
        set: |asked, said| {
            let is_preferred = said.flag()?;
            asked.prefer_isolated_cpus = Some(is_preferred);
            asked.wishes.cpus.isolated = is_preferred.then_some(Preferred);
            Ok(())
        },
    },
    Key {
        name: "require-isolated-cpus",
        values: FLAG,
        default: "false",
        meaning: "isolated CPUs or no place; the more specific of this and prefer-isolated-cpus counts",
        older: &[NRI],
        fills: &[Field::Isolated],
        set: |asked, said| {
            let is_required = said.flag()?;
            if is_required {
                asked.prefer_isolated_cpus = Some(true);
                asked.wishes.cpus.isolated = Some(Required);
            } else if asked.wishes.cpus.isolated == Some(Required) {
                asked.wishes.cpus.isolated = None;
            }
            Ok(())
        },
    },
    Key {
        name: "prefer-cpu-priority",
        values: PRIORITY,
        default: "as requests.defaultCpuPriority says",
        meaning: "exclusive CPUs of this priority (SST, base frequency, energy preference), where there are enough",
        older: &[NRI],
        fills: &[Field::Priority],
        set: |asked, said| {
            // nri-plugins writes `default` for "as configured".
            if !said.value.trim().eq_ignore_ascii_case("default") {
                let priority = word(said.value, values::PRIORITY)?;
                asked.wishes.cpus.priority = priority.map(|it| (it, Preferred));
            }
            Ok(())
        },
    },
    Key {
        name: "require-cpu-priority",
        values: PRIORITY,
        default: "none",
        meaning: "CPUs of this priority or no place; on a machine where all are equal, all are normal; efficient cores are low",
        older: &[],
        fills: &[Field::Priority],
        set: |asked, said| {
            match word(said.value, values::PRIORITY)? {
                Some(it) => asked.wishes.cpus.priority = Some((it, Required)),
                None => unrequire(&mut asked.wishes.cpus.priority),
            }
            Ok(())
        },
    },
    Key {
        name: "prefer-core-kind",
        values: CORE_KIND,
        default: "performance",
        meaning: "exclusive CPUs on cores of this kind, on machines that have several; none is as without it",
        older: &[],
        fills: &[Field::CoreKind],
        set: |asked, said| {
            let kind = word(said.value, values::CORE_KIND)?;
            asked.wishes.cpus.core_kind = kind.map(|it| (it, Preferred));
            Ok(())
        },
    },
    Key {
        name: "require-core-kind",
        values: CORE_KIND,
        default: "none",
        meaning: "cores of this kind or no place",
        older: &[],
        fills: &[Field::CoreKind],
        set: |asked, said| {
            match word(said.value, values::CORE_KIND)? {
                Some(it) => asked.wishes.cpus.core_kind = Some((it, Required)),
                None => unrequire(&mut asked.wishes.cpus.core_kind),
            }
            Ok(())
        },
    },
    Key {
        name: "siblings",
        values: Values::Words(&["pair", "shared", "idle"]),
        default: "pair",
        meaning: "the other threads of a core of which it owns only some: for another exclusive container with an odd number, shared, or left idle",
        older: &[],
        fills: &[Field::Siblings],
        set: |asked, said| {
            put(&mut asked.wishes.cpus.siblings, word(said.value, values::SIBLINGS)?)
        },
    },
    Key {
        name: "packing",
        values: Values::Words(&["packed", "spread", "one-per-core"]),
        default: "packed",
        meaning: "exclusive CPUs as whole cores; one thread of each core, and second threads where the cores of a NUMA node or package run out; or never second threads",
        older: &[],
        fills: &[Field::Packing],
        set: |asked, said| put(&mut asked.wishes.cpus.packing, word(said.value, values::PACKING)?),
    },
    Key {
        name: "whole-cores-only",
        values: FLAG,
        default: "false",
        meaning: "exclusive CPUs as whole cores, of which each has all threads, or no place; goes before packing",
        older: &[],
        fills: &[Field::OnlyWholeCores],
        set: |asked, said| put(&mut asked.wishes.cpus.only_whole_cores, said.flag()?),
    },
    Key {
        name: "apart",
        values: Values::Text("core, l3, numa or none, with or without `required`"),
        default: "none",
        meaning: "no other container owns CPUs in the same core, L3 or NUMA node; with `required`, or no place",
        older: &[],
        fills: &[Field::Apart],
        set: |asked, said| put(&mut asked.wishes.cpus.apart, values::parse_apart(said.value)?),
    },
    Key {
        name: "within",
        values: Values::Words(&["numa", "package", "fewest-numa", "fewest-package", "none"]),
        default: "none",
        meaning: "its CPUs within one NUMA node or package, or on as few of them as on an empty machine, or no place; socket is package",
        older: &[],
        fills: &[Field::Within],
        set: |asked, said| put(&mut asked.wishes.cpus.within, word(said.value, values::WITHIN)?),
    },
    Key {
        name: "even-across-numa",
        values: FLAG,
        default: "false",
        meaning: "where one NUMA node cannot hold its CPUs, as many, but for one core, on each of as few as can; inside a node it does nothing",
        older: &[],
        fills: &[Field::IsEven],
        set: |asked, said| put(&mut asked.wishes.cpus.is_even, said.flag()?),
    },
    Key {
        name: "numa-strategy",
        values: Values::Words(&["most-allocated", "least-allocated", "distribute-evenly"]),
        default: "as requests.numaStrategy says",
        meaning: "a new container's own CPUs on the NUMA node that is filled most, on the one with most room, or as even-across-numa; also written as Koordinator does (LeastAllocated)",
        older: &[],
        fills: &[Field::IsBalanced, Field::IsEven],
        set: |asked, said| {
            (asked.wishes.cpus.is_even, asked.wishes.place.is_balanced) =
                word(said.value, values::NUMA_STRATEGY)?;
            Ok(())
        },
    },
    Key {
        name: "hide-hyperthreads",
        values: FLAG,
        default: "false",
        meaning: "runs on one thread of each core that it has",
        older: &[NRI],
        fills: &[Field::HidesHyperthreads],
        set: |asked, said| put(&mut asked.wishes.cpus.hides_hyperthreads, said.flag()?),
    },
    Key {
        name: "memory-type",
        values: Values::Text("dram, pmem, hbm, cxl and gpu with commas, or mixed"),
        default: "every kind but hbm and gpu",
        meaning: "kinds of memory that it may have; mixed is every kind of the machine's own, gpu that of GPUs which the driver shows as NUMA nodes",
        older: BOTH,
        fills: &[Field::MemoryKinds],
        set: |asked, said| {
            asked.wishes.memory.kinds = values::parse_memory_kinds(said.value)?;
            Ok(())
        },
    },
    Key {
        name: "memory-bound",
        values: FLAG,
        default: "false",
        meaning: "its memory on the NUMA nodes of its CPUs, with the CPU-less ones that hang on them, or no place",
        older: &[],
        fills: &[Field::MemoryIsBound],
        set: |asked, said| put(&mut asked.wishes.memory.is_bound, said.flag()?),
    },
    Key {
        name: "cold-start",
        values: Values::Text("a duration up to 1h such as 60s, also as YAML `duration: 60s`"),
        default: "0s",
        meaning: "so long it has slow memory (pmem, cxl) only, then that of its CPUs too: what it reads once while it starts stays out of the fast memory",
        older: BOTH,
        fills: &[Field::ColdStart],
        set: |asked, said| put(&mut asked.tuning.cold_start, parse_cold_start(said.value)?),
    },
    Key {
        name: "unlimited-burstable",
        values: Values::Words(&["system", "package", "die", "numa", "l3cache", "none"]),
        default: "as requests.unlimitedBurstable says",
        meaning: "without a CPU limit: the domain over which it bursts; socket is package; where no shared CPUs are those of one such domain (an L3 inside a NUMA node), the next larger one, with a warning",
        older: &[NRI],
        fills: &[Field::BurstLevel],
        set: |asked, said| {
            put(&mut asked.wishes.place.burst_level, word(said.value, values::BURST)?)
        },
    },
    Key {
        name: "cpu.preserve",
        values: FLAG,
        default: "false",
        meaning: "bayplan leaves cpuset.cpus alone: it runs where the runtime puts it, also where others own CPUs; only where `permissions` allow it",
        older: &[NRI],
        fills: &[Field::PreserveCpus],
        set: |asked, said| put(&mut asked.wishes.preserve.cpus, said.flag()?),
    },
    Key {
        name: "memory.preserve",
        values: FLAG,
        default: "false",
        meaning: "bayplan leaves cpuset.mems alone",
        older: &[NRI],
        fills: &[Field::PreserveMemory],
        set: |asked, said| put(&mut asked.wishes.preserve.memory, said.flag()?),
    },
    Key {
        name: "immovable",
        values: FLAG,
        default: "false",
        meaning: "never moved to make room for others",
        older: &[],
        fills: &[Field::IsImmovable],
        set: |asked, said| put(&mut asked.wishes.is_immovable, said.flag()?),
    },
    Key {
        name: "dynamic-pool.dynamic-pools",
        values: GROUP,
        default: "as bayplan.dev/group",
        meaning: "the same, as CRI Resource Manager's dynamic-pools have it",
        older: &[CRM],
        fills: &[Field::Group],
        set: |asked, said| put(&mut asked.group, Some(class_name(said.value)?)),
    },
    Key {
        name: "pool.podpools",
        values: GROUP,
        default: "as bayplan.dev/group",
        meaning: "the same, as CRI Resource Manager's podpools have it",
        older: &[CRM],
        fills: &[Field::Group],
        set: |asked, said| put(&mut asked.group, Some(class_name(said.value)?)),
    },
    Key {
        name: "balloon.balloons",
        values: GROUP,
        default: "as bayplan.dev/group",
        meaning: "the same, as balloons have it",
        older: BOTH,
        fills: &[Field::Group],
        set: |asked, said| put(&mut asked.group, Some(class_name(said.value)?)),
    },
    Key {
        name: "group",
        values: GROUP,
        default: "the first type of `groups` with `members` that match it",
        meaning: "the type of groups to which it belongs",
        older: &[],
        fills: &[Field::Group],
        set: |asked, said| put(&mut asked.group, Some(class_name(said.value)?)),
    },
    Key {
        name: "topologyhints",
        values: Values::Text(
            "true, false, or a list of mounts, devices, pod-resources, all and none",
        ),
        default: "true",
        meaning: "whether it is placed near its devices, PCI addresses in PCIDEVICE_* among them, and the disks of its volumes",
        older: BOTH,
        fills: &[Field::Near],
        set: |asked, said| hints::parse_kinds(&mut asked.hints, said.value),
    },
    Key {
        name: "strict.topologyhints",
        values: FLAG,
        default: "false",
        meaning: "near them, or no place",
        older: &[NRI],
        fills: &[Field::Near],
        set: |asked, said| put(&mut asked.hints.is_strict, said.flag()?),
    },
    Key {
        name: "pick-resources-by-hints",
        values: FLAG,
        default: "false",
        meaning: "as many exclusive CPUs near each of them, where they hang on different NUMA nodes",
        older: &[NRI],
        fills: &[Field::IsNearEach],
        set: |asked, said| put(&mut asked.wishes.place.is_near_each, said.flag()?),
    },
    Key {
        name: "deny.topologyhints",
        values: PATHS,
        default: "no path",
        meaning: "paths and PCI addresses of devices and mounts that do not count",
        older: &[NRI],
        fills: &[Field::Near],
        set: |asked, said| put(&mut asked.hints.denied, Some(hints::parse_paths(said.value)?)),
    },
    Key {
        name: "allow.topologyhints",
        values: PATHS,
        default: "no path",
        meaning: "paths that count although deny.topologyhints names them",
        older: &[NRI],
        fills: &[Field::Near],
        set: |asked, said| put(&mut asked.hints.allowed, Some(hints::parse_paths(said.value)?)),
    },
    Key {
        name: "affinity",
        values: AFFINITY,
        default: "as requests.colocatePods and colocateNamespaces say",
        meaning: "near these containers; by weight, 1 to 1000",
        older: BOTH,
        fills: &[Field::Affinity],
        set: |asked, said| affinity::parse(&mut asked.affinity, said, Sign::Near),
    },
    Key {
        name: "anti-affinity",
        values: AFFINITY,
        default: "none",
        meaning: "far from these containers",
        older: BOTH,
        fills: &[Field::Affinity],
        set: |asked, said| affinity::parse(&mut asked.affinity, said, Sign::Far),
    },
    Key {
        name: "cpu-class",
        values: Values::Text(
            "the name of a class of cpuClasses, or performance, balance-performance, balance-power, power or default",
        ),
        default: "as cpuClasses.exclusive says",
        meaning: "frequency and sleep of its exclusive CPUs",
        older: BOTH,
        fills: &[Field::CpuClass],
        set: |asked, said| put(&mut asked.tuning.cpu_class, Some(class_name(said.value)?)),
    },
    Key {
        name: "cpu-partition",
        values: Values::Words(&["root", "isolated", "none"]),
        default: "as isolation.partition says",
        meaning: "where all its CPUs are exclusive: nothing else runs there; isolated: nor are its own threads moved among them, so it has to place them itself; only where `permissions` allow it",
        older: &[],
        fills: &[Field::Partition],
        set: |asked, said| put(&mut asked.tuning.partition, Some(word(said.value, PARTITION)?)),
    },
    Key {
        name: "irq-load-balancing",
        values: Values::Words(&["enable", "disable", "housekeeping"]),
        default: "as isolation.interrupts says",
        meaning: "interrupts and work of the kernel's on its exclusive CPUs: as they come, not at all, or on its first core only; only where `permissions` allow it",
        older: &[],
        fills: &[Field::Interrupts],
        set: |asked, said| put(&mut asked.tuning.interrupts, Some(word(said.value, INTERRUPTS)?)),
    },
    Key {
        name: "cpu-quota",
        values: Values::Words(&["enable", "disable"]),
        default: "as cpu.liftQuota says",
        meaning: "disable: no limit of CPU time where all its CPUs are exclusive",
        older: &[],
        fills: &[Field::Quota],
        set: |asked, said| put(&mut asked.tuning.is_quota_lifted, Some(word(said.value, QUOTA)?)),
    },
    Key {
        name: "cpu-burst",
        values: Values::Text("0 to 100"),
        default: "as cpu.burstPercent says",
        meaning: "unused CPU time that it may catch up on, in percent of its limit",
        older: &[],
        fills: &[Field::CpuBurst],
        set: |asked, said| put(&mut asked.tuning.burst_percent, Some(percent(said.value)?)),
    },
    Key {
        name: "memory-reclaim-class",
        values: Values::Text("the name of a class, or none"),
        default: "the class that is named like its QoS class, if there is one, and none in reservedNamespaces",
        meaning: "how much of its memory is reclaimed, and how often, as memory.reclaim says",
        older: &[],
        fills: &[Field::ReclaimClass],
        set: |asked, said| put(&mut asked.tuning.reclaim_class, Some(class_name(said.value)?)),
    },
    Key {
        name: "blockioclass",
        values: Values::Text("the name of a class"),
        default: "the class that is named like its QoS class, if there is one",
        meaning: "weight, limits and latency on disks, as blockIo.classes says",
        older: BOTH,
        fills: &[Field::BlockIoClass],
        set: |asked, said| put(&mut asked.tuning.block_io_class, Some(class_name(said.value)?)),
    },
    Key {
        name: "scheduling-class",
        values: Values::Text("the name of a class"),
        default: "that of its group, or the class for its namespace or QoS class, if there is one",
        meaning: "when its threads and its I/O have their turn, as schedulingClasses says",
        older: &[NRI],
        fills: &[Field::SchedulingClass],
        set: |asked, said| put(&mut asked.tuning.scheduling_class, Some(class_name(said.value)?)),
    },
    Key {
        name: "rdtclass",
        values: Values::Text("the name of a class"),
        default: "the class that is named like its QoS class, if there is one",
        meaning: "parts of the caches and a bound on memory bandwidth, as resctrl.partitions says",
        older: BOTH,
        fills: &[Field::ResctrlClass],
        set: |asked, said| put(&mut asked.tuning.resctrl_class, Some(class_name(said.value)?)),
    },
    Key {
        name: "rebalance",
        values: Values::Words(&["off", "observe", "act"]),
        default: "as rebalance.namespaces and rebalance.mode say",
        meaning: "how far the rebalancer goes for and with this container when one suffers: not at all, a proposal, or the change itself; no further than rebalance.namespaces allows its namespace",
        older: &[],
        fills: &[Field::Rebalance],
        set: |asked, said| put(&mut asked.tuning.rebalance, Some(word(said.value, REBALANCE)?)),
    },
    Key {
        name: "lend",
        values: Values::Words(&["besteffort", "none"]),
        default: "none; besteffort for Koordinator's class LSR",
        meaning: "besteffort: while it does not use its own CPUs, BestEffort containers run on them, where bestEffort.borrow is true; it has them back at the first sign of delay",
        older: &[],
        fills: &[Field::Lends],
        set: |asked, said| put(&mut asked.tuning.lends, Some(word(said.value, LEND)?)),
    },
    Key {
        name: "wide-vectors",
        values: FLAG,
        default: "as it is measured, where wideVectors.measured is true",
        meaning: "true: it uses wide vectors (AVX-512), which lower the frequency around it, so wideVectors spreads it over packages or squeezes it into few",
        older: &[],
        fills: &[Field::WideVectors],
        set: |asked, said| put(&mut asked.tuning.uses_wide_vectors, Some(said.flag()?)),
    },
];
