//! One call to the runtime, held in memory. In: a whole call and how long it may go on. Out: the whole answer, or how the call was
//! cut off.

use std::sync::Arc;

use bayplan_workload::Agent;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use prost::Message;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::call_observer::CallObserver;
use crate::frame;
use crate::proxy::shared::Shared;
use crate::proxy::watched::{CallEnd, grpc_status};
use crate::stream::Received;
use crate::upstream::{ForwardError, Upstream};
use crate::window::Window;

/// Longest body that is held in memory.
const BODY_LEN_MAX: usize = frame::MESSAGE_LEN_MAX + frame::HEADER_LEN;

/// A body that is complete.
#[derive(Clone, Debug, Default)]
pub(super) struct Whole {
    pub(super) data: Bytes,
    pub(super) trailers: Option<HeaderMap>,
}

impl Whole {
    pub(super) fn into_body(self) -> Body {
        let frames = self.frames();
        if frames.is_empty() { Body::empty() } else { frames_body(frames, None) }
    }

    fn frames(self) -> Vec<Frame<Bytes>> {
        let data = Some(self.data).filter(|data| !data.is_empty()).map(Frame::data);
        data.into_iter().chain(self.trailers.map(Frame::trailers)).collect()
    }
}

/// A request's body after reading.
pub(super) enum Gathered {
    Whole(Whole),
    /// Longer than is held in memory: the frames that were read, followed by the rest.
    TooLong(Body),
}

/// Reads a request's body.
pub(super) async fn gather<A: Agent + CallObserver>(
    shared: &Shared<A>,
    window: &Window,
    mut body: Body,
) -> Result<Gathered, Status> {
    let mut frames: Vec<Frame<Bytes>> = Vec::new();
    let mut length = 0;
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            status = closed(shared, window) => return Err(status),
        };
        let Some(frame) = frame else { break };
        let frame = frame?;
        length += frame.data_ref().map_or(0, Bytes::len);
        frames.push(frame);
        if length > BODY_LEN_MAX {
            return Ok(Gathered::TooLong(frames_body(frames, Some(body))));
        }
    }
    Ok(Gathered::Whole(whole(frames, length)))
}

/// A body of frames.
fn frames_body(frames: Vec<Frame<Bytes>>, rest: Option<Body>) -> Body {
    let begun = stream::iter(frames.into_iter().map(Ok::<_, Status>));
    match rest {
        Some(rest) => Body::new(StreamBody::new(begun.chain(BodyStream::new(rest)))),
        None => Body::new(StreamBody::new(begun)),
    }
}

/// Copies only what came in several pieces.
fn whole(frames: Vec<Frame<Bytes>>, length: usize) -> Whole {
    let mut pieces = Vec::with_capacity(frames.len());
    let mut trailers = None;
    for frame in frames {
        match frame.into_data() {
            Ok(bytes) => pieces.push(bytes),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    let data = match pieces.as_slice() {
        [only] => only.clone(),
        several => {
            let mut data = BytesMut::with_capacity(length);
            several.iter().for_each(|piece| data.extend_from_slice(piece));
            data.freeze()
        }
    };
    Whole { data, trailers }
}

/// Comes back when the call must not go on, with the answer for a client that may have gone.
async fn closed<A: Agent + CallObserver>(shared: &Shared<A>, window: &Window) -> Status {
    let over = async {
        match window.deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = window.cancel.cancelled() => {
            if shared.is_cut() {
                Status::unavailable("bayplan is stopping; try again")
            } else {
                Status::cancelled("the client went away")
            }
        }
        () = over => Status::deadline_exceeded(
            "the container runtime did not answer before the caller's deadline",
        ),
    }
}

/// Forwards a call that is not read, for as long as its client is there.
pub(super) async fn pass<A: Agent + CallObserver>(
    shared: &Arc<Shared<A>>,
    window: &Window,
    request: Request<Body>,
    end: CallEnd<A>,
) -> Response<Body> {
    tokio::select! {
        biased;
        response = shared.pass(request, end) => response,
        status = closed(shared, window) => status.into_http(),
    }
}

/// A call that was read.
pub(super) struct Call<A> {
    pub(super) shared: Arc<Shared<A>>,
    pub(super) window: Window,
    pub(super) head: http::request::Parts,
    pub(super) whole: Whole,
}

/// What became of the runtime's part of a call.
pub(super) enum Exchange {
    /// The runtime's answer is complete.
    Answered(Box<Answer>),
    /// There is none.
    Cut {
        /// What the client is told.
        status: Status,
        /// False: the runtime never heard of the call.
        was_sent: bool,
    },
}

/// A complete answer.
pub(super) struct Answer {
    head: http::response::Parts,
    whole: Whole,
    /// `None`: the answer has no status, which gRPC does not allow.
    pub(super) code: Option<u32>,
}

impl Answer {
    /// As it came.
    pub(super) fn into_response(self) -> Response<Body> {
        Response::from_parts(self.head, self.whole.into_body())
    }
}

impl Exchange {
    /// The message of a success.
    pub(super) fn read<M: Message + Default>(&self) -> Option<M> {
        let Exchange::Answered(answer) = self else { return None };
        if answer.code != Some(0) {
            return None;
        }
        M::decode(frame::parse(&answer.whole.data).ok()?).ok()
    }

    /// The status that the runtime gave.
    pub(super) fn code(&self) -> Option<Code> {
        match self {
            Exchange::Answered(answer) => {
                answer.code.map(|code| Code::from(i32::try_from(code).unwrap_or(-1)))
            }
            Exchange::Cut { .. } => None,
        }
    }

    /// What the call was to end has ended, or has never been.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.code(), Some(Code::Ok | Code::NotFound))
    }
}

impl<A: Agent + CallObserver> Call<A> {
    /// Sends the call on, with this body in place of the original if there is one.
    pub(super) async fn forward(self, changed: Option<Bytes>) -> Exchange {
        let Call { shared, window, mut head, mut whole } = self;
        if let Some(data) = changed {
            whole.data = data;
        }
        if head.headers.contains_key(header::CONTENT_LENGTH) {
            head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(whole.data.len()));
        }
        // The client may have gone, or its deadline passed, while the agent was asked.
        if window.is_over() {
            let status = closed(&shared, &window).await;
            return Exchange::Cut { status, was_sent: false };
        }
        let request = Request::from_parts(head, whole.into_body());
        tokio::select! {
            biased;
            exchange = converse(&shared.upstream, request) => exchange,
            status = closed(&shared, &window) => Exchange::Cut { status, was_sent: true },
        }
    }
}

async fn converse(upstream: &Upstream, request: Request<Body>) -> Exchange {
    let cut = |error: ForwardError| Exchange::Cut {
        status: error.status(),
        was_sent: matches!(error, ForwardError::Broken { .. }),
    };
    match upstream.forward(request).await {
        Ok(response) => match collect(upstream, response).await {
            Ok(Some(answer)) => Exchange::Answered(Box::new(answer)),
            Ok(None) => Exchange::Cut {
                status: Status::resource_exhausted("the container runtime's answer is too long"),
                was_sent: true,
            },
            Err(error) => cut(error),
        },
        Err(error) => cut(error),
    }
}

/// `None`: too long.
async fn collect(
    upstream: &Upstream,
    response: Response<Received>,
) -> Result<Option<Answer>, ForwardError> {
    let (head, mut body) = response.into_parts();
    let (mut frames, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|why| upstream.broken(&why))?;
        length += frame.data_ref().map_or(0, Bytes::len);
        if length > BODY_LEN_MAX {
            return Ok(None);
        }
        frames.push(frame);
    }
    let whole = whole(frames, length);
    let code = whole.trailers.as_ref().and_then(grpc_status).or_else(|| grpc_status(&head.headers));
    Ok(Some(Answer { head, whole, code }))
}
