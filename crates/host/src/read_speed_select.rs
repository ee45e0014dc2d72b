//! What the device of Intel Speed Select says of this machine. In: settings as texts with names (those of the crate `isst`), below the device's path as if it were a directory. Out: a
//! [`SpeedSelect`], facts without judgement; and back to the files that stand for it in a recorded machine.
//!
//! Each CPU is asked for its domain and core, and domains and cores that were named so for the rest: about as many questions as there are CPUs and cores.

use std::collections::BTreeMap;
use std::str::FromStr;

use bayplan_types::{
    CLOS_COUNT, ClosLimits, CpuId, CpuSet, PackageId, PerformanceProfile, PowerCore, PowerDomain,
    SPEED_SELECT_DEVICE, SpeedSelect,
};
use nix::errno::Errno;

use crate::kernel::Kernel;
use crate::kernel_files::plain_number;

const CPUS: &str = "sys/devices/system/cpu";

/// What is said of the CPUs that are online; `None`: there is no device.
///
/// # Errors
/// Why a device that is there cannot be asked.
pub fn read_speed_select(kernel: &mut dyn Kernel) -> Option<Result<SpeedSelect, String>> {
    let mut cores: BTreeMap<String, BTreeMap<u16, CpuSet>> = BTreeMap::new();
    let mut refusal = None;
    for (cpu, package) in read_packages(kernel) {
        match kernel.read(&format!("{SPEED_SELECT_DEVICE}/cpu{cpu}@{package}/core")) {
            Ok(text) => {
                let (domain, core) = text.trim().split_once("/core")?;
                let core: u16 = core.parse().ok()?;
                let domain = cores.entry(domain.to_owned()).or_default();
                domain.entry(core).or_default().insert(cpu);
            }
            // No device answers so for every CPU.
            Err(Errno::ENOENT | Errno::ENODEV | Errno::ENOTDIR) if cores.is_empty() => return None,
            Err(errno) => refusal = Some(errno),
        }
    }
    match refusal {
        Some(errno) if cores.is_empty() => Some(Err(why(errno))),
        _ if cores.is_empty() => None,
        _ => {
            let domains = cores.into_iter().map(|(name, cores)| read_domain(kernel, name, cores));
            Some(Ok(SpeedSelect { domains: domains.collect() }))
        }
    }
}

/// In words for an operator.
fn why(errno: Errno) -> String {
    match errno {
        Errno::EOPNOTSUPP => "the driver asks this processor by mailboxes, which Bayplan does not speak; processors since Granite Rapids and Sierra Forest have TPMI".to_owned(),
        Errno::EACCES | Errno::EPERM => format!(
            "/{SPEED_SELECT_DEVICE} refuses this process ({errno}); it takes root with CAP_SYS_ADMIN, and a unit or a container that allows the device"
        ),
        Errno::ENOTTY => format!("/{SPEED_SELECT_DEVICE} is another device"),
        errno => format!("/{SPEED_SELECT_DEVICE}: {errno}"),
    }
}

/// The package of each CPU that is online.
fn read_packages(kernel: &mut dyn Kernel) -> Vec<(CpuId, PackageId)> {
    let names = kernel.list(CPUS).unwrap_or_default();
    let numbers = names.iter().filter_map(|it| plain_number(it.strip_prefix("cpu")?));
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    let package = |cpu: u32| {
        let text = kernel.read(&format!("{CPUS}/cpu{cpu}/topology/physical_package_id")).ok()?;
        Some((CpuId(cpu), PackageId(text.trim().parse().ok()?)))
    };
    numbers.into_iter().filter_map(package).collect()
}

fn read_domain(kernel: &mut dyn Kernel, name: String, cores: BTreeMap<u16, CpuSet>) -> PowerDomain {
    let dir = format!("{SPEED_SELECT_DEVICE}/{name}");
    let features = kernel.read(&format!("{dir}/features")).unwrap_or_default();
    let is_on = |feature: &str| features.split_ascii_whitespace().any(|it| it == feature);
    let clos = (0..CLOS_COUNT).map_while(|number| {
        let dir = format!("{dir}/clos{number}");
        Some(ClosLimits {
            min_mhz: value(kernel, &format!("{dir}/min_mhz"))?,
            max_mhz: value(kernel, &format!("{dir}/max_mhz"))?,
            weight: value(kernel, &format!("{dir}/weight"))?,
        })
    });
    let clos = clos.collect();
    let profile: Option<PerformanceProfile> = value(kernel, &format!("{dir}/profile"));
    let core_power = value(kernel, &format!("{dir}/core_power"));
    let cores = cores.into_iter().map(|(number, cpus)| PowerCore {
        number,
        cpus,
        clos: value(kernel, &format!("{dir}/core{number}/clos")),
    });
    PowerDomain {
        core_power,
        clos,
        profile,
        is_base_frequency_on: is_on("bf"),
        is_turbo_frequency_on: is_on("tf"),
        cores: cores.collect(),
        name,
    }
}

fn value<T: FromStr>(kernel: &mut dyn Kernel, path: &str) -> Option<T> {
    kernel.read(path).ok()?.trim().parse().ok()
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
            put(in_domain("core_power"), power.to_string());
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
    files
}

#[cfg(test)]
mod tests {
    use bayplan_types::CorePower;

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
        SpeedSelect { domains: vec![domain("0.0", first), domain("1.2", vec![core(0, "2", 1)])] }
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
