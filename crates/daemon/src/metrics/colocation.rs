//! The metrics of what BestEffort containers get of CPUs that others need or own.

use std::sync::atomic::{AtomicI64, AtomicU64};

use bayplan_types::MilliCpu;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The last look.
#[derive(Debug, Default)]
pub(crate) struct Colocating {
    budget: Gauge<f64, AtomicU64>,
    lent: Gauge<i64, AtomicI64>,
}

impl Colocating {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "best_effort_budget_cpus",
            "CPU time that BestEffort containers may use together by bestEffort.nodePercent, in CPUs; 0 while there is no such limit",
            self.budget.clone(),
        );
        registry.register(
            "lent_cpus",
            "CPUs that exclusive containers lend to BestEffort containers",
            self.lent.clone(),
        );
    }

    pub(crate) fn show(&self, budget: Option<MilliCpu>, lent: usize) {
        self.budget.set(super::super::observer::number(budget.map_or(0, |it| it.0)) / 1000.0);
        self.lent.set(super::gauge(lent));
    }
}
