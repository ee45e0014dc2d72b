//! The texts of counter files to values.
//!
//! Their forms: Documentation/accounting/psi.rst, "Pressure interface" (totals are microseconds); Documentation/admin-guide/cgroup-v2.rst, "Memory Interface Files"
//! (`memory.numa_stat`, `memory.stat`) and "IO Interface Files" (`io.stat`); Documentation/filesystems/proc.rst, "Miscellaneous kernel statistics in /proc/stat".

use std::collections::BTreeMap;

use bayplan_types::{Bytes, CpuId, NodeId};

/// How long tasks stood still for lack of something, in microseconds since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    /// At least one of them.
    pub some_usec: u64,
    /// All that had something to do; absent for the CPUs of the node, where it means nothing.
    pub full_usec: Option<u64>,
}

/// Stalls by what was lacking; absent where the kernel does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// CPU time.
    pub cpu: Option<Stall>,
    /// Memory.
    pub memory: Option<Stall>,
    /// Block devices.
    pub io: Option<Stall>,
    /// The CPU was busy with interrupts.
    pub irq: Option<Stall>,
}

/// Memory of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounters {
    /// All that it has now.
    pub current: Option<Bytes>,
    /// Of that anonymous memory and files, by node.
    pub by_node: BTreeMap<NodeId, Bytes>,
    /// Pages that were read again soon after they had been taken away.
    pub refaults: Option<u64>,
    /// Pages that went to a slower node.
    pub demoted: Option<u64>,
    /// Times that it was slowed down at `memory.high`.
    pub high_events: Option<u64>,
    /// Times that something of it was killed for lack of memory.
    pub oom_kills: Option<u64>,
}

/// Block I/O of a group, all devices together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounters {
    /// Bytes read.
    pub read: Bytes,
    /// Bytes written.
    pub written: Bytes,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=12` and, mostly, the same with `full` (`irq.pressure` has that alone); `None`: it is something else.
pub fn parse_stall(text: &str) -> Option<Stall> {
    let total = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))?;
        line.split(' ').find_map(|pair| pair.strip_prefix("total="))?.trim().parse::<u64>().ok()
    };
    let full_usec = total("full");
    let some_usec = total("some").or(full_usec)?;
    Some(Stall { some_usec, full_usec })
}

/// The number in the line that begins with this key.
pub(super) fn number(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// A file with nothing but a number.
pub(super) fn single(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// `anon N0=4096 N1=0` and many more: of those that the group has alone, the bytes by node.
pub(super) fn parse_numa_stat(text: &str) -> Option<BTreeMap<NodeId, Bytes>> {
    let mut nodes = BTreeMap::<NodeId, Bytes>::new();
    let kinds = text.lines().filter_map(|line| line.split_once(' '));
    for (_, pairs) in kinds.filter(|(kind, _)| matches!(*kind, "anon" | "file")) {
        for pair in pairs.split_whitespace() {
            let (node, bytes) = pair.strip_prefix('N')?.split_once('=')?;
            let bytes = Bytes(bytes.parse().ok()?);
            *nodes.entry(NodeId(node.parse().ok()?)).or_default() += bytes;
        }
    }
    Some(nodes)
}

/// Of `cpu3 user nice system idle iowait irq ...` idle and iowait, by CPU; the line of all CPUs together (`cpu`) is left out.
pub(super) fn parse_idle(text: &str) -> Option<BTreeMap<CpuId, u64>> {
    let lines = text.lines().map_while(|line| line.strip_prefix("cpu"));
    lines
        .filter(|line| !line.starts_with(' '))
        .map(|line| {
            let mut words = line.split_whitespace();
            let cpu = CpuId(words.next()?.parse().ok()?);
            let idle: u64 = words.nth(3)?.parse().ok()?;
            let waiting: u64 = words.next()?.parse().ok()?;
            Some((cpu, idle.saturating_add(waiting)))
        })
        .collect()
}

/// `8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0`, a line per device; a device without a number of some kind counts none.
pub(super) fn parse_io_stat(text: &str) -> Option<IoCounters> {
    let mut all = IoCounters::default();
    let pairs = text.lines().flat_map(|line| line.split_whitespace().skip(1));
    for pair in pairs {
        let (name, value) = pair.split_once('=')?;
        // Some kernels show the model's numbers behind these, with a point.
        let Ok(value) = value.parse::<u64>() else { continue };
        match name {
            "rbytes" => all.read += Bytes(value),
            "wbytes" => all.written += Bytes(value),
            "rios" => all.reads += value,
            "wios" => all.writes += value,
            _ => {}
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_totals_in_microseconds() {
        let line = |kind: &str, total: &str| {
            format!("{kind} avg10=0.00 avg60=1.50 avg300=0.20 total={total}\n")
        };
        let rows = [
            (line("some", "12") + &line("full", "3"), Some((12, Some(3)))),
            (line("some", "12"), Some((12, None))),
            (line("full", "7"), Some((7, Some(7)))),
            (line("some", "x"), None),
            ("some avg10=0.00\n".to_owned(), None),
            (String::new(), None),
        ];
        for (text, expected) in rows {
            let stall = parse_stall(&text).map(|it| (it.some_usec, it.full_usec));
            assert_eq!(stall, expected, "{text}");
        }
    }

    #[test]
    fn memory_is_counted_by_node() {
        let text = "anon N0=4096 N1=8192\nfile N0=100 N2=1\nkernel_stack N0=7\nworkingset_refault_anon N0=9\n";
        let expected = [(0, 4196), (1, 8192), (2, 1)].map(|(node, it)| (NodeId(node), Bytes(it)));
        assert_eq!(parse_numa_stat(text), Some(expected.into()));
        assert_eq!(parse_numa_stat(""), Some(BTreeMap::new()));
        for text in ["anon N0", "anon 0=1", "anon N0=x", "anon Nx=1"] {
            assert_eq!(parse_numa_stat(text), None, "{text}");
        }
    }

    #[test]
    fn idle_is_told_of_every_cpu() {
        let all = "cpu  9 9 9 99 9 0 0 0 0 0\n";
        let rest = "intr 5 1\nctxt 7\n";
        let text = format!("{all}cpu0 1 2 3 40 5 0 0 0 0 0\ncpu12 1 2 3 60 0 0 0\n{rest}");
        assert_eq!(parse_idle(&text), Some([(CpuId(0), 45), (CpuId(12), 60)].into()));
        assert_eq!(parse_idle(rest), Some(BTreeMap::new()));
        for text in ["cpu0 1 2 3", "cpux 1 2 3 4 5", "cpu0 1 2 3 x 5", "cpu0 1 2 3 4 -5"] {
            assert_eq!(parse_idle(text), None, "{text}");
        }
    }

    #[test]
    fn devices_are_summed_up() {
        let text = "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n\
                    8:16 rbytes=1 wbytes=1 rios=1 wios=1 dbytes=0 dios=0 cost.vrate=100.00 cost.usage=7\n254:0 \n";
        let sum = parse_io_stat(text).unwrap();
        assert_eq!((sum.read, sum.written, sum.reads, sum.writes), (Bytes(11), Bytes(21), 2, 3));
        assert_eq!(parse_io_stat(""), Some(IoCounters::default()));
        assert_eq!(parse_io_stat("8:0 rbytes"), None);
    }

    #[test]
    fn lines_are_found_by_their_whole_key() {
        let text = "high 3\nmax 4\noom 5\noom_kill 6\n";
        assert_eq!([number(text, "oom"), number(text, "oom_kill")], [Some(5), Some(6)]);
        assert_eq!(
            [number(text, "oo"), number("oom x\n", "oom"), single(" 7\n")],
            [None, None, Some(7)]
        );
    }
}
