//! Proposals of the rebalancer as the history and `bayplan explain` tell them, and its kill switch, which is a record in the journal, as the mode is.

use bayplan_rebalance::Knob;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposalView {
    /// Counts proposals since the rebalancer was started.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// What is turned, or would be: `idle`, `suppress`, ...
    pub knob: String,
    /// On which container, `namespace/pod/container`.
    pub target: String,
    /// For which one.
    pub victim: String,
    /// All of it in a line.
    pub text: String,
    /// How it is known, a line for each finding and for each culprit.
    pub evidence: String,
    /// Where it is.
    pub state: ProposalState,
    /// How it was judged, or why it could not be done; empty before that.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub outcome: String,
}

/// Where a proposal is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalState {
    /// It was only said.
    #[default]
    Observed,
    /// It is being carried out.
    Turning,
    /// It is in force, and not judged yet.
    Settling,
    /// It is in force, and helps.
    Kept,
    /// It was judged and taken back, or what came later has ended it.
    Undone,
    /// It could not be carried out.
    Refused,
    /// An operator has taken it back: by a pause, a restore, or a configuration that does not allow it.
    Withdrawn,
    /// Nothing is looked at because of it any more, and a container that owns CPUs stays on those to which it was moved.
    Stays,
    /// It stays in kernel files until a restart: a bug has ended what writes them.
    Stuck,
}

impl ProposalState {
    /// Whether something is turned because of it.
    pub fn is_in_force(self) -> bool {
        match self {
            ProposalState::Turning
            | ProposalState::Settling
            | ProposalState::Kept
            | ProposalState::Stuck => true,
            ProposalState::Observed
            | ProposalState::Undone
            | ProposalState::Refused
            | ProposalState::Withdrawn
            | ProposalState::Stays => false,
        }
    }

    /// The same for a proposal with this knob: an owner is not moved back.
    pub fn of_knob(self, knob: &str) -> ProposalState {
        match self {
            ProposalState::Undone | ProposalState::Withdrawn if knob == Knob::MoveOwner.name() => {
                ProposalState::Stays
            }
            other => other,
        }
    }

    /// For tables: `settling`.
    pub fn name(self) -> &'static str {
        match self {
            ProposalState::Observed => "observed",
            ProposalState::Turning => "turning",
            ProposalState::Settling => "settling",
            ProposalState::Kept => "kept",
            ProposalState::Undone => "undone",
            ProposalState::Refused => "refused",
            ProposalState::Withdrawn => "withdrawn",
            ProposalState::Stays => "stays",
            ProposalState::Stuck => "stuck",
        }
    }
}
