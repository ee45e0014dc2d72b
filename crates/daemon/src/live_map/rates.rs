//! What is measured, for the map's overlays and its table. In: two readings of the kernel's counters, what the probes have counted, names
//! by the runtime's id. Out: rates by container and by CPU. What is not counted is absent.

use std::collections::BTreeMap;

use bayplan_host::counters::{GroupCounters, Stall, TICKS_PER_SECOND};
use jiff::Timestamp;
use serde::Serialize;

use crate::observer::{GroupsRead, Placed};
use crate::prober::{AuditView, ContainerAudit};

/// Intruders that are named for a CPU.
const NAMED_MAX: usize = 5;

/// Format `bayplan-rates/1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct RatesView {
    pub(crate) format: &'static str,
    pub(crate) at: Timestamp,
    /// By `namespace/pod/container`.
    pub(crate) containers: BTreeMap<String, ContainerRates>,
    /// By the kernel's number.
    pub(crate) cpus: BTreeMap<u32, CpuRates>,
    /// Why the map has no value, or not all of it, by the name of the field that lacks it; a sentence each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) absent_of: BTreeMap<&'static str, Vec<String>>,
}

/// One container.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ContainerRates {
    /// CPUs that it kept busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu: Option<f64>,
    /// Share of the time in which its limit stopped it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) throttled: Option<f64>,
    /// Tasks that could have run and had no CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waiting: Option<f64>,
    /// 99 of 100 runs began after at most this, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay_ms: Option<f64>,
    /// Moves to another CPU, a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) migrations: Option<f64>,
    /// CPUs of its own that others kept busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) taken: Option<f64>,
    /// Share of its memory on other NUMA nodes than it is to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) far: Option<f64>,
    /// Share of the time in which some of its tasks waited for a CPU (PSI).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_stall: Option<f64>,
    /// Share of the time in which some of its tasks stood still for lack of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_stall: Option<f64>,
    /// Share of the time in which some of its tasks waited for a block device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) io_stall: Option<f64>,
    /// Last-level cache that it has, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache_mib: Option<f64>,
    /// Bytes between caches and memory, in MB/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) traffic_mbps: Option<f64>,
}

/// One CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct CpuRates {
    /// Share of the time in which it had something to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) busy: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mhz: Option<f64>,
    /// Share of the time in idle states from which it wakes up late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deep: Option<f64>,
    /// Share of the time in each idle state, by name, the shallowest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) idle: Vec<(String, f64)>,
    /// Share of the last minute in which others ran on it than the container that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) intruded: Option<f64>,
    /// These, most time first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) intruders: Vec<String>,
}

#[allow(clippy::cast_precision_loss, reason = "counters of rates that are shown with two digits")]
fn float(value: u64) -> f64 {
    value as f64
}

fn since(now: Option<u64>, before: Option<u64>) -> Option<f64> {
    Some(float(now?.checked_sub(before?)?))
}

/// Rates between two readings, of which the first may be missing. `names` has those that are there now.
pub(crate) fn rates(
    readings: (Option<&GroupsRead>, Option<&GroupsRead>),
    audit: &AuditView,
    names: &BTreeMap<String, String>,
    at: Timestamp,
) -> RatesView {
    let mut view = RatesView { format: "bayplan-rates/1", at, ..RatesView::default() };
    if let (before, Some(now)) = readings {
        tell_readings(&mut view, before, now, names);
    }
    let seconds = audit.recent_seconds.filter(|seconds| *seconds > 0.0);
    let counts_moves =
        !audit.probes.iter().any(|it| it.name == "migrations" && it.reason.is_some());
    for told in &audit.containers {
        let rates = view.containers.entry(told.full_name()).or_default();
        tell_probes(rates, told, seconds);
        rates.migrations = rates.migrations.filter(|_| counts_moves);
        if let Some(seconds) = seconds {
            tell_intruders(&mut view.cpus, told, seconds);
        }
    }
    view
}

fn tell_readings(
    view: &mut RatesView,
    before: Option<&GroupsRead>,
    now: &GroupsRead,
    names: &BTreeMap<String, String>,
) {
    let elapsed = before.map(|it| now.at.saturating_duration_since(it.at).as_secs_f64());
    let elapsed = elapsed.filter(|seconds| *seconds > 0.0);
    for (id, (counters, home)) in &now.groups {
        let Some(name) = names.get(id) else { continue };
        let old = before.and_then(|it| it.groups.get(id)).map(|(old, _)| old);
        let caches = |read: &GroupsRead| read.caches.get(id).copied().unwrap_or_default();
        let mut rates = of_group(counters, old, *home, elapsed);
        rates.cache_mib = caches(now).occupancy.map(|bytes| float(bytes.0) / f64::from(1 << 20));
        let total = since(
            caches(now).total.map(|it| it.0),
            before.and_then(|it| caches(it).total).map(|it| it.0),
        );
        rates.traffic_mbps = total.zip(elapsed).map(|(bytes, seconds)| bytes / seconds / 1e6);
        view.containers.insert(name.clone(), rates);
    }
    for (cpu, ticks) in &now.idle_ticks {
        let old = before.and_then(|it| it.idle_ticks.get(cpu)).copied();
        let idle = since(Some(*ticks), old).zip(elapsed);
        let idle = idle.map(|(ticks, seconds)| ticks / TICKS_PER_SECOND / seconds);
        view.cpus.entry(cpu.0).or_default().busy = idle.map(|idle| (1.0 - idle).clamp(0.0, 1.0));
    }
    for (cpu, khz) in &now.frequencies_khz {
        view.cpus.entry(cpu.0).or_default().mhz = Some(float(*khz) / 1e3);
    }
}

fn of_group(
    now: &GroupCounters,
    before: Option<&GroupCounters>,
    home: Option<Placed>,
    elapsed: Option<f64>,
) -> ContainerRates {
    let usec = |of: fn(&GroupCounters) -> Option<u64>| {
        let usec = since(of(now), before.and_then(of))?;
        Some(usec / 1e6 / elapsed?)
    };
    // Files of one reading are not read at quite the same time.
    let stall = |of: fn(&GroupCounters) -> Option<u64>| usec(of).map(|share| share.min(1.0));
    let far = home.map(|Placed { near, far }| (float(near.0), float(far.0)));
    ContainerRates {
        cpu: usec(|it| it.cpu_usec),
        throttled: usec(|it| it.throttled_usec),
        cpu_stall: stall(|it| some_usec(it.pressure.cpu)),
        memory_stall: stall(|it| some_usec(it.pressure.memory)),
        io_stall: stall(|it| some_usec(it.pressure.io)),
        far: far.filter(|(near, far)| near + far > 0.0).map(|(near, far)| far / (near + far)),
        ..ContainerRates::default()
    }
}

fn some_usec(stall: Option<Stall>) -> Option<u64> {
    stall.map(|it| it.some_usec)
}

fn tell_probes(rates: &mut ContainerRates, told: &ContainerAudit, seconds: Option<f64>) {
    let Some(recent) = &told.recent else { return };
    rates.waiting = Some(recent.waiting);
    rates.delay_ms = recent.run_delay_p99_seconds.map(|seconds| seconds * 1e3);
    rates.migrations = Some(recent.migrations);
    rates.taken = seconds.filter(|_| !told.owned.is_empty()).map(|it| recent.taken_seconds / it);
    rates.cpu = rates.cpu.or(Some(recent.cpus));
}

fn tell_intruders(cpus: &mut BTreeMap<u32, CpuRates>, told: &ContainerAudit, seconds: f64) {
    let owned = told.owned.parse::<bayplan_types::CpuSet>().unwrap_or_default();
    for cpu in owned.iter() {
        cpus.entry(cpu.0).or_default().intruded = Some(0.0);
    }
    for intruder in told.intruders.iter().filter(|it| it.recent_seconds > 0.0) {
        let rates = cpus.entry(intruder.cpu).or_default();
        let share = intruder.recent_seconds / seconds;
        rates.intruded = Some(rates.intruded.unwrap_or(0.0) + share);
        if rates.intruders.len() < NAMED_MAX {
            let name = if intruder.name.is_empty() { "" } else { " " };
            let percent = share * 100.0;
            let text = format!("{}{name}{}: {percent:.2} %", intruder.who, intruder.name);
            rates.intruders.push(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use bayplan_types::{Bytes, CpuId};
    use expect_test::{Expect, expect};

    use super::*;

    fn reading(at: Instant, cpu_usec: u64, idle: u64) -> GroupsRead {
        let counters = GroupCounters { cpu_usec: Some(cpu_usec), ..GroupCounters::default() };
        let placed = Placed { near: Bytes(300), far: Bytes(100) };
        GroupsRead {
            at,
            groups: [("id".to_owned(), (counters, Some(placed)))].into(),
            caches: BTreeMap::new(),
            idle_ticks: [(CpuId(0), idle)].into(),
            frequencies_khz: [(CpuId(0), 2_400_000)].into(),
        }
    }

    fn audit(json: serde_json::Value) -> AuditView {
        serde_json::from_value(json).unwrap()
    }

    #[track_caller]
    fn check(before: Option<(u64, u64)>, now: (u64, u64), audit: &AuditView, expected: Expect) {
        let begin = Instant::now();
        let before = before.map(|(usec, idle)| reading(begin, usec, idle));
        let now = reading(begin + Duration::from_secs(10), now.0, now.1);
        let names = [("id".to_owned(), "n/p/c".to_owned())].into();
        let view = rates((before.as_ref(), Some(&now)), audit, &names, Timestamp::UNIX_EPOCH);
        expected.assert_eq(&serde_json::to_string(&view).unwrap());
    }

    fn quiet() -> AuditView {
        audit(
            serde_json::json!({"format": "", "probes": [], "recent_seconds": null, "containers": []}),
        )
    }

    #[test]
    fn rates_need_two_readings() {
        check(
            Some((0, 0)),
            (20_000_000, 250),
            &quiet(),
            expect![[
                r#"{"format":"bayplan-rates/1","at":"1970-01-01T00:00:00Z","containers":{"n/p/c":{"cpu":2.0,"far":0.25}},"cpus":{"0":{"busy":0.75,"mhz":2400.0}}}"#
            ]],
        );
        check(
            None,
            (20_000_000, 250),
            &quiet(),
            expect![[
                r#"{"format":"bayplan-rates/1","at":"1970-01-01T00:00:00Z","containers":{"n/p/c":{"far":0.25}},"cpus":{"0":{"mhz":2400.0}}}"#
            ]],
        );
        // A counter that has begun anew.
        check(
            Some((30_000_000, 900)),
            (20_000_000, 250),
            &quiet(),
            expect![[
                r#"{"format":"bayplan-rates/1","at":"1970-01-01T00:00:00Z","containers":{"n/p/c":{"far":0.25}},"cpus":{"0":{"mhz":2400.0}}}"#
            ]],
        );
    }

    #[test]
    fn stalls_are_shares_of_the_time_and_never_more_than_all_of_it() {
        let begin = Instant::now();
        let stalled = |at, cpu, memory| {
            let mut read = reading(at, 0, 0);
            let counters = &mut read.groups.get_mut("id").unwrap().0;
            let stall = |some_usec| Some(Stall { some_usec, full_usec: None });
            (counters.pressure.cpu, counters.pressure.memory) = (stall(cpu), stall(memory));
            read
        };
        let before = stalled(begin, 1_000_000, 0);
        let now = stalled(begin + Duration::from_secs(10), 3_500_000, 10_004_000);
        let names = [("id".to_owned(), "n/p/c".to_owned())].into();
        let view = rates((Some(&before), Some(&now)), &quiet(), &names, Timestamp::UNIX_EPOCH);
        let found = &view.containers["n/p/c"];
        let stalls = (found.cpu_stall, found.memory_stall, found.io_stall);
        assert_eq!(stalls, (Some(0.25), Some(1.0), None));
    }

    #[test]
    fn intruders_are_told_by_cpu() {
        let intruder = |cpu: u32, seconds: f64| serde_json::json!({"cpu": cpu, "who": "kernel thread", "name": "kworker", "seconds": 9.0, "times": 3, "recent_seconds": seconds});
        let told = audit(
            serde_json::json!({"format": "", "probes": [], "recent_seconds": 60.0, "containers": [{
                "namespace": "n", "pod": "p", "container": "c", "owned": "4-5", "cpu_seconds": 0.0, "run_delay_seconds": 0.0, "runs": 1,
                "preempted_by": {}, "migrations": {}, "recent": null,
                "intruders": [intruder(4, 0.6), intruder(4, 0.3), intruder(5, 0.0)],
            }]}),
        );
        check(
            None,
            (0, 0),
            &told,
            expect![[
                r#"{"format":"bayplan-rates/1","at":"1970-01-01T00:00:00Z","containers":{"n/p/c":{"far":0.25}},"cpus":{"0":{"mhz":2400.0},"4":{"intruded":0.015,"intruders":["kernel thread kworker: 1.00 %","kernel thread kworker: 0.50 %"]},"5":{"intruded":0.0}}}"#
            ]],
        );
    }

    #[test]
    fn moves_that_no_probe_counts_are_absent_and_not_none() {
        for (reason, expected) in [(None, Some(0.0)), (Some("refused by the kernel"), None)] {
            let told = audit(serde_json::json!({
                "format": "", "recent_seconds": 60.0,
                "probes": [{"name": "migrations", "counts": "moves", "state": "", "reason": reason}],
                "containers": [{
                    "namespace": "n", "pod": "p", "container": "c", "owned": "", "cpu_seconds": 0.0, "run_delay_seconds": 0.0, "runs": 1,
                    "preempted_by": {}, "migrations": {}, "intruders": [],
                    "recent": {
                        "cpus": 1.0, "waiting": 0.0, "run_delay_p50_seconds": null, "run_delay_p99_seconds": null,
                        "preempted": 0.0, "migrations": 0.0, "taken_seconds": 0.0,
                    },
                }],
            }));
            let view = rates((None, None), &told, &BTreeMap::new(), Timestamp::UNIX_EPOCH);
            assert_eq!(view.containers["n/p/c"].migrations, expected);
        }
    }
}
