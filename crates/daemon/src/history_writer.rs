//! Keeps the history. In: entries, and the state that they led to. Out: segments on disk, as far as the disk allows.
//!
//! No caller waits for it: the loop hands entries over and goes on, and a task of its own writes them. What cannot be written is lost, which is
//! logged once, counted, and told by the history itself as soon as it can be written again; what cannot even be handed over is only counted.
//! Then a new segment says where every container is.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bayplan_host::disk::{Disk, Disks};
use bayplan_host::history::History;
use bayplan_node::history::{Entry, HISTORY_DIR, news};
use bayplan_node::state::NodeState;
use jiff::Timestamp;
use tokio::sync::mpsc;

use crate::config::Config;
use crate::metrics::Metrics;
use crate::tasks::blocking;

/// Batches that may wait to be written; a disk that hangs for longer costs history.
const WAITING_MAX: usize = 1024;

/// Entries on their way to the disk.
struct Told {
    entries: Vec<Entry>,
    /// What begins a segment after them, where one is wanted.
    opening: Option<Vec<Entry>>,
}

/// The loop's end of the history.
pub(crate) struct HistoryWriter {
    sender: mpsc::Sender<Told>,
    wants_opening: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
}

impl HistoryWriter {
    /// Hands over what happened until now; `state` is what came of it.
    pub(crate) fn tell(&self, entries: Vec<Entry>, state: &NodeState, now: Timestamp) {
        if entries.is_empty() {
            return;
        }
        let wants_opening = self.wants_opening.swap(false, Ordering::Relaxed);
        let opening = wants_opening.then(|| state.opening_of_segment(now));
        if self.sender.try_send(Told { entries, opening }).is_err() {
            self.metrics.failed("history");
            self.wants_opening.store(true, Ordering::Relaxed);
        }
    }
}

/// The history below the state directory: what takes entries, and the task that writes them until there is no sender any more. `found` is what the
/// start itself has to tell.
pub(crate) fn start_history(
    config: &Config,
    state: &NodeState,
    found: Vec<Entry>,
    metrics: &Arc<Metrics>,
    disks: &Disks,
) -> (HistoryWriter, impl Future<Output = ()> + Send + 'static) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let wants_opening = Arc::new(AtomicBool::new(false));
    let metrics = Arc::clone(metrics);
    let (dir, bytes_max) = (config.state_dir.join(HISTORY_DIR), config.history_max.0);
    let opening = state.opening_of_start(Timestamp::now());
    let (wants, counts) = (Arc::clone(&wants_opening), Arc::clone(&metrics));
    let disk = Arc::clone(&disks.history);
    let written = async move {
        let opened = blocking(move || Scribe::open(disk, &dir, bytes_max, opening, found));
        if let Some(scribe) = opened.await {
            scribe.run(receiver, &wants, &counts).await;
        }
    };
    (HistoryWriter { sender, wants_opening, metrics }, written)
}

/// What annotations and labels of one namespace may take in one segment is this part of the whole history.
const SHARES: u64 = 16;
/// Of one container, this much is always kept.
const SAID_MIN: usize = 1 << 10;

/// How much of a segment the annotations and labels of each namespace take, so that none of them pushes out what others did.
struct Shares {
    bytes_max: u64,
    taken: BTreeMap<String, u64>,
}

impl Shares {
    /// Leaves out what goes too far.
    fn bound(&mut self, entries: &mut [Entry]) {
        for spec in entries.iter_mut().filter_map(|entry| entry.spec.as_deref_mut()) {
            let bytes = spec.bytes_said();
            if bytes <= SAID_MIN {
                continue;
            }
            let taken = self.taken.entry(spec.namespace().to_owned()).or_default();
            let all = taken.saturating_add(bytes as u64);
            match all > self.bytes_max / SHARES {
                true => spec.leave_out_said(),
                false => *taken = all,
            }
        }
    }
}

/// The writer of the history.
struct Scribe {
    history: History,
    shares: Shares,
    /// Entries that could not be written since the last that could.
    lost: usize,
    /// Something was lost since the last opening.
    has_gap: bool,
    /// What went wrong since the last look.
    failure: Option<String>,
}

impl Scribe {
    fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        bytes_max: u64,
        opening: Vec<Entry>,
        found: Vec<Entry>,
    ) -> Scribe {
        let (history, recovered) = History::open_on(disk, dir, bytes_max);
        let shares = Shares { bytes_max, taken: BTreeMap::new() };
        let mut scribe = Scribe { history, shares, lost: 0, has_gap: false, failure: None };
        let told = match scribe.history.wants_segment() {
            true => Vec::new(),
            false => recovered.records,
        };
        let mut entries: Vec<Entry> = news(opening, &told).into_iter().chain(found).collect();
        scribe.shares.bound(&mut entries);
        let count = entries.len();
        let lines = lines(&entries);
        let written = match scribe.history.wants_segment() {
            true => scribe.history.begin(&lines),
            false => scribe.history.append(&lines),
        };
        scribe.note(count, written);
        scribe
    }

    async fn run(
        mut self,
        mut receiver: mpsc::Receiver<Told>,
        wants_opening: &AtomicBool,
        metrics: &Metrics,
    ) {
        let mut was_failing = false;
        loop {
            let is_failing = self.lost > 0;
            if self.failure.is_some() {
                metrics.failed("history");
            }
            match self.failure.take().filter(|_| !was_failing) {
                Some(why) => {
                    tracing::error!("cannot write the history: {why}; going on without it")
                }
                None if was_failing && !is_failing => {
                    tracing::info!("the history is written again")
                }
                None => {}
            }
            was_failing = is_failing;
            if self.history.wants_segment() || self.has_gap {
                wants_opening.store(true, Ordering::Relaxed);
            }
            let Some(told) = receiver.recv().await else { return };
            let written = blocking(move || {
                self.write(told);
                self
            });
            let Some(scribe) = written.await else { return };
            self = scribe;
        }
    }

    fn write(&mut self, told: Told) {
        let Told { mut entries, opening } = told;
        let count = entries.len();
        if let Some(last) = entries.last().filter(|_| self.lost > 0) {
            let why = format!("{} entries before this one could not be written", self.lost);
            let lost = Entry { at: last.at, ..Entry::failure(format!("history: {why}")) };
            entries.insert(0, lost);
        }
        let is_opening = opening.is_some();
        if is_opening {
            self.shares.taken.clear();
        }
        entries.extend(opening.into_iter().flatten());
        self.shares.bound(&mut entries);
        let written = match is_opening {
            true => self.history.begin(&lines(&entries)),
            false => self.history.append(&lines(&entries)),
        };
        self.has_gap &= !(is_opening && written.is_ok());
        self.note(count, written);
    }

    fn note(&mut self, count: usize, written: std::io::Result<()>) {
        match written {
            Ok(()) => self.lost = 0,
            Err(error) => {
                self.lost += count;
                self.has_gap = true;
                self.failure = Some(error.to_string());
            }
        }
    }
}

/// Does not fail: entries are maps with text keys.
fn lines(entries: &[Entry]) -> Vec<String> {
    entries.iter().filter_map(|entry| serde_json::to_string(entry).ok()).collect()
}

#[cfg(test)]
mod tests;
