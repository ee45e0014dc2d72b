//! Frequency and sleep of CPUs. In: classes, what the machine offers, and which CPUs have which class. Out: settings, and what of the classes
//! cannot be had here, in words.
//!
//! A *class* says what is asked for the CPUs that have it; a CPU has one class or none. What no class asks stays as it was, and what a
//! class does not ask any more is given back by the plan ([`plan_files`](crate::plan_files)).
//! Guarantees: only files that are offered are named; no value is named that the driver says it does not take; each CPU's highest frequency is at
//! least the lowest; the more CPUs without a class share something with those of a class, the less of it is set.
//! The files are those of Documentation/admin-guide/pm/cpufreq.rst, "Policy Interface in sysfs", cpuidle.rst, "Representation of Idle States in sysfs", and
//! intel_uncore_frequency_scaling.rst.

mod class;
mod frequency;
mod idle;
mod offer;
mod problems;
mod profile;
#[cfg(test)]
mod tests;
mod turbo;
mod uncore;
mod wearer;

use std::collections::BTreeMap;

use bayplan_types::CpuSet;

pub use class::{Frequency, Latency, ParsePowerError, PowerClass, Preference};
pub use offer::{IdleOffer, IdleState, PolicyOffer, PowerOffer, TurboSwitch, UncoreOffer};
pub use profile::{profile, profile_names};
pub use turbo::{TurboDomain, TurboShared, arbitrate_turbo};

use crate::setting::{Form, Setting, Settings, Slot};
use problems::Problems;
use wearer::{Wearer, asks_frequency};

/// Settings for all CPUs that have a class. `assigned` says for classes by name which CPUs these are; they must not overlap. The texts say what of the
/// classes is not fulfilled as it is, where, and what is offered instead.
pub fn settings_for_power(
    classes: &BTreeMap<String, PowerClass>,
    offer: &PowerOffer,
    assigned: &BTreeMap<String, CpuSet>,
) -> (Settings, Vec<String>) {
    let (mut settings, mut problems) = (Settings::new(), Problems::default());
    let mut turbo: Vec<Option<bool>> = Vec::with_capacity(offer.policies.len());
    let mut with_policy = CpuSet::new();
    for policy in &offer.policies {
        with_policy.union_with(&policy.cpus);
        let wearers = wearers_in(classes, assigned, Some(&policy.cpus));
        let (switch, settings) = (offer.turbo, &mut settings);
        turbo.push(match wearers.as_slice() {
            [] => None,
            wearers => frequency::policy_settings(policy, wearers, switch, settings, &mut problems),
        });
    }
    if let Some(switch) = offer.turbo {
        machine_turbo(switch, &turbo, classes, assigned, &mut settings, &mut problems);
    }
    for uncore in &offer.uncores {
        let wearers = wearers_in(classes, assigned, Some(&uncore.cpus));
        uncore::uncore_settings(uncore, &wearers, &mut settings, &mut problems);
    }
    for Wearer { name, class, cpus } in wearers_in(classes, assigned, None) {
        let without = cpus.difference(&with_policy);
        if asks_frequency(class) && !without.is_empty() {
            problems
                .about(name, &without)
                .tell("frequency: the kernel has no frequency driver for them");
        }
        if offer.uncores.is_empty() && (class.uncore_min.is_some() || class.uncore_max.is_some()) {
            problems.about(name, &cpus).tell("uncore frequency: the kernel has no driver for it");
        }
        for cpu in &cpus.iter().collect::<Vec<_>>() {
            let alone = CpuSet::from(*cpu);
            let mut teller = problems.about(name, &alone);
            idle::idle_settings(*cpu, offer.idle.get(cpu), name, class, &mut settings, &mut teller);
        }
    }
    (settings, problems.into_texts())
}

/// The classes of these CPUs, or of all, each with its CPUs among them. Names that are no class wear nothing.
fn wearers_in<'a>(
    classes: &'a BTreeMap<String, PowerClass>,
    assigned: &'a BTreeMap<String, CpuSet>,
    among: Option<&CpuSet>,
) -> Vec<Wearer<'a>> {
    let known = assigned.iter().filter_map(|(name, cpus)| {
        let cpus = among.map_or_else(|| cpus.clone(), |among| cpus.intersection(among));
        let class = classes.get(name).filter(|_| !cpus.is_empty())?;
        Some(Wearer { name, class, cpus })
    });
    known.collect()
}

/// One class with turbo is enough to switch it on, and all must want none to switch it off.
fn machine_turbo(
    switch: TurboSwitch,
    wishes: &[Option<bool>],
    classes: &BTreeMap<String, PowerClass>,
    assigned: &BTreeMap<String, CpuSet>,
    settings: &mut Settings,
    problems: &mut Problems,
) {
    let is_on = match wishes {
        _ if wishes.contains(&Some(true)) => true,
        [] => return,
        _ if wishes.iter().all(|it| *it == Some(false)) => false,
        _ => {
            if wishes.contains(&Some(false)) {
                let slow = wearers_in(classes, assigned, None);
                for Wearer { name, cpus, .. } in
                    slow.iter().filter(|it| it.class.turbo == Some(false))
                {
                    let text =
                        "no turbo: the only switch is the machine's, and not all CPUs want it off";
                    problems.about(name, cpus).tell(text);
                }
            }
            return;
        }
    };
    let names =
        assigned.keys().filter(|it| classes.get(*it).is_some_and(|it| it.turbo == Some(is_on)));
    let names = names.cloned().collect::<Vec<_>>().join("\", \"");
    let setting = Setting {
        form: Form::Mode,
        value: switch.text(is_on).to_owned(),
        unit: "machine".to_owned(),
        reason: format!("class \"{names}\": turbo"),
    };
    settings.insert(Slot::file(switch.path()), setting);
}
