//! What a processor says of Intel Speed Select (Documentation/admin-guide/pm/intel-speed-select.rst). Facts as they were read, without judgement.

use std::fmt;
use std::str::FromStr;

use crate::CpuSet;

/// The kernel's device, below the root, without a slash in front. Its settings (crate `isst`) are as files below it.
pub const SPEED_SELECT_DEVICE: &str = "dev/isst_interface";

/// Classes of service of a power domain (SST_MAX_CLOS of the driver's isst_tpmi_core.c).
pub const CLOS_COUNT: u8 = 4;
/// The largest weight of a class (`prop_prio` of include/uapi/linux/isst_if.h: 0 to 15).
pub const CLOS_WEIGHT_MAX: u8 = 15;
/// The registers of a class have steps of so many MHz (SST_MUL_FACTOR_FREQ of isst_tpmi_core.c).
pub const CLOS_MHZ_STEP: u32 = 100;
/// The largest frequency that the registers of a class hold: 8 bits of such steps (SST_CLOS_CONFIG_MAX_WIDTH).
pub const CLOS_MHZ_MAX: u32 = 255 * CLOS_MHZ_STEP;

/// The power domains of a machine that can be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpeedSelect {
    /// In the order of their names.
    pub domains: Vec<PowerDomain>,
}

/// A part of a package with limits of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PowerDomain {
    /// Package and number: `0.1`.
    pub name: String,
    /// Core power (SST-CP); `None`: the processor has none, or it cannot be read.
    pub core_power: Option<CorePower>,
    /// Limits of each class of service, by its number.
    pub clos: Vec<ClosLimits>,
    /// Its performance profile (SST-PP).
    pub profile: Option<PerformanceProfile>,
    /// Base frequency (SST-BF) is on.
    pub is_base_frequency_on: bool,
    /// Turbo frequency (SST-TF) is on.
    pub is_turbo_frequency_on: bool,
    /// Its cores, by their numbers.
    pub cores: Vec<PowerCore>,
}

impl PowerDomain {
    /// CPUs of the cores that have this class of service.
    pub fn cpus_of_class(&self, clos: u8) -> CpuSet {
        let mut cpus = CpuSet::new();
        let cores = self.cores.iter().filter(|core| core.clos == Some(clos));
        cores.for_each(|core| cpus.union_with(&core.cpus));
        cpus
    }
}

/// A core as the power unit counts it; on processors without threads it may be a module of several cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PowerCore {
    /// The power unit's number.
    pub number: u16,
    /// Its CPUs that are online.
    pub cpus: CpuSet,
    /// Its class of service.
    pub clos: Option<u8>,
}

/// Whether core power divides power that is short between classes of service, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CorePower {
    /// It does not; classes of service have no effect.
    Off,
    /// By the weights of the classes.
    Proportional,
    /// What a class with a lower number needs comes first.
    Ordered,
}

impl CorePower {
    /// All of them.
    pub const ALL: [CorePower; 3] = [CorePower::Off, CorePower::Proportional, CorePower::Ordered];

    /// As in files and configurations.
    pub fn name(self) -> &'static str {
        match self {
            CorePower::Off => "off",
            CorePower::Proportional => "proportional",
            CorePower::Ordered => "ordered",
        }
    }
}

impl fmt::Display for CorePower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that is no way to divide power.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not off, proportional or ordered")]
pub struct ParseCorePowerError(String);

impl FromStr for CorePower {
    type Err = ParseCorePowerError;

    fn from_str(text: &str) -> Result<CorePower, ParseCorePowerError> {
        let text = text.trim();
        let found = CorePower::ALL.into_iter().find(|it| it.name() == text);
        found.ok_or_else(|| ParseCorePowerError(text.to_owned()))
    }
}

/// Limits of a class of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClosLimits {
    /// The lowest frequency, in MHz.
    pub min_mhz: u32,
    /// The highest frequency, in MHz.
    pub max_mhz: u32,
    /// 0 to [`CLOS_WEIGHT_MAX`]; the lower, the more it gets.
    pub weight: u8,
}

/// A point of operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerformanceProfile {
    /// The level that holds.
    pub level: u8,
    /// All levels that there are.
    pub levels: Vec<u8>,
    /// The level cannot be changed.
    pub is_locked: bool,
    /// The processor has base frequency (SST-BF) at this level.
    pub has_base_frequency: bool,
    /// The processor has turbo frequency (SST-TF) at this level.
    pub has_turbo_frequency: bool,
}

/// `level=0 of=0,3,4 locked=0 bf=1 tf=1`
impl fmt::Display for PerformanceProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels: Vec<String> = self.levels.iter().map(u8::to_string).collect();
        let flags = [self.is_locked, self.has_base_frequency, self.has_turbo_frequency];
        let [locked, bf, tf] = flags.map(u8::from);
        write!(f, "level={} of={} locked={locked} bf={bf} tf={tf}", self.level, levels.join(","))
    }
}

/// A text that is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a performance profile such as `level=0 of=0,3,4 locked=0 bf=1 tf=1`")]
pub struct ParseProfileError(String);

impl FromStr for PerformanceProfile {
    type Err = ParseProfileError;

    fn from_str(text: &str) -> Result<PerformanceProfile, ParseProfileError> {
        let value = |key: &str| {
            let mut pairs = text.split_ascii_whitespace().filter_map(|it| it.split_once('='));
            pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
        };
        let flag = |key: &str| value(key).map(|it| it == "1");
        let parse = || {
            let levels = value("of")?.split(',').filter(|it| !it.is_empty()).map(str::parse);
            Some(PerformanceProfile {
                level: value("level")?.parse().ok()?,
                levels: levels.collect::<Result<_, _>>().ok()?,
                is_locked: flag("locked")?,
                has_base_frequency: flag("bf")?,
                has_turbo_frequency: flag("tf")?,
            })
        };
        parse().ok_or_else(|| ParseProfileError(text.trim().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read_as_they_are_written() {
        let text = "level=3 of=0,3,4 locked=1 bf=0 tf=1";
        let profile: PerformanceProfile = text.parse().unwrap();
        assert_eq!((profile.to_string().as_str(), profile.levels.len()), (text, 3));
        for text in
            ["", "level=3", "level=x of=0 locked=0 bf=0 tf=0", "level=0 of=a locked=0 bf=0 tf=0"]
        {
            assert!(text.parse::<PerformanceProfile>().is_err(), "{text}");
        }
        for way in CorePower::ALL {
            assert_eq!(way.to_string().parse(), Ok(way));
        }
        assert!("on".parse::<CorePower>().is_err());
    }
}
