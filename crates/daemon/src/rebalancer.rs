//! Looks for containers that suffer from others, and helps them. In: which container runs where, and what the probes and the kernel's files have
//! counted. Out: what is to be turned, as a part of the state, from which files follow as from everything else; told to the log, to the history, to
//! metrics and to `bayplan rebalance status`.
//!
//! `sampler.rs` makes a round of two readings, `scene.rs` a scene of which container runs where, with what `reach.rs` says can be turned, and the
//! crate `rebalance` concludes; `carry_out.rs` follows, for memory with `homecoming.rs`; `baselines.rs` keeps what is usual. The task (`task.rs`)
//! goes with the readings that are made for the metrics, so nothing is read twice. The kill switch is a record in the journal, as the mode is
//! (`node/src/proposals.rs`).

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

pub(crate) use carry_out::take_back;
pub(crate) use sampler::sample_of;
pub(crate) use task::{RebalancerTask, run_rebalancer};
pub(crate) use view::Told;
pub use view::{OutsideView, RebalanceView, UnhelpedView};
