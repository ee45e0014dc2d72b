//! What is told of many times of the same thing. Pure.

use std::time::Duration;

/// Of at least one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeSummary {
    pub(crate) mean: Duration,
    pub(crate) median: Duration,
    /// The time that 99 of 100 do not exceed.
    pub(crate) p99: Duration,
    pub(crate) max: Duration,
}

impl TimeSummary {
    /// `None` without a time.
    pub(crate) fn of(times: &[Duration]) -> Option<TimeSummary> {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
            sorted.get(rank).copied()
        };
        let count = u32::try_from(sorted.len()).unwrap_or(u32::MAX);
        let mean = sorted.iter().sum::<Duration>().checked_div(count)?;
        Some(TimeSummary { mean, median: at(50)?, p99: at(99)?, max: at(100)? })
    }
}

/// `time` in microseconds.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
