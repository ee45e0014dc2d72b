//! What all calls of the proxy have in common.

use std::sync::atomic::{AtomicU64, Ordering};

use bayplan_workload::Ticket;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::under_way::UnderWay;
use crate::upstream::Upstream;

/// What all calls have in common.
#[derive(Debug)]
pub(crate) struct Shared<A> {
    pub(crate) upstream: Upstream,
    /// `None`: the runtime is also the image service.
    pub(super) images: Option<Upstream>,
    pub(crate) agent: A,
    pub(super) tickets: AtomicU64,
    /// Everything that was asked and not answered yet.
    pub(super) under_way: UnderWay,
    /// Decoded calls that are under way, also those that their client has left.
    pub(super) calls: TaskTracker,
    /// Where they run.
    pub(super) home: Handle,
    /// Ends all of them.
    pub(super) cut: CancellationToken,
}

impl<A> Shared<A> {
    /// Names the next creation.
    pub(crate) fn next_ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether calls are being cut off because the proxy stops.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.is_cancelled()
    }
}
