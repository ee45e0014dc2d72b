//! Asks a running daemon on its control socket. In: a path of `api.rs`. Out: what the JSON says.

use std::path::{Path, PathBuf};

use axum::body::Body;
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, Full};
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

/// Bytes of an answer that are read before they are taken.
const BUFFER_MAX: usize = 64 << 10;

/// Why a daemon could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No process listens.
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

/// Asks the daemon behind a control socket; `path` is for example `/api/v1/status`.
///
/// # Errors
/// [`ControlError`].
pub async fn query_control<T: DeserializeOwned>(
    socket: &Path,
    path: &str,
) -> Result<T, ControlError> {
    send(socket, "GET", path, String::new()).await
}

/// As [`query_control`], for what changes something, such as `/api/v1/mode?to=draining`, or takes a file.
///
/// # Errors
/// [`ControlError`].
pub async fn post_control<T: DeserializeOwned>(
    socket: &Path,
    path: &str,
    body: String,
) -> Result<T, ControlError> {
    send(socket, "POST", path, body).await
}

/// Asks the daemon with any method of HTTP, and gives its status and body as they are, also those of a refusal.
///
/// # Errors
/// [`ControlError::Connect`] and [`ControlError::Http`].
pub async fn ask_control(
    socket: &Path,
    method: &str,
    path: &str,
    body: String,
) -> Result<(u16, Vec<u8>), ControlError> {
    let (answer, _connection) = begin(socket, method, path, body).await?;
    let status = answer.status().as_u16();
    let http = |source| ControlError::Http { socket: socket.to_owned(), source };
    let body = answer.into_body().collect().await.map_err(http)?.to_bytes();
    Ok((status, body.to_vec()))
}

/// Asks the daemon with GET, and gives the answer with a body that is read as it is polled; what is dropped ends the connection.
///
/// # Errors
/// [`ControlError::Connect`] and [`ControlError::Http`].
pub async fn open_control(socket: &Path, path: &str) -> Result<Response<Body>, ControlError> {
    let (answer, connection) = begin(socket, "GET", path, String::new()).await?;
    let (head, body) = answer.into_parts();
    let chunks = Body::new(body).into_data_stream().map(move |chunk| {
        let _open = &connection;
        chunk
    });
    Ok(Response::from_parts(head, Body::from_stream(chunks)))
}

/// Sends a request. The answer is read as long as the connection is held.
async fn begin(
    socket: &Path,
    method: &str,
    path: &str,
    body: String,
) -> Result<(Response<Incoming>, JoinSet<hyper::Result<()>>), ControlError> {
    let connect = |source| ControlError::Connect { socket: socket.to_owned(), source };
    let http = |source| ControlError::Http { socket: socket.to_owned(), source };
    let stream = UnixStream::connect(socket).await.map_err(connect)?;
    let connection = http1::Builder::new().max_buf_size(BUFFER_MAX).handshake(TokioIo::new(stream));
    let (mut sender, connection) = connection.await.map_err(http)?;
    let mut held = JoinSet::new();
    held.spawn(connection);
    let request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "localhost")
        .body(Full::new(Bytes::from(body)))
        .map_err(|_| ControlError::Refused { status: 400, message: format!("`{path}`") })?;
    Ok((sender.send_request(request).await.map_err(http)?, held))
}

async fn send<T: DeserializeOwned>(
    socket: &Path,
    method: &str,
    path: &str,
    body: String,
) -> Result<T, ControlError> {
    let (status, body) = ask_control(socket, method, path, body).await?;
    if !(200..300).contains(&status) {
        let message = String::from_utf8_lossy(&body).trim().to_owned();
        return Err(ControlError::Refused { status, message });
    }
    serde_json::from_slice(&body).map_err(ControlError::Form)
}
