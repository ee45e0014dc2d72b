//! The kill switch of the rebalancer.

use super::NodeState;
use crate::change::{Change, NodeChange};
use crate::event::{Answer, Step};
use crate::turned::Turned;

impl NodeState {
    /// Until an operator says the contrary, also through restarts.
    pub(crate) fn pause_rebalance(&mut self, is_paused: bool) -> Step {
        let mut step = Step::new(Answer::Done);
        if is_paused != self.is_rebalance_paused {
            self.is_rebalance_paused = is_paused;
            self.put_in_force(Turned::default(), &mut step);
            self.emit(Change::Node(NodeChange::RebalancePaused(is_paused)), &mut step);
        }
        step
    }
}
