//! Settings by name. In: a device, names and texts. Out: texts, or what the driver answers.

use bayplan_types::{CLOS_WEIGHT_MAX, ClosLimits, CorePower};
use nix::errno::Errno;

use crate::names::{Limit, Name};
use crate::{Device, TPMI_VERSION};

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
            ..TPMI_VERSION => Err(Errno::EOPNOTSUPP),
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
            Name::CorePower(domain) => {
                device.core_power(domain)?.ok_or(Errno::ENOENT)?.name().to_owned()
            }
            Name::Limit(domain, clos, limit) => {
                let it = device.limits(domain, clos)?;
                match limit {
                    Limit::Min => it.min_mhz.to_string(),
                    Limit::Max => it.max_mhz.to_string(),
                    Limit::Weight => it.weight.to_string(),
                }
            }
            Name::Profile(domain) => device.levels(domain)?.profile.to_string(),
            Name::Features(domain) => {
                let it = device.levels(domain)?;
                let on = [("bf", it.is_base_frequency_on), ("tf", it.is_turbo_frequency_on)];
                let on = on.into_iter().filter(|(_, is_on)| *is_on);
                let on: Vec<&str> = on.map(|(name, _)| name).collect();
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
            Name::CpuCore { .. } | Name::Profile(_) | Name::Features(_) => Err(Errno::EACCES),
            Name::CoreClos(domain, core) => {
                let clos = text.parse().map_err(|_| Errno::EINVAL)?;
                device.set_clos(domain, core, clos)
            }
            Name::CorePower(domain) => {
                device.core_power(domain)?.ok_or(Errno::ENOENT)?;
                let power: CorePower = text.parse().map_err(|_| Errno::EINVAL)?;
                device.set_core_power(domain, power)
            }
            Name::Limit(domain, clos, limit) => {
                let before = device.limits(domain, clos)?;
                let limits = with_limit(before, limit, text).ok_or(Errno::EINVAL)?;
                device.set_limits(domain, clos, limits)
            }
        }
    }
}

/// The limits with another one; `None`: it is none, or there would be no frequency between the lowest and the highest.
fn with_limit(before: ClosLimits, limit: Limit, text: &str) -> Option<ClosLimits> {
    let number: u32 = text.parse().ok()?;
    let limits = match limit {
        Limit::Min => ClosLimits { min_mhz: number, ..before },
        Limit::Max => ClosLimits { max_mhz: number, ..before },
        Limit::Weight => ClosLimits { weight: u8::try_from(number).ok()?, ..before },
    };
    (limits.weight <= CLOS_WEIGHT_MAX && limits.min_mhz <= limits.max_mhz).then_some(limits)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]
mod tests {
    use super::*;
    use crate::{Domain, FakeDevice, Levels};

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
    fn a_domain_without_core_power_has_none_to_read_or_to_switch() {
        let device = FakeDevice::new(1, 2, 4);
        let device = device.without_core_power(Domain { package: 0, number: 1 });
        let mut settings = SpeedSelect::new(device).unwrap();
        assert_eq!(settings.read("0.0/core_power").unwrap(), "off\n");
        assert_eq!(settings.read("0.1/core_power"), Err(Errno::ENOENT));
        assert_eq!(settings.write("0.1/core_power", "ordered"), Err(Errno::ENOENT));
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
    fn features_and_the_profile_are_only_told() {
        check("0.1/features", Ok("none"), &[("bf", Err(Errno::EACCES))]);
        check(
            "0.1/profile",
            Ok("level=0 of=0,3,4 locked=0 bf=1 tf=1"),
            &[("level=3", Err(Errno::EACCES))],
        );
    }

    #[test]
    fn features_that_are_on_and_another_profile_are_told() {
        let domain = Domain { package: 0, number: 0 };
        let mut levels = FakeDevice::new(1, 1, 2).levels(domain).unwrap();
        levels.is_turbo_frequency_on = true;
        levels.profile.is_locked = true;
        levels.profile.level = 3;
        let read = |levels: &Levels, name: &str| {
            let device = FakeDevice::new(1, 1, 2).with_levels(domain, levels.clone());
            SpeedSelect::new(device).unwrap().read(name).unwrap()
        };
        assert_eq!(read(&levels, "0.0/features"), "tf\n");
        assert_eq!(read(&levels, "0.0/profile"), "level=3 of=0,3,4 locked=1 bf=1 tf=1\n");
        levels.is_base_frequency_on = true;
        assert_eq!(read(&levels, "0.0/features"), "bf tf\n");
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
        for (name, text) in
            [("0.0/core0/clos", "1"), ("0.0/core_power", "ordered"), ("0.0/clos0/max_mhz", "2000")]
        {
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
