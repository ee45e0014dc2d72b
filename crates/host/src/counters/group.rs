//! Counters of one cgroup: those of a container, of a pod, or of all pods.
//!
//! With cgroup v2 all of them are in its directory. Where version 2 is only mounted beside version 1, at `unified`, it has CPU time and pressure
//! without any controller (Documentation/admin-guide/cgroup-v2.rst, "CPU Interface Files"; accounting/psi.rst); time in which a limit stopped it is
//! counted by version 1 (scheduler/sched-bwc.rst), as is CPU time where there is no version 2 at all (admin-guide/cgroup-v1/cpuacct.rst). Of what
//! version 1 tells of memory and I/O nothing is read here.

use std::path::Path;

use super::kept::Kept;
use super::parse::{
    IoCounters, MemoryCounters, Pressure, number, parse_io_stat, parse_numa_stat, parse_stall,
    single,
};
use crate::cgroup_error::CgroupError;
use crate::find_cgroup::{CGROUPS, find_below, find_container_cgroup};
use crate::kernel::Kernel;

/// The open files of one group.
#[derive(Debug, Default)]
pub struct GroupFiles {
    cpu_stat: Option<Kept>,
    /// `cpu`, `memory`, `io`, `irq`.
    pressure: [Option<Kept>; 4],
    memory_current: Option<Kept>,
    memory_stat: Option<Kept>,
    memory_events: Option<Kept>,
    numa_stat: Option<Kept>,
    io_stat: Option<Kept>,
    /// `cpu.stat` of version 1.
    quota_stat: Option<Kept>,
    /// `cpuacct.usage` of version 1.
    usage: Option<Kept>,
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
    /// Opens those of the container with this id in the pod's cgroup that kubelet calls `parent`, whatever the version of cgroups. `kernel` reads
    /// what `root` holds. `None`: it has none, or none any more.
    ///
    /// # Errors
    /// [`CgroupError`] when it cannot be looked for.
    pub fn find(
        root: &Path,
        kernel: &mut dyn Kernel,
        parent: &str,
        id: &str,
    ) -> Result<Option<GroupFiles>, CgroupError> {
        let found = find_container_cgroup(kernel, parent, id, None)?;
        if let Some(own) = found.and_then(|it| it.dirs.into_iter().next()) {
            return Ok(Some(GroupFiles::open(root, &own)));
        }
        let mut find = |mount: &str| find_below(kernel, &format!("{CGROUPS}/{mount}"), parent, id);
        let (unified, cpu, cpuacct) = (find("unified")?, find("cpu")?, find("cpuacct")?);
        if unified.is_none() && cpuacct.is_none() {
            return Ok(None);
        }
        let open = |dir: Option<String>, file: &str| Kept::open(root, &format!("{}/{file}", dir?));
        let files = unified.map(|dir| GroupFiles::open(root, &dir)).unwrap_or_default();
        let (quota_stat, usage) = (open(cpu, "cpu.stat"), open(cpuacct, "cpuacct.usage"));
        Ok(Some(GroupFiles { quota_stat, usage, ..files }))
    }

    /// Opens what there is below this directory (version 2), which lies below `root`. Nothing there is nothing to read.
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
            quota_stat: None,
            usage: None,
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
        read(&mut self.quota_stat, &mut |text| {
            // Nanoseconds, as the other.
            counters.throttled_usec = Some(number(text, "throttled_time")? / 1000);
            Some(())
        });
        read(&mut self.usage, &mut |text| {
            counters.cpu_usec = counters.cpu_usec.or(Some(single(text)? / 1000));
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
            // Linux 6.15 tells what `memory.reclaim` has moved from the rest, which was `pgdemote_direct` before.
            let demoted =
                ["pgdemote_kswapd", "pgdemote_direct", "pgdemote_khugepaged", "pgdemote_proactive"];
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

    /// What was odd about its files, each told once by the caller.
    pub fn oddities(&self) -> impl Iterator<Item = &str> {
        let others = [
            &self.cpu_stat,
            &self.memory_current,
            &self.memory_stat,
            &self.memory_events,
            &self.numa_stat,
            &self.io_stat,
            &self.quota_stat,
            &self.usage,
        ];
        let all = self.pressure.iter().chain(others);
        all.flatten().filter_map(Kept::oddity)
    }
}
