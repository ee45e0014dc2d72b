//! Questions to a running daemon: JSON over HTTP, on a Unix socket for the command line and on TCP for Prometheus.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::event::{Answer, Event};
use crate::inbox::Inbox;
use crate::metrics::Metrics;
use crate::reload::{ConfigDiff, Reloader};
use crate::status::Status;

/// Why a daemon could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens.
    #[error("cannot reach the daemon at {}; is `bayplan run` running, and is this its controlSocket?", socket.display())]
    Connect {
        /// The control socket.
        socket: PathBuf,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// The conversation broke.
    #[error("the daemon at {} broke off", socket.display())]
    Http {
        /// The control socket.
        socket: PathBuf,
        /// What went wrong.
        #[source]
        source: hyper::Error,
    },
    /// It answered with an error.
    #[error("the daemon answered {status}: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Its text.
        message: String,
    },
    /// It answered something else than expected.
    #[error("the daemon's answer cannot be read; is it of the same version?")]
    Form(#[source] serde_json::Error),
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// `/v1/status`, `/v1/explain?name=`, `/healthz`; `/v1/config/reload`, and `/v1/config/diff?name=` with a file.
pub(crate) fn control_routes(inbox: Inbox, reloader: Reloader) -> Router {
    let asked = reloader.clone();
    let status = async move |State(inbox): State<Inbox>| match inbox.ask(Event::Status).await {
        Some(Answer::Status(status)) => {
            Json(Status { config: Some(asked.status()), ..*status }).into_response()
        }
        _ => stopping(),
    };
    let explain = async |State(inbox): State<Inbox>, Query(named): Query<Named>| match inbox
        .ask(Event::Explain(named.name))
        .await
    {
        Some(Answer::Explanations(found)) => Json(found).into_response(),
        _ => stopping(),
    };
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/explain", get(explain))
        .route("/healthz", get(health))
        .with_state(inbox)
        .merge(config_routes(reloader))
}

fn config_routes(reloader: Reloader) -> Router {
    let reload = async |State(reloader): State<Reloader>| or_why_not(reloader.reload().await);
    let diff =
        async |State(reloader): State<Reloader>, Query(named): Query<Named>, text: String| {
            or_why_not(reloader.preview(Path::new(&named.name), &text).await)
        };
    Router::new()
        .route("/v1/config/reload", post(reload))
        .route("/v1/config/diff", post(diff))
        .with_state(reloader)
}

fn or_why_not(done: anyhow::Result<ConfigDiff>) -> Response {
    match done {
        Ok(diff) => Json(diff).into_response(),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, format!("{error:#}\n")).into_response(),
    }
}

/// The state answers, so the daemon decides.
async fn health(State(inbox): State<Inbox>) -> Response {
    match inbox.ask(Event::Status).await {
        Some(_) => "ok\n".into_response(),
        None => stopping(),
    }
}

fn stopping() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping\n").into_response()
}

/// `/metrics` and `/healthz`.
pub(crate) fn metrics_routes(metrics: Arc<Metrics>, inbox: Inbox) -> Router {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let render = async |State(metrics): State<Arc<Metrics>>| {
        ([(header::CONTENT_TYPE, OPEN_METRICS)], metrics.render())
    };
    Router::new()
        .route("/metrics", get(render))
        .with_state(metrics)
        .merge(Router::new().route("/healthz", get(health)).with_state(inbox))
}

/// Asks the daemon behind a control socket; `path` is for example `/v1/status`.
///
/// # Errors
/// [`ControlError`].
pub async fn query_control<T: DeserializeOwned>(
    socket: &Path,
    path: &str,
) -> Result<T, ControlError> {
    ask_control(socket, hyper::Method::GET, path, String::new()).await
}

/// Tells the daemon behind a control socket to do something; `path` is for example `/v1/config/reload`.
///
/// # Errors
/// [`ControlError`].
pub async fn order_control<T: DeserializeOwned>(
    socket: &Path,
    path: &str,
    body: String,
) -> Result<T, ControlError> {
    ask_control(socket, hyper::Method::POST, path, body).await
}

async fn ask_control<T: DeserializeOwned>(
    socket: &Path,
    method: hyper::Method,
    path: &str,
    body: String,
) -> Result<T, ControlError> {
    let connect = |source| ControlError::Connect { socket: socket.to_owned(), source };
    let http = |source| ControlError::Http { socket: socket.to_owned(), source };
    let stream = UnixStream::connect(socket).await.map_err(connect)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(http)?;
    let connection = tokio::spawn(connection);
    let request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost")
        .body(Full::new(Bytes::from(body)))
        .map_err(|_| ControlError::Refused { status: 400, message: format!("`{path}`") })?;
    let answer = sender.send_request(request).await.map_err(http)?;
    let status = answer.status();
    let body = answer.into_body().collect().await.map_err(http)?.to_bytes();
    connection.abort();
    if !status.is_success() {
        let message = String::from_utf8_lossy(&body).trim().to_owned();
        return Err(ControlError::Refused { status: status.as_u16(), message });
    }
    serde_json::from_slice(&body).map_err(ControlError::Form)
}
