//! What a class of CPUs asks of their frequency and sleep, and the words for it. In: texts of a configuration or an annotation. Out: values.
//!
//! The words are the kernel's: Documentation/admin-guide/pm/cpufreq.rst, "Policy Interface in sysfs"; intel_pstate.rst, "Energy vs Performance Hints"; cpuidle.rst, "Representation of Idle States in sysfs".

use std::fmt;
use std::str::FromStr;

use bayplan_types::Khz;

/// What is asked for the CPUs of one class. What is `None` stays as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PowerClass {
    /// What picks the frequency: `performance`, `powersave`, `schedutil`, ... as the driver names them.
    pub governor: Option<String>,
    /// The lowest frequency.
    pub min: Option<Frequency>,
    /// The highest frequency.
    pub max: Option<Frequency>,
    /// Where the hardware has the choice, what it leans to.
    pub preference: Option<Preference>,
    /// Whether frequencies above the base frequency may be used.
    pub turbo: Option<bool>,
    /// Where classes share turbo, those with the highest priority among classes with containers have it ([`arbitrate_turbo`](super::arbitrate_turbo)).
    pub turbo_priority: u32,
    /// How long it may take to wake up.
    pub latency: Option<Latency>,
    /// Names of the idle states that must not be entered: `C6`.
    pub disabled_states: Vec<String>,
    /// The lowest frequency of what the CPUs of a die share.
    pub uncore_min: Option<Frequency>,
    /// The highest frequency of what the CPUs of a die share.
    pub uncore_max: Option<Frequency>,
    /// The class of service of Speed Select, 0 to 3 (`speed_select.rs`).
    pub clos: Option<u8>,
}

/// Why a text is none of these values. `Display` says what is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct ParsePowerError {
    text: String,
    expected: &'static str,
}

fn not(text: &str, expected: &'static str) -> ParsePowerError {
    ParsePowerError { text: text.to_owned(), expected }
}

/// A frequency, absolute or by what the CPU can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frequency {
    /// The lowest that the CPU has.
    Min,
    /// The highest without turbo.
    Base,
    /// The highest that the CPU has, with turbo.
    Max,
    /// So much.
    Exactly(Khz),
    /// Between the lowest (0) and the highest (100).
    Percent(u8),
    /// Below the highest frequency of the same class. For lowest frequencies only.
    BelowMax(Khz),
}

const FREQUENCY: &str = "a frequency: a number of kHz, a number with MHz or GHz, a percentage from 0% to 100%, or one of min, base, turbo, max";

/// `2400000` (kHz), `2400MHz`, `2.4GHz`, `2.4G`, `75%`, `min`, `base`, `turbo` or `max`, and `maxFreq-200MHz`.
impl FromStr for Frequency {
    type Err = ParsePowerError;

    fn from_str(text: &str) -> Result<Frequency, ParsePowerError> {
        let text = text.trim();
        let frequency = match text {
            "min" => Some(Frequency::Min),
            "base" => Some(Frequency::Base),
            "turbo" | "max" => Some(Frequency::Max),
            _ => match (text.strip_suffix('%'), text.strip_prefix("maxFreq-")) {
                (Some(percent), _) => {
                    let percent = percent.trim_end().parse().ok();
                    percent.filter(|it| *it <= 100).map(Frequency::Percent)
                }
                (_, Some(less)) => khz(less).map(Frequency::BelowMax),
                _ => khz(text).map(Frequency::Exactly),
            },
        };
        frequency.ok_or_else(|| not(text, FREQUENCY))
    }
}

impl fmt::Display for Frequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Frequency::Min => f.write_str("min"),
            Frequency::Base => f.write_str("base"),
            Frequency::Max => f.write_str("max"),
            Frequency::Exactly(khz) => write!(f, "{}", in_mhz(*khz)),
            Frequency::Percent(percent) => write!(f, "{percent}%"),
            Frequency::BelowMax(khz) => write!(f, "maxFreq-{}", in_mhz(*khz)),
        }
    }
}

/// In a form that reads back to the same value.
fn in_mhz(khz: Khz) -> String {
    match khz.0 % 1000 {
        0 => format!("{}MHz", khz.0 / 1000),
        _ => format!("{}kHz", khz.0),
    }
}

/// Letters in any case; without a unit it is kHz, as in the kernel's files. Never zero.
fn khz(text: &str) -> Option<Khz> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let unit = unit.trim().to_ascii_lowercase();
    let decimals = match unit.strip_suffix("hz").unwrap_or(&unit) {
        "" if !unit.is_empty() => return None,
        "" | "k" => 0,
        "m" => 3,
        "g" => 6,
        _ => return None,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || part.len() > decimals || number.ends_with('.') {
        return None;
    }
    let khz: u64 = format!("{whole}{part:0<decimals$}").parse().ok()?;
    (khz > 0).then_some(Khz(khz))
}

/// What hardware that picks the frequency itself leans to (energy performance preference). The order is that of speed, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Preference {
    /// Saving.
    Power,
    /// Rather saving.
    BalancePower,
    /// Rather speed.
    BalancePerformance,
    /// Speed.
    Performance,
}

impl Preference {
    /// Every preference, slowest first.
    pub const ALL: [Preference; 4] = [
        Preference::Power,
        Preference::BalancePower,
        Preference::BalancePerformance,
        Preference::Performance,
    ];

    /// The kernel's word.
    pub fn name(self) -> &'static str {
        match self {
            Preference::Power => "power",
            Preference::BalancePower => "balance_power",
            Preference::BalancePerformance => "balance_performance",
            Preference::Performance => "performance",
        }
    }
}

impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The kernel's words, also with hyphens. A number from 0 to 255 is the nearest of the words: drivers read some numbers back as words, and older
/// ones take words only (`intel_pstate.rst`, "Energy vs Performance Hints": 0, 128, 192 and 255).
impl FromStr for Preference {
    type Err = ParsePowerError;

    fn from_str(text: &str) -> Result<Preference, ParsePowerError> {
        let word = text.trim().replace('-', "_");
        let named = Preference::ALL.into_iter().find(|it| it.name() == word);
        let numbered = || match word.parse::<u8>().ok()? {
            0..64 => Some(Preference::Performance),
            64..160 => Some(Preference::BalancePerformance),
            160..224 => Some(Preference::BalancePower),
            224.. => Some(Preference::Power),
        };
        let expected = "performance, balance_performance, balance_power, power, or a number from 0 (performance) to 255 (power)";
        named.or_else(numbered).ok_or_else(|| not(text, expected))
    }
}

/// How long a CPU may take to wake up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Latency {
    /// At most so many microseconds; with 0 it never sleeps, but polls.
    AtMost(u32),
    /// As long as it likes.
    Any,
}

/// `10us`, `1ms`, `0`, `any`.
impl FromStr for Latency {
    type Err = ParsePowerError;

    fn from_str(text: &str) -> Result<Latency, ParsePowerError> {
        let trimmed = text.trim();
        if trimmed == "any" {
            return Ok(Latency::Any);
        }
        let (number, factor) = match (trimmed.strip_suffix("us"), trimmed.strip_suffix("ms")) {
            (Some(number), _) => (number, 1),
            (_, Some(number)) => (number, 1000),
            _ => (trimmed, 1),
        };
        let us = number.trim_end().parse::<u32>().ok().and_then(|it| it.checked_mul(factor));
        // The kernel keeps it signed, and takes the largest value for "no limit".
        let us = us.filter(|us| *us < i32::MAX.unsigned_abs());
        let expected = "a time to wake up: a number of microseconds, also with us or ms, or any";
        us.map(Latency::AtMost).ok_or_else(|| not(text, expected))
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Latency::AtMost(us) => write!(f, "{us}us"),
            Latency::Any => f.write_str("any"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check<T: FromStr<Err = ParsePowerError> + fmt::Display>(rows: &[(&str, &str)]) {
        for (text, expected) in rows {
            let found = match text.parse::<T>() {
                Ok(value) => value.to_string(),
                Err(error) => error.to_string().split(':').next().unwrap_or_default().to_owned(),
            };
            assert_eq!(found, *expected, "{text:?}");
        }
    }

    #[test]
    fn frequencies_have_units_words_and_percentages() {
        check::<Frequency>(&[
            ("2400000", "2400MHz"),
            ("2400001", "2400001kHz"),
            ("2400000 kHz", "2400MHz"),
            ("2.4GHz", "2400MHz"),
            ("2.4 ghz", "2400MHz"),
            ("2400M", "2400MHz"),
            ("1.5g", "1500MHz"),
            ("0.8GHz", "800MHz"),
            ("75%", "75%"),
            ("100 %", "100%"),
            ("min", "min"),
            ("base", "base"),
            ("turbo", "max"),
            ("max", "max"),
            ("maxFreq-200MHz", "maxFreq-200MHz"),
            ("", "`` is not a frequency"),
            ("0", "`0` is not a frequency"),
            ("-1", "`-1` is not a frequency"),
            ("2.4", "`2.4` is not a frequency"),
            ("2.MHz", "`2.MHz` is not a frequency"),
            (".5GHz", "`.5GHz` is not a frequency"),
            ("1.2.3GHz", "`1.2.3GHz` is not a frequency"),
            ("1.2345678GHz", "`1.2345678GHz` is not a frequency"),
            ("2400 Hz", "`2400 Hz` is not a frequency"),
            ("101%", "`101%` is not a frequency"),
            ("fast", "`fast` is not a frequency"),
            ("99999999999999999999GHz", "`99999999999999999999GHz` is not a frequency"),
        ]);
    }

    #[test]
    fn preferences_are_words_or_numbers() {
        check::<Preference>(&[
            ("performance", "performance"),
            ("balance-performance", "balance_performance"),
            ("balance_power", "balance_power"),
            ("0", "performance"),
            ("128", "balance_performance"),
            ("192", "balance_power"),
            ("255", "power"),
            (
                "256",
                "`256` is not performance, balance_performance, balance_power, power, or a number from 0 (performance) to 255 (power)",
            ),
            (
                "default",
                "`default` is not performance, balance_performance, balance_power, power, or a number from 0 (performance) to 255 (power)",
            ),
        ]);
    }

    #[test]
    fn latencies_are_microseconds() {
        check::<Latency>(&[
            ("10us", "10us"),
            ("10", "10us"),
            ("1 ms", "1000us"),
            ("0", "0us"),
            ("any", "any"),
            ("-1", "`-1` is not a time to wake up"),
            ("2147483647", "`2147483647` is not a time to wake up"),
            ("1s", "`1s` is not a time to wake up"),
        ]);
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_again(khz in 1u64..100_000_000, text in "\\PC{0,12}") {
            let frequency = Frequency::Exactly(Khz(khz));
            prop_assert_eq!(frequency.to_string().parse::<Frequency>(), Ok(frequency));
            if let Ok(value) = text.parse::<Frequency>() {
                prop_assert_eq!(value.to_string().parse::<Frequency>(), Ok(value));
            }
            let _ = (text.parse::<Preference>(), text.parse::<Latency>());
        }
    }
}
