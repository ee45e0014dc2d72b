//! Which number for memory bandwidth a class gets. In: bounds of the class and of its partition. Out: what `schemata` takes on this machine
//! (resctrl.rst, "Memory bandwidth Allocation and monitoring").
//!
//! The kernel rounds up to the machine's steps; so does this, because what is read back is compared with what was written. On AMD's processors a
//! percentage has nothing to refer to, and the same text means a sixteenth of what its writer had in mind; so only 100% is understood there,
//! and `MBps` is turned into eighths of a GB.

use super::info::{BandwidthInfo, BandwidthUnit};
use super::share::Bandwidth;

const MEGABYTES_PER_EIGHTH: u32 = 125;

/// What counts of the values of one domain, in the machine's unit: hundredths, MB or eighths of a GB. Without values it is everything.
///
/// # Errors
/// Which value the machine needs.
fn bound(machine: &BandwidthInfo, values: Option<&Vec<Bandwidth>>) -> Result<u32, String> {
    let unlimited = match machine.unit {
        BandwidthUnit::Percent => 100,
        BandwidthUnit::Megabytes | BandwidthUnit::EighthsOfGigabyte => machine.max,
    };
    let Some(values) = values else { return Ok(unlimited) };
    let understood = values.iter().find_map(|value| match (machine.unit, value) {
        (BandwidthUnit::Percent, Bandwidth::Percent(percent)) => Some(u32::from(*percent)),
        (BandwidthUnit::Megabytes, Bandwidth::MegabytesPerSecond(rate)) => Some(*rate),
        (BandwidthUnit::EighthsOfGigabyte, Bandwidth::MegabytesPerSecond(rate)) => {
            Some(rate.div_ceil(MEGABYTES_PER_EIGHTH))
        }
        _ => None,
    });
    let is_all = |value: &Bandwidth| *value == Bandwidth::Percent(100);
    match (understood, machine.unit) {
        (Some(bound), _) => Ok(bound),
        (None, BandwidthUnit::EighthsOfGigabyte) if values.iter().any(is_all) => Ok(unlimited),
        (None, unit) => {
            let asked: Vec<String> = values.iter().map(ToString::to_string).collect();
            let asked = asked.join(", ");
            Err(match unit {
                BandwidthUnit::Percent => {
                    format!(
                        "[{asked}] has no percentage, which this machine needs; add one such as \"50%\""
                    )
                }
                BandwidthUnit::Megabytes => format!(
                    "[{asked}] has no rate, which resctrl mounted with mba_MBps needs; add one such as \"1500MBps\""
                ),
                BandwidthUnit::EighthsOfGigabyte => format!(
                    "[{asked}] has no rate, and this machine has bounds in GB a second, not in percent; add one such as \"16000MBps\""
                ),
            })
        }
    }
}

/// The number for one domain.
///
/// # Errors
/// Which values lack what the machine needs, `partition` or `class`, and what that is.
pub(super) fn class_bandwidth(
    machine: &BandwidthInfo,
    partition: Option<&Vec<Bandwidth>>,
    class: Option<&Vec<Bandwidth>>,
) -> Result<u32, String> {
    let partition = bound(machine, partition).map_err(|why| format!("its partition's {why}"))?;
    let class = bound(machine, class)?;
    let value = match machine.unit {
        BandwidthUnit::Percent => (partition.max(machine.min) * class / 100).max(machine.min),
        BandwidthUnit::Megabytes | BandwidthUnit::EighthsOfGigabyte => partition.min(class),
    };
    let value = value.max(1);
    let step = machine.step.max(1);
    let rounded = value.checked_next_multiple_of(step).filter(|it| *it <= machine.max);
    Ok(rounded.unwrap_or(machine.max / step * step))
}
