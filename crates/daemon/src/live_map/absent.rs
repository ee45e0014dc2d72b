//! Why the map has no value to show. In: rates, and the readings and counts that they were made of. Out: sentences by field of the rates.

use std::collections::BTreeMap;

use crate::live_map::rates::{ContainerRates, CpuRates, RatesView};
use crate::observer::GroupsRead;
use crate::prober::{AuditView, ProbeView};

/// By the name of a field of [`ContainerRates`] or [`CpuRates`].
pub(super) type Absent = BTreeMap<&'static str, Vec<String>>;

/// Why no CPU or no container has a value of a kind, and which probes do not add to one.
pub(super) fn absent_of(
    view: &RatesView,
    (before, now): (Option<&GroupsRead>, Option<&GroupsRead>),
    audit: &AuditView,
) -> Absent {
    let mut absent = Absent::new();
    for field in &FILE_FIELDS {
        if !(field.is_there)(view) {
            let why = match (before, now) {
                (_, None) => "nothing has been read yet",
                (None, _) if field.is_rate => "there are no two readings yet",
                (_, Some(read)) if field.is_of_containers && read.groups.is_empty() => {
                    "no container has a cgroup that could be read"
                }
                _ => field.why,
            };
            absent.insert(field.name, vec![why.to_owned()]);
        }
    }
    for field in &PROBE_FIELDS {
        let silent = audit.probes.iter().filter(|it| field.probes.contains(&it.name.as_str()));
        let mut why: Vec<String> = silent.filter_map(ProbeView::not_counted).collect();
        if why.is_empty() && !(field.is_there)(view) {
            let off = "probes are off, or the daemon has just been started";
            why.push(if audit.probes.is_empty() { off } else { field.why }.to_owned());
        }
        if !why.is_empty() {
            absent.insert(field.name, why);
        }
    }
    absent
}

/// A field that is read of kernel files.
struct FileField {
    name: &'static str,
    is_there: fn(&RatesView) -> bool,
    /// It is a difference between two readings.
    is_rate: bool,
    is_of_containers: bool,
    /// Why readings have none.
    why: &'static str,
}

const NO_RESCTRL: &str =
    "resctrl counts no container here: `resctrl.monitor` is off, or the processor cannot";

const FILE_FIELDS: [FileField; 6] = [
    FileField {
        name: "busy",
        is_there: |view| any_cpu(view, |it| it.busy),
        is_rate: true,
        is_of_containers: false,
        why: "the kernel does not tell how long CPUs were idle",
    },
    FileField {
        name: "mhz",
        is_there: |view| any_cpu(view, |it| it.mhz),
        is_rate: false,
        is_of_containers: false,
        why: "the kernel tells no frequencies here, as in most virtual machines",
    },
    FileField {
        name: "throttled",
        is_there: |view| any_container(view, |it| it.throttled),
        is_rate: true,
        is_of_containers: true,
        why: "the kernel does not tell how long limits stopped containers",
    },
    FileField {
        name: "far",
        is_there: |view| any_container(view, |it| it.far),
        is_rate: false,
        is_of_containers: true,
        why: "the kernel does not tell on which nodes the memory of containers is",
    },
    FileField {
        name: "cache_mib",
        is_there: |view| any_container(view, |it| it.cache_mib),
        is_rate: false,
        is_of_containers: true,
        why: NO_RESCTRL,
    },
    FileField {
        name: "traffic_mbps",
        is_there: |view| any_container(view, |it| it.traffic_mbps),
        is_rate: true,
        is_of_containers: true,
        why: NO_RESCTRL,
    },
];

/// A field that probes count.
struct ProbeField {
    name: &'static str,
    is_there: fn(&RatesView) -> bool,
    probes: &'static [&'static str],
    /// Why there is none although they count.
    why: &'static str,
}

const PROBE_FIELDS: [ProbeField; 3] = [
    ProbeField {
        name: "intruded",
        is_there: |view| any_cpu(view, |it| it.intruded),
        probes: &["scheduler", "interrupts", "vectors"],
        why: "no container with CPUs of its own has been watched for long enough",
    },
    ProbeField {
        name: "delay_ms",
        is_there: |view| any_container(view, |it| it.delay_ms),
        probes: &["scheduler"],
        why: "no container that ran in the last minute has been watched for long enough",
    },
    ProbeField {
        name: "migrations",
        is_there: |view| any_container(view, |it| it.migrations),
        probes: &["migrations"],
        why: "no container has been watched for long enough",
    },
];

fn any_cpu(view: &RatesView, value: fn(&CpuRates) -> Option<f64>) -> bool {
    view.cpus.values().any(|it| value(it).is_some())
}

fn any_container(view: &RatesView, value: fn(&ContainerRates) -> Option<f64>) -> bool {
    view.containers.values().any(|it| value(it).is_some())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bayplan_host::counters::GroupCounters;
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn reading(ids: &[&str]) -> GroupsRead {
        let groups = ids.iter().map(|id| ((*id).to_owned(), (GroupCounters::default(), None)));
        GroupsRead {
            at: Instant::now(),
            groups: groups.collect(),
            caches: BTreeMap::new(),
            idle_ticks: BTreeMap::new(),
            frequencies_khz: BTreeMap::new(),
        }
    }

    /// What is said with so many readings, each of these containers, and these probes.
    #[track_caller]
    fn check(
        view: &RatesView,
        readings: usize,
        ids: &[&str],
        probes: &serde_json::Value,
        expected: Expect,
    ) {
        let audit =
            json!({"format": "", "probes": probes, "recent_seconds": null, "containers": []});
        let audit: AuditView = serde_json::from_value(audit).unwrap();
        let read = reading(ids);
        let both = ((readings > 1).then_some(&read), (readings > 0).then_some(&read));
        let found = absent_of(view, both, &audit);
        let lines = found.iter().map(|(field, why)| format!("{field}: {}\n", why.join("; ")));
        expected.assert_eq(&lines.collect::<String>());
    }

    #[test]
    fn what_is_missing_has_a_reason() {
        let none = RatesView::default();
        check(
            &none,
            0,
            &[],
            &json!([]),
            expect![[r#"
            busy: nothing has been read yet
            cache_mib: nothing has been read yet
            delay_ms: probes are off, or the daemon has just been started
            far: nothing has been read yet
            intruded: probes are off, or the daemon has just been started
            mhz: nothing has been read yet
            migrations: probes are off, or the daemon has just been started
            throttled: nothing has been read yet
            traffic_mbps: nothing has been read yet
        "#]],
        );
        let probe = |name: &str, reason: Option<&str>| json!({"name": name, "counts": format!("{name} and so on"), "state": "", "reason": reason});
        let some = json!([
            probe("scheduler", None),
            probe("migrations", Some("no BTF")),
            probe("vectors", Some("not x86"))
        ]);
        check(
            &none,
            1,
            &["id"],
            &some,
            expect![[r#"
            busy: there are no two readings yet
            cache_mib: resctrl counts no container here: `resctrl.monitor` is off, or the processor cannot
            delay_ms: no container that ran in the last minute has been watched for long enough
            far: the kernel does not tell on which nodes the memory of containers is
            intruded: vectors and so on not counted: not x86
            mhz: the kernel tells no frequencies here, as in most virtual machines
            migrations: migrations and so on not counted: no BTF
            throttled: there are no two readings yet
            traffic_mbps: there are no two readings yet
        "#]],
        );
    }

    #[test]
    fn what_is_there_needs_none() {
        let container = ContainerRates {
            throttled: Some(0.0),
            delay_ms: Some(1.0),
            migrations: Some(0.0),
            far: Some(0.0),
            cache_mib: Some(1.0),
            ..ContainerRates::default()
        };
        let cpu = CpuRates { busy: Some(0.0), intruded: Some(0.0), ..CpuRates::default() };
        let view = RatesView {
            containers: [("n/p/c".to_owned(), container)].into(),
            cpus: [(0, cpu)].into(),
            ..RatesView::default()
        };
        check(
            &view,
            2,
            &[],
            &json!([]),
            expect![[r#"
            mhz: the kernel tells no frequencies here, as in most virtual machines
            traffic_mbps: no container has a cgroup that could be read
        "#]],
        );
    }
}
