//! Bodies on HTTP/2 streams. In: the half of a stream that arrives, or a body and the half that leaves. Out: a body, or what was sent.
//!
//! Guarantees: no more is taken from the sender than the reader has room for; a body that fails, or that is dropped before its end, resets its
//! stream.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};
use http_body::{Body, Frame};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Code, Status};

/// So much of a body leaves without asking for room.
const AT_ONCE_MAX: usize = 64 << 10;

/// What arrives on a stream, as it comes. Its empty pieces are left out: most requests of kubelet end with one, which would become a frame of its own on
/// the way to the runtime, and servers that take many of them for an attack end the connection of all calls (h2 since 0.4.16).
#[derive(Debug)]
pub struct Received {
    stream: RecvStream,
    has_data: bool,
    /// Sends the rest of the request to which this is the answer, for as long as the answer is wanted.
    _sending: Option<AbortOnDropHandle<()>>,
}

impl Received {
    pub(crate) fn new(stream: RecvStream) -> Received {
        Received { stream, has_data: true, _sending: None }
    }

    pub(crate) fn answer(stream: RecvStream, sending: Option<AbortOnDropHandle<()>>) -> Received {
        Received { stream, has_data: true, _sending: sending }
    }

    /// The next piece that is not empty; `None` before the trailers.
    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        while let Some(data) = ready!(self.stream.poll_data(context)) {
            let data = match data {
                Ok(data) => data,
                // The peer has said all, and does not want to hear the rest (RFC 9113, section 8.1).
                Err(error) if error.reason() == Some(Reason::NO_ERROR) => break,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            // Refused only for a stream that is over; its room is not needed.
            let _over = self.stream.flow_control().release_capacity(data.len());
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(data)));
            }
        }
        self.has_data = false;
        Poll::Ready(None)
    }
}

impl From<Received> for tonic::body::Body {
    fn from(received: Received) -> tonic::body::Body {
        tonic::body::Body::new(received)
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.has_data
            && let Some(data) = ready!(self.poll_data(context))
        {
            return Poll::Ready(Some(data.map(Frame::data).map_err(|error| status(&error))));
        }
        let trailers = ready!(self.stream.poll_trailers(context));
        let frame = trailers.map(|it| it.map(Frame::trailers)).map_err(|error| status(&error));
        Poll::Ready(frame.transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }
}

/// A stream that the peer reset on purpose keeps its meaning; everything else means that the peer went away.
pub(crate) fn status(error: &h2::Error) -> Status {
    let code = match error.reason().filter(|_| error.is_reset()) {
        Some(Reason::CANCEL) => Code::Cancelled,
        Some(Reason::ENHANCE_YOUR_CALM) => Code::ResourceExhausted,
        Some(Reason::INADEQUATE_SECURITY) => Code::PermissionDenied,
        _ => Code::Unavailable,
    };
    Status::new(code, error.to_string())
}

/// Sends a body until its end, or until the stream's. A body of tonic says why it fails with a status.
pub(crate) struct Sending<B> {
    body: B,
    stream: SendStream<Bytes>,
}

impl<B> Sending<B> {
    pub(crate) fn new(body: B, stream: SendStream<Bytes>) -> Sending<B> {
        Sending { body, stream }
    }
}

impl<B> Sending<B>
where
    B: Body<Data = Bytes, Error = Status> + Unpin,
{
    /// Ready when the stream takes more. It keeps what does not fit yet, so it is asked for any room at all, and not for a piece's.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        self.stream.reserve_capacity(1);
        while self.stream.capacity() == 0 {
            match ready!(self.stream.poll_capacity(context)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(error)),
                // Nothing can be sent any more.
                None => return Poll::Ready(Err(Reason::CANCEL.into())),
            }
        }
        // The sender that waits for the next piece must hear that it is not wanted.
        match self.stream.poll_reset(context) {
            Poll::Ready(reset) => Poll::Ready(Err(reset.map_or_else(|error| error, Into::into))),
            Poll::Pending => Poll::Ready(Ok(())),
        }
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            ready!(self.poll_room(context))?;
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
            if self.send(frame)? {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Sends what is there already, without asking for room, of which a stream that is not open yet has none; it keeps all that it is given. Most requests and
    /// answers are over by that. True: nothing is left to be sent.
    pub(crate) fn begin(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let mut begun = 0;
        while begun < AT_ONCE_MAX {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(&mut context) else {
                return false;
            };
            let data = frame.as_ref().and_then(|it| it.as_ref().ok()?.data_ref());
            begun += data.map_or(0, Bytes::len);
            // A peer that went away will be seen by the tasks that read from it.
            if self.send(frame).unwrap_or(true) {
                return true;
            }
        }
        false
    }

    /// One frame, or the end. True: nothing is left to be sent.
    fn send(&mut self, frame: Option<Result<Frame<Bytes>, Status>>) -> Result<bool, h2::Error> {
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(why)) => {
                self.stream.send_reset(match why.code() {
                    Code::Cancelled => Reason::CANCEL,
                    _ => Reason::INTERNAL_ERROR,
                });
                return Ok(true);
            }
            None => return self.stream.send_data(Bytes::new(), true).map(|()| true),
        };
        match frame.into_data() {
            Ok(data) => {
                let is_last = self.body.is_end_stream();
                self.stream.send_data(data, is_last)?;
                Ok(is_last)
            }
            Err(frame) => match frame.into_trailers() {
                Ok(trailers) => self.stream.send_trailers(trailers).map(|()| true),
                Err(_) => Ok(false),
            },
        }
    }
}

impl<B> Future for Sending<B>
where
    B: Body<Data = Bytes, Error = Status> + Unpin,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // A peer that went away will be seen by the tasks that read from it.
        self.poll_send(context).map(drop)
    }
}
