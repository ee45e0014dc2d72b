//! Looks for containers that suffer from others, and helps them. In: who runs where, and what the probes and the kernel's files have counted. Out: what is to
//! be turned, as a part of the state, from which files follow as from everything else; told to the log, to the history, to metrics and to
//! `bayplan rebalance status`.
//!
//! `sampler.rs` makes a round of two readings, `scene.rs` a scene of who runs where, with what `reach.rs` says can be turned, and the crate `rebalance`
//! concludes; `carry_out.rs` follows, for memory with `homecoming.rs`; `baselines.rs` keeps what is usual. The task (`task.rs`) goes with the readings that are made for the metrics, so nothing is read twice. How the kill switch
//! is kept is at the end of this file: a record in the journal, as the mode is.

mod baselines;
mod carry_out;
mod homecoming;
mod reach;
mod sampler;
mod scene;
mod task;
mod tell;
#[cfg(test)]
mod tests;
mod view;

use bayplan_allocator::ContainerId;

use crate::event::{Answer, Step};
use crate::history::{Entry, Kind, ProposalForm};
use crate::record::Record;
use crate::state::NodeState;
use crate::turned::Turned;

pub(crate) use carry_out::take_back;
pub(crate) use task::{RebalancerTask, run_rebalancer};
pub(crate) use view::Told;
pub use view::{ProposalState, ProposalView, RebalanceView, UnhelpedView};

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
        Step::told(Entry { who: self.who(id), why, proposal: Some(about), ..Entry::new(kind) })
    }
}
