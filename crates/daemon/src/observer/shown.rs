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

use super::Reading;
use super::metric::Metric;
use super::table::METRICS;

/// The last reading: what it says of the node, or of containers.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(super) reading: Arc<Mutex<Reading>>,
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
