//! The connection that all calls share. In: a socket. Out: a handle by which a call can be sent now.
//!
//! It is made for the first call, and anew for the first one after it broke.

use std::future::{Future, poll_fn};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::FutureExt as _;
use h2::client::{Builder, SendRequest};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::cork::Corked;
use crate::limits::{CONNECTION_WINDOW, HEADERS_LEN_MAX};
use crate::quiet::Quiet;

/// What the runtime may send before bayplan has read it, for each call: of large answers that no client reads, hundreds are held at once. A kubelet relists a few hundred
/// kilobytes.
const STREAM_WINDOW: u32 = 256 << 10;

/// Cancelled calls that are remembered, so that their late answers are told from nonsense.
const CANCELLED_MAX: usize = 1000;

/// The runtime on which the connection's tasks are; `None`: that of the caller that makes it.
#[derive(Clone, Debug)]
pub(super) struct Home(pub(super) Option<Handle>);

impl Home {
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        match &self.0 {
            Some(home) => home.spawn(task),
            None => tokio::spawn(task),
        }
    }
}

/// One connection to a Unix socket, or none yet.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) home: Home,
    pub(super) socket: PathBuf,
    line: Mutex<Option<Line>>,
}

/// A connection that was made.
#[derive(Debug)]
struct Line {
    sender: SendRequest<Bytes>,
    stream: Corked<Quiet>,
    /// What reads and writes.
    task: JoinHandle<()>,
}

impl Connection {
    pub(super) fn new(home: Home, socket: PathBuf) -> Connection {
        Connection { home, socket, line: Mutex::new(None) }
    }

    /// A handle for one call.
    ///
    /// # Errors
    /// There is no connection, and none can be made: what the kernel said.
    pub(super) async fn sender(&self) -> io::Result<SendRequest<Bytes>> {
        // Held while it is made: calls that come meanwhile share it.
        let mut line = self.line.lock().await;
        // After a bug in its task the handle of a connection is not to be touched.
        if let Some(Line { sender, .. }) = line.as_ref().filter(|it| !it.task.is_finished())
            && let Ok(sender) = sender.clone().ready().await
        {
            return Ok(sender);
        }
        *line = None;
        let home = self.home.clone();
        // A stream belongs to the runtime on which it is made.
        let made = self.home.spawn(connect(home, self.socket.clone())).await??;
        Ok(line.insert(made).sender.clone())
    }

    /// The next call makes another connection, and those that are under way stay on theirs: a runtime that has spoken there and does not answer in time may do
    /// so on a new one. Where it has not said a word nothing would be gained.
    pub(super) async fn give_up(&self) {
        let mut line = self.line.lock().await;
        if line.as_ref().is_some_and(|it| it.stream.has_heard()) {
            *line = None;
        }
    }
}

async fn connect(home: Home, socket: impl AsRef<Path>) -> io::Result<Line> {
    let stream = Corked::new(Quiet::new(UnixStream::connect(socket).await?)?);
    let handshake = Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADERS_LEN_MAX)
        .max_concurrent_reset_streams(CANCELLED_MAX)
        // The runtime's late answers to cancelled calls must not end the connection of the others.
        .max_local_error_reset_streams(None)
        .enable_push(false)
        .handshake(stream.clone());
    let (sender, mut connection) = handshake.await.map_err(io::Error::other)?;
    let same = stream.clone();
    let task = home.spawn(async move {
        let turn = poll_fn(|context| same.poll_turn(context, |it| connection.poll_unpin(it)));
        // Calls that were under way hear it too.
        if let Err(error) = turn.await.and_then(|it| it.map_err(io::Error::other)) {
            tracing::debug!(%error, "the connection to the runtime ended");
        }
    });
    Ok(Line { sender, stream, task })
}
