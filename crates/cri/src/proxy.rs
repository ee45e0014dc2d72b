//! The CRI proxy. In: kubelet's calls on one socket. Out: the same calls on the runtime's socket, and the answers back.
//!
//! Every call passes as raw bytes with its metadata, deadline, cancellation, status and details, also one that does not exist yet,
//! and also a streaming one. The nine that create, change or end something ([`DECODED`]) are also read, shown to the [`Agent`], and
//! two of them are written to; see [`crate::delta`] for how, so that what bayplan does not know survives.
//!
//! Guarantees: the runtime's answer to a create leaves only after [`Agent::created`] has returned; a client that goes away resets
//! the runtime's stream, but the agent still hears the end of what it was asked about.
//!
//! Two runtimes may share the work: [`serve`] is spawned on that which forwards, and decoded calls run on that on which the proxy was made, so
//! that what waits or computes there does not stop the others.
//!
//! A stop has two phases. As long as calls are under way that take long by nature (a container that ends, an image that is pulled),
//! everything is served as before, new connections too: kubelet gives up on a connection that is not accepted for five seconds. Then no connection is
//! accepted any more, clients are told to connect anew (GOAWAY), and calls have a few seconds to finish.

mod passed;
pub(crate) mod shared;
mod under_way;
pub(crate) mod watched;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};
use std::time::Duration;

use bayplan_workload::Agent;
use bytes::Bytes;
use http::{Request, Response};
use tokio::net::UnixListener;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tonic::body::Body;
use tower::Service;

use crate::call_observer::CallObserver;
use crate::intercept::{self, Method};
use crate::server;
use crate::stream::Received;
use crate::upstream::Upstream;
use crate::window::Window;
use shared::Shared;
use under_way::UnderWay;
use watched::CallEnd;

pub use crate::intercept::DECODED;

/// How long calls that the agent knows about may take to finish after the stop.
const GRACE_DECODED: Duration = Duration::from_secs(5);

/// After these, how long the others have, and the last answers to leave the socket. Streams never end by themselves.
const GRACE_PASSED: Duration = Duration::from_secs(1);

/// The proxy as a service: any server of HTTP/2 requests can run it. Cheap to clone.
#[derive(Debug)]
pub struct Proxy<A> {
    shared: Arc<Shared<A>>,
}

impl<A> Clone for Proxy<A> {
    fn clone(&self) -> Proxy<A> {
        Proxy { shared: Arc::clone(&self.shared) }
    }
}

impl<A: Agent + CallObserver> Proxy<A> {
    /// A proxy to this runtime that asks this agent. Image calls go to `images`, if that is somewhere else. Decoded calls will run on the tokio
    /// runtime on which this is called; without one it panics.
    pub fn new(upstream: Upstream, images: Option<Upstream>, agent: A) -> Proxy<A> {
        let shared = Shared {
            upstream,
            images,
            agent,
            tickets: AtomicU64::new(1),
            under_way: UnderWay::default(),
            calls: TaskTracker::new(),
            home: Handle::current(),
            cut: CancellationToken::new(),
        };
        Proxy { shared: Arc::new(shared) }
    }
}

/// Serves the proxy until `shutdown`, and on until no call is under way that takes long, at most for `drain`, which is asked then. Then decoded calls get
/// five seconds to finish, others one second more, and decoded ones that came meanwhile the same once; what still runs (streams such as `GetContainerEvents` never end by
/// themselves) is cut off.
pub async fn serve<A: Agent + CallObserver>(
    listener: UnixListener,
    proxy: Proxy<A>,
    shutdown: impl Future<Output = ()>,
    drain: impl FnOnce() -> Duration,
) {
    let shared = Arc::clone(&proxy.shared);
    let stop = async {
        shutdown.await;
        shared.finish_long_calls(drain()).await;
    };
    let drained = async {
        shared.finish_calls().await;
        sleep(GRACE_PASSED).await;
        // Those of clients that have connected just before.
        if !shared.calls.is_empty() {
            shared.finish_calls().await;
            sleep(GRACE_PASSED).await;
        }
        shared.tell_cut();
    };
    server::serve::<_, Received>(listener, proxy, stop, drained).await;
    // Connections may have ended before the agent has heard everything.
    shared.finish_calls().await;
}

impl<A, B> Service<Request<B>> for Proxy<A>
where
    A: Agent + CallObserver,
    B: http_body::Body<Data = Bytes, Error = Status> + Send + Unpin + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let (request, entry) = shared.under_way.enter(request);
            let end = CallEnd::new(Arc::clone(&shared), entry);
            Ok(match Method::of(request.uri().path()) {
                Some(method) => shared.intercept(method, request, end).await,
                None if intercept::is_of_other_version(request.uri().path()) => {
                    let path = request.uri().path().to_owned();
                    let response = shared.pass(request, end).await;
                    shared.agent.other_version(&path);
                    response
                }
                None => shared.pass(request, end).await,
            })
        })
    }
}

impl<A: Agent + CallObserver> Shared<A> {
    /// Runs a decoded call in a task of its own, so that a client that goes away cannot stop it half way. Its going away is told
    /// to the task instead.
    async fn intercept(
        self: Arc<Self>,
        method: Method,
        request: Request<Body>,
        end: CallEnd<A>,
    ) -> Response<Body> {
        let window = Window::new(request.headers(), self.cut.child_token());
        let client_is_there = window.cancel.clone().drop_guard();
        let shared = Arc::clone(&self);
        let task = intercept::run(shared, method, request, window, end);
        let task = self.calls.spawn_on(task, &self.home);
        let response = match task.await {
            Ok(response) => response,
            Err(_) => Status::internal("bayplan failed while it handled the call").into_http(),
        };
        client_is_there.disarm();
        response
    }

    /// Waits for calls that take long by nature.
    async fn finish_long_calls(&self, limit: Duration) {
        for call in self.under_way.long_calls() {
            tracing::info!(call, "waiting for a call to end before the stop");
        }
        if timeout(limit, self.under_way.long_calls_end()).await.is_err() {
            tracing::warn!("calls are still under way after {limit:?}; see drainTimeout");
        }
    }

    /// Logs the calls that will get no answer.
    fn tell_cut(&self) {
        for call in self.under_way.unfinished() {
            tracing::warn!(call, "cut off by the stop");
        }
    }

    /// Waits for the decoded calls, and cuts off those that take too long.
    async fn finish_calls(&self) {
        self.calls.close();
        if !self.is_cut() {
            if timeout(GRACE_DECODED, self.calls.wait()).await.is_ok() {
                return;
            }
            self.tell_cut();
            self.cut.cancel();
        }
        // All that is left is telling the agent, which has a deadline of its own.
        if timeout(GRACE_PASSED, self.calls.wait()).await.is_err() {
            tracing::warn!(calls = self.calls.len(), "stopped before all calls came to an end");
        }
    }
}
