//! Opens counters of processors and of the kernel, one group per CPU. In: which events are wanted, and what sysfs tells of the processors' counters. Out:
//! which of them are there, and open ones.

use std::io;
use std::path::Path;

use bayplan_types::{CpuId, CpuSet};
use nix::errno::Errno;
use perf_event::events::{Hardware, Software};
use perf_event::{Builder, Counter};

use crate::last_level::LastLevel;
use crate::{CounterChoice, Event, Refusal};

/// Where the kernel lists the units that count (Documentation/ABI/testing/sysfs-bus-event_source-devices).
const DEVICES: &str = "/sys/bus/event_source/devices";
/// In the configuration of a `PERF_TYPE_HARDWARE` event: the unit that counts (include/uapi/linux/perf_event.h, `PERF_PMU_TYPE_SHIFT`).
const PMU_TYPE_SHIFT: u32 = 32;

/// Which events this machine counts.
#[derive(Clone, Debug)]
pub(crate) struct Pmu {
    /// At least one. Each kind of CPUs has all of them.
    pub(crate) events: Vec<Event>,
    kinds: Vec<CoreKind>,
    last_level: LastLevel,
}

/// CPUs with counters of their own kind, on machines with several kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CoreKind {
    name: String,
    number: u32,
    cpus: CpuSet,
}

/// Why nothing is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// It is not there.
    Unsupported(Refusal),
    /// It is there, and may not be used.
    Refused(Refusal),
}

impl Pmu {
    /// Tries all that is wanted on a CPU of each kind, as one group, as it is opened later.
    pub(crate) fn find(choice: CounterChoice, online: &CpuSet) -> Result<Pmu, Absence> {
        let kinds = read_kinds(Path::new(DEVICES));
        let of_kinds = kinds.iter().filter_map(|kind| kind.cpus.intersection(online).first());
        let tried: Vec<CpuId> = online.first().into_iter().chain(of_kinds).collect();
        let last_level = LastLevel::read(Path::new(DEVICES));
        let pmu = Pmu { events: Vec::new(), kinds, last_level };
        let events = choose(choice.events(), &tried, |cpu, events| pmu.open_group(cpu, events));
        match events {
            Ok(events) => Ok(Pmu { events, ..pmu }),
            Err(error) => Err(judge_absence(error.as_ref())),
        }
    }

    /// A counter for each of [`Pmu::events`], as one group; `None` where this CPU lacks one of them, as one of a kind of which none was online before
    /// may, and where they cannot count.
    pub(crate) fn open(&self, cpu: CpuId) -> Option<Vec<Counter>> {
        let mut group = whole(self.open_group(cpu, &self.events))?;
        // All at once: an event that joins a group that counts already does not count before the kernel plans anew.
        group.first_mut()?.enable_group().ok()?;
        Some(group)
    }

    /// A counter for each, all of one group, which does not count yet.
    fn open_group(&self, cpu: CpuId, events: &[Event]) -> Vec<io::Result<Counter>> {
        let mut group: Vec<io::Result<Counter>> = Vec::new();
        for event in events {
            let leader = group.iter_mut().find_map(|it| it.as_mut().ok());
            let opened = self.open_one(cpu, *event, leader);
            group.push(opened);
        }
        group
    }

    fn open_one(
        &self,
        cpu: CpuId,
        event: Event,
        leader: Option<&mut Counter>,
    ) -> io::Result<Counter> {
        let mut builder = match event {
            Event::Cycles => Builder::new(Hardware::CPU_CYCLES),
            Event::Instructions => Builder::new(Hardware::INSTRUCTIONS),
            Event::ReferenceCycles => Builder::new(Hardware::REF_CPU_CYCLES),
            Event::CacheReferences => self.last_level.references(),
            Event::CacheMisses => self.last_level.misses(),
            Event::PageFaults => Builder::new(Software::PAGE_FAULTS),
            Event::ContextSwitches => Builder::new(Software::CONTEXT_SWITCHES),
            Event::CpuClock => Builder::new(Software::CPU_CLOCK),
        };
        builder
            .any_pid()
            .one_cpu(cpu.0 as usize)
            .include_kernel()
            .include_hv()
            .enabled(leader.is_some());
        let plain = builder.attrs().config;
        match self.kind_of(cpu, event) {
            // Of these the kind is the type.
            Some(kind) if self.last_level.is_raw(event) => {
                builder.attrs_mut().type_ = kind.number;
            }
            Some(kind) => {
                builder.attrs_mut().config = plain | u64::from(kind.number) << PMU_TYPE_SHIFT;
            }
            None => {}
        }
        let build = |builder: &Builder<'_>, leader: Option<&mut Counter>| match leader {
            Some(leader) => builder.build_with_group(leader),
            None => builder.build(),
        };
        let mut leader = leader;
        match build(&builder, leader.as_deref_mut()) {
            // Kernels that do not take the kind find it by the CPU.
            Err(_) if builder.attrs().config != plain => {
                builder.attrs_mut().config = plain;
                build(&builder, leader)
            }
            opened => opened,
        }
    }

    /// The kind of core that has to count, where there are several.
    fn kind_of(&self, cpu: CpuId, event: Event) -> Option<&CoreKind> {
        let is_software = CounterChoice::Software.events().contains(&event);
        let kinds = if is_software { &[] } else { self.kinds.as_slice() };
        kinds.iter().find(|kind| kind.cpus.contains(cpu))
    }
}

/// Those of the events that can be opened together on each CPU that is tried: the sum of one that only some CPUs count would be too small, and look whole. An error is the first one, if there
/// was any.
fn choose<T>(
    wanted: &[Event],
    tried: &[CpuId],
    open: impl Fn(CpuId, &[Event]) -> Vec<io::Result<T>>,
) -> Result<Vec<Event>, Option<io::Error>> {
    let mut events = wanted.to_vec();
    let mut failed = None;
    for cpu in tried {
        let opened = open(*cpu, &events);
        let mut there = Vec::new();
        for (event, opened) in events.iter().zip(opened) {
            match opened {
                Ok(_) => there.push(*event),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        events = there;
    }
    if events.is_empty() || tried.is_empty() { Err(failed) } else { Ok(events) }
}

/// A group of which nothing is missing: of cycles without their instructions nothing follows.
fn whole<T>(group: Vec<io::Result<T>>) -> Option<Vec<T>> {
    group.into_iter().map(Result::ok).collect()
}

/// Kinds of CPUs by their counters: those of cores, unlike others, have a file `cpus`. Empty where there is one kind only and on machines that tell none.
fn read_kinds(devices: &Path) -> Vec<CoreKind> {
    let Ok(entries) = std::fs::read_dir(devices) else { return Vec::new() };
    let kind = |dir: &Path| {
        let text = |file: &str| std::fs::read_to_string(dir.join(file)).ok();
        Some(CoreKind {
            name: dir.file_name()?.to_string_lossy().into_owned(),
            number: text("type")?.trim().parse().ok()?,
            cpus: text("cpus")?.trim().parse().ok()?,
        })
    };
    let mut kinds: Vec<CoreKind> =
        entries.flatten().filter_map(|entry| kind(&entry.path())).collect();
    kinds.sort_by(|a, b| a.name.cmp(&b.name));
    if kinds.len() == 1 { Vec::new() } else { kinds }
}

fn judge_absence(error: Option<&io::Error>) -> Absence {
    let errno = error.and_then(io::Error::raw_os_error).map(Errno::from_raw);
    let refusal = |reason: String, remedy: &str| Refusal { reason, remedy: remedy.to_owned() };
    match errno {
        Some(Errno::EPERM | Errno::EACCES) => Absence::Refused(refusal(
            "opening counters: not permitted".to_owned(),
            "give the process CAP_PERFMON, and allow it the system call perf_event_open (SystemCallFilter=perf_event_open; in a container a \
             seccomp profile that does); where kernel.perf_event_paranoid is 3, as on Debian, set it to 2, or CAP_PERFMON does not do",
        )),
        Some(Errno::ENOSYS) => Absence::Refused(refusal(
            "opening counters: the kernel has no system call perf_event_open, or a filter hides it"
                .to_owned(),
            "use a kernel with CONFIG_PERF_EVENTS=y, and allow the system call perf_event_open",
        )),
        Some(Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP) | None => {
            Absence::Unsupported(refusal(
                "this machine shows no counters of its processors".to_owned(),
                "a hypervisor would have to pass them on (vPMU)",
            ))
        }
        Some(errno) => Absence::Refused(refusal(
            format!("opening counters: {}", errno.desc()),
            "look for others that count all the time, or choose `counters: off`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_with_cpus_where_there_are_several() {
        let dir = std::env::temp_dir().join(format!("bayplan-pmu-{}", std::process::id()));
        let write = |device: &str, files: &[(&str, &str)]| {
            std::fs::create_dir_all(dir.join(device)).unwrap();
            for (file, text) in files {
                std::fs::write(dir.join(device).join(file), text).unwrap();
            }
        };
        assert_eq!(read_kinds(&dir), []);
        write("uncore_imc_0", &[("type", "18\n"), ("cpumask", "0\n")]);
        write("software", &[("type", "1\n")]);
        write("cpu_core", &[("type", "4\n"), ("cpus", "0-15\n")]);
        assert_eq!(read_kinds(&dir), []);
        write("cpu_atom", &[("type", "10\n"), ("cpus", "16-23\n")]);
        write("broken", &[("type", "x\n"), ("cpus", "0\n")]);
        let kinds = read_kinds(&dir);
        std::fs::remove_dir_all(&dir).unwrap();
        let names: Vec<(&str, u32)> =
            kinds.iter().map(|kind| (kind.name.as_str(), kind.number)).collect();
        assert_eq!(names, [("cpu_atom", 10), ("cpu_core", 4)]);
        let pmu = Pmu { events: Vec::new(), kinds, last_level: LastLevel::Kernel };
        let number = |cpu, event| pmu.kind_of(CpuId(cpu), event).map(|kind| kind.number);
        assert_eq!(number(16, Event::Cycles), Some(10));
        assert_eq!(number(3, Event::CacheMisses), Some(4));
        assert_eq!(number(24, Event::Cycles), None);
        assert_eq!(number(16, Event::PageFaults), None);
    }

    /// CPUs 0 and 16 are tried, and each has so many counters in a group but for those that it does not have at all.
    #[track_caller]
    fn check_choice(lacks: [&[Event]; 2], room: [usize; 2], expected: &[Event]) {
        use Event::{CacheMisses, CacheReferences, Cycles, Instructions};
        let wanted = [Cycles, Instructions, CacheReferences, CacheMisses];
        let open = |cpu: CpuId, events: &[Event]| {
            let at = usize::from(cpu.0 == 16);
            let mut used = 0;
            let mut results = Vec::new();
            for event in events {
                let error = match () {
                    () if lacks[at].contains(event) => Some(Errno::ENOENT),
                    () if used == room[at] => Some(Errno::EINVAL),
                    () => None,
                };
                used += usize::from(error.is_none());
                results.push(error.map_or(Ok(()), |errno| Err(io::Error::from(errno))));
            }
            results
        };
        let found = choose(&wanted, &[CpuId(0), CpuId(16)], open).unwrap_or_default();
        assert_eq!(found, expected);
    }

    #[test]
    fn only_what_every_kind_counts_in_one_group_is_counted() {
        use Event::{CacheMisses, CacheReferences, Cycles, Instructions};
        check_choice([&[], &[]], [4, 4], &[Cycles, Instructions, CacheReferences, CacheMisses]);
        check_choice([&[], &[CacheMisses]], [4, 4], &[Cycles, Instructions, CacheReferences]);
        check_choice([&[Cycles], &[CacheMisses]], [4, 4], &[Instructions, CacheReferences]);
        check_choice([&[], &[]], [4, 2], &[Cycles, Instructions]);
        check_choice([&[Cycles], &[Instructions]], [1, 1], &[]);
        check_choice([&[], &[]], [0, 4], &[]);
    }

    /// Instructions of a CPU that came later and does not count cycles were added to those of the others, and made containers look fast.
    #[test]
    fn a_cpu_that_lacks_an_event_counts_none() {
        let lacking = || Err(io::Error::from(Errno::ENOENT));
        assert_eq!(whole(vec![Ok(1), Ok(2)]), Some(vec![1, 2]));
        assert_eq!(whole(vec![Ok(1), lacking()]), None);
        assert_eq!(whole(vec![lacking(), Ok(2)]), None);
    }

    #[track_caller]
    fn check(errno: Option<Errno>, expected: &str) {
        let error = errno.map(io::Error::from);
        let text = match judge_absence(error.as_ref()) {
            Absence::Unsupported(refusal) => format!("unsupported: {}", refusal.reason),
            Absence::Refused(refusal) => format!("refused: {}", refusal.reason),
        };
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_not_there_is_told_from_what_may_not_be_used() {
        let absent = "unsupported: this machine shows no counters of its processors";
        check(Some(Errno::ENOENT), absent);
        check(Some(Errno::EOPNOTSUPP), absent);
        check(None, absent);
        check(Some(Errno::EACCES), "refused: opening counters: not permitted");
        check(
            Some(Errno::ENOSYS),
            "refused: opening counters: the kernel has no system call perf_event_open, or a filter hides it",
        );
        check(Some(Errno::EBUSY), "refused: opening counters: Device or resource busy");
    }
}
