//! Calls that have not ended. In: requests as they come. Out: when those that take long have ended, and what each is about.
//!
//! What a call is about is read out of its request only when it is asked for; until then its frames are kept as they came.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Request;
use http::uri::PathAndQuery;
use http_body::{Frame, SizeHint};
use prost::Message;
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;

use crate::{frame, v1};

/// Longer requests are not kept; nothing that names what a call is about comes near it.
const KEPT_LEN_MAX: usize = 64 << 10;

/// How long calls of a method take when nothing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    /// Milliseconds.
    Short,
    /// As long as a process takes to end, a network to be made, an image to arrive.
    Long,
    /// For ever.
    Stream,
}

impl Duty {
    fn of(method: &str) -> Duty {
        match method {
            "RunPodSandbox"
            | "StopPodSandbox"
            | "StopContainer"
            | "ExecSync"
            | "CheckpointContainer"
            | "PullImage" => Duty::Long,
            "GetContainerEvents" => Duty::Stream,
            _ => Duty::Short,
        }
    }
}

/// All calls that have not ended. Cheap to clone; clones share the list.
#[derive(Clone, Debug, Default)]
pub(super) struct UnderWay {
    board: Arc<Board>,
}

#[derive(Debug, Default)]
struct Board {
    list: Mutex<List>,
    /// A call that takes long has ended.
    ended: Notify,
}

#[derive(Debug, Default)]
struct List {
    next: u64,
    calls: BTreeMap<u64, Call>,
}

#[derive(Clone, Debug)]
struct Call {
    path: PathAndQuery,
    duty: Duty,
    since: Instant,
    request: Arc<Mutex<Kept>>,
}

/// The frames of a request that have been read so far.
#[derive(Debug, Default)]
struct Kept {
    frames: Vec<Bytes>,
    length: usize,
}

/// A call is under way as long as this lives.
#[derive(Debug)]
pub(crate) struct Entry {
    board: Arc<Board>,
    number: u64,
    path: PathAndQuery,
}

impl Entry {
    /// Of the call, as `/runtime.v1.RuntimeService/Version`.
    pub(super) fn path(&self) -> &str {
        self.path.path()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let ended = lock(&self.board.list).calls.remove(&self.number);
        if ended.is_some_and(|call| call.duty == Duty::Long) {
            self.board.ended.notify_waiters();
        }
    }
}

impl UnderWay {
    /// Puts a call on the list.
    pub(super) fn enter<B>(&self, request: Request<B>) -> (Request<Body>, Entry)
    where
        B: http_body::Body<Data = Bytes, Error = Status> + Send + Unpin + 'static,
    {
        // Shares the memory of the request's head.
        let path = request.uri().path_and_query().cloned();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        let (duty, kept) = (Duty::of(method(&path)), Arc::default());
        let request = request.map(|inner| Body::new(KeptBody { inner, kept: Arc::clone(&kept) }));
        let call = Call { path: path.clone(), duty, since: Instant::now(), request: kept };
        let mut list = lock(&self.board.list);
        let number = list.next;
        list.next += 1;
        list.calls.insert(number, call);
        (request, Entry { board: Arc::clone(&self.board), number, path })
    }

    /// Comes back at a moment when no call is under way that takes long by nature.
    pub(super) async fn long_calls_end(&self) {
        loop {
            let mut ended = pin!(self.board.ended.notified());
            // From here on no end is missed.
            ended.as_mut().enable();
            if self.calls(Duty::Long).is_empty() {
                return;
            }
            ended.await;
        }
    }

    /// Those that take long by nature.
    pub(super) fn long_calls(&self) -> Vec<String> {
        self.calls(Duty::Long).iter().map(ToString::to_string).collect()
    }

    /// All that end by themselves.
    pub(super) fn unfinished(&self) -> Vec<String> {
        let mut calls = self.calls(Duty::Short);
        calls.extend(self.calls(Duty::Long));
        calls.iter().map(ToString::to_string).collect()
    }

    fn calls(&self, duty: Duty) -> Vec<Call> {
        let list = lock(&self.board.list);
        list.calls.values().filter(|call| call.duty == duty).cloned().collect()
    }
}

/// Nothing that is done under these locks can fail half way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `StopContainer 3f2a for 2.1 s`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { path, since, request, .. } = self;
        let method = method(path);
        let tenths = Duration::from_millis(100);
        let ran_for = since.elapsed().div_duration_f64(tenths).round() / 10.0;
        match lock(request).subject(method) {
            Some(subject) => write!(f, "{method} {subject} for {ran_for} s"),
            None => write!(f, "{method} for {ran_for} s"),
        }
    }
}

impl Kept {
    fn keep(&mut self, data: &Bytes) {
        self.length = self.length.saturating_add(data.len());
        if self.length <= KEPT_LEN_MAX {
            self.frames.push(data.clone());
        } else {
            self.frames.clear();
        }
    }

    /// The container, pod or image; `None` when the request does not say so in a way that is known here.
    fn subject(&self, method: &str) -> Option<String> {
        let mut data = BytesMut::new();
        self.frames.iter().for_each(|frame| data.extend_from_slice(frame));
        subject(method, frame::parse(&data.freeze()).ok()?)
    }
}

fn method(path: &PathAndQuery) -> &str {
    path.path().rsplit('/').next().unwrap_or_default()
}

fn subject(method: &str, message: Bytes) -> Option<String> {
    let pod = |config: Option<v1::PodSandboxConfig>| {
        let metadata = config?.metadata?;
        Some(format!("{}/{}", metadata.namespace, metadata.name))
    };
    let subject = match method {
        "RunPodSandbox" => pod(v1::RunPodSandboxRequest::decode(message).ok()?.config)?,
        "CreateContainer" => {
            let create = v1::CreateContainerRequest::decode(message).ok()?;
            format!("{}/{}", pod(create.sandbox_config)?, create.config?.metadata?.name)
        }
        "PullImage" => v1::PullImageRequest::decode(message).ok()?.image?.image,
        // All others that are about a pod or container have its id in their first field, as this message does.
        _ => v1::RemoveContainerRequest::decode(message).ok()?.container_id,
    };
    Some(subject).filter(|subject| !subject.is_empty())
}

/// A request's body as it is, with its frames kept.
struct KeptBody<B> {
    inner: B,
    kept: Arc<Mutex<Kept>>,
}

impl<B> http_body::Body for KeptBody<B>
where
    B: http_body::Body<Data = Bytes, Error = Status> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            lock(&self.kept).keep(data);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    /// Enters a call, reads its request, and gives the line about it, without the time.
    async fn check(path: &str, message: impl Message, expected: &str) {
        let under_way = UnderWay::default();
        let body = frame::wrap(&message.encode_to_vec(), &[]).unwrap();
        let request = Request::post(path).body(Body::new(Full::new(body.clone()))).unwrap();
        let (request, entry) = under_way.enter(request);
        let read = request.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(read, body);
        let lines = under_way.unfinished();
        assert!(lines[0].starts_with(expected), "{lines:?}, not {expected}");
        drop(entry);
        assert_eq!(under_way.unfinished(), [""; 0]);
    }

    #[tokio::test]
    async fn calls_are_named_with_what_they_are_about() {
        let metadata = v1::PodSandboxMetadata {
            name: "web".to_owned(),
            namespace: "default".to_owned(),
            ..Default::default()
        };
        let pod = v1::PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
        let run = v1::RunPodSandboxRequest { config: Some(pod.clone()), ..Default::default() };
        check("/runtime.v1.RuntimeService/RunPodSandbox", run, "RunPodSandbox default/web for 0 s")
            .await;
        let name = v1::ContainerMetadata { name: "main".to_owned(), attempt: 0 };
        let create = v1::CreateContainerRequest {
            config: Some(v1::ContainerConfig { metadata: Some(name), ..Default::default() }),
            sandbox_config: Some(pod),
            ..Default::default()
        };
        check(
            "/runtime.v1.RuntimeService/CreateContainer",
            create,
            "CreateContainer default/web/main",
        )
        .await;
        let stop = v1::StopContainerRequest { container_id: "3f2a".to_owned(), timeout: 30 };
        check("/runtime.v1.RuntimeService/StopContainer", stop, "StopContainer 3f2a for").await;
        let image = v1::ImageSpec { image: "busybox:1".to_owned(), ..Default::default() };
        let pull = v1::PullImageRequest { image: Some(image), ..Default::default() };
        check("/runtime.v1.ImageService/PullImage", pull, "PullImage busybox:1 for").await;
        check("/a.b/Unknown", v1::VersionRequest::default(), "Unknown for 0 s").await;
    }

    #[tokio::test]
    async fn only_long_calls_are_waited_for() {
        let under_way = UnderWay::default();
        let enter = |method: &str| {
            let path = format!("/runtime.v1.RuntimeService/{method}");
            under_way.enter(Request::post(path).body(Body::empty()).unwrap()).1
        };
        let _short = enter("ListContainers");
        let _stream = enter("GetContainerEvents");
        under_way.long_calls_end().await;
        let (first, second) = (enter("StopContainer"), enter("PullImage"));
        let mut waiting = tokio::spawn({
            let under_way = under_way.clone();
            async move { under_way.long_calls_end().await }
        });
        for entry in [first, second] {
            let early = tokio::time::timeout(Duration::from_millis(50), &mut waiting).await;
            assert!(early.is_err(), "did not wait");
            drop(entry);
        }
        waiting.await.unwrap();
        assert_eq!(under_way.unfinished().len(), 1);
    }
}
