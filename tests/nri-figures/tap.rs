//! Times of events, heard between a runtime and its plugin, whichever plugin that is: from when the request is passed on until its answer has been read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bayplan_nri::api::StateChangeEvent;
use bayplan_nri::frame::{Connection, Kind};
use bayplan_nri::ttrpc::Request;
use bayplan_tests::nri_relay::{Heard, relay};
use prost::Message as _;

/// What was heard; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Tap(Arc<Mutex<Times>>);

#[derive(Default)]
struct Times {
    /// Events and times of requests without an answer, by connection and stream.
    pending: BTreeMap<(u64, u32), (String, Instant)>,
    took: BTreeMap<String, Vec<Duration>>,
}

impl Tap {
    /// Listens at `socket` until the test ends.
    pub(crate) fn start(socket: &Path, runtime: PathBuf) -> anyhow::Result<Tap> {
        let tap = Tap::default();
        let listening = tap.clone();
        relay(socket, runtime, move |heard| listening.note(heard))?;
        Ok(tap)
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was heard, and gives it: times by event.
    pub(crate) fn take(&self) -> BTreeMap<String, Vec<Duration>> {
        std::mem::take(&mut self.times().took)
    }

    /// Answers to this method that were heard since the last [`Tap::take`].
    pub(crate) fn count(&self, method: &str) -> usize {
        self.times().took.get(method).map_or(0, Vec::len)
    }

    fn note(&self, Heard { connection, message, .. }: Heard<'_>) {
        let now = Instant::now();
        if message.connection != Connection::Plugin {
            return;
        }
        let key = (connection, message.stream);
        let mut times = self.times();
        match message.kind {
            Kind::Request => {
                if let Ok(request) = Request::decode(message.body.clone()) {
                    times.pending.insert(key, (event(request), now));
                }
            }
            Kind::Response => {
                if let Some((method, begun)) = times.pending.remove(&key) {
                    times.took.entry(method).or_default().push(now - begun);
                }
            }
        }
    }
}

/// The request's method, and the event where that is `StateChange`.
fn event(request: Request) -> String {
    let method = request.method;
    if method != "StateChange" {
        return method;
    }
    match StateChangeEvent::decode(request.payload) {
        Ok(change) => format!("{method} {}", change.event().as_str_name()),
        Err(_) => method,
    }
}
