//! The one connection to the container runtime. In: calls as they came, and the daemon's own questions. Out: the runtime's
//! answers, untouched for the first and as plain values for the second.
//!
//! The connection is made at the first call, carries all calls at once (HTTP/2 over the Unix socket), and is made anew at the next
//! call after it broke. It is hyper's client and not tonic's channel, which puts its own name into `user-agent` and enforces
//! `grpc-timeout` itself.

mod calls;
mod info;

#[cfg(test)]
mod tests;

use std::error::Error as _;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::Service;

use crate::cork::Corked;
use crate::frame::MESSAGE_LEN_MAX;
use crate::quiet::Quiet;
use crate::v1::runtime_service_client::RuntimeServiceClient;

pub use calls::{
    ContainerState, ListedContainer, ListedPod, PodDetails, RuntimeError, RuntimeVersion,
};
pub use info::ContainerDetails;

pub(crate) use calls::code_number;

/// What the runtime may send before bayplan has read it. A kubelet relists a few hundred kilobytes at once.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Cancelled calls whose late answers are still told from nonsense.
const CANCELLED_MAX: usize = 1000;

/// Status details travel in trailers; this is grpc-go's limit, which kubelet and containerd use.
pub(crate) const HEADERS_LEN_MAX: u32 = 16 << 20;

/// The runtime behind its Unix socket. Cheap to clone; clones share the connection.
#[derive(Clone, Debug)]
pub struct Upstream {
    client: Client<UnixConnector, Body>,
    socket: Arc<Path>,
    /// Microseconds.
    limit: Arc<AtomicU64>,
}

/// Why a call did not come back from the runtime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// Nobody listens: the call never reached the runtime.
    #[error(
        "cannot reach the container runtime at {} ({reason}); check that it is running and that bayplan's \
         runtime socket setting names its socket",
        socket.display()
    )]
    Unreachable {
        /// The runtime's socket.
        socket: PathBuf,
        /// What the kernel said.
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
            ForwardError::Unreachable { .. } => Code::Unavailable,
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

    /// As [`Self::new`], with the connection's tasks on this runtime, whoever calls.
    pub fn on(home: Handle, socket: PathBuf, limit: Duration) -> Upstream {
        Upstream::at_home(Home(Some(home)), socket, limit)
    }

    fn at_home(home: Home, socket: PathBuf, limit: Duration) -> Upstream {
        let socket: Arc<Path> = socket.into();
        let client = Client::builder(home.clone())
            .timer(TokioTimer::new())
            .http2_only(true)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_max_header_list_size(HEADERS_LEN_MAX)
            .http2_max_concurrent_reset_streams(CANCELLED_MAX)
            // The runtime's late answers to cancelled calls must not end the connection of the others.
            .http2_max_local_error_reset_streams(None)
            .build(UnixConnector { home, socket: Arc::clone(&socket) });
        let upstream = Upstream { client, socket, limit: Arc::default() };
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
        &self.socket
    }

    /// Sends a call on and gives back the answer's head as soon as it is there. Method, path, headers, body frames and trailers
    /// stay as they are; the authority becomes `localhost`. Dropping the future or the answer's body resets the runtime's stream.
    pub async fn forward(
        &self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, ForwardError> {
        let (parts, body) = request.into_parts();
        let mut outgoing = Request::new(body);
        *outgoing.method_mut() = parts.method;
        *outgoing.uri_mut() = on_localhost(&parts.uri);
        *outgoing.version_mut() = http::Version::HTTP_2;
        *outgoing.headers_mut() = parts.headers;
        self.client.request(outgoing).await.map_err(|error| self.explain(error))
    }

    /// A failure of reading an answer's body, as an error that names the socket.
    pub fn broken_body(&self, error: hyper::Error) -> ForwardError {
        let was_dropped = error.is_canceled();
        self.broken(Box::new(error), was_dropped)
    }

    /// A typed client over the same connection.
    pub fn runtime_client(&self) -> RuntimeServiceClient<Upstream> {
        RuntimeServiceClient::with_origin(self.clone(), on_localhost(&Uri::from_static("/")))
            .max_decoding_message_size(MESSAGE_LEN_MAX)
            .max_encoding_message_size(MESSAGE_LEN_MAX)
    }

    fn explain(&self, error: ClientError) -> ForwardError {
        if error.is_connect() {
            let reason = error.source().map_or_else(|| error.to_string(), render_chain);
            return ForwardError::Unreachable { socket: self.socket.to_path_buf(), reason };
        }
        let hyper_error = error.source().and_then(|source| source.downcast_ref::<hyper::Error>());
        let was_dropped = hyper_error.is_some_and(hyper::Error::is_canceled);
        self.broken(Box::new(error), was_dropped)
    }

    /// A stream that the runtime reset on purpose keeps its meaning; everything else means that the runtime went away. hyper says
    /// "canceled" (`was_dropped`) of a call that was waiting on a connection when it ended, which nobody cancelled.
    fn broken(
        &self,
        error: Box<dyn std::error::Error + Send + Sync>,
        was_dropped: bool,
    ) -> ForwardError {
        let reason = render_chain(&*error);
        let code = match Status::from_error(error).code() {
            code @ (Code::Cancelled | Code::ResourceExhausted | Code::PermissionDenied)
                if !was_dropped =>
            {
                code
            }
            _ => Code::Unavailable,
        };
        ForwardError::Broken { socket: self.socket.to_path_buf(), code, reason }
    }
}

/// The transport of the typed client.
impl Service<Request<Body>> for Upstream {
    type Response = Response<Incoming>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let upstream = self.clone();
        Box::pin(async move { upstream.forward(request).await.map_err(|error| error.status()) })
    }
}

/// The runtime on which a connection's tasks are; `None`: that of whoever makes it.
#[derive(Clone, Debug)]
struct Home(Option<Handle>);

impl Home {
    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        match &self.0 {
            Some(home) => home.spawn(task),
            None => tokio::spawn(task),
        }
    }
}

impl<F> Executor<F> for Home
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

/// Connects to the socket whatever the address says.
#[derive(Clone, Debug)]
struct UnixConnector {
    home: Home,
    socket: Arc<Path>,
}

impl Service<Uri> for UnixConnector {
    type Response = TokioIo<Corked<Quiet>>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let socket = Arc::clone(&self.socket);
        // A stream belongs to the runtime on which it is made.
        let connecting =
            self.home.spawn(async move { Quiet::new(UnixStream::connect(&socket).await?) });
        Box::pin(async move { Ok(TokioIo::new(Corked::new(connecting.await??))) })
    }
}

/// A gRPC server refuses an authority that is a path, so the socket never appears in a request.
fn on_localhost(uri: &Uri) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(Authority::from_static("localhost"));
    parts.path_and_query =
        Some(uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
    // All three parts are present, which is all that `from_parts` asks for.
    Uri::from_parts(parts).unwrap_or_else(|_| Uri::from_static("http://localhost/"))
}

/// An error and its sources on one line; a source that only repeats what was said is left out.
fn render_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
