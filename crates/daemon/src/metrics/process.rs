//! The daemon as a process, under the names that every exporter has (prometheus.io, "Writing client libraries", "Process metrics"). In: `/proc/self`
//! (filesystems/proc.rst) and the clock at the start. Out: metrics, made at each scrape. What cannot be read is absent.

use std::fmt;
use std::fs;

use jiff::Timestamp;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeVal;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// The process that asks.
#[derive(Debug)]
pub(super) struct Process {
    started_at: Timestamp,
}

impl Process {
    pub(super) fn now() -> Process {
        Process { started_at: Timestamp::now() }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
            let seconds = seconds(usage.user_time()) + seconds(usage.system_time());
            let (help, unit) = ("CPU time of the daemon", Some(&Unit::Seconds));
            let line = encoder.encode_descriptor("process_cpu", help, unit, MetricType::Counter)?;
            ConstCounter::new(seconds).encode(line)?;
        }
        let mut gauge = |name: &str, help: &str, unit: Option<Unit>, value: Option<f64>| {
            let Some(value) = value else { return Ok(()) };
            let line = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            ConstGauge::new(value).encode(line)
        };
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let bytes = |key| Some(number(kib(&status, key)?) * 1024.0);
        let (resident, all) = ("process_resident_memory", "process_virtual_memory");
        gauge(resident, "Resident memory of the daemon", Some(Unit::Bytes), bytes("VmRSS:"))?;
        gauge(all, "Address space of the daemon", Some(Unit::Bytes), bytes("VmSize:"))?;
        // Without the one that is open for counting.
        let files = fs::read_dir("/proc/self/fd").ok().map(|it| it.count().saturating_sub(1));
        let files = files.map(|count| number(count as u64));
        gauge("process_open_fds", "Open files of the daemon", None, files)?;
        let limit = getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| number(soft));
        gauge("process_max_fds", "Files that the daemon may have open", None, limit)?;
        let started_at = Some(self.started_at.as_duration().as_secs_f64());
        let (name, help) = ("process_start_time", "When the daemon started, since 1970");
        gauge(name, help, Some(Unit::Seconds), started_at)
    }
}

fn seconds(time: TimeVal) -> f64 {
    number(time.tv_sec().unsigned_abs()) + number(time.tv_usec().unsigned_abs()) / 1e6
}

fn kib(status: &str, key: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(key))?;
    rest.trim().strip_suffix(" kB")?.parse().ok()
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus has floating point numbers only")]
fn number(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_found_by_its_key() {
        let status = "VmPeak:\t   9 kB\nVmRSS:\t    7432 kB\nThreads:\t3\n";
        for (key, expected) in [("VmRSS:", Some(7432)), ("Threads:", None), ("VmSize:", None)] {
            assert_eq!(kib(status, key), expected, "{key}");
        }
    }
}
