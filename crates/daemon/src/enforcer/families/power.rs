//! What is wanted of frequency and sleep. In: which container runs where and what it asks for, the configuration, the time of the day. Out: settings.
//!
//! A CPU has the class of what may run on it: a container that owns it, system pods, shared containers, or nothing.

use std::collections::BTreeMap;

use bayplan_enforcement::power::{
    Latency, PowerClass, PowerOffer, TurboShared, arbitrate_turbo, settings_for_power,
};
use bayplan_enforcement::speed_select::settings_for_speed_select;
use bayplan_host::kernel::Kernel;
use bayplan_host::{read_core_power, read_power, read_speed_select};
use bayplan_node::occupancy::Occupancy;
use bayplan_types::{CpuSet, PowerDomain, SPEED_SELECT_DEVICE, SpeedSelect};
use bayplan_workload::annotations::{Tuning, WakeUp};
use jiff::civil::Time;

use super::family::{Context, Family};
use super::gathered::Gathered;
use crate::config::{Config, CpuUse};

/// What the machine offers, until it may be something else: reading it takes thousands of small files.
#[derive(Debug, Default)]
struct PowerCache {
    /// What the files said that tell of a change.
    signs: Vec<Option<String>>,
    offer: Option<PowerOffer>,
    /// What Speed Select says, kept only where there is a device and all of it could be read.
    speed_select: Option<Result<SpeedSelect, String>>,
}

/// Where CPUs that come and go are seen, another driver, and the switches for turbo.
const SIGNS: [&str; 5] = [
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/intel_pstate/status",
    "sys/devices/system/cpu/intel_pstate/no_turbo",
    "sys/devices/system/cpu/amd_pstate/status",
    "sys/devices/system/cpu/cpufreq/boost",
];

impl PowerCache {
    /// Something was written on which it depends.
    fn clear(&mut self) {
        (self.offer, self.speed_select) = (None, None);
    }

    /// Forgets what may be something else by now.
    fn renew(&mut self, kernel: &mut dyn Kernel) {
        let signs: Vec<_> = SIGNS.iter().map(|path| kernel.read(path).ok()).collect();
        if signs != self.signs {
            self.clear();
            self.signs = signs;
        }
        if self.speed_select.as_ref().is_some_and(|it| is_outdated(it, kernel)) {
            self.speed_select = None;
        }
    }

    fn offer(&mut self, kernel: &mut dyn Kernel) -> &PowerOffer {
        self.offer.get_or_insert_with(|| read_power(kernel))
    }

    fn speed_select(&mut self, kernel: &mut dyn Kernel) -> Option<&Result<SpeedSelect, String>> {
        if self.speed_select.is_none() {
            self.speed_select = read_speed_select(kernel);
        }
        self.speed_select.as_ref()
    }
}

/// Whether Speed Select is to be asked again: something could not be read, or a power domain divides power in another way.
fn is_outdated(known: &Result<SpeedSelect, String>, kernel: &mut dyn Kernel) -> bool {
    let Ok(facts) = known else { return true };
    let is_other =
        |it: &PowerDomain| read_core_power(kernel, &it.name).as_ref() != Ok(&it.core_power);
    !facts.unread.is_empty() || facts.domains.iter().any(is_other)
}

/// The settings of all CPUs that have a class.
#[derive(Debug, Default)]
pub(super) struct Power(PowerCache);

impl Family for Power {
    fn gather(&mut self, context: &mut Context<'_>, gathered: &mut Gathered) {
        let Context { kernel, config, occupancy, time, .. } = context;
        gather_power(&mut **kernel, &mut self.0, config, occupancy, *time, gathered);
    }

    fn forget(&mut self) {
        self.0.clear();
    }
}

fn gather_power(
    kernel: &mut dyn Kernel,
    cache: &mut PowerCache,
    config: &Config,
    occupancy: &Occupancy,
    time: Time,
    gathered: &mut Gathered,
) {
    let mut assigned = Assigned::default();
    assigned.containers(config, occupancy, time);
    assigned.groups(config, occupancy, time);
    assigned.others(config, occupancy, time);
    let Assigned { classes, cpus, problems } = assigned;
    gathered.problems.extend(problems);
    let wish = &config.cpu_classes.speed_select;
    // Without classes nothing is read.
    if cpus.is_empty() && wish.is_empty() {
        return;
    }
    cache.renew(kernel);
    if !wish.is_empty() || classes.values().any(|it| it.clos.is_some()) {
        let offer = cache.speed_select(kernel);
        let (settings, problems) = settings_for_speed_select(&classes, wish, offer, &cpus);
        // What cannot be read for a moment is not given back for that.
        let is_in_part =
            offer.is_some_and(|it| it.as_ref().map_or(true, |it| !it.unread.is_empty()));
        gathered.kept_below.extend(is_in_part.then_some(SPEED_SELECT_DEVICE));
        gathered.add(settings, problems);
    }
    if !cpus.is_empty() {
        let offer = cache.offer(kernel);
        let mut active = CpuSet::new();
        occupancy.occupants.iter().for_each(|it| active.union_with(&it.cpus));
        let domain = config.cpu_classes.turbo_domain;
        let shared = TurboShared { domain, packages: &offer.packages, active: &active };
        let (classes, cpus) = arbitrate_turbo(classes, cpus, shared);
        let (settings, problems) = settings_for_power(&classes, offer, &cpus);
        gathered.add(settings, problems);
    }
}

/// Which CPUs have which class.
#[derive(Debug, Default)]
struct Assigned {
    classes: BTreeMap<String, PowerClass>,
    cpus: BTreeMap<String, CpuSet>,
    problems: Vec<String>,
}

impl Assigned {
    fn put(&mut self, name: &str, class: PowerClass, cpus: &CpuSet) {
        if cpus.is_empty() {
            return;
        }
        self.classes.entry(name.to_owned()).or_insert(class);
        self.cpus.entry(name.to_owned()).or_default().union_with(cpus);
    }

    /// CPUs of their own.
    fn containers(&mut self, config: &Config, occupancy: &Occupancy, time: Time) {
        let usual = config.cpu_classes.uses_at(time).remove(&CpuUse::Exclusive);
        for occupant in &occupancy.occupants {
            let Tuning { cpu_class, cpu_governor, wake_up, .. } = &*occupant.tuning;
            let asks = cpu_class.is_some() || cpu_governor.is_some() || wake_up.is_some();
            if occupant.exclusive.is_empty() {
                if asks {
                    let name = &occupant.name;
                    self.problems
                        .push(format!("frequency and sleep for {name}: it has no exclusive CPUs"));
                }
                continue;
            }
            let of_group =
                occupancy.groups.iter().find(|it| occupant.exclusive.is_subset(&it.cpus));
            let of_group = of_group.and_then(|it| it.cpu_class.clone());
            let chosen =
                cpu_class.clone().and_then(|name| self.known(config, &occupant.name, name));
            let name = chosen.or(of_group).or_else(|| usual.clone());
            let class = name.as_ref().and_then(|name| config.cpu_classes.class(name));
            let Some(class) = class.or_else(|| asks.then(PowerClass::default)) else { continue };
            let name = name.unwrap_or_else(|| "none".to_owned());
            if cpu_governor.is_none() && wake_up.is_none() {
                self.put(&name, class, &occupant.exclusive);
                continue;
            }
            let class = PowerClass {
                governor: cpu_governor.clone().or(class.governor),
                latency: wake_up.map(latency).or(class.latency),
                ..class
            };
            self.put(&format!("{name} for {}", occupant.name), class, &occupant.exclusive);
        }
    }

    /// CPUs of groups, but for those that members have of their own.
    fn groups(&mut self, config: &Config, occupancy: &Occupancy, time: Time) {
        let usual = config.cpu_classes.uses_at(time).remove(&CpuUse::Exclusive);
        for group in &occupancy.groups {
            let named = group.cpu_class.clone();
            let named = named.and_then(|name| self.known(config, &group.name, name));
            let Some(name) = named.or_else(|| usual.clone()) else { continue };
            let Some(class) = config.cpu_classes.class(&name) else { continue };
            let own = occupancy.occupants.iter().map(|it| &it.exclusive);
            let shared = own.fold(group.cpus.clone(), |cpus, own| cpus.difference(own));
            self.put(&name, class, &shared);
        }
    }

    fn known(&mut self, config: &Config, holder: &str, name: String) -> Option<String> {
        if config.cpu_classes.class(&name).is_some() {
            return Some(name);
        }
        self.problems.push(format!(
            "class \"{name}\" for {holder}: there is none of that name; known are {}",
            config.cpu_classes.known()
        ));
        None
    }

    /// CPUs without an owner.
    fn others(&mut self, config: &Config, occupancy: &Occupancy, time: Time) {
        let uses = config.cpu_classes.uses_at(time);
        let mut used = CpuSet::new();
        for occupant in &occupancy.occupants {
            used.union_with(&occupant.cpus);
        }
        let shared = uses.get(&CpuUse::Shared);
        let rows = [
            (uses.get(&CpuUse::Reserved), occupancy.reserved.clone()),
            (shared, occupancy.shared.intersection(&used)),
            (uses.get(&CpuUse::Idle).or(shared), occupancy.shared.difference(&used)),
        ];
        for (name, cpus) in rows {
            let Some(name) = name else { continue };
            if let Some(class) = config.cpu_classes.class(name) {
                self.put(name, class, &cpus);
            }
        }
    }
}

fn latency(wake_up: WakeUp) -> Latency {
    match wake_up {
        WakeUp::Any => Latency::Any,
        WakeUp::AtMostUs(us) => Latency::AtMost(us),
    }
}

#[cfg(test)]
mod tests;
