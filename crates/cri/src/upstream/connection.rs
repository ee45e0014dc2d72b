//! The connection that all calls share. In: a socket. Out: a handle by which a call can be sent now.
//!
//! It is made for the first call, and anew for the first one after it broke.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::HEADERS_LEN_MAX;
use crate::cork::Corked;
use crate::quiet::Quiet;

/// What the runtime may send before bayplan has read it. A kubelet relists a few hundred kilobytes at once.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Cancelled calls whose late answers are still told from nonsense.
const CANCELLED_MAX: usize = 1000;

/// The runtime on which the connection's tasks are; `None`: that of whoever makes it.
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
    sender: Mutex<Option<SendRequest<Bytes>>>,
}

impl Connection {
    pub(super) fn new(home: Home, socket: PathBuf) -> Connection {
        Connection { home, socket, sender: Mutex::new(None) }
    }

    /// A handle for one call.
    ///
    /// # Errors
    /// There is no connection, and none can be made: what the kernel said.
    pub(super) async fn sender(&self) -> io::Result<SendRequest<Bytes>> {
        // Held while it is made: whoever comes meanwhile shares it.
        let mut held = self.sender.lock().await;
        if let Some(sender) = held.clone()
            && let Ok(sender) = sender.ready().await
        {
            return Ok(sender);
        }
        *held = None;
        let home = self.home.clone();
        // A stream belongs to the runtime on which it is made.
        let sender = self.home.spawn(connect(home, self.socket.clone())).await??;
        *held = Some(sender.clone());
        Ok(sender)
    }
}

async fn connect(home: Home, socket: impl AsRef<Path>) -> io::Result<SendRequest<Bytes>> {
    let stream = Corked::new(Quiet::new(UnixStream::connect(socket).await?)?);
    let handshake = Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADERS_LEN_MAX)
        .max_concurrent_reset_streams(CANCELLED_MAX)
        // The runtime's late answers to cancelled calls must not end the connection of the others.
        .max_local_error_reset_streams(None)
        .enable_push(false)
        .handshake(stream);
    let (sender, connection) = handshake.await.map_err(io::Error::other)?;
    home.spawn(async move {
        // Calls that were under way hear it too.
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to the runtime ended");
        }
    });
    Ok(sender)
}
