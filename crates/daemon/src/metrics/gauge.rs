//! A count as the value of a gauge.

/// The largest value of a gauge, where a count is larger.
pub(super) fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
