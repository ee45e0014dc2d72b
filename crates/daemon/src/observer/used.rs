//! CPU time between two readings. In: both. Out: how many CPUs each container used, for groups with a size that follows it.

use std::collections::BTreeMap;
use std::time::Duration;

use bayplan_types::MilliCpu;

use super::Reading;

/// A shorter time says too little.
const SPAN_MIN: Duration = Duration::from_millis(500);

/// By the runtime's id; of those containers that are in both.
pub(super) fn used(before: &Reading, now: &Reading) -> BTreeMap<String, MilliCpu> {
    let span = before.at.zip(now.at).map(|(then, now)| now.saturating_duration_since(then));
    let Some(span) = span.filter(|span| *span >= SPAN_MIN) else { return BTreeMap::new() };
    let old: BTreeMap<&str, u64> = usec(before).collect();
    let used = usec(now).filter_map(|(id, now)| {
        let usec = now.checked_sub(*old.get(id)?)?;
        let milli = u128::from(usec) * 1000 / span.as_micros().max(1);
        Some((id.to_owned(), MilliCpu(u64::try_from(milli).unwrap_or(u64::MAX))))
    });
    used.collect()
}

fn usec(reading: &Reading) -> impl Iterator<Item = (&str, u64)> {
    let containers = reading.containers.iter();
    containers.filter_map(|it| Some((it.runtime_id.as_str(), it.counters.cpu_usec?)))
}
