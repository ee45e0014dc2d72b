//! A Unix socket by which only what can be read wakes its reader, and all that can be is read at once. In: a connected stream. Out: the same bytes, with fewer turns
//! of the thread and fewer system calls.
//!
//! Problem: tokio has every socket watched in both directions, and the kernel tells the writer that the peer has read (epoll(7), `EPOLLOUT` with
//! `EPOLLET`). Of a forwarded call these are two of four times that the thread wakes up, for nothing, and both are made by the peer while it should
//! be at work on that call. Approach: the socket is watched for reading. Where a write finds no room, a second descriptor of it is watched for
//! writing until there is some.
//!
//! h2 asks for a frame's head and then for the frame, in pieces of some KiB, and each time for space that is written to once more to have it initialised. So an answer of
//! 18 KiB is three calls. Here it is one, into space that stays.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, Interest, ReadBuf};

/// Four of the usual frames of HTTP/2.
const READ_MAX: usize = 64 << 10;

/// A stream that is watched for reading.
#[derive(Debug)]
pub(crate) struct Quiet {
    stream: AsyncFd<UnixStream>,
    /// What was read and not taken yet is in `unread`.
    space: Box<[u8]>,
    unread: Range<usize>,
    /// The same socket, watched for writing, while there is no room.
    full: Option<AsyncFd<UnixStream>>,
}

impl Quiet {
    /// On the tokio runtime on which it is to be read.
    ///
    /// # Errors
    /// The system does not have it watched.
    pub(crate) fn new(stream: tokio::net::UnixStream) -> io::Result<Quiet> {
        let stream = watched(stream.into_std()?, Interest::READABLE)?;
        Ok(Quiet { stream, space: vec![0; READ_MAX].into(), unread: 0..0, full: None })
    }

    /// Has something to take, or is at the end.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            let mut ready = ready!(self.stream.poll_read_ready(context))?;
            let Ok(read) = ready.try_io(|it| it.get_ref().read(&mut self.space)) else { continue };
            let read = read?;
            // Less than there was room for: there is no more, and no need to ask (epoll(7), "Questions and answers"). At the end it stays ready.
            if read > 0 && read < self.space.len() {
                ready.clear_ready();
            }
            self.unread = 0..read;
            if read == 0 {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[expect(
    deprecated,
    reason = "what replaces it is unsafe, for types with a descriptor that may change; that of std's stream does not"
)]
fn watched(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    AsyncFd::with_interest(stream, interest)
}

impl AsyncRead for Quiet {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let unread = ready!(self.as_mut().poll_fill_buf(context))?;
        let taken = unread.len().min(buffer.remaining());
        buffer.put_slice(&unread[..taken]);
        self.consume(taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncBufRead for Quiet {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        ready!(this.poll_fill(context))?;
        Poll::Ready(Ok(this.space.get(this.unread.clone()).unwrap_or_default()))
    }

    fn consume(mut self: Pin<&mut Self>, taken: usize) {
        self.unread.start += taken;
    }
}

impl AsyncWrite for Quiet {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Some(full) = &self.full {
                ready!(full.poll_write_ready(context))?.clear_ready();
            }
            match self.stream.get_ref().write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.full.is_none() {
                        let same = self.stream.get_ref().try_clone()?;
                        self.full = Some(watched(same, Interest::WRITABLE)?);
                    }
                }
                written => {
                    self.full = None;
                    return Poll::Ready(written);
                }
            }
        }
    }

    /// Nothing is held.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.get_ref().shutdown(Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::fd::{AsRawFd as _, RawFd};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::{sleep, timeout};

    use super::*;

    fn pair() -> (Quiet, tokio::net::UnixStream) {
        let (near, far) = tokio::net::UnixStream::pair().unwrap();
        (Quiet::new(near).unwrap(), far)
    }

    /// What this process's epoll instances watch a descriptor for: `EPOLLIN` is 1, `EPOLLOUT` 4 (proc(5), "/proc/pid/fdinfo").
    fn watched_for(descriptor: RawFd) -> BTreeSet<u32> {
        let files = fs::read_dir("/proc/self/fdinfo").unwrap();
        let texts = files.filter_map(|it| fs::read_to_string(it.unwrap().path()).ok());
        let told = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
        let events = told.filter_map(|line| {
            let (number, rest) = line.strip_prefix("tfd:")?.trim_start().split_once(' ')?;
            let mask = rest.trim_start().strip_prefix("events:")?.split_whitespace().next()?;
            (number.parse() == Ok(descriptor)).then(|| u32::from_str_radix(mask, 16).unwrap() & 5)
        });
        events.collect()
    }

    #[tokio::test]
    async fn it_is_watched_for_writing_only_while_there_is_no_room() {
        let (mut near, mut far) = pair();
        let descriptor = near.stream.as_raw_fd();
        near.write_all(b"ab").await.unwrap();
        assert_eq!((watched_for(descriptor), near.full.is_none()), ([1].into(), true));
        let many = vec![7; 1 << 20];
        let none = timeout(Duration::from_millis(50), near.write_all(&many)).await;
        assert!(none.is_err(), "everything fits");
        let second = near.full.as_ref().unwrap().as_raw_fd();
        assert_eq!([watched_for(descriptor), watched_for(second)], [[1].into(), [4].into()]);
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            far.read_to_end(&mut all).await.unwrap();
            all.len()
        });
        near.write_all(b"cd").await.unwrap();
        assert!(near.full.is_none());
        near.shutdown().await.unwrap();
        assert!(reader.await.unwrap() > 4);
    }

    #[tokio::test]
    async fn many_bytes_pass_both_ways_and_the_end_is_seen() {
        let (near, far) = pair();
        let far = Quiet::new(far).unwrap();
        let sent: Vec<u8> = (0..=250).cycle().take(3 << 20).collect();
        let ends = [near, far].map(|end| {
            let sent = sent.clone();
            tokio::spawn(async move {
                let (mut reader, mut writer) = tokio::io::split(end);
                let write = async {
                    writer.write_all(&sent).await.unwrap();
                    writer.shutdown().await.unwrap();
                };
                let mut all = Vec::new();
                let (_, read) = tokio::join!(write, reader.read_to_end(&mut all));
                read.unwrap();
                assert!(all == sent, "{} bytes of {}", all.len(), sent.len());
            })
        });
        for end in ends {
            timeout(Duration::from_secs(20), end).await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn what_comes_while_nothing_reads_is_read_and_so_is_the_end_behind_it() {
        let (mut near, mut far) = pair();
        for text in [b"one", b"two"] {
            far.write_all(text).await.unwrap();
            sleep(Duration::from_millis(5)).await;
            let mut space = [0; 100];
            assert_eq!(near.read(&mut space).await.unwrap(), 3);
        }
        far.write_all(b"last").await.unwrap();
        drop(far);
        let mut rest = Vec::new();
        timeout(Duration::from_secs(5), near.read_to_end(&mut rest)).await.unwrap().unwrap();
        assert_eq!(rest, b"last");
        assert_eq!(near.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
