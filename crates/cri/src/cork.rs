//! Fewer, larger writes to a socket. In: what HTTP/2 writes, frame by frame. Out: the same bytes, once all that is there to be said has been said.
//!
//! Problem: h2 writes and flushes after every frame of data, so an answer of 18 KiB is three system calls here, and up to three times waking up and
//! reading at the other end. Approach: what is written is held, a flush does nothing, and the task that polls the connection says when its turn is
//! over. Then it is written. All that h2 reads and writes, it reads and writes in such turns; what several tasks have ready by then leaves together.
//!
//! Guarantees: the bytes and their order are the same; no more than [`HELD_MAX`] are held, and none after a turn but for want of room; before the peer has said
//! something a flush writes, so that a handshake cannot wait for itself; a shutdown writes what is held.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Four of the usual frames.
const HELD_MAX: usize = 64 << 10;

/// A stream that holds what is written to it for one turn. Clones are the same stream: one for the connection, one for the task that polls it.
#[derive(Debug)]
pub(crate) struct Corked<S>(Arc<Mutex<Held<S>>>);

#[derive(Debug)]
struct Held<S> {
    stream: S,
    bytes: BytesMut,
    has_heard: bool,
}

impl<S> Clone for Corked<S> {
    fn clone(&self) -> Corked<S> {
        Corked(Arc::clone(&self.0))
    }
}

impl<S> Corked<S> {
    pub(crate) fn new(stream: S) -> Corked<S> {
        let held = Held { stream, bytes: BytesMut::new(), has_heard: false };
        Corked(Arc::new(Mutex::new(held)))
    }

    /// The peer has said something.
    pub(crate) fn has_heard(&self) -> bool {
        self.held().has_heard
    }

    /// Nothing that is done under this lock can fail half way.
    fn held(&self) -> MutexGuard<'_, Held<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncWrite + Unpin> Corked<S> {
    /// A turn of the connection: polls it until it has to wait, and then writes what it has said.
    ///
    /// # Errors
    /// It could not be written; the connection is not to be polled again.
    pub(crate) fn poll_turn<T>(
        &self,
        context: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<io::Result<T>> {
        match poll(context) {
            Poll::Ready(value) => Poll::Ready(Ok(value)),
            Poll::Pending => match self.held().poll_drain(context) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                _ => Poll::Pending,
            },
        }
    }
}

impl<S: AsyncWrite + Unpin> Held<S> {
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.bytes.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.bytes))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.bytes.advance(written);
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Corked<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut held = self.held();
        let read = Pin::new(&mut held.stream).poll_read(context, buffer);
        held.has_heard |= !buffer.filled().is_empty();
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
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut held = self.held();
        if held.bytes.len() >= HELD_MAX {
            ready!(held.poll_drain(context))?;
        }
        let before = held.bytes.len();
        for slice in slices {
            let room = HELD_MAX - held.bytes.len();
            held.bytes.extend_from_slice(slice.get(..room).unwrap_or(slice));
        }
        Poll::Ready(Ok(held.bytes.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut held = self.held();
        if held.has_heard { Poll::Ready(Ok(())) } else { held.poll_drain(context) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut held = self.held();
        ready!(held.poll_drain(context))?;
        Pin::new(&mut held.stream).poll_shutdown(context)
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
        let same = corked.clone();
        poll_fn(|context| {
            let turn = same.poll_turn(context, |context| {
                let (mut space, mut stream) = ([0; 8], Pin::new(&mut *corked));
                let mut buffer = ReadBuf::new(&mut space);
                assert!(stream.as_mut().poll_read(context, &mut buffer).is_pending());
                for frame in frames {
                    let written = stream.as_mut().poll_write(context, frame);
                    assert!(matches!(written, Poll::Ready(Ok(length)) if length == frame.len()));
                    assert!(matches!(stream.as_mut().poll_flush(context), Poll::Ready(Ok(()))));
                }
                Poll::<()>::Pending
            });
            assert!(turn.is_pending());
            Poll::Ready(())
        })
        .await;
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
    async fn frames_of_a_turn_leave_together_when_it_is_over() {
        let (mut corked, mut far) = pair(1000).await;
        for frame in [b"ab", b"cd"] {
            corked.write_all(frame).await.unwrap();
            corked.flush().await.unwrap();
        }
        assert_eq!(arrived(&mut far).await, b"");
        turn(&mut corked, &[b"ef"]).await;
        assert_eq!(arrived(&mut far).await, b"abcdef");
        turn(&mut corked, &[]).await;
        assert_eq!(arrived(&mut far).await, b"");
    }

    #[tokio::test]
    async fn what_finds_no_room_leaves_when_there_is_some() {
        let (mut corked, mut far) = pair(4).await;
        turn(&mut corked, &[b"abcdef"]).await;
        assert_eq!(arrived(&mut far).await, b"abcd");
        turn(&mut corked, &[]).await;
        assert_eq!(arrived(&mut far).await, b"ef");
    }

    #[tokio::test]
    async fn a_turn_fails_where_the_peer_is_gone() {
        let (mut corked, far) = pair(1000).await;
        corked.write_all(b"ab").await.unwrap();
        drop(far);
        let turn = poll_fn(|context| corked.poll_turn(context, |_| Poll::<()>::Pending));
        assert_eq!(turn.await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
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
            assert!(corked.held().bytes.len() <= HELD_MAX);
            corked.shutdown().await.unwrap();
        };
        let mut all = Vec::new();
        let (_, read) = tokio::join!(write, far.read_to_end(&mut all));
        read.unwrap();
        assert_eq!(all, expected);
    }
}
