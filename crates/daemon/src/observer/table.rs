//! Every metric of readings: one table. In: a reading. Out: names, helps and values.

use bayplan_host::counters::{MonitorCounters, Pressure, Stall, Uncore};

use super::metric::{Labelled, Metric, Values, number, seconds};
use Values::{OfContainer, OfNode};

const fn counter(
    name: &'static str,
    help: &'static str,
    unit: Option<&'static str>,
    values: Values,
) -> Metric {
    Metric { name, help, unit, is_counter: true, values }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    unit: Option<&'static str>,
    values: Values,
) -> Metric {
    Metric { name, help, unit, is_counter: false, values }
}

/// As in `docs/metrics.md`.
pub(super) const METRICS: [Metric; 22] = [
    gauge(
        "container_cpus",
        "CPUs that the container may run on, by what they are used for; exclusive: its own",
        None,
        OfContainer(|it| {
            let there = it.cpus.into_iter().filter(|(_, count)| *count > 0);
            there.map(|(class, count)| one("class", class.name(), Some(count as u64))).collect()
        }),
    ),
    gauge(
        "container_effective_cpus",
        "CPUs on which the kernel lets the container run: its effective set, less what the affinity of its first process leaves out",
        None,
        OfContainer(|it| vec![plain(it.effective_cpus.map(|count| number(count as u64)))]),
    ),
    counter(
        "container_cpu",
        "CPU time of the container",
        Some("seconds"),
        OfContainer(|it| vec![plain(seconds(it.counters.cpu_usec))]),
    ),
    counter(
        "container_throttled",
        "Time in which its CPU limit stopped the container",
        Some("seconds"),
        OfContainer(|it| vec![plain(seconds(it.counters.throttled_usec))]),
    ),
    counter(
        "container_stalled",
        "Time in which some or all tasks of the container stood still for lack of a resource",
        Some("seconds"),
        OfContainer(|it| stalls(&it.counters.pressure)),
    ),
    gauge(
        "container_memory",
        "Memory of the container on the NUMA nodes that it is to use (near), and elsewhere (far)",
        Some("bytes"),
        OfContainer(|it| {
            let placed = it.placed;
            vec![
                one("where", "near", placed.map(|it| it.near.0)),
                one("where", "far", placed.map(|it| it.far.0)),
            ]
        }),
    ),
    counter(
        "container_memory_refaults",
        "Pages of the container that were read again soon after they had been taken away",
        None,
        OfContainer(|it| vec![plain(it.counters.memory.refaults.map(number))]),
    ),
    counter(
        "container_memory_demotions",
        "Pages of the container that went to a slower NUMA node",
        None,
        OfContainer(|it| vec![plain(it.counters.memory.demoted.map(number))]),
    ),
    counter(
        "container_oom_kills",
        "Processes of the container that were killed for lack of memory",
        None,
        OfContainer(|it| vec![plain(it.counters.memory.oom_kills.map(number))]),
    ),
    counter(
        "container_io",
        "Bytes that the container has read from and written to block devices",
        Some("bytes"),
        OfContainer(|it| {
            let io = it.counters.io;
            vec![
                one("direction", "read", io.map(|it| it.read.0)),
                one("direction", "written", io.map(|it| it.written.0)),
            ]
        }),
    ),
    counter(
        "container_io_operations",
        "Times that the container has read from and written to block devices",
        None,
        OfContainer(|it| {
            let io = it.counters.io;
            vec![
                one("direction", "read", io.map(|it| it.reads)),
                one("direction", "written", io.map(|it| it.writes)),
            ]
        }),
    ),
    gauge(
        "container_cache_occupancy",
        "Last-level cache that the container occupies",
        Some("bytes"),
        OfContainer(|it| vec![plain(it.caches.occupancy.map(|it| number(it.0)))]),
    ),
    counter(
        "container_memory_traffic",
        "Bytes between last-level caches and memory for the container; local: the memory next to the cache; unknown: the processor tells no difference",
        Some("bytes"),
        OfContainer(|it| traffic(&it.caches)),
    ),
    gauge(
        "container_avx512_threads",
        "Threads of the container, of those that were looked at, by whether they used AVX-512 since the last reading",
        None,
        OfContainer(|it| {
            let threads = it.vectors;
            vec![
                one("used", "yes", threads.map(|it| it.using as u64)),
                one("used", "no", threads.map(|it| (it.looked_at - it.using) as u64)),
            ]
        }),
    ),
    counter(
        "node_stalled",
        "Time in which some or all tasks of the node stood still for lack of a resource",
        Some("seconds"),
        OfNode(|it| stalls(&it.node.pressure)),
    ),
    counter(
        "cpu_idle",
        "Time in which CPUs had nothing to do, all of a class together, since the daemon started",
        Some("seconds"),
        OfNode(|it| {
            let classes = it.idle_ticks.iter();
            let labelled = |class: &str| vec![("class", class.to_owned())];
            classes
                .map(|(class, ticks)| (labelled(class.name()), Some(number(*ticks) / 100.0)))
                .collect()
        }),
    ),
    gauge(
        "cpu_frequency",
        "Frequency of the CPU now",
        Some("hertz"),
        OfNode(|it| {
            let cpus = it.node.frequencies_khz.iter();
            let labelled = |cpu: u32| vec![("cpu", cpu.to_string())];
            cpus.map(|(cpu, khz)| (labelled(cpu.0), Some(number(*khz) * 1e3))).collect()
        }),
    ),
    gauge(
        "uncore_frequency",
        "Frequency now of what a package has outside of its cores: memory controllers, the last-level cache, what connects them",
        Some("hertz"),
        OfNode(|it| {
            let uncores = it.node.uncores_khz.iter();
            let labelled = |of: &Uncore| {
                vec![("package", of.package.to_string()), ("uncore", of.name.clone())]
            };
            uncores.map(|(of, khz)| (labelled(of), Some(number(*khz) * 1e3))).collect()
        }),
    ),
    counter(
        "cpu_thermal_throttles",
        "Times that the CPU was slowed down because its core or package was too hot",
        None,
        OfNode(|it| {
            let cpus = it.node.throttles.iter();
            cpus.flat_map(|(cpu, it)| {
                let labelled =
                    |domain: &str| vec![("cpu", cpu.0.to_string()), ("domain", domain.to_owned())];
                [("core", it.core), ("package", it.package)]
                    .map(|(domain, times)| (labelled(domain), times.map(number)))
            })
            .collect()
        }),
    ),
    gauge(
        "cache_occupancy",
        "Last-level cache that the containers of this class of caches occupy",
        Some("bytes"),
        OfNode(|it| {
            let classes = it.caches.iter();
            let bytes = |of: &MonitorCounters| of.occupancy.map(|it| number(it.0));
            classes.map(|(class, of)| (vec![("cache_class", class.clone())], bytes(of))).collect()
        }),
    ),
    counter(
        "memory_traffic",
        "Bytes between last-level caches and memory for the containers of this class of caches; local: the memory next to the cache; unknown: the processor tells no difference",
        Some("bytes"),
        OfNode(|it| {
            let classes = it.caches.iter().flat_map(|(class, of)| {
                let name = ("cache_class", class.clone());
                traffic(of).into_iter().map(move |(labels, bytes)| {
                    (std::iter::once(name.clone()).chain(labels).collect(), bytes)
                })
            });
            classes.collect()
        }),
    ),
    counter(
        "energy",
        "Energy since the daemon started",
        Some("joules"),
        OfNode(|it| {
            let zones = it.energy_uj.iter();
            let labelled = |zone: &str| vec![("zone", zone.to_owned())];
            zones.map(|(zone, uj)| (labelled(zone), Some(number(*uj) / 1e6))).collect()
        }),
    ),
];

fn plain(value: Option<f64>) -> Labelled {
    (Vec::new(), value)
}

fn one(key: &'static str, label: &str, value: Option<u64>) -> Labelled {
    (vec![(key, label.to_owned())], value.map(number))
}

fn traffic(of: &MonitorCounters) -> Vec<Labelled> {
    // The two are read one after the other.
    let remote = of.total.zip(of.local).map(|(all, local)| all.0.saturating_sub(local.0));
    let unknown = of.total.filter(|_| of.is_undivided).map(|it| it.0);
    vec![
        one("where", "local", of.local.map(|it| it.0)),
        one("where", "remote", remote),
        one("where", "unknown", unknown),
    ]
}

fn stalls(pressure: &Pressure) -> Vec<Labelled> {
    let Pressure { cpu, memory, io, irq } = *pressure;
    let kinds = |(resource, stall): (&str, Option<Stall>)| {
        let labels =
            |kind: &str| vec![("resource", resource.to_owned()), ("kind", kind.to_owned())];
        [
            (labels("some"), seconds(stall.map(|it| it.some_usec))),
            (labels("full"), seconds(stall.and_then(|it| it.full_usec))),
        ]
    };
    [("cpu", cpu), ("memory", memory), ("io", io), ("irq", irq)]
        .into_iter()
        .flat_map(kinds)
        .collect()
}
