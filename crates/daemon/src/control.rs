//! Asks a running daemon on its control socket. In: a path of `api.rs`. Out: what the JSON says.

use std::path::{Path, PathBuf};

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

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
    let connect = |source| ControlError::Connect { socket: socket.to_owned(), source };
    let http = |source| ControlError::Http { socket: socket.to_owned(), source };
    let stream = UnixStream::connect(socket).await.map_err(connect)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(http)?;
    let connection = tokio::spawn(connection);
    let request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "localhost")
        .body(Full::new(Bytes::from(body)))
        .map_err(|_| ControlError::Refused { status: 400, message: format!("`{path}`") })?;
    let answer = sender.send_request(request).await.map_err(http)?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.map_err(http)?.to_bytes();
    connection.abort();
    Ok((status, body.to_vec()))
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
