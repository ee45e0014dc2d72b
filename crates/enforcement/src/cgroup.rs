//! CPU time and memory of containers as far as CRI cannot say them (cgroup v2). In: which containers are where, and what is wanted. Out: settings.
//!
//! Files, ranges and what they mean: Documentation/admin-guide/cgroup-v2.rst, "CPU Interface Files" and "Memory Interface Files";
//! Documentation/scheduler/sched-bwc.rst, "Burst feature". A limit or a burst holds only as far as the groups above allow it, so both are told to the
//! pod's group, too; protection of memory is divided from the top, so every group above gets the sum of those below.
//!
//! Not here: `cpu.idle`, which the rebalancer, the settings of BestEffort pods and scheduling classes turn (`turned.rs`).

use std::collections::BTreeMap;

use bayplan_types::{Bytes, MilliCpu};

use crate::setting::{Form, Setting, Settings, Slot};

/// Where the groups of containers begin.
const CGROUPS: &str = "sys/fs/cgroup/";
/// The kernel counts memory in pages, of which this is the smallest.
const PAGE: u64 = 4096;

/// A limit of CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuQuota {
    /// Microseconds in each period.
    pub quota_us: u64,
    /// Microseconds.
    pub period_us: u64,
}

/// The kernel's shortest quota (`kernel/sched/core.c`, `min_cfs_quota_period`), in microseconds.
const QUOTA_US_MIN: u64 = 1000;
/// The kernel's usual period, in microseconds (Documentation/scheduler/sched-bwc.rst).
const PERIOD_US: u64 = 100_000;

impl CpuQuota {
    /// So much time of CPUs in the kernel's usual period, never less than the kernel takes.
    pub fn of(cpus: MilliCpu) -> CpuQuota {
        let quota_us = cpus.0.saturating_mul(PERIOD_US / 1000);
        CpuQuota { quota_us: quota_us.max(QUOTA_US_MIN), period_us: PERIOD_US }
    }
}

/// Memory that is kept for a container, and from which on it is slowed down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryWants {
    /// Never taken away (`memory.min`).
    pub min: Option<Bytes>,
    /// Taken away only where there is no unprotected memory (`memory.low`).
    pub low: Option<Bytes>,
    /// A container that uses more has to reclaim first (`memory.high`).
    pub high: Option<Bytes>,
}

/// Shares of what a container requests and may use, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryQos {
    /// Of the request; 0 leaves `memory.min` alone.
    pub min_percent: usize,
    /// Of the request; 0 leaves `memory.low` alone.
    pub low_percent: usize,
    /// Of the way from request to limit; 0 leaves `memory.high` alone.
    pub high_percent: usize,
}

impl MemoryQos {
    /// For a container with this request and limit; without a limit the node's memory is as much as it can use. There is no way between a
    /// request and a limit that are the same.
    pub fn wants(&self, request: Bytes, limit: Option<Bytes>, node: Bytes) -> MemoryWants {
        let share = |percent: usize, of: u64| {
            let percent = u128::try_from(percent).unwrap_or_default();
            u64::try_from(u128::from(of) * percent / 100).unwrap_or(u64::MAX)
        };
        let of_request = |percent| {
            let bytes = Bytes(share(percent, request.0) / PAGE * PAGE);
            (bytes > Bytes::ZERO).then_some(bytes)
        };
        let limit = limit.unwrap_or(node);
        let high = (self.high_percent > 0 && limit > request).then(|| {
            let way = share(self.high_percent, (limit - request).0);
            Bytes(request.0.saturating_add(way) / PAGE * PAGE)
        });
        MemoryWants {
            min: of_request(self.min_percent),
            low: of_request(self.low_percent),
            high: high.filter(|high| *high > Bytes::ZERO),
        }
    }
}

/// What is wanted of one container's groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupWants {
    /// Its full name.
    pub unit: String,
    /// The group of its pod, below the root.
    pub pod: Option<String>,
    /// Its own below the root, that which limits it first.
    pub dirs: Vec<String>,
    /// The limit that kubelet gave it.
    pub quota: Option<CpuQuota>,
    /// The limit that kubelet gave its pod.
    pub pod_quota: Option<CpuQuota>,
    /// Whether all of its CPUs are its own, so that a limit could only stop it where nothing else would run.
    pub is_quota_lifted: bool,
    /// Whether that of its pod may be lifted with it: all others of the pod have limits of their own, which are together not more than the pod's.
    pub is_pod_quota_lifted: bool,
    /// Unused CPU time that it may catch up on later, in percent of its limit; 0: none.
    pub burst_percent: u64,
    /// Its memory.
    pub memory: MemoryWants,
    /// CPU time and memory that it may use at most, which kubelet does not know of.
    pub batch: BatchWants,
}

/// Limits beside those that kubelet gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchWants {
    /// `cpu.max`.
    pub quota: Option<CpuQuota>,
    /// `memory.max`.
    pub memory: Option<Bytes>,
}

/// The settings of all containers, and what cannot be had.
pub fn settings_for_cgroups(containers: &[CgroupWants]) -> (Settings, Vec<String>) {
    let mut settings = Settings::new();
    let mut problems = Vec::new();
    let mut bursts: BTreeMap<&str, PodBurst<'_>> = BTreeMap::new();
    for container in containers {
        let CgroupWants { unit, pod, dirs, .. } = container;
        let burst_us = container.burst_us();
        if container.burst_percent > 100 && burst_us > 0 {
            problems.push(format!(
                "{unit}: a burst of {} % is cut to 100 %: the kernel allows no more than the limit itself",
                container.burst_percent
            ));
        }
        settings.extend(container.batch_settings());
        for dir in dirs {
            settings.extend(container.quota_setting(dir));
            if burst_us > 0 {
                settings.insert(burst_slot(dir), burst_setting(unit, burst_us));
            }
        }
        let Some(pod) = pod else { continue };
        settings.extend(container.quota_setting(pod).filter(|_| container.is_pod_quota_lifted));
        if let Some(quota) = container.pod_quota.filter(|_| burst_us > 0) {
            let pod = bursts.entry(pod).or_insert(PodBurst { unit, quota, burst_us: 0 });
            pod.burst_us = pod.burst_us.saturating_add(burst_us);
        }
    }
    for (dir, PodBurst { unit, quota, burst_us }) in bursts {
        // Nothing can be saved up in a pod without a limit.
        if !settings.contains_key(&quota_slot(dir)) {
            settings.insert(burst_slot(dir), burst_setting(unit, burst_us.min(quota.quota_us)));
        }
    }
    settings.extend(protection(containers, "memory.min", |memory| memory.min));
    settings.extend(protection(containers, "memory.low", |memory| memory.low));
    let high = containers.iter().filter_map(|container| {
        let slot = Slot::file(format!("{}/memory.high", container.dirs.first()?));
        Some((slot, memory_setting(&container.unit, container.memory.high?)))
    });
    settings.extend(high);
    (settings, problems)
}

/// What the containers of a pod may save up together.
struct PodBurst<'a> {
    unit: &'a str,
    quota: CpuQuota,
    burst_us: u64,
}

impl CgroupWants {
    /// Per period, at most the quota: more is EINVAL. Without a limit there is nothing to save up.
    fn burst_us(&self) -> u64 {
        let Some(quota) = self.quota.filter(|_| !self.is_quota_lifted) else { return 0 };
        let burst = u128::from(quota.quota_us) * u128::from(self.burst_percent.min(100)) / 100;
        u64::try_from(burst).unwrap_or(quota.quota_us)
    }

    /// Kubelet gives such a container no limit of its own; where it does, that one counts.
    fn batch_settings(&self) -> Settings {
        let Some(dir) = self.dirs.first() else { return Settings::new() };
        let setting = |form, value| Setting {
            form,
            value,
            unit: self.unit.clone(),
            reason: "batch resources".to_owned(),
        };
        let quota = self.batch.quota.filter(|_| self.quota.is_none());
        let quota = quota.map(|CpuQuota { quota_us, period_us }| {
            (quota_slot(dir), setting(Form::CpuMax, format!("{quota_us} {period_us}")))
        });
        let memory = self.batch.memory.map(|Bytes(bytes)| {
            (Slot::file(format!("{dir}/memory.max")), setting(Form::Bytes, bytes.to_string()))
        });
        quota.into_iter().chain(memory).collect()
    }

    fn quota_setting(&self, dir: &str) -> Option<(Slot, Setting)> {
        (self.is_quota_lifted && self.quota.is_some()).then(|| {
            let setting = Setting {
                form: Form::CpuMax,
                value: "max".to_owned(),
                unit: self.unit.clone(),
                reason: "all of its CPUs are exclusive: no limit".to_owned(),
            };
            (quota_slot(dir), setting)
        })
    }
}

pub(crate) fn quota_slot(dir: &str) -> Slot {
    Slot::file(format!("{dir}/cpu.max"))
}

/// The file that says what may be saved up.
pub fn burst_slot(dir: &str) -> Slot {
    Slot::file(format!("{dir}/cpu.max.burst"))
}

fn burst_setting(unit: &str, burst_us: u64) -> Setting {
    Setting {
        form: Form::Text,
        value: burst_us.to_string(),
        unit: unit.to_owned(),
        reason: "CPU burst".to_owned(),
    }
}

fn memory_setting(unit: &str, bytes: Bytes) -> Setting {
    Setting {
        form: Form::Bytes,
        value: bytes.0.to_string(),
        unit: unit.to_owned(),
        reason: "memory QoS".to_owned(),
    }
}

/// One kind of protection: what each container wants, and the sums above.
fn protection(
    containers: &[CgroupWants],
    file: &str,
    wanted: fn(&MemoryWants) -> Option<Bytes>,
) -> Settings {
    let mut sums: BTreeMap<&str, Bytes> = BTreeMap::new();
    let mut settings = Settings::new();
    for container in containers {
        let (Some(own), Some(bytes)) = (container.dirs.first(), wanted(&container.memory)) else {
            continue;
        };
        let slot = Slot::file(format!("{own}/{file}"));
        settings.insert(slot, memory_setting(&container.unit, bytes));
        for above in dirs_above(own) {
            *sums.entry(above).or_default() += bytes;
        }
    }
    for (dir, bytes) in sums {
        let name = dir.strip_prefix(CGROUPS).unwrap_or(dir);
        settings.insert(Slot::file(format!("{dir}/{file}")), memory_setting(name, bytes));
    }
    settings
}

/// The groups above this one, the nearest first, without the root, which has no such files.
pub(crate) fn dirs_above(dir: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(dir), |dir: &&str| dir.get(..dir.rfind('/')?))
        .skip(1)
        .take_while(|dir| dir.starts_with(CGROUPS))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    const POD: &str = "sys/fs/cgroup/kubepods/pod1";

    fn container(name: &str) -> CgroupWants {
        CgroupWants {
            unit: format!("n/p/{name}"),
            pod: Some(POD.to_owned()),
            dirs: vec![format!("{POD}/{name}")],
            quota: Some(CpuQuota { quota_us: 150_000, period_us: 100_000 }),
            pod_quota: Some(CpuQuota { quota_us: 200_000, period_us: 100_000 }),
            ..CgroupWants::default()
        }
    }

    fn check(containers: &[CgroupWants], expected: Expect) {
        let (settings, problems) = settings_for_cgroups(containers);
        let lines =
            settings.iter().map(|(slot, it)| format!("{slot} = {}  ({})\n", it.value, it.unit));
        let problems = problems.iter().map(|it| format!("! {it}\n"));
        expected.assert_eq(&lines.chain(problems).collect::<String>());
    }

    #[test]
    fn a_burst_needs_a_limit_and_room_in_the_pod() {
        let burst = |name, burst_percent| CgroupWants { burst_percent, ..container(name) };
        check(&[burst("a", 0)], expect![[r#""#]]);
        check(
            &[burst("a", 20), burst("b", 50)],
            expect![[r#"
            /sys/fs/cgroup/kubepods/pod1/a/cpu.max.burst = 30000  (n/p/a)
            /sys/fs/cgroup/kubepods/pod1/b/cpu.max.burst = 75000  (n/p/b)
            /sys/fs/cgroup/kubepods/pod1/cpu.max.burst = 105000  (n/p/a)
        "#]],
        );
        check(
            &[burst("a", 300), burst("b", 100)],
            expect![[r#"
            /sys/fs/cgroup/kubepods/pod1/a/cpu.max.burst = 150000  (n/p/a)
            /sys/fs/cgroup/kubepods/pod1/b/cpu.max.burst = 150000  (n/p/b)
            /sys/fs/cgroup/kubepods/pod1/cpu.max.burst = 200000  (n/p/a)
            ! n/p/a: a burst of 300 % is cut to 100 %: the kernel allows no more than the limit itself
        "#]],
        );
        check(&[CgroupWants { quota: None, ..burst("a", 50) }], expect![[r#""#]]);
        check(
            &[CgroupWants { pod: None, pod_quota: None, ..burst("a", 50) }],
            expect![[r#"
            /sys/fs/cgroup/kubepods/pod1/a/cpu.max.burst = 75000  (n/p/a)
        "#]],
        );
    }

    #[test]
    fn a_container_that_owns_all_of_its_cpus_has_no_limit_and_neither_has_its_pod() {
        let mut own = CgroupWants {
            is_quota_lifted: true,
            is_pod_quota_lifted: true,
            burst_percent: 50,
            ..container("own")
        };
        own.dirs.push(format!("{POD}/own/container"));
        let other = CgroupWants { burst_percent: 50, ..container("other") };
        check(
            &[own.clone(), other],
            expect![[r#"
            /sys/fs/cgroup/kubepods/pod1/cpu.max = max  (n/p/own)
            /sys/fs/cgroup/kubepods/pod1/other/cpu.max.burst = 75000  (n/p/other)
            /sys/fs/cgroup/kubepods/pod1/own/container/cpu.max = max  (n/p/own)
            /sys/fs/cgroup/kubepods/pod1/own/cpu.max = max  (n/p/own)
        "#]],
        );
        check(&[CgroupWants { quota: None, ..own }], expect![[r#""#]]);
    }

    #[test]
    fn batch_resources_are_limits_unless_kubelet_gives_one() {
        let quota = Some(CpuQuota { quota_us: 50_000, period_us: 100_000 });
        let batch = BatchWants { quota, memory: Some(Bytes(1 << 20)) };
        let alone = CgroupWants { quota: None, pod_quota: None, batch, ..container("a") };
        check(
            &[alone, CgroupWants { batch, ..container("b") }],
            expect![[r#"
                /sys/fs/cgroup/kubepods/pod1/a/cpu.max = 50000 100000  (n/p/a)
                /sys/fs/cgroup/kubepods/pod1/a/memory.max = 1048576  (n/p/a)
                /sys/fs/cgroup/kubepods/pod1/b/memory.max = 1048576  (n/p/b)
            "#]],
        );
    }

    #[test]
    fn protected_memory_is_protected_all_the_way_down() {
        let memory = |name, min, low| {
            let bytes = |mib: u64| (mib > 0).then_some(Bytes(mib << 20));
            let memory = MemoryWants { min: bytes(min), low: bytes(low), high: None };
            CgroupWants { memory, ..container(name) }
        };
        let mut elsewhere = memory("c", 8, 0);
        elsewhere.dirs = vec!["sys/fs/cgroup/kubepods/besteffort/pod2/c".to_owned()];
        check(
            &[memory("a", 1, 0), memory("b", 2, 4), elsewhere],
            expect![[r#"
            /sys/fs/cgroup/kubepods/besteffort/memory.min = 8388608  (kubepods/besteffort)
            /sys/fs/cgroup/kubepods/besteffort/pod2/c/memory.min = 8388608  (n/p/c)
            /sys/fs/cgroup/kubepods/besteffort/pod2/memory.min = 8388608  (kubepods/besteffort/pod2)
            /sys/fs/cgroup/kubepods/memory.low = 4194304  (kubepods)
            /sys/fs/cgroup/kubepods/memory.min = 11534336  (kubepods)
            /sys/fs/cgroup/kubepods/pod1/a/memory.min = 1048576  (n/p/a)
            /sys/fs/cgroup/kubepods/pod1/b/memory.low = 4194304  (n/p/b)
            /sys/fs/cgroup/kubepods/pod1/b/memory.min = 2097152  (n/p/b)
            /sys/fs/cgroup/kubepods/pod1/memory.low = 4194304  (kubepods/pod1)
            /sys/fs/cgroup/kubepods/pod1/memory.min = 3145728  (kubepods/pod1)
        "#]],
        );
    }

    #[test]
    fn memory_of_a_container_follows_request_and_limit() {
        let qos = MemoryQos { min_percent: 50, low_percent: 100, high_percent: 90 };
        let node = Bytes::gib(100);
        let (one, two) = (Bytes::gib(1), Bytes::gib(2));
        let text = |request, limit| {
            let MemoryWants { min, low, high } = qos.wants(request, limit, node);
            let shown = [min, low, high].map(|it| it.map_or("-".to_owned(), |it| it.to_string()));
            shown.join(", ")
        };
        assert_eq!(text(one, Some(two)), "512 MiB, 1 GiB, 1.8 GiB");
        assert_eq!(text(one, Some(one)), "512 MiB, 1 GiB, -");
        assert_eq!(text(one, None), "512 MiB, 1 GiB, 90 GiB");
        assert_eq!(text(Bytes::ZERO, None), "-, -, 90 GiB");
        assert_eq!(text(Bytes(5000), Some(Bytes(1000))), "-, 4 KiB, -");
        let huge = qos.wants(Bytes(u64::MAX), Some(Bytes(u64::MAX)), node);
        assert_eq!(huge.high, None);
        assert_eq!(MemoryQos::default().wants(one, Some(two), node), MemoryWants::default());
    }
}
