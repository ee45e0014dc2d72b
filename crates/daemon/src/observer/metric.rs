//! What a metric is, and how its values are read of a reading. `table.rs` has all of them.

use super::{ContainerLabels, ContainerReading, Reading};

pub(super) type Labels = Vec<(&'static str, String)>;

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
    pub(super) fn are_of_containers(self) -> bool {
        matches!(self, Values::OfContainer(_))
    }

    /// Those that are there; of containers with their names in front.
    pub(super) fn read(self, reading: &Reading) -> Vec<(Labels, f64)> {
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
