//! Cold starts: which containers begin with slow memory only, and when that ends. In: the state, what pods ask for. Out: requests on slow memory, and
//! later the memory of the container's CPUs, told like any other change.
//!
//! ```text
//! No        Until(time) ── the time comes ─▶ Over
//! ```
//!
//! It ends by the clock of the machine, also across restarts, at the first step at or after its time; the event loop makes one then. A clock
//! that is set back does not make it longer than the pod wants from then on.

use bayplan_allocator::ColdStart;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How far the cold start of a container is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cold {
    /// It has none.
    #[default]
    No,
    /// It has slow memory only, until then.
    Until(Timestamp),
    /// It has had one, and keeps what it has there.
    Over,
}

impl Cold {
    /// What the journal need not say.
    pub(crate) fn is_no(&self) -> bool {
        *self == Cold::No
    }

    /// For the allocator.
    pub(crate) fn wish(self) -> ColdStart {
        match self {
            Cold::No => ColdStart::No,
            Cold::Until(_) => ColdStart::Cold,
            Cold::Over => ColdStart::Over,
        }
    }
}
