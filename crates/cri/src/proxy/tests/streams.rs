//! Many calls at once, long ones, and streams in every direction; of all methods that there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bayplan_workload::Admission;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Barrier, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::body::Body;

use crate::embedded::EmbeddedRuntime;
use crate::frame::{self, MESSAGE_LEN_MAX};
use crate::proxy::{self, Proxy};
use crate::test_support::{House, soon};
use crate::upstream::Upstream;
use crate::v1;

const PROTOCOL: &str = include_str!("../../../../../proto/cri/api.proto");

fn ok() -> Frame<Bytes> {
    Frame::trailers(HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from(0))]))
}

/// Whatever comes, as it comes.
async fn echo(request: Request<Body>) -> Response<Body> {
    let body = BodyStream::new(request.into_body()).chain(stream::iter([Ok(ok())]));
    Response::new(Body::new(StreamBody::new(body)))
}

/// Paths of all methods of the protocol file.
fn all_methods() -> Vec<String> {
    let mut service = "";
    let mut methods = Vec::new();
    for line in PROTOCOL.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("service ") {
            service = name.trim_end_matches(['{', ' ']);
        }
        if let Some((name, _)) = line.strip_prefix("rpc ").and_then(|rest| rest.split_once('(')) {
            methods.push(format!("/runtime.v1.{service}/{name}"));
        }
    }
    methods
}

#[tokio::test]
async fn every_method_reaches_the_runtime_and_comes_back() {
    let house = House::with_raw_runtime(Admission::PassThrough, echo);
    let methods = all_methods();
    assert!(methods.len() > 35, "{methods:?}");
    // No message of the protocol: nothing but the frame is read.
    let body = frame::wrap(b"\xff\xff\xff", &[]).unwrap();
    for path in &methods {
        let answer = soon(house.send(path, HeaderMap::new(), body.clone())).await;
        assert!(answer.body == body, "{path}");
        assert_eq!(answer.trailers.get("grpc-status").unwrap(), "0", "{path}");
    }
}

#[tokio::test]
async fn messages_as_long_as_they_may_be_pass_in_both_directions() {
    let house = House::with_raw_runtime(Admission::PassThrough, echo);
    let longest = vec![0x5a; MESSAGE_LEN_MAX];
    let body = frame::wrap(&longest, &[]).unwrap();
    // One that is not read, and one that is read as far as it can be.
    for path in ["/runtime.v1.ImageService/ListImages", "/runtime.v1.RuntimeService/StopContainer"]
    {
        let answer = soon(house.send(path, HeaderMap::new(), body.clone())).await;
        assert!(answer.body == body, "{path}");
    }
}

#[tokio::test]
async fn both_sides_of_a_stream_speak_in_turn() {
    let house = House::with_raw_runtime(Admission::PassThrough, echo);
    let (say, said) = mpsc::channel::<Result<Frame<Bytes>, Status>>(1);
    let body = Body::new(StreamBody::new(ReceiverStream::new(said)));
    let request = Request::post("/runtime.v9.Service/Both").body(body).unwrap();
    say.send(Ok(Frame::data(Bytes::from_static(b"0")))).await.unwrap();
    let mut heard = soon(house.kubelet().forward(request)).await.unwrap().into_body();
    for word in ["0", "1", "2"] {
        let frame = soon(heard.frame()).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), word);
        let next = word.parse::<u32>().unwrap() + 1;
        say.send(Ok(Frame::data(next.to_string().into()))).await.unwrap();
    }
    drop(say);
    soon(heard.frame()).await.unwrap().unwrap();
    assert!(soon(heard.frame()).await.unwrap().unwrap().is_trailers());
}

#[tokio::test]
async fn a_thousand_calls_are_under_way_at_once_and_none_is_taken_for_an_attack() {
    const CALLS: usize = 1000;
    let all_here = Arc::new(Barrier::new(CALLS));
    let house = House::with_raw_runtime(Admission::PassThrough, move |request| {
        let all_here = Arc::clone(&all_here);
        async move {
            all_here.wait().await;
            echo(request).await
        }
    });
    let upstream = house.kubelet();
    let calls = (0..CALLS).map(|number| {
        let upstream = upstream.clone();
        // Half of them are read.
        let name = if number % 2 == 0 { "StopContainer" } else { "Version" };
        let path = format!("/runtime.v1.RuntimeService/{name}");
        let body = Body::new(http_body_util::Full::new(frame::wrap(b"", &[]).unwrap()));
        let request = Request::post(path).body(body).unwrap();
        async move {
            let answer = upstream.forward(request).await.unwrap();
            let told = format!("{:?}", answer.headers());
            (told, answer.into_body().collect().await.unwrap())
        }
    });
    let answers = soon(futures::future::join_all(calls)).await;
    for (headers, answer) in answers {
        assert!(answer.trailers().is_some(), "{headers}");
    }
}

/// What was made when nothing more is for half a second.
async fn stopped(made: &AtomicUsize) -> usize {
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = made.load(Ordering::Relaxed);
        if now == before {
            return now;
        }
        before = now;
    }
}

#[tokio::test]
async fn a_slow_reader_holds_up_the_runtime_and_not_the_memory() {
    const FRAME: usize = 64 << 10;
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let house = House::with_raw_runtime(Admission::PassThrough, move |_| {
        let count = Arc::clone(&count);
        let frames = stream::repeat_with(move || {
            count.fetch_add(FRAME, Ordering::Relaxed);
            Ok::<_, Status>(Frame::data(Bytes::from(vec![0; FRAME])))
        });
        async move { Response::new(Body::new(StreamBody::new(frames))) }
    });
    let request = Request::post("/runtime.v1.RuntimeService/GetContainerEvents");
    let request = request.body(Body::empty()).unwrap();
    let mut events = soon(house.kubelet().forward(request)).await.unwrap().into_body();
    soon(events.frame()).await.unwrap().unwrap();
    let held = soon(stopped(&made)).await;
    assert!(held < 64 << 20, "{held} bytes for a client that does not read");
    // Others are not held up, however many clients do not read.
    let mut stalled = Vec::new();
    for _ in 0..5 {
        let request = Request::post("/runtime.v1.RuntimeService/GetContainerEvents");
        let kubelet = house.kubelet();
        let answer = soon(kubelet.forward(request.body(Body::empty()).unwrap())).await;
        let mut answer = answer.unwrap().into_body();
        soon(answer.frame()).await.unwrap().unwrap();
        stalled.push(answer);
    }
    soon(stopped(&made)).await;
    let request = Request::post("/runtime.v1.RuntimeService/GetContainerEvents");
    let kubelet = house.kubelet();
    let other = soon(kubelet.forward(request.body(Body::empty()).unwrap())).await;
    soon(other.unwrap().into_body().frame()).await.unwrap().unwrap();
    // A client that reads again gets more.
    for _ in 0..1000 {
        soon(events.frame()).await.unwrap().unwrap();
    }
    assert!(made.load(Ordering::Relaxed) > held);
}

#[tokio::test]
async fn a_client_that_asks_whether_the_connection_lives_is_answered() {
    let house = House::with_raw_runtime(Admission::PassThrough, echo);
    let stream = UnixStream::connect(house.kubelet_socket()).await.unwrap();
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let every = Duration::from_millis(20);
    builder.timer(TokioTimer::new()).keep_alive_interval(every);
    builder.keep_alive_timeout(Duration::from_secs(10)).keep_alive_while_idle(true);
    let (mut client, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    // Many times without a call, which some servers take for an attack.
    tokio::time::sleep(30 * every).await;
    let request = Request::post("http://localhost/runtime.v1.RuntimeService/Version");
    let answer = soon(client.send_request(request.body(Body::empty()).unwrap())).await.unwrap();
    assert!(soon(answer.into_body().collect()).await.unwrap().trailers().is_some());
    assert!(!connection.is_finished());
}

#[tokio::test]
async fn image_calls_go_to_a_socket_of_their_own_if_there_is_one() {
    let house = House::new(Admission::PassThrough);
    let folder = tempfile::tempdir().unwrap();
    let (socket, image_socket) = (folder.path().join("proxy"), folder.path().join("images"));
    let (images, listener) = (EmbeddedRuntime::new(), UnixListener::bind(&image_socket).unwrap());
    let served = images.clone();
    tokio::spawn(async move { served.serve(listener, std::future::pending()).await });
    let limit = Duration::from_secs(5);
    let runtime = Upstream::new(house.runtime_socket.clone(), limit);
    let proxy = Proxy::new(runtime, Some(Upstream::new(image_socket, limit)), house.agent.clone());
    let listener = UnixListener::bind(&socket).unwrap();
    tokio::spawn(proxy::serve(listener, proxy, std::future::pending(), move || limit));
    let kubelet = Upstream::new(socket, limit);
    let mut client = v1::image_service_client::ImageServiceClient::new(kubelet.clone());
    soon(client.list_images(v1::ListImagesRequest::default())).await.unwrap();
    soon(kubelet.runtime_client().version(v1::VersionRequest::default())).await.unwrap();
    for (path, expected) in [
        ("/runtime.v1.ImageService/PullImage", true),
        ("/runtime.v2.ImageService/ListImages", true),
        ("/runtime.v1.RuntimeService/ImageService", false),
        ("/runtime.v1.NoImageServices/ListImages", false),
        ("", false),
    ] {
        assert_eq!(super::super::passed::is_about_images(path), expected, "{path}");
    }
    let counts =
        |runtime: &EmbeddedRuntime| (runtime.calls("ListImages"), runtime.calls("Version"));
    assert_eq!((counts(&images), counts(&house.runtime)), ((1, 0), (0, 1)));
}
