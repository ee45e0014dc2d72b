//! What the kernel can do: its command line, cgroups (Documentation/admin-guide/cgroup-v2.rst), resctrl (Documentation/filesystems/resctrl.rst), uncore
//! frequencies (Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst).

use bayplan_topology::{
    BandwidthControl, CacheControl, ResctrlFacts, ResctrlMonitoring, Snapshot, UncoreFacts,
};
use bayplan_types::PackageId;

use super::dirs::{CGROUP_DIR, dir};
use super::text;
use crate::kernel_files::Entry;
use crate::kernel_fs::{Dir, KernelFs};

const RESCTRL_DIR: &str = "sys/fs/resctrl/info";
const UNCORE_DIR: &str = "sys/devices/system/cpu/intel_uncore_frequency";
/// Options of the kernel's command line that are about CPUs and memory (`Documentation/admin-guide/kernel-parameters.txt`). The rest of
/// the line is private.
const OPTIONS: [&str; 26] = [
    "cgroup_disable",
    "default_hugepagesz",
    "efi_fake_mem",
    "hugepages",
    "hugepagesz",
    "idle",
    "intel_idle.max_cstate",
    "intel_pstate",
    "irqaffinity",
    "isolcpus",
    "kthread_cpus",
    "maxcpus",
    "mem",
    "memmap",
    "mitigations",
    "movable_node",
    "nohz",
    "nohz_full",
    "nosmt",
    "nr_cpus",
    "numa",
    "numa_balancing",
    "processor.max_cstate",
    "psi",
    "rcu_nocbs",
    "rdt",
];

/// Reads kernel version, options and features.
pub(super) fn read(fs: &mut KernelFs, cpu_dir: &Dir, snapshot: &mut Snapshot) {
    let kernel = &mut snapshot.kernel;
    if let Some(dir) = dir(fs, "proc/sys/kernel") {
        kernel.release = fs.parsed(&dir, "osrelease", text::word);
    }
    kernel.cpu_options = read_options(fs);
    if let Some(dir) = dir(fs, CGROUP_DIR) {
        let words = |text: &str| Some(text.split_whitespace().map(str::to_owned).collect());
        kernel.controllers = fs.parsed(&dir, "cgroup.controllers", words);
    }
    kernel.has_psi = fs.exists("proc/pressure/cpu");
    kernel.has_btf = fs.exists("sys/kernel/btf/vmlinux");
    kernel.has_speed_select = fs.exists("sys/class/misc/isst_interface");
    kernel.resctrl = read_resctrl(fs);
    kernel.uncores = fs
        .names(UNCORE_DIR, |name| name.starts_with("package_") || name.starts_with("uncore"))
        .into_iter()
        .map(|name| read_uncore(fs, name))
        .collect();
    kernel.cpuidle_driver = fs.parsed(cpu_dir, "cpuidle/current_driver", text::word);
    if let Some(dir) = fs.sub(cpu_dir, "cpu0").and_then(|dir| fs.sub(&dir, "cpuidle")) {
        let states = fs.numbered_dirs(&dir, "state").into_iter();
        let names = states.filter_map(|(_, dir)| fs.parsed(&dir, "name", text::phrase));
        kernel.idle_states = names.collect();
    }
}

fn read_options(fs: &mut KernelFs) -> Vec<String> {
    let Some(dir) = dir(fs, "proc") else { return Vec::new() };
    let Some(line) = fs.text(&dir, "cmdline") else { return Vec::new() };
    let about_cpus = |word: &&str| {
        let (key, _) = word.split_once('=').unwrap_or((word, ""));
        OPTIONS.contains(&key)
    };
    let options: Vec<&str> = line.split_whitespace().filter(about_cpus).collect();
    fs.record("proc/cmdline".to_owned(), Entry::Text(options.join(" ")));
    options.into_iter().map(str::to_owned).collect()
}

/// `Documentation/filesystems/resctrl.rst`, "Info directory".
fn read_resctrl(fs: &mut KernelFs) -> Option<ResctrlFacts> {
    let info = dir(fs, RESCTRL_DIR)?;
    let mut facts = ResctrlFacts::default();
    for name in fs.names(RESCTRL_DIR, |_| true) {
        let Some(dir) = fs.sub(&info, &name) else { continue };
        let groups = fs.value(&dir, "num_closids");
        match name.as_str() {
            "L3_MON" => {
                let words = |text: &str| Some(text.split_whitespace().map(str::to_owned).collect());
                facts.monitoring = Some(ResctrlMonitoring {
                    features: fs.parsed(&dir, "mon_features", words).unwrap_or_default(),
                    groups: fs.value(&dir, "num_rmids"),
                });
            }
            "MB" | "SMBA" => facts.bandwidths.push(BandwidthControl {
                min: fs.value(&dir, "min_bandwidth"),
                step: fs.value(&dir, "bandwidth_gran"),
                groups,
                name,
            }),
            cache if cache.starts_with('L') => facts.caches.push(CacheControl {
                mask: fs.parsed(&dir, "cbm_mask", text::hex),
                bits_min: fs.value(&dir, "min_cbm_bits"),
                groups,
                shareable: fs.parsed(&dir, "shareable_bits", text::hex),
                is_sparse: fs.parsed(&dir, "sparse_masks", text::switch),
                name,
            }),
            _ => {}
        }
    }
    Some(facts)
}

/// `package_01_die_00`, or `uncore00` with files that say what it belongs to.
fn read_uncore(fs: &mut KernelFs, name: String) -> UncoreFacts {
    let in_name = name.strip_prefix("package_").and_then(|rest| rest.get(..2)?.parse().ok());
    let package = in_name.or_else(|| {
        let dir = dir(fs, &format!("{UNCORE_DIR}/{name}"))?;
        fs.value(&dir, "package_id")
    });
    UncoreFacts { name, package: package.map(PackageId) }
}
