//! The NRI front end's connection to the runtime, as the daemon shows it and as decisions are limited by it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bayplan_node::status::FrontEndStatus;

use crate::config::FrontEnd;
use crate::unconfirmed::Unconfirmed;

/// The connection to the runtime; clones share everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    /// Sets on their way to the runtime.
    pub(crate) unconfirmed: Unconfirmed,
    /// Milliseconds that a decision may take; 0: as configured.
    pub(crate) limit: Arc<AtomicU64>,
    /// The runtime registers a plugin only when no creation is under way.
    pub(crate) ends_creations_first: Arc<AtomicBool>,
    shown: Arc<Mutex<Option<FrontEndStatus>>>,
}

impl Link {
    /// Of this front end.
    pub(crate) fn of(front_end: FrontEnd) -> Link {
        match front_end {
            FrontEnd::Cri => Link::default(),
            FrontEnd::Nri => Link::nri(),
        }
    }

    /// Of the NRI front end, before there is a connection.
    pub(crate) fn nri() -> Link {
        let shown = FrontEndStatus { kind: "nri".to_owned(), ..FrontEndStatus::default() };
        Link {
            unconfirmed: Unconfirmed::for_events(),
            limit: Arc::default(),
            ends_creations_first: Arc::default(),
            shown: Arc::new(Mutex::new(Some(shown))),
        }
    }

    /// How long a decision may take, where the configuration says `configured`.
    pub(crate) fn limit(&self, configured: Duration) -> Duration {
        match self.limit.load(Ordering::Relaxed) {
            0 => configured,
            millis => configured.min(Duration::from_millis(millis)),
        }
    }

    /// For `bayplan status`; `None` for CRI.
    pub(crate) fn shown(&self) -> Option<FrontEndStatus> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives what `change` makes of whether it is registered.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut FrontEndStatus) -> T) -> Option<T> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(change)
    }
}
