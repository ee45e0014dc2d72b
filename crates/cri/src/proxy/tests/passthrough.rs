//! Calls that are not read.

use std::sync::{Arc, Mutex};

use bayplan_workload::Admission;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyStream, StreamBody};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::embedded::Fault;
use crate::intercept::DECODED;
use crate::test_support::{House, run_pod, soon};
use crate::v1;

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

/// Sends the body back as it comes, with these headers before and trailers after it.
fn echo(request: Request<Body>, before: HeaderMap, after: HeaderMap) -> Response<Body> {
    let trailers = stream::iter([Ok(Frame::trailers(after))]);
    let body = BodyStream::new(request.into_body()).chain(trailers);
    let mut response = Response::new(Body::new(StreamBody::new(body)));
    *response.headers_mut() = before;
    response
}

#[tokio::test]
async fn a_method_that_does_not_exist_yet_passes_with_everything_on_it() {
    let before = headers(&[
        ("content-type", "application/grpc"),
        ("x-runtime", "yes"),
        ("x-runtime-bin", "AAEC"),
    ]);
    let after = headers(&[
        ("grpc-status", "9"),
        ("grpc-message", "not%20now"),
        ("grpc-status-details-bin", "CAkSB25vdCBub3c"),
        ("x-after", "1"),
    ]);
    let seen: Arc<Mutex<Option<http::request::Parts>>> = Arc::default();
    let (note, expected) = (Arc::clone(&seen), (before.clone(), after.clone()));
    let house = House::with_raw_runtime(Admission::PassThrough, move |request: Request<Body>| {
        let (head, body) = request.into_parts();
        let answer = echo(Request::from_parts(head.clone(), body), before.clone(), after.clone());
        *note.lock().unwrap() = Some(head);
        async move { answer }
    });
    let sent = headers(&[
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("user-agent", "grpc-go/1.82.1"),
        ("grpc-timeout", "119999877u"),
        ("x-kubelet", "1"),
        ("x-kubelet-bin", "AAEC"),
    ]);
    let body = Bytes::from((0..9_u32 << 20).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
    let path = "/runtime.v9.NewService/NewMethod";
    let answer = house.send(path, sent.clone(), body.clone()).await;
    assert!(answer.body == body, "the body came back changed");
    assert_eq!((answer.headers, answer.trailers), expected);
    let seen = seen.lock().unwrap().take().unwrap();
    assert_eq!(seen.uri, "http://localhost/runtime.v9.NewService/NewMethod");
    assert_eq!(seen.headers, sent);
    house.agent.wait_for("call NewMethod 9").await;
}

#[tokio::test]
async fn what_would_be_read_passes_in_another_version_and_that_is_told() {
    let house = House::with_raw_runtime(Admission::PassThrough, |request: Request<Body>| {
        let answer = echo(request, HeaderMap::new(), headers(&[("grpc-status", "0")]));
        async move { answer }
    });
    let other_versions = DECODED.iter().map(|path| path.replace("runtime.v1.", "runtime.v2."));
    let alpha = "/runtime.v1alpha2.RuntimeService/CreateContainer".to_owned();
    for path in other_versions.chain([alpha]) {
        let body = Bytes::from_static(b"what it says is not known");
        let answer = house.send(&path, HeaderMap::new(), body.clone()).await;
        assert_eq!(answer.body, body);
        assert_eq!(house.agent.heard().pop(), Some(format!("other version {path}")));
    }
    let told = house.agent.heard().len();
    for path in [
        "/runtime.v2.RuntimeService/ListContainers",
        "/runtime.v2.ImageService/CreateContainer",
        "/runtime.v2/x.RuntimeService/CreateContainer",
        "/somebody.v2.RuntimeService/CreateContainer",
        "/runtime.v1.RuntimeService/ListContainers",
    ] {
        house.send(path, HeaderMap::new(), Bytes::new()).await;
        assert_eq!(house.agent.heard().len(), told, "{path}");
    }
}

#[tokio::test]
async fn an_answer_without_a_body_keeps_its_status_and_details() {
    let only = headers(&[
        ("content-type", "application/grpc"),
        ("grpc-status", "5"),
        ("grpc-message", "no%20such%20thing"),
        ("grpc-status-details-bin", "CAUSAm5v"),
    ]);
    let expected = only.clone();
    let house = House::with_raw_runtime(Admission::PassThrough, move |_| {
        let mut response = Response::new(Body::empty());
        *response.headers_mut() = only.clone();
        async move { response }
    });
    for path in ["/runtime.v1.RuntimeService/Version", "/runtime.v1.RuntimeService/StopContainer"] {
        let answer = house.send(path, HeaderMap::new(), Bytes::from_static(b"\0\0\0\0\0")).await;
        assert_eq!(answer.headers, expected);
        assert!(answer.body.is_empty() && answer.trailers.is_empty());
    }
    house.agent.wait_for("call Version 5").await;
    house.agent.wait_for("call StopContainer 5").await;
}

#[tokio::test]
async fn events_stream_through_and_are_cut_at_the_stop() {
    let mut house = House::new(Admission::PassThrough);
    let mut client = house.client();
    let request = v1::GetEventsRequest::default();
    let mut events = soon(client.get_container_events(request)).await.unwrap().into_inner();
    let pod = soon(client.run_pod_sandbox(run_pod("web"))).await.unwrap().into_inner();
    for expected in [
        v1::ContainerEventType::ContainerCreatedEvent,
        v1::ContainerEventType::ContainerStartedEvent,
    ] {
        let event = soon(events.message()).await.unwrap().unwrap();
        assert_eq!(event.container_id, pod.pod_sandbox_id);
        assert_eq!(event.container_event_type(), expected);
    }
    house.proxy_server.stop().await;
    assert!(soon(events.message()).await.is_err());
    assert!(house.agent.lines().contains(&"call GetContainerEvents 1".to_owned()));
}

#[tokio::test]
async fn a_client_that_goes_away_resets_the_runtimes_stream() {
    let (arrived, dropped) = (CancellationToken::new(), CancellationToken::new());
    let tokens = (arrived.clone(), dropped.clone());
    let house = House::with_raw_runtime(Admission::PassThrough, move |_| {
        let (arrived, dropped) = tokens.clone();
        async move {
            let _seen = dropped.drop_guard();
            arrived.cancel();
            std::future::pending().await
        }
    });
    let mut client = house.client();
    let call = tokio::spawn(async move { client.version(v1::VersionRequest::default()).await });
    soon(arrived.cancelled()).await;
    call.abort();
    soon(dropped.cancelled()).await;
    house.agent.wait_for("call Version 1").await;
}

#[tokio::test]
async fn a_runtime_that_is_not_there_is_named_with_what_to_do() {
    let mut house = House::new(Admission::PassThrough);
    let mut client = house.client();
    soon(client.version(v1::VersionRequest::default())).await.unwrap();
    house.runtime_server.stop().await;
    std::fs::remove_file(&house.runtime_socket).unwrap();
    let status = soon(client.version(v1::VersionRequest::default())).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let message = status.message();
    assert!(message.contains(house.runtime_socket.to_str().unwrap()), "{message}");
    assert!(message.contains("check that it is running"), "{message}");
    house.agent.wait_for("call Version 14").await;
}

#[tokio::test]
async fn the_connection_comes_back_with_the_runtime() {
    let mut house = House::new(Admission::PassThrough);
    let mut client = house.client();
    soon(client.run_pod_sandbox(run_pod("web"))).await.unwrap();
    house.runtime_server.stop().await;
    std::fs::remove_file(&house.runtime_socket).unwrap();
    let listener = tokio::net::UnixListener::bind(&house.runtime_socket).unwrap();
    let runtime = house.runtime.clone();
    let again = tokio::spawn(async move { runtime.serve(listener, std::future::pending()).await });
    let pods = soon(client.list_pod_sandbox(v1::ListPodSandboxRequest::default())).await.unwrap();
    assert_eq!(pods.into_inner().items.len(), 1);
    again.abort();
}

#[tokio::test]
async fn a_runtime_that_vanishes_in_an_unread_call_is_unavailable() {
    let mut house = House::new(Admission::PassThrough);
    house.runtime.inject("ListContainers", Fault::Hang);
    let mut client = house.client();
    let call = tokio::spawn(async move {
        client.list_containers(v1::ListContainersRequest::default()).await.map(drop)
    });
    soon(house.runtime.called("ListContainers", 1)).await;
    house.runtime_server.stop().await;
    let status = soon(call).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}

#[tokio::test]
async fn a_stream_whose_runtime_vanishes_ends_with_a_status() {
    let mut house = House::new(Admission::PassThrough);
    let mut client = house.client();
    let request = v1::GetEventsRequest::default();
    let mut events = soon(client.get_container_events(request)).await.unwrap().into_inner();
    house.runtime_server.stop().await;
    let status = soon(events.message()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("broke off"), "{status}");
    house.agent.wait_for("call GetContainerEvents 14").await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_says_why() {
    for (why, expected) in [
        (Status::cancelled("enough"), Code::Cancelled),
        (Status::internal("a bug"), Code::Unavailable),
    ] {
        let house = House::with_raw_runtime(Admission::PassThrough, move |_| {
            let frames = stream::iter([Ok(Frame::data("begun".into())), Err(why.clone())]);
            async move { Response::new(Body::new(StreamBody::new(frames))) }
        });
        for path in [
            "/runtime.v1.RuntimeService/GetContainerEvents",
            "/runtime.v1.RuntimeService/StopContainer",
        ] {
            let answer =
                house.send(path, HeaderMap::new(), Bytes::from_static(b"\0\0\0\0\0")).await;
            let told = [answer.headers, answer.trailers];
            let status = told.iter().find_map(Status::from_header_map).unwrap();
            assert_eq!(status.code(), expected, "{path} {status}");
            assert!(status.message().contains("broke off"), "{path} {status}");
        }
    }
}

#[tokio::test]
async fn a_request_that_the_runtime_does_not_want_to_hear_out_is_answered_and_given_up() {
    let house = House::with_raw_runtime(Admission::PassThrough, |_| {
        let mut response = Response::new(Body::empty());
        response.headers_mut().extend(headers(&[("grpc-status", "3")]));
        async move { response }
    });
    // It never ends.
    let dropped = CancellationToken::new();
    let held = dropped.clone().drop_guard();
    let frames = stream::repeat_with(move || {
        let _held = &held;
        Ok::<_, Status>(Frame::data(Bytes::from(vec![0; 64 << 10])))
    });
    let path = "/runtime.v9.NewService/NewMethod";
    let request = Request::post(path).body(Body::new(StreamBody::new(frames))).unwrap();
    let answer = soon(house.kubelet().forward(request)).await.unwrap();
    assert_eq!(answer.headers()["grpc-status"], "3");
    drop(answer);
    soon(dropped.cancelled()).await;
    house.agent.wait_for("call NewMethod 3").await;
}
