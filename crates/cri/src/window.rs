//! How long a call may go on.

use http::HeaderMap;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::deadline;

/// How long a call may go on.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// Cancelled when the client went away or the proxy stops.
    pub(crate) cancel: CancellationToken,
    /// The client's `grpc-timeout`.
    pub(crate) deadline: Option<Instant>,
}

impl Window {
    pub(crate) fn new(headers: &HeaderMap, cancel: CancellationToken) -> Window {
        Window { cancel, deadline: deadline::of_call(headers) }
    }

    /// The client no longer waits for the answer.
    pub(crate) fn is_over(&self) -> bool {
        self.cancel.is_cancelled()
            || self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }
}
