//! Fewer, larger writes to a socket. In: what HTTP/2 writes, frame by frame. Out: the same bytes, once all that is there to be said has been said.
//!
//! Problem: h2 writes and flushes after every frame of data, so an answer of 18 KiB is three system calls here, and up to three times waking up and reading at the other end.
//! Approach: what is written is held, and a flush only asks for another turn. The tasks that are waiting by then add to it, and in that turn it is
//! written. What h2 does is relied upon: in each turn a connection reads until there is no more, and flushes after that.
//!
//! Guarantees: the bytes and their order are the same; no more than [`HELD_MAX`] are held; before the peer has said something nothing is held back,
//! so that a handshake cannot wait for itself; a shutdown writes what is held.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Four of the usual frames.
const HELD_MAX: usize = 64 << 10;

/// A stream whose writes are held for one turn.
#[derive(Debug)]
pub(crate) struct Corked<S> {
    stream: S,
    held: BytesMut,
    has_heard: bool,
    turn: Turn,
}

/// What is to become of what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Nobody has flushed.
    None,
    /// Somebody has, in this turn.
    Asked,
    /// Somebody has, in an earlier turn.
    Due,
}

impl<S> Corked<S> {
    pub(crate) fn new(stream: S) -> Corked<S> {
        Corked { stream, held: BytesMut::new(), has_heard: false, turn: Turn::None }
    }
}

impl<S: AsyncWrite + Unpin> Corked<S> {
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.held))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.held.advance(written);
        }
        self.turn = Turn::None;
        Pin::new(&mut self.stream).poll_flush(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Corked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.turn == Turn::Asked {
            self.turn = Turn::Due;
        }
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.has_heard |= !buffer.filled().is_empty();
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Corked<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.held.len() >= HELD_MAX {
            ready!(self.poll_drain(context))?;
        }
        let before = self.held.len();
        for slice in slices {
            let room = HELD_MAX - self.held.len();
            self.held.extend_from_slice(slice.get(..room).unwrap_or(slice));
        }
        Poll::Ready(Ok(self.held.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.held.is_empty() || !self.has_heard || self.turn == Turn::Due {
            return self.poll_drain(context);
        }
        if self.turn == Turn::None {
            self.turn = Turn::Asked;
            context.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    /// A stream into which so many bytes fit, and its other end, which has said something.
    async fn pair(room: usize) -> (Corked<DuplexStream>, DuplexStream) {
        let (near, mut far) = duplex(room);
        let mut corked = Corked::new(near);
        far.write_all(b"x").await.unwrap();
        corked.read_exact(&mut [0]).await.unwrap();
        (corked, far)
    }

    /// What a connection does in a turn: reads, writes, and flushes after every frame.
    async fn turn(corked: &mut Corked<DuplexStream>, frames: &[&[u8]]) {
        poll_fn(|context| {
            let (mut space, mut stream) = ([0; 8], Pin::new(&mut *corked));
            let mut buffer = ReadBuf::new(&mut space);
            assert!(stream.as_mut().poll_read(context, &mut buffer).is_pending());
            for frame in frames {
                let written = stream.as_mut().poll_write(context, frame);
                assert!(matches!(written, Poll::Ready(Ok(length)) if length == frame.len()));
                assert!(matches!(stream.as_mut().poll_flush(context), Poll::Ready(Ok(()))));
            }
            stream.poll_flush(context)
        })
        .await
        .unwrap();
    }

    async fn arrived(far: &mut DuplexStream) -> Vec<u8> {
        let mut bytes = vec![0; 100];
        let mut buffer = ReadBuf::new(&mut bytes);
        poll_fn(|context| {
            let _nothing = Pin::new(&mut *far).poll_read(context, &mut buffer);
            Poll::Ready(())
        })
        .await;
        buffer.filled().to_vec()
    }

    #[tokio::test]
    async fn frames_of_a_turn_and_of_the_tasks_behind_it_leave_together() {
        let (mut corked, mut far) = pair(1000).await;
        turn(&mut corked, &[b"ab", b"cd"]).await;
        assert_eq!(arrived(&mut far).await, b"");
        turn(&mut corked, &[]).await;
        assert_eq!(arrived(&mut far).await, b"abcd");
        turn(&mut corked, &[b"ef"]).await;
        assert_eq!(arrived(&mut far).await, b"");
        turn(&mut corked, &[b"gh"]).await;
        assert_eq!(arrived(&mut far).await, b"efgh");
    }

    #[tokio::test]
    async fn a_flush_asks_for_one_turn_more() {
        let (mut corked, mut far) = pair(1000).await;
        let mut turns = 0;
        let task = async {
            poll_fn(|context| {
                turns += 1;
                let mut space = [0];
                let mut buffer = ReadBuf::new(&mut space);
                let _nothing = Pin::new(&mut corked).poll_read(context, &mut buffer);
                if turns == 1 {
                    let _held = Pin::new(&mut corked).poll_write(context, b"ab");
                }
                let _asked = Pin::new(&mut corked).poll_flush(context);
                if corked.held.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        };
        task.await;
        assert_eq!(turns, 2);
        assert_eq!(arrived(&mut far).await, b"ab");
    }

    #[tokio::test]
    async fn nothing_is_held_back_before_the_peer_has_spoken() {
        let (near, mut far) = duplex(1000);
        let mut corked = Corked::new(near);
        turn(&mut corked, &[b"hello"]).await;
        assert_eq!(arrived(&mut far).await, b"hello");
    }

    #[tokio::test]
    async fn a_shutdown_writes_what_is_held() {
        let (mut corked, mut far) = pair(1000).await;
        turn(&mut corked, &[b"bye"]).await;
        corked.shutdown().await.unwrap();
        let mut all = Vec::new();
        far.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"bye");
    }

    #[tokio::test]
    async fn many_bytes_pass_in_order_through_little_room() {
        let (mut corked, mut far) = pair(777).await;
        let sent: Vec<u8> = (0..=250).cycle().take(5 * HELD_MAX).collect();
        let expected = sent.clone();
        let write = async move {
            corked.write_all(&sent).await.unwrap();
            assert!(corked.held.len() <= HELD_MAX);
            corked.shutdown().await.unwrap();
        };
        let mut all = Vec::new();
        let (_, read) = tokio::join!(write, far.read_to_end(&mut all));
        read.unwrap();
        assert_eq!(all, expected);
    }
}
