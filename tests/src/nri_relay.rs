//! Listens in on the connection between a runtime and a plugin. In: the runtime's socket. Out: another socket for the plugin, and each message as it has been passed on.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use bayplan_nri::frame::{Decoder, Message};

/// A message that was heard.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    /// Which connection of those that plugins have made, beginning with 1.
    pub connection: u64,
    /// The message.
    pub message: &'a Message,
}

/// Listens at `socket` until the test ends. `note` is called before a message is passed on, so no answer is heard before its request.
///
/// # Errors
/// The socket cannot be made.
pub fn relay(
    socket: &Path,
    runtime: PathBuf,
    note: impl Fn(Heard<'_>) + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let listener = UnixListener::bind(socket)?;
    let note = Arc::new(note);
    thread::spawn(move || {
        let mut connections = 0;
        for plugin in listener.incoming().flatten() {
            // Without a runtime the plugin's connection ends, and it tries again.
            if let Ok(runtime) = UnixStream::connect(&runtime) {
                connections += 1;
                let _ended = connect(connections, plugin, runtime, &note);
            }
        }
    });
    Ok(())
}

fn connect<F: Fn(Heard<'_>) + Send + Sync + 'static>(
    connection: u64,
    plugin: UnixStream,
    runtime: UnixStream,
    note: &Arc<F>,
) -> anyhow::Result<()> {
    let to_plugin = plugin.try_clone()?;
    let to_runtime = runtime.try_clone()?;
    for (from, to) in [(runtime, to_plugin), (plugin, to_runtime)] {
        let note = Arc::clone(note);
        thread::spawn(move || pump(from, to, |message| note(Heard { connection, message })));
    }
    Ok(())
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
    let _gone = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
