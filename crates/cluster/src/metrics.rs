//! `bayplan agent --metrics`: the node's metrics over TLS. In: scrapes with a bearer token, the daemon's metrics from its control socket. Out: these and the agent's own, to
//! what the cluster lets read `/metrics`.
//!
//! The daemon has no token and does not speak with the API server, so the agent asks that for it ([`gate`]). Nothing is served unchecked: without an answer of the API
//! server a scrape is refused. Whatever is missing here is waited for, and the agent does everything else meanwhile.

mod gate;
mod own_certificate;
mod tally;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use jiff::Timestamp;
use kube::Client;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use self::gate::{Gate, Verdict};
use self::own_certificate::Own;
use self::tally::{Outcome, Tally};
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
/// Longer tokens are refused without a question.
const TOKEN_MAX: usize = 16 << 10;

/// What it is told on the command line.
#[derive(Clone, Debug)]
pub struct MetricsOptions {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The name of the node, which its own certificate has.
    pub node: String,
    /// A directory with `tls.crt` and `tls.key` that another program renews; `None`: it makes its own certificate.
    pub certificate: Option<PathBuf>,
}

/// Runs until the process ends. `serve` answers HTTP on a listener by these routes, within limits for connections.
pub async fn serve_metrics<F: Future<Output = ()>>(
    options: MetricsOptions,
    daemon: impl Daemon,
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
    tracing::info!(address = %options.listen, "serving metrics");
    serve(listener, routes(client, daemon)).await;
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
    gate: Gate,
    daemon: D,
    tally: Tally,
    said: Mutex<Said>,
}

fn routes(client: Client, daemon: impl Daemon) -> Router {
    let scrapes = Scrapes {
        gate: Gate::new(client),
        daemon,
        tally: Tally::default(),
        said: Mutex::default(),
    };
    Router::new().route("/metrics", get(answer)).with_state(Arc::new(scrapes))
}

async fn answer<D: Daemon>(State(scrapes): State<Arc<Scrapes<D>>>, headers: HeaderMap) -> Response {
    match scrapes.check(&headers).await {
        Ok(()) => scrapes.read().await,
        Err(refused) => refused,
    }
}

impl<D: Daemon> Scrapes<D> {
    /// The answer is an error where the scraper may not read.
    async fn check(&self, headers: &HeaderMap) -> Result<(), Response> {
        let verdict = match bearer_token(headers) {
            Some(token) => self.gate.judge(token).await,
            None => Ok(Verdict::Unauthenticated),
        };
        let (outcome, status, text) = match verdict {
            Ok(Verdict::Allowed) => {
                self.said().is_over("review");
                return Ok(());
            }
            Ok(Verdict::Unauthenticated) => {
                let text = "metrics are for bearer tokens of the cluster\n".to_owned();
                (Outcome::Unauthenticated, StatusCode::UNAUTHORIZED, text)
            }
            Ok(Verdict::Forbidden { user }) => {
                let text = format!("{user} may not get /metrics\n");
                (Outcome::Forbidden, StatusCode::FORBIDDEN, text)
            }
            Err(error) => {
                let text = format!("the API server does not check the token: {error:#}");
                if self.said().is_news("review", &text) {
                    tracing::warn!("metrics are refused: {text}");
                }
                let text = "the API server does not check the token\n".to_owned();
                (Outcome::Unchecked, StatusCode::SERVICE_UNAVAILABLE, text)
            }
        };
        self.tally.count(outcome);
        let mut refused = (status, text).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer");
            refused.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        Err(refused)
    }

    /// Metrics of daemon and agent; those of the agent alone would look like a daemon that works.
    async fn read(&self) -> Response {
        let asked = self.daemon.ask(Method::Get, "/metrics", String::new());
        let problem = match timeout(DAEMON_MAX, asked).await {
            Ok(Ok(answer)) if answer.is_good() => return self.answered(answer),
            Ok(Ok(answer)) => answer.text(),
            Ok(Err(error)) => error,
            Err(_) => format!("no answer within {} s", DAEMON_MAX.as_secs()),
        };
        self.tally.count(Outcome::DaemonAway);
        (StatusCode::SERVICE_UNAVAILABLE, format!("the daemon is away: {problem}\n"))
            .into_response()
    }

    fn answered(&self, answer: Answer) -> Response {
        self.tally.count(Outcome::Answered);
        let mut body = answer.body;
        body.extend(self.tally.render().into_bytes());
        ([(header::CONTENT_TYPE, PLAIN_TEXT)], body).into_response()
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of a request with exactly one `Authorization`.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (all.next(), all.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    let is_good = scheme.eq_ignore_ascii_case("bearer") && (1..=TOKEN_MAX).contains(&token.len());
    is_good.then_some(token)
}

#[cfg(test)]
mod tests;
