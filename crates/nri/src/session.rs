//! One connection between a runtime and a plugin, seen from either end. In: a Unix socket, and what answers calls. Out: calls of our own.
//!
//! The reader never waits for an answer, because the other end gives up a connection that is not read. Each call is answered in a task of its own; the order of calls is the caller's
//! affair, and the runtime makes one at a time.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::frame::{Connection, Decoder, FrameError, Kind, Message};
use crate::ttrpc::{INVALID_ARGUMENT, Request, Response, Status, UNIMPLEMENTED};

/// Messages on their way to the socket.
const QUEUE_MAX: usize = 256;
/// Bytes that are read at once.
const READ_MAX: usize = 64 << 10;
/// How long the end of a connection waits for the other end to take what was sent before.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// The longest time that a caller is taken to wait, where it says nothing.
const NO_TIMEOUT: Duration = Duration::from_secs(60);

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The plugin.
    Plugin,
    /// The runtime.
    Runtime,
}

impl End {
    /// The connection on which it answers, and the service that it offers there.
    fn serves(self) -> (Connection, &'static str) {
        match self {
            End::Plugin => (Connection::Plugin, "nri.pkg.api.v1alpha1.Plugin"),
            End::Runtime => (Connection::Runtime, "nri.pkg.api.v1alpha1.Runtime"),
        }
    }

    fn other(self) -> End {
        match self {
            End::Plugin => End::Runtime,
            End::Runtime => End::Plugin,
        }
    }
}

/// A call from the other end.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its name without the service.
    pub method: String,
    /// The encoded message.
    pub payload: Bytes,
    /// When the caller gives up.
    pub deadline: Instant,
}

/// What answers calls.
pub trait Service: Clone + Send + Sync + 'static {
    /// Answers one; an error goes back as it is.
    fn answer(&self, call: Call) -> impl Future<Output = Result<Vec<u8>, Status>> + Send;
}

/// Why a call of ours has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The other end answered with an error.
    #[error("{} (code {})", .0.message, .0.code)]
    Refused(Status),
    /// The connection has ended.
    #[error("the connection has ended")]
    Closed,
    /// No answer in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// The answer is no such message.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
    /// It cannot be sent.
    #[error(transparent)]
    Long(#[from] FrameError),
}

type Waiting = Arc<Mutex<BTreeMap<u32, oneshot::Sender<Bytes>>>>;

/// A connection that is served. Cheap to clone; ends when [`Session::close`] is called or the other end goes.
#[derive(Clone, Debug)]
pub struct Session {
    end: End,
    out: mpsc::Sender<Bytes>,
    waiting: Waiting,
    streams: Arc<AtomicU32>,
    closed: CancellationToken,
}

impl Session {
    /// Serves `socket` from now on.
    pub fn start<S: Service>(socket: UnixStream, end: End, service: S) -> Session {
        let (read, write) = socket.into_split();
        let (out, messages) = mpsc::channel(QUEUE_MAX);
        let closed = CancellationToken::new();
        let session = Session {
            end,
            out,
            waiting: Waiting::default(),
            streams: Arc::new(AtomicU32::new(1)),
            closed: closed.clone(),
        };
        let over = closed.clone();
        tokio::spawn(async move {
            run_writer(write, messages, &over).await;
            over.cancel();
        });
        let reader = session.clone();
        tokio::spawn(ending(closed, async move {
            if let Err(why) = reader.run_reader(read, service).await {
                tracing::warn!("the NRI connection cannot be read on: {why}");
            }
            reader.waiting().clear();
        }));
        session
    }

    /// Comes back when the connection has ended.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Ends it.
    pub fn close(&self) {
        self.closed.cancel();
    }

    /// Whether it has ended.
    pub fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Calls the other end.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call<A: prost::Message + Default>(
        &self,
        method: &str,
        message: &impl prost::Message,
        limit: Duration,
    ) -> Result<A, CallError> {
        let (connection, service) = self.end.other().serves();
        let request = Request {
            service: service.to_owned(),
            method: method.to_owned(),
            payload: message.encode_to_vec().into(),
            timeout_nano: i64::try_from(limit.as_nanos()).unwrap_or(i64::MAX),
        };
        let stream = self.streams.fetch_add(2, Ordering::Relaxed);
        let body = request.encode_to_vec().into();
        let bytes = Message { connection, stream, kind: Kind::Request, body }.encode()?;
        let (answer, answered) = oneshot::channel();
        self.waiting().insert(stream, answer);
        let asked = async {
            self.out.send(bytes).await.map_err(|_| CallError::Closed)?;
            tokio::select! {
                answer = answered => answer.map_err(|_| CallError::Closed),
                () = self.closed() => Err(CallError::Closed),
            }
        };
        let answered = timeout(limit, asked).await;
        self.waiting().remove(&stream);
        let body = answered.map_err(|_| CallError::Late(limit))??;
        read_answer(body)
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, oneshot::Sender<Bytes>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run_reader<S: Service>(
        &self,
        mut read: OwnedReadHalf,
        service: S,
    ) -> Result<(), FrameError> {
        let mut decoder = match self.end {
            End::Plugin => Decoder::default(),
            End::Runtime => Decoder::as_go(),
        };
        let mut buffer = BytesMut::with_capacity(READ_MAX);
        loop {
            buffer.clear();
            // An error means the same as the end.
            if read.read_buf(&mut buffer).await.unwrap_or(0) == 0 {
                return Ok(());
            }
            decoder.push(&buffer);
            while let Some(message) = decoder.next_message()? {
                self.take(message, &service);
            }
        }
    }

    fn take<S: Service>(&self, message: Message, service: &S) {
        let (served, name) = self.end.serves();
        match message.kind {
            Kind::Response if message.connection != served => {
                if let Some(answer) = self.waiting().remove(&message.stream) {
                    // The caller may have given up.
                    let _gave_up = answer.send(message.body);
                }
            }
            Kind::Request if message.connection == served => {
                let (session, service) = (self.clone(), service.clone());
                tokio::spawn(async move {
                    let answer = answer(&service, name, message.body).await;
                    session.reply(message.connection, message.stream, answer).await;
                });
            }
            Kind::Request | Kind::Response => {}
        }
    }

    async fn reply(&self, connection: Connection, stream: u32, answer: Result<Vec<u8>, Status>) {
        let response = match answer {
            Ok(payload) => Response { status: None, payload: payload.into() },
            Err(status) => Response { status: Some(status), payload: Bytes::new() },
        };
        let body = response.encode_to_vec().into();
        match (Message { connection, stream, kind: Kind::Response, body }).encode() {
            // Fails when the connection has ended, and then there is nothing to answer.
            Ok(bytes) => drop(self.out.send(bytes).await),
            Err(why) => tracing::error!("an NRI answer cannot be sent: {why}"),
        }
    }
}

/// The end of one half is the end of the connection.
async fn ending(closed: CancellationToken, half: impl Future<Output = ()>) {
    tokio::select! {
        () = half => closed.cancel(),
        () = closed.cancelled() => {}
    }
}

/// Until the connection ends; what was sent before that still leaves, if the other end reads it.
async fn run_writer(
    mut write: OwnedWriteHalf,
    mut messages: mpsc::Receiver<Bytes>,
    closed: &CancellationToken,
) {
    loop {
        let bytes = tokio::select! {
            bytes = messages.recv() => bytes,
            () = closed.cancelled() => break,
        };
        let Some(bytes) = bytes else { return };
        tokio::select! {
            written = write.write_all(&bytes) => if written.is_err() { return },
            () = closed.cancelled() => return,
        }
    }
    messages.close();
    let rest = async {
        while let Some(bytes) = messages.recv().await {
            write.write_all(&bytes).await?;
        }
        write.shutdown().await
    };
    let _gone = timeout(LAST_WORDS, rest).await;
}

async fn answer<S: Service>(service: &S, name: &str, body: Bytes) -> Result<Vec<u8>, Status> {
    let now = Instant::now();
    let request = Request::decode(body).map_err(|why| {
        Status::new(INVALID_ARGUMENT, format!("the request cannot be read: {why}"))
    })?;
    if request.service != name {
        let message = format!("there is no service {}, only {name}", request.service);
        return Err(Status::new(UNIMPLEMENTED, message));
    }
    let limit = match u64::try_from(request.timeout_nano) {
        Ok(0) | Err(_) => NO_TIMEOUT,
        Ok(nanos) => Duration::from_nanos(nanos).min(NO_TIMEOUT),
    };
    let Request { method, payload, .. } = request;
    service.answer(Call { method, payload, deadline: now + limit }).await
}

fn read_answer<A: prost::Message + Default>(body: Bytes) -> Result<A, CallError> {
    let unreadable = |why: prost::DecodeError| CallError::Unreadable(why.to_string());
    let response = Response::decode(body).map_err(unreadable)?;
    match response.status {
        Some(status) if status.code != 0 => Err(CallError::Refused(status)),
        _ => A::decode(response.payload).map_err(unreadable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api;
    use crate::ttrpc::UNKNOWN;

    /// Answers `Echo` with the message, `Slow` never, and everything else with an error.
    #[derive(Clone)]
    struct Echo;

    impl Service for Echo {
        async fn answer(&self, call: Call) -> Result<Vec<u8>, Status> {
            match call.method.as_str() {
                "Echo" => Ok(call.payload.to_vec()),
                "Slow" => std::future::pending().await,
                method => Err(Status::new(UNKNOWN, format!("{method}: not here"))),
            }
        }
    }

    fn pair() -> (Session, Session) {
        let (plugin, runtime) = UnixStream::pair().unwrap();
        (Session::start(plugin, End::Plugin, Echo), Session::start(runtime, End::Runtime, Echo))
    }

    fn pod(length: usize) -> api::PodSandbox {
        api::PodSandbox { id: "x".repeat(length), ..Default::default() }
    }

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn both_ends_call_each_other_at_once_with_messages_of_any_length() {
        let (plugin, runtime) = pair();
        for length in [0, 4000, 4096, 100_000, 3 << 20] {
            let sent = pod(length);
            let (one, two) = tokio::join!(
                plugin.call::<api::PodSandbox>("Echo", &sent, LIMIT),
                runtime.call::<api::PodSandbox>("Echo", &sent, LIMIT),
            );
            assert_eq!((one, two), (Ok(sent.clone()), Ok(sent)), "{length}");
        }
    }

    #[tokio::test]
    async fn a_call_fails_in_each_of_its_ways() {
        let (plugin, runtime) = pair();
        let refused = Status::new(UNKNOWN, "Else: not here");
        for (method, limit, length, expected) in [
            ("Else", LIMIT, 1, CallError::Refused(refused)),
            ("Slow", Duration::from_millis(5), 1, CallError::Late(Duration::from_millis(5))),
        ] {
            let answer = plugin.call::<api::PodSandbox>(method, &pod(length), limit).await;
            assert_eq!(answer, Err(expected));
        }
        let long = plugin.call::<api::PodSandbox>("Echo", &pod(5 << 20), LIMIT).await;
        assert!(matches!(long, Err(CallError::Long(_))), "{long:?}");
        let sent = pod(1);
        let slow = runtime.call::<api::PodSandbox>("Slow", &sent, LIMIT);
        let (answer, ()) = tokio::join!(slow, async { plugin.close() });
        assert_eq!(answer, Err(CallError::Closed));
        runtime.closed().await;
        assert!(plugin.waiting().is_empty() && runtime.waiting().is_empty());
    }
}
