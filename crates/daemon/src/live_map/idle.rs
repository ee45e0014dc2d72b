//! Idle states of CPUs for the map's overlay. In: what the kernel counts, read twice. Out: shares of time by CPU and state.
//!
//! There are some four files for each CPU, so they are read only while a page is open, and less often than the rest.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use bayplan_host::counters::{IdleStates, IdleTimes};
use bayplan_host::kernel::{DiskKernel, Kernel as _};

/// Between two readings.
const EVERY: Duration = Duration::from_secs(8);
/// To wake up from a deep state takes this long at least, in microseconds: several times as long as to switch tasks.
const DEEP_LATENCY_US: u64 = 20;

/// One CPU.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct IdleRates {
    /// Share of the time in deep states.
    pub(super) deep: f64,
    /// Share of the time in each state, with its name, the shallowest first.
    pub(super) states: Vec<(String, f64)>,
}

/// By the kernel's number.
pub(super) type IdleByCpu = BTreeMap<u32, IdleRates>;

/// Reads the files now and then.
pub(super) struct IdleReader {
    kernel: DiskKernel,
    states: IdleStates,
    /// The CPUs that were online when these were read, in the kernel's words.
    online: Option<String>,
    times: IdleTimes,
    at: Instant,
    rates: IdleByCpu,
}

impl IdleReader {
    /// `None`: this machine tells nothing of idle states.
    pub(super) fn open(root: &Path) -> Option<IdleReader> {
        let mut kernel = DiskKernel::open(root).ok()?;
        let states = IdleStates::read(&mut kernel);
        if states == IdleStates::default() {
            return None;
        }
        let online = read_online(&mut kernel);
        let times = states.read_times(&mut kernel);
        let (at, rates) = (Instant::now(), IdleByCpu::new());
        Some(IdleReader { kernel, states, online, times, at, rates })
    }

    /// Rates as of the last reading, which this may be.
    pub(super) fn rates(&mut self, now: Instant) -> &IdleByCpu {
        let elapsed = now.saturating_duration_since(self.at);
        if elapsed >= EVERY {
            let online = read_online(&mut self.kernel);
            if online != self.online {
                self.states = IdleStates::read(&mut self.kernel);
                self.online = online;
            }
            let times = self.states.read_times(&mut self.kernel);
            self.rates = idle_rates(&self.states, &self.times, &times, elapsed);
            (self.times, self.at) = (times, now);
        }
        &self.rates
    }
}

fn read_online(kernel: &mut DiskKernel) -> Option<String> {
    kernel.read("sys/devices/system/cpu/online").ok()
}

fn idle_rates(
    states: &IdleStates,
    before: &IdleTimes,
    now: &IdleTimes,
    elapsed: Duration,
) -> IdleByCpu {
    let of_cpu = |(cpu, now): (&bayplan_types::CpuId, &Vec<Option<u64>>)| {
        let before = before.get(cpu)?;
        let pairs = states.of(*cpu).iter().zip(now.iter().zip(before));
        let shares = pairs.filter_map(|(state, (now, before))| {
            let time = Duration::from_micros((*now)?.checked_sub((*before)?)?);
            Some((state, (time.as_secs_f64() / elapsed.as_secs_f64()).min(1.0)))
        });
        let shares: Vec<_> = shares.collect();
        let deep = shares.iter().filter(|(state, _)| state.latency_us >= DEEP_LATENCY_US);
        let deep: f64 = deep.map(|(_, share)| share).sum();
        let states = shares.iter().map(|(state, share)| (state.name.clone(), *share)).collect();
        Some((cpu.0, IdleRates { deep: deep.min(1.0), states }))
    };
    now.iter().filter_map(of_cpu).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_cpu_that_comes_has_shares_after_the_second_reading() {
        let root = tempfile::tempdir().unwrap();
        let cpus = root.path().join("sys/devices/system/cpu");
        let write = |cpu: u32, time: u64, online: &str| {
            let dir = cpus.join(format!("cpu{cpu}/cpuidle/state0"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("name"), "C6").unwrap();
            fs::write(dir.join("latency"), "133").unwrap();
            fs::write(dir.join("time"), time.to_string()).unwrap();
            fs::write(cpus.join("online"), online).unwrap();
        };
        write(0, 0, "0");
        let mut reader = IdleReader::open(root.path()).unwrap();
        let begin = reader.at;
        write(1, 0, "0-1");
        let mut known = |seconds| {
            let rates = reader.rates(begin + Duration::from_secs(seconds));
            rates.keys().copied().collect::<Vec<_>>()
        };
        assert_eq!(known(10), [0]);
        assert_eq!(known(20), [0, 1]);
    }

    #[test]
    fn shares_are_of_the_time_between_two_readings() {
        let root = tempfile::tempdir().unwrap();
        let write = |state: u32, name: &str, latency: u32, time: u64| {
            let dir = root.path().join(format!("sys/devices/system/cpu/cpu3/cpuidle/state{state}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("name"), name).unwrap();
            fs::write(dir.join("latency"), latency.to_string()).unwrap();
            fs::write(dir.join("time"), time.to_string()).unwrap();
        };
        assert!(IdleReader::open(root.path()).is_none());
        write(0, "C1", 2, 1_000);
        write(1, "C6", 133, 5_000);
        let mut reader = IdleReader::open(root.path()).unwrap();
        let begin = reader.at;
        assert!(reader.rates(begin).is_empty());
        write(0, "C1", 2, 1_001_000);
        write(1, "C6", 133, 6_005_000);
        let rates = reader.rates(begin + Duration::from_secs(10)).clone();
        let states = vec![("C1".to_owned(), 0.1), ("C6".to_owned(), 0.6)];
        assert_eq!(rates, [(3, IdleRates { deep: 0.6, states })].into());
        // Not read again so soon.
        write(1, "C6", 133, 9_005_000);
        assert_eq!(*reader.rates(begin + Duration::from_secs(11)), rates);
    }
}
