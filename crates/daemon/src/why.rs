//! Why a container is slow: everything that is known of it, joined and ordered by how much it is likely to cost. In: [`Evidence`]. Out: a
//! [`WhyView`] with the causes, the worst first, each with what helps.
//!
//! - `evidence` is what is known of one container at one moment, gathered from the daemon's parts.
//! - `causes` turns it into causes, a function for each kind.
//! - `view` is the answer, for people and programs.
//!
//! Pure. What is not measured is listed as such, and never taken for zero.

mod causes;
mod evidence;
mod view;

use std::cmp::Reverse;

pub(crate) use evidence::{Evidence, Node, gather};
pub use view::{Cause, CauseKind, CauseSeverity, Measured, WhyView, render_causes, render_why};

/// All causes, the most harmful first.
pub(crate) fn why(evidence: Evidence) -> WhyView {
    let mut causes: Vec<Cause> = causes::ALL.iter().flat_map(|find| find(&evidence)).collect();
    causes.sort_by_key(|it| (Reverse(it.severity), Reverse(share_in_millionths(it)), it.kind));
    let Evidence { explanation, measured, absent, .. } = evidence;
    WhyView {
        format: "bayplan-why/1".to_owned(),
        container: explanation.container,
        now: explanation.now,
        end: explanation.end,
        asked: explanation.decision.asked,
        decided_at: explanation.decision.at,
        front_end: explanation.front_end,
        outcome: explanation.decision.outcome,
        causes,
        rebalance: explanation.rebalance,
        measured,
        absent,
        left_out: 0,
    }
}

/// Certain causes come before those with a share.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share between 0 and 1"
)]
fn share_in_millionths(cause: &Cause) -> u32 {
    cause.share.map_or(u32::MAX, |share| (share.clamp(0.0, 1.0) * 1e6) as u32)
}

impl WhyView {
    /// Of a container that is gone, with what the history has of it.
    pub fn of_gone(explanation: bayplan_node::status::Explanation) -> WhyView {
        why(Evidence::of(explanation))
    }
}

#[cfg(test)]
mod tests;
