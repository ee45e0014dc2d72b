//! What the device of Intel Speed Select says of this machine. In: settings as texts with names (those of the crate `isst`), below the device's path as if it were a directory. Out: a
//! [`SpeedSelect`], facts without judgement; and back to the files that stand for it in a recorded machine.
//!
//! Each CPU is asked for its domain and core, and domains and cores that were named so for the rest: about as many questions as there are CPUs and cores.

use std::collections::BTreeMap;
use std::str::FromStr;

use bayplan_types::{
    CLOS_COUNT, CORE_POWER, ClosLimits, CorePower, CpuId, CpuSet, PackageId, PerformanceProfile,
    PowerCore, PowerDomain, SPEED_SELECT_DEVICE, SpeedSelect,
};
use nix::errno::Errno;

use crate::kernel::Kernel;
use crate::kernel_files::plain_number;

const CPUS: &str = "sys/devices/system/cpu";
/// What a recorded machine has, in front of the reason, in the place of a setting that could not be read.
const UNREAD: &str = "unread: ";

/// What is said of the CPUs that are online; `None`: there is no device.
///
/// # Errors
/// Why a device that is there cannot be asked. What of it cannot be read, while the rest can, is in [`SpeedSelect::unread`].
pub fn read_speed_select(kernel: &mut dyn Kernel) -> Option<Result<SpeedSelect, String>> {
    let cpus = match list_cpus(kernel) {
        Ok(cpus) => cpus,
        Err(Errno::ENOENT | Errno::ENOTDIR) => return None,
        Err(errno) => return Some(Err(format!("/{CPUS}: {errno}"))),
    };
    let mut reader = Reader { kernel, unread: BTreeMap::new() };
    let mut cores: BTreeMap<String, BTreeMap<u16, CpuSet>> = BTreeMap::new();
    for cpu in cpus {
        // Those that are offline have none.
        let Some(package) = reader.package(cpu) else { continue };
        let name = format!("cpu{cpu}@{package}/core");
        match reader.kernel.read(&format!("{SPEED_SELECT_DEVICE}/{name}")) {
            Ok(text) => match parse_core(&text) {
                Some((domain, core)) => {
                    let domain = cores.entry(domain.to_owned()).or_default();
                    domain.entry(core).or_default().insert(cpu);
                }
                None => reader.note(name, odd(&text)),
            },
            // No device answers so for every CPU.
            Err(Errno::ENOENT | Errno::ENOTDIR) if cores.is_empty() && reader.unread.is_empty() => {
                return None;
            }
            Err(Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(errno) if is_of_whole_device(errno) => return Some(Err(why(errno))),
            Err(errno) => reader.note(name, why(errno)),
        }
    }
    if cores.is_empty() {
        return reader.unread.into_values().next().map(Err);
    }
    let domains = cores.into_iter().map(|(name, cores)| reader.domain(name, cores)).collect();
    Some(Ok(SpeedSelect { domains, unread: reader.unread }))
}

/// `0.1/core7`
fn parse_core(text: &str) -> Option<(&str, u16)> {
    let (domain, core) = text.trim().split_once("/core")?;
    Some((domain, core.parse().ok()?))
}

/// What one question is answered with, every other is.
fn is_of_whole_device(errno: Errno) -> bool {
    use Errno::{EACCES, ENODEV, ENOTTY, EOPNOTSUPP, EPERM};
    [EACCES, ENODEV, ENOTTY, EOPNOTSUPP, EPERM].contains(&errno)
}

/// In words for an operator.
fn why(errno: Errno) -> String {
    match errno {
        Errno::EOPNOTSUPP => "the driver asks this processor by mailboxes, which Bayplan does not speak; processors since Granite Rapids and Sierra Forest have TPMI".to_owned(),
        Errno::EACCES | Errno::EPERM => format!(
            "/{SPEED_SELECT_DEVICE} refuses this process ({errno}); it takes root with CAP_SYS_ADMIN, and a unit or a container that allows the device"
        ),
        Errno::ENOTTY => format!("/{SPEED_SELECT_DEVICE} is another device"),
        Errno::ENODEV => format!("/{SPEED_SELECT_DEVICE} is no device"),
        errno => format!("/{SPEED_SELECT_DEVICE}: {errno}"),
    }
}

/// Whether and how a power domain divides power; `None`: it has no core power.
///
/// # Errors
/// Why this cannot be read.
pub fn read_core_power(kernel: &mut dyn Kernel, domain: &str) -> Result<Option<CorePower>, String> {
    read_value(kernel, &format!("{domain}/{CORE_POWER}"))
}

/// A setting; `None`: there is none. For a domain without Speed Select the driver answers EINVAL (isst_tpmi_core.c, `get_instance`).
fn read_value<T: FromStr>(kernel: &mut dyn Kernel, name: &str) -> Result<Option<T>, String> {
    match kernel.read(&format!("{SPEED_SELECT_DEVICE}/{name}")) {
        Ok(text) => text.trim().parse().map(Some).map_err(|_| odd(&text)),
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EINVAL) => Ok(None),
        Err(errno) => Err(why(errno)),
    }
}

/// A text that no device says: that of a record, or another one.
fn odd(text: &str) -> String {
    let text = text.trim();
    let recorded = text.strip_prefix(UNREAD).map(str::to_owned);
    recorded.unwrap_or_else(|| format!("`{text}` is not expected there"))
}

fn list_cpus(kernel: &mut dyn Kernel) -> Result<Vec<CpuId>, Errno> {
    let names = kernel.list(CPUS)?;
    let numbers = names.iter().filter_map(|it| plain_number(it.strip_prefix("cpu")?));
    let mut cpus: Vec<CpuId> = numbers.map(CpuId).collect();
    cpus.sort_unstable();
    Ok(cpus)
}

/// Reads settings, and notes those that there are and that cannot be read.
struct Reader<'a> {
    kernel: &'a mut dyn Kernel,
    /// By their names below the device.
    unread: BTreeMap<String, String>,
}

impl Reader<'_> {
    fn note(&mut self, name: String, why: String) {
        self.unread.insert(name, why);
    }

    fn package(&mut self, cpu: CpuId) -> Option<PackageId> {
        let text = self.kernel.read(&format!("{CPUS}/cpu{cpu}/topology/physical_package_id"));
        Some(PackageId(text.ok()?.trim().parse().ok()?))
    }

    /// `None`: there is none, or it could not be read, which is noted.
    fn value<T: FromStr>(&mut self, name: String) -> Option<T> {
        match read_value(self.kernel, &name) {
            Ok(value) => value,
            Err(why) => {
                self.note(name, why);
                None
            }
        }
    }

    /// Where core power is missing, what the registers say of classes of service means nothing.
    fn domain(&mut self, name: String, cores: BTreeMap<u16, CpuSet>) -> PowerDomain {
        let core_power: Option<CorePower> = self.value(format!("{name}/{CORE_POWER}"));
        let has_classes = core_power.is_some();
        let Features(features) = self.value(format!("{name}/features")).unwrap_or_default();
        let is_on = |feature: &str| features.iter().any(|it| it == feature);
        let numbers = (0..CLOS_COUNT).filter(|_| has_classes);
        let clos = numbers.map_while(|number| {
            let dir = format!("{name}/clos{number}");
            Some(ClosLimits {
                min_mhz: self.value(format!("{dir}/min_mhz"))?,
                max_mhz: self.value(format!("{dir}/max_mhz"))?,
                weight: self.value(format!("{dir}/weight"))?,
            })
        });
        let clos = clos.collect();
        let profile: Option<PerformanceProfile> = self.value(format!("{name}/profile"));
        let cores = cores.into_iter().map(|(number, cpus)| {
            let clos = has_classes.then(|| self.value(format!("{name}/core{number}/clos")));
            PowerCore { number, cpus, clos: clos.flatten() }
        });
        let cores = cores.collect();
        PowerDomain {
            core_power,
            clos,
            profile,
            is_base_frequency_on: is_on("bf"),
            is_turbo_frequency_on: is_on("tf"),
            cores,
            name,
        }
    }
}

/// `bf tf`, `none`.
#[derive(Default)]
struct Features(Vec<String>);

impl FromStr for Features {
    type Err = ();

    fn from_str(text: &str) -> Result<Features, ()> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let is_known = words.iter().all(|it| ["bf", "tf", "none"].contains(it));
        let words = words.into_iter().map(str::to_owned);
        is_known.then(|| Features(words.collect())).ok_or(())
    }
}

/// The files that [`read_speed_select`] reads back to the same.
pub fn write_speed_select(facts: &SpeedSelect) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for domain in &facts.domains {
        let package = domain.name.split('.').next().unwrap_or_default();
        let mut put = |name: String, text: String| {
            files.push((format!("{SPEED_SELECT_DEVICE}/{name}"), text));
        };
        let in_domain = |name: &str| format!("{}/{name}", domain.name);
        if let Some(power) = domain.core_power {
            put(in_domain(CORE_POWER), power.to_string());
        }
        if let Some(profile) = &domain.profile {
            put(in_domain("profile"), profile.to_string());
        }
        let features = match (domain.is_base_frequency_on, domain.is_turbo_frequency_on) {
            (true, true) => "bf tf",
            (true, false) => "bf",
            (false, true) => "tf",
            (false, false) => "none",
        };
        put(in_domain("features"), features.to_owned());
        for (number, clos) in domain.clos.iter().enumerate() {
            put(in_domain(&format!("clos{number}/min_mhz")), clos.min_mhz.to_string());
            put(in_domain(&format!("clos{number}/max_mhz")), clos.max_mhz.to_string());
            put(in_domain(&format!("clos{number}/weight")), clos.weight.to_string());
        }
        for core in &domain.cores {
            let name = format!("core{}", core.number);
            for cpu in core.cpus.iter() {
                put(format!("cpu{cpu}@{package}/core"), in_domain(&name));
            }
            if let Some(clos) = core.clos {
                put(in_domain(&format!("{name}/clos")), clos.to_string());
            }
        }
    }
    let unread = facts.unread.iter();
    files
        .extend(unread.map(|(name, why)| {
            (format!("{SPEED_SELECT_DEVICE}/{name}"), format!("{UNREAD}{why}"))
        }));
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_kernel::FakeKernel;

    fn facts() -> SpeedSelect {
        let core = |number, cpus: &str, clos| PowerCore {
            number,
            cpus: cpus.parse().unwrap(),
            clos: Some(clos),
        };
        let limits = |max_mhz| ClosLimits { min_mhz: 800, max_mhz, weight: 3 };
        let profile = "level=0 of=0,3 locked=0 bf=1 tf=1".parse().ok();
        let domain = |name: &str, cores| PowerDomain {
            name: name.to_owned(),
            core_power: Some(CorePower::Ordered),
            clos: [3800, 3000, 2000, 1000].map(limits).to_vec(),
            profile: profile.clone(),
            is_base_frequency_on: false,
            is_turbo_frequency_on: true,
            cores,
        };
        let first = vec![core(0, "0,4", 0), core(5, "1,5", 3)];
        let domains = vec![domain("0.0", first), domain("1.2", vec![core(0, "2", 1)])];
        SpeedSelect { domains, ..SpeedSelect::default() }
    }

    fn kernel(facts: &SpeedSelect) -> FakeKernel {
        let mut kernel = FakeKernel::default();
        for (cpu, package) in [(0, 0), (1, 0), (2, 1), (4, 0), (5, 0)] {
            let path = format!("{CPUS}/cpu{cpu}/topology/physical_package_id");
            kernel.files.insert(path, format!("{package}\n"));
        }
        kernel.files.extend(write_speed_select(facts));
        kernel
    }

    #[test]
    fn what_is_written_is_read_again() {
        let facts = facts();
        assert_eq!(read_speed_select(&mut kernel(&facts)), Some(Ok(facts)));
    }

    /// Paths with what they are answered with.
    struct Failing(FakeKernel, BTreeMap<String, Errno>);

    impl Kernel for Failing {
        fn read(&mut self, path: &str) -> Result<String, Errno> {
            self.1.get(path).map_or_else(|| self.0.read(path), |errno| Err(*errno))
        }

        fn write(&mut self, path: &str, text: &str) -> Result<(), Errno> {
            self.0.write(path, text)
        }

        fn list(&mut self, dir: &str) -> Result<Vec<String>, Errno> {
            self.0.list(dir)
        }

        fn make_dir(&mut self, dir: &str) -> Result<(), Errno> {
            self.0.make_dir(dir)
        }

        fn remove_dir(&mut self, dir: &str) -> Result<(), Errno> {
            self.0.remove_dir(dir)
        }
    }

    /// What is answered for these names; core power of both domains as it is found, and what could not be read. A record says the same.
    #[track_caller]
    fn check_unread(answers: &[(&str, Errno)], expected: [Option<CorePower>; 2], unread: &[&str]) {
        let path = |name: &str| format!("{SPEED_SELECT_DEVICE}/{name}");
        let answers = answers.iter().map(|(name, errno)| (path(name), *errno)).collect();
        let found = read_speed_select(&mut Failing(kernel(&facts()), answers));
        let found = found.unwrap().unwrap();
        let powers: Vec<_> = found.domains.iter().map(|it| it.core_power).collect();
        assert_eq!(powers, expected);
        assert_eq!(found.unread_in_words(), unread);
        assert_eq!(read_speed_select(&mut kernel(&found)), Some(Ok(found)));
    }

    /// A read that failed had become a processor without core power.
    #[test]
    fn what_cannot_be_read_is_told_and_is_not_missing() {
        const ORDERED: Option<CorePower> = Some(CorePower::Ordered);
        let power = "1.2/core_power";
        let io = "/dev/isst_interface: EIO: I/O error";
        check_unread(&[], [ORDERED; 2], &[]);
        check_unread(&[(power, Errno::EIO)], [ORDERED, None], &[&format!("{power}: {io}")]);
        for absent in [Errno::ENOENT, Errno::EINVAL] {
            check_unread(&[(power, absent)], [ORDERED, None], &[]);
        }
        check_unread(
            &[("0.0/core5/clos", Errno::EIO), ("0.0/features", Errno::EIO), (power, Errno::EFAULT)],
            [ORDERED, None],
            &[
                "1.2/core_power: /dev/isst_interface: EFAULT: Bad address",
                &format!("0.0/core5/clos and 1 more: {io}"),
            ],
        );
        check_unread(
            &[("cpu1@0/core", Errno::EIO)],
            [ORDERED; 2],
            &[&format!("cpu1@0/core: {io}")],
        );
        // The first CPU that fails does not make a machine without a device of one that has it.
        let first = Failing(
            kernel(&facts()),
            [(format!("{SPEED_SELECT_DEVICE}/cpu0@0/core"), Errno::EIO)].into(),
        );
        let mut first = first;
        first.0.files.retain(|path, _| !path.ends_with("/core"));
        assert_eq!(read_speed_select(&mut first), Some(Err(io.to_owned())));
    }

    #[test]
    fn a_text_that_no_device_says_is_told() {
        let mut kernel = kernel(&facts());
        let mut say = |name: &str, text: &str| {
            kernel.files.insert(format!("{SPEED_SELECT_DEVICE}/{name}"), text.to_owned());
        };
        say("0.0/core_power", "on");
        say("cpu4@0/core", "7");
        let found = read_speed_select(&mut kernel).unwrap().unwrap();
        assert_eq!(
            found.unread_in_words(),
            [
                "cpu4@0/core: `7` is not expected there",
                "0.0/core_power: `on` is not expected there"
            ]
        );
    }

    /// Registers of classes say something there, too.
    #[test]
    fn cores_of_a_domain_without_core_power_have_no_class_of_service() {
        let mut kernel = kernel(&facts());
        kernel.files.remove(&format!("{SPEED_SELECT_DEVICE}/0.0/core_power"));
        let found = read_speed_select(&mut kernel).unwrap().unwrap();
        let has_classes = |domain: &PowerDomain| {
            !domain.clos.is_empty() || domain.cores.iter().any(|core| core.clos.is_some())
        };
        let found: Vec<bool> = found.domains.iter().map(has_classes).collect();
        assert_eq!(found, [false, true]);
    }

    #[test]
    fn no_device_is_nothing_and_what_is_missing_of_one_is_missing() {
        assert_eq!(read_speed_select(&mut kernel(&SpeedSelect::default())), None);
        let mut kernel = kernel(&facts());
        kernel.files.retain(|path, _| path.starts_with("sys") || path.ends_with("/core"));
        let found = read_speed_select(&mut kernel).unwrap().unwrap();
        assert_eq!(found.domains.len(), 2);
        assert_eq!(found.domains[0].cores[1].cpus.to_string(), "1,5");
        assert!(found.domains.iter().all(|it| it.core_power.is_none() && it.clos.is_empty()));
    }

    /// A device that answers every question so.
    struct Refusing(Errno);

    impl Kernel for Refusing {
        fn read(&mut self, path: &str) -> Result<String, Errno> {
            if path.starts_with(SPEED_SELECT_DEVICE) { Err(self.0) } else { Ok("0\n".to_owned()) }
        }

        fn write(&mut self, _: &str, _: &str) -> Result<(), Errno> {
            Err(self.0)
        }

        fn list(&mut self, _: &str) -> Result<Vec<String>, Errno> {
            Ok(vec!["cpu0".to_owned(), "cpu1".to_owned(), "cpufreq".to_owned()])
        }

        fn make_dir(&mut self, _: &str) -> Result<(), Errno> {
            Err(self.0)
        }

        fn remove_dir(&mut self, _: &str) -> Result<(), Errno> {
            Err(self.0)
        }
    }

    #[test]
    fn a_device_that_cannot_be_asked_is_told_with_the_reason() {
        for (errno, expected) in [
            (Errno::ENOENT, None),
            (Errno::EOPNOTSUPP, Some("mailboxes")),
            (Errno::EPERM, Some("CAP_SYS_ADMIN")),
            (Errno::ENOTTY, Some("another device")),
            (Errno::ENODEV, Some("no device")),
            (Errno::EIO, Some("EIO")),
        ] {
            let found = read_speed_select(&mut Refusing(errno)).map(Result::unwrap_err);
            let is_so = match (&found, expected) {
                (Some(found), Some(expected)) => found.contains(expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_so, "{errno}: {found:?}");
        }
    }
}
