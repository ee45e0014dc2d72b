//! Of which containers the runtime is being told something, or was just now. In: calls as they begin and end. Out: containers with files that it may
//! have written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What is written this soon after a call has ended comes of the call: systemd writes files of a unit when it comes to that.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// Clones share everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuntimeCalls(Arc<Mutex<BTreeMap<String, Calls>>>);

#[derive(Debug, Default)]
struct Calls {
    under_way: usize,
    last: Option<Instant>,
    /// Since when it is being started.
    start: Option<Instant>,
}

impl RuntimeCalls {
    fn change(&self, id: &str, change: impl FnOnce(&mut Calls)) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(calls.entry(id.to_owned()).or_default());
    }

    /// From now on until [`Self::end`], which must follow.
    pub(crate) fn begin(&self, id: &str) {
        self.change(id, |calls| calls.under_way += 1);
    }

    /// One that was begun is over.
    pub(crate) fn end(&self, id: &str, now: Instant) {
        self.change(id, |calls| {
            calls.under_way = calls.under_way.saturating_sub(1);
            calls.last = Some(now);
        });
    }

    /// One begins that may never be heard of again, or such a one is over.
    pub(crate) fn note(&self, id: &str, now: Instant) {
        self.change(id, |calls| calls.last = Some(now));
    }

    /// Its start begins; that it is over may never be heard of.
    pub(crate) fn begin_start(&self, id: &str, now: Instant) {
        self.change(id, |calls| (calls.last, calls.start) = (Some(now), Some(now)));
    }

    /// Its start has ended well.
    pub(crate) fn end_start(&self, id: &str, now: Instant) {
        self.change(id, |calls| (calls.last, calls.start) = (Some(now), None));
    }

    /// Containers that are being started.
    pub(crate) fn starting(&self, now: Instant) -> BTreeSet<String> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let starting = calls.iter().filter(|(_, calls)| is_recent(calls.start, now));
        starting.map(|(id, _)| id.clone()).collect()
    }

    /// Containers with a call under way, or one that has ended just now.
    pub(crate) fn recent(&self, now: Instant) -> BTreeSet<String> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.retain(|_, calls| calls.under_way > 0 || is_recent(calls.last, now));
        calls.keys().cloned().collect()
    }
}

fn is_recent(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.saturating_duration_since(at) < AFTERWARDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_counts_until_its_end_or_some_seconds_if_none_is_heard_of() {
        let calls = RuntimeCalls::default();
        let start = Instant::now();
        let starting = |calls: &RuntimeCalls, seconds| {
            let now = start + Duration::from_secs(seconds);
            calls.starting(now).into_iter().collect::<Vec<_>>().join(" ")
        };
        calls.begin_start("well", start);
        calls.begin_start("lost", start);
        calls.note("other", start);
        assert_eq!(starting(&calls, 1), "lost well");
        calls.end_start("well", start);
        assert_eq!(starting(&calls, 4), "lost");
        assert_eq!(starting(&calls, 5), "");
    }

    #[test]
    fn a_call_counts_until_some_seconds_after_its_end() {
        let calls = RuntimeCalls::default();
        let start = Instant::now();
        let at = |halves: u32| start + AFTERWARDS / 2 * halves;
        let recent = |halves| calls.recent(at(halves)).into_iter().collect::<Vec<_>>().join(" ");
        calls.begin("long");
        calls.begin("twice");
        calls.begin("twice");
        calls.end("twice", at(0));
        calls.note("short", at(0));
        assert_eq!(recent(1), "long short twice");
        assert_eq!(recent(2), "long twice");
        calls.end("twice", at(2));
        calls.end("long", at(2));
        assert_eq!(recent(3), "long twice");
        assert_eq!(recent(4), "");
    }
}
