//! The journal with what to do when it fails. In: records. Out: a file that holds them, as far as the disk allows.

use bayplan_host::journal::Journal;

use crate::metrics::Metrics;
use crate::record::Record;
use crate::state::NodeState;

/// The journal is compacted when it is this large, and four times as large as after the last time.
const COMPACT_BYTES_MIN: u64 = 1 << 20;

/// The journal. When it fails: go on without it, and write all of it again at the next chance.
pub(crate) struct Keeper {
    journal: Option<Journal>,
    bytes: u64,
    bytes_compacted: u64,
    is_behind: bool,
}

impl Keeper {
    pub(crate) fn new(journal: Journal) -> Keeper {
        let bytes = journal.bytes();
        // Everything is written anew at the first change, without what is no longer live.
        Keeper { journal: Some(journal), bytes, bytes_compacted: 0, is_behind: true }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What has changed is not all on disk.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind || self.journal.is_none()
    }

    /// Writes what has changed, and waits until it is on disk.
    ///
    /// # Errors
    /// What went wrong, in words; it is counted and logged already.
    pub(crate) async fn keep(
        &mut self,
        records: Vec<Record>,
        state: &NodeState,
        metrics: &Metrics,
    ) -> Result<(), String> {
        if records.is_empty() && !self.is_behind {
            return Ok(());
        }
        let Some(mut journal) = self.journal.take() else { return Ok(()) };
        let is_large = self.bytes > COMPACT_BYTES_MIN.max(self.bytes_compacted.saturating_mul(4));
        let is_rewrite = self.is_behind || is_large;
        let records = if is_rewrite { state.snapshot_records() } else { records };
        // Does not fail: records are maps with text keys.
        let lines = records.iter().filter_map(|record| serde_json::to_string(record).ok());
        let lines: Vec<String> = lines.collect();
        let written = tokio::task::spawn_blocking(move || {
            let result = match is_rewrite {
                true => journal.rewrite(&lines),
                false => journal.append(&lines),
            };
            (journal, result)
        });
        match written.await {
            Ok((journal, result)) => {
                self.bytes = journal.bytes();
                if is_rewrite && result.is_ok() {
                    self.bytes_compacted = self.bytes;
                }
                self.is_behind = result.is_err();
                self.journal = Some(journal);
                result.map_err(|error| {
                    metrics.failed("journal");
                    let error = format!("{:#}", anyhow::Error::new(error));
                    tracing::error!(
                        "{error}; going on, a restart now would have to ask the runtime"
                    );
                    error
                })
            }
            Err(error) => {
                metrics.failed("journal");
                tracing::error!(%error, "the journal is lost; going on without it");
                Err("it is lost until the daemon is started anew".to_owned())
            }
        }
    }
}
