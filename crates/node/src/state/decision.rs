//! What was asked of the state and what came of it, as a decision.

use bayplan_allocator::{Offer, Refusal, Rejection, Request};
use bayplan_workload::NewContainer;
use bayplan_workload::annotations::{Sources, Warning};
use jiff::Timestamp;

use super::NodeState;
use crate::decision::{
    Decision, render_asked, render_lacking, render_outcome, render_refusal, render_row,
    render_unused_kinds, texts,
};

impl NodeState {
    /// What was asked and what came of it.
    pub(crate) fn decision(
        &self,
        spec: &NewContainer,
        request: &Request,
        offered: Result<&Offer, &Refusal>,
        warnings: Vec<Warning>,
        now: Timestamp,
    ) -> Decision {
        let pools = self.ledger.pools();
        let sources = Sources::new(spec);
        let why = |rejection: &Rejection| match sources.render(rejection, request) {
            Some(sources) => format!("{rejection} ({sources})"),
            None => rejection.to_string(),
        };
        let (outcome, considered) = match offered {
            Ok(offer) => (render_outcome(pools, request, offer.allocation()), offer.considered()),
            Err(refusal) => {
                let told = render_refusal(&refusal.considered, why);
                (format!("refused: {told}"), &refusal.considered[..])
            }
        };
        let mut warnings = texts(warnings);
        warnings.extend(offered.ok().and_then(|offer| render_lacking(request, offer.allocation())));
        let held = offered.ok().map(Offer::allocation);
        warnings.extend(held.and_then(|held| render_unused_kinds(pools, request, held)));
        let winner = considered.iter().filter_map(|row| row.outcome.as_ref().ok()).max();
        let rows = considered.iter().map(|row| render_row(pools, row, winner, why));
        Decision { at: now, asked: render_asked(request), outcome, pools: rows.collect(), warnings }
    }
}
