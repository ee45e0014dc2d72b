//! The frequency of the CPUs of one policy. In: what the policy offers, and the classes of its CPUs. Out: settings of its files.
//!
//! Each class is first held against what the driver offers. Where the CPUs of a policy have several classes, the fastest of what they wish counts,
//! value by value: a class that names no highest frequency wishes no limit, and one that names no governor is not slowed down by another's. Where one
//! end of the range is named, the other is that of the CPU. The kernel rounds to the steps that a table has, the lowest frequency up and the highest
//! down (`cpufreq.c`, `cpufreq_set_policy`), and so do we, because the files are read back (`Documentation/admin-guide/pm/cpufreq.rst`, "Policy
//! Interface in sysfs").

use bayplan_types::Khz;

use super::class::{Frequency, PowerClass, Preference};
use super::offer::{PolicyOffer, TurboSwitch};
use super::problems::{Problems, Teller, named};
use super::wearer::{Wearer, asks_frequency, put};
use crate::setting::{Form, Settings};

/// Governors, slowest first; those not named here lie in between.
const SLOWEST: [&str; 2] = ["powersave", "conservative"];
const FASTEST: &str = "performance";

/// What one class means for one policy.
#[derive(Clone, Debug, Default)]
struct Wish<'a> {
    governor: Option<&'a str>,
    min: Option<Khz>,
    max: Option<Khz>,
    preference: Option<Preference>,
    boost: Option<bool>,
    /// For the switch of the whole machine.
    turbo: Option<bool>,
}

/// Adds the settings of one policy. Answers what its CPUs wish of the machine's switch for turbo.
pub(super) fn policy_settings(
    policy: &PolicyOffer,
    wearers: &[Wearer<'_>],
    switch: Option<TurboSwitch>,
    settings: &mut Settings,
    problems: &mut Problems,
) -> Option<bool> {
    let mut wishes: Vec<Wish<'_>> = Vec::with_capacity(wearers.len());
    for Wearer { name, class, cpus } in wearers {
        wishes.push(wish(policy, class, switch, &mut problems.about(name, cpus)));
    }
    let dressed: usize = wearers.iter().map(|it| it.cpus.len()).sum();
    if dressed < policy.cpus.len() {
        wishes.push(Wish::default());
    }
    if wishes.len() > 1 {
        tell_sharing(policy, wearers, problems);
    }
    let mut wish = fastest(&wishes);
    // Drivers show one end inside the other: a class that moves one end says where the other is, or else it would be remembered wrongly.
    if wish.min.is_some() || wish.max.is_some() {
        (wish.min, wish.max) = (wish.min.or(policy.min), wish.max.or(policy.max));
    }
    let names: Vec<&str> = wearers.iter().map(|it| it.name).collect();
    let names = names.join("\", \"");
    let mut set = |file: &str, form, value: String, what: &str| {
        let reason = format!("class \"{names}\": {what}");
        put(settings, format!("{}/{file}", policy.dir), form, value, &policy.cpus, reason);
    };
    if let Some(is_on) = wish.boost {
        set("boost", Form::Mode, u8::from(is_on).to_string(), "turbo");
    }
    if let Some(governor) = wish.governor {
        set("scaling_governor", Form::Mode, governor.to_owned(), "governor");
    }
    if let Some(preference) = wish.preference {
        let form = match policy.is_active() {
            true => Form::Preference { governor: format!("{}/scaling_governor", policy.dir) },
            false => Form::Text,
        };
        set("energy_performance_preference", form, preference.to_string(), "preference");
    }
    if let Some(min) = wish.min {
        let highest = format!("{}/scaling_max_freq", policy.dir);
        set("scaling_min_freq", Form::Lowest { highest }, min.0.to_string(), "lowest frequency");
    }
    if let Some(max) = wish.max {
        set("scaling_max_freq", Form::Highest, max.0.to_string(), "highest frequency");
    }
    wish.turbo
}

fn tell_sharing(policy: &PolicyOffer, wearers: &[Wearer<'_>], problems: &mut Problems) {
    let mut rest = policy.cpus.clone();
    for wearer in wearers {
        rest.subtract(&wearer.cpus);
    }
    for Wearer { name, cpus, .. } in wearers.iter().filter(|it| asks_frequency(it.class)) {
        let others = wearers.iter().filter(|other| other.name != *name);
        let mut company: Vec<String> = others
            .map(|other| format!("{} of class \"{}\"", named(&other.cpus), other.name))
            .collect();
        if !rest.is_empty() {
            company.push(format!("{} without a class", named(&rest)));
        }
        let company = company.join(" and ");
        let text =
            format!("the frequency is set together with {company}: the faster request counts");
        problems.about(name, cpus).tell(text);
    }
}

/// Value by value. No governor and no preference is what was before: faster than everything that is not the fastest.
fn fastest<'a>(wishes: &[Wish<'a>]) -> Wish<'a> {
    let all = || wishes.iter();
    let switch = |it: &Option<bool>| it.map_or(1, |is_on| 2 * u8::from(is_on));
    Wish {
        governor: all().map(|it| it.governor).max_by_key(|it| speed(*it)).flatten(),
        min: all().filter_map(|it| it.min).max(),
        max: if all().any(|it| it.max.is_none()) {
            None
        } else {
            all().filter_map(|it| it.max).max()
        },
        preference: all().map(|it| it.preference).max_by_key(|it| preferred(*it)).flatten(),
        boost: all().map(|it| it.boost).max_by_key(switch).flatten(),
        turbo: all().map(|it| it.turbo).max_by_key(switch).flatten(),
    }
}

fn speed(governor: Option<&str>) -> usize {
    let slow = |it| SLOWEST.iter().position(|slow| *slow == it);
    match governor {
        Some(FASTEST) => SLOWEST.len() + 2,
        None => SLOWEST.len() + 1,
        Some(it) => slow(it).unwrap_or(SLOWEST.len()),
    }
}

fn preferred(preference: Option<Preference>) -> (bool, bool, Option<Preference>) {
    (preference == Some(Preference::Performance), preference.is_none(), preference)
}

/// What a class comes to here.
fn wish<'a>(
    policy: &PolicyOffer,
    class: &'a PowerClass,
    switch: Option<TurboSwitch>,
    teller: &mut Teller<'_>,
) -> Wish<'a> {
    let mut wish = Wish::default();
    (wish.governor, wish.preference) = governor_and_preference(policy, class, teller);
    let mut max = class.max;
    let mut ceiling = None;
    match class.turbo {
        Some(true) => {
            max = max.or(policy.max.map(|_| Frequency::Max));
            match switch {
                _ if policy.has_boost => wish.boost = Some(true),
                Some(_) => wish.turbo = Some(true),
                None => {}
            }
        }
        // To stay below the base frequency needs no switch and is no other CPU's business.
        Some(false) if policy.base.is_some() => {
            (ceiling, max) = (policy.base, max.or(Some(Frequency::Base)));
        }
        Some(false) if policy.has_boost => wish.boost = Some(false),
        Some(false) if switch.is_some() => wish.turbo = Some(false),
        Some(false) => teller.tell(format!(
            "no turbo: {} has no switch for it and does not say which frequency is the highest without",
            driver(policy)
        )),
        None => {}
    }
    wish.max = max.and_then(|it| resolve(policy, it, "highest", None, teller));
    if let Some(ceiling) = ceiling {
        wish.max = wish.max.map(|max| max.min(ceiling));
    }
    wish.min = class.min.and_then(|it| resolve(policy, it, "lowest", wish.max, teller));
    if let Some((min, max)) = wish.min.zip(wish.max).filter(|(min, max)| min > max) {
        let text =
            format!("the lowest frequency, {min}, is above the highest, {max}, which it gets");
        teller.tell(text);
    }
    wish.max = wish.max.map(|max| step_down(&policy.steps, max));
    let min = wish.min.map(|min| step_up(&policy.steps, min));
    wish.min = min.map(|min| wish.max.map_or(min, |max| min.min(max)));
    wish
}

fn driver(policy: &PolicyOffer) -> &str {
    if policy.driver.is_empty() { "the frequency driver" } else { &policy.driver }
}

fn step_up(steps: &[Khz], khz: Khz) -> Khz {
    steps.iter().copied().find(|step| *step >= khz).or(steps.last().copied()).unwrap_or(khz)
}

fn step_down(steps: &[Khz], khz: Khz) -> Khz {
    let below = steps.iter().rev().copied().find(|step| *step <= khz);
    below.or(steps.first().copied()).unwrap_or(khz)
}

/// A frequency of a class in this policy, inside what the policy can do.
fn resolve(
    policy: &PolicyOffer,
    frequency: Frequency,
    end: &str,
    class_max: Option<Khz>,
    teller: &mut Teller<'_>,
) -> Option<Khz> {
    let range = policy.min.zip(policy.max);
    let resolved = match frequency {
        Frequency::Min => policy.min,
        Frequency::Base => policy.base,
        Frequency::Max => policy.max,
        Frequency::Exactly(khz) => Some(khz),
        Frequency::Percent(percent) => range.map(|(min, max)| share(min, max, percent)),
        Frequency::BelowMax(less) => {
            let max = class_max.or(policy.max);
            max.map(|max| Khz(max.0.saturating_sub(less.0)).max(policy.min.unwrap_or_default()))
        }
    };
    let Some(khz) = resolved else {
        teller.tell(format!("{end} frequency {frequency}: {} does not say it", driver(policy)));
        return None;
    };
    let Some((min, max)) = range.filter(|(min, max)| min <= max) else { return Some(khz) };
    let inside = khz.clamp(min, max);
    if inside != khz {
        teller.tell(format!(
            "{end} frequency {frequency}: {} offers {min} to {max}, so it is {inside}",
            driver(policy)
        ));
    }
    Some(inside)
}

/// Between the lowest (0) and the highest (100).
pub(super) fn share(min: Khz, max: Khz, percent: u8) -> Khz {
    let range = max.0.saturating_sub(min.0);
    Khz(min.0 + range / 100 * u64::from(percent) + range % 100 * u64::from(percent) / 100)
}

/// What the driver takes of both. With an active driver a preference needs the governor `powersave`, and `performance` brings its own, which is set,
/// too, so that it is given back with the governor (amd-pstate keeps it otherwise).
fn governor_and_preference<'a>(
    policy: &PolicyOffer,
    class: &'a PowerClass,
    teller: &mut Teller<'_>,
) -> (Option<&'a str>, Option<Preference>) {
    let offered = |list: &[String], word: &str| list.iter().any(|it| it == word);
    let governor = class.governor.as_deref().filter(|wanted| {
        let is_offered = policy.governors.is_empty() || offered(&policy.governors, wanted);
        if !is_offered {
            let list = policy.governors.join(", ");
            teller.tell(format!("governor {wanted}: {} offers {list}", driver(policy)));
        }
        is_offered
    });
    let preference = class.preference.filter(|wanted| {
        let is_offered = offered(&policy.preferences, wanted.name());
        if !is_offered {
            let list = match policy.preferences.is_empty() {
                true => "none".to_owned(),
                false => policy.preferences.join(", "),
            };
            teller.tell(format!("preference {wanted}: {} offers {list}", driver(policy)));
        }
        is_offered
    });
    if !policy.is_active() {
        return (governor, preference);
    }
    match (governor, preference) {
        (Some(FASTEST), wanted) => {
            if let Some(wanted) = wanted.filter(|it| *it != Preference::Performance) {
                teller.tell(format!(
                    "preference {wanted}: {} takes none but performance under the governor performance",
                    driver(policy)
                ));
            }
            let own = Preference::Performance;
            (governor, offered(&policy.preferences, own.name()).then_some(own))
        }
        (None, Some(wanted)) if wanted != Preference::Performance => {
            (offered(&policy.governors, "powersave").then_some("powersave"), preference)
        }
        _ => (governor, preference),
    }
}
