//! Sees how a forwarded call ends. In: the runtime's answer. Out: the same answer, and one [`CallObserver::call_ended`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::{Frame, SizeHint};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::call_observer::CallObserver;
use crate::proxy::shared::Shared;
use crate::proxy::under_way::Entry;
use crate::stream::Received;
use crate::upstream::{Upstream, code_number};

/// Tells the agent once how a call ended, and until then the call is under way; when it is dropped before, the client went away.
#[derive(Debug)]
pub(crate) struct CallEnd<A: CallObserver> {
    waiting: Option<(Arc<Shared<A>>, Entry)>,
}

impl<A: CallObserver> CallEnd<A> {
    pub(super) fn new(shared: Arc<Shared<A>>, entry: Entry) -> CallEnd<A> {
        CallEnd { waiting: Some((shared, entry)) }
    }

    /// The first code counts.
    pub(crate) fn tell(&mut self, code: u32) {
        if let Some((shared, ended)) = self.waiting.take() {
            shared.agent.call_ended(ended.path(), code);
        }
    }

    /// A trailers-only answer that bayplan gives itself.
    pub(crate) fn answer(&mut self, status: Status) -> Response<Body> {
        self.tell(code_number(status.code()));
        status.into_http()
    }
}

impl<A: CallObserver> Drop for CallEnd<A> {
    fn drop(&mut self) {
        self.tell(code_number(Code::Cancelled));
    }
}

/// The status code in headers or trailers. An unreadable one is UNKNOWN.
pub(crate) fn grpc_status(headers: &HeaderMap) -> Option<u32> {
    let value = headers.get(Status::GRPC_STATUS)?;
    let code = value.to_str().ok().and_then(|text| text.parse().ok());
    Some(code.unwrap_or(code_number(Code::Unknown)))
}

/// Passes an answer on frame by frame.
pub(super) fn watch<A: CallObserver>(
    response: Response<Received>,
    upstream: Upstream,
    mut end: CallEnd<A>,
) -> Response<Body> {
    // Without a body the status is in the headers ("Trailers-Only"). A stream's headers have none.
    if let Some(code) = grpc_status(response.headers()) {
        end.tell(code);
    }
    let (parts, inner) = response.into_parts();
    let mut body = WatchedBody { inner: Some(inner), upstream, end };
    body.tell_if_over();
    Response::from_parts(parts, Body::new(body))
}

/// Frames as they come. `inner` is `None` after it broke.
struct WatchedBody<A: CallObserver> {
    inner: Option<Received>,
    upstream: Upstream,
    end: CallEnd<A>,
}

impl<A: CallObserver> WatchedBody<A> {
    /// An answer that is over without trailers has no status, which is UNKNOWN to its client.
    fn tell_if_over(&mut self) {
        if self.inner.as_ref().is_none_or(http_body::Body::is_end_stream) {
            self.end.tell(code_number(Code::Unknown));
        }
    }

    /// The client hears of a runtime that went away in the middle from a status that names it, not from a reset stream.
    fn break_off(&mut self, why: &Status) -> Option<Frame<Bytes>> {
        self.inner = None;
        let status = self.upstream.broken(why).status();
        self.end.tell(code_number(status.code()));
        let mut trailers = HeaderMap::new();
        status.add_header(&mut trailers).ok()?;
        Some(Frame::trailers(trailers))
    }
}

// Nothing in it is pinned in place.
impl<A: CallObserver> Unpin for WatchedBody<A> {}

impl<A: CallObserver> http_body::Body for WatchedBody<A> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let frame = match ready!(Pin::new(inner).poll_frame(context)) {
            Some(Ok(frame)) => Some(frame),
            Some(Err(why)) => self.break_off(&why),
            None => None,
        };
        match &frame {
            Some(frame) => {
                if let Some(code) = frame.trailers_ref().map(grpc_status) {
                    self.end.tell(code.unwrap_or(code_number(Code::Unknown)));
                }
                self.tell_if_over();
            }
            None => self.end.tell(code_number(Code::Unknown)),
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map(http_body::Body::size_hint).unwrap_or_default()
    }
}
