//! What a machine offers: which values its drivers take, for which CPUs, in which files. Facts as they were read, without judgement.
//! Which driver has which: Documentation/admin-guide/pm/cpufreq.rst, intel_pstate.rst and amd-pstate.rst.

use std::collections::BTreeMap;

use bayplan_types::{CpuId, CpuSet, Khz};

/// What can be set on one machine. What is missing in the kernel is missing here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PowerOffer {
    /// Where frequencies are set (`Documentation/admin-guide/pm/cpufreq.rst`).
    pub policies: Vec<PolicyOffer>,
    /// How CPUs sleep (`Documentation/admin-guide/pm/cpuidle.rst`).
    pub idle: BTreeMap<CpuId, IdleOffer>,
    /// What CPUs share (`Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst`).
    pub uncores: Vec<UncoreOffer>,
    /// The CPUs of each package (`topology/physical_package_id`).
    pub packages: Vec<CpuSet>,
    /// The switch for turbo that counts for the whole machine.
    pub turbo: Option<TurboSwitch>,
    /// Whether Speed Select can be asked through its device (`Documentation/admin-guide/pm/intel-speed-select.rst`).
    pub has_speed_select: bool,
}

/// CPUs that have their frequency set together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyOffer {
    /// The directory below the root, without a slash in front.
    pub dir: String,
    /// The CPUs that are online (`affected_cpus`).
    pub cpus: CpuSet,
    /// `scaling_driver`.
    pub driver: String,
    /// `cpuinfo_min_freq`.
    pub min: Option<Khz>,
    /// `cpuinfo_max_freq`; with some drivers it is lower while turbo is switched off.
    pub max: Option<Khz>,
    /// The highest frequency without turbo.
    pub base: Option<Khz>,
    /// The only frequencies that there are, ascending; empty where all between the lowest and the highest can be had.
    pub steps: Vec<Khz>,
    /// `scaling_available_governors`.
    pub governors: Vec<String>,
    /// `energy_performance_available_preferences`; empty where the hardware does not choose.
    pub preferences: Vec<String>,
    /// Whether it has its own switch for turbo (`boost`, since Linux 6.11).
    pub has_boost: bool,
}

impl PolicyOffer {
    /// Whether hardware picks the frequency and the governors `performance` and `powersave` are only two ways to ask it. Such drivers take no
    /// preference but `performance` under the former, which sets the preference, too (`intel_pstate.rst`, "Active Mode"; `amd-pstate.rst`).
    pub fn is_active(&self) -> bool {
        matches!(self.driver.as_str(), "intel_pstate" | "amd-pstate-epp")
    }
}

/// A switch for turbo that counts for the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurboSwitch {
    /// `intel_pstate/no_turbo`: 1 is off.
    NoTurbo,
    /// `cpufreq/boost`: 1 is on.
    Boost,
}

impl TurboSwitch {
    /// The file, below the root.
    pub fn path(self) -> &'static str {
        match self {
            TurboSwitch::NoTurbo => "sys/devices/system/cpu/intel_pstate/no_turbo",
            TurboSwitch::Boost => "sys/devices/system/cpu/cpufreq/boost",
        }
    }

    /// What to write.
    pub fn text(self, is_on: bool) -> &'static str {
        match (self, is_on) {
            (TurboSwitch::NoTurbo, false) | (TurboSwitch::Boost, true) => "1",
            _ => "0",
        }
    }
}

/// How one CPU can sleep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleOffer {
    /// Its idle states, lightest first.
    pub states: Vec<IdleState>,
    /// Whether it has `power/pm_qos_resume_latency_us`.
    pub has_latency_limit: bool,
}

/// One idle state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleState {
    /// The number in the directory's name.
    pub number: u32,
    /// `name`: `POLL`, `C1`, `C1E`, `C6`.
    pub name: String,
    /// `latency`: microseconds to wake up from it.
    pub latency_us: u32,
}

/// Mesh, caches and memory controllers that have their frequency set together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UncoreOffer {
    /// The directory below the root, without a slash in front.
    pub dir: String,
    /// The CPUs that use it.
    pub cpus: CpuSet,
    /// `initial_min_freq_khz`.
    pub min: Option<Khz>,
    /// `initial_max_freq_khz`.
    pub max: Option<Khz>,
}
