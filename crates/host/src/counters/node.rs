//! Counters of the whole node and of its CPUs.
//!
//! `/proc/pressure` (accounting/psi.rst); `cpufreq/cpuinfo_avg_freq` (Linux 6.15; what the hardware has counted, `EAGAIN` for a CPU that idles), else
//! `scaling_cur_freq` (where that is not counted, what was asked for), in kHz (admin-guide/pm/cpufreq.rst), and of uncores (`current_freq_khz`,
//! admin-guide/pm/intel_uncore_frequency_scaling.rst); `thermal_throttle`
//! (Documentation/ABI/testing/sysfs-devices-system-cpu); `energy_uj` of RAPL, which begins again at `max_energy_range_uj`
//! (power/powercap/powercap.rst); `/proc/stat`, in hundredths of a second (filesystems/proc.rst, "Miscellaneous kernel statistics in /proc/stat").

use std::collections::BTreeMap;
use std::path::Path;

use bayplan_types::CpuId;

use super::kept::Kept;
use super::parse::{Pressure, parse_idle, parse_stall, single};
use crate::kernel::Kernel;
use crate::uncore_domains::{UncoreDomain, uncore_domains};

const CPUS: &str = "sys/devices/system/cpu";
const POWERCAP: &str = "sys/class/powercap";

/// In `/proc/stat` time is in units of `USER_HZ` (proc_stat(5)), which is 100 on all architectures that Linux has this for.
pub const TICKS_PER_SECOND: f64 = 100.0;

/// Time in which each CPU had nothing to do, in [`TICKS_PER_SECOND`]; `None` where the kernel does not tell.
pub fn read_idle_ticks(kernel: &mut dyn Kernel) -> Option<BTreeMap<CpuId, u64>> {
    parse_idle(&kernel.read("proc/stat").ok()?)
}

/// The open files of the node.
#[derive(Debug)]
pub struct NodeFiles {
    pressure: [Option<Kept>; 4],
    stat: Option<Kept>,
    cpus: BTreeMap<CpuId, CpuFiles>,
    zones: Vec<(Zone, Kept)>,
    uncores: Vec<(Uncore, Kept)>,
}

#[derive(Debug)]
struct CpuFiles {
    average: Option<Kept>,
    frequency: Option<Kept>,
    core_throttles: Option<Kept>,
    package_throttles: Option<Kept>,
}

/// A zone of which the energy is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Zone {
    /// The kernel's name: `package-0`, `dram`; with that of the zone around it before it, `package-0/dram`.
    pub name: String,
    /// The counter begins again after this many microjoules.
    pub range_uj: Option<u64>,
}

/// A part of a package outside of its cores that has a frequency of its own: memory controllers, the last-level cache, and what connects them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uncore {
    /// The kernel's number.
    pub package: u32,
    /// The kernel's name: `package_00_die_01`, or `uncore03` where a package has several.
    pub name: String,
}

/// How often a CPU was slowed down because it was too hot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreThrottles {
    /// Its core.
    pub core: Option<u64>,
    /// Its package.
    pub package: Option<u64>,
}

/// The node now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// How long tasks stood still for lack of something.
    pub pressure: Pressure,
    /// Time in which each CPU had nothing to do, in hundredths of a second. The kernel may take some of it back.
    pub idle_ticks: BTreeMap<CpuId, u64>,
    /// The frequency that each CPU runs with, in kHz.
    pub frequencies_khz: BTreeMap<CpuId, u64>,
    /// The same of what is outside of cores.
    pub uncores_khz: BTreeMap<Uncore, u64>,
    /// Where the machine counts it.
    pub throttles: BTreeMap<CpuId, CoreThrottles>,
    /// Microjoules.
    pub energy_uj: BTreeMap<String, u64>,
}

impl NodeFiles {
    /// Opens what there is. `kernel` has the same root.
    pub fn open(root: &Path, kernel: &mut dyn Kernel) -> NodeFiles {
        let pressure = ["cpu", "memory", "io", "irq"]
            .map(|it| Kept::open(root, &format!("proc/pressure/{it}")));
        let names = kernel.list(CPUS).unwrap_or_default();
        let ids = names.iter().filter_map(|name| name.strip_prefix("cpu")?.parse().ok().map(CpuId));
        let cpus = ids.map(|cpu| {
            let open = |file: &str| Kept::open(root, &format!("{CPUS}/cpu{}/{file}", cpu.0));
            let files = CpuFiles {
                average: open("cpufreq/cpuinfo_avg_freq"),
                frequency: open("cpufreq/scaling_cur_freq"),
                core_throttles: open("thermal_throttle/core_throttle_count"),
                package_throttles: open("thermal_throttle/package_throttle_count"),
            };
            (cpu, files)
        });
        let stat = Kept::open(root, "proc/stat");
        let cpus = cpus.collect();
        let (zones, uncores) = (open_zones(root, kernel), open_uncores(root, kernel));
        NodeFiles { pressure, stat, cpus, zones, uncores }
    }

    /// All counters now.
    pub fn read(&mut self, buffer: &mut Vec<u8>) -> NodeCounters {
        let mut counters = NodeCounters::default();
        let Pressure { cpu, memory, io, irq } = &mut counters.pressure;
        for (file, stall) in self.pressure.iter_mut().zip([cpu, memory, io, irq]) {
            *stall = file.as_mut().and_then(|file| file.read(buffer, parse_stall));
        }
        let stat = self.stat.as_mut().and_then(|file| file.read(buffer, parse_idle));
        counters.idle_ticks = stat.unwrap_or_default();
        let mut read = |file: &mut Option<Kept>| file.as_mut()?.read(buffer, single);
        for (cpu, files) in &mut self.cpus {
            if let Some(khz) = read(&mut files.average).or_else(|| read(&mut files.frequency)) {
                counters.frequencies_khz.insert(*cpu, khz);
            }
            let (core, package) =
                (read(&mut files.core_throttles), read(&mut files.package_throttles));
            if core.is_some() || package.is_some() {
                counters.throttles.insert(*cpu, CoreThrottles { core, package });
            }
        }
        for (zone, file) in &mut self.zones {
            if let Some(energy) = file.read(buffer, single) {
                counters.energy_uj.insert(zone.name.clone(), energy);
            }
        }
        for (uncore, file) in &mut self.uncores {
            // Processors without a value show 0.
            if let Some(khz) = file.read(buffer, single).filter(|khz| *khz > 0) {
                counters.uncores_khz.insert(uncore.clone(), khz);
            }
        }
        counters
    }

    /// The zones of which energy is counted.
    pub fn zones(&self) -> impl Iterator<Item = &Zone> {
        self.zones.iter().map(|(zone, _)| zone)
    }
}

impl Zone {
    /// Microjoules between two readings, over the beginning of the counter, too; `None` where it has begun again and the kernel does not say after
    /// how many.
    pub fn used(&self, before_uj: u64, now_uj: u64) -> Option<u64> {
        match now_uj.checked_sub(before_uj) {
            Some(used) => Some(used),
            None => Some(self.range_uj?.checked_sub(before_uj)?.saturating_add(now_uj)),
        }
    }
}

/// `intel-rapl:0` is a package, `intel-rapl:0:1` a part of it. The same energy appears under `intel-rapl-mmio`, too, which is left out.
fn open_zones(root: &Path, kernel: &mut dyn Kernel) -> Vec<(Zone, Kept)> {
    let entries = kernel.list(POWERCAP).unwrap_or_default();
    let mut names = BTreeMap::new();
    let mut zones = Vec::new();
    for entry in entries.iter().filter(|it| it.starts_with("intel-rapl:")) {
        let dir = format!("{POWERCAP}/{entry}");
        let Ok(own) = kernel.read(&format!("{dir}/name")) else { continue };
        let above = entry.rsplit_once(':').and_then(|(above, _)| names.get(above));
        let name = match above {
            Some(above) => format!("{above}/{}", own.trim()),
            None => own.trim().to_owned(),
        };
        names.insert(entry.clone(), name.clone());
        let range = kernel.read(&format!("{dir}/max_energy_range_uj"));
        let zone = Zone { name, range_uj: range.ok().and_then(|text| single(&text)) };
        zones.extend(Kept::open(root, &format!("{dir}/energy_uj")).map(|file| (zone, file)));
    }
    zones
}

fn open_uncores(root: &Path, kernel: &mut dyn Kernel) -> Vec<(Uncore, Kept)> {
    let domains = uncore_domains(kernel).into_iter();
    let open = domains.filter_map(|UncoreDomain { name, dir, package, .. }| {
        let file = Kept::open(root, &format!("{dir}/current_freq_khz"))?;
        Some((Uncore { package, name }, file))
    });
    open.collect()
}
