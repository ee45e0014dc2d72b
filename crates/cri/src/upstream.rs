//! The one connection to the container runtime. In: calls as they came, and the daemon's own questions. Out: the runtime's
//! answers, untouched for the first and as plain values for the second.
//!
//! The connection is made at the first call, carries all calls at once (HTTP/2 over the Unix socket), and is made anew at the next
//! call after it broke. It is h2's client and neither tonic's channel, which puts its own name into `user-agent` and enforces
//! `grpc-timeout` itself, nor hyper's, which would take every call through its pool and tasks.

mod calls;
mod connection;
mod info;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use h2::Reason;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use http_body::Body as _;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::Service;

use crate::deadline;
use crate::frame::MESSAGE_LEN_MAX;
use crate::stream::{self, Received, Sending};
use crate::v1::runtime_service_client::RuntimeServiceClient;
use connection::{Connection, Home};

pub use calls::RuntimeVersion;

pub(crate) use calls::code_number;

/// The runtime behind its Unix socket. Cheap to clone; clones share the connection.
#[derive(Clone, Debug)]
pub struct Upstream {
    connection: Arc<Connection>,
    /// Microseconds.
    limit: Arc<AtomicU64>,
}

/// Why a call did not come back from the runtime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// No process listens: the call never reached the runtime.
    #[error(
        "cannot connect to the container runtime at {} ({reason}); check that it is running and that \
         `runtimeSocket` (for images `imageSocket`) names its socket",
        socket.display()
    )]
    Unreachable {
        /// The runtime's socket.
        socket: PathBuf,
        /// What the kernel said.
        reason: String,
    },
    /// The runtime has not begun the call: it says goodbye, refuses it, or the connection ended before.
    #[error("the container runtime at {} did not take the call ({reason})", socket.display())]
    NotTaken {
        /// The runtime's socket.
        socket: PathBuf,
        /// What the transport said.
        reason: String,
    },
    /// The call was sent, at least in part, and the connection or the stream broke.
    #[error("the container runtime at {} broke off the call ({reason})", socket.display())]
    Broken {
        /// The runtime's socket.
        socket: PathBuf,
        /// The gRPC status code that says it best.
        code: Code,
        /// What the transport said.
        reason: String,
    },
}

impl ForwardError {
    /// As an answer to a gRPC client.
    pub fn status(&self) -> Status {
        let code = match self {
            ForwardError::Unreachable { .. } | ForwardError::NotTaken { .. } => Code::Unavailable,
            ForwardError::Broken { code, .. } => *code,
        };
        Status::new(code, self.to_string())
    }
}

impl Upstream {
    /// A runtime that is not connected yet. `limit` bounds each of bayplan's own calls; forwarded calls have their client's deadline.
    pub fn new(socket: PathBuf, limit: Duration) -> Upstream {
        Upstream::at_home(Home(None), socket, limit)
    }

    /// As [`Self::new`], with the connection's tasks on this runtime, wherever it is called from.
    pub fn on(home: Handle, socket: PathBuf, limit: Duration) -> Upstream {
        Upstream::at_home(Home(Some(home)), socket, limit)
    }

    fn at_home(home: Home, socket: PathBuf, limit: Duration) -> Upstream {
        let connection = Arc::new(Connection::new(home, socket));
        let upstream = Upstream { connection, limit: Arc::default() };
        upstream.set_limit(limit);
        upstream
    }

    /// Bounds bayplan's own calls by this from now on, those of all clones.
    pub fn set_limit(&self, limit: Duration) {
        let micros = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        self.limit.store(micros, Ordering::Relaxed);
    }

    fn limit(&self) -> Duration {
        Duration::from_micros(self.limit.load(Ordering::Relaxed))
    }

    /// The runtime's socket.
    pub fn socket(&self) -> &Path {
        &self.connection.socket
    }

    /// Sends a call on and gives back the answer's head as soon as it is there. Method, path, headers, body frames and trailers
    /// stay as they are; the authority becomes `localhost`. Dropping the future or the answer's body resets the runtime's stream.
    pub async fn forward(
        &self,
        request: Request<Body>,
    ) -> Result<Response<Received>, ForwardError> {
        let mut sender = self.connection.sender().await.map_err(|error| {
            ForwardError::Unreachable { socket: self.socket().into(), reason: error.to_string() }
        })?;
        let (parts, body) = request.into_parts();
        let deadline = deadline::of_call(&parts.headers);
        let mut head = Request::new(());
        *head.method_mut() = parts.method;
        *head.uri_mut() = on_localhost(&parts.uri);
        *head.version_mut() = http::Version::HTTP_2;
        *head.headers_mut() = parts.headers;
        let has_no_body = body.is_end_stream();
        let (answer, stream) = sender
            .send_request(head, has_no_body)
            .map_err(|error| self.not_taken(error.to_string()))?;
        let sending = if has_no_body { None } else { self.send(Sending::new(body, stream)) };
        let answer = answer.await.map_err(|error| self.unanswered(&error, deadline))?;
        Ok(answer.map(|stream| Received::answer(stream, sending)))
    }

    /// Most bodies are all there and need no task.
    fn send(&self, mut sending: Sending<Body>) -> Option<AbortOnDropHandle<()>> {
        (!sending.begin()).then(|| AbortOnDropHandle::new(self.connection.home.spawn(sending)))
    }

    /// Why a call has no answer. A runtime that says goodbye names the last call that it will answer, and one that refuses a call has not begun it (RFC 9113,
    /// sections 6.8 and 8.7). One that cancels a call after the client's deadline does so for the deadline: a client in its place takes it for that, too.
    fn unanswered(&self, error: &h2::Error, deadline: Option<Instant>) -> ForwardError {
        let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
        if error.is_remote() && (error.is_go_away() || is_refused) {
            return self.not_taken(error.to_string());
        }
        let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
        match stream::status(error) {
            it if is_late && it.code() == Code::Cancelled => {
                self.broken(&Status::deadline_exceeded(it.message()))
            }
            it => self.broken(&it),
        }
    }

    fn not_taken(&self, reason: String) -> ForwardError {
        ForwardError::NotTaken { socket: self.socket().into(), reason }
    }

    /// A failure of reading an answer's body, as an error that names the socket.
    pub fn broken(&self, why: &Status) -> ForwardError {
        let (code, reason) = (why.code(), why.message().to_owned());
        ForwardError::Broken { socket: self.socket().into(), code, reason }
    }

    /// What requests of typed clients are addressed to.
    pub(crate) fn origin() -> Uri {
        on_localhost(&Uri::from_static("/"))
    }

    /// A typed client over the same connection.
    pub fn runtime_client(&self) -> RuntimeServiceClient<Upstream> {
        RuntimeServiceClient::with_origin(self.clone(), Upstream::origin())
            .max_decoding_message_size(MESSAGE_LEN_MAX)
            .max_encoding_message_size(MESSAGE_LEN_MAX)
    }
}

/// The transport of the typed client.
impl Service<Request<Body>> for Upstream {
    type Response = Response<Received>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Received>, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let upstream = self.clone();
        Box::pin(async move { upstream.forward(request).await.map_err(|error| error.status()) })
    }
}

static LOCALHOST: LazyLock<Authority> = LazyLock::new(|| Authority::from_static("localhost"));

/// A gRPC server refuses an authority that is a path, so the socket never appears in a request.
fn on_localhost(uri: &Uri) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(LOCALHOST.clone());
    parts.path_and_query =
        Some(uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
    // All three parts are present, which is all that `from_parts` asks for.
    Uri::from_parts(parts).unwrap_or_else(|_| Uri::from_static("http://localhost/"))
}
