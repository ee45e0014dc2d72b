//! What this machine offers for frequency and sleep of its CPUs. In: kernel files. Out: a [`PowerOffer`], facts without judgement.
//!
//! Drivers differ in the files that they have, and virtual machines have none: what is missing or cannot be understood is not offered.
//! `Documentation/admin-guide/pm/cpufreq.rst` ("Policy Interface in sysfs"), `cpuidle.rst` ("Representation of Idle States in sysfs"), `intel_pstate.rst`,
//! `amd-pstate.rst`, `intel_uncore_frequency_scaling.rst`. Frequency policies have directories of their own since Linux 4.3.

#[cfg(test)]
mod machine;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::str::FromStr;

use bayplan_enforcement::power::{
    IdleOffer, IdleState, PolicyOffer, PowerOffer, TurboSwitch, UncoreOffer,
};
use bayplan_types::{CpuId, CpuSet, Khz};

use crate::kernel::Kernel;
use crate::kernel_files::plain_number;
use crate::uncore_domains::{UncoreDomain, uncore_domains};

const CPUS: &str = "sys/devices/system/cpu";

/// Reads what can be set.
pub fn read_power(kernel: &mut dyn Kernel) -> PowerOffer {
    let mut reader = Reader { kernel };
    let turbo = [TurboSwitch::NoTurbo, TurboSwitch::Boost];
    let turbo = turbo.into_iter().find(|switch| reader.text(switch.path()).is_some());
    let dies = reader.dies();
    let misc = reader.kernel.list("sys/class/misc").unwrap_or_default();
    PowerOffer {
        policies: reader.policies(turbo),
        idle: reader.idle(),
        uncores: reader.uncores(&dies),
        packages: packages(&dies),
        turbo,
        has_speed_select: misc.iter().any(|name| name == "isst_interface"),
    }
}

/// A CPU, its package, and its die there.
type Die = (CpuId, (u32, u32));

/// The CPUs of each; those that are offline are in none.
fn packages(dies: &[Die]) -> Vec<CpuSet> {
    let mut packages: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for (cpu, (package, _)) in dies {
        packages.entry(*package).or_default().insert(*cpu);
    }
    packages.into_values().collect()
}

struct Reader<'a> {
    kernel: &'a mut dyn Kernel,
}

impl Reader<'_> {
    fn text(&mut self, path: &str) -> Option<String> {
        let text = self.kernel.read(path).ok()?;
        let text = text.trim();
        (!text.is_empty() && !text.contains(char::is_control)).then(|| text.to_owned())
    }

    fn value<T: FromStr>(&mut self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// In kHz; 0 is what drivers say that do not know.
    fn khz(&mut self, path: &str) -> Option<Khz> {
        self.value(path).filter(|khz| *khz > 0).map(Khz)
    }

    fn words(&mut self, path: &str) -> Vec<String> {
        let text = self.text(path).unwrap_or_default();
        text.split_ascii_whitespace().map(str::to_owned).collect()
    }

    /// Numbers behind a prefix in the names of a directory, ascending.
    fn numbered(&mut self, dir: &str, prefix: &str) -> Vec<u32> {
        let names = self.kernel.list(dir).unwrap_or_default();
        let numbers = names.iter().filter_map(|it| plain_number(it.strip_prefix(prefix)?));
        let mut numbers: Vec<u32> = numbers.collect();
        numbers.sort_unstable();
        numbers
    }

    fn policies(&mut self, turbo: Option<TurboSwitch>) -> Vec<PolicyOffer> {
        // With this driver the highest frequency is that with turbo on some kernels even while there is none.
        let is_without_turbo = turbo == Some(TurboSwitch::NoTurbo)
            && self.text(TurboSwitch::NoTurbo.path()).as_deref() == Some("1");
        let above = format!("{CPUS}/cpufreq");
        let dirs = self.numbered(&above, "policy").into_iter();
        let dirs: Vec<String> = dirs.map(|number| format!("{above}/policy{number}")).collect();
        let policies = dirs.into_iter().filter_map(|dir| self.policy(dir, is_without_turbo));
        policies.collect()
    }

    /// A policy without an online CPU is left out.
    fn policy(&mut self, dir: String, is_without_turbo: bool) -> Option<PolicyOffer> {
        let cpus = self.words(&format!("{dir}/affected_cpus"));
        let cpus: CpuSet = cpus.iter().filter_map(|it| plain_number(it)).map(CpuId).collect();
        let first = cpus.first()?;
        let mut steps: Vec<Khz> = Vec::new();
        for file in ["scaling_available_frequencies", "scaling_boost_frequencies"] {
            let words = self.words(&format!("{dir}/{file}"));
            steps.extend(words.iter().filter_map(|it| it.parse().ok()).map(Khz));
        }
        let has_boost_steps = self.text(&format!("{dir}/scaling_boost_frequencies")).is_some();
        let normal = self.words(&format!("{dir}/scaling_available_frequencies"));
        let highest = normal.iter().filter_map(|it| it.parse().ok()).map(Khz).max();
        steps.sort_unstable();
        steps.dedup();
        let nominal = self.value(&format!("{CPUS}/cpu{first}/acpi_cppc/nominal_freq"));
        let base = self.khz(&format!("{dir}/base_frequency"));
        let base = base.or(base_of(&steps, highest.filter(|_| has_boost_steps)));
        // Megahertz (Documentation/admin-guide/acpi/cppc_sysfs.rst).
        let base =
            base.or(nominal.filter(|mhz| *mhz > 0).map(|mhz: u64| Khz(mhz.saturating_mul(1000))));
        let max = self.khz(&format!("{dir}/cpuinfo_max_freq"));
        Some(PolicyOffer {
            cpus,
            driver: self.text(&format!("{dir}/scaling_driver")).unwrap_or_default(),
            min: self.khz(&format!("{dir}/cpuinfo_min_freq")),
            max: max.map(|max| base.filter(|_| is_without_turbo).map_or(max, |base| max.min(base))),
            base,
            steps,
            governors: self.words(&format!("{dir}/scaling_available_governors")),
            preferences: self.words(&format!("{dir}/energy_performance_available_preferences")),
            has_boost: self.text(&format!("{dir}/boost")).is_some(),
            dir,
        })
    }

    fn idle(&mut self) -> BTreeMap<CpuId, IdleOffer> {
        let mut offers = BTreeMap::new();
        for cpu in self.numbered(CPUS, "cpu") {
            let dir = format!("{CPUS}/cpu{cpu}");
            let mut states = Vec::new();
            for number in self.numbered(&format!("{dir}/cpuidle"), "state") {
                let state = format!("{dir}/cpuidle/state{number}");
                let name = self.text(&format!("{state}/name"));
                let latency_us = self.value(&format!("{state}/latency"));
                // What cannot be switched off is not offered.
                let disable = self.text(&format!("{state}/disable"));
                if let (Some(name), Some(latency_us), Some(_)) = (name, latency_us, disable) {
                    states.push(IdleState { number, name, latency_us });
                }
            }
            let limit = format!("{dir}/power/pm_qos_resume_latency_us");
            let has_latency_limit = self.text(&limit).is_some();
            if has_latency_limit || !states.is_empty() {
                offers.insert(CpuId(cpu), IdleOffer { states, has_latency_limit });
            }
        }
        offers
    }

    /// Newer processors have a directory for each power domain beside one for the package, which is made of them: these are the finer ones.
    fn uncores(&mut self, dies: &[Die]) -> Vec<UncoreOffer> {
        let domains = uncore_domains(self.kernel);
        if domains.is_empty() {
            return Vec::new();
        }
        let mut offers = Vec::with_capacity(domains.len());
        for UncoreDomain { dir, package, die, .. } in domains {
            let is_here =
                |place: &(u32, u32)| place.0 == package && die.is_none_or(|it| it == place.1);
            let cpus = dies.iter().filter(|(_, place)| is_here(place)).map(|(cpu, _)| *cpu);
            offers.push(UncoreOffer {
                cpus: cpus.collect(),
                min: self.khz(&format!("{dir}/initial_min_freq_khz")),
                max: self.khz(&format!("{dir}/initial_max_freq_khz")),
                dir,
            });
        }
        offers.retain(|offer| !offer.cpus.is_empty());
        offers
    }

    /// Package and die of each CPU; the die is 0 where the kernel knows none.
    fn dies(&mut self) -> Vec<Die> {
        let cpus = self.numbered(CPUS, "cpu").into_iter();
        let dies = cpus.filter_map(|cpu| {
            let topology = format!("{CPUS}/cpu{cpu}/topology");
            let package = self.value(&format!("{topology}/physical_package_id"))?;
            let die = self.value(&format!("{topology}/die_id")).unwrap_or(0);
            Some((CpuId(cpu), (package, die)))
        });
        dies.collect()
    }
}

/// The highest frequency without turbo of a table: where turbo has frequencies of its own, the highest of the others; where firmware stands for it by one step of
/// 1 MHz above the highest, as on Intel's processors, the one below that.
fn base_of(steps: &[Khz], highest_without_boost: Option<Khz>) -> Option<Khz> {
    let by_table = match steps {
        [.., below, top] if top.0 - below.0 == 1000 => Some(*below),
        _ => None,
    };
    highest_without_boost.or(by_table)
}
