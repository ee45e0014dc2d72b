//! What the whole node does, as a line above its containers. In: files of its CPUs, which stay open. Out: rates and what is so now.

use std::path::Path;
use std::time::{Duration, Instant};

use bayplan_host::counters::{NodeCounters, NodeFiles};
use bayplan_host::kernel::Kernel;
use serde::Serialize;

use super::rates::{Stalled, number, stalled};

/// What is not known is null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct NodeRow {
    /// CPUs that had nothing to do, on average since the last reading.
    pub(super) idle_cpus: Option<f64>,
    pub(super) stalled: Stalled,
    /// The mean of all CPUs now, in hertz.
    pub(super) frequency: Option<f64>,
    /// What all packages take, on average since the last reading.
    pub(super) watts: Option<f64>,
}

/// Keeps what is open, and the last counters.
pub(super) struct NodeReader {
    files: NodeFiles,
    last: Option<(Instant, NodeCounters)>,
}

impl NodeReader {
    pub(super) fn open(root: &Path, kernel: &mut dyn Kernel) -> NodeReader {
        NodeReader { files: NodeFiles::open(root, kernel), last: None }
    }

    pub(super) fn read(&mut self, now: Instant, buffer: &mut Vec<u8>) -> NodeRow {
        let counters = self.files.read(buffer);
        let frequencies = counters.frequencies_khz.values().map(|khz| number(*khz) * 1e3);
        let count = number(u64::try_from(counters.frequencies_khz.len()).unwrap_or_default());
        let frequency = Some(frequencies.sum::<f64>() / count).filter(|it| it.is_finite());
        let mut row = NodeRow { frequency, ..NodeRow::default() };
        if let Some((then, before)) = &self.last {
            let elapsed = now.saturating_duration_since(*then);
            row.idle_cpus = idle(before, &counters, elapsed);
            row.watts = self.watts(before, &counters, elapsed);
            let (before, after) = (before.pressure, counters.pressure);
            row.stalled = Stalled {
                cpu: stalled(before.cpu, after.cpu, elapsed),
                memory: stalled(before.memory, after.memory, elapsed),
                io: stalled(before.io, after.io, elapsed),
            };
        }
        self.last = Some((now, counters));
        row
    }

    /// Of packages; what is a part of one has its name before a slash.
    fn watts(&self, before: &NodeCounters, now: &NodeCounters, elapsed: Duration) -> Option<f64> {
        let packages = self.files.zones().filter(|zone| !zone.name.contains('/'));
        let used: Vec<u64> = packages
            .filter_map(|zone| {
                let of = |counters: &NodeCounters| counters.energy_uj.get(&zone.name).copied();
                zone.used(of(before)?, of(now)?)
            })
            .collect();
        let joules = number(used.iter().sum()) / 1e6;
        let watts = joules / elapsed.as_secs_f64();
        (!used.is_empty() && watts.is_finite()).then_some(watts)
    }
}

/// The kernel counts hundredths of a second, and may take some back.
fn idle(before: &NodeCounters, now: &NodeCounters, elapsed: Duration) -> Option<f64> {
    let of_each = now.idle_ticks.iter();
    let ticks: Vec<u64> = of_each
        .filter_map(|(cpu, now)| Some(now.saturating_sub(*before.idle_ticks.get(cpu)?)))
        .collect();
    let cpus = number(ticks.iter().sum()) / 100.0 / elapsed.as_secs_f64();
    (!ticks.is_empty() && cpus.is_finite()).then_some(cpus)
}

impl NodeRow {
    /// `None`: nothing is known.
    pub(super) fn render(&self) -> Option<String> {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let Stalled { cpu, memory, io } = self.stalled;
        let parts = [
            self.idle_cpus.map(|cpus| format!("{cpus:.2} CPUs idle")),
            cpu.map(|it| format!("waits for CPUs {}", percent(it))),
            memory.map(|it| format!("for memory {}", percent(it))),
            io.map(|it| format!("for block I/O {}", percent(it))),
            self.frequency.map(|hertz| format!("{:.2} GHz", hertz / 1e9)),
            self.watts.map(|watts| format!("{watts:.0} W")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("node: {}", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use bayplan_host::kernel::DiskKernel;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A machine at a moment: hundredths of a second that its CPUs were idle, microseconds of stalls, microjoules.
    fn write_node(root: &Path, idle: [u64; 2], stall: u64, energy: u64) {
        let [first, second] = idle;
        write(root, "proc/stat", &format!("cpu0 0 0 0 {first} 0\ncpu1 0 0 0 {second} 0\n"));
        for resource in ["cpu", "memory", "io"] {
            let some = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={stall}\n");
            write(root, &format!("proc/pressure/{resource}"), &some);
        }
        let rapl = "sys/class/powercap/intel-rapl:0";
        for (zone, name) in [(rapl.to_owned(), "package-0"), (format!("{rapl}:0"), "dram")] {
            write(root, &format!("{zone}/name"), name);
            write(root, &format!("{zone}/energy_uj"), &energy.to_string());
        }
        for (cpu, khz) in [(0, "2000000"), (1, "3000000")] {
            let cpufreq = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
            write(root, &cpufreq, khz);
        }
    }

    #[test]
    fn rates_are_those_since_the_last_reading() {
        let root = tempfile::tempdir().unwrap();
        write_node(root.path(), [100, 100], 0, 1_000_000);
        let mut kernel = DiskKernel::open(root.path()).unwrap();
        let mut reader = NodeReader::open(root.path(), &mut kernel);
        let (start, mut buffer) = (Instant::now(), Vec::new());
        let first = reader.read(start, &mut buffer);
        assert_eq!(first.render().unwrap(), "node: 2.50 GHz");
        // Some idle time was taken back.
        write_node(root.path(), [250, 90], 500_000, 61_000_000);
        let later = reader.read(start + Duration::from_secs(2), &mut buffer);
        let expected = "node: 0.75 CPUs idle, waits for CPUs 25 %, for memory 25 %, for block I/O 25 %, 2.50 GHz, 30 W";
        assert_eq!(later.render().unwrap(), expected);
        let at_once = reader.read(start + Duration::from_secs(2), &mut buffer);
        assert_eq!(at_once.render().unwrap(), "node: 2.50 GHz");
        assert_eq!(NodeRow::default().render(), None);
    }
}
