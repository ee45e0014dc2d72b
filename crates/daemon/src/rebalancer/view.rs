//! What the rebalancer has told, for `bayplan rebalance status` and for `bayplan explain`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Proposals that are remembered.
const KEPT_MAX: usize = 64;

/// What the rebalancer does; format `bayplan-rebalance/1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebalanceView {
    /// Names the format.
    pub format: String,
    /// `off` or `observe`.
    pub mode: String,
    /// Nothing is proposed until `bayplan rebalance resume`.
    pub is_paused: bool,
    /// Containers of which the last look had samples; 0 before the first.
    pub sampled: usize,
    /// Why the last look proposed nothing whatever it saw; absent where it was free to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unrest: Option<String>,
    /// The last ones, oldest first.
    pub proposals: Vec<ProposalView>,
}

/// One proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposalView {
    /// When.
    pub at: Timestamp,
    /// What would be turned: `idle`, `weight`, ...
    pub knob: String,
    /// On whom, `namespace/pod/container`.
    pub target: String,
    /// For whom.
    pub victim: String,
    /// All of it in a line.
    pub text: String,
    /// How it is known, a line for each finding and for each culprit.
    pub evidence: String,
}

/// What was told so far; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    proposals: VecDeque<ProposalView>,
    sampled: usize,
    unrest: Option<String>,
}

impl Told {
    /// A look has ended.
    pub(super) fn looked(&self, sampled: usize, unrest: Option<String>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (kept.sampled, kept.unrest) = (sampled, unrest);
    }

    /// One more; the oldest goes.
    pub(super) fn proposed(&self, proposal: ProposalView) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.proposals.len() >= KEPT_MAX {
            kept.proposals.pop_front();
        }
        kept.proposals.push_back(proposal);
    }

    /// For whoever asks.
    pub(crate) fn view(&self, mode: &str, is_paused: bool) -> RebalanceView {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        RebalanceView {
            format: "bayplan-rebalance/1".to_owned(),
            mode: mode.to_owned(),
            is_paused,
            sampled: kept.sampled,
            unrest: kept.unrest.clone(),
            proposals: kept.proposals.iter().cloned().collect(),
        }
    }
}
