//! The last reading as metrics. In: a reading. Out: text for Prometheus, made when somebody scrapes.
//!
//! One table has every metric. A value that nobody counts has no line, and a metric without values is absent.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bayplan_host::counters::{Pressure, Stall};
use bayplan_types::Bytes;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use tokio::sync::Notify;

use super::{ContainerReading, Reading};

/// The last reading: what it says of the node, or of containers.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(super) reading: Arc<Mutex<Reading>>,
    /// Notified of every reading.
    pub(super) fresh: Arc<Notify>,
    pub(super) is_of_containers: bool,
}

impl Shown {
    /// The other half, whose labels are names that users choose.
    pub(crate) fn of_containers(&self) -> Shown {
        Shown { is_of_containers: true, ..self.clone() }
    }
}

type Labels = Vec<(&'static str, String)>;
type Values = Vec<(Labels, f64)>;

/// One metric, as in the table of README.
struct Metric {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    /// It only grows.
    is_counter: bool,
    values: fn(&Reading) -> Values,
}

const fn counter(
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    values: fn(&Reading) -> Values,
) -> Metric {
    Metric { name, help, unit, is_counter: true, values }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    values: fn(&Reading) -> Values,
) -> Metric {
    Metric { name, help, unit, is_counter: false, values }
}

const METRICS: [Metric; 12] = [
    counter("container_cpu", "CPU time of the container", Some(Unit::Seconds), |it| {
        of_containers(it, |of| vec![(None, seconds(of.counters.cpu_usec))])
    }),
    counter(
        "container_throttled",
        "Time in which its CPU limit stopped the container",
        Some(Unit::Seconds),
        |it| of_containers(it, |of| vec![(None, seconds(of.counters.throttled_usec))]),
    ),
    counter(
        "container_stalled",
        "Time in which some or all tasks of the container stood still for lack of a resource",
        Some(Unit::Seconds),
        |it| of_containers(it, |of| stalls(&of.counters.pressure)),
    ),
    gauge(
        "container_memory",
        "Memory of the container on the NUMA nodes that it is to use (near), and elsewhere (far)",
        Some(Unit::Bytes),
        |it| {
            of_containers(it, |of| {
                let side = |side: &'static str, bytes: fn(&super::Placed) -> Bytes| {
                    (Some(("where", side)), of.placed.as_ref().map(|it| number(bytes(it).0)))
                };
                vec![side("near", |it| it.near), side("far", |it| it.far)]
                    .into_iter()
                    .map(|(label, value)| (label.map(|label| vec![label]), value))
                    .collect()
            })
        },
    ),
    counter(
        "container_memory_refaults",
        "Pages of the container that were read again soon after they had been taken away",
        None,
        |it| of_containers(it, |of| vec![(None, of.counters.memory.refaults.map(number))]),
    ),
    counter(
        "container_memory_demotions",
        "Pages of the container that went to a slower NUMA node",
        None,
        |it| of_containers(it, |of| vec![(None, of.counters.memory.demoted.map(number))]),
    ),
    counter(
        "container_oom_kills",
        "Processes of the container that were killed for lack of memory",
        None,
        |it| of_containers(it, |of| vec![(None, of.counters.memory.oom_kills.map(number))]),
    ),
    counter(
        "container_io",
        "Bytes that the container has read from and written to block devices",
        Some(Unit::Bytes),
        |it| {
            of_containers(it, |of| {
                let io = of.counters.io;
                let way = |way: &'static str, bytes: Option<Bytes>| {
                    (Some(vec![("direction", way)]), bytes.map(|it| number(it.0)))
                };
                vec![way("read", io.map(|it| it.read)), way("written", io.map(|it| it.written))]
            })
        },
    ),
    counter(
        "node_stalled",
        "Time in which some or all tasks of the node stood still for lack of a resource",
        Some(Unit::Seconds),
        |it| {
            let stalls = stalls(&it.node.pressure).into_iter();
            stalls.filter_map(|(labels, value)| Some((owned(labels), value?))).collect()
        },
    ),
    gauge("cpu_frequency_hertz", "Frequency of the CPU now", None, |it| {
        let cpus = it.node.frequencies_khz.iter();
        cpus.map(|(cpu, khz)| (vec![("cpu", cpu.0.to_string())], number(*khz) * 1e3)).collect()
    }),
    counter(
        "cpu_thermal_throttles",
        "Times that the CPU was slowed down because its core or package was too hot",
        None,
        |it| {
            let cpus = it.node.throttles.iter();
            cpus.flat_map(|(cpu, it)| {
                [("core", it.core), ("package", it.package)].into_iter().filter_map(
                    move |(domain, times)| {
                        let labels =
                            vec![("cpu", cpu.0.to_string()), ("domain", domain.to_owned())];
                        Some((labels, number(times?)))
                    },
                )
            })
            .collect()
        },
    ),
    counter("energy", "Energy since the daemon started", Some(Unit::Joules), |it| {
        let zones = it.energy_uj.iter();
        zones.map(|(zone, uj)| (vec![("zone", zone.clone())], number(*uj) / 1e6)).collect()
    }),
];

type Labelled = (Option<Vec<(&'static str, &'static str)>>, Option<f64>);

/// The values of all containers, with their names in front.
fn of_containers(reading: &Reading, values: fn(&ContainerReading) -> Vec<Labelled>) -> Values {
    let named = reading.containers.iter().flat_map(|of| {
        let values = values(of).into_iter();
        values.filter_map(move |(labels, value)| {
            let name = [
                ("namespace", of.name.namespace.clone()),
                ("pod", of.name.pod.clone()),
                ("container", of.name.container.clone()),
            ];
            Some((name.into_iter().chain(owned(labels)).collect(), value?))
        })
    });
    named.collect()
}

fn owned(labels: Option<Vec<(&'static str, &'static str)>>) -> Labels {
    let labels = labels.unwrap_or_default().into_iter();
    labels.map(|(key, value)| (key, value.to_owned())).collect()
}

fn stalls(pressure: &Pressure) -> Vec<Labelled> {
    let Pressure { cpu, memory, io, irq } = *pressure;
    let kinds = |(resource, stall): (&'static str, Option<Stall>)| {
        let labels = |kind| Some(vec![("resource", resource), ("kind", kind)]);
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

#[allow(clippy::cast_precision_loss, reason = "Prometheus has floating point numbers only")]
fn number(value: u64) -> f64 {
    value as f64
}

fn seconds(usec: Option<u64>) -> Option<f64> {
    usec.map(|usec| number(usec) / 1e6)
}

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let is_shown = |it: &Metric| it.name.starts_with("container_") == self.is_of_containers;
        for metric in METRICS.into_iter().filter(is_shown) {
            let Metric { name, help, unit, is_counter, values } = metric;
            let values = values(&reading);
            if values.is_empty() {
                continue;
            }
            let kind = if is_counter { MetricType::Counter } else { MetricType::Gauge };
            let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
            for (labels, value) in values {
                let line = family.encode_family(&labels)?;
                match is_counter {
                    true => ConstCounter::new(value).encode(line)?,
                    false => ConstGauge::new(value).encode(line)?,
                }
            }
        }
        Ok(())
    }
}
