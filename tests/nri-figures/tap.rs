//! Listens in on the connection between a runtime and a plugin. In: the runtime's socket. Out: another socket for the plugin, and how long it took for each answer.
//!
//! The time of an event is from when its request has been passed on until its answer has been read, so it is the plugin's, whichever plugin that is.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bayplan_nri::frame::{Connection, Decoder, Kind, Message};
use bayplan_nri::ttrpc::Request;
use prost::Message as _;

/// What was heard; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Tap(Arc<Mutex<Heard>>);

#[derive(Default)]
struct Heard {
    /// Methods and times of requests without an answer, by connection and stream.
    pending: BTreeMap<(u64, u32), (String, Instant)>,
    took: BTreeMap<String, Vec<Duration>>,
    connections: u64,
}

impl Tap {
    /// Listens at `socket` until the test ends.
    pub(crate) fn start(socket: &Path, runtime: PathBuf) -> anyhow::Result<Tap> {
        let listener = UnixListener::bind(socket)?;
        let tap = Tap::default();
        let listening = tap.clone();
        thread::spawn(move || {
            for plugin in listener.incoming().flatten() {
                // Without a runtime the plugin's connection ends, and it tries again.
                if let Ok(runtime) = UnixStream::connect(&runtime) {
                    let _ended = listening.relay(plugin, runtime);
                }
            }
        });
        Ok(tap)
    }

    fn heard(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was heard, and gives it: times by method.
    pub(crate) fn take(&self) -> BTreeMap<String, Vec<Duration>> {
        std::mem::take(&mut self.heard().took)
    }

    /// Answers to this method that were heard since the last [`Tap::take`].
    pub(crate) fn count(&self, method: &str) -> usize {
        self.heard().took.get(method).map_or(0, Vec::len)
    }

    fn relay(&self, plugin: UnixStream, runtime: UnixStream) -> anyhow::Result<()> {
        let connection = {
            let mut heard = self.heard();
            heard.connections += 1;
            heard.connections
        };
        let (to_plugin, to_runtime) = (plugin.try_clone()?, runtime.try_clone()?);
        let (asking, answering) = (self.clone(), self.clone());
        thread::spawn(move || {
            pump(runtime, to_plugin, |message| asking.note_request(connection, message));
        });
        thread::spawn(move || {
            pump(plugin, to_runtime, |message| answering.note_answer(connection, message));
        });
        Ok(())
    }

    fn note_request(&self, connection: u64, message: &Message) {
        if (message.connection, message.kind) != (Connection::Plugin, Kind::Request) {
            return;
        }
        let Ok(request) = Request::decode(message.body.clone()) else { return };
        let begun = (request.method, Instant::now());
        self.heard().pending.insert((connection, message.stream), begun);
    }

    fn note_answer(&self, connection: u64, message: &Message) {
        let now = Instant::now();
        if (message.connection, message.kind) != (Connection::Plugin, Kind::Response) {
            return;
        }
        let mut heard = self.heard();
        if let Some((method, begun)) = heard.pending.remove(&(connection, message.stream)) {
            heard.took.entry(method).or_default().push(now - begun);
        }
    }
}

/// Passes bytes on until either side ends.
fn pump(mut from: UnixStream, mut to: UnixStream, note: impl Fn(&Message)) {
    let (mut decoder, mut bytes) = (Decoder::default(), vec![0; 1 << 16]);
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        decoder.push(&bytes[..count]);
        while let Ok(Some(message)) = decoder.next_message() {
            note(&message);
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // The other direction ends with it.
    let _gone = (from.shutdown(std::net::Shutdown::Both), to.shutdown(std::net::Shutdown::Both));
}
