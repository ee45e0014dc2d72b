//! The last reading as metrics. In: a reading. Out: text for Prometheus, made at each scrape.
//!
//! `table.rs` has every metric. A value that is not counted has no line, and a metric without values is absent.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::table::METRICS;
use super::{ContainerLabels, ContainerReading, Reading};

/// The last reading: what it says of the node, or of containers.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(super) reading: Arc<Mutex<Reading>>,
    /// The one before, for rates.
    pub(super) before: Arc<Mutex<Reading>>,
    /// Notified of every reading.
    pub(super) fresh: Arc<Notify>,
    /// A bug has ended the reading.
    pub(super) lost: CancellationToken,
    pub(super) is_of_containers: bool,
}

impl Shown {
    /// The other half, with labels that are names that users choose.
    pub(crate) fn of_containers(&self) -> Shown {
        Shown { is_of_containers: true, ..self.clone() }
    }
}

type Labels = Vec<(&'static str, String)>;

/// A value that is absent has no line.
pub(super) type Labelled = (Labels, Option<f64>);

/// What has these values. Those of containers have names that users choose, and are not told to every client.
#[derive(Clone, Copy)]
pub(super) enum Values {
    /// Of the node and its CPUs.
    OfNode(fn(&Reading) -> Vec<Labelled>),
    /// Of one container.
    OfContainer(fn(&ContainerReading) -> Vec<Labelled>),
}

/// One metric.
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) unit: Option<&'static str>,
    /// It only grows.
    pub(super) is_counter: bool,
    pub(super) values: Values,
}

impl Values {
    fn are_of_containers(self) -> bool {
        matches!(self, Values::OfContainer(_))
    }

    /// Those that are there; of containers with their names in front.
    fn read(self, reading: &Reading) -> Vec<(Labels, f64)> {
        let there = |(labels, value): Labelled| Some((labels, value?));
        match self {
            Values::OfNode(values) => values(reading).into_iter().filter_map(there).collect(),
            Values::OfContainer(values) => {
                let named = reading.containers.iter().flat_map(|of| {
                    values(of).into_iter().filter_map(there).map(|(labels, value)| {
                        let ContainerLabels { namespace, pod, container } = of.name.clone();
                        let name =
                            [("namespace", namespace), ("pod", pod), ("container", container)];
                        (name.into_iter().chain(labels).collect(), value)
                    })
                });
                named.collect()
            }
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus has floating point numbers only")]
pub(super) fn number(value: u64) -> f64 {
    value as f64
}

pub(super) fn seconds(usec: Option<u64>) -> Option<f64> {
    usec.map(|usec| number(usec) / 1e6)
}

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let is_shown = |it: &Metric| it.values.are_of_containers() == self.is_of_containers;
        for metric in METRICS.into_iter().filter(is_shown) {
            let Metric { name, help, unit, is_counter, values } = metric;
            let values = values.read(&reading);
            if values.is_empty() {
                continue;
            }
            let unit = unit.map(|unit| Unit::Other(unit.to_owned()));
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
