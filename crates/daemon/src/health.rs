//! Whether the daemon can be relied on. In: what the parts report of themselves. Out: what is lacking, for `/readyz`.

use std::sync::atomic::{AtomicBool, Ordering};

/// What is known of the daemon's parts.
#[derive(Debug, Default)]
pub(crate) struct Health {
    has_synced: AtomicBool,
    is_journal_behind: AtomicBool,
}

impl Health {
    /// The runtime has told what runs.
    pub(crate) fn set_synced(&self) {
        self.has_synced.store(true, Ordering::Relaxed);
    }

    /// Whether what has changed is not all on disk.
    pub(crate) fn set_journal_behind(&self, is_behind: bool) {
        self.is_journal_behind.store(is_behind, Ordering::Relaxed);
    }

    /// As it was told last.
    pub(crate) fn is_journal_behind(&self) -> bool {
        self.is_journal_behind.load(Ordering::Relaxed)
    }

    /// Sentences for people; none when nothing is.
    pub(crate) fn lacking(&self) -> Vec<&'static str> {
        let mut lacking = Vec::new();
        if !self.has_synced.load(Ordering::Relaxed) {
            lacking.push("the runtime has not told yet what runs");
        }
        if self.is_journal_behind() {
            lacking.push("the journal cannot be written; see the log");
        }
        lacking
    }
}
