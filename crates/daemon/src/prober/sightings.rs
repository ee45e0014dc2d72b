//! What the probes have told, for all that ask. A caller that needs it to be of this moment has them read anew.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bayplan_probes::{CgroupId, Drain, Probe};
use bayplan_types::CpuSet;
use jiff::Timestamp;
use tokio::sync::Notify;

/// Reading takes milliseconds. A caller that would wait longer does without.
const READ_WITHIN: Duration = Duration::from_secs(1);

/// A container that comes is watched after this, so that many that come together cost one reading.
const GATHERED_FOR: Duration = Duration::from_secs(1);

/// How far back `recent` reaches.
const RECENT: Duration = Duration::from_secs(60);

/// A container that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) cgroup: CgroupId,
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) name: String,
    /// CPUs that it owns.
    pub(crate) owned: CpuSet,
}

/// What was told so far; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sightings(Arc<Board>);

#[derive(Debug, Default)]
struct Board {
    told: Mutex<Told>,
    /// A caller wants them read now.
    asked: Notify,
    /// A container came, went, or has other CPUs.
    changed: Notify,
    /// Wakes callers that wait for a reading.
    renewed: Notify,
}

/// From the root of the cgroups.
pub(crate) type Paths = BTreeMap<CgroupId, String>;

#[derive(Debug, Default)]
pub(super) struct Told {
    /// What counts; empty while probes are off.
    pub(super) table: Vec<Probe>,
    /// The containers that are watched.
    pub(super) containers: Vec<Seen>,
    /// Cgroups of processes that are in no container, as far as they are there.
    pub(super) paths: Paths,
    /// When the last drain was made.
    pub(super) at: Option<Timestamp>,
    /// The last drains, oldest first: the first is the last one that is at least [`RECENT`] old, or the very first.
    pub(super) drains: VecDeque<Drain>,
}

impl Sightings {
    /// Nothing counts any more, or not yet, for the reasons in `table`.
    pub(crate) fn clear(&self, table: Vec<Probe>) {
        *self.lock() = Told { table, ..Told::default() };
        self.0.renewed.notify_waiters();
    }

    /// A new drain, made at `now`, of `containers`, with the paths of others that it names.
    pub(crate) fn tell(
        &self,
        table: Vec<Probe>,
        (containers, paths): (Vec<Seen>, Paths),
        drain: Drain,
        now: Timestamp,
    ) {
        let mut told = self.lock();
        told.at = Some(now);
        let at = drain.at;
        (told.table, told.containers, told.paths) = (table, containers, paths);
        told.drains.push_back(drain);
        let is_old = |drain: &Drain| at.saturating_duration_since(drain.at) >= RECENT;
        while told.drains.get(1).is_some_and(is_old) {
            told.drains.pop_front();
        }
        drop(told);
        self.0.renewed.notify_waiters();
    }

    /// A drain made now, and the containers that it counts; `None` while nothing counts. The last one where that takes too long.
    pub(crate) async fn renewed(&self) -> Option<(Vec<Seen>, Drain)> {
        let renewed = self.0.renewed.notified();
        let mut renewed = std::pin::pin!(renewed);
        // From now on, so that no notice is missed.
        renewed.as_mut().enable();
        self.latest()?;
        self.0.asked.notify_one();
        let _late = tokio::time::timeout(READ_WITHIN, renewed).await;
        self.latest()
    }

    /// Comes back when a caller waits in [`Sightings::renewed`].
    pub(super) async fn asked(&self) {
        self.0.asked.notified().await;
    }

    /// A container came, went, or has other CPUs: what it does counts for it only from when the probes are told.
    pub(crate) fn note_change(&self) {
        self.0.changed.notify_one();
    }

    /// Comes back a moment after that.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
        tokio::time::sleep(GATHERED_FOR).await;
    }

    fn latest(&self) -> Option<(Vec<Seen>, Drain)> {
        let told = self.lock();
        Some((told.containers.clone(), told.drains.back()?.clone()))
    }

    /// What is in here is replaced as a whole, so a panic of another task leaves nothing half done.
    pub(super) fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
