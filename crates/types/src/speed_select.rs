//! What a processor says of Intel Speed Select (Documentation/admin-guide/pm/intel-speed-select.rst). Facts as they were read, without judgement.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::CpuSet;

/// The kernel's device, below the root, without a slash in front. Its settings (crate `isst`) are as files below it.
pub const SPEED_SELECT_DEVICE: &str = "dev/isst_interface";

/// The name of the setting of a power domain that says whether and how power is divided.
pub const CORE_POWER: &str = "core_power";

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
    /// Settings that there are and that could not be read, with the reason, by their names below the device: `0.1/core_power`.
    pub unread: BTreeMap<String, String>,
}

/// Why the cores of a power domain have no class of service. `Display` says it for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCorePower {
    /// The processor says so.
    #[error("the processor has no core power there")]
    Missing,
    /// It was not to be read.
    #[error("core power cannot be read: {0}")]
    Unread(String),
}

impl SpeedSelect {
    /// Whether and how power is divided in a domain.
    ///
    /// # Errors
    /// That there is nothing that divides it, or that this is not known.
    pub fn core_power_of(&self, domain: &PowerDomain) -> Result<CorePower, NoCorePower> {
        domain.core_power.ok_or_else(|| {
            let why = self.unread.get(&format!("{}/{CORE_POWER}", domain.name)).cloned();
            why.map_or(NoCorePower::Missing, NoCorePower::Unread)
        })
    }

    /// Core power (SST-CP) is on in some domain.
    pub fn divides_power(&self) -> bool {
        self.domains.iter().any(|it| it.core_power.is_some_and(|way| way != CorePower::Off))
    }

    /// Base frequency (SST-BF) is on in some domain.
    pub fn has_base_frequency_on(&self) -> bool {
        self.domains.iter().any(|it| it.is_base_frequency_on)
    }

    /// Turbo frequency (SST-TF) is on in some domain.
    pub fn has_turbo_frequency_on(&self) -> bool {
        self.domains.iter().any(|it| it.is_turbo_frequency_on)
    }

    /// What could not be read, one line for each reason: `0.1/core_power and 2 more: EIO`.
    pub fn unread_in_words(&self) -> Vec<String> {
        let mut by_reason: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
        for (name, why) in &self.unread {
            by_reason.entry(why).or_insert((name, 0)).1 += 1;
        }
        let line = |(why, (name, count)): (&str, (&str, usize))| match count {
            1 => format!("{name}: {why}"),
            _ => format!("{name} and {} more: {why}", count - 1),
        };
        by_reason.into_iter().map(line).collect()
    }
}

/// A part of a package with limits of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PowerDomain {
    /// Package and number: `0.1`.
    pub name: String,
    /// Core power (SST-CP); `None`: the processor has none, or it could not be read ([`SpeedSelect::core_power_of`]).
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
    fn what_could_not_be_read_is_not_what_is_missing() {
        let domain = |name: &str, core_power| PowerDomain {
            name: name.to_owned(),
            core_power,
            ..PowerDomain::default()
        };
        let unread = [("0.1/core_power", "EIO"), ("0.1/clos0/weight", "EIO"), ("0.2/profile", "x")];
        let unread = unread.map(|(name, why)| (name.to_owned(), why.to_owned()));
        let facts = SpeedSelect { unread: unread.into(), ..SpeedSelect::default() };
        for (domain, expected) in [
            (domain("0.0", Some(CorePower::Off)), Ok(CorePower::Off)),
            (domain("0.1", None), Err(NoCorePower::Unread("EIO".to_owned()))),
            (domain("0.2", None), Err(NoCorePower::Missing)),
        ] {
            assert_eq!(facts.core_power_of(&domain), expected, "{}", domain.name);
        }
        assert_eq!(facts.unread_in_words(), ["0.1/clos0/weight and 1 more: EIO", "0.2/profile: x"]);
    }

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
