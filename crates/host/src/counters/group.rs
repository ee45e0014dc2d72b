//! Counters of one cgroup (version 2): those of a container, of a pod, or of all pods. CPU time is `read_cgroup.rs`'s.

use std::path::Path;

use super::kept::Kept;
use super::parse::{
    IoCounters, MemoryCounters, Pressure, number, parse_io_stat, parse_numa_stat, parse_stall,
    single,
};

/// The open files of one group.
#[derive(Debug)]
pub struct GroupFiles {
    cpu_stat: Option<Kept>,
    /// `cpu`, `memory`, `io`, `irq`.
    pressure: [Option<Kept>; 4],
    memory_current: Option<Kept>,
    memory_stat: Option<Kept>,
    memory_events: Option<Kept>,
    numa_stat: Option<Kept>,
    io_stat: Option<Kept>,
}

/// What a group has used and suffered since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupCounters {
    /// CPU time in microseconds.
    pub cpu_usec: Option<u64>,
    /// Time in which its limit stopped it, in microseconds.
    pub throttled_usec: Option<u64>,
    /// How long it stood still for lack of something.
    pub pressure: Pressure,
    /// Its memory.
    pub memory: MemoryCounters,
    /// Its block I/O.
    pub io: Option<IoCounters>,
}

impl GroupFiles {
    /// Opens what there is below this directory, which lies below `root`. Nothing there is nothing to read.
    pub fn open(root: &Path, dir: &str) -> GroupFiles {
        let open = |file: &str| Kept::open(root, &format!("{dir}/{file}"));
        GroupFiles {
            cpu_stat: open("cpu.stat"),
            pressure: ["cpu", "memory", "io", "irq"].map(|it| open(&format!("{it}.pressure"))),
            memory_current: open("memory.current"),
            memory_stat: open("memory.stat"),
            memory_events: open("memory.events"),
            numa_stat: open("memory.numa_stat"),
            io_stat: open("io.stat"),
        }
    }

    /// All counters now; `buffer` is used again by the next group.
    pub fn read(&mut self, buffer: &mut Vec<u8>) -> GroupCounters {
        let mut counters = GroupCounters::default();
        let mut read = |file: &mut Option<Kept>, keep: &mut dyn FnMut(&str) -> Option<()>| {
            file.as_mut().and_then(|file| file.read(buffer, keep))
        };
        read(&mut self.cpu_stat, &mut |text| {
            counters.cpu_usec = Some(number(text, "usage_usec")?);
            counters.throttled_usec = number(text, "throttled_usec");
            Some(())
        });
        let Pressure { cpu, memory, io, irq } = &mut counters.pressure;
        for (file, stall) in self.pressure.iter_mut().zip([cpu, memory, io, irq]) {
            read(file, &mut |text| {
                *stall = Some(parse_stall(text)?);
                Some(())
            });
        }
        let memory = &mut counters.memory;
        read(&mut self.memory_current, &mut |text| {
            memory.current = Some(bayplan_types::Bytes(single(text)?));
            Some(())
        });
        read(&mut self.memory_stat, &mut |text| {
            let refaults = ["workingset_refault_anon", "workingset_refault_file"];
            let refaults = refaults.map(|key| number(text, key));
            memory.refaults =
                refaults.iter().any(Option::is_some).then(|| refaults.iter().flatten().sum());
            let demoted = ["pgdemote_kswapd", "pgdemote_direct", "pgdemote_khugepaged"];
            let demoted = demoted.map(|key| number(text, key));
            memory.demoted =
                demoted.iter().any(Option::is_some).then(|| demoted.iter().flatten().sum());
            Some(())
        });
        read(&mut self.memory_events, &mut |text| {
            memory.high_events = number(text, "high");
            memory.oom_kills = number(text, "oom_kill");
            Some(())
        });
        read(&mut self.numa_stat, &mut |text| {
            memory.by_node = parse_numa_stat(text)?;
            Some(())
        });
        read(&mut self.io_stat, &mut |text| {
            counters.io = Some(parse_io_stat(text)?);
            Some(())
        });
        counters
    }

    /// What was odd about its files, each told once by whoever asks.
    pub fn oddities(&self) -> impl Iterator<Item = &str> {
        let others = [
            &self.cpu_stat,
            &self.memory_current,
            &self.memory_stat,
            &self.memory_events,
            &self.numa_stat,
            &self.io_stat,
        ];
        let all = self.pressure.iter().chain(others);
        all.flatten().filter_map(Kept::oddity)
    }
}
