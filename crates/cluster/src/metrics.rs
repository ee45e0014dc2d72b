//! `bayplan agent --metrics`: the node's metrics over TLS, and its live map where that is chosen ([`map`]). In: scrapes with a bearer token, the daemon's metrics from its
//! control socket. Out: these and the agent's own, to what the cluster lets read `/metrics`.
//!
//! The daemon has no token and does not speak with the API server, so the agent asks that for it ([`gate`]). Nothing is served unchecked: without an answer of the API
//! server a scrape is refused. Whatever is missing here is waited for, and the agent does everything else meanwhile.

mod access;
mod gate;
mod map;
mod own_certificate;
mod session;
mod tally;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use jiff::Timestamp;
use kube::Client;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use self::access::{Access, bearer_token};
use self::gate::{Gate, Right};
pub use self::map::{DaemonAnswer, DaemonStream};
use self::own_certificate::Own;
use self::tally::{Counts, Outcome, Tally};
use crate::daemon::{Answer, Daemon, Method};
use crate::said::Said;
use crate::webhook::{Certificate, TlsListener, client, follow_files, read_files};

/// Of Prometheus' text format.
const PLAIN_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// After an attempt to listen, or to read a certificate, that failed.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// How often the age of the own certificate is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// Prometheus waits 10 s by default; the check of the token is in it, too.
const DAEMON_MAX: Duration = Duration::from_secs(4);

/// What it is told on the command line.
#[derive(Clone, Debug)]
pub struct MetricsOptions {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The name of the node, which its own certificate has.
    pub node: String,
    /// A directory with `tls.crt` and `tls.key` that another program renews; `None`: it makes its own certificate.
    pub certificate: Option<PathBuf>,
    /// Whether it serves the live map, too.
    pub has_map: bool,
}

/// Runs until the process ends. `serve` answers HTTP on a listener by these routes, within limits for connections.
pub async fn serve_metrics<F: Future<Output = ()>>(
    options: MetricsOptions,
    daemon: impl Daemon + DaemonStream,
    serve: impl FnOnce(TlsListener, Router) -> F,
) {
    let certificate = Certificate::default();
    let mut said = Said::default();
    let (listener, client) = loop {
        match prepare(&options, &certificate).await {
            Ok(prepared) => break prepared,
            Err(error) => {
                let text = format!("{error:#}");
                if said.is_news("prepare", &text) {
                    tracing::warn!("metrics are not served yet: {text}");
                }
                sleep(TRY_AGAIN).await;
            }
        }
    };
    match options.certificate {
        Some(dir) => drop(tokio::spawn(follow_files(dir, certificate))),
        None => drop(tokio::spawn(renew_own(options.node, certificate))),
    }
    tracing::info!(address = %options.listen, map = options.has_map, "serving metrics");
    serve(listener, routes(client, daemon, options.has_map)).await;
}

async fn prepare(
    options: &MetricsOptions,
    certificate: &Certificate,
) -> anyhow::Result<(TlsListener, Client)> {
    match &options.certificate {
        Some(dir) => read_files(dir, certificate)?,
        None => set_own(&Own::new(&options.node, Timestamp::now())?, certificate)?,
    }
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", options.listen))?;
    Ok((TlsListener::new(listener, certificate.clone())?, client().await?))
}

fn set_own(own: &Own, certificate: &Certificate) -> anyhow::Result<()> {
    certificate.set(&own.certificate, &own.key)
}

/// The first one is some moments older than it is taken for here.
async fn renew_own(node: String, certificate: Certificate) {
    let mut renewed_at = own_certificate::renewed_at(Timestamp::now());
    loop {
        sleep(LOOK_EVERY).await;
        let now = Timestamp::now();
        if now < renewed_at {
            continue;
        }
        match Own::new(&node, now).and_then(|own| set_own(&own, &certificate)) {
            Ok(()) => renewed_at = own_certificate::renewed_at(now),
            Err(error) => tracing::warn!("the certificate of metrics is not renewed: {error:#}"),
        }
    }
}

/// What the handler needs.
struct Scrapes<D> {
    access: Access,
    daemon: Arc<D>,
    tally: Tally,
}

fn routes(client: Client, daemon: impl Daemon + DaemonStream, has_map: bool) -> Router {
    let (gate, daemon) = (Arc::new(Gate::new(client)), Arc::new(daemon));
    let (scrapes, map) = (Arc::<Counts>::default(), has_map.then(Arc::<Counts>::default));
    let router = match &map {
        Some(counts) => map::routes(Access::new(&gate, Right::Map, counts), Arc::clone(&daemon)),
        None => Router::new(),
    };
    let access = Access::new(&gate, Right::Metrics, &scrapes);
    let scrapes = Scrapes { access, daemon, tally: Tally { scrapes, map } };
    let own = Router::new().route("/metrics", get(answer)).with_state(Arc::new(scrapes));
    router.merge(own)
}

async fn answer<D: Daemon>(State(scrapes): State<Arc<Scrapes<D>>>, headers: HeaderMap) -> Response {
    match scrapes.access.check(bearer_token(&headers)).await {
        Ok(()) => scrapes.read().await,
        Err(refused) => refused.into_response(),
    }
}

impl<D: Daemon> Scrapes<D> {
    /// Metrics of daemon and agent; those of the agent alone would look like a daemon that works.
    async fn read(&self) -> Response {
        let asked = self.daemon.ask(Method::Get, "/metrics", String::new());
        let problem = match timeout(DAEMON_MAX, asked).await {
            Ok(Ok(answer)) if answer.is_good() => return self.answered(answer),
            Ok(Ok(answer)) => answer.text(),
            Ok(Err(error)) => error,
            Err(_) => format!("no answer within {} s", DAEMON_MAX.as_secs()),
        };
        self.tally.scrapes.count(Outcome::DaemonAway);
        (StatusCode::SERVICE_UNAVAILABLE, format!("the daemon is away: {problem}\n"))
            .into_response()
    }

    fn answered(&self, answer: Answer) -> Response {
        self.tally.scrapes.count(Outcome::Answered);
        let mut body = answer.body;
        body.extend(self.tally.render().into_bytes());
        ([(header::CONTENT_TYPE, PLAIN_TEXT)], body).into_response()
    }
}

#[cfg(test)]
mod tests;
