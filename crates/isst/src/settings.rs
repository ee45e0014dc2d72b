//! Settings by name. In: a device, names and texts. Out: texts, or what the driver answers.

use std::fmt::Write as _;

use nix::errno::Errno;

use crate::Device;
use crate::names::{Limit, Name};

/// How core power divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// By the weights of the classes.
    Proportional,
    /// What a class with a lower number needs comes first.
    Ordered,
}

/// Whether core power divides, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorePower {
    /// The processor has it.
    pub is_supported: bool,
    /// It is on.
    pub is_on: bool,
    /// How it divides.
    pub priority: Priority,
}

/// Limits of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClosLimits {
    /// MHz.
    pub min_mhz: u16,
    /// MHz.
    pub max_mhz: u16,
    /// 0 to 15; the lower, the more it gets.
    pub weight: u8,
}

/// Where a domain is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The level that holds.
    pub level: u8,
    /// A bit for each level that there is.
    pub levels: u8,
    /// The level cannot be changed.
    pub is_locked: bool,
    /// The processor has base frequency at this level, and it is on.
    pub bf: (bool, bool),
    /// The same of turbo frequency.
    pub tf: (bool, bool),
}

/// Settings of a device, as texts with names.
#[derive(Debug)]
pub struct SpeedSelect<D> {
    device: D,
}

impl<D: Device> SpeedSelect<D> {
    /// Those of this device; `EOPNOTSUPP` where the driver speaks of mailboxes only.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn new(mut device: D) -> Result<SpeedSelect<D>, Errno> {
        match device.version()? {
            0 | 1 => Err(Errno::EOPNOTSUPP),
            _ => Ok(SpeedSelect { device }),
        }
    }

    /// The text of a setting.
    ///
    /// # Errors
    /// `ENOENT` for a name that there is not; otherwise what the kernel answers.
    pub fn read(&mut self, name: &str) -> Result<String, Errno> {
        let device = &mut self.device;
        let text = match Name::parse(name).ok_or(Errno::ENOENT)? {
            Name::CpuCore { cpu, package } => {
                let (number, core) = device.core_of(cpu)?;
                format!("{package}.{number}/core{core}")
            }
            Name::CoreClos(domain, core) => device.clos(domain, core)?.to_string(),
            Name::CorePower(domain) => match device.core_power(domain)? {
                it if !it.is_supported => return Err(Errno::ENOENT),
                it if !it.is_on => "off".to_owned(),
                it if it.priority == Priority::Ordered => "ordered".to_owned(),
                _ => "proportional".to_owned(),
            },
            Name::Limit(domain, clos, limit) => {
                let it = device.limits(domain, clos)?;
                match limit {
                    Limit::Min => it.min_mhz.to_string(),
                    Limit::Max => it.max_mhz.to_string(),
                    Limit::Weight => it.weight.to_string(),
                }
            }
            Name::Profile(domain) => render_profile(&device.profile(domain)?),
            Name::Features(domain) => {
                let profile = device.profile(domain)?;
                let on = [("bf", profile.bf), ("tf", profile.tf)].into_iter();
                let on: Vec<&str> = on.filter(|(_, it)| it.1).map(|(name, _)| name).collect();
                if on.is_empty() { "none".to_owned() } else { on.join(" ") }
            }
        };
        Ok(text + "\n")
    }

    /// Gives a setting this text.
    ///
    /// # Errors
    /// `ENOENT` for a name that there is not, `EINVAL` for a text that it does not take, `EACCES` for what is only read; otherwise what the kernel answers.
    pub fn write(&mut self, name: &str, text: &str) -> Result<(), Errno> {
        let device = &mut self.device;
        let text = text.trim();
        match Name::parse(name).ok_or(Errno::ENOENT)? {
            Name::CpuCore { .. } | Name::Profile(_) => Err(Errno::EACCES),
            Name::CoreClos(domain, core) => {
                let clos = text.parse().map_err(|_| Errno::EINVAL)?;
                device.set_clos(domain, core, clos)
            }
            Name::CorePower(domain) => {
                let before = device.core_power(domain)?;
                let power = match text {
                    "off" => CorePower { is_on: false, ..before },
                    "ordered" => CorePower { is_on: true, priority: Priority::Ordered, ..before },
                    "proportional" => {
                        CorePower { is_on: true, priority: Priority::Proportional, ..before }
                    }
                    _ => return Err(Errno::EINVAL),
                };
                device.set_core_power(domain, power)
            }
            Name::Limit(domain, clos, limit) => {
                let before = device.limits(domain, clos)?;
                let limits = with_limit(before, limit, text).ok_or(Errno::EINVAL)?;
                device.set_limits(domain, clos, limits)
            }
            Name::Features(domain) => {
                let words: Vec<&str> = text.split_ascii_whitespace().collect();
                let is_known = |word: &&str| ["bf", "tf", "none"].contains(word);
                if words.is_empty() || !words.iter().all(is_known) {
                    return Err(Errno::EINVAL);
                }
                device.set_features(domain, words.contains(&"bf"), words.contains(&"tf"))
            }
        }
    }
}

fn render_profile(profile: &Profile) -> String {
    let mut text = format!("level={} of=", profile.level);
    let levels = (0..8).filter(|level| profile.levels & (1 << level) != 0);
    for (place, level) in levels.enumerate() {
        let comma = if place > 0 { "," } else { "" };
        let _ = write!(text, "{comma}{level}");
    }
    let has = |(has, _): (bool, bool)| u8::from(has);
    let _ = write!(
        text,
        " locked={} bf={} tf={}",
        u8::from(profile.is_locked),
        has(profile.bf),
        has(profile.tf)
    );
    text
}

/// The limits with another one; `None`: it is none, or there would be no frequency between the lowest and the highest.
fn with_limit(before: ClosLimits, limit: Limit, text: &str) -> Option<ClosLimits> {
    let number: u16 = text.parse().ok()?;
    let limits = match limit {
        Limit::Min => ClosLimits { min_mhz: number, ..before },
        Limit::Max => ClosLimits { max_mhz: number, ..before },
        Limit::Weight => ClosLimits { weight: u8::try_from(number).ok()?, ..before },
    };
    (limits.weight <= 15 && limits.min_mhz <= limits.max_mhz).then_some(limits)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]
mod tests {
    use super::*;
    use crate::FakeDevice;

    fn settings() -> SpeedSelect<FakeDevice> {
        SpeedSelect::new(FakeDevice::new(2, 2, 8)).unwrap()
    }

    /// What a setting says, and what it says after each of these texts, or what is answered.
    #[track_caller]
    fn check(name: &str, before: Result<&str, Errno>, writes: &[(&str, Result<&str, Errno>)]) {
        let mut settings = settings();
        let own = |text: &str| format!("{text}\n");
        assert_eq!(settings.read(name), before.map(own), "{name}");
        for (text, expected) in writes {
            let found = settings.write(name, text).and_then(|()| settings.read(name));
            assert_eq!(found, expected.map(own), "{name}: {text}");
        }
    }

    #[test]
    fn the_class_of_a_cpu_is_that_of_its_core() {
        check(
            "0.0/core1/clos",
            Ok("0"),
            &[
                ("2", Ok("2")),
                ("3\n", Ok("3")),
                ("4", Err(Errno::EINVAL)),
                ("x", Err(Errno::EINVAL)),
                ("", Err(Errno::EINVAL)),
            ],
        );
        // CPUs 2 and 3 are threads of one core in the fake.
        for (name, core) in [
            ("cpu2@0/core", "0.0/core1"),
            ("cpu3@0/core", "0.0/core1"),
            ("cpu4@0/core", "0.0/core2"),
            ("cpu9@0/core", "0.1/core0"),
            ("cpu16@1/core", "1.0/core0"),
        ] {
            check(name, Ok(core), &[("0.0/core0", Err(Errno::EACCES))]);
        }
    }

    #[test]
    fn core_power_is_off_or_divides_in_one_of_two_ways() {
        check(
            "1.1/core_power",
            Ok("off"),
            &[
                ("ordered", Ok("ordered")),
                ("proportional", Ok("proportional")),
                ("off", Ok("off")),
                ("on", Err(Errno::EINVAL)),
            ],
        );
    }

    #[test]
    fn limits_fit_each_other_and_the_register_or_are_refused() {
        check(
            "0.0/clos1/max_mhz",
            Ok("25500"),
            &[
                ("2000", Ok("2000")),
                ("2050", Ok("2000")),
                ("25600", Err(Errno::EINVAL)),
                ("99999", Err(Errno::EINVAL)),
                ("-1", Err(Errno::EINVAL)),
                ("", Err(Errno::EINVAL)),
            ],
        );
        check(
            "0.0/clos1/min_mhz",
            Ok("0"),
            &[("800", Ok("800")), ("25500", Ok("25500")), ("25501", Err(Errno::EINVAL))],
        );
        check(
            "0.0/clos1/weight",
            Ok("0"),
            &[("15", Ok("15")), ("16", Err(Errno::EINVAL)), ("256", Err(Errno::EINVAL))],
        );
        let mut settings = settings();
        settings.write("0.0/clos1/max_mhz", "2000").unwrap();
        assert_eq!(settings.write("0.0/clos1/min_mhz", "2100"), Err(Errno::EINVAL));
        settings.write("0.0/clos1/min_mhz", "2000").unwrap();
        assert_eq!(settings.write("0.0/clos1/max_mhz", "1900"), Err(Errno::EINVAL));
        assert_eq!(settings.read("0.0/clos2/max_mhz").unwrap(), "25500\n");
    }

    #[test]
    fn features_are_switched_and_the_profile_is_only_told() {
        check(
            "0.1/features",
            Ok("none"),
            &[
                ("bf", Ok("bf")),
                ("tf bf", Ok("bf tf")),
                ("none", Ok("none")),
                ("cp", Err(Errno::EINVAL)),
                ("", Err(Errno::EINVAL)),
            ],
        );
        check(
            "0.1/profile",
            Ok("level=0 of=0,3,4 locked=0 bf=1 tf=1"),
            &[("level=3", Err(Errno::EACCES))],
        );
    }

    #[test]
    fn what_is_not_there_is_told_as_such() {
        for name in [
            "",
            "cpu3/core",
            "cpux@0/core",
            "cpu3@0/clos",
            "0.0/clos4/min_mhz",
            "0.0/clos1/other",
            "0.0/clos1",
            "0/core_power",
            "0.0/other",
        ] {
            check(name, Err(Errno::ENOENT), &[("1", Err(Errno::ENOENT))]);
        }
        // A package, a domain and a CPU that the machine does not have.
        for name in ["2.0/core_power", "0.2/core_power", "0.2/features", "cpu99@0/core"] {
            check(name, Err(Errno::EINVAL), &[]);
        }
    }

    #[test]
    fn what_firmware_or_rights_forbid_is_refused_and_leaves_everything_as_it_is() {
        let mut device = FakeDevice::new(1, 1, 4);
        device.is_write_blocked = true;
        let mut settings = SpeedSelect::new(device).unwrap();
        for (name, text) in [
            ("0.0/core0/clos", "1"),
            ("0.0/core_power", "ordered"),
            ("0.0/clos0/max_mhz", "2000"),
            ("0.0/features", "bf"),
        ] {
            let before = settings.read(name);
            assert_eq!(settings.write(name, text), Err(Errno::EPERM), "{name}");
            assert_eq!(settings.read(name), before, "{name}");
        }
    }

    #[test]
    fn a_driver_for_mailboxes_is_unsupported() {
        let mut device = FakeDevice::new(1, 1, 4);
        device.version = 1;
        assert_eq!(SpeedSelect::new(device).err(), Some(Errno::EOPNOTSUPP));
    }
}
