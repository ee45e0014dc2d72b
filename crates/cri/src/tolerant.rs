//! A client's side of a connection as h2 can read it. In: what a client of HTTP/2 sends. Out: the same bytes, with an `:authority` that h2 accepts ([`authority`]).
//!
//! Approach: payloads pass as they are read; a frame's header, and the payload of a HEADERS frame, are held until they are complete. What is written passes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use crate::authority::{self, FRAME_HEADER_LEN, FrameHeader};

/// `PRI * HTTP/2.0` and so on, before the first frame (RFC 9113, section 3.4).
const PREFACE_LEN: usize = 24;

/// Where the reader stands. `held` is a frame from its first byte.
#[derive(Debug)]
enum Part {
    /// So many bytes of a payload, or of the preface, are to pass.
    Passing(usize),
    /// The frame is held until it has so many bytes.
    Holding { held: Vec<u8>, wanted: usize },
    /// So many bytes of the held ones have been handed on; then so many of the payload are to pass.
    Giving { held: Vec<u8>, given: usize, payload_len: usize },
}

impl Part {
    /// What follows when as many bytes are held as were waited for.
    fn after_holding(held: Vec<u8>) -> Part {
        let Some((header, payload)) = held.split_first_chunk::<FRAME_HEADER_LEN>() else {
            return Part::Holding { held, wanted: FRAME_HEADER_LEN };
        };
        let header = FrameHeader::parse(*header);
        if !header.is_to_be_read() {
            return Part::Giving { held, given: 0, payload_len: header.payload_len };
        }
        if payload.len() < header.payload_len {
            return Part::Holding { held, wanted: FRAME_HEADER_LEN + header.payload_len };
        }
        let held = authority::accepted(&held).unwrap_or(held);
        Part::Giving { held, given: 0, payload_len: 0 }
    }

    /// Takes some of what was read, and hands on as much as there is room for. Returns how many bytes it took; none when there is neither.
    fn advance(&mut self, read: &[u8], to: &mut ReadBuf<'_>) -> usize {
        match self {
            Part::Passing(0) => {
                *self = Part::after_holding(Vec::new());
                self.advance(read, to)
            }
            Part::Passing(left) => {
                let some = read.len().min(*left).min(to.remaining());
                to.put_slice(read.get(..some).unwrap_or_default());
                *left -= some;
                some
            }
            Part::Holding { held, wanted } => {
                let some = read.len().min(*wanted - held.len());
                held.extend_from_slice(read.get(..some).unwrap_or_default());
                if held.len() == *wanted {
                    *self = Part::after_holding(std::mem::take(held));
                }
                some
            }
            Part::Giving { .. } => 0,
        }
    }

    /// Hands on what is held and complete.
    fn give(&mut self, to: &mut ReadBuf<'_>) {
        let Part::Giving { held, given, payload_len } = self else { return };
        let left = held.get(*given..).unwrap_or_default();
        let some = left.len().min(to.remaining());
        to.put_slice(left.get(..some).unwrap_or_default());
        *given += some;
        if *given == held.len() {
            *self = Part::Passing(*payload_len);
        }
    }
}

/// A stream that gives its reader what h2 accepts.
#[derive(Debug)]
pub(crate) struct Tolerant<S> {
    stream: S,
    part: Part,
}

impl<S> Tolerant<S> {
    /// Of a connection from which nothing has been read.
    pub(crate) fn new(stream: S) -> Tolerant<S> {
        Tolerant { stream, part: Part::Passing(PREFACE_LEN) }
    }
}

impl<S: AsyncBufRead + Unpin> AsyncRead for Tolerant<S> {
    /// As many frames as there is room for, and as have been read.
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let begin = buffer.filled().len();
        while buffer.remaining() > 0 {
            this.part.give(buffer);
            let read = match Pin::new(&mut this.stream).poll_fill_buf(context) {
                Poll::Pending if buffer.filled().len() > begin => break,
                read => ready!(read)?,
            };
            if read.is_empty() {
                break;
            }
            let taken = this.part.advance(read, buffer);
            Pin::new(&mut this.stream).consume(taken);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tolerant<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt as _, BufReader};

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let [.., a, b, c] = payload.len().to_be_bytes();
        [&[a, b, c, kind, 4, 0, 0, 0, 1], payload].concat()
    }

    /// A HEADERS frame with an `:authority`.
    fn headers(authority: &str) -> Vec<u8> {
        let length = u8::try_from(authority.len()).unwrap();
        frame(1, &[&[0x83, 0x41, length], authority.as_bytes(), &[0x86]].concat())
    }

    /// What is read of these bytes, which arrive in pieces of `piece`, with room for `room`.
    fn read(bytes: &[u8], piece: usize, room: usize) -> Vec<u8> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut stream = Tolerant::new(BufReader::with_capacity(piece, bytes));
            let (mut all, mut space) = (Vec::new(), vec![0; room]);
            loop {
                match stream.read(&mut space).await.unwrap() {
                    0 => return all,
                    some => all.extend_from_slice(&space[..some]),
                }
            }
        })
    }

    fn any_frame() -> impl Strategy<Value = Vec<u8>> {
        let other = (0u8..12, prop::collection::vec(any::<u8>(), 0..90))
            .prop_map(|(kind, payload)| frame(if kind == 1 { 0 } else { kind }, &payload));
        prop_oneof![other, "[a-z]{1,30}".prop_map(|host| headers(&host))]
    }

    proptest! {
        /// In whatever pieces it comes and is read.
        #[test]
        fn all_but_the_authority_passes(
            before in prop::collection::vec(any_frame(), 0..4),
            after in prop::collection::vec(any_frame(), 0..4),
            piece in 1usize..70,
            room in 1usize..70,
        ) {
            let whole = |authority: &str| {
                [vec![b'P'; PREFACE_LEN], before.concat(), headers(authority), after.concat()].concat()
            };
            prop_assert_eq!(read(&whole("/run/x"), piece, room), whole("-run-x"));
        }
    }

    #[test]
    fn a_frame_that_is_too_long_for_h2_passes() {
        let long = [vec![b'P'; PREFACE_LEN], frame(1, &vec![7; 1 << 15]), headers("a")].concat();
        assert_eq!(read(&long, 100, 1000), long);
    }
}
