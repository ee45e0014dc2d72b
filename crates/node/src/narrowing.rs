//! Gives containers fewer memory nodes. In: the state, what the configuration allows. Out: which containers could do with fewer, for people; and at
//! most one narrowing per sync, in the ledger and told by the step.
//!
//! As with joining holes: it is due after a container has left, and waits for a sync that finds the node at rest, because the kernel moves the pages
//! while the container runs. The next is for the next sync, so that only one container is slowed down at a time.

use bayplan_types::Bytes;

/// Whether memory nodes are taken away from running containers, and whether that is due.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Narrower {
    pub(crate) is_enabled: bool,
    /// A container has left since none could do with fewer nodes.
    pub(crate) is_due: bool,
}

/// For people: at most how much memory the kernel has to move.
pub(crate) fn render_moved(moves_memory: Option<Bytes>) -> String {
    match moves_memory {
        Some(bytes) => format!("moving at most {bytes}"),
        None => "moving any amount of memory".to_owned(),
    }
}

impl Narrower {
    /// From now on; what is due stays due where anything is taken away at all.
    pub(crate) fn reconfigure(&mut self, is_enabled: bool) {
        *self = Narrower { is_enabled, is_due: self.is_due && is_enabled };
    }

    /// Whether there is something to narrow, perhaps.
    pub(crate) fn is_due(&self) -> bool {
        self.is_due
    }
}
