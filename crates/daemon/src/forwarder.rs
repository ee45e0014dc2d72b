//! The thread that forwards. In: tasks of connections. Out: a runtime for them alone, which ends with this.
//!
//! Problem: a call that is only forwarded passes through three tasks (a connection on each side, and its own between them). Threads that share them
//! wake each other for every one, which costs more than the work, and most where there are fewer free CPUs than threads. Approach: all of them on one thread. Nothing on it
//! touches a disk or decides: decoded calls run where the rest of the daemon does ([`bayplan_cri::proxy::Proxy::new`]), so what waits or works there stops no call that is only forwarded.

use std::io;
use std::path::Path;
use std::thread::{Builder as ThreadBuilder, JoinHandle};
use std::time::Duration;

use bayplan_cri::upstream::Upstream;
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// What the thread is called.
const NAME: &str = "forwarder";

/// The thread; it ends, with all tasks on it, when this is dropped.
#[derive(Debug)]
pub(crate) struct Forwarder {
    handle: Handle,
    /// Both are there until the drop.
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Forwarder {
    /// Starts it.
    ///
    /// # Errors
    /// No thread or no file descriptors are left.
    pub(crate) fn start() -> io::Result<Forwarder> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let work = move || {
            // It is never sent; the other end goes away.
            let _dropped = runtime.block_on(ended);
        };
        let thread = ThreadBuilder::new().name(NAME.to_owned()).spawn(work)?;
        Ok(Forwarder { handle, running: Some((end, thread)) })
    }

    /// A runtime with its connection on the thread.
    pub(crate) fn upstream(&self, socket: &Path, limit: Duration) -> Upstream {
        Upstream::on(self.handle.clone(), socket.to_owned(), limit)
    }

    /// The same listener, accepted from on the thread: a client that connects waits for no other.
    ///
    /// # Errors
    /// The system does not give it away.
    pub(crate) fn take_over(&self, listener: UnixListener) -> io::Result<UnixListener> {
        let listener = listener.into_std()?;
        let _on_the_thread = self.handle.enter();
        UnixListener::from_std(listener)
    }

    /// Where tasks that forward are spawned.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Forwarder {
    /// Comes back when everything on it has been dropped: a successor makes sockets of its own.
    fn drop(&mut self) {
        if let Some((end, thread)) = self.running.take() {
            drop(end);
            // Panics of tasks are their owners' to tell.
            let _ended = thread.join();
        }
    }
}
