//! Classes that are there without configuration, by the names of Kubernetes Power Manager's profiles.
//!
//! Each has the range of 200 MHz below a part of what the CPU can do, and the preference of its name. The smallest part is a quarter here.
//! The preferences are the kernel's words: Documentation/admin-guide/pm/intel_pstate.rst, "Energy vs Performance Hints".

use bayplan_types::Khz;

use super::class::{Frequency, PowerClass, Preference};

/// Name, highest frequency in percent of the range, preference. `default` is `power` until a class of that name is defined, as in Power Manager.
const PROFILES: [(&str, u8, Preference); 5] = [
    ("performance", 100, Preference::Performance),
    ("balance-performance", 75, Preference::BalancePerformance),
    ("balance-power", 50, Preference::BalancePower),
    ("power", 25, Preference::Power),
    ("default", 25, Preference::Power),
];
const WIDTH: Khz = Khz(200_000);

/// All names, fastest first, and `default`.
pub fn profile_names() -> impl Iterator<Item = &'static str> {
    PROFILES.iter().map(|(name, _, _)| *name)
}

/// The class of this name, which may have underscores for hyphens.
pub fn profile(name: &str) -> Option<PowerClass> {
    let plain = name.replace('_', "-");
    let (_, percent, preference) = PROFILES.iter().find(|(known, _, _)| *known == plain)?;
    Some(PowerClass {
        min: Some(Frequency::BelowMax(WIDTH)),
        max: Some(Frequency::Percent(*percent)),
        preference: Some(*preference),
        ..PowerClass::default()
    })
}
