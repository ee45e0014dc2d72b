//! The metrics of the NRI front end.

use std::sync::atomic::AtomicI64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfEvent {
    event: &'static str,
}

/// What is counted of events and of the connection.
#[derive(Debug)]
pub(crate) struct Nri {
    took: Family<OfEvent, Histogram, fn() -> Histogram>,
    late: Family<OfEvent, Counter>,
    registrations: Counter,
    is_registered: Gauge<i64, AtomicI64>,
    /// Updates that the daemon has caused itself.
    pub(crate) echoes: Counter,
    /// Creations that the runtime took back after they were answered.
    pub(crate) taken_back: Counter,
}

/// From a tenth of a millisecond to what runtimes wait at most.
fn buckets() -> Histogram {
    Histogram::new([0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 2.0])
}

impl Default for Nri {
    fn default() -> Nri {
        Nri {
            took: Family::new_with_constructor(buckets),
            late: Family::default(),
            registrations: Counter::default(),
            is_registered: Gauge::default(),
            echoes: Counter::default(),
            taken_back: Counter::default(),
        }
    }
}

impl Nri {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "nri_event_duration",
            "Time until an event of NRI was answered (frontEnd: nri)",
            Unit::Seconds,
            self.took.clone(),
        );
        registry.register(
            "nri_events_late",
            "Events of NRI that were answered without a decision because it took too long; see onFailure",
            self.late.clone(),
        );
        registry.register(
            "nri_registrations",
            "How often the runtime has registered this plugin; more than one are reconnections",
            self.registrations.clone(),
        );
        registry.register(
            "nri_registered",
            "1 while this plugin is registered with the runtime; otherwise containers are created without it",
            self.is_registered.clone(),
        );
        registry.register(
            "nri_own_updates",
            "Updates of containers that the daemon has caused itself and that came back as events",
            self.echoes.clone(),
        );
        registry.register(
            "nri_creations_taken_back",
            "Creations that the runtime took back after this plugin had answered, as where two plugins set the same",
            self.taken_back.clone(),
        );
    }

    pub(crate) fn answered(&self, event: &'static str, took: Duration, is_late: bool) {
        self.took.get_or_create(&OfEvent { event }).observe(took.as_secs_f64());
        if is_late {
            self.late.get_or_create(&OfEvent { event }).inc();
        }
    }

    pub(crate) fn registered(&self, is_registered: bool) {
        self.registrations.inc_by(u64::from(is_registered));
        self.is_registered.set(i64::from(is_registered));
    }
}
