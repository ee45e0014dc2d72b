//! The kill switch of the rebalancer, and what it tells the history.

use bayplan_allocator::ContainerId;

use super::NodeState;
use crate::event::{Answer, Step};
use crate::history::{Entry, Kind, ProposalForm};
use crate::record::Record;
use crate::turned::Turned;

impl NodeState {
    /// Until an operator says the contrary, also through restarts.
    pub(crate) fn pause_rebalance(&mut self, is_paused: bool) -> Step {
        let mut step = Step::new(Answer::Done);
        if is_paused != self.is_rebalance_paused {
            self.is_rebalance_paused = is_paused;
            self.put_in_force(Turned::default(), &mut step);
            step.records.push(Record::RebalancePaused { is_paused });
            let word = if is_paused { "paused" } else { "resumed" };
            let why = format!("the rebalancer was {word}");
            step.history.push(Entry { why, ..Entry::new(Kind::Mode) });
        }
        step
    }

    /// Only the history is told.
    pub(crate) fn told(
        &self,
        kind: Kind,
        id: ContainerId,
        why: String,
        about: Box<ProposalForm>,
    ) -> Step {
        Step::told(Entry { who: self.names_of(id), why, proposal: Some(about), ..Entry::new(kind) })
    }
}
