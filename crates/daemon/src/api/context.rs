//! What handlers have in common: the parts of the daemon that they ask, bounds on how many ask at a time, and from where what can be asked.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bayplan_node::event::{Answer, Event};
use bayplan_node::status::Status;
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::enforcer::Enforcement;
use crate::feed::Feed;
use crate::holdings::Holdings;
use crate::http_server::Rounds;
use crate::inbox::{Look, Looker};
use crate::live_map::{LiveMap, PastList};
use crate::metrics::Metrics;
use crate::nri_link::Link;
use crate::observer::Shown;
use crate::pods::PodLookup;
use crate::prober::Sightings;
use crate::rebalancer::Told;
use crate::reload::Reloader;
use crate::sync::Syncer;

/// Questions over HTTP that wait for the state at a time.
const PLACES_MAX: usize = 4;

/// From where a listener can be reached; each has what the one before has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// By every client that can reach an address of the node.
    Network,
    /// By every process on the node.
    Loopback,
    /// By root, and the group of the control socket.
    Socket,
}

impl Reach {
    /// Of a listener at this address.
    pub(crate) fn of(address: IpAddr) -> Reach {
        if address.is_loopback() { Reach::Loopback } else { Reach::Network }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Reach::Network => "socket, `metricsAddress`",
            Reach::Loopback => "socket, `metricsAddress` on loopback",
            Reach::Socket => "socket",
        }
    }
}

/// What handlers need.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    pub(crate) syncer: Syncer,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) reloader: Reloader,
    pub(crate) enforcement: Enforcement,
    pub(crate) sightings: Sightings,
    pub(crate) told: Told,
    pub(crate) holdings: Holdings,
    pub(crate) shown: Shown,
    pub(crate) looker: Looker,
    pub(crate) feed: Feed,
    /// Absent with `map: off`.
    pub(crate) map: Option<LiveMap>,
    pub(crate) link: Link,
    /// What kubelet knows of devices.
    pub(crate) pods: Option<PodLookup>,
    pub(crate) shared: Arc<Shared>,
}

/// Answers that are made once for all that ask at a time, and what bounds the rest.
#[derive(Debug)]
pub(crate) struct Shared {
    alive: Rounds<bool>,
    pub(super) status: Rounds<Option<Bytes>>,
    pub(crate) map: Rounds<Option<Bytes>>,
    pub(crate) outline: Rounds<Option<Bytes>>,
    /// The newest entries.
    pub(crate) history: Rounds<Option<Arc<std::io::Result<PastList>>>>,
    /// Plain and OpenMetrics, without and with metrics by container.
    pub(super) metrics: [[Rounds<Bytes>; 2]; 2],
    /// Questions why a container is slow that are worked on at a time, but for those on the control socket.
    pub(crate) why: Semaphore,
    /// Places in the queue of decisions that questions over HTTP may take; all others are kubelet's.
    places: Semaphore,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            alive: Rounds::default(),
            status: Rounds::default(),
            map: Rounds::default(),
            outline: Rounds::default(),
            history: Rounds::default(),
            metrics: Default::default(),
            why: Semaphore::new(1),
            places: Semaphore::new(PLACES_MAX),
        }
    }
}

impl Api {
    /// Asks the state through the queue; for the control socket only.
    pub(super) async fn ask(&self, event: Event) -> Option<Answer> {
        let _place = self.shared.places.acquire().await.ok()?;
        self.syncer.inbox.ask(event).await
    }

    /// With what holds.
    pub(crate) async fn told_status(&self) -> Option<Status> {
        let mut status = self.looker.look(Look::Status).await?;
        self.holdings.tell(&mut status.containers).await;
        Some(*status)
    }

    pub(super) async fn is_alive(&self) -> bool {
        let look = async { self.looker.look(Look::Alive).await.is_some() };
        self.shared.alive.get(look).await
    }
}

/// A container, as of `bayplan explain`.
#[derive(Deserialize)]
pub(crate) struct Named {
    pub(crate) name: String,
}

pub(crate) fn stopping() -> Response {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "the daemon is stopping, or what answers this has ended by a bug, which /readyz tells\n",
    )
        .into_response()
}
