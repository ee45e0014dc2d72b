//! The HTTP server of `metricsAddress`. In: an address. Out: answers there, sooner or later: another process that has the port now does not keep
//! kubelet waiting.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::api::{Api, Reach, routes};
use crate::health::Health;
use crate::http_server::{self, for_local_hosts};
use crate::tasks::Losses;

/// A port that another process has is tried again after this time.
const BIND_AGAIN: Duration = Duration::from_secs(2);

/// Where metrics are to be served.
pub(crate) struct MetricsPort {
    wanted: SocketAddr,
    /// `None` as long as it cannot be had.
    listener: Option<TcpListener>,
    health: Arc<Health>,
}

impl MetricsPort {
    /// Tries once, and tells what is wrong.
    pub(crate) async fn bind(wanted: SocketAddr, losses: &Losses) -> MetricsPort {
        if Reach::of(wanted.ip()) == Reach::Network {
            tracing::warn!(
                "metricsAddress {wanted} is no loopback address: metrics can be read from the network; /api/v1 is not served there"
            );
        }
        let bound = TcpListener::bind(wanted).await;
        if let Err(error) = &bound {
            losses.metrics.failed("metrics_address");
            losses.health.set_metrics_port_lacking(true);
            tracing::warn!(
                "cannot listen on metricsAddress {wanted} ({error}); it is tried again every {BIND_AGAIN:?}"
            );
        }
        MetricsPort { wanted, listener: bound.ok(), health: Arc::clone(&losses.health) }
    }

    /// With the port that the kernel chose, if none was asked for.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(|it| it.local_addr().ok())
    }

    /// Serves, once there is a port.
    pub(crate) async fn serve(self, api: Api) {
        let listener = match self.listener {
            Some(listener) => listener,
            None => bind_when_free(self.wanted).await,
        };
        self.health.set_metrics_port_lacking(false);
        let reach = Reach::of(self.wanted.ip());
        let routes = routes(reach, api);
        let routes = match reach {
            // What a page of a browser on this node may try.
            Reach::Loopback => for_local_hosts(routes),
            _ => routes,
        };
        http_server::serve(listener, routes, http_server::TCP).await;
    }
}

async fn bind_when_free(address: SocketAddr) -> TcpListener {
    loop {
        tokio::time::sleep(BIND_AGAIN).await;
        if let Ok(listener) = TcpListener::bind(address).await {
            tracing::info!("listening on metricsAddress {address}");
            return listener;
        }
    }
}
