//! The frequency of what the CPUs of a die share. In: its range, and the classes of its CPUs. Out: settings.
//!
//! The highest of the limits counts; a CPU of a class that names no highest frequency wishes no limit. The hardware counts in steps of 100 MHz, and
//! the driver rounds down to them (`Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst`; `uncore-frequency.c`).

use bayplan_types::Khz;

use super::class::Frequency;
use super::frequency::share;
use super::offer::UncoreOffer;
use super::problems::{Problems, Teller, named};
use super::wearer::{Wearer, put};
use crate::setting::{Form, Settings};

const STEP: u64 = 100_000;

/// Adds the settings of one directory.
pub(super) fn uncore_settings(
    offer: &UncoreOffer,
    wearers: &[Wearer<'_>],
    settings: &mut Settings,
    problems: &mut Problems,
) {
    let (mut lowest, mut highest): (Option<Khz>, Option<Khz>) = (None, None);
    let mut without = offer.cpus.clone();
    for Wearer { name, class, cpus } in wearers {
        let mut teller = problems.about(name, cpus);
        let max = class.uncore_max.and_then(|it| resolve(offer, it, "highest", None, &mut teller));
        let min = class.uncore_min.and_then(|it| resolve(offer, it, "lowest", max, &mut teller));
        if max.is_some() {
            without.subtract(cpus);
        }
        (lowest, highest) = (lowest.max(min), highest.max(max));
    }
    if !without.is_empty() && highest.is_some() {
        let limiting = wearers.iter().filter(|it| it.class.uncore_max.is_some());
        for Wearer { name, cpus, .. } in limiting {
            problems.about(name, cpus).tell(format!(
                "highest uncore frequency: {} use the same uncore and name none, so it stays as it was",
                named(&without)
            ));
        }
        highest = None;
    }
    if let Some((min, max)) = lowest.zip(highest).filter(|(min, max)| min > max) {
        for Wearer { name, cpus, .. } in wearers {
            problems.about(name, cpus).tell(format!(
                "lowest uncore frequency: {min} is above the highest, {max}, which it gets"
            ));
        }
        lowest = Some(max);
    }
    let names: Vec<&str> = wearers.iter().map(|it| it.name).collect();
    let names = names.join("\", \"");
    let mut set = |file: &str, form, khz: Khz, what: &str| {
        let reason = format!("class \"{names}\": {what} uncore frequency");
        let path = format!("{}/{file}", offer.dir);
        put(settings, path, form, khz.0.to_string(), &offer.cpus, reason);
    };
    if let Some(min) = lowest {
        let highest = format!("{}/max_freq_khz", offer.dir);
        set("min_freq_khz", Form::Lowest { highest }, min, "lowest");
    }
    if let Some(max) = highest {
        set("max_freq_khz", Form::Highest, max, "highest");
    }
}

fn resolve(
    offer: &UncoreOffer,
    frequency: Frequency,
    end: &str,
    class_max: Option<Khz>,
    teller: &mut Teller<'_>,
) -> Option<Khz> {
    let range = offer.min.zip(offer.max).filter(|(min, max)| min <= max);
    let Some((min, max)) = range else {
        teller
            .tell(format!("{end} uncore frequency {frequency}: the driver does not say its range"));
        return None;
    };
    let khz = match frequency {
        Frequency::Min => min,
        Frequency::Max => max,
        Frequency::Exactly(khz) => khz,
        Frequency::Percent(percent) => share(min, max, percent),
        Frequency::BelowMax(less) => {
            Khz(class_max.unwrap_or(max).0.saturating_sub(less.0)).max(min)
        }
        Frequency::Base => {
            teller.tell(format!("{end} uncore frequency base: there is none; name a number, min, max or a percentage"));
            return None;
        }
    };
    let inside = khz.clamp(min, max);
    if inside != khz {
        teller.tell(format!(
            "{end} uncore frequency {frequency}: the driver offers {min} to {max}, so it is {inside}"
        ));
    }
    Some(Khz(inside.0 / STEP * STEP))
}
