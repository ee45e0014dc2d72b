//! The metrics of the rebalancer.

use std::sync::atomic::{AtomicI64, AtomicU64};

use bayplan_rebalance::{Knob, Mode};
use bayplan_types::MilliCpu;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::gauge::gauge;
use crate::config::KNOBS;

/// How proposals that were to be carried out end.
const VERDICTS: [&str; 9] =
    ["kept", "useless", "harmful", "unknown", "covered", "over", "withdrawn", "ended", "refused"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfProposal {
    knob: &'static str,
    mode: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfVerdict {
    knob: &'static str,
    verdict: String,
}

/// What the rebalancer has done and does.
#[derive(Debug, Default)]
pub(crate) struct Rebalancing {
    proposals: Family<OfProposal, Counter>,
    verdicts: Family<OfVerdict, Counter>,
    in_force: Gauge<i64, AtomicI64>,
    victims: Gauge<i64, AtomicI64>,
    paused: Gauge<i64, AtomicI64>,
    budget: Gauge<f64, AtomicU64>,
    lent: Gauge<i64, AtomicI64>,
}

impl Rebalancing {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "rebalance_proposals",
            "What the rebalancer has turned for containers that suffer (act), or would have (observe)",
            self.proposals.clone(),
        );
        registry.register(
            "rebalance_verdicts",
            "How what the rebalancer has turned was judged; kept: it helped, covered: another change helps without it, over: it is not needed any more, withdrawn: the configuration does not allow it any more, ended: a later change has moved the container back, refused: it could not be done; all but kept are undone, but an exclusive container stays where it was moved to (move-owner)",
            self.verdicts.clone(),
        );
        registry.register(
            "rebalance_in_force",
            "Proposals of the rebalancer because of which something is turned now",
            self.in_force.clone(),
        );
        registry.register(
            "rebalance_victims",
            "Containers that suffer from others, without BestEffort ones, as the rebalancer has seen it last; 0 when it does not look",
            self.victims.clone(),
        );
        registry.register(
            "rebalance_paused",
            "1 while the rebalancer is paused, else 0",
            self.paused.clone(),
        );
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
        self.start_at_zero();
    }

    fn start_at_zero(&self) {
        for knob in KNOBS.map(Knob::name) {
            for mode in [Mode::Observe, Mode::Act].map(Mode::name) {
                self.proposals.get_or_create(&OfProposal { knob, mode }).inc_by(0);
            }
            for verdict in VERDICTS.map(str::to_owned) {
                self.verdicts.get_or_create(&OfVerdict { knob, verdict }).inc_by(0);
            }
        }
    }

    pub(crate) fn proposed(&self, knob: Knob, mode: Mode) {
        let (knob, mode) = (knob.name(), mode.name());
        self.proposals.get_or_create(&OfProposal { knob, mode }).inc();
    }

    /// `verdict`: the word for how it ended.
    pub(crate) fn judged(&self, knob: Knob, verdict: &str) {
        let verdict = verdict.to_owned();
        self.verdicts.get_or_create(&OfVerdict { knob: knob.name(), verdict }).inc();
    }

    /// What the last look has found.
    pub(crate) fn looked(&self, in_force: usize, victims: usize) {
        self.in_force.set(gauge(in_force));
        self.victims.set(gauge(victims));
    }

    /// What BestEffort containers get of CPUs that others need or own.
    pub(crate) fn show_best_effort(&self, budget: Option<MilliCpu>, lent: usize) {
        let milli = budget.map_or(0, |it| u32::try_from(it.0).unwrap_or(u32::MAX));
        self.budget.set(f64::from(milli) / 1000.0);
        self.lent.set(gauge(lent));
    }

    pub(crate) fn show_paused(&self, is_paused: bool) {
        self.paused.set(i64::from(is_paused));
    }
}
