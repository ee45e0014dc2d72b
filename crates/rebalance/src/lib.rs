//! When a container suffers from others, and what to do about it. In: which container runs where ([`Scene`]), what was measured ([`Round`]). Out:
//! proposals, each a knob to turn, with the evidence; later a verdict on each, which keeps or undoes it.
//!
//! Pure: time comes with the round, randomness does not occur, and nothing is written here. The code that carries proposals out asks the allocator
//! and the planner as for everything else.

mod around;
mod baseline;
mod clock;
mod culprits;
mod detect;
mod knob;
mod ladder;
mod lending;
mod path;
mod proposal;
mod rebalancer;
mod render;
mod sample;
mod scene;
mod settings;
mod standing;
mod unhelped;
mod verdict;
mod windows;

#[cfg(test)]
mod tests;

pub use baseline::{Baseline, Usual};
pub use culprits::far_cost;
pub use knob::Knob;
pub use lending::{HeldCore, Holder, Lending};
pub use proposal::{
    Culprit, Decision, Evidence, Finding, Outcome, Proposal, SignalChange, Tie, Verdict,
};
pub use rebalancer::Rebalancer;
pub use render::{NameOf, render_evidence, render_proposal, render_verdict};
pub use sample::{Migrations, Round, Sample, Signal};
pub use scene::{ClockPlace, Intruder, Mode, Resident, Scene, Unrest, Workload};
pub use settings::{Parts, Settings, Threshold, Thresholds};
pub use unhelped::{Outside, Reason, Unhelped};
