//! Rates out of counters. In: which containers are there, what probes have counted, and files of cgroups, which stay open. Out: a row per container.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bayplan_daemon::{AuditView, ContainerAudit};
use bayplan_host::counters::{
    GroupCounters, GroupFiles, IoCounters, MemoryCounters, MonitorCounters, Monitored, Monitors,
};
use bayplan_host::kernel::DiskKernel;
use bayplan_host::{CpuFiles, CpuStat, find_container_cgroup, read_vector_use, tells_vector_use};
use bayplan_node::mode::Mode;
use bayplan_node::status::{ContainerStatus, Status};
use bayplan_types::{Bytes, CpuSet, NodeSet};
use jiff::Timestamp;
use serde::Serialize;

use super::node::{NodeReader, NodeRow};
use super::rates::{Stalled, byte_rate, number, stalled};

/// One reading; format `bayplan-top/1`.
#[derive(Debug, Serialize)]
pub(super) struct Reading {
    pub(super) format: &'static str,
    pub(super) at: Timestamp,
    pub(super) mode: Mode,
    pub(super) node: NodeRow,
    pub(super) containers: Vec<Row>,
    /// Why the first of those that could not be read could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unread: Option<String>,
}

/// One container. What is not known is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) container: String,
    pub(super) class: String,
    pub(super) cpus: String,
    /// CPUs that it used on average since the last reading.
    pub(super) cpu_usage: Option<f64>,
    /// Share of the periods in which it was stopped; `None` without a limit, too.
    pub(super) throttled: Option<f64>,
    /// Tasks that could have run and had no CPU, on average between the last two times that the daemon read its probes.
    pub(super) waiting: Option<f64>,
    /// 99 of 100 runs of the last minute began after at most this.
    pub(super) run_delay_p99_seconds: Option<f64>,
    /// Share of the last minute's time of the CPUs that it owns in which others ran there; null where it owns none.
    pub(super) taken: Option<f64>,
    /// Times per second that it had to leave a CPU and could have gone on, over the last minute.
    pub(super) preemptions: Option<f64>,
    /// Moves to other CPUs per second, as `waiting`.
    pub(super) migrations: Option<f64>,
    /// Over the last minute.
    pub(super) cycles_per_instruction: Option<f64>,
    /// Cache misses per thousand instructions over the last minute.
    pub(super) cache_misses: Option<f64>,
    pub(super) stalled: Stalled,
    /// Bytes per second from and to block devices since the last reading.
    pub(super) io_bytes: Option<f64>,
    /// Bytes of the last-level caches that it has, where resctrl monitors it.
    pub(super) cache_bytes: Option<f64>,
    /// Bytes per second between caches and memory since the last reading, likewise.
    pub(super) memory_traffic: Option<f64>,
    /// Share of its memory that is not on the NUMA nodes that it is to use.
    pub(super) memory_far: Option<f64>,
    /// Share of its threads, of those that were looked at, that used AVX-512 since the last reading.
    pub(super) avx512: Option<f64>,
}

/// The kernel notes the use of wide vectors when a thread leaves a CPU, so that less would miss some.
const VECTORS_LATELY_MIN: Duration = Duration::from_secs(2);

/// Keeps what is open, and the last counters.
pub(super) struct Reader {
    root: PathBuf,
    kernel: Option<DiskKernel>,
    node: Option<NodeReader>,
    /// By the runtime's id.
    open: BTreeMap<String, Open>,
    probes: ProbeRates,
    monitors: Monitors,
    /// Whether the kernel tells of AVX-512 here.
    tells_vectors: bool,
    /// Counts readings.
    turn: usize,
    buffer: Vec<u8>,
}

struct Open {
    cpu: CpuFiles,
    /// With cgroup v2.
    group: Option<GroupFiles>,
    /// Its directories, likewise; empty where nothing is told of AVX-512.
    dirs: Vec<String>,
    last: Option<(Instant, CpuStat, GroupCounters)>,
    /// When it was last monitored, and what there was.
    monitored: Option<(Instant, MonitorCounters)>,
}

impl Reader {
    pub(super) fn new(root: PathBuf) -> Reader {
        let mut kernel = DiskKernel::open(&root).ok();
        let node = kernel.as_mut().map(|kernel| NodeReader::open(&root, kernel));
        let tells_vectors = kernel.as_mut().is_some_and(|it| tells_vector_use(it));
        let (open, probes) = (BTreeMap::new(), ProbeRates::default());
        Reader {
            root,
            kernel,
            node,
            open,
            probes,
            monitors: Monitors::default(),
            tells_vectors,
            turn: 0,
            buffer: Vec::new(),
        }
    }

    pub(super) fn read(&mut self, status: &Status, audit: &AuditView, now: Instant) -> Reading {
        let is_there = |id: &String| status.containers.iter().any(|it| it.id.as_ref() == Some(id));
        self.open.retain(|id, _| is_there(id));
        self.probes.learn(audit);
        self.turn = self.turn.wrapping_add(1);
        let (monitored, mut unread) = self.read_monitors();
        let mut containers = Vec::new();
        for container in &status.containers {
            let mut row = Row {
                container: container.full_name(),
                class: container.class.clone(),
                cpus: container.cpus_text().to_owned(),
                ..Row::default()
            };
            if let Err(error) = self.read_group(container, now, &mut row) {
                unread.get_or_insert(format!("{error:#}"));
            }
            self.tell_caches(container, &monitored, now, &mut row);
            self.probes.tell(audit, &mut row);
            containers.push(row);
        }
        let node = self.node.as_mut().map(|node| node.read(now, &mut self.buffer));
        let (format, at, mode) = ("bayplan-top/1", Timestamp::now(), status.mode);
        Reading { format, at, mode, node: node.unwrap_or_default(), containers, unread }
    }

    /// What resctrl counts, and the first thing that could not be read of it.
    fn read_monitors(&mut self) -> (Monitored, Option<String>) {
        let (Reader { root, kernel, monitors, buffer, .. }, mut unread) = (self, None);
        let Some(kernel) = kernel else { return (Monitored::default(), None) };
        let monitored = monitors.read(root, kernel, buffer, |oddity| {
            unread.get_or_insert_with(|| oddity.to_owned());
        });
        (monitored, unread)
    }

    fn tell_caches(
        &mut self,
        container: &ContainerStatus,
        monitored: &Monitored,
        now: Instant,
        row: &mut Row,
    ) {
        let Some(id) = &container.id else { return };
        let Some(counters) = monitored.containers.get(id).copied() else { return };
        row.cache_bytes = counters.occupancy.map(|it| number(it.0));
        let Some(open) = self.open.get_mut(id) else { return };
        if let Some((then, before)) = open.monitored.replace((now, counters)) {
            let elapsed = now.saturating_duration_since(then);
            row.memory_traffic = byte_rate(before.total, counters.total, elapsed);
        }
    }

    fn vector_dirs(&mut self, parent: &str, id: &str) -> Vec<String> {
        let kernel = self.kernel.as_mut().filter(|_| self.tells_vectors);
        let found = kernel.and_then(|it| find_container_cgroup(it, parent, id, None).ok()?);
        found.map(|it| it.dirs).unwrap_or_default()
    }

    /// What its cgroup tells, as far as it is known; rates are those since the last reading.
    fn read_group(
        &mut self,
        container: &ContainerStatus,
        now: Instant,
        row: &mut Row,
    ) -> anyhow::Result<()> {
        let Some(id) = &container.id else { return Ok(()) };
        if !self.open.contains_key(id) {
            let parent = &container.cgroup_parent;
            let Some(cpu) = CpuFiles::open(&self.root, parent, id)? else { return Ok(()) };
            let kernel = self.kernel.as_mut();
            let found = kernel.map(|kernel| GroupFiles::find(&self.root, kernel, parent, id));
            let group = found.transpose()?.flatten();
            let dirs = self.vector_dirs(parent, id);
            self.open.insert(id.clone(), Open { cpu, group, dirs, last: None, monitored: None });
        }
        let Some(open) = self.open.get_mut(id) else { return Ok(()) };
        let Some(stat) = open.cpu.read()? else { return Ok(()) };
        let group = open.group.as_mut().map(|group| group.read(&mut self.buffer));
        let group = group.unwrap_or_default();
        row.memory_far = far(&group.memory, &container.mems);
        let (pressure, io) = (group.pressure, group.io);
        if let Some((then, before, group)) = open.last.replace((now, stat, group)) {
            let elapsed = now.saturating_duration_since(then);
            let lately = elapsed.max(VECTORS_LATELY_MIN);
            let kernel = self.kernel.as_mut().filter(|_| !open.dirs.is_empty());
            let found = kernel.and_then(|it| read_vector_use(it, &open.dirs, lately, self.turn));
            row.avx512 = found.map(|it| number(it.using as u64) / number(it.looked_at as u64));
            (row.cpu_usage, row.throttled) = rates(&before, &stat, elapsed);
            row.stalled = Stalled {
                cpu: stalled(group.pressure.cpu, pressure.cpu, elapsed),
                memory: stalled(group.pressure.memory, pressure.memory, elapsed),
                io: stalled(group.pressure.io, pressure.io, elapsed),
            };
            row.io_bytes = byte_rate(group.io.map(moved), io.map(moved), elapsed);
        }
        Ok(())
    }
}

/// CPUs used, and the share of periods in which it was stopped. Counters that went back say nothing.
fn rates(before: &CpuStat, after: &CpuStat, elapsed: Duration) -> (Option<f64>, Option<f64>) {
    let used = after.usage_usec.checked_sub(before.usage_usec).map(Duration::from_micros);
    let usage = used.map(|used| used.as_secs_f64() / elapsed.as_secs_f64());
    let periods = after.nr_periods.checked_sub(before.nr_periods).map(Duration::from_micros);
    let stopped = after.nr_throttled.checked_sub(before.nr_throttled).map(Duration::from_micros);
    let throttled = match (periods, stopped) {
        (Some(periods), Some(stopped)) if !periods.is_zero() => {
            Some(stopped.div_duration_f64(periods))
        }
        _ => None,
    };
    (usage.filter(|usage| usage.is_finite()), throttled)
}

/// Reads and writes together.
fn moved(io: IoCounters) -> Bytes {
    Bytes(io.read.0.saturating_add(io.written.0))
}

/// `None`: it has no memory that the kernel tells of, or its nodes are not chosen by Bayplan.
fn far(memory: &MemoryCounters, mems: &str) -> Option<f64> {
    let mems: NodeSet = mems.parse().ok()?;
    let sum = |is_wanted: &dyn Fn(bool) -> bool| -> f64 {
        let nodes = memory.by_node.iter().filter(|(node, _)| is_wanted(mems.contains(**node)));
        nodes.map(|(_, Bytes(bytes))| number(*bytes)).sum()
    };
    let (all, far) = (sum(&|_| true), sum(&|is_near| !is_near));
    (!mems.is_empty() && all > 0.0).then(|| far / all)
}

/// Rates between the last two times that the daemon read its probes, which it does less often than it is asked.
#[derive(Default)]
struct ProbeRates {
    last: Option<(Timestamp, BTreeMap<String, Counted>)>,
    /// Waiting tasks, and moves per second.
    rates: BTreeMap<String, (f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Counted {
    delay_seconds: f64,
    moves: f64,
}

impl ProbeRates {
    fn learn(&mut self, audit: &AuditView) {
        let Some(at) = audit.at else {
            *self = ProbeRates::default();
            return;
        };
        if self.last.as_ref().is_some_and(|(last, _)| *last == at) {
            return;
        }
        let counted = |it: &ContainerAudit| Counted {
            delay_seconds: it.run_delay_seconds,
            moves: it.migrations.values().copied().map(number).sum(),
        };
        let now: BTreeMap<String, Counted> =
            audit.containers.iter().map(|it| (it.full_name(), counted(it))).collect();
        self.rates.clear();
        if let Some((then, before)) = &self.last {
            let seconds = at.duration_since(*then).as_secs_f64();
            let rate = |before: f64, after: f64| {
                Some((after - before) / seconds).filter(|it| it.is_finite() && *it >= 0.0)
            };
            self.rates.extend(now.iter().filter_map(|(name, now)| {
                let before = before.get(name)?;
                let waiting = rate(before.delay_seconds, now.delay_seconds)?;
                Some((name.clone(), (waiting, rate(before.moves, now.moves)?)))
            }));
        }
        self.last = Some((at, now));
    }

    /// Where there are no rates yet, the daemon's own, of the last minute, are better than none.
    fn tell(&self, audit: &AuditView, row: &mut Row) {
        let of_row = audit.containers.iter().find(|it| it.full_name() == row.container);
        let recent = of_row.and_then(|it| it.recent.as_ref());
        row.run_delay_p99_seconds = recent.and_then(|it| it.run_delay_p99_seconds);
        row.cycles_per_instruction = recent.and_then(|it| it.cycles_per_instruction);
        row.cache_misses = recent.and_then(|it| it.cache_misses);
        row.preemptions = recent.map(|it| it.preempted);
        row.taken = of_row.and_then(|it| taken(it, audit.recent_seconds?));
        let rates = self.rates.get(&row.container).copied();
        let rates = rates.or_else(|| recent.map(|it| (it.waiting, it.migrations)));
        (row.waiting, row.migrations) = rates.unzip();
    }
}

/// Of the time of its own CPUs.
fn taken(container: &ContainerAudit, recent_seconds: f64) -> Option<f64> {
    let owned: CpuSet = container.owned.parse().ok()?;
    let owned = u32::try_from(owned.len()).ok().filter(|count| *count > 0)?;
    let share = container.recent.as_ref()?.taken_seconds / (recent_seconds * f64::from(owned));
    // The probes count by one clock and the window is measured by another.
    share.is_finite().then(|| share.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use bayplan_host::counters::Stall;
    use bayplan_types::NodeId;
    use expect_test::{Expect, expect};

    use super::*;

    fn check(before: [u64; 3], after: [u64; 3], seconds: u64, expected: Expect) {
        let stat = |[usage_usec, nr_periods, nr_throttled]: [u64; 3]| CpuStat {
            usage_usec,
            nr_periods,
            nr_throttled,
        };
        let rates = rates(&stat(before), &stat(after), Duration::from_secs(seconds));
        expected.assert_eq(&format!("{rates:?}"));
    }

    #[test]
    fn rates_are_of_what_came_since_and_absent_where_nothing_is_known() {
        check([1_000_000, 10, 5], [4_000_000, 30, 10], 2, expect!["(Some(1.5), Some(0.25))"]);
        check([0, 0, 0], [500_000, 0, 0], 2, expect!["(Some(0.25), None)"]);
        check([5, 7, 7], [4, 6, 6], 2, expect!["(None, None)"]);
        check([0, 0, 0], [1, 1, 1], 0, expect!["(None, Some(1.0))"]);
        let stall = |some_usec| Some(Stall { some_usec, full_usec: None });
        let second = Duration::from_secs(1);
        assert_eq!(stalled(stall(5), stall(250_005), second), Some(0.25));
        for (before, after, elapsed) in [
            (None, stall(1), second),
            (stall(2), stall(1), second),
            (stall(1), stall(1), Duration::ZERO),
        ] {
            assert_eq!(stalled(before, after, elapsed), None);
        }
        let io = |read, written| {
            let (read, written) = (Bytes(read), Bytes(written));
            Some(moved(IoCounters { read, written, ..IoCounters::default() }))
        };
        for (before, after, elapsed, expected) in [
            (io(1, 2), io(5, 8), second * 2, Some(5.0)),
            (io(5, 8), io(1, 2), second, None),
            (None, io(1, 2), second, None),
            (io(1, 2), io(1, 2), Duration::ZERO, None),
        ] {
            assert_eq!(byte_rate(before, after, elapsed), expected);
        }
    }

    #[test]
    fn memory_is_far_where_it_is_not_to_be() {
        let memory = |nodes: &[(u32, u64)]| MemoryCounters {
            by_node: nodes.iter().map(|(node, bytes)| (NodeId(*node), Bytes(*bytes))).collect(),
            ..MemoryCounters::default()
        };
        let split = memory(&[(0, 300), (1, 100)]);
        for (memory, mems, expected) in [
            (&split, "0", Some(0.25)),
            (&split, "0-1", Some(0.0)),
            (&split, "2", Some(1.0)),
            (&split, "", None),
            (&memory(&[(0, 0)]), "0", None),
            (&memory(&[]), "0", None),
        ] {
            assert_eq!(far(memory, mems), expected, "{mems}");
        }
    }

    fn audit(at: i64, run_delay_seconds: f64, moves: u64) -> AuditView {
        let text = format!(
            r#"{{"format": "bayplan-audit/1", "probes": [], "recent_seconds": null, "at": "{}",
                "containers": [{{"namespace": "n", "pod": "p", "container": "c", "owned": "", "cpu_seconds": 0,
                "run_delay_seconds": {run_delay_seconds}, "runs": 0, "preempted_by": {{}},
                "migrations": {{"core": {moves}, "l3": 1}}, "intruders": [],
                "recent": {{"cpus": 1, "waiting": 9, "run_delay_p50_seconds": null, "run_delay_p99_seconds": 0.5,
                            "preempted": 3, "migrations": 8, "taken_seconds": 0}}}}]}}"#,
            Timestamp::from_second(at).unwrap()
        );
        serde_json::from_str(&text).unwrap()
    }

    #[track_caller]
    fn check_taken(owned: &str, recent_seconds: Option<f64>, expected: Option<f64>) {
        let mut audit = audit(10, 0.0, 0);
        audit.recent_seconds = recent_seconds;
        audit.containers[0].owned = owned.to_owned();
        audit.containers[0].recent.as_mut().unwrap().taken_seconds = 3.0;
        let mut row = Row { container: "n/p/c".to_owned(), ..Row::default() };
        ProbeRates::default().tell(&audit, &mut row);
        assert_eq!(row.taken, expected, "{owned}");
    }

    #[test]
    fn what_others_take_is_a_share_of_the_time_of_owned_cpus() {
        check_taken("4", Some(60.0), Some(0.05));
        check_taken("4-5,9", Some(50.0), Some(0.02));
        check_taken("", Some(60.0), None);
        check_taken("4", None, None);
        check_taken("4", Some(0.0), None);
    }

    #[test]
    fn rates_of_probes_are_those_between_two_times_that_the_daemon_has_read_them() {
        let mut probes = ProbeRates::default();
        let rounds = [
            // Nothing to compare with: the daemon's own.
            (audit(10, 1.0, 100), (9.0, 8.0)),
            (audit(10, 1.0, 100), (9.0, 8.0)),
            (audit(15, 3.5, 110), (0.5, 2.0)),
            // Not read again meanwhile.
            (audit(15, 3.5, 110), (0.5, 2.0)),
            (audit(20, 3.5, 110), (0.0, 0.0)),
            // Begun anew.
            (audit(25, 0.0, 0), (9.0, 8.0)),
        ];
        for (audit, (waiting, migrations)) in rounds {
            let mut row = Row { container: "n/p/c".to_owned(), ..Row::default() };
            probes.learn(&audit);
            probes.tell(&audit, &mut row);
            assert_eq!((row.waiting, row.migrations), (Some(waiting), Some(migrations)));
            assert_eq!((row.run_delay_p99_seconds, row.preemptions), (Some(0.5), Some(3.0)));
        }
        let off = AuditView { at: None, containers: Vec::new(), ..audit(30, 0.0, 0) };
        let mut row = Row { container: "n/p/c".to_owned(), ..Row::default() };
        probes.learn(&off);
        probes.tell(&off, &mut row);
        assert_eq!((row.waiting, row.migrations), (None, None));
    }
}
