//! Serves gRPC over a Unix socket. In: a listener, a service, and when to stop. Out: the service's answers, untouched.
//!
//! It is h2's server, with one task for each call, and not tonic's, which ends every call at the client's `grpc-timeout` by itself, and with
//! `CANCELLED`. Here the service alone decides what a deadline means.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::{Request, Response};
use http_body::Body as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tower::Service;

use crate::cork::Corked;
use crate::limits::{CONNECTION_WINDOW, HEADERS_LEN_MAX};
use crate::quiet::Quiet;
use crate::stream::{Received, Sending};
use crate::tolerant::Tolerant;

const STREAM_WINDOW: u32 = 1 << 20;

/// A few hundred, as others have it, would let calls that wait for containers to stop hold up kubelet's health checks.
const STREAMS_MAX: u32 = 10_000;

/// Calls cancelled before they were taken up. h2's 20 guards against strangers; only root reaches this socket.
const CANCELLED_MAX: usize = 1000;

/// Waiting after `accept` failed, most likely for want of file descriptors, so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`. Then no connection is accepted and leave is taken of the clients of the old ones; what they had sent before they read that is taken up, and what runs may go
/// on until `drained` or its own end, whichever is first; the rest is cut off.
pub(crate) async fn serve<S, B>(
    listener: UnixListener,
    service: S,
    stop: impl Future<Output = ()>,
    drained: impl Future<Output = ()>,
) where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
    B: From<Received> + Send + 'static,
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

async fn serve_connection<S, B>(stream: UnixStream, service: S, closing: CancellationToken)
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
    B: From<Received> + Send + 'static,
{
    let stream = match Quiet::new(stream) {
        Ok(stream) => Corked::new(Tolerant::new(stream)),
        Err(error) => {
            tracing::warn!(%error, "cannot read from a connection");
            return;
        }
    };
    let mut builder = Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADERS_LEN_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(CANCELLED_MAX);
    // Clients that go away without a goodbye are ordinary.
    let tell = |error: &dyn Display| tracing::debug!(%error, "a connection ended");
    // Also when the stop has begun: with its first words a client may have sent calls, of which it would not know what became.
    let mut connection = match builder.handshake(stream.clone()).await {
        Ok(connection) => connection,
        Err(error) => return tell(&error),
    };
    let (mut closed, mut is_closing) = (pin!(closing.cancelled()), false);
    loop {
        let accept = poll_fn(|context| stream.poll_turn(context, |it| connection.poll_accept(it)));
        let accepted = tokio::select! {
            // There are moments in which no call waits to be taken up.
            biased;
            accepted = accept => accepted,
            () = &mut closed, if !is_closing => {
                connection.graceful_shutdown();
                is_closing = true;
                continue;
            }
        };
        match accepted {
            Ok(Some(Ok((request, respond)))) => {
                tokio::spawn(answer(service.clone(), request, respond));
            }
            Ok(Some(Err(error))) => return tell(&error),
            Ok(None) if is_closing => return hear_out(stream).await,
            Ok(None) => return,
            Err(error) => return tell(&error),
        }
    }
}

/// Reads what comes after the last word, until the client has read that and closes. Were the socket closed at once, a client that is about to send a call would
/// find it broken, and not read that the call was never taken.
async fn hear_out(mut stream: Corked<Tolerant<Quiet>>) {
    let heard = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    tracing::debug!(?heard, "a connection ended");
}

/// One call, until its answer has left or its client has gone, of which the service hears by being dropped.
async fn answer<S, B>(
    mut service: S,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
    B: From<Received>,
{
    let request = request.map(|stream| B::from(Received::new(stream)));
    let mut answering = pin!(service.call(request));
    let answered = poll_fn(|context| match respond.poll_reset(context) {
        Poll::Ready(_) => Poll::Ready(None),
        Poll::Pending => answering.as_mut().poll(context).map(Some),
    });
    let Some(Ok(response)) = answered.await else { return };
    let (head, body) = response.into_parts();
    let is_over = body.is_end_stream();
    match respond.send_response(Response::from_parts(head, ()), is_over) {
        Ok(stream) if !is_over => {
            let mut sending = Sending::new(body, stream);
            if !sending.begin() {
                sending.await;
            }
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "an answer came too late"),
    }
}
