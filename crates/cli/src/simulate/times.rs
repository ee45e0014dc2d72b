//! What decisions cost. CPU time of the thread, so that neither what else the machine is doing nor the clock itself counts.

use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use crate::time_summary::{TimeSummary, micros};

/// CPU time per event, by what was asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    /// From what kubelet says to what is asked of the allocator.
    pub(crate) requests: Vec<Duration>,
    /// Placing containers that ask for CPUs of their own.
    pub(crate) exclusive: Vec<Duration>,
    /// Placing the others.
    pub(crate) sharing: Vec<Duration>,
    /// Releasing.
    pub(crate) releases: Vec<Duration>,
}

/// What asking for the CPU time takes itself, half a microsecond to several: the shortest of many times.
pub(crate) fn clock_cost() -> Duration {
    let ask = || {
        let before = thread_cpu_time();
        thread_cpu_time().saturating_sub(before)
    };
    (0..1000).map(|_| ask()).min().unwrap_or_default()
}

/// CPU time of this thread. Zero on a kernel that does not count it.
pub(crate) fn thread_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, TimeSpec::into)
}

/// `4.2, 3.9, 11, 52 us`: mean, median, 99th percentile, most.
pub(crate) fn render_times(times: &[Duration]) -> String {
    let Some(TimeSummary { mean, median, p99, max }) = TimeSummary::of(times) else {
        return "-".to_owned();
    };
    let shown = [mean, median, p99, max].map(|it| format!("{:.1}", micros(it)));
    format!("{} \u{b5}s", shown.join(", "))
}
