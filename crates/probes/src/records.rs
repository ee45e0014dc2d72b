//! The records of `bpf/records.h`, word for word. In: what a map holds. Out: values.
//!
//! A record comes out of the kernel as an array of words, which needs no unsafe code, and is read by position.

use bayplan_types::CpuId;

use crate::{CgroupId, Identity, Intruder, Intrusion, Softirq, Vector};

/// The slot of the counters of all tasks that are in no container.
pub(crate) const SLOT_OUTSIDE: u32 = 0;
/// `struct counters`.
pub(crate) type CountersRecord = [u64; 32];
/// `struct place`: core, L3, NUMA node, package, each the lowest CPU in it plus one, or 0.
pub(crate) type PlaceRecord = [u32; 4];
/// `struct intruder`.
pub(crate) type IntruderRecord = [u64; 4];
/// `struct intrusion`.
pub(crate) type IntrusionRecord = [u64; 2];
/// `struct unnamed`: a `struct intrusion` for each [`crate::Kind`].
pub(crate) type UnnamedRecord = [u64; 12];
/// `struct event_counts`: time to be counted, time counted, time not read, counts.
pub(crate) type EventsRecord = [u64; 8];
/// `struct settings`.
pub(crate) type SettingsRecord = [u64; 2];

// The same sizes as in `bpf/records.h`.
const _: () = assert!(size_of::<CountersRecord>() == 32 * 8);
const _: () = assert!(size_of::<PlaceRecord>() == 4 * 4);
const _: () = assert!(size_of::<IntruderRecord>() == 4 * 8);
const _: () = assert!(size_of::<IntrusionRecord>() == 2 * 8);
const _: () = assert!(size_of::<UnnamedRecord>() == 12 * 8);
const _: () = assert!(size_of::<EventsRecord>() == 8 * 8);
const _: () = assert!(size_of::<SettingsRecord>() == 2 * 8);

/// Kinds of [`crate::Counters::migrations`], nearest first.
pub(crate) const DISTANCES: usize = 5;
/// Kinds of [`crate::Counters::preempted_by`].
pub(crate) const PREEMPTERS: usize = 4;
/// Length of [`crate::Counters::delays`].
pub(crate) const DELAY_BUCKETS: usize = 19;
/// Upper end of the first bucket, as a power of two in ns.
pub(crate) const DELAY_BUCKET_FIRST_LOG2: u32 = 10;

/// What happened to the tasks of one container, or to those of no container, since it was first watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Time on a CPU, in ns, by the scheduler's own count (`sum_exec_runtime`, which `cpuacct.usage` and `cpu.stat` sum up, too).
    pub exec_ns: u64,
    /// Times that a task left a CPU.
    pub runs: u64,
    /// Time that tasks could have run and had no CPU, in ns (`run_delay`, the second number of `/proc/PID/schedstat`).
    pub delay_ns: u64,
    /// Times that a task left a CPU and could have gone on (`nonvoluntary_ctxt_switches` of `/proc/PID/status`).
    pub involuntary: u64,
    /// What the CPU was needed for, by [`Preempter`].
    pub preempted_by: [u64; PREEMPTERS],
    /// Times that a task was moved to another CPU, by [`Distance`].
    pub migrations: [u64; DISTANCES],
    /// Runs by the delay before each, see [`delay_bucket_ends`].
    pub delays: [u64; DELAY_BUCKETS],
}

/// How far a task was moved. The nearest that holds counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// To another thread of the core.
    SameCore,
    /// To another core of the L3.
    SameL3,
    /// To another L3 of the NUMA node.
    SameNode,
    /// To another NUMA node of the package.
    SamePackage,
    /// To another package.
    AcrossPackages,
}

impl Distance {
    /// In the order of [`Counters::migrations`].
    pub const ALL: [Distance; DISTANCES] = [
        Distance::SameCore,
        Distance::SameL3,
        Distance::SameNode,
        Distance::SamePackage,
        Distance::AcrossPackages,
    ];

    /// The name as it stands in files and labels.
    pub fn name(self) -> &'static str {
        match self {
            Distance::SameCore => "core",
            Distance::SameL3 => "l3",
            Distance::SameNode => "numa",
            Distance::SamePackage => "package",
            Distance::AcrossPackages => "machine",
        }
    }
}

/// What a task had to leave the CPU for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preempter {
    /// Another task of the same container.
    Itself,
    /// A task of another container.
    Container,
    /// A task of no container that is watched.
    System,
    /// No task: what its cgroup may use of the period was used up (`cpu.max`).
    Quota,
}

impl Preempter {
    /// In the order of [`Counters::preempted_by`].
    pub const ALL: [Preempter; PREEMPTERS] =
        [Preempter::Itself, Preempter::Container, Preempter::System, Preempter::Quota];

    /// The name as it stands in files and labels.
    pub fn name(self) -> &'static str {
        match self {
            Preempter::Itself => "itself",
            Preempter::Container => "container",
            Preempter::System => "system",
            Preempter::Quota => "quota",
        }
    }
}

/// The upper ends of the buckets of [`Counters::delays`] in ns, exclusive; the last bucket has none.
pub fn delay_bucket_ends() -> impl Iterator<Item = u64> + Clone {
    (0..).take(DELAY_BUCKETS - 1).map(|bucket: u32| 1_u64 << (DELAY_BUCKET_FIRST_LOG2 + bucket))
}

/// Reads a record from its beginning.
struct Words<'a>(std::slice::Iter<'a, u64>);

impl Words<'_> {
    fn next(&mut self) -> u64 {
        self.0.next().copied().unwrap_or_default()
    }

    fn list<const N: usize>(&mut self) -> [u64; N] {
        std::array::from_fn(|_| self.next())
    }
}

impl Counters {
    /// The sum over all CPUs. A CPU may hold a negative part of it, so sums go around at 2^64.
    pub(crate) fn sum<'a>(cpus: impl IntoIterator<Item = &'a CountersRecord>) -> Counters {
        let mut sum: CountersRecord = [0; 32];
        for cpu in cpus {
            for (sum, word) in sum.iter_mut().zip(cpu) {
                *sum = sum.wrapping_add(*word);
            }
        }
        let mut words = Words(sum.iter());
        Counters {
            exec_ns: words.next(),
            runs: words.next(),
            delay_ns: words.next(),
            involuntary: words.next(),
            preempted_by: words.list(),
            migrations: words.list(),
            delays: words.list(),
        }
    }
}

/// Reads the intruder that a record names. `None`: a kind that this version does not know.
pub(crate) fn parse_intruder(record: &IntruderRecord) -> Option<Intruder> {
    let [place, identity, name @ ..] = record;
    // The first word holds two halves; which is which depends on the byte order of the machine.
    let halves = place.to_ne_bytes();
    let half = |at: usize| {
        let bytes = halves.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    };
    let number = u32::try_from(*identity).ok();
    let identity = match half(4) {
        1 => Identity::KernelThread,
        2 => Identity::Container(CgroupId(*identity)),
        3 => Identity::Process(CgroupId(*identity)),
        4 => Identity::Interrupt(number?),
        5 => Identity::Softirq(Softirq(number?)),
        6 => Identity::Vector(*Vector::ALL.get(usize::try_from(*identity).ok()?)?),
        _ => return None,
    };
    let bytes: Vec<u8> = name.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let name = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned();
    Some(Intruder { cpu: CpuId(half(0)), identity, name })
}

impl From<&IntrusionRecord> for Intrusion {
    fn from(record: &IntrusionRecord) -> Intrusion {
        let [ns, times] = *record;
        Intrusion { ns, times }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = include_str!("../../../bpf/records.h");

    /// What the header says between `before` and `};`, without comments and types, in its order.
    fn members(before: &str) -> String {
        let (_, rest) = HEADER.split_once(before).unwrap();
        let (body, _) = rest.split_once("};").unwrap();
        let without_comment = |line: &str| line.split("/*").next().unwrap().to_owned();
        let body: String = body.lines().map(without_comment).collect();
        let parts = body.split([';', ',']).map(str::trim).filter(|part| !part.is_empty());
        let is_type = |word: &&str| !["u32", "u64", "char", "struct", "intrusion"].contains(word);
        let names = |part: &str| part.split(' ').filter(is_type).collect::<Vec<_>>().join(" ");
        parts.map(names).collect::<Vec<_>>().join(", ")
    }

    fn defined(name: &str) -> u32 {
        let line = HEADER.lines().find_map(|it| it.strip_prefix(&format!("#define {name} ")));
        line.unwrap().parse().unwrap()
    }

    /// A change of the header needs one of this file, too, and then of what is expected here.
    #[test]
    fn the_header_says_what_is_read_here() {
        for (before, expected) in [
            (
                "enum distance {",
                "SAME_CORE, SAME_L3, SAME_NODE, SAME_PACKAGE, ACROSS_PACKAGES, DISTANCES",
            ),
            ("enum preempter {", "BY_ITSELF, BY_CONTAINER, BY_SYSTEM, BY_NOBODY, PREEMPTERS"),
            (
                "struct counters {",
                "exec_ns, runs, delay_ns, involuntary, preempted_by[PREEMPTERS], migrations[DISTANCES], delays[DELAY_BUCKETS]",
            ),
            ("struct place {", "core, l3, node, package"),
            (
                "enum intruder_kind {",
                "KERNEL_THREAD = 1, CONTAINER, PROCESS, INTERRUPT, SOFTIRQ, VECTOR, KINDS = VECTOR",
            ),
            (
                "enum vector {",
                "LOCAL_TIMER, RESCHEDULE, CALL_FUNCTION, CALL_FUNCTION_SINGLE, IRQ_WORK",
            ),
            ("struct intruder {", "cpu, kind, who, name[16]"),
            ("struct intrusion {", "ns, times"),
            ("struct unnamed {", "by_kind[KINDS]"),
            ("struct event_counts {", "enabled_ns, running_ns, unread_ns, counts[EVENTS_MAX]"),
            ("struct settings {", "since_ns, generation"),
        ] {
            assert_eq!(members(before), expected, "{before}");
        }
        assert_eq!(defined("DELAY_BUCKETS") as usize, DELAY_BUCKETS);
        assert_eq!(defined("DELAY_BUCKET_FIRST_LOG2"), DELAY_BUCKET_FIRST_LOG2);
        assert_eq!(defined("SLOT_OUTSIDE"), SLOT_OUTSIDE);
        assert_eq!(defined("EVENTS_MAX") as usize + 3, size_of::<EventsRecord>() / 8);
    }

    #[test]
    fn a_record_of_counters_is_read_in_the_order_of_the_header() {
        let numbered: CountersRecord = std::array::from_fn(|word| word as u64);
        let counters = Counters::sum([&numbered]);
        assert_eq!(counters.exec_ns, 0);
        assert_eq!(counters.involuntary, 3);
        assert_eq!(counters.preempted_by, [4, 5, 6, 7]);
        assert_eq!(counters.migrations, [8, 9, 10, 11, 12]);
        assert_eq!((counters.delays[0], counters.delays[18]), (13, 31));
    }

    #[test]
    fn what_one_cpu_took_back_is_not_lost_in_the_sum() {
        let mut records = [[0; 32]; 2];
        records[0][0] = 5;
        records[1][0] = (-3_i64).cast_unsigned();
        assert_eq!(Counters::sum(&records).exec_ns, 2);
    }

    #[track_caller]
    fn check_intruder(
        kind: u32,
        identity: u64,
        name: &[u8; 16],
        expected: Option<(Identity, &str)>,
    ) {
        let word = |half: &[u8]| u64::from_ne_bytes(half.try_into().unwrap());
        let place = word(&[7_u32.to_ne_bytes(), kind.to_ne_bytes()].concat());
        let record = [place, identity, word(&name[..8]), word(&name[8..])];
        let expected = expected.map(|(identity, name)| Intruder {
            cpu: CpuId(7),
            identity,
            name: name.into(),
        });
        assert_eq!(parse_intruder(&record), expected);
    }

    #[test]
    fn intruders_are_read_by_kind() {
        check_intruder(
            1,
            0,
            b"kworker/7:1\0\0\0\0\0",
            Some((Identity::KernelThread, "kworker/7:1")),
        );
        check_intruder(
            2,
            99,
            b"a-name-of-16-let",
            Some((Identity::Container(CgroupId(99)), "a-name-of-16-let")),
        );
        check_intruder(
            4,
            34,
            b"nvme0q3\0\0\0\0\0\0\0\0\0",
            Some((Identity::Interrupt(34), "nvme0q3")),
        );
        check_intruder(5, 3, &[0; 16], Some((Identity::Softirq(Softirq(3)), "")));
        check_intruder(6, 0, &[0; 16], Some((Identity::Vector(Vector::LocalTimer), "")));
        check_intruder(
            3,
            5,
            b"\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            Some((Identity::Process(CgroupId(5)), "\u{fffd}")),
        );
    }

    #[test]
    fn what_is_not_known_is_no_intruder() {
        check_intruder(0, 0, &[0; 16], None);
        check_intruder(7, 0, &[0; 16], None);
        check_intruder(6, 99, &[0; 16], None);
        check_intruder(4, u64::MAX, &[0; 16], None);
    }
}
