//! Facts about what the kernel offers.

use bayplan_types::{PackageId, SpeedSelect};

/// What the kernel can do on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// `/proc/sys/kernel/osrelease`.
    pub release: Option<String>,
    /// The words of `/proc/cmdline` that are about CPUs and memory, such as `isolcpus=2-3`.
    pub cpu_options: Vec<String>,
    /// `/sys/fs/cgroup/cgroup.controllers` is there: cgroup v2, with these controllers.
    pub controllers: Option<Vec<String>>,
    /// `/proc/pressure` is there: pressure stall information.
    pub has_psi: bool,
    /// `/sys/kernel/btf/vmlinux` is there: eBPF programs fit themselves to this kernel.
    pub has_btf: bool,
    /// `/sys/fs/resctrl/info`, if resctrl is mounted.
    pub resctrl: Option<ResctrlFacts>,
    /// `/sys/devices/system/cpu/intel_uncore_frequency/*`.
    pub uncores: Vec<UncoreFacts>,
    /// `scaling_driver`: the kernel has one for all CPUs.
    pub cpufreq_driver: Option<String>,
    /// `/sys/devices/system/cpu/cpuidle/current_driver`.
    pub cpuidle_driver: Option<String>,
    /// Names of the idle states of the first CPU.
    pub idle_states: Vec<String>,
    /// `/sys/class/misc/isst_interface` is there: Intel Speed Select can be asked. What it says is not in sysfs.
    pub has_speed_select: bool,
    /// What the device of Intel Speed Select says, or why it says nothing; `None`: it was not asked, because there is none.
    pub speed_select: Option<Result<SpeedSelect, String>>,
}

impl KernelFacts {
    /// What the device of Intel Speed Select says, where it says something.
    pub fn told_speed_select(&self) -> Option<&SpeedSelect> {
        self.speed_select.as_ref()?.as_ref().ok()
    }
}

/// What the cache and bandwidth control can do (`Documentation/filesystems/resctrl.rst`, "Info directory").
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResctrlFacts {
    /// `L2`, `L3`, `L2CODE`, ...: caches that can be divided.
    pub caches: Vec<CacheControl>,
    /// `MB`, `SMBA`: memory bandwidth that can be limited.
    pub bandwidths: Vec<BandwidthControl>,
    /// `L3_MON`.
    pub monitoring: Option<ResctrlMonitoring>,
}

/// How one kind of cache can be divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheControl {
    /// Name of the directory.
    pub name: String,
    /// `cbm_mask`: the bits of a mask, one bit set for each.
    pub mask: Option<u64>,
    /// `min_cbm_bits`.
    pub bits_min: Option<u32>,
    /// `num_closids`: how many groups.
    pub groups: Option<u32>,
    /// `shareable_bits`: what devices may use, too.
    pub shareable: Option<u64>,
    /// `sparse_masks`: whether the bits of a mask may have gaps.
    pub is_sparse: Option<bool>,
}

/// How memory bandwidth can be limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandwidthControl {
    /// Name of the directory.
    pub name: String,
    /// `min_bandwidth`.
    pub min: Option<u32>,
    /// `bandwidth_gran`.
    pub step: Option<u32>,
    /// `num_closids`: how many groups.
    pub groups: Option<u32>,
}

/// What can be counted per group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResctrlMonitoring {
    /// `mon_features`.
    pub features: Vec<String>,
    /// `num_rmids`: how many groups.
    pub groups: Option<u32>,
}

/// One uncore with a frequency that can be set (`Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UncoreFacts {
    /// Name of the directory: `package_00_die_00` or `uncore00`.
    pub name: String,
    /// `package_id`, or from the name.
    pub package: Option<PackageId>,
}
