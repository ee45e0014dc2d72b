//! The journal with what to do when it fails. In: records. Out: a file that holds them, as far as the disk allows.

use bayplan_host::journal::Journal;
use bayplan_node::record::{LineWriter, Record};
use bayplan_node::state::NodeState;

use crate::metrics::Metrics;
use crate::tasks::blocking;

/// The journal is compacted when it is this large, and four times as large as after the last time.
const COMPACT_BYTES_MIN: u64 = 1 << 20;

/// The journal. When it fails: go on without it, and write all of it again at the next chance.
pub(crate) struct JournalWriter {
    /// `None`: it is being written, or the process ends.
    journal: Option<Journal>,
    /// Knows what the file has.
    lines: LineWriter,
    bytes: u64,
    bytes_compacted: u64,
    /// The file does not say everything.
    is_behind: bool,
    /// The file says everything, but perhaps not on the disk.
    is_unsynced: bool,
}

impl JournalWriter {
    pub(crate) fn new(journal: Journal) -> JournalWriter {
        let bytes = journal.bytes();
        // Everything is written anew at the first change, without what is no longer live.
        JournalWriter {
            journal: Some(journal),
            lines: LineWriter::default(),
            bytes,
            bytes_compacted: 0,
            is_behind: true,
            is_unsynced: false,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What has changed is not all in the file.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind || self.journal.is_none()
    }

    /// Writes what has changed, and waits until it and everything before is on disk, if a call of kubelet is to be answered after
    /// that (`is_final`). What has only begun has to survive the process alone: with the machine, all containers are gone.
    ///
    /// A bug in it is one of the task that decides: what a daemon without a journal promises could not be kept after it.
    ///
    /// # Errors
    /// What went wrong, in words; it is counted and logged already.
    pub(crate) async fn keep(
        &mut self,
        records: Vec<Record>,
        is_final: bool,
        state: &NodeState,
        metrics: &Metrics,
    ) -> Result<(), String> {
        let is_sync_due = is_final && (self.is_unsynced || !records.is_empty());
        if records.is_empty() && !self.is_behind && !is_sync_due {
            return Ok(());
        }
        let Some(mut journal) = self.journal.take() else { return Ok(()) };
        let is_large = self.bytes > COMPACT_BYTES_MIN.max(self.bytes_compacted.saturating_mul(4));
        let is_rewrite = self.is_behind || is_large;
        let records = match is_rewrite {
            true => {
                self.lines = LineWriter::default();
                state.snapshot_records()
            }
            false => records,
        };
        let lines = self.lines.lines(records);
        let written = blocking(move || {
            let result = match (is_rewrite, is_sync_due) {
                (true, _) => journal.rewrite(&lines),
                (false, true) => journal.append(&lines).and_then(|()| journal.sync()),
                (false, false) => journal.append(&lines),
            };
            (journal, result)
        });
        let Some((journal, result)) = written.await else { return Ok(()) };
        self.bytes = journal.bytes();
        if is_rewrite && result.is_ok() {
            self.bytes_compacted = self.bytes;
        }
        self.is_behind = result.is_err();
        self.is_unsynced = !is_rewrite && !is_sync_due;
        self.journal = Some(journal);
        result.map_err(|error| {
            metrics.failed("journal");
            let error = format!("{:#}", anyhow::Error::new(error));
            tracing::error!("{error}; going on, a restart now would have to ask the runtime");
            error
        })
    }
}
