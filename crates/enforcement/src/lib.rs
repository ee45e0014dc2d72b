//! From what should hold to what must be written. In: desired and observed state. Out: an ordered plan that leaves no choice to
//! whoever carries it out.

mod pinning;
mod plan;

pub use pinning::{DesiredState, ObservedState};
pub use plan::{Pass, Plan, Write, plan_pinnings, render_plan};
