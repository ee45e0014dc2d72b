//! Misbehaviour on demand. In: calls, and what is to go wrong with them. Out: the calls, late, refused, or never.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::Service;

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done and no answer comes.
    Hang,
    /// What was asked is done, and no answer comes.
    LoseReply,
    /// Nothing is done; the answer is this gRPC status code.
    Fail(u32),
    /// What was asked is done this much later.
    Delay(Duration),
    /// What was asked is done; the answer says that it went well, and is no message.
    Garbage,
}

#[derive(Debug, Default)]
struct Board {
    /// What goes wrong with a method, after so many calls.
    faults: BTreeMap<String, (u64, Fault)>,
    calls: BTreeMap<String, u64>,
}

/// The injected faults and the number of calls, by the bare name of the method.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    board: Arc<watch::Sender<Board>>,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults { board: Arc::new(watch::Sender::default()) }
    }
}

impl Faults {
    pub(super) fn inject(&self, method: &str, fault: Fault) {
        self.inject_after(method, 0, fault);
    }

    pub(super) fn inject_after(&self, method: &str, calls: u64, fault: Fault) {
        self.board.send_modify(|board| {
            board.faults.insert(method.to_owned(), (calls, fault));
        });
    }

    pub(super) fn clear(&self) {
        self.board.send_modify(|board| board.faults.clear());
    }

    pub(super) fn calls(&self, method: &str) -> u64 {
        self.board.borrow().calls.get(method).copied().unwrap_or_default()
    }

    pub(super) async fn called(&self, method: &str, times: u64) {
        let mut board = self.board.subscribe();
        let enough = |board: &Board| board.calls.get(method).is_some_and(|calls| *calls >= times);
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = board.wait_for(enough).await;
    }

    /// Counts a call and tells what is wrong with it.
    fn take(&self, method: &str) -> Option<Fault> {
        let mut fault = None;
        self.board.send_modify(|board| {
            let calls = board.calls.entry(method.to_owned()).or_default();
            *calls += 1;
            let wrong = board.faults.get(method).filter(|(after, _)| *calls > *after);
            fault = wrong.map(|(_, fault)| *fault);
        });
        fault
    }
}

/// A service that makes calls go wrong as injected.
#[derive(Clone, Debug)]
pub(super) struct Faulty<S> {
    inner: S,
    faults: Faults,
}

impl<S> Faulty<S> {
    pub(super) fn new(inner: S, faults: Faults) -> Faulty<S> {
        Faulty { inner, faults }
    }
}

impl<S> Service<Request<Body>> for Faulty<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default();
        let fault = self.faults.take(method);
        let mut inner = self.inner.clone();
        Box::pin(async move {
            match fault {
                None => inner.call(request).await,
                Some(Fault::Hang) => std::future::pending().await,
                Some(Fault::LoseReply) => {
                    inner.call(request).await?;
                    std::future::pending().await
                }
                Some(Fault::Fail(code)) => {
                    let code = Code::from(i32::try_from(code).unwrap_or(-1));
                    Ok(Status::new(code, "injected fault").into_http())
                }
                Some(Fault::Garbage) => Ok(garble(inner.call(request).await?)),
                Some(Fault::Delay(delay)) => {
                    tokio::time::sleep(delay).await;
                    inner.call(request).await
                }
            }
        })
    }
}

/// The same answer with a message that has no end: a field of 127 bytes of which three come.
fn garble(answer: Response<Body>) -> Response<Body> {
    let (head, _) = answer.into_parts();
    let frame = Bytes::from_static(&[0, 0, 0, 0, 5, 0x0a, 0x7f, b'b', b'a', b'd']);
    let trailers = HeaderMap::from_iter([(
        HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]);
    let frames = [Frame::data(frame), Frame::trailers(trailers)].map(Ok::<_, Status>);
    Response::from_parts(head, Body::new(StreamBody::new(stream::iter(frames))))
}
