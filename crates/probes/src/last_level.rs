//! How accesses to the last-level cache, and misses of it, are counted for the task that runs on a CPU. In: the processor, and the events that the kernel lists for its
//! cores. Out: configurations of counters. Pure but for the reading.
//!
//! The kernel's own two events are those of the L3 on Intel only (`arch/x86/events/{intel,amd}/core.c`, `drivers/perf/arm_pmuv3.c`). AMD counts its L3 in a unit of its own
//! (`amd_l3`, driver `amd_uncore`), for all CPUs below it together, of which no share is a container's; but its cores count where their data came from.

use std::fs;
use std::path::Path;

use perf_event::Builder;
use perf_event::events::{Hardware, Raw};

use crate::Event;

/// Two configurations of a core's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastLevel {
    /// The kernel's own: L3 on Intel's processors, elsewhere a cache nearer to the core.
    Kernel,
    /// Of `PERF_TYPE_RAW`, or of the type of the core's kind.
    Raw {
        /// Accesses.
        references: u64,
        /// Those that found nothing there.
        misses: u64,
    },
}

/// What is counted on processors of one vendor.
struct Row {
    /// `vendor_id` in `/proc/cpuinfo`.
    vendor: &'static str,
    /// `cpu family` there.
    family: u32,
    counted: LastLevel,
}

/// Fills of the data cache (event 0x44, `ls_any_fills_from_sys`) by what filled it, in bits of the second byte: 0x02 the L3 or another core below it; 0x04 and 0x10 caches of
/// other L3s; 0x08 and 0x40 memory, here or on another node; 0x80 extension memory (`tools/perf/pmu-events/arch/x86/amdzen{3,4,5}`). Misses are all but the first. Before family
/// 0x19 the L3 and caches of other L3s are one source, so misses cannot be told.
const TABLE: [Row; 2] = [
    Row {
        vendor: "AuthenticAMD",
        family: 0x19,
        counted: LastLevel::Raw { references: 0x5e44, misses: 0x5c44 },
    },
    Row {
        vendor: "AuthenticAMD",
        family: 0x1a,
        counted: LastLevel::Raw { references: 0xde44, misses: 0xdc44 },
    },
];

/// `LL_CACHE_RD` and `LL_CACHE_MISS_RD` (Arm Architecture Reference Manual, common events), which the kernel lists where the cores have them.
const ARM: LastLevel = LastLevel::Raw { references: 0x36, misses: 0x37 };
const ARM_FILES: [&str; 2] = ["events/ll_cache_rd", "events/ll_cache_miss_rd"];

impl LastLevel {
    /// Of this machine. `devices`: where the kernel lists the units that count.
    pub(crate) fn read(devices: &Path) -> LastLevel {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        if has_arm_events(devices) { ARM } else { choose(&text) }
    }

    /// A counter of accesses.
    pub(crate) fn references(self) -> Builder<'static> {
        match self {
            LastLevel::Kernel => Builder::new(Hardware::CACHE_REFERENCES),
            LastLevel::Raw { references, .. } => Builder::new(Raw::new(references)),
        }
    }

    /// A counter of misses.
    pub(crate) fn misses(self) -> Builder<'static> {
        match self {
            LastLevel::Kernel => Builder::new(Hardware::CACHE_MISSES),
            LastLevel::Raw { misses, .. } => Builder::new(Raw::new(misses)),
        }
    }

    /// Whether this event is one of the processor's own numbering.
    pub(crate) fn is_raw(self, event: Event) -> bool {
        self != LastLevel::Kernel && matches!(event, Event::CacheReferences | Event::CacheMisses)
    }
}

/// By the text of `/proc/cpuinfo`.
fn choose(cpuinfo: &str) -> LastLevel {
    let value = |name: &str| {
        let pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let mut found = pairs.filter(|(key, _)| key.trim() == name);
        found.next().map(|(_, value)| value.trim())
    };
    let (vendor, family) = (value("vendor_id"), value("cpu family"));
    let family: Option<u32> = family.and_then(|it| it.parse().ok());
    let row = TABLE.iter().find(|it| vendor == Some(it.vendor) && family == Some(it.family));
    row.map_or(LastLevel::Kernel, |it| it.counted)
}

/// Whether there are cores with counters of Arm, and all kinds of them count the last-level cache.
fn has_arm_events(devices: &Path) -> bool {
    let entries = fs::read_dir(devices).into_iter().flatten().flatten();
    let mut kinds = entries.map(|it| it.path()).filter(|it| it.join("cpus").exists()).peekable();
    kinds.peek().is_some() && kinds.all(|it| ARM_FILES.iter().all(|file| it.join(file).exists()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_follows_vendor_and_family() {
        let raw = |references, misses| LastLevel::Raw { references, misses };
        for (vendor, family, expected) in [
            ("GenuineIntel", "6", LastLevel::Kernel),
            ("AuthenticAMD", "23", LastLevel::Kernel),
            ("AuthenticAMD", "25", raw(0x5e44, 0x5c44)),
            ("AuthenticAMD", "26", raw(0xde44, 0xdc44)),
            ("AuthenticAMD", "x", LastLevel::Kernel),
            ("HygonGenuine", "25", LastLevel::Kernel),
        ] {
            let text = format!("processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\n");
            assert_eq!(choose(&text), expected, "{vendor} {family}");
        }
        assert_eq!(choose("CPU implementer\t: 0x41\n"), LastLevel::Kernel);
        // Whatever misses the L3 has asked it, and nothing that the L2 had has.
        for row in TABLE {
            let LastLevel::Raw { references, misses } = row.counted else { panic!("no row") };
            assert_eq!((references & !misses, misses & 0x0300), (0x0200, 0), "{:x}", row.family);
        }
    }

    #[test]
    fn arm_counts_it_where_all_kinds_of_cores_do() {
        let dir = std::env::temp_dir().join(format!("bayplan-last-level-{}", std::process::id()));
        let write = |path: &str| {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        assert!(!has_arm_events(&dir));
        write("arm_cmn_0/events/hnf_cache_miss");
        write("armv8_pmuv3_0/cpus");
        assert!(!has_arm_events(&dir));
        ARM_FILES.iter().for_each(|file| write(&format!("armv8_pmuv3_0/{file}")));
        assert_eq!(LastLevel::read(&dir), ARM);
        write("armv8_pmuv3_1/cpus");
        write("armv8_pmuv3_1/events/ll_cache_rd");
        assert!(!has_arm_events(&dir));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn counters_have_the_configuration_of_the_row() {
        let config = |it: Builder<'_>| it.attrs().config;
        let counted = LastLevel::Raw { references: 0x36, misses: 0x37 };
        assert_eq!((config(counted.references()), config(counted.misses())), (0x36, 0x37));
        // PERF_COUNT_HW_CACHE_REFERENCES and PERF_COUNT_HW_CACHE_MISSES.
        let kernel = LastLevel::Kernel;
        assert_eq!((config(kernel.references()), config(kernel.misses())), (2, 3));
        assert!(counted.is_raw(Event::CacheMisses) && !counted.is_raw(Event::Cycles));
        assert!(!kernel.is_raw(Event::CacheMisses));
    }
}
