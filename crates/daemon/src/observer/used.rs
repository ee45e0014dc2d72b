//! CPU time between two readings, for groups with a size that follows it. In: counters of both, in microseconds, by the runtime's ids. Out: how many CPUs each container used.

use std::collections::BTreeMap;
use std::time::Duration;

use bayplan_types::MilliCpu;

/// A shorter time says too little.
const SPAN_MIN: Duration = Duration::from_millis(500);

/// Of those containers that are in both.
pub(super) fn used(
    span: Option<Duration>,
    before: &BTreeMap<&str, u64>,
    now: &BTreeMap<&str, u64>,
) -> BTreeMap<String, MilliCpu> {
    let Some(span) = span.filter(|span| *span >= SPAN_MIN) else { return BTreeMap::new() };
    let used = now.iter().filter_map(|(id, now)| {
        let usec = now.checked_sub(*before.get(id)?)?;
        let milli = u128::from(usec) * 1000 / span.as_micros().max(1);
        Some(((*id).to_owned(), MilliCpu(u64::try_from(milli).unwrap_or(u64::MAX))))
    });
    used.collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn what_is_in_both_readings_counts() {
        let before = [("a", 1_000_000), ("b", 5), ("gone", 1)].into();
        let now = [("a", 3_500_000), ("b", 1), ("new", 9)].into();
        let used = used(Some(Duration::from_secs(2)), &before, &now);
        expect![[r#"{"a": MilliCpu(1250)}"#]].assert_eq(&format!("{used:?}"));
        assert!(super::used(None, &before, &now).is_empty());
    }
}
