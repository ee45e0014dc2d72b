//! Serves gRPC over a Unix socket. In: a listener, a service, and when to stop. Out: the service's answers, untouched.
//!
//! It is hyper's HTTP/2 server and not tonic's, which ends every call at the client's `grpc-timeout` by itself, and with
//! `CANCELLED`. Here the service alone decides what a deadline means.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tower::Service;

use crate::cork::Corked;
use crate::quiet::Quiet;
use crate::upstream::HEADERS_LEN_MAX;

const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// hyper's 200 would let calls that wait for containers to stop hold up kubelet's health checks.
const STREAMS_MAX: u32 = 10_000;

/// Calls cancelled before they were taken up. hyper's 20 guards against strangers; only root reaches this socket.
const CANCELLED_MAX: usize = 1000;

/// Waiting after `accept` failed, most likely for want of file descriptors, so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`. Then no connection is accepted and no call begins on the old ones, and what still runs may go on until
/// `drained` or its own end, whichever is first; the rest is cut off.
pub(crate) async fn serve<S>(
    listener: UnixListener,
    service: S,
    stop: impl Future<Output = ()>,
    drained: impl Future<Output = ()>,
) where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let closing = CancellationToken::new();
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve_connection(stream, service.clone(), closing.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            // Take up what has ended, so that the set does not grow.
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    closing.cancel();
    let all_ended = async { while connections.join_next().await.is_some() {} };
    tokio::select! {
        () = all_ended => {}
        () = drained => {}
    }
    connections.shutdown().await;
}

/// A request without its empty pieces. Most requests end with one, which would become a frame of its own on the way to the runtime; servers
/// that take many of them for an attack end the connection of all calls (h2 since 0.4.16).
struct Lean(Incoming);

impl http_body::Body for Lean {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        loop {
            let frame = ready!(Pin::new(&mut self.0).poll_frame(context));
            let is_empty = |frame: &Frame<Bytes>| frame.data_ref().is_some_and(Bytes::is_empty);
            if !matches!(&frame, Some(Ok(frame)) if is_empty(frame)) {
                return Poll::Ready(frame);
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

async fn serve_connection<S>(stream: UnixStream, service: S, closing: CancellationToken)
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let call = service_fn(move |request: Request<Incoming>| {
        service.clone().call(request.map(|body| Body::new(Lean(body))))
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADERS_LEN_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(CANCELLED_MAX)
        .auto_date_header(false);
    let stream = match Quiet::new(stream) {
        Ok(stream) => TokioIo::new(Corked::new(stream)),
        Err(error) => {
            tracing::warn!(%error, "cannot read from a connection");
            return;
        }
    };
    let mut connection = pin!(builder.serve_connection(stream, call));
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // Clients that go away without a goodbye are ordinary.
        tracing::debug!(%error, "a connection ended");
    }
}
