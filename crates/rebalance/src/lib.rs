//! When somebody suffers from others, and what to do about it. In: who runs where ([`Scene`]), what was measured ([`Round`]). Out: proposals, each a
//! knob to turn, with the evidence; later a verdict on each, which keeps or undoes it.
//!
//! Pure: time comes with the round, randomness does not occur, and nothing is written here. Who carries proposals out asks the allocator and the planner as
//! for everything else.

mod knob;
pub mod plant;
mod proposal;
mod sample;
mod scene;

pub use knob::Knob;
pub use proposal::{Culprit, Decision, Evidence, Finding, Outcome, Proposal, Tie, Verdict};
pub use sample::{Round, Sample, Signal};
pub use scene::{Mode, Resident, Scene, Unrest, Workload};
