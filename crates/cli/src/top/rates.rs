//! Differences of counters as rates. A counter that went back says nothing.

use std::time::Duration;

use bayplan_host::counters::Stall;
use bayplan_types::Bytes;
use serde::Serialize;

/// Share of the time since the last reading in which some of its tasks stood still for lack of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Stalled {
    pub(super) cpu: Option<f64>,
    pub(super) memory: Option<f64>,
    pub(super) io: Option<f64>,
}

/// Share of the time in which some tasks stood still.
pub(super) fn stalled(
    before: Option<Stall>,
    after: Option<Stall>,
    elapsed: Duration,
) -> Option<f64> {
    let usec = after?.some_usec.checked_sub(before?.some_usec)?;
    let share = Duration::from_micros(usec).as_secs_f64() / elapsed.as_secs_f64();
    share.is_finite().then_some(share)
}

/// Per second.
pub(super) fn byte_rate(
    before: Option<Bytes>,
    after: Option<Bytes>,
    elapsed: Duration,
) -> Option<f64> {
    let rate = number(after?.0.checked_sub(before?.0)?) / elapsed.as_secs_f64();
    rate.is_finite().then_some(rate)
}

/// A count as a floating-point number.
#[allow(clippy::cast_precision_loss, reason = "shares of sums below 2^53 bytes")]
pub(super) fn number(value: u64) -> f64 {
    value as f64
}
